"""How the code is written, where a program can tell: docstrings on everything public, short functions, short files."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for part in ("stream_dr", "service") for path in (ROOT / part).rglob("*.py"))
LONGEST_FUNCTION, LONGEST_FILE = 60, 600

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Every public function, class and method defined at the top of a module or of a public class, by its full name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{child.name}.")


def offences(path: Path) -> Iterator[str]:
    """What in a file is written otherwise."""
    text = path.read_text(encoding="utf8")
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "the module has no docstring"
    yield from (f"{name} has no docstring" for name, node in public(tree) if not ast.get_docstring(node))
    for node in ast.walk(tree):
        lines = (node.end_lineno or 0) - node.lineno + 1 if isinstance(node, Function) else 0
        if isinstance(node, Function) and lines > LONGEST_FUNCTION:
            yield f"{node.name} has {lines} lines"
    if (lines := len(text.splitlines())) > LONGEST_FILE:
        yield f"the file has {lines} lines"


def test_docstrings_and_lengths() -> None:
    assert [f"{path.relative_to(ROOT)}: {offence}" for path in FILES for offence in offences(path)] == []


def test_what_is_written_otherwise_is_found(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text("def long():\n" + "    x = 1\n" * 700)
    assert list(offences(path)) == [
        "the module has no docstring",
        "long has no docstring",
        "long has 701 lines",
        "the file has 701 lines",
    ]

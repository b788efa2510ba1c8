"""How the code is written, where a program can tell: docstrings on everything public, short functions, short files."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for part in ("stream_dr", "service") for path in (ROOT / part).rglob("*.py"))
LONGEST_FUNCTION, LONGEST_FILE = 60, 420

Function = ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Every public function, class and method defined at the top of a module or of a public class, by its full name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public(child, f"{child.name}.")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_docstrings_and_lengths(path: Path) -> None:
    text = path.read_text(encoding="utf8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "the module has no docstring"
    assert [name for name, node in public(tree) if not ast.get_docstring(node)] == [], "public names without docstring"
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    lines = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: n for name, n in lines.items() if n > LONGEST_FUNCTION} == {}, "too long a function"
    assert len(text.splitlines()) <= LONGEST_FILE, "too long a file"

"""Files and modules that docstrings and comments name exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for part in ("stream_dr", "service") for path in (ROOT / part).rglob("*.py"))
PARTS = ("stream_dr", "service", "tests", "benchmarks", "docs")
PATHS = {path.relative_to(ROOT).as_posix() for part in PARTS for path in (ROOT / part).rglob("*.*")}

PLACEHOLDERS = {"stream_dr/commands/NAME.py"}
"""Names that stand for any of several files."""


def prose(text: str) -> Iterator[str]:
    """Yield every docstring and comment of a source text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def missing(text: str) -> Iterator[str]:
    """Yield the files and modules that the prose of a source text names and that do not exist."""
    for words in prose(text):
        for name in re.findall(r"[\w/]*\w\.(?:py|pyi|md)\b", words):
            if name not in PLACEHOLDERS and not any(f"/{path}".endswith(f"/{name}") for path in PATHS):
                yield name
        for name in re.findall(rf"\b(?:{'|'.join(PARTS)})(?:\.[a-z_]\w*)+", words):
            if not name.endswith((".py", ".md")) and not exists(name):
                yield name


def exists(dotted: str) -> bool:
    """True if a dotted name is a package, a module, or a name that one of these defines."""
    place = dotted.replace(".", "/")
    if (ROOT / place).is_dir() or (ROOT / f"{place}.py").is_file():
        return True
    package, _, name = dotted.rpartition(".")
    holders = [ROOT / package.replace(".", "/") / end for end in ("__init__.py", "__init__.pyi")]
    holders.append(ROOT / f"{package.replace('.', '/')}.py")
    return any(re.search(rf"\b{name}\b", path.read_text("utf8")) for path in holders if path.is_file())


def title(text: str) -> str | None:
    """Return the name with which a module's docstring begins ("name: what it is"), or None."""
    match = re.match(r"([a-z_]+): ", ast.get_docstring(ast.parse(text)) or "")
    return match and match.group(1)


def test_files_and_modules_named_exist() -> None:
    assert [f"{path.name}: {name}" for path in SOURCES for name in missing(path.read_text("utf8"))] == []


def test_module_docstrings_begin_with_their_own_name_or_none() -> None:
    titles = {path: title(path.read_text("utf8")) for path in SOURCES}
    assert [(path.name, name) for path, name in titles.items() if name not in (None, path.stem, path.parent.name)] == []


def test_a_name_that_is_not_there_is_reported() -> None:
    text = '"""See batch/gone.py and batch/block.py."""\n'
    text += "x = 1  # stream_dr.batch.gone.f, stream_dr.batch.block, stream_dr.LDA\n"
    assert list(missing(text)) == ["batch/gone.py", "stream_dr.batch.gone.f"]


def parameters(node: ast.AST) -> set[str]:
    """Return the parameters of a function or of a class's own constructor, or an empty set."""
    if isinstance(node, ast.ClassDef):
        constructors = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
        return parameters(constructors[0]) if constructors else set()
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    a = node.args
    return {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None}


def listed(docstring: str) -> list[str]:
    """Return the names that a docstring lists under "Parameters"."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :|$)", section.group(1) if section else "", re.MULTILINE)
    return [name.lstrip("*") for entry in entries for name in entry.split(", ")]


def test_parameters_that_docstrings_list_exist() -> None:
    unknown = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names = listed(ast.get_docstring(node) or "")
                known = parameters(node) if names else set()
                unknown += [f"{path.name}: {node.name}: {name}" for name in names if known and name not in known]
    assert unknown == []

"""Nothing of ours rests on a private name: neither on another package's, nor on one of another module of ours."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for part in ("stream_dr", "service") for path in (ROOT / part).rglob("*.py"))

DOCUMENTED = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}
"""Of named tuples."""

INTERNAL = ("numba.core", "numba.np", "pyarrow.lib", "uvicorn.protocols")
"""Modules that other packages do not document, whatever they are called."""

BYPASSES = {"__new__", "__dict__"}
"""What makes or fills an object past its constructor."""


REFLECTION = {("getattr",), ("setattr",), ("hasattr",), ("delattr",)}
"""Functions that take the name of an attribute as a string."""


def private(name: str) -> bool:
    """Whether a name is one that its owner keeps to itself; `_` alone and names like `__name__` are not."""
    return name.startswith("_") and len(name) > 1 and not name.endswith("__") and name not in DOCUMENTED


def internal(module: str) -> bool:
    """Whether a module is one that its package keeps to itself."""
    parts = module.split(".")
    known = any(module == inner or module.startswith(f"{inner}.") for inner in INTERNAL)
    return known or any(private(part) or part.endswith("_impl") for part in parts)


def defined(tree: ast.AST) -> set[str]:
    """The private names a module's own classes and functions define: its objects may read them of one another."""
    found = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_its_own(node):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def of_its_own(node: ast.Attribute) -> bool:
    """Whether an attribute is one of the object or class whose code it stands in."""
    owner = node.value
    return isinstance(owner, ast.Name) and owner.id in ("self", "cls")


def aliases(tree: ast.AST) -> dict[str, str]:
    """The modules a file knows by a name: pa → pyarrow."""
    imports = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {alias.asname or alias.name: alias.name for alias in imports}


def names(node: ast.expr) -> tuple[str, ...]:
    """Return the names of an expression: `a.b.c` → a, b, c; of one that is more than names, an empty first name."""
    if isinstance(node, ast.Attribute):
        return (*names(node.value), node.attr)
    return (node.id if isinstance(node, ast.Name) else "",)


def offences(source: str) -> Iterator[str]:
    """What in a module rests on a private name, with its line."""
    tree = ast.parse(source)
    own, modules = defined(tree), aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if internal(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name for name in imported if internal(name)]
        elif isinstance(node, ast.Attribute):
            head, *rest = names(node)
            hidden = private(node.attr) and node.attr not in own and not of_its_own(node)
            within = head in modules and internal(".".join([modules[head], *rest]))
            bypasses = node.attr in BYPASSES and ast.unparse(node) != "super().__new__"
            found = [ast.unparse(node)] if hidden or within or bypasses else []
        elif isinstance(node, ast.Call):
            asked = names(node.func) in REFLECTION and node.args[1:]
            named = asked and isinstance(asked[0], ast.Constant) and private(str(asked[0].value))
            found = [ast.unparse(node)] if named and ast.unparse(node.args[0]) not in ("self", "cls") else []
        else:
            continue
        yield from (f"line {node.lineno}: {name}" for name in found)


def test_nothing_rests_on_a_private_name() -> None:
    found = ((path, offence) for path in FILES for offence in offences(path.read_text(encoding="utf8")))
    assert [f"{path.relative_to(ROOT)}, {offence}" for path, offence in found] == []


@pytest.mark.parametrize(
    "source",
    [
        "import numba.core",
        "from numba.core import types",
        "from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol",
        "from scipy.sparse import _csr",
        "from scipy.sparse._csr import csr_matrix",
        "import pyarrow as pa\nkind = pa.lib.Type_NA",
        "matrix._shape = (0, 0)",
        "shape = matrix._shape",
        "row = sp.csr_matrix.__new__(sp.csr_matrix)",
        "row.__dict__.update(other)",
        "getattr(model, '_fitted', None)",
        "class A:\n    def f(self, other):\n        return other._mine",
        "from stream_dr.batch.arrow import _sound",
    ],
)
def test_what_rests_on_one_is_found(source: str) -> None:
    assert list(offences(source))


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self):\n        self._mine = 0\n    def f(self, other):\n        return other._mine",
        "pair._replace(x=1)._asdict()",
        "type(x).__name__",
        "super().__init__()",
        "from stream_dr import __version__",
        "from __future__ import annotations",
    ],
)
def test_what_rests_on_none_is_let_be(source: str) -> None:
    assert not list(offences(source))


SLEEPING = {
    "tests/image_check.py": "runs in the image, where nothing else of tests is",
    "tests/service/test_learn.py": "requests that wait in the service are in no figure",
    "tests/stream_dr/running/test_running.py": "how long a solver takes is what is tested",
    "tests/stream_dr/shards/test_uri.py": "how long a bucket is gone is what is tested",
}
"""Files outside tests/support that sleep, each with the reason. This list only gets shorter."""


def test_only_listed_tests_sleep() -> None:
    files = (path for path in (ROOT / "tests").rglob("*.py") if path.parent != ROOT / "tests" / "support")
    sleeping = {
        path.relative_to(ROOT).as_posix()
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8")))
        if isinstance(node, ast.Call) and names(node.func)[-1] == "sleep"
    }
    assert sleeping == set(SLEEPING)


REACHED_BY_TESTS = {
    "os._exit": "the end of a forked child",
    "many._data_frame_to_rows": "the rows that river's adapter makes of a data frame",
    "client._known_target_kind": "the stream's kind, which a made-up server does not tell",
    "client._service": "a request as no method of the client sends it",
    "run._models": "a snapshot at the moment between a model's learning and its publishing",
}
"""Private names that tests read, each with what it is for. This list only gets shorter."""


def test_tests_read_private_names_of_this_list_alone() -> None:
    read = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Attribute) and private(node.attr) and not of_its_own(node):
                read.add(".".join(names(node)[-2:]))
            elif isinstance(node, ast.ImportFrom):
                read |= {alias.name for alias in node.names if private(alias.name)}
    assert read == set(REACHED_BY_TESTS)

"""Who may import whom (CONTRIBUTING.md), read off the source; and what the first import loads."""

import ast
import importlib
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "stream_dr").rglob("*.py"))

NUMERIC = (
    "compiled",
    "errors",
    "aliases",
    "checks",
    "batch",
    "readout",
    "uncertainty",
    "projection",
    "feature_maps",
    "statistics",
    "solve",
    "estimators",
)
RANK = {
    "errors": 0,
    "aliases": 0,
    "compiled": 0,
    "failpoints": 0,
    "threads": 0,
    "checks": 1,
    "disk": 1,
    "first_bytes": 1,
    "batch": 1,
    "feature_maps": 3,
    "readout": 3,
    "uncertainty": 3,
    "projection": 4,
    "statistics": 5,
    "solve": 6,
    "estimators": 7,
    "log": 6,
    "shards": 6,
    "datasets": 7,
    "evaluation": 8,
    "models": 8,
    "directory": 9,
    "running": 10,
    "adapters": 11,
    "distributed": 11,
    "plotting": 11,
    "client": 11,
    "demo": 12,
    "commands": 13,
    "cli": 14,
    "__main__": 15,
}
"""A part imports only parts of lower rank, or itself; numerics and what reads and stores rows do not know each other."""

STORED = ("log", "shards", "datasets")


def part(name: str) -> str:
    """ "stream_dr.directory.admit" → "directory"."""
    return name.split(".")[1]


def imported(tree: ast.AST, for_types: bool = False) -> Iterator[str]:
    """Yield every module a file imports when it runs, anywhere in it.

    Imports under `if TYPE_CHECKING:` never run. They are yielded only if `for_types` is true.
    """
    never_run = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in never_run and not for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def of(path: Path) -> list[str]:
    return list(imported(ast.parse(path.read_text(encoding="utf8"))))


def against_the_direction(path: Path) -> Iterator[str]:
    """What a module imports that it may not."""
    mine = path.relative_to(ROOT / "stream_dr").parts[0].removesuffix(".py")
    for name in of(path):
        if mine == "__init__" or not name.startswith("stream_dr.") or name == "stream_dr.__version__":
            continue
        other = part(name)
        if other not in RANK:  # a public name of the package itself
            allowed = mine in ("estimators", "adapters", "client", "commands", "demo", "cli")
        else:
            allowed = other == mine or RANK[other] < RANK[mine]
        if not allowed or (mine in STORED and other in ("feature_maps", "statistics", "solve", "estimators")):
            yield name


def test_direction() -> None:
    found = ((path, name) for path in FILES for name in against_the_direction(path))
    assert [f"{path.relative_to(ROOT)} imports {name}" for path, name in found] == []


def module_of(path: Path) -> str:
    """ "stream_dr/directory/admit.py" → "stream_dr.directory.admit"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_import_goes_in_a_circle() -> None:
    """Of all our modules, imports inside functions and for type checkers included. The package's own file is left out:
    it imports nothing when it runs."""
    paths = [*FILES, *(ROOT / "service").rglob("*.py")]
    modules = {module_of(path) for path in paths}
    graph: dict[str, set[str]] = {}
    for path in paths:
        imports = imported(ast.parse(path.read_text(encoding="utf8")), for_types=True)
        names = {name if name in modules else name.rpartition(".")[0] for name in imports}
        graph[module_of(path)] = (names & modules) - {module_of(path), "stream_dr"}
    del graph["stream_dr"]
    left = dict(graph)
    while free := [module for module, imports in left.items() if not imports & left.keys()]:
        for module in free:
            del left[module]
    circle = [next(iter(left))] if left else []
    while circle and circle.count(circle[-1]) < 2:
        circle.append(min(graph[circle[-1]] & left.keys()))
    assert circle == []


def test_numerics_touch_no_files_and_no_arrow() -> None:
    forbidden = {"pyarrow", "sqlite3", "pathlib", "os", "io", "tempfile", "httpx", "fastapi", "typer", "rich"}
    # The type of a path; where compiled code is cached; columns of a table.
    allowed = {
        ("aliases.py", "os"),
        ("cache_lines.py", "os"),
        ("matrix.py", "os"),
        ("table.py", "pyarrow"),
        ("table_columns.py", "pyarrow"),
        ("widths.py", "pyarrow"),
        ("column_report.py", "pyarrow"),
    }
    wire = ("stream_dr.batch.arrow", "stream_dr.batch.messages", "stream_dr.batch.json_rows", "stream_dr.batch.schema")
    for path in FILES:
        mine = path.relative_to(ROOT / "stream_dr").parts[0].removesuffix(".py")
        if mine in NUMERIC:
            for name in of(path):
                top = name.split(".")[0]
                if mine == "batch" and top == "pyarrow":
                    continue
                assert top not in forbidden or (path.name, top) in allowed, f"{path.name} imports {name}"
                assert mine == "batch" or not name.startswith(wire), f"{path.name} imports {name}"


def test_tables_have_one_door() -> None:
    """They are made in batch/; what has numbers or codes of a column is few."""
    known = [path for path in FILES if "column_values" in path.read_text(encoding="utf8")]
    rooms = {path.relative_to(ROOT / "stream_dr").parts[0] for path in known}
    assert rooms == {"batch", "feature_maps"}, known
    assert len(known) <= 7, known
    made = [path for path in FILES if "table_batch" in path.read_text(encoding="utf8")]
    assert {path.relative_to(ROOT / "stream_dr").parts[0] for path in made} == {"batch"}, made


def test_the_service_knows_only_public_names() -> None:
    import stream_dr

    for path in sorted((ROOT / "service").rglob("*.py")):
        for name in of(path):
            top, _, rest = name.partition(".")
            assert top != "numpy", f"{path.name} imports numpy"
            if top == "stream_dr" and rest:
                assert rest.split(".")[0] in stream_dr.__all__, f"{path.name} imports {name}"


def test_what_keeps_and_runs_models_names_no_estimator_and_no_data_set() -> None:
    from stream_dr.estimators import ESTIMATORS

    words = {*ESTIMATORS, *(kind.__name__ for kind in ESTIMATORS.values()), "digits", "iris", "reuters"}
    for path in (
        path
        for room in ("models", "directory", "running", "arrow")
        for path in (ROOT / "stream_dr" / room).rglob("*.py")
    ):
        tree = ast.parse(path.read_text(encoding="utf8"))
        constants = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert not words & (constants | names), path


def test_every_public_name_is_there() -> None:
    import stream_dr

    for name in stream_dr.__all__:
        assert getattr(stream_dr, name) is not None
    assert set(stream_dr.__all__) - stream_dr.ENGINE <= set(dir(stream_dr))
    assert set(stream_dr.__all__) - set(dir(stream_dr)) >= stream_dr.ENGINE
    with pytest.raises(AttributeError):
        stream_dr.nothing  # noqa: B018


@pytest.mark.test_all
@pytest.mark.parametrize("code", ["import stream_dr", "import stream_dr.cli"])
def test_the_first_import_loads_little(code: str) -> None:
    """What takes long to load is loaded where it is used."""
    heavy = {
        "numpy",
        "scipy",
        "sklearn",
        "numba",
        "pyarrow",
        "pandas",
        "narwhals",
        "fastapi",
        "httpx",
        "pydantic",
        "rich",
    }
    program = f"import sys; {code}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_service_loads_a_search_of_neighbours_only_where_it_is_used() -> None:
    program = "import sys, service.app; print({'sklearn.neighbors', 'sklearn.metrics'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


def missing_names(path: Path) -> Iterator[str]:
    """What a file imports of ours that is not there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("stream_dr", "service"):
            module = importlib.import_module(node.module)
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                if not hasattr(module, name.rpartition(".")[2]) and importlib.util.find_spec(name) is None:
                    yield name


def test_what_benchmarks_and_campaigns_import_of_ours_is_there() -> None:
    found = (
        (path, name)
        for path in sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests/campaigns").glob("*.py")])
        for name in missing_names(path)
    )
    assert [f"{path.relative_to(ROOT)} imports {name}" for path, name in found] == []


def test_benchmarks_import_only_the_slow_forms_of_the_tests() -> None:
    for path in (ROOT / "benchmarks").rglob("*.py"):
        names = re.findall(r"^ *(?:from|import) (tests[.\w]*)", path.read_text(encoding="utf8"), re.MULTILINE)
        assert set(names) <= {"tests.naive"}, path


@pytest.mark.test_all
def test_a_client_loads_no_numerics() -> None:
    """What sends dense rows to a service needs none of what learns from them."""
    program = """if True:
        import sys
        import numpy as np
        from stream_dr import Client, errors
        try:
            with Client("http://127.0.0.1:1", timeout=1, retries=0) as client:
                client.partial_fit(np.ones((2, 3)), ["a", "b"])
        except errors.RemoteError:
            print(sorted({"sklearn", "scipy", "numba", "pandas"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_package_that_is_imported_is_declared() -> None:
    """By the names of distributions: what is installed because something else needs it may be gone with that."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    requirements = sum(project["optional-dependencies"].values(), project["dependencies"])
    declared = {_normalised(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}
    distributions = importlib.metadata.packages_distributions()
    undeclared: dict[str, Path] = {}
    for path in (*FILES, *(ROOT / "service").rglob("*.py")):
        for package in {name.split(".")[0] for name in of(path)} - {"stream_dr", "service"} - sys.stdlib_module_names:
            if not declared & set(map(_normalised, distributions.get(package, [package]))):
                undeclared[package] = path
    assert undeclared == {}


def _normalised(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()

"""How the code is written, where a program can tell: docstrings, short functions, few attributes and parameters."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for part in ("stream_dr", "service") for path in (ROOT / part).rglob("*.py"))
LONGEST_FUNCTION = 60

MOST_ATTRIBUTES = 12
"""Attributes of a class. One that has more wants to be two."""

MOST_PARAMETERS = 7
"""Parameters of a private function, compiled kernels excepted."""

JSON_BASES = {"BaseModel", "TypedDict"}
"""Bases of classes whose attributes are the keys of a JSON object, and as many as that has."""

WIDER = {
    "commands/reading.py: _FileOptions has 16 attributes",
    "datasets/sources.py: Options has 21 attributes",
    "directory/directory.py: Directory has 18 attributes",
    "estimators/fitting/moments.py: Moments has 18 attributes",
    "evaluation/test_then_train.py: _Evaluation has 17 attributes",
    "models/model.py: Model has 25 attributes",
    "running/refine.py: _run_passes has 9 parameters",
    "running/replay.py: Replay has 16 attributes",
    "running/running.py: Running has 17 attributes",
    "running/live_scores.py: TestThenTrain has 13 attributes",
    "settings.py: Settings has 36 attributes",
    "shards/folder.py: ShardWriter has 20 attributes",
    "statistics/moments/accumulator.py: MomentAccumulator has 19 attributes",
    "statistics/moments/state.py: MomentState has 18 attributes",
    "statistics/reservoir.py: Reservoir has 14 attributes",
    "statistics/reservoir.py: ReservoirAccumulator has 13 attributes",
}
"""Classes and functions that are wider today. This list only gets shorter."""

SHARED = {
    "NeedsRefine": "the estimators' error is also scikit-learn's, which stream_dr.errors must not load",
    "NotFitted": "the estimators' error is also scikit-learn's, which stream_dr.errors must not load",
    "Receipt": "the wire form of the same thing, and the name that OpenAPI shows",
    "RefinePolicy": "the wire form of the same thing, and the name that OpenAPI shows",
}
"""Public functions and classes of one name in two modules, and the reason for each.

Commands and routes may share names, because each is named after what the user calls.
"""

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


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the fields that a class declares and the attributes that its methods set."""
    fields = [
        n.target for n in node.body if isinstance(n, ast.AnnAssign) and "ClassVar" not in ast.unparse(n.annotation)
    ]
    stored = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    own = {n.attr for n in stored if isinstance(n.value, ast.Name) and n.value.id == "self"}
    return own | {n.id for n in fields if isinstance(n, ast.Name) and n.id != "_"}


def wide(tree: ast.AST) -> Iterator[str]:
    """Yield classes of too many attributes and private functions of too many parameters."""
    for node in ast.walk(tree):
        names_json = isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & JSON_BASES
        if isinstance(node, ast.ClassDef) and not names_json and (count := len(attributes(node))) > MOST_ATTRIBUTES:
            yield f"{node.name} has {count} attributes"
        if isinstance(node, Function) and node.name.startswith("_") and not node.name.startswith("__"):
            decorated = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            count = len(set(arguments) - {"self", "cls"})
            if count > MOST_PARAMETERS and "compiled" not in decorated:
                yield f"{node.name} has {count} parameters"


def shared_names() -> set[str]:
    """Return the public functions and classes that two modules define at their top level."""
    modules = [path for path in FILES if not {"commands", "routes"} & set(path.parts)]
    trees = [ast.parse(path.read_text(encoding="utf8")) for path in modules]
    defined = [{node.name for node in tree.body if isinstance(node, Function | ast.ClassDef)} for tree in trees]
    counts = Counter(name for names in defined for name in names if not name.startswith("_"))
    return {name for name, count in counts.items() if count > 1}


def test_docstrings_and_lengths() -> None:
    assert [f"{path.relative_to(ROOT)}: {offence}" for path in FILES for offence in offences(path)] == []


def test_classes_and_private_functions_are_narrow() -> None:
    found = {
        f"{'/'.join(path.relative_to(ROOT).parts[1:])}: {offence}"
        for path in FILES
        for offence in wide(ast.parse(path.read_text(encoding="utf8")))
    }
    assert found == WIDER


def test_what_is_written_otherwise_is_found(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text("def long():\n" + "    x = 1\n" * 700)
    assert list(offences(path)) == ["the module has no docstring", "long has no docstring", "long has 701 lines"]

    sets = "".join(f"        self.x{i} = 0\n" for i in range(13))
    tree = ast.parse(f"class C:\n    def __init__(self):\n{sets}\ndef _f(a, b, c, d, e, f, g, h): ...\n")
    assert list(wide(tree)) == ["C has 13 attributes", "_f has 8 parameters"]


def test_two_modules_share_only_names_with_a_reason() -> None:
    assert shared_names() == SHARED.keys()

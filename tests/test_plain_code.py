"""Plain code: names of at most four words, and conditional expressions outside of calls and of each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for part in ("stream_dr", "service") for path in (ROOT / part).rglob("*.py"))
MOST_WORDS = 4

LONG_NAMES = [
    "models/model.py: publish_unless_refined_or_current",
    "models/model.py: snapshot_would_be_new_at",
    "models/model.py: state_if_started_from_saved",
    "directory/directory.py: store_lasting_failure_and_projection",
]
"""Names that are longer today, all of them public. This list only gets shorter."""

NESTED: dict[str, int] = {
    "stream_dr/cli.py": 2,
    "directory/directory.py": 2,
    "directory/draft.py": 2,
    "directory/newest.py": 4,
    "directory/retention.py": 1,
    "log/bodies.py": 2,
    "log/index.py": 1,
    "log/log.py": 1,
    "log/sqlite_file.py": 1,
    "models/model.py": 2,
    "models/saved.py": 1,
    "models/snapshot.py": 2,
    "running/driver.py": 1,
    "running/model_thread.py": 1,
    "running/projected_file.py": 3,
    "running/recorder.py": 1,
    "running/warm_up.py": 1,
    "shards/dataset.py": 1,
    "shards/file.py": 1,
    "statistics/mapped.py": 1,
    "moments/accumulator.py": 5,
    "moments/batch_plan.py": 2,
    "moments/centred_part.py": 2,
    "moments/folds.py": 1,
    "moments/state.py": 5,
    "moments/target_sums.py": 2,
    "recurrences/block_basis.py": 1,
    "recurrences/ccipca_state.py": 1,
    "recurrences/skm_row.py": 1,
    "recurrences/skm_state.py": 1,
    "statistics/reservoir.py": 1,
    "statistics/row_hashes.py": 1,
    "stream_dr/uncertainty.py": 3,
}
"""Number of nested conditional expressions of each file today. These numbers only get smaller."""


def long_names(tree: ast.AST) -> Iterator[str]:
    """Yield names of functions that have too many words."""
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and len(list(filter(None, node.name.split("_")))) > MOST_WORDS:
            yield node.name


def nested_conditionals(node: ast.AST, inside: bool = False) -> int:
    """Count conditional expressions that stand inside a call or another conditional expression."""
    count = int(inside and isinstance(node, ast.IfExp))
    inside = not isinstance(node, ast.stmt) and (inside or isinstance(node, ast.Call | ast.IfExp))
    return count + sum(nested_conditionals(child, inside) for child in ast.iter_child_nodes(node))


def test_no_name_gets_longer_and_no_line_denser() -> None:
    trees = {"/".join(path.relative_to(ROOT).parts[-2:]): ast.parse(path.read_text(encoding="utf8")) for path in FILES}
    assert {f"{path}: {name}" for path, tree in trees.items() for name in long_names(tree)} == set(LONG_NAMES)
    counts = {path: nested_conditionals(tree) for path, tree in trees.items()}
    assert {path: count for path, count in counts.items() if count} == NESTED


def test_what_is_dense_is_found() -> None:
    tree = ast.parse(
        "def read_rows_and_drop_nulls():\n    return f(1 if a else 2, lambda: 3 if b else 4 if c else 5)\n"
    )
    assert list(long_names(tree)) == ["read_rows_and_drop_nulls"]
    assert nested_conditionals(tree) == 3
    assert nested_conditionals(ast.parse("x = f(1) if a else 2\n")) == 0

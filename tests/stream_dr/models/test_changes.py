"""Who changes a model: its own methods alone, read off the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

OTHERS = {"fitted.names", "learned.names", "array.position"}
"""Attributes of the same names, of an estimator's FittedState and of a ServedArray."""


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Every attribute that is assigned or deleted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def attributes_of_model() -> set[str]:
    tree = ast.parse((ROOT / "stream_dr/models/model.py").read_text(encoding="utf8"))
    (model,) = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "Model")
    return {node.attr for node in assigned(model) if ast.unparse(node.value) == "self"}


def test_only_a_model_changes_its_attributes() -> None:
    attributes = attributes_of_model()
    assert {"status", "position", "accumulator", "published", "failure"} <= attributes

    found = []
    for folder in ("stream_dr", "service"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in assigned(ast.parse(path.read_text(encoding="utf8"))):
                of_another = ast.unparse(node.value) != "self" and ast.unparse(node) not in OTHERS
                if node.attr in attributes and of_another:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert found == []

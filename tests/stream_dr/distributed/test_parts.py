"""Outlines: one row that shows a batch's width and all its labels."""

import numpy as np
import pytest

from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, continuous_targets, multilabel_targets
from stream_dr.distributed.parts import representative_row
from tests.support.batches import dense, sparse


@pytest.mark.parametrize(
    "block",
    [
        dense(1),
        sparse(2),
        sparse(3, stated=True),
        dense(4, y=None, names=("a", "b", "c", "d"), weights=np.arange(20.0)),
        dense(5, y=class_targets([None] * 20)),
        dense(6, y=class_targets([None, 3, 7, 3] * 5)),
        dense(8, y=multilabel_targets([["x", "y"], [], None, ["z", "y"]] * 5)),
        dense(9, y=continuous_targets(np.ones((20, 2)))),
    ],
    ids=lambda block: "",
)
def test_an_outline_has_the_width_and_all_labels(block: Block) -> None:
    shown = representative_row(block)
    assert (shown.rows, shown.features, shown.names) == (1, block.features, block.names)
    assert shown.width_stated == block.width_stated
    assert (shown.y is None) == (block.y is None)
    if shown.y is not None and block.y is not None:
        assert (shown.y.kind, shown.y.labels) == (block.y.kind, block.y.labels)
        if any(label is not None for label in block.y.targets_by_row()):
            assert shown.y.targets_by_row() != [None]

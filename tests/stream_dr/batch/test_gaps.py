"""A form and its kind become Targets; rows without a target are marked so."""

import numpy as np
import pytest

from stream_dr.batch.parsing import parse_targets
from stream_dr.batch.targets import KINDS
from stream_dr.errors import InvalidTargets


@pytest.mark.parametrize(
    ("y", "kind", "rows"),
    [
        ([["b", "a"], None, []], "multilabel", [["b", "a"], None, []]),
        (np.array([[1, 0, 1], [0, 0, 0]]), "multilabel", [[0, 2], []]),
        (np.array([[0.5, 1.0], [2.0, 3.0]]), "continuous", [[0.5, 1.0], [2.0, 3.0]]),
        (np.array(["b", None, "a"], dtype=object), "class", ["b", None, "a"]),
        (np.array([2.0, np.nan, 1.0]), "class", [2, None, 1]),
        (np.array([2.0, np.nan, 1.0]), "continuous", [[2.0], None, [1.0]]),
        (np.array([2, None, 1.5], dtype=object), "continuous", [[2.0], None, [1.5]]),
        (np.full(2, np.nan), "class", [None, None]),
        (np.full(2, np.nan), "continuous", [None, None]),
    ],
)
def test_every_form_has_its_targets(y, kind, rows):
    targets = parse_targets(y, len(rows), KINDS, kind)
    assert (targets.kind, targets.rows, targets.targets_by_row()) == (kind, len(rows), rows)
    assert (targets.present is None) == (None not in rows)


def test_a_number_that_is_none_is_named_by_its_row():
    with pytest.raises(InvalidTargets, match="target of row 2 is NaN, null or larger"):
        parse_targets(np.array([1, None, 10**200], dtype=object), 3, KINDS, "continuous")

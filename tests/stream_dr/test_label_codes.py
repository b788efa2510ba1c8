"""label_codes: the fast paths give what a plain loop gives."""

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.label_codes import encode_labels, encode_sets

RANDOM = np.random.default_rng(0)
LISTS = [
    RANDOM.choice(["b", "a", "cc"], 50).tolist(),
    RANDOM.integers(-3, 3, 50).tolist(),
    (RANDOM.random(50) < 0.5).tolist(),
    [],
]


def by_loop(items):
    table = list(dict.fromkeys(items))
    return tuple(table), [table.index(item) for item in items]


@pytest.mark.parametrize("items", LISTS)
@pytest.mark.parametrize("form", [list, np.array, lambda v: np.array(v, dtype=object)])
def test_codes_in_order_of_first_appearance(items, form):
    table, codes, present = encode_labels(form(items))
    assert (table, codes.tolist()) == by_loop(items)
    assert [type(label) for label in table] == [type(label) for label in by_loop(items)[0]]
    assert codes.dtype == np.int32
    assert present is None


def test_none_is_absent_and_types_are_not_mixed():
    table, codes, present = encode_labels(["a", None, "b"])
    assert (table, codes.tolist(), present.tolist()) == (("a", "b"), [0, -1, 1], [True, False, True])
    for mixed in (["a", 1], [True, 1], [1.5, 2.0], [b"a"]):
        with pytest.raises(errors.InvalidTargets):
            encode_labels(mixed)


def test_sets_are_sorted_and_distinct_within_a_row():
    table, codes, indptr = encode_sets([["b", "a", "b"], [], ("c", "b"), ["a"]])
    assert table == ("b", "a", "c")
    assert codes.tolist() == [0, 1, 0, 2, 1]
    assert indptr.tolist() == [0, 2, 2, 4, 5]
    assert encode_sets([["a"], None]) is None
    assert encode_sets([["a"], [1]]) is None
    assert encode_sets([])[2].tolist() == [0]

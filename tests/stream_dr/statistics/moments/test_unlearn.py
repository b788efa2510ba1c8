"""Unlearning: the rows that remain give the sums, wherever the others were. Under decay nothing is unlearned."""

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.protocol import pack
from tests.naive import moments as naive
from tests.stream_dr.statistics.hostile import assert_same, stream

NEWEST, OLDEST, BETWEEN = slice(30, 40), slice(0, 4), slice(9, 10)


def learned(decay):
    made = stream(9, 40, 4, "plain", "class", "random")
    accumulator = MomentAccumulator("indicator", decay=decay)
    accumulator.add(made.block(slice(0, 30), False))
    accumulator.add(made.block(slice(30, 40), False))
    return made, accumulator


def test_the_newest_the_oldest_and_rows_between_are_unlearned():
    made, accumulator = learned(1.0)
    labels = list(accumulator.labels)
    left = np.arange(40)
    for rows in (NEWEST, OLDEST, BETWEEN):
        accumulator.remove(made.block(rows, False))
        left = np.setdiff1d(left, np.arange(40)[rows])
        columns = naive.indicator([made.y[i] for i in left], labels)
        state = accumulator.freeze()
        assert_same(state, naive.moments(made.X[left], columns, made.weights[left]), rtol=1e-8)
        assert state.clock == state.rows == len(left)


@pytest.mark.parametrize("decay", [0.7, 0.999999])
@pytest.mark.parametrize("rows", [NEWEST, OLDEST, BETWEEN, slice(0, 40)])
def test_no_rows_are_unlearned_under_decay(decay, rows):
    made, accumulator = learned(decay)
    before = pack(accumulator.freeze())[0]
    with pytest.raises(errors.CannotUnlearn, match=f"decay={decay}"):
        accumulator.remove(made.block(rows, False))
    after = pack(accumulator.freeze())[0]
    assert all(np.array_equal(before[name], after[name]) for name in before)

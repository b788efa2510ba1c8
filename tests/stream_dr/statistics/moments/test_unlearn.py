"""Unlearning under decay: the newest and the oldest rows go as if they had never come, those between leave their time."""

import numpy as np
import pytest

from stream_dr import errors
from stream_dr.rows.block import Block
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from tests.naive import moments as naive
from tests.stream_dr.statistics.hostile import assert_same, stream

ROWS = np.random.default_rng(0).normal(size=(12, 3))


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_unlearning_the_newest_and_the_oldest_rows_under_decay(decay):
    made = stream(9, 40, 4, "plain", "class", "random")
    accumulator = MomentAccumulator("indicator", decay=decay)
    accumulator.add(made.block(slice(0, 30), False))
    accumulator.add(made.block(slice(30, 40), False))
    labels = list(accumulator.labels)

    def assert_is(keep, ages):
        weights = made.weights[keep] * decay**ages
        expected = naive.moments(made.X[keep], naive.indicator([made.y[i] for i in keep], labels), weights)
        assert_same(accumulator.freeze(), expected, rtol=1e-8)

    accumulator.remove(made.block(slice(30, 40), False))
    assert_is(np.arange(30), np.arange(29.0, -1.0, -1.0))
    accumulator.remove(made.block(slice(0, 4), False), age=26)
    assert_is(np.arange(4, 30), np.arange(25.0, -1.0, -1.0))
    assert accumulator.freeze().clock == accumulator.rows == 26
    accumulator.remove(
        made.block(slice(9, 10), False), age=20
    )  # from between: the rows before it stay as old as they were
    assert_is(np.delete(np.arange(4, 30), 5), np.delete(np.arange(25.0, -1.0, -1.0), 5))
    accumulator.add(made.block(slice(30, 32), False))
    assert_is(np.delete(np.arange(4, 32), 5), np.delete(np.arange(27.0, -1.0, -1.0), 5))


def test_decayed_rows_that_are_lost_in_rounding_are_not_taken_for_nothing():
    accumulator = MomentAccumulator("none", decay=0.5)
    accumulator.add(Block(ROWS))
    accumulator.add(Block(np.repeat(ROWS, 40, axis=0)))
    with pytest.raises(errors.PrecisionLost, match="weight"):
        accumulator.remove(Block(np.repeat(ROWS, 40, axis=0)))

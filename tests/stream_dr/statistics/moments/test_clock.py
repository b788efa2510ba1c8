"""clock: ageing row by row, whatever the batches and however long the stream."""

import numpy as np
import pytest

from stream_dr.statistics.moments.clock import (
    advance_scale_and_rescale,
    decayed_weights,
    max_rows_per_step,
    weights_for_stored_sums,
)


@pytest.mark.parametrize("decay", [1.0, 0.9999, 0.9, 0.5, 0.01, 1e-30])
def test_stored_sums_are_the_row_by_row_ones(decay):
    random = np.random.default_rng(1)
    weights = random.random(3000)
    stored, scale, at = [0.0], 1.0, 0

    def renormalise(factor: float) -> None:
        stored[0] *= factor

    while at < len(weights):
        rows = min(int(random.integers(1, 200)), max_rows_per_step(decay), len(weights) - at)
        scale = advance_scale_and_rescale(scale, decay, rows, renormalise)
        stored[0] += weights_for_stored_sums(weights[at : at + rows], decay, scale).sum()
        at += rows
    expected = 0.0
    for w in weights:
        expected = expected * decay + w
    assert scale * stored[0] == pytest.approx(expected, rel=1e-13)
    assert 0.0 < scale <= 1.0


def test_ages_of_consecutive_rows():
    np.testing.assert_allclose(decayed_weights(np.ones(3), 0.5, 2), [0.0625, 0.125, 0.25])
    weights = np.arange(3.0)
    assert decayed_weights(weights, 1.0, 9) is weights

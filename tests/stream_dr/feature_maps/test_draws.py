"""Draws are a function of seed, purpose and index, and have the distribution they are said to have."""

import numpy as np
import pytest
from scipy import stats

from stream_dr.feature_maps.feature_map import draw_cauchys, draw_normals, draw_uniforms


@pytest.mark.parametrize("each", [1, 3, 4, 9])
def test_any_range_is_part_of_the_whole(each):
    whole = draw_uniforms(5, 2, 0, 50, each)
    assert np.array_equal(draw_uniforms(5, 2, 17, 20, each), whole[17:37])
    assert np.array_equal(draw_uniforms(5, 2, 49, 1, each), whole[49:])


def test_seed_and_purpose_change_the_draws():
    assert len({draw_uniforms(s, p, 3, 1)[0, 0] for s in range(4) for p in range(4)}) == 16


@pytest.mark.parametrize(
    ("draw", "law"),
    [(draw_uniforms, stats.uniform), (draw_normals, stats.norm), (draw_cauchys, stats.cauchy)],
    ids=["uniform", "normal", "Cauchy"],
)
def test_distribution(draw, law):
    assert stats.kstest(draw(1, 1, 0, 5000, 4).ravel(), law.cdf).pvalue > 0.01


def test_negative_and_large_seeds_are_legal():
    assert 0 < draw_uniforms(-1, 0, 0, 1)[0, 0] < 1
    assert 0 < draw_uniforms(2**64 - 1, 0, 0, 1)[0, 0] < 1

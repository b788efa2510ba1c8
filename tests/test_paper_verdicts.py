"""The rules of verdicts on made-up data where the answer is known, each in every direction."""

import numpy as np
import pytest

from benchmarks.papers import verdicts

RANDOM = np.random.default_rng(0)
NOISE = RANDOM.normal(size=(10, 4))
NOISE -= NOISE.mean(axis=0)


@pytest.mark.parametrize(
    ("gap", "sd", "claimed", "word"),
    [
        (0.01, 0.01, 0.10, "agrees"),
        (-0.01, 0.01, 0.10, "agrees"),
        (0.05, 0.01, 0.10, "differs"),
        (-0.05, 0.01, 0.10, "differs"),
        (0.01, 0.20, 0.10, "undecided"),
        (0.01, 0.01, 0.01, "undecided"),
    ],
)
def test_a_figure_read_off_a_plot(gap, sd, claimed, word):
    # the band is 2 · 0.01 · √(1/10 + 1/10) + 0.01 = 0.0189
    assert verdicts.plotted_figure(gap, sd, reading=0.01, claimed=claimed) == word


@pytest.mark.parametrize(("shift", "word"), [(5.0, "agrees"), (-5.0, "differs"), (0.0, "undecided")])
def test_an_order_over_a_curve(shift, word):
    assert verdicts.order(shift + NOISE, test_share=1.0) == word


def test_an_order_tells_where_on_the_axis_it_holds():
    differences = NOISE + np.array([5.0, 0.0, -5.0, np.nan])
    assert verdicts.order_range((2, 4, 8, 10), differences, 1.0) == "holds at 2; is open at 4; fails at 8"
    assert verdicts.order_range((2, 4), differences[:, [0, 0]], 1.0) == "holds at 2, 4"


def test_the_interval_counts_overlapping_training_parts():
    found = verdicts.paired_interval(np.array([1.0, 2.0, 3.0, 2.0]), test_share=0.25)
    error = np.std([1, 2, 3, 2], ddof=1) * np.sqrt(1 / 4 + 0.25)
    np.testing.assert_allclose(found, (2.0, 2.0 - 2 * error, 2.0 + 2 * error))


def test_a_dimension_that_a_method_does_not_have_is_left_out():
    differences = np.column_stack([5.0 + NOISE[:, 0], np.full(10, np.nan)])
    assert verdicts.paired_interval(differences, 1.0).mean == pytest.approx(5.0)


def test_curves_that_are_the_same_have_no_order():
    assert verdicts.order(np.zeros((10, 3)), 1.0) == "differs"  # no difference at all is not "below"


@pytest.mark.parametrize(
    ("shift", "scale", "word"),
    [(0.0, 0.001, "agrees"), (0.05, 0.001, "differs"), (-0.05, 0.001, "differs"), (0.0, 0.1, "undecided")],
)
def test_equal_within_a_margin(shift, scale, word):
    assert verdicts.equal(shift + scale * NOISE, test_share=1.0) == word


@pytest.mark.parametrize(("relative", "word"), [(1e-12, "agrees"), (1e-6, "differs")])
def test_an_identity(relative, word):
    assert verdicts.identity(relative) == word


@pytest.mark.parametrize(
    ("relative", "values", "word"),
    [
        (1e-12, [3, 2, 1], "agrees"),
        (0.1, [3, 2, 1], "differs"),
        (0.1, [1, 3, 3 + 1e-9], "undecided"),
        (1e-12, [3, 2, 2 - 1e-9], "undecided"),
        (1e-12, [4, 3, 1, 1], "agrees"),
    ],
)
def test_eigenvectors_need_a_gap(relative, values, word):
    assert verdicts.eigenvectors(relative, np.array(values, dtype=float), 2) == word


@pytest.mark.parametrize(
    ("ratios", "word"),
    [((4, 6, 7, 8, 90), "agrees"), ((1, 2, 3, 30, 40), "differs"), ((19, 20, 21, 22, 23), "differs")],
)
def test_speed_is_the_median(ratios, word):
    assert verdicts.speed(ratios, 5, 20) == word


@pytest.mark.parametrize(("exponent", "word"), [(2.0, "agrees"), (1.0, "differs"), (3.0, "differs")])
def test_growth(exponent, word):
    sizes = (100, 200, 400)
    seconds = np.power.outer(np.array(sizes, dtype=float), exponent) * 1.0
    seconds = seconds[:, None] * np.exp(0.01 * NOISE[:5, 0])
    assert verdicts.growth(sizes, seconds, 1.5, 2.5) == word


def test_growth_of_noisy_times_is_not_decided():
    seconds = np.array([[1.0, 30.0], [2.0, 60.0]])
    assert verdicts.growth((100, 200), seconds, 0.75, 1.25) == "undecided"


@pytest.mark.parametrize(
    ("only_ours", "only_theirs", "word"),
    [(2, 20, "agrees"), (20, 2, "differs"), (5, 6, "undecided"), (0, 0, "undecided")],
)
def test_one_fixed_split(only_ours, only_theirs, word):
    ours = np.repeat([True, False, True], [only_ours, only_theirs, 30])
    theirs = np.repeat([False, True, True], [only_ours, only_theirs, 30])
    assert verdicts.fewer_errors(ours, theirs) == word


@pytest.mark.parametrize(("ours", "word"), [((150, 4, 3), "agrees"), ((149, 4, 3), "differs")])
def test_counts_are_exact(ours, word):
    assert verdicts.count(ours, (150, 4, 3)) == word


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["agrees", "agrees"], "agrees"),
        (["agrees", "undecided"], "undecided"),
        (["undecided", "differs", "agrees"], "differs"),
    ],
)
def test_all_parts_of_a_claim_must_agree(words, word):
    assert verdicts.together(words) == word


def test_true_claims_seldom_differ():
    differing = 0
    for _ in range(2_000):
        draws = RANDOM.normal(size=10)
        differing += (
            verdicts.plotted_figure(draws.mean() - RANDOM.normal(size=10).mean(), 1.0, 0.0, np.inf) == "differs"
        )
    assert 0.02 < differing / 2_000 < 2 * verdicts.CHANCE

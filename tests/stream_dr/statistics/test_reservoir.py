"""The reservoir: uniform, a function of the rows' numbers only, merged fairly."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets
from stream_dr.errors import CannotMerge, WidthMismatch
from stream_dr.statistics.protocol import pack, unpack
from stream_dr.statistics.reservoir import Reservoir, ReservoirAccumulator
from tests.support.pairwise import pairwise

rng = np.random.default_rng(3)
ROWS = np.column_stack([np.arange(300.0), rng.normal(size=(300, 4)) * (rng.random((300, 4)) < 0.5)])


def sample(rows, capacity=40, seed=0, weights=None, size=None, labels=None):
    accumulator = ReservoirAccumulator(capacity, seed, "no" if labels is None else "all")
    for start in range(0, rows.shape[0], size or max(1, rows.shape[0])):
        part = slice(start, start + (size or rows.shape[0]))
        y = None if labels is None else class_targets(labels[part])
        accumulator.add(Block(rows[part], y, None if weights is None else weights[part]))
    return accumulator.freeze()


def equal(a, b):
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("size", "form", "weights"),
    pairwise(product([1, 7, 64, 300], [np.asarray, sp.csr_matrix], [None, rng.random(300)])),
)
def test_every_batching_keeps_the_same_rows(size, form, weights):
    assert equal(sample(form(ROWS), weights=weights, size=size), sample(form(ROWS), weights=weights))


def test_dense_and_sparse_rows_are_sampled_alike():
    dense, sparse = sample(ROWS), sample(sp.csr_matrix(ROWS))
    assert np.array_equal(dense.kept, sparse.kept.toarray())
    assert np.array_equal(dense.kept[:, 0], dense.numbers)


def test_each_row_is_kept_equally_often():
    counts = np.zeros(60)
    for seed in range(800):
        counts[sample(ROWS[:60], 12, seed).numbers] += 1
    # a row's count is binomial with a variance of 0.8 times its mean; fixed sizes shrink the sum of squares by 59/60
    assert stats.chisquare(counts).statistic / 0.8 < stats.chi2(59).ppf(0.999)


def test_pairs_of_rows_are_kept_together_as_often_as_they_should():
    together = sum({3, 4} <= set(sample(ROWS[:20], 5, seed).numbers) for seed in range(2000)) / 2000
    assert together == pytest.approx(5 * 4 / (20 * 19), abs=4 * np.sqrt(0.05 / 2000))


def test_the_number_from_each_side_of_a_merge_is_hypergeometric():
    taken = []
    for seed in range(800):
        a, b = sample(ROWS[:90], 10, seed), sample(ROWS[90:120], 10, seed)
        taken.append(int((a.merge(b).numbers < 90).sum()))
    law = stats.hypergeom(120, 90, 10)
    seen = np.bincount(taken, minlength=11)[4:11]
    expected = law.pmf(np.arange(4, 11))
    assert stats.chisquare(seen, expected / expected.sum() * seen.sum()).pvalue > 0.001
    assert seen.sum() > 0.985 * 800


def test_a_merge_keeps_every_row_equally_often_and_numbers_the_second_part_on():
    counts = np.zeros(40)
    for seed in range(800):
        merged = sample(ROWS[:30], 8, seed).merge(sample(ROWS[30:40], 8, seed))
        assert np.array_equal(merged.kept[:, 0], merged.numbers)
        counts[merged.numbers] += 1
    assert stats.chisquare(counts).statistic / 0.8 < stats.chi2(39).ppf(0.999)


@pytest.mark.parametrize("weights", [None, np.full(10, 2.0)], ids=["plain", "weighted"])
def test_rows_of_equal_number_on_both_sides_of_a_merge_do_not_go_together(weights):
    """Parts of one seed both count from 0; their draws differ by their first rows."""
    together = 0
    for seed in range(800):
        merged = sample(ROWS[:10], 2, seed, weights).merge(sample(ROWS[10:20], 2, seed, weights))
        together += merged.numbers[1] - merged.numbers[0] == 10
    expected = 800 * 10 / 190
    assert together == pytest.approx(expected, abs=4 * np.sqrt(expected))


def test_learning_goes_on_after_a_merge_as_uniformly():
    counts = np.zeros(40)
    for seed in range(800):
        merged = sample(ROWS[:20], 8, seed).merge(sample(ROWS[20:30], 8, seed))
        accumulator = ReservoirAccumulator(8, seed, state=merged)
        accumulator.add(Block(ROWS[30:40]))
        counts[accumulator.freeze().numbers] += 1
    assert stats.chisquare(counts).statistic / 0.8 < stats.chi2(39).ppf(0.999)


def test_weights_decide_how_often_a_row_is_kept():
    weights = np.repeat([1.0, 4.0, 0.0], [50, 50, 20])
    seen = [sample(ROWS[:120], 1, seed, weights).numbers[0] for seed in range(1500)]
    heavy = np.mean([50 <= n < 100 for n in seen])
    assert heavy == pytest.approx(0.8, abs=4 * np.sqrt(0.16 / 1500))
    assert max(seen) < 100


def test_equal_weights_are_no_weights():
    assert equal(sample(ROWS, weights=np.ones(300)), sample(ROWS))


def test_empty_parts_are_an_identity_of_merge():
    full, empty = sample(ROWS), sample(ROWS[:0])
    assert equal(full.merge(empty), full)
    assert equal(empty.merge(full), full)


def test_mixed_layouts_and_growing_features():
    wide = sp.csr_matrix(([2.0], ([0], [9])), shape=(1, 10))
    accumulator = ReservoirAccumulator(400, 0)
    accumulator.add(Block(sp.csr_matrix(ROWS)))
    accumulator.add(Block(wide))
    state = accumulator.freeze()
    assert state.kept.shape == (301, 10)
    assert state.kept[300, 9] == 2.0
    merged = sample(ROWS, 400).merge(sample(wide, 400))
    assert np.array_equal(merged.kept.toarray(), state.kept.toarray())


def test_labels_are_kept_with_their_rows_and_rows_without_are_skipped():
    labels = [None if i % 10 == 3 else f"c{i % 7}" for i in range(300)]
    state = sample(ROWS, labels=labels)
    assert state.rows_skipped == 30
    assert [state.labels[c] for c in state.codes] == [labels[int(v)] for v in state.kept[:, 0]]
    back = sample(ROWS[::-1], labels=labels[::-1])
    merged = state.merge(back)
    assert [merged.labels[c] for c in merged.codes] == [labels[int(v)] for v in merged.kept[:, 0]]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_save_then_continue_equals_never_having_saved(form):
    first = ReservoirAccumulator(40, 0)
    first.add(Block(form(ROWS[:150])))
    state = unpack(Reservoir, *pack(first.freeze()))
    second = ReservoirAccumulator(40, 0, state=state)
    for accumulator in (first, second):
        accumulator.add(Block(form(ROWS[150:])))
    assert equal(first.freeze(), second.freeze())


def test_what_is_refused():
    accumulator = ReservoirAccumulator(5, 0)
    accumulator.add(Block(ROWS))
    before = accumulator.freeze()
    with pytest.raises(WidthMismatch):
        accumulator.add(Block(sp.csr_matrix((1, 9))))
    with pytest.raises(CannotMerge):
        before.merge(sample(ROWS, 6))
    with pytest.raises(CannotMerge):
        before.merge(sample(ROWS[:, :3], 5))
    assert equal(accumulator.freeze(), before)


def test_float32_rows_are_kept_as_float64():
    assert sample(ROWS.astype(np.float32)).values.dtype == np.float64

"""LabelSets: the sums clique and star need, dense, sparse, merged and unlearned."""

from itertools import chain, combinations, islice

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import multilabel_targets
from stream_dr.statistics.moments.accumulator import MomentAccumulator

RANDOM = np.random.default_rng(21)
N, D = 240, 7
SETS = [RANDOM.choice(list("abcde"), RANDOM.integers(0, 4), replace=False).tolist() for _ in range(N)]
WEIGHTS = RANDOM.random(N)


def rows_at(offset):
    return np.where(RANDOM.random((N, D)) < 0.5, 0.0, RANDOM.normal(size=(N, D))) + offset


def clique(state):
    """XH of the clique Laplacian from a state."""
    member = np.array([np.isin(np.arange(len(state.labels)), own) for own in state.label_sets.sets], dtype=float)
    degree = member @ state.centred().label_weights
    return state.weighted_set_sums(
        np.divide(member, np.sqrt(degree)[:, None], where=degree[:, None] > 0, out=0 * member)
    )


def clique_by_rows(X, rows, labels):
    """Σ_i w_i (x_i − x̄) y_iᵀ / √(Σ_{e∋i} n_e), row by row, in extended precision."""
    X, w = X[rows].astype(np.longdouble), WEIGHTS[rows].astype(np.longdouble)
    own = [SETS[i] for i in np.arange(N)[rows]]
    mean = w @ X / w.sum()
    n = {e: sum(w[i] for i, s in enumerate(own) if e in s) for e in labels}
    out = np.zeros((D, len(labels)), dtype=np.longdouble)
    for i, s in enumerate(own):
        for e in s:
            out[:, labels.index(e)] += w[i] * (X[i] - mean) / np.sqrt(sum(n[f] for f in s))
    return out.astype(np.float64)


def block(X, rows, sparse):
    own = [SETS[i] for i in np.arange(N)[rows]]
    return Block(sp.csr_matrix(X[rows]) if sparse else X[rows], multilabel_targets(own), WEIGHTS[rows])


@pytest.mark.parametrize("form", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize(("offset", "tolerance"), [(0.0, 1e-13), (1e6, 1e-7)])
def test_clique_sums_by_merge_and_unlearn(form, offset, tolerance):
    X = rows_at(offset)
    tolerance = 1e-12 if form == "dense" else tolerance
    parts = []
    for i, start in enumerate(range(0, N, 60)):
        accumulator = MomentAccumulator("indicator", "diagonal", label_sets=True)
        accumulator.add(block(X, slice(start, start + 60), form == "sparse" or (form == "mixed" and i % 2 == 1)))
        parts.append(accumulator.freeze())
    state = parts[3].merge(parts[1]).merge(parts[2].merge(parts[0]))
    expected = clique_by_rows(X, slice(None), list(state.labels))
    np.testing.assert_allclose(clique(state), expected, atol=tolerance * np.abs(expected).max())
    accumulator = MomentAccumulator("indicator", state=state, label_sets=True)
    accumulator.remove(block(X, slice(60, None), form == "sparse"))
    state = accumulator.freeze()
    expected = clique_by_rows(X, slice(0, 60), list(state.labels))
    np.testing.assert_allclose(clique(state), expected, atol=4 * tolerance * np.abs(expected).max())
    there = {tuple(sorted(s)) for s in SETS[:60] if s}
    weights = state.label_sets.weights
    named = [tuple(sorted(state.labels[c] for c in s)) for s in state.label_sets.sets]
    assert {s for s, w in zip(named, weights, strict=True) if w > 0} == there


def test_under_decay():
    X = rows_at(0.0)
    for sparse in (False, True):
        accumulator = MomentAccumulator("indicator", "diagonal", 0.9, label_sets=True)
        for start in range(0, N, 40):
            accumulator.add(block(X, slice(start, start + 40), sparse))
        plain = MomentAccumulator("indicator", "diagonal", label_sets=True)
        aged = block(X, slice(None), sparse)
        plain.add(aged._replace(weights=WEIGHTS * 0.9 ** np.arange(N - 1.0, -1.0, -1.0)))
        np.testing.assert_allclose(clique(accumulator.freeze()), clique(plain.freeze()), atol=1e-12)


def test_too_many_sets_are_refused_before_anything_is_written():
    """At most 20,000 are kept."""
    sets = list(islice(chain.from_iterable(combinations("abcdefghijklmno", size) for size in range(1, 16)), 19_999))
    accumulator = MomentAccumulator("indicator", label_sets=True)
    accumulator.add(Block(np.ones((19_999, 2)), multilabel_targets(sets)))
    labels = accumulator.labels
    with pytest.raises(errors.LimitExceeded, match="zhou"):
        accumulator.add(Block(np.ones((2, 2)), multilabel_targets([["p"], ["p", "a"]])))
    assert accumulator.rows == 19_999
    assert accumulator.labels == labels
    assert len(accumulator.freeze().label_sets.sets) == 19_999
    accumulator.add(Block(np.ones((1, 2)), multilabel_targets([["p"]])))
    assert len(accumulator.freeze().label_sets.sets) == 20_000


def test_a_set_that_was_not_learned_is_not_unlearned():
    accumulator = MomentAccumulator("indicator", label_sets=True)
    accumulator.add(Block(np.eye(4), multilabel_targets([["a"], ["b"], ["a"], ["b"]])))
    with pytest.raises(errors.CannotUnlearn, match="labels"):
        accumulator.remove(Block(np.eye(4)[:1], multilabel_targets([["a", "b"]])))

"""Unlearning that would lose digits is refused by name; what is left is otherwise as if the rows had never come."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr.errors import CannotUnlearn, PrecisionLost
from stream_dr.statistics.protocol import pack
from tests.support.pairwise import pairwise

random = np.random.default_rng(0)
LABELS = np.array(["a", "b"])[np.arange(100) % 2]
X = random.normal(size=(100, 2)) * [1e6, 1.0] + (np.arange(100) % 2)[:, None] * [0.0, 1.0] + [0.0, 0.5]
Y = X @ [1e-6, 1.0] + 0.1 * random.normal(size=100)


def learned(kind: type, y: np.ndarray, rows: np.ndarray = X) -> stream_dr.LDA:
    return kind().fit(rows, y)


KINDS = [stream_dr.PCA, stream_dr.LDA, stream_dr.ClassMeans, stream_dr.SKM, stream_dr.WMV]


@pytest.mark.parametrize(
    ("kind", "size", "as_rows"), pairwise(product(KINDS, [1e10, 1e12, 1e15, 1e20, 1e80], [np.asarray, sp.csr_matrix]))
)
def test_a_row_large_in_a_small_column_cannot_be_taken_out(kind, size, as_rows):
    row = as_rows([[0.0, size]])
    estimator = kind().fit(as_rows(X), LABELS).partial_fit(row, ["a"])
    before = estimator.transform(X)
    with pytest.raises(PrecisionLost, match="Learn them anew"):
        estimator.unlearn(row, ["a"])
    assert estimator.n_samples_seen_ == 101
    assert np.array_equal(estimator.transform(X), before)


@pytest.mark.parametrize("kind", [stream_dr.OPLS, stream_dr.CCA, stream_dr.SPCA, stream_dr.PLSDA])
def test_a_large_target_cannot_be_taken_out(kind):
    estimator = kind(target="continuous").fit(X, Y).partial_fit(X[:1], [1e10])
    with pytest.raises(PrecisionLost):
        estimator.unlearn(X[:1], [1e10])


@pytest.mark.parametrize(
    ("kind", "weight", "as_rows"),
    pairwise(
        product(
            [stream_dr.PCA, stream_dr.LDA, stream_dr.InformationGain],
            [1e12, 1e14, 1e16, 1e40],
            [np.asarray, sp.csr_matrix],
        )
    ),
)
def test_a_heavy_row_cannot_be_taken_out(kind, weight, as_rows):
    estimator = kind().fit(as_rows(X), LABELS).partial_fit(as_rows(X[:1]), ["a"], sample_weight=[weight])
    with pytest.raises(PrecisionLost):
        estimator.unlearn(as_rows(X[:1]), ["a"], sample_weight=[weight])


def test_a_heavy_row_of_a_light_class_cannot_be_taken_out_though_all_rows_are_heavy():
    lda = stream_dr.LDA().fit(X, LABELS, sample_weight=np.where(LABELS == "b", 1e14, 1.0))
    lda.partial_fit(X[:1], ["a"], sample_weight=[1e14])
    with pytest.raises(PrecisionLost):
        lda.unlearn(X[:1], ["a"], sample_weight=[1e14])


@pytest.mark.parametrize("size", [10.0, 1e3, 1e4])
@pytest.mark.parametrize("as_rows", [np.asarray, sp.csr_matrix])
def test_what_is_not_refused_is_as_exact_as_is_said(size, as_rows):
    row = as_rows([[3e6, size]])
    lda = stream_dr.LDA().fit(as_rows(X), LABELS).partial_fit(row, ["a"]).unlearn(row, ["a"])
    exact = stream_dr.LDA().fit(as_rows(X), LABELS)
    assert 0.0 < lda.state_.unlearn_relative_error < 1e-6
    assert lda.eigenvalues_ == pytest.approx(exact.eigenvalues_, rel=100 * lda.state_.unlearn_relative_error)
    assert lda.transform(X) == pytest.approx(exact.transform(X), rel=1e-4, abs=1e-4)


def test_losses_of_one_unlearn_after_the_other_add_up():
    pca = stream_dr.PCA().fit(X)
    for size in (1e5, 1e9):
        pca.partial_fit([[0.0, size]])
    pca.unlearn([[0.0, 1e9]])  # known to seven digits beside the other row
    with pytest.raises(PrecisionLost):
        pca.unlearn([[0.0, 1e5]])
    assert pca.merge(stream_dr.PCA().fit(X)).state_.unlearn_relative_error > 0.0
    with pytest.raises(PrecisionLost):
        pca.unlearn([[0.0, 1e5]])


@pytest.mark.parametrize("scatter", ["exact", "diagonal"])
@pytest.mark.parametrize("as_rows", [np.asarray, sp.csr_matrix])
def test_a_column_that_is_zero_again_is_exactly_zero_and_costs_nothing(scatter, as_rows):
    words = np.eye(6)[np.arange(60) % 5] + 0.1 * random.random((60, 6)) * [1, 1, 1, 1, 1, 0]
    rare = np.full((2, 6), [0.0, 0.0, 0.0, 0.3, 0.0, 0.7])
    lda = stream_dr.LDA(scatter=scatter).fit(as_rows(words), LABELS[:60])
    lda.partial_fit(as_rows(rare), ["a", "b"]).unlearn(as_rows(rare), ["a", "b"])
    sums = lda.state_.centred()
    assert sums.mean[5] == sums.diagonal[5] == 0.0
    assert not sums.cross[5].any()
    assert lda.eigenvalues_ == pytest.approx(stream_dr.LDA(scatter=scatter).fit(words, LABELS[:60]).eigenvalues_)


@pytest.mark.parametrize("kind", [stream_dr.PCA, stream_dr.LDA, stream_dr.ClassMeans])
@pytest.mark.parametrize("as_rows", [np.asarray, sp.csr_matrix])
def test_rows_never_learned_are_refused_where_a_scatter_would_be_below_zero(kind, as_rows):
    estimator = kind().fit(as_rows(X), LABELS)
    before = pack(estimator.state_)[0]
    with pytest.raises(CannotUnlearn, match="negative scatter"):
        estimator.unlearn(as_rows(X[:1] * 100), LABELS[:1])
    assert all(np.array_equal(a, before[name]) for name, a in pack(estimator.state_)[0].items())


@pytest.mark.parametrize(
    "kind", [stream_dr.LDA, stream_dr.SKM, stream_dr.OPLS, stream_dr.SPCA, stream_dr.InformationGain, stream_dr.SRP]
)
def test_a_class_wholly_unlearned_is_no_class_any_more(kind):
    estimator = kind().fit(X, LABELS).partial_fit(X[:3] + 1, ["c"] * 3)
    assert estimator.classes_.tolist() == ["a", "b", "c"]
    assert estimator.unlearn(X[:3] + 1, ["c"] * 3).classes_.tolist() == ["a", "b"]
    assert estimator.partial_fit(X[:3] + 1, ["c"] * 3).classes_.tolist() == ["a", "b", "c"]

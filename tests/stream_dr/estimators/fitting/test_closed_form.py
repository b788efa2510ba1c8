"""What closed-form estimators share: how much memory their moments take, and streams that change form."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import ESTIMATORS, HSL, LDA, OPLS, SPCA, SRP, errors
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.statistics.protocol import pack

KEYS = [key for key, kind in ESTIMATORS.items() if issubclass(kind, ClosedForm)]


@pytest.mark.filterwarnings("ignore::stream_dr.errors.OnlyDiagonal")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("features", [30, 5000])
def test_bytes_of_moments_are_a_bound(key: str, features: int) -> None:
    random = np.random.default_rng(0)
    X = sp.random(40, features, 0.2, format="csr", random_state=random)
    for rows_of in (X, X.toarray()):
        estimator = ESTIMATORS[key]().fit(rows_of, [f"c{i % 4}" for i in range(40)])
        size = sum(a.nbytes for a in pack(estimator.state_)[0].values())
        assert 0.3 * estimator.state_bytes(features, 4) <= size <= estimator.state_bytes(features, 4)


def test_bytes_count_the_fourier_features_of_numbers() -> None:
    X, y = np.random.default_rng(0).normal(size=(2, 30, 6))
    for estimator in (SPCA(kernel="rbf", n_fourier=200), SRP(n_components=50)):
        estimator.fit(X, y[:, 0])
        size = sum(a.nbytes for a in pack(estimator.state_)[0].values())
        assert size <= estimator.state_bytes(6, 1)


def test_dense_rows_after_sparse_ones_may_bring_new_labels_and_take_the_same_sums() -> None:
    random = np.random.default_rng(1)
    X, y = random.normal(size=(20, 3)), [["a"], ["a", "b"]] * 5 + [["c"], ["b", "d"]] * 5
    mixed = OPLS(scatter="diagonal").partial_fit(sp.csr_matrix(X[:10]), y[:10]).partial_fit(X[10:], y[10:])
    dense = OPLS(scatter="diagonal").fit(X, y)
    np.testing.assert_allclose(mixed.state_.centred().cross, dense.state_.centred().cross, atol=1e-13)
    np.testing.assert_allclose(mixed.components_, dense.components_, atol=1e-12)


def test_parameters_changed_after_fit_are_checked_before_they_are_solved_with() -> None:
    X, y = np.random.default_rng(2).normal(size=(12, 3)), list("abc") * 4
    hsl = HSL().fit(X, y).set_params(laplacian="star")
    with pytest.raises(errors.InvalidParameter, match="fit with the rows again"):
        hsl.transform(X)
    assert hsl.set_params(laplacian="zhou").transform(X).shape == (12, 2)
    with pytest.raises(errors.InvalidParameter, match="gamma"):
        LDA().fit(X, y).set_params(gamma=-1.0).transform(X)


def test_several_labels_a_row_are_refused_in_a_later_batch_in_the_same_words() -> None:
    X = np.random.default_rng(3).normal(size=(4, 3))
    lda = LDA().partial_fit(X, list("abab"))
    with pytest.raises(errors.TargetKindMismatch, match="OPLS, CCA or HSL"):
        lda.partial_fit(X, [["a"], ["a", "b"], ["b"], []])


def test_a_method_without_directions_cannot_be_made() -> None:
    class Nameless(ClosedForm):
        """Gives no formula."""

    with pytest.raises(TypeError, match="directions"):
        Nameless()  # type: ignore[abstract]

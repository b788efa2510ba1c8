"""WMV against the Laplacian form written out."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import MMC, PCA, WMV, errors
from tests.naive import criteria
from tests.stream_dr.estimators.closed_form_cases import CASES, learn, rows, same_eigenpairs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("alpha", "beta"), [(-1.0, 1.0), (-0.2, 3.0), (-5.0, 0.1)])
def test_wmv_is_its_definition(alpha: float, beta: float, case: str) -> None:
    X, y = rows(case)
    values, vectors = criteria.top(criteria.wmv(X - X.mean(axis=0), y, alpha, beta))
    wmv = learn(WMV(alpha=alpha, beta=beta), X, y)
    same_eigenpairs(wmv, values, vectors, 1e-7)
    assert (wmv.eigenvalues_ > 0).all()


def test_weights_multiply_pairs() -> None:
    X, y = rows()
    w = np.arange(90) % 4
    often = np.repeat(np.arange(90), w)
    values, vectors = criteria.top(criteria.wmv(X[often], y[often], -1.0, 1.0))
    same_eigenpairs(WMV().fit(X, y, sample_weight=w), values, vectors)


def test_standardize_is_wmv_of_standardised_rows() -> None:
    X, y = rows()
    values, vectors = criteria.top(criteria.wmv((X - X.mean(axis=0)) / X.std(axis=0), y, -1.0, 1.0))
    wmv = learn(WMV(standardize=True), X, y)
    np.testing.assert_allclose(wmv.eigenvalues_, values[: wmv.rank_])
    cosines = np.abs(((wmv.components_ * X.std(axis=0)).T * vectors[:, : wmv.rank_]).sum(axis=0))
    np.testing.assert_allclose(cosines, 1.0)


PAIRS = [[0, 0, -2.0], [0, 1, 0.5], [1, 1, 0.3], [1, 2, -0.2], [2, 2, -1.0]]


@pytest.mark.parametrize("case", ["plain", "offset"])
def test_a_weight_for_every_pair_of_classes(case: str) -> None:
    X, y = rows(case)
    C = np.full((3, 3), 1.5)
    for a, b, weight in PAIRS:
        C[a, b] = C[b, a] = weight
    values, vectors = criteria.top(criteria.laplacian(X - X.mean(axis=0), C[y][:, y]))
    wmv = learn(WMV(beta=1.5, pair_weights=PAIRS), X, y)
    same_eigenpairs(wmv, values[values > 0], vectors, 1e-7)
    everything = WMV(X.shape[1], beta=1.5, pair_weights=PAIRS).fit(X, y)
    np.testing.assert_allclose(everything.eigenvalues_, values, rtol=1e-7, atol=1e-7 * values[0])


def test_pca_and_mmc_are_cases_of_it() -> None:
    X, y = rows()
    w = 1.0 + np.arange(len(y)) % 3
    total = w.sum()
    for alpha, peer in ((0.0, PCA()), (-2.0, MMC()), (-1.5, MMC(alpha=0.5)), (-3.0, MMC(5, alpha=2.0))):
        wmv = WMV(peer.n_components, alpha=alpha, pairs="share").fit(X, y, sample_weight=w)
        expected = peer.fit(X, y, sample_weight=w)
        values = expected.eigenvalues_ * (1.0 if isinstance(peer, PCA) else total)
        np.testing.assert_allclose(wmv.eigenvalues_, values, rtol=1e-9)
        np.testing.assert_allclose(np.abs(wmv.components_ @ expected.components_.T), np.eye(wmv.rank_), atol=1e-7)
    n, same = len(y), y[:, None] == y
    sizes = np.bincount(y)[y]
    values, _ = criteria.top(criteria.laplacian(X, 1.0 / n - 2.0 * same / sizes))
    np.testing.assert_allclose(WMV(alpha=-2.0, pairs="share").fit(X, y).eigenvalues_, values[values > 1e-9])


@pytest.mark.parametrize(
    "params",
    [{}, {"alpha": -4.0}, {"alpha": -2.0, "pairs": "share"}, {"alpha": 0.0, "pairs": "share"}, {"pair_weights": PAIRS}],
    ids=str,
)
@pytest.mark.parametrize("standardize", [False, True])
def test_refine_is_the_exact_solution(params: dict[str, Any], standardize: bool) -> None:
    X, y = rows()
    w = 1.0 + np.arange(len(y)) % 3
    parts = [(X[i : i + 30], y[i : i + 30], w[i : i + 30]) for i in range(0, len(y), 30)]
    exact, wide = (WMV(2, scatter=s, standardize=standardize, **params) for s in ("exact", "diagonal"))
    for model in (exact, wide):
        for part in parts:
            model.partial_fit(*part)
    wide.refine(parts, 1e-10, 30)
    assert wide.solution_ == "refined"
    np.testing.assert_allclose(wide.eigenvalues_, exact.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(np.abs(wide.transform(X)), np.abs(exact.transform(X)), atol=1e-6)


def test_the_diagonal_is_exact_where_classes_have_one_diagonal_scatter() -> None:
    cross = np.vstack([np.eye(4), -np.eye(4)]) * np.array([1.0, 2.0, 0.5, 1.0])
    means = np.array([[0.0, 3.0, 1.0, 0.0], [4.0, 0.0, 0.0, 1.0], [0.0, 1.0, 2.0, 5.0]])
    X, y = np.vstack([cross + mean for mean in means]), np.repeat([0, 1, 2], 8)
    for params in ({"alpha": -5.0}, {"alpha": -2.0, "pairs": "share"}):
        exact = WMV(scatter="exact", **params).fit(X, y)
        diagonal = (
            WMV(scatter="diagonal", **params)
            .fit(X[:10], y[:10])
            .merge(WMV(scatter="diagonal", **params).fit(X[10:], y[10:]))
        )
        assert diagonal.solution_ == "diagonal"
        np.testing.assert_allclose(diagonal.eigenvalues_, exact.eigenvalues_)
        np.testing.assert_allclose(np.abs(diagonal.transform(X)), np.abs(exact.transform(X)), atol=1e-8)


def test_wide_rows_need_a_refine_where_the_scatter_of_classes_is_to_be_large() -> None:
    random = np.random.default_rng(3)
    X, y = sp.random(40, 5000, 0.01, random_state=random, format="csr"), np.arange(40) % 4
    wmv = WMV(2).fit(X, y)
    assert wmv.state_bytes(5000, 4) < 1e6
    with pytest.raises(errors.NeedsRefine):
        wmv.transform(X)
    wmv.refine([(X, y)], 1e-9, 60)
    centred = X.toarray() - X.mean(axis=0)
    small = criteria.wmv(np.eye(40), y, -1.0, 1.0) @ centred @ centred.T  # its eigenvalues that are not 0, of (40, 40)
    np.testing.assert_allclose(wmv.eigenvalues_, np.sort(np.linalg.eigvals(small).real)[:-3:-1], rtol=1e-8)
    assert WMV(2, alpha=-8.0).fit(X, y).solution_ == "diagonal"


def test_parameters_out_of_range_are_refused() -> None:
    for bad in ({"alpha": 0.0}, {"alpha": 1.0}, {"beta": 0.0}, {"pairs": "all"}, {"pair_weights": [[0, 1]]}):
        with pytest.raises(errors.InvalidParameter):
            WMV(**bad).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])

"""SKM and MMC against their definitions, and the two identities of mathematics §2."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers import skm_theorem_1
from stream_dr import MMC, SKM, ClassMeans, errors
from tests.naive import criteria
from tests.stream_dr.estimators.closed_form_cases import CASES, learn, rows, same_eigenpairs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("a", [0.5, 1.0, 3.0])
def test_skm_is_its_definition(a: float, case: str) -> None:
    X, y = rows(case)
    values, vectors = criteria.top(criteria.skm(X - X.mean(axis=0), y, a))
    skm = learn(SKM(a=a), X, y)
    assert (skm.eigenvalues_ > 0).all()
    same_eigenpairs(skm, values, vectors, 1e-7)
    assert skm.rank_ == np.count_nonzero(values > 1e-9 * values[0])
    assert a < 1 or skm.rank_ <= 2


@pytest.mark.parametrize("a", [0.0, 0.5, 1.0, 2.0, 3.0, 10.0])
def test_identity_skm_is_2_sb_plus_1_minus_a_sw(a: float) -> None:
    for case in CASES:
        X, y = rows(case)
        X = X - X.mean(axis=0)
        direct = criteria.skm(X, y, a)
        identity = 2 * criteria.between(X, y) + (1 - a) * criteria.within(X, y)
        assert np.linalg.norm(direct - identity) <= 6e-15 * max(1.0, a) * np.linalg.norm(X.T @ X)


@pytest.mark.parametrize("a", [0.5, 1.0, 3.0])
def test_identity_skm_is_mmc(a: float) -> None:
    X, y = rows()
    skm, mmc = learn(SKM(a=a), X, y), learn(MMC(alpha=(a - 1) / 2), X, y)
    np.testing.assert_allclose(skm.components_, mmc.components_, atol=1e-10)
    np.testing.assert_allclose(skm.eigenvalues_, 2 * mmc.eigenvalues_, rtol=1e-10)


def test_a_1_is_class_means_and_needs_no_scatter() -> None:
    X, y = rows()
    skm, means = learn(SKM(), X, y), learn(ClassMeans(), X, y)
    np.testing.assert_allclose(skm.components_, means.components_, atol=1e-12)
    np.testing.assert_allclose(skm.eigenvalues_, 2 * means.eigenvalues_)
    assert skm.state_.scatter == "diagonal"
    assert skm.solution_ == "exact"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("alpha", [-0.5, 0.0, 0.3, 1.0])
def test_mmc_is_its_definition(alpha: float, case: str) -> None:
    X, y = rows(case)
    values, vectors = criteria.top(criteria.between(X, y) - alpha * criteria.within(X, y))
    same_eigenpairs(learn(MMC(alpha=alpha), X, y), values, vectors, 1e-7)


def test_asked_for_more_it_goes_on_with_negative_eigenvalues_by_algebraic_value() -> None:
    X, y = rows()
    skm = learn(SKM(n_components=10, a=3.0), X, y)
    values, vectors = criteria.top(criteria.skm(X, y, 3.0))
    same_eigenpairs(skm, values, vectors)
    assert (np.diff(skm.eigenvalues_) <= 0).all()
    assert (skm.eigenvalues_[2:] < 0).all()
    assert learn(SKM(n_components=10), X, y).rank_ == 2


def test_no_zero_eigenvalue_is_passed_off_as_a_component() -> None:
    X, y = rows("duplicated columns")
    assert learn(SKM(n_components=12, a=3.0), X, y).rank_ == 10


@pytest.mark.parametrize("d", [5, 60])
def test_diagonal_scatter_takes_sw_to_be_diagonal(d: int) -> None:
    random = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = random.normal(size=(120, d)) + 2.0 * random.normal(size=(4, d))[y]
    values, vectors = criteria.top(criteria.between(X, y) - 0.7 * np.diag(np.diagonal(criteria.within(X, y))))
    mmc = MMC(alpha=0.7, scatter="diagonal").fit(sp.csr_matrix(X), y)
    assert mmc.solution_ == "diagonal"
    assert mmc.rank_ == np.count_nonzero(values > 0)
    same_eigenpairs(mmc, values, vectors)


def test_diagonal_scatter_with_a_positive_share_of_sw_is_refused() -> None:
    X, y = rows()
    skm = SKM(a=0.5, scatter="diagonal").partial_fit(X, y)
    with pytest.raises(errors.NeedsRefine, match=r"refine\(source\)"):
        skm.transform(X)


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 1_000), min_size=2, max_size=7),
    st.lists(st.integers(1, 1_000), min_size=7, max_size=7),
    st.data(),
    st.floats(1.0, 1e3),
)
def test_theorem_1(rows: list[int], others: list[int], data: st.DataObject, a: float) -> None:
    """(a), (b), (d) hold with one M for all rows; (a), (c), (d) with one that makes each row's weights sum to 1."""
    shares = np.array(rows) / sum(rows)
    other = np.array(others[: len(rows)]) / sum(others[: len(rows)])
    own = data.draw(st.integers(0, len(rows) - 1))
    assert all(skm_theorem_1.holds(name, shares, other, own, a) for name in "abd")
    assert all(skm_theorem_1.holds(name, shares, other, own, a, row_sums=True) for name in "acd")


@pytest.mark.parametrize("case", CASES)
def test_skm_is_made_of_theorem_1s_weights(case: str) -> None:
    X, y = rows(case)
    X = X - X.mean(axis=0)
    expected = criteria.skm(X, y, 3.0)
    np.testing.assert_allclose(skm_theorem_1.criterion(X, y, 3.0), expected, atol=1e-12 * np.abs(expected).max())

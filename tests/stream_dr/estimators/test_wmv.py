"""WMV against the Laplacian form written out."""

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import WMV, errors
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


def test_wide_rows_and_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(errors.StreamDRError):
        WMV().fit(sp.csr_matrix((3, 5000)), [0, 1, 0])
    for bad in ({"alpha": 0.0}, {"alpha": 1.0}, {"beta": 0.0}, {"scatter": "diagonal"}):
        with pytest.raises(errors.InvalidParameter):
            WMV(**bad).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])

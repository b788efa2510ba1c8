"""PCA against scikit-learn's."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA as ReferencePCA

from stream_dr import PCA, errors
from tests.stream_dr.estimators.closed_form_cases import CASES, learn, rows, same_eigenpairs


@pytest.mark.parametrize("case", CASES)
def test_components_and_eigenvalues_are_scikit_learns(case: str) -> None:
    X, _ = rows(case)
    rank = np.linalg.matrix_rank(X - X.mean(axis=0), tol=1e-6)
    reference = ReferencePCA(svd_solver="full").fit(X)
    pca = learn(PCA(), X)
    assert pca.rank_ == rank
    values = reference.singular_values_[:rank] ** 2
    same_eigenpairs(pca, values, reference.components_.T, 1e-6 if case == "offset" else 1e-9)
    np.testing.assert_allclose(pca.mean_, reference.mean_)


def test_y_is_ignored_and_weights_count() -> None:
    X, y = rows()
    w = np.arange(90) % 3
    weighted = PCA().fit(X, y, sample_weight=w)
    np.testing.assert_allclose(weighted.components_, PCA().fit(np.repeat(X, w, axis=0)).components_, atol=1e-9)
    assert weighted.classes_.size == 0


def test_diagonal_scatter_is_refused_with_the_way_out() -> None:
    pca = PCA(n_components=2).partial_fit(sp.random(20, 5000, 0.01, format="csr", random_state=0))
    assert pca.n_samples_seen_ == 20
    with pytest.raises(errors.NeedsRefine, match="CCIPCA"):
        pca.transform(sp.csr_matrix((1, 5000)))

"""scikit-learn's own tests of PCA, IncrementalPCA, discriminant analysis, PLS and LLE, our class in the place of theirs.

They are taken from the installed package, those that mean the same for us. The others are of what is not here: solvers and
their messages, "mle", Ledoit and Wolf's shrinkage, get_precision, n_components = 0, covariance_, weights and scores of PLS,
array API; private functions; refusals where ours is legal (n_components above what there is answers with those there are,
batches of fewer rows than components, one row a class); dtypes of attributes (ours are float64); PLS as a regressor by name.
"""

import importlib
import inspect
import itertools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stream_dr


class _Components:
    """What scikit-learn calls the number of components that there are."""

    @property
    def n_components_(self) -> int:
        return len(self.components_)  # type: ignore[attr-defined]


class PCA(_Components, stream_dr.PCA):
    """stream_dr.PCA with the parameters of scikit-learn's, of which solvers are none of ours."""

    def __init__(
        self, n_components=None, *, copy=True, whiten=False, svd_solver="auto", iterated_power="auto", tol=0.0,
        random_state=None, n_oversamples=10,
    ):  # fmt: skip
        super().__init__(n_components, whiten=whiten)
        self.copy, self.svd_solver, self.iterated_power, self.tol = copy, svd_solver, iterated_power, tol
        self.random_state, self.n_oversamples = None, n_oversamples


class IncrementalPCA(_Components, stream_dr.PCA):
    """stream_dr.PCA with the parameters of scikit-learn's IncrementalPCA."""

    def __init__(self, n_components=None, *, whiten=False, copy=True, batch_size=None):
        super().__init__(n_components, whiten=whiten)
        self.copy, self.batch_size = copy, batch_size


class LinearDiscriminantAnalysis(stream_dr.LDA):
    """stream_dr.LDA with the parameters of scikit-learn's."""

    def __init__(
        self, solver="svd", shrinkage=None, priors=None, n_components=None, store_covariance=False, tol=1e-4,
        covariance_estimator=None,
    ):  # fmt: skip
        super().__init__(n_components, shrinkage=shrinkage, priors=priors)
        self.solver, self.store_covariance, self.tol = solver, store_covariance, tol
        self.covariance_estimator = covariance_estimator


class PLSRegression(stream_dr.PLSDA):
    """stream_dr.PLSDA of continuous targets, with the parameters of scikit-learn's."""

    def __init__(self, n_components=2, *, scale=True, max_iter=500, tol=1e-6, copy=True):
        super().__init__(n_components, standardize=scale, target="continuous")
        self.scale, self.max_iter, self.tol, self.copy = scale, max_iter, tol, copy


class LocallyLinearEmbedding(stream_dr.LLE):
    """stream_dr.LLE with the parameters of scikit-learn's."""

    def __init__(
        self, *, n_neighbors=5, n_components=2, reg=1e-3, eigen_solver="auto", tol=1e-6, max_iter=100,
        method="standard", random_state=None,
    ):  # fmt: skip
        super().__init__(n_components, n_neighbors, reg=reg)
        self.eigen_solver, self.tol, self.max_iter, self.method = eigen_solver, tol, max_iter, method
        self.random_state = None


TESTS = {
    ("sklearn.decomposition.tests.test_pca", PCA): """
        no_empty_slice_warning whitening pca_solver_equivalence pca_explained_variance_empirical pca_singular_values
        pca_singular_values_consistency pca_check_projection pca_check_projection_list pca_inverse
        infer_dim_by_explained_variance pca_sanity_noise_variance pca_score_consistency_solvers pca_deterministic_output
        feature_names_out variance_correctness""",
    ("sklearn.decomposition.tests.test_incremental_pca", IncrementalPCA): """
        incremental_pca_check_projection incremental_pca_inverse n_samples_equal_n_components
        incremental_pca_num_features_change incremental_pca_batch_signs incremental_pca_partial_fit_small_batch
        incremental_pca_batch_values incremental_pca_batch_rank incremental_pca_partial_fit
        incremental_pca_against_pca_iris incremental_pca_against_pca_random_data incremental_pca_fit_overflow_error
        incremental_pca_feature_names_out""",
    ("sklearn.tests.test_discriminant_analysis", LinearDiscriminantAnalysis): """
        lda_coefs lda_solver_agreement lda_explained_variance_ratio lda_orthogonality lda_scaling get_feature_names_out""",
    ("sklearn.cross_decomposition.tests.test_pls", PLSRegression): """
        pls_coef_shape pls_regression_scaling_coef""",
    ("sklearn.manifold.tests.test_locally_linear", LocallyLinearEmbedding): """
        pipeline integer_input get_feature_names_out""",
}  # fmt: skip
GIVEN = {"global_random_seed": 0, "global_dtype": np.float64}
"""What their fixtures give."""


def _given(test: Any) -> Iterator[dict[str, Any]]:
    axes = []
    for mark in getattr(test, "pytestmark", []):
        names = mark.args[0].replace(" ", "").split(",")
        values = [value.values if hasattr(value, "marks") else value for value in mark.args[1]]
        axes.append([dict(zip(names, v if len(names) > 1 else [v], strict=True)) for v in values])
    for parts in itertools.product(*axes):
        given = {name: value for part in parts for name, value in part.items()}
        yield given | {n: v for n, v in GIVEN.items() if n in inspect.signature(test).parameters}


@pytest.mark.test_all
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "ours", "test"),
    [(name, ours, test) for (name, ours), chosen in TESTS.items() for test in chosen.split()],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_theirs(name: str, ours: Any, test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(name)
    theirs = getattr(module, f"test_{test}")
    if hasattr(module, ours.__name__):
        monkeypatch.setattr(module, ours.__name__, ours)
    else:  # they name it by its package
        manifold = types.SimpleNamespace(**{**vars(module.manifold), ours.__name__: ours})
        monkeypatch.setattr(module, "manifold", manifold)
    done = 0
    for given in _given(theirs):
        classes = {n: v for n, v in given.items() if inspect.isclass(v) and v.__module__.startswith("sklearn")}
        if all(v.__name__ == ours.__name__ for v in classes.values()):
            theirs(**given | dict.fromkeys(classes, ours))
            done += 1
    assert done

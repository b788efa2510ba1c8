"""PLSDA (partial least squares discriminant analysis), from moments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.folds import aligned_folds
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.predictor import TargetRegression
from stream_dr.estimators.fitting.state_error import Predictors, PredictsHeldOut, cross_validation_errors
from stream_dr.solve.pls import pls_rotations
from stream_dr.statistics.moments.state import MomentState
from stream_dr.uncertainty import CrossValidation

MAX_COMPARED_COMPONENTS = 25
"""Largest number of components that is compared."""


@dataclass(eq=False, repr=False)
class PLSDA(TargetRegression, PredictsHeldOut):
    """Find directions of largest covariance with the targets.

    Partial least squares discriminant analysis in one pass. The directions are found one by one.
    The components are the same as by the NIPALS algorithm, which reads the rows several times. If
    the targets are numbers, this is PLS regression. `predict` regresses the targets on the
    components.

    >>> from stream_dr import PLSDA
    >>> pls = PLSDA(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5], [4.0, 1.5]], ["a", "a", "b", "b"])
    >>> pls.components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one or several labels a row, or numbers. Labels are learned as indicators (columns
    of 0 and 1). With one label a row, `predict` returns the label whose indicator is predicted
    highest. States can be merged, and rows can be unlearned.

    Parameters
    ----------
    n_components : int ≥ 1, "cv" or None, default 2
        Number of components. None means all components that have a covariance with the targets.
        "cv" chooses a number from 1 to 25 by cross-validation. There are 5 folds unless `folds` is
        set.

    Attributes
    ----------
    x_rotations_ : ndarray (features, components), float64
        `components_` transposed. `transform` is (X − mean_) · x_rotations_.

    Notes
    -----
    Uses the kernel algorithm of Dayal & MacGregor (1997) [GLPLS; mathematics §5]. Components are
    what scikit-learn calls `x_rotations_`. They are not scaled to length 1, and their lengths do
    not grow with the number of rows. `eigenvalues_` are the squared covariances of the components
    with the targets, as sums over rows.

    Components and the other fitted attributes equal those of scikit-learn's
    PLSRegression(scale=False) to 2e-13, if PLSRegression is run until convergence. (With its
    default tol, the difference is 4e-3.)

    The components of PLSDA are uncorrelated, and there may be more of them than classes. `SPCA` has
    the same first component. Its later components may be correlated, and there are at most
    (classes − 1). (The book chapter [GLPLS] describes the components of SPCA as PLS-DA, in eq.
    2.24.) Graph-Laplacian (global-local) PLS-DA is not implemented.

    `standardize` scales only the rows, while scikit-learn's scale=True also scales the targets. If
    the targets are columns of numbers in different units, divide each column by its standard
    deviation first. The targets' own scores are not computed.

    Above 4,096 features only the diagonal of the rows' scatter may be stored (see `scatter`).
    `solution_` is then "diagonal". The first component is still exact. The later components are
    computed as if features were uncorrelated, until `refine` makes them exact.

    The state has O(d·(k + 2)) numbers for d features and k targets (labels or columns of numbers).
    Learning a row costs O(its entries × its labels). The exact scatter (the whole matrix,
    not only its diagonal) adds d² numbers to the state and O(d²) to learning a row. Solving costs
    O(p (d² + d k²)) for p components, or O(p d k²) if only the diagonal is stored.
    """

    limit: ClassVar[str] = "past these the rows have no covariance with the targets"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")
    solves_eigenproblem: ClassVar[bool] = False
    eigenvalue_growth: ClassVar[int] = 2

    cross_validates: ClassVar[str] = "n_components"

    n_components: int | Literal["cv"] | None = 2  # type: ignore[assignment]

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components and their squared covariances with the targets.

        The components (features, p) are computed one after another. After each, the part of the
        covariance of rows and targets that it explains is subtracted. There are at most
        n_components components, and fewer if what is left of the covariance is only rounding error.
        """
        most = self.n_components
        if not isinstance(most, int):
            most = len(moments.cross)
        return self.rotations(moments, most)

    def rotations(self, moments: Moments, max_rotations: int) -> Directions:
        """Return rotations and their squared covariances with the targets.

        Centred rows times the rotations are the projected rows.

        max_rotations: maximum number of rotations. There are fewer if what the first rotations
            leave of the covariance of rows and targets is only rounding error.
        """
        cross_sum_noise = moments.rounding.relative_cross_noise(moments.diagonal) * moments.uncentred_target_norm
        return pls_rotations(moments.scatter_or_diagonal, moments.cross, max_rotations, cross_sum_noise)

    def cross_validate(self, states_by_fold: Sequence[MomentState]) -> CrossValidation:
        """Return the cross-validated error for each number of components.

        The number of least error is chosen. With `one_standard_error`, it is the smallest number
        whose error exceeds the least error by at most the standard error of the least error.

        At most 25 components are compared, and at most as many as the model of all rows has. If a
        fold's training rows have fewer components, all of these are used. The parameter
        `n_components` is not used. Raises NotFitted if fewer than three folds have rows. Raises
        InvalidParameter if there are more than 2,048 features, if only the diagonal of the rows'
        scatter is stored, or if errors overflow.

        states_by_fold: the learned state of each fold. A fold is a part of the rows that is left
            out once. Folds without rows are ignored.
        """
        # `full` is the state of all rows, and `folds` has the states of the folds that have rows.
        full, folds = aligned_folds(states_by_fold, "n_components")
        whole = self.moments(full)
        # A rotation is the direction (features,) of a component. m is the number of rotations of
        # all rows, and the largest number of components that is compared.
        rotations, _ = self.rotations(whole, MAX_COMPARED_COMPONENTS)
        m = max(rotations.shape[1], 1)

        # `cross_validation_errors` calls this function once for each fold, with the moments of all
        # rows outside the fold. The predictor of the first i components regresses the targets on
        # them. The components are uncorrelated, so its coefficients are V diag(g) Vᵀ Cxy for the
        # rotations V. g is 1 / variance for the first i components and 0 for the others.
        def fit_components(train: Moments) -> Predictors:
            V, values = self.rotations(train, m)
            variances = self.component_variances(train, V, values, V.T @ train.cross)
            first_components = np.tri(m, V.shape[1])
            return Predictors(basis=V, factors=first_components / variances)

        # Choose the number of least error, or the smallest number within one standard error of it.
        mean, std_error = cross_validation_errors(self, folds, whole, fit_components)
        chosen = int(mean.argmin())
        if self.one_standard_error:
            chosen = int(np.flatnonzero(mean <= mean[chosen] + std_error[chosen])[0])
        return CrossValidation("n_components", np.arange(1, m + 1), mean, std_error, chosen)

    def component_variances(
        self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray, covariances: np.ndarray
    ) -> np.ndarray:
        """Return the scatter (p,) of the rows along each component.

        If `refine` has computed the components by further passes over the rows, the scatter that
        was measured in these passes is returned.

        loadings: (features, p), the components.
        eigenvalues, covariances: ignored.
        """
        if moments.along is not None:
            return moments.along[: loadings.shape[1]]
        return np.asarray(np.einsum("ij,ij->j", loadings, moments.scatter_product(loadings)))

    @property
    def x_rotations_(self) -> np.ndarray:
        """Directions (features, components) float64, `components_` transposed.

        `transform` is (X − mean_) · x_rotations_.
        """
        return self.components_.T

"""PLSDA: partial least squares on the class indicator, or on any targets."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.target_regression import TargetRegression
from stream_dr.solve.pls import pls_rotations
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class PLSDA(TargetRegression):
    """Find directions of largest covariance with the targets, one by one.

    Partial least squares discriminant analysis from moments: the NIPALS solution without a second
    pass. On numbers it is PLS regression's projection. `predict` is regression on the components.

    >>> from stream_dr import PLSDA
    >>> pls = PLSDA(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5], [4.0, 1.5]], ["a", "a", "b", "b"])
    >>> pls.components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one or several labels a row (learned by their indicators), or numbers. Of labels,
    `predict` returns the one whose indicator is predicted highest. Merges and unlearns.

    Parameters
    ----------
    n_components : int ≥ 1 or None, default 2
        Number of components. None takes as many as there is covariance left for.

    Attributes
    ----------
    x_rotations_ : ndarray (features, components), float64
        `components_` transposed: `transform` is (X − mean_) · x_rotations_.

    Notes
    -----
    Kernel algorithm of Dayal & MacGregor (1997) [GLPLS; mathematics §5]. Components are the
    rotations r (of weights w with ‖w‖ = 1, so ‖r‖ ≠ 1), as long at any number of rows.
    scikit-learn calls them `x_rotations_`. They equal those of PLSRegression(scale=False) to 2e-13
    when it is run to convergence (its default tol stops 4e-3 short), and so do the other fitted
    attributes. Eigenvalues are the squared covariances σ² of the deflated Cxy, the cross-scatter
    of rows and targets, in the order of the components.

    [GLPLS eq. 2.24] takes the eigenvectors of XᵀYYᵀX, all at once. That is `SPCA`, whose first
    component is the same. SPCA has one component fewer than classes. With deflation, as here,
    components are uncorrelated and there are more. The graph-Laplacian (global-local) PLS-DA that
    the chapter's title names is in no estimator, because the chapter does not give its objective.

    `standardize` scales the rows only, while scikit-learn's scale=True scales the targets, too.
    Divide columns of numbers in several units by their standard deviations first. If only the
    diagonal of Cxx is stored (`solution_` is "diagonal"), the first component is still exact. The
    later ones take features as uncorrelated, until `refine`. Left out: the targets' own scores.

    State: O(d·(k + 2)) numbers for d features and k labels or columns, and d² more with exact
    scatter. Learning a row costs O(its entries × its labels), and O(d²) with exact scatter.
    Solving costs O(p (d² + d k²)) for p components, or O(p d k²) from the diagonal.
    """

    limit: ClassVar[str] = "past these the rows have no covariance with the targets"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")
    solves_eigenproblem: ClassVar[bool] = False
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    n_components: int | None = 2

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return n_components directions, or as many as there is covariance left for."""
        cross = moments.cross
        most = len(cross) if self.n_components is None else self.n_components
        noise = moments.rounding.noise(moments.diagonal) * moments.target_size
        return pls_rotations(moments.scatter_or_diagonal, cross, most, noise)

    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return rᵀ Cxx r (p,), as measured by refine if it found the components."""
        if moments.along is not None:
            return moments.along[: loadings.shape[1]]
        return np.einsum("ij,ij->j", loadings, moments.scatter_product(loadings))

    @property
    def x_rotations_(self) -> np.ndarray:
        """Directions (features, components) float64.

        `transform` is (X − mean_) · x_rotations_.
        """
        return self.components_.T

"""PLSDA (partial least squares discriminant analysis), from moments."""

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

    Partial least squares discriminant analysis, computed from moments. The result is that of
    NIPALS, without a second pass over the rows. With numbers as targets the components are those
    of PLS regression. `predict` regresses the targets on the components.

    >>> from stream_dr import PLSDA
    >>> pls = PLSDA(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5], [4.0, 1.5]], ["a", "a", "b", "b"])
    >>> pls.components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one or several labels a row, or numbers. Labels are learned as indicators (columns
    of 0 and 1), and `predict` returns the label whose indicator is predicted highest. Merges and
    unlearns.

    Parameters
    ----------
    n_components : int ≥ 1 or None, default 2
        Number of components. None takes components until no covariance with the targets remains.

    Attributes
    ----------
    x_rotations_ : ndarray (features, components), float64
        `components_` transposed. `transform` is (X − mean_) · x_rotations_.

    Notes
    -----
    Uses the kernel algorithm of Dayal & MacGregor (1997) [GLPLS; mathematics §5]. Components are
    the rotations r, which scikit-learn calls `x_rotations_`. Their weight vectors w have length 1,
    so the rotations have other lengths, which do not grow with the number of rows. Eigenvalues are
    the squared covariances σ² of the deflated Cxy, in the order of the components. Cxy is the
    cross-scatter of rows and targets.

    Components and the other fitted attributes equal those of PLSRegression(scale=False) to 2e-13,
    if PLSRegression is run to convergence (its default tol stops at a difference of 4e-3).

    [GLPLS eq. 2.24] takes the eigenvectors of XᵀYYᵀX instead, all at once. That is `SPCA`. Its
    first component is the same, and it has at most one component fewer than classes. With the
    deflation used here, components are uncorrelated, and there may be more of them. The
    graph-Laplacian (global-local) PLS-DA in the chapter's title is not implemented, because the
    chapter does not give its objective.

    `standardize` scales only the rows, while scikit-learn's scale=True also scales the targets. If
    the targets are columns of numbers in different units, divide them by their standard deviations
    first.

    If only the diagonal of Cxx, the scatter of the centred rows, is stored (see `scatter`),
    `solution_` is "diagonal". The first component is then still exact. The later components take
    features as uncorrelated, until `refine`. Left out: the targets' own scores.

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
        """Return at most n_components directions, fewer if no covariance remains."""
        cross = moments.cross
        most = len(cross) if self.n_components is None else self.n_components
        noise = moments.rounding.noise(moments.diagonal) * moments.target_size
        return pls_rotations(moments.scatter_or_diagonal, cross, most, noise)

    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return rᵀ Cxx r (p,) for each component r.

        Cxx is the scatter of the rows. If the components come from `refine`, its measured values
        are returned.
        """
        if moments.along is not None:
            return moments.along[: loadings.shape[1]]
        return np.einsum("ij,ij->j", loadings, moments.scatter_product(loadings))

    @property
    def x_rotations_(self) -> np.ndarray:
        """Directions (features, components) float64, `components_` transposed.

        `transform` is (X − mean_) · x_rotations_.
        """
        return self.components_.T

"""PLSDA: partial least squares on the class indicator, or on any targets."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.target_regression import TargetRegression
from stream_dr.solve.pls import rotations


@dataclass(eq=False, repr=False)
class PLSDA(TargetRegression):
    """Partial least squares discriminant analysis, from moments: the NIPALS solution without a second pass.

    Kernel algorithm of Dayal & MacGregor (1997) [GLPLS; mathematics §5]. Components are the rotations r (‖w‖ = 1, ‖r‖ ≠
    1), as long at any number of rows, which scikit-learn calls `x_rotations_`: those of PLSRegression(scale=False) to
    2e-13 when it is run to convergence (its default tol stops 4e-3 short). Eigenvalues are the squared covariances σ² of
    the deflated Cxy, in the order found.

    [GLPLS eq. 2.24] takes the eigenvectors of XᵀYYᵀX, all at once: that is `SPCA`, whose first component is the same. It has
    one fewer than classes; deflated, as here, components are uncorrelated and there are more. The graph-Laplacian
    (global-local) PLS-DA that the chapter's title names is in no estimator: the chapter does not give its objective.

    Targets: one or several labels a row (their indicator), or numbers (then it is PLS regression's projection). State:
    O(d·(k + 2)), + d² with exact scatter. Learning a row costs O(its entries × its labels), + O(d²) with exact scatter;
    solving O(p (d² + d k²)), with the diagonal O(p d k²). Merges and unlearns.

    With the diagonal of Cxx (`solution_` "diagonal") the first component is still exact; the later ones take features to
    be uncorrelated, until `refine`.

    Fitted attributes equal PLSRegression(scale=False)'s. `standardize` scales the rows only, where scikit-learn's scale=True
    scales the targets, too: divide columns of numbers in several units by their standard deviations before. `predict` gives
    of labels the one whose indicator is predicted highest. Left out: the targets' own scores.

    Parameters
    ----------
    n_components : int ≥ 1 or None, default 2
        How many; None: as many as there is covariance left for.

    Attributes
    ----------
    x_rotations_ : ndarray (features, components), float64
        `components_` transposed: `transform` is (X − mean_) · x_rotations_.

    >>> from stream_dr import PLSDA
    >>> pls = PLSDA(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5], [4.0, 1.5]], ["a", "a", "b", "b"])
    >>> pls.components_.round(3).tolist()
    [[1.0, 0.0]]
    """

    limit: ClassVar[str] = "past these the rows have no covariance with the targets"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")
    solves_eigenproblem: ClassVar[bool] = False
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    n_components: int | None = 2

    def directions(self, moments: Moments, state: Any) -> Directions:
        """At most n_components, or as many as there is covariance left for."""
        cross = moments.cross
        most = len(cross) if self.n_components is None else self.n_components
        noise = moments.rounding.noise(moments.diagonal) * moments.target_size
        return rotations(moments.spread, cross, most, noise)

    def sizes(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """(p,) rᵀ Cxx r, measured by refine where that found them."""
        if moments.along is not None:
            return moments.along[: loadings.shape[1]]
        spread = moments.spread @ loadings if moments.spread.ndim == 2 else moments.spread[:, None] * loadings
        return np.einsum("ij,ij->j", loadings, spread)

    @property
    def x_rotations_(self) -> np.ndarray:
        """(features, components) float64: transform is (X − mean_) · x_rotations_."""
        return self.components_.T

"""PCA: principal components from exact moments."""

from typing import Any, ClassVar, Literal

from stream_dr.errors import NeedsRefine
from stream_dr.estimators.closed_form import ClosedForm, Directions
from stream_dr.estimators.moments import Moments
from stream_dr.solve.spectral import symmetric


class PCA(ClosedForm):
    """Principal component analysis: eigenvectors of Cxx, exact from one pass, mergeable and unlearnable [MATH §2].

    Orthonormal, at most min(features, rows − 1). Eigenvalues are those of Cxx = Σ w (x − x̄)(x − x̄)ᵀ: divided by N they
    are variances.

    State: O(d²). Learning a row costs O(d²); solving O(d³). Unsupervised: y is ignored.

    Where only the diagonal of Cxx is kept (more than 4,096 features) there is no answer from it, since the diagonal's
    eigenvectors are the features themselves: transform raises NeedsRefine, naming `refine` and CCIPCA.

    >>> from stream_dr import PCA
    >>> PCA(n_components=1).fit([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]).components_.round(3).tolist()
    [[0.707, 0.707]]
    """

    limit: ClassVar[str] = "the rows vary in no more directions than features, or than rows less 1"
    target_kinds: ClassVar[tuple[str, ...]] = ()
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"
    encoding: ClassVar[str] = "none"

    def directions(self, moments: Moments, state: Any) -> Directions:
        """Eigenvectors above the rank cut."""
        if moments.scatter is None:
            raise NeedsRefine(
                "PCA keeps only the diagonal of Cxx here (scatter is diagonal past 4,096 features), and principal axes "
                "cannot be had from it. Call refine(source), give scatter='exact', or use CCIPCA."
            )
        values, vectors = symmetric(moments.scatter, moments.rounding.floor(moments.diagonal))
        return vectors, values

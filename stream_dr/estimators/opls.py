"""OPLS (orthonormalised partial least squares) by the two-stage method."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.predictor import TargetRegression, ridged_variance_by_component
from stream_dr.estimators.fitting.two_stage_method import RightHandSide, TwoStage
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class OPLS(TargetRegression, TwoStage):
    """Find the directions that predict all targets best.

    Orthonormalised partial least squares in one pass. With all components, `predict` is ridge
    regression with the ridge `gamma`.

    >>> from stream_dr import OPLS
    >>> opls = OPLS(gamma=1.0).fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0]], [["a"], ["a", "b"], ["b"]])
    >>> opls.transform([[0.0, 1.0]]).shape
    (1, 2)

    Targets are one or several labels a row, or numbers. Labels are learned as indicators (columns
    of 0 and 1). There are at most as many components as labels or columns of numbers. States can
    be merged, and rows can be unlearned. Fitted attributes have the same names as in
    scikit-learn's PLSRegression.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ Cxy Cxyᵀ w = λ w` [2S §2; mathematics §3]. Cxx (features, features) is the
    scatter of the centred rows, γ is the ridge `gamma`, and Cxy (features, targets) is the
    cross-scatter of rows and targets. The component that explains most of the targets comes first.
    Eigenvalues λ are in the squared unit of the targets, summed over rows.

    The state has O(d·(k + 2)) numbers for d features and k targets (labels or columns of numbers).
    Learning a row costs O(its entries × its labels). The exact scatter (the whole matrix
    Cxx, not only its diagonal) adds d² numbers to the state and O(d²) to learning a row. Solving
    costs O(d³ + d k²), or O(d k²) if only the diagonal is stored. The solution is then approximate,
    and `refine` makes it exact.
    """

    limit: ClassVar[str] = "there are at most as many as targets that the rows say something about"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")
    eigenvalue_growth: ClassVar[int] = 1

    def right_hand_side(self, moments: Moments, state: MomentState) -> RightHandSide:
        """Return the cross-scatter of rows and targets, and the targets' norm.

        The cross-scatter is (features, k) for k targets. The norm decides which part of the
        cross-scatter is only rounding error.
        """
        return RightHandSide(moments.cross.copy(), moments.uncentred_target_norm)

    def component_variances(
        self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray, covariances: np.ndarray
    ) -> np.ndarray:
        """Return the ridged variance wᵀ A w (p,) of each component w.

        OPLS solves Cxy Cxyᵀ w = λ A w. A (features, features) is the rows' scatter plus the ridge,
        and Cxy (features, targets) the cross-scatter of rows and targets. So wᵀ A w is
        |Cxyᵀ w|² / λ, and neither A nor w itself is needed.

        moments, loadings: ignored.
        eigenvalues: (p,), the eigenvalues λ.
        covariances: (p, targets), the vectors Cxyᵀ w.
        """
        return ridged_variance_by_component(covariances, eigenvalues)

"""OPLS (orthonormalised partial least squares) by the two-stage method."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.target_regression import TargetRegression, two_stage_sizes
from stream_dr.estimators.fitting.two_stage_method import TwoStage
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class OPLS(TargetRegression, TwoStage):
    """Find the directions that predict all targets best, in one pass.

    Orthonormalised partial least squares. With all components, `predict` is ridge regression whose
    ridge is `gamma`.

    >>> from stream_dr import OPLS
    >>> opls = OPLS(gamma=1.0).fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0]], [["a"], ["a", "b"], ["b"]])
    >>> opls.transform([[0.0, 1.0]]).shape
    (1, 2)

    Targets are one or several labels a row, or numbers. Labels are learned as indicators (columns
    of 0 and 1). There are at most as many components as labels or columns of numbers. Merges and
    unlearns. Fitted attributes have the names of scikit-learn's PLSRegression.

    Notes
    -----
    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` [2S §2; mathematics §3]. X are the centred rows, Cxx is
    their scatter, γ is the ridge `gamma`, and XH = Cxy is the cross-scatter of rows and targets.
    The components span the ridge regressions of all targets, and come in the order of how much of
    the targets they explain. Eigenvalues are in the targets' squared units, summed over rows.

    State: O(d·(k + 2)) numbers for d features and k labels or columns, and d² more with exact
    scatter. Learning a row costs O(its entries × its labels), and O(d²) with exact scatter.
    Solving costs O(d³ + d k²), or O(d k²) from the diagonal of Cxx. `refine` makes the solution
    from the diagonal exact.
    """

    limit: ClassVar[str] = "there are at most as many as targets that the rows say something about"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")

    def right_hand_side(self, moments: Moments, state: MomentState) -> tuple[np.ndarray, float]:
        """Return XH = Cxy (features, k), and the size of the factor H.

        Cxy is the cross-scatter of rows and targets.

        X are the centred rows, and H is the factor of the targets. The size √(tr HᵀH) decides which
        part of XH is only rounding error.
        """
        return moments.cross, moments.target_size

    def scatter_along(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """Return wᵀ(aCxx + ρI)w (p,) for each component w.

        Cxx is the scatter of the rows. a and ρ are the factors of the ridge.
        """
        return two_stage_sizes(moments.cross, loadings, eigenvalues)

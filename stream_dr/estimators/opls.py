"""OPLS: orthonormalised partial least squares by the two-stage method."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.target_regression import TargetRegression, two_stage_sizes
from stream_dr.estimators.fitting.two_stage import TwoStage


@dataclass(eq=False, repr=False)
class OPLS(TargetRegression, TwoStage):
    """Orthonormalised partial least squares: the directions that predict all targets best, from one pass.

    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with XH = Cxy [2S §2; mathematics §3]: the span of ridge regression on every
    target, ordered by what it explains. At most (targets) components; eigenvalues are in the targets' squared units,
    summed over rows.

    Fitted attributes are named as in scikit-learn's PLSRegression; `predict` with all components is ridge regression
    with α = γ.

    Targets: one or several labels a row (their indicator), or numbers. State: O(d·(k + 2)) for k labels or columns, + d²
    with exact scatter. Learning a row costs O(its entries × its labels), + O(d²) with exact scatter; solving O(d³ + d
    k²), with the diagonal O(d k²), which `refine` makes exact. Merges and unlearns.

    >>> from stream_dr import OPLS
    >>> opls = OPLS(gamma=1.0).fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0]], [["a"], ["a", "b"], ["b"]])
    >>> opls.transform([[0.0, 1.0]]).shape
    (1, 2)
    """

    limit: ClassVar[str] = "there are at most as many as targets that the rows say something about"
    target_kinds: ClassVar[tuple[str, ...]] = ("class", "multilabel", "continuous")

    def right(self, moments: Moments, state: Any) -> tuple[np.ndarray, float]:
        """Cxy."""
        return moments.cross, moments.target_size

    def sizes(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
        """(p,) wᵀ(aCxx + ρI)w."""
        return two_stage_sizes(moments.cross, loadings, eigenvalues)

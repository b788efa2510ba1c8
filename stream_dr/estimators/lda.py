"""LDA: linear discriminant analysis by the two-stage method."""

from typing import Any, ClassVar

import numpy as np

from stream_dr.estimators.closed_form import Directions
from stream_dr.estimators.moments import Moments
from stream_dr.estimators.two_stage import TwoStage

NO_SPREAD = 1e-9
"""A within-class variance below this share of the variance is rounding: as near as eigenvalues are taken to be equal."""


class LDA(TwoStage):
    """Linear discriminant analysis: maximises Sb against St, from one pass.

    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with XH = Cxy diag(n_j^−1/2), Cxy against the class indicator [2S, Table 1 and
    Algorithm 2; MATH §3]. At most (classes − 1) components; eigenvalues lie in [0, 1]. With γ = 0 this is Fisher's LDA.

    Parameters gamma, shrinkage, scaling: see TwoStage. With scaling="unit" the rows learned have *within-class* variance 1
    along every component (divisor N, the sum of weights) [MATH §3a]: at γ = 0 `transform` is that of scikit-learn's
    LinearDiscriminantAnalysis(solver="svd"), up to sign. Along a component in which no row differs from its class mean
    (perfectly separated classes, as where rows are fewer than features and γ = 0), the total variance is 1 instead.
    shrinkage is of the within-class scatter, (1 − s) Sw + s (tr Sw / d) I, as in scikit-learn's solvers "lsqr" and "eigen".

    Targets: one label a row. State: O(d·(c + 2)) for d features and c classes, + d² with exact scatter. Learning a row
    costs O(its entries), + O(d²) with exact scatter; solving O(d³ + d c²), with the diagonal O(d c²). Merges and
    unlearns.

    From the diagonal of Cxx (`solution_` "diagonal") it is the one-pass approximation W1 ≈ (diag(Cxx) + γ)⁻¹ XH of
    MATH §4; `refine` makes it exact. Left out: priors as a parameter (sample_weight does it).

    >>> from stream_dr import LDA
    >>> lda = LDA().fit([[0.0, 1.0], [1.0, 1.0], [5.0, 0.0], [6.0, 2.0]], ["a", "a", "b", "b"])
    >>> lda.rank_, lda.classes_.tolist()
    (1, ['a', 'b'])
    """

    limit: ClassVar[str] = "there are at most as many as classes less 1, and as features that vary"
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)

    def right(self, moments: Moments, state: Any) -> tuple[np.ndarray, float]:
        """Cxy diag(n_j^−1/2)."""
        return _weighted(moments), len(moments.label_weights) ** 0.5

    def directions(self, moments: Moments, state: Any) -> Directions:
        """At most (classes with weight − 1) components."""
        loadings, eigenvalues = super().directions(moments, state)
        most = max(len(moments.label_weights) - 1, 0)
        return loadings[:, :most], eigenvalues[:most]

    def shrunk_trace(self, moments: Moments) -> float:
        """tr Sw, summed."""
        return max(super().shrunk_trace(moments) - float((_weighted(moments) ** 2).sum()), 0.0)

    def spreads(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """(p,) wᵀ Sw w, Sw summed, and wᵀ Cxx w where that is rounding."""
        total, xh = super().spreads(loadings, moments, solution), _weighted(moments)
        if moments.scatter is None and solution != "refined":
            within = np.maximum(moments.diagonal - (xh**2).sum(axis=1), 0.0) @ loadings**2
        else:
            within = total - ((xh.T @ loadings) ** 2).sum(axis=0)
        return np.where(within > NO_SPREAD * total, within, total)


def _weighted(moments: Moments) -> np.ndarray:
    """XH (features, classes), with XH Hᵀ Xᵀ = Sb, summed."""
    return moments.cross / np.sqrt(moments.label_weights)

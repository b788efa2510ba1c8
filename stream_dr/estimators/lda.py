"""LDA: linear discriminant analysis by the two-stage method."""

from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.estimators.closed_form import ClosedForm, Directions
from stream_dr.estimators.moments import Moments


class LDA(ClosedForm):
    """Linear discriminant analysis: maximises Sb against St, from one pass.

    Solves `(Cxx + γI)⁻¹ XH Hᵀ Xᵀ w = λ w` with XH = Cxy diag(n_j^−1/2), Cxy against the class indicator [2S, Table 1 and
    Algorithm 2; MATH §3]. At most (classes − 1) components; eigenvalues lie in [0, 1]. With γ = 0 this is Fisher's LDA;
    the ridge is the paper's, in the units of the summed scatter.

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
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "first_stage"

    def directions(self, moments: Moments, state: Any) -> Directions:
        """At most (classes with weight − 1) components."""
        c = len(moments.label_weights)
        loadings, eigenvalues = self._two_stage(moments, moments.cross / np.sqrt(moments.label_weights), c**0.5)
        most = max(c - 1, 0)
        return loadings[:, :most], eigenvalues[:most]

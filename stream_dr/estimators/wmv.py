"""WMV: two-parameter weighted maximum variance."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.closed_form import ClosedForm, Directions
from stream_dr.estimators.moments import Moments
from stream_dr.estimators.parameter_checks import check_number
from stream_dr.solve.spectral import algebraic


@dataclass(eq=False, repr=False)
class WMV(ClosedForm):
    """Weighted maximum variance with two parameters [WMV; mathematics §2].

    Maximises ½ Σ_ij C_ij (wᵀ(x_i − x_j))² with C_ij = α for two rows of one class and β for rows of two (with weights,
    C_ij w_i w_j): eigenvectors of Xᵀ L X = β N Cxx + (α − β) Σ_j n_j W_j, W_j the scatter of class j about its own mean.
    α < 0 < β: rows of one class are drawn together, others apart. (With C_ij = 1/n − 2 [same class]/n_k
    it would be N (Sb − Sw), which is MMC.) Components are orthonormal and ordered by algebraic value; n_components=None
    gives the positive ones.

    State: c matrices W_j and Cxx, 8·(c + 1)·d² bytes (20 classes at d = 1,000: 170 MB), so the scatter is always exact:
    more than 4,096 features are refused. Learning a row costs O(d²); solving O(d³ + c d²). Merges and unlearns.

    Targets: one label a row. Left out: the diagonal form, since the classes' scatters are all it is made of; MMC has
    one.

    Parameters
    ----------
    alpha : float < 0, default -1.0
        Weight of pairs of rows of one class.
    beta : float > 0, default 1.0
        Weight of pairs of rows of two classes.
    scatter : {"auto", "exact"}, default "auto"
        Exact, always: more than 4,096 features are refused.

    >>> from stream_dr import WMV
    >>> wmv = WMV(n_components=1).fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"])
    >>> wmv.components_.round(3).tolist()
    [[1.0, 0.0]]
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)

    alpha: float = -1.0
    beta: float = 1.0
    _: KW_ONLY
    scatter: Literal["auto", "exact"] = "auto"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        super().check_parameters()
        check_number("alpha", self.alpha, high=0.0)
        check_number("beta", self.beta, low=0.0, open_low=True)
        if self.alpha == 0.0:
            raise InvalidParameter("alpha=0; it must be below 0 (rows of one class are drawn together).")
        if self.scatter == "diagonal":
            raise InvalidParameter("scatter='diagonal'; WMV is made of exact class scatters. Use MMC, or 'exact'.")

    def scatter_kept(self) -> str:
        """Exact, always."""
        return "exact"

    def keeps_class_scatter(self) -> bool:
        """One exact scatter a class."""
        return True

    def directions(self, moments: Moments, state: Any) -> Directions:
        """Eigenvectors of Xᵀ L X; the positive ones unless more are asked for."""
        classes = state.class_scatter
        inner = np.zeros((len(moments.mean), len(moments.mean)))
        for j, n_j in zip(np.flatnonzero(moments.present), moments.label_weights, strict=True):
            inner += n_j * state.scale * classes.scatter[j]
        inner *= moments.scale[:, None] * moments.scale
        whole = moments.weight * moments.spread
        floor = moments.weight * moments.rounding.floor(moments.diagonal)
        values, vectors = algebraic(self.beta * whole + (self.alpha - self.beta) * inner, self.beta * floor)
        p = len(values) if self.n_components is not None else int(np.count_nonzero(values > 0))
        return vectors[:, :p], values[:p]

"""MMC: the (weighted) maximum margin criterion."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.margin import margin_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number


@dataclass(eq=False, repr=False)
class MMC(ClosedForm):
    """Maximum margin criterion, weighted: eigenvectors of Sb − α Sw (Li, Jiang, Zhang; [WMV]; mathematics §2).

    Sb is weighted by the classes' shares n_j/N and Sw divided by N, as Li, Jiang and Zhang have it; the lecture [WMV]
    prints Sb unweighted and Sw as a sum, whose first vectors differ (cosine 0.74-0.81). MMC(α) is SKM(a) with
    a = 1 + 2α, eigenvalues halved.

    Components are orthonormal and ordered by algebraic value. For α ≥ 0 at most c − 1 eigenvalues are positive;
    n_components=None gives those, asked for more it goes on with negative ones (α ≠ 0).

    Targets: one label a row. State: O(d·(c + 2)), + d² with exact scatter where α ≠ 0. Learning a row costs O(its
    entries), + O(d²) with exact scatter; solving O(d³), O(d c²) for α = 0. Merges and unlearns.

    With the diagonal of Cxx (`solution_` "diagonal") and α > 0, Sw is taken to be diagonal; for α < 0 that has no
    meaning and transform raises NeedsRefine.

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of Sw.

    >>> from stream_dr import MMC
    >>> MMC().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"]).eigenvalues_.round(6).tolist()
    [4.0]
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    alpha: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number("alpha", self.alpha)
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """Cxx is needed unless α = 0."""
        return float(self.alpha) != 0.0

    def directions(self, moments: Moments, state: Any) -> Directions:
        """By algebraic value; the positive ones unless more are asked for."""
        return margin_directions(moments, 1.0 + self.alpha, -float(self.alpha), self.n_components)

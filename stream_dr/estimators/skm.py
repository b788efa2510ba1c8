"""SKM: the supervised Kampong measure of [SKM] in closed form, solved from class means and scatter."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.margin import margin_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number


@dataclass(eq=False, repr=False)
class SKM(ClosedForm):
    """Supervised Kampong measure (Yan et al.) in closed form: eigenvectors of S_c = 2 Sb + (1 − a) Sw.

    That identity is not in the paper: with its weights −(a − p_l) and p_j [SKM eq. 16, 17], S_c = 2 Sb + (1 − a) Sw to
    6e-15 [mathematics §2]. So a = 1 is the between-class scatter alone, exact from the class means at every row, without
    the convergence lag of the incremental form; a = 3 is twice MMC; SKM(a) is weighted MMC with α = (a − 1)/2. Sb is
    weighted by the classes' shares, Sw divided by N.

    Components are orthonormal and ordered by algebraic value. For a ≥ 1 at most c − 1 eigenvalues are positive, and
    n_components=None gives those; asked for more, a ≠ 1 goes on with negative ones, a = 1 has no more.

    Targets: one label a row. State: O(d·(c + 2)), + d² with exact scatter where a ≠ 1. Learning a row costs O(its
    entries), + O(d²) with exact scatter; solving O(d c²) for a = 1, else O(d³). Merges and unlearns.

    With the diagonal of Cxx (`solution_` "diagonal") and a > 1, Sw is taken to be diagonal; for a < 1 that has no
    meaning and transform raises NeedsRefine. The row-by-row recurrence is IncrementalSKM.

    Parameters
    ----------
    a : float, default 1.0
        Weight of a row's own class.

    >>> from stream_dr import SKM
    >>> SKM().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    a: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number("a", self.a)
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """Cxx is needed unless a = 1."""
        return float(self.a) != 1.0

    def directions(self, moments: Moments, state: Any) -> Directions:
        """By algebraic value; the positive ones unless more are asked for."""
        return margin_directions(moments, 1.0 + self.a, 1.0 - self.a, self.n_components)

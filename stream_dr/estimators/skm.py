"""SKM: the supervised Kampong measure in closed form, from class means and scatter."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.margin import margin_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class SKM(ClosedForm):
    """Find directions along which classes lie apart and hold together.

    Supervised Kampong measure (Yan et al.) in closed form. `a` weighs how much a row's own class
    is drawn together. With a = 1 class means alone decide.

    >>> from stream_dr import SKM
    >>> SKM().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. Merges and unlearns. For a ≥ 1 at most (classes − 1) eigenvalues
    are positive. n_components=None takes those. If more components are asked for and a ≠ 1, those
    of negative eigenvalue follow. The recurrence, row by row, is IncrementalSKM.

    Parameters
    ----------
    a : float, default 1.0
        Weight of a row's own class.

    Notes
    -----
    Components are the orthonormal eigenvectors of S_c = 2 Sb + (1 − a) Sw, ordered by algebraic
    value. Sb is the between-class scatter weighted by the classes' shares, Sw the within-class
    scatter divided by N. This identity is not in the paper: with its weights −(a − p_l) and p_j
    [SKM eq. 16, 17] it holds to 6e-15 [mathematics §2]. So a = 1 is the between-class scatter
    alone, exact from the class means at every row, without the convergence lag of the incremental
    form. a = 3 is twice MMC, and SKM(a) is weighted MMC with α = (a − 1)/2.

    If only the diagonal of Cxx is stored (`solution_` is "diagonal") and a > 1, Sw is taken as
    diagonal. For a < 1 that has no meaning and transform raises NeedsRefine.

    State: O(d·(c + 2)) numbers for d features and c classes, and d² more with exact scatter if a ≠
    1. Learning a row costs O(its entries), and O(d²) with exact scatter. Solving costs O(d c²) for
    a = 1, else O(d³).
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    a: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number("a", self.a)
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """True unless a = 1, when Cxx is not needed."""
        return float(self.a) != 1.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return directions by algebraic eigenvalue.

        Only those of positive eigenvalue, unless n_components asks for more.
        """
        return margin_directions(moments, 1.0 + self.a, 1.0 - self.a, self.n_components)

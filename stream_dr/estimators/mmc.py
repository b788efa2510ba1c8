"""MMC (maximum margin criterion), with a weight of the scatter within classes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.margin import margin_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class MMC(ClosedForm):
    """Find directions with large scatter between classes and small scatter within.

    Maximum margin criterion. It maximises the difference of the two scatters, so no matrix is
    inverted.

    >>> from stream_dr import MMC
    >>> MMC().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"]).eigenvalues_.round(6).tolist()
    [4.0]

    Targets are one label a row. Merges and unlearns. For α ≥ 0 at most (classes − 1) eigenvalues
    are positive. n_components=None takes the components of positive eigenvalue. If more components
    are asked for and α ≠ 0, components of negative eigenvalue follow.

    Parameters
    ----------
    alpha : float, default 1.0
        Weight α of the within-class scatter.

    Notes
    -----
    Components are the orthonormal eigenvectors of Sb − α Sw, ordered by algebraic value (Li,
    Jiang, Zhang; [WMV]; mathematics §2). As in Li, Jiang and Zhang, Sb is the between-class
    scatter weighted by the classes' shares n_j/N, and Sw the within-class scatter divided by N.
    n_j is the number of rows of class j, and N the number of all rows. The lecture [WMV] prints an
    unweighted Sb and an undivided Sw, which have other first vectors (cosine 0.74-0.81). MMC(α) is
    SKM(a) with a = 1 + 2α and half the eigenvalues.

    If only the diagonal of Cxx, the scatter of the centred rows, is stored (see `scatter`),
    `solution_` is "diagonal". If α > 0, Sw is then taken as diagonal. If α < 0, a diagonal Sw
    would make single features the components, so transform raises NeedsRefine.

    State: O(d·(c + 2)) numbers for d features and c classes, and d² more with exact scatter if α ≠
    0. Learning a row costs O(its entries), and O(d²) with exact scatter. Solving costs O(d³), or
    O(d c²) for α = 0.
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    alpha: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number("alpha", self.alpha)
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """True unless α = 0, which needs no scatter matrix Cxx of the rows."""
        return float(self.alpha) != 0.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return directions and eigenvalues, in descending algebraic order.

        Only directions of positive eigenvalue are returned, unless n_components asks for more.
        """
        return margin_directions(moments, 1.0 + self.alpha, -float(self.alpha), self.n_components)

"""MMC (maximum margin criterion), with weighted scatter within classes."""

from dataclasses import dataclass
from typing import ClassVar

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.margin import scatter_sum_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_number_in_range
from stream_dr.estimators.fitting.refining import Refinable
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class MMC(Refinable):
    """Find directions of large between-class and small within-class scatter.

    Maximum margin criterion. The directions maximise the scatter between classes minus the scatter
    within classes, so no matrix is inverted.

    >>> from stream_dr import MMC
    >>> MMC().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]], ["a", "a", "b", "b"]).eigenvalues_.round(6).tolist()
    [4.0]

    Targets are one label a row. States can be merged, and rows can be unlearned. For alpha ≥ 0, at
    most (classes − 1) eigenvalues are positive. n_components=None takes the components of positive
    eigenvalue. If n_components is larger and alpha ≠ 0, components of negative eigenvalue follow.

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of the within-class scatter.

    Notes
    -----
    Components are the orthonormal eigenvectors of Sb − alpha · Sw, largest eigenvalue first (Li,
    Jiang, Zhang; [WMV]; mathematics §2). Sb is the between-class scatter, with the classes'
    shares of the rows as weights. Sw is the within-class scatter, divided by the number of rows.
    Sb and Sw are defined as by Li, Jiang and Zhang. The lecture [WMV] prints an unweighted Sb and
    an undivided Sw. With these, the matrix is almost −n · Sw for n rows. SKM with a = 1 + 2 · alpha
    has the same components and twice the eigenvalues.

    Above 4,096 features only the diagonal of the rows' scatter may be stored (see `scatter`).
    `solution_` is then "diagonal". If alpha > 0, Sw is taken as diagonal. If alpha < 0, a diagonal
    Sw would make single features the components, so `transform` raises NeedsRefine.

    The state has O(d·(c + 2)) numbers for d features and c classes. Learning a row costs O(its
    entries). If alpha ≠ 0, the exact scatter adds d² numbers to the state and O(d²) to learning a
    row. Solving costs O(d³), or O(d c²) for alpha = 0.
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)

    alpha: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number_in_range("alpha", self.alpha)
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """True if the method needs the rows' scatter matrix.

        The matrix is needed unless alpha is 0.
        """
        return float(self.alpha) != 0.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components as columns, and their eigenvalues.

        The largest eigenvalue comes first. If n_components is None, only components of positive
        eigenvalue are returned.

        moments: centred sums of the rows and targets, from which the components are computed.
        """
        return scatter_sum_directions(moments, 1.0 + self.alpha, -float(self.alpha), self.n_components is None)

"""SKM (supervised Kampong measure), computed from the class means and the scatter."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.margin import margin_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_number
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class SKM(ClosedForm):
    """Find directions that separate the classes and keep each class together.

    Supervised Kampong measure (Yan et al.) in closed form. The larger the parameter `a`, the
    closer together are the projected rows of one class. With a = 1 only the class means matter.

    >>> from stream_dr import SKM
    >>> SKM().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. States can be merged, and rows can be unlearned. For a ≥ 1, at
    most (classes − 1) eigenvalues are positive. n_components=None takes the components of positive
    eigenvalue. If n_components is larger and a ≠ 1, components of negative eigenvalue follow.
    `IncrementalSKM` computes SKM row by row and stores no scatter matrix.

    Parameters
    ----------
    a : float, default 1.0
        The larger a is, the closer together are the projected rows of one class.

    Notes
    -----
    Components are the orthonormal eigenvectors of 2 Sb + (1 − a) Sw, largest eigenvalue first. Sb
    is the between-class scatter, with the classes' shares of the rows as weights. Sw is the
    within-class scatter, divided by the number of rows. The paper defines its matrix by weights of
    pairs of rows instead [SKM eq. 16, 17]. The two matrices are equal to 6e-15 [mathematics §2].

    - With a = 1 only Sb remains. It is exact after every row, while IncrementalSKM needs many rows
      to converge.
    - With a = 3 the matrix is twice the matrix of MMC.
    - SKM is weighted MMC with alpha = (a − 1)/2.

    Above 4,096 features only the diagonal of the rows' scatter may be stored (see `scatter`).
    `solution_` is then "diagonal". If a > 1, Sw is taken as diagonal. If a < 1, a diagonal Sw
    would make single features the components, so `transform` raises NeedsRefine.

    The state has O(d·(c + 2)) numbers for d features and c classes. Learning a row costs O(its
    entries). If a ≠ 1, the exact scatter adds d² numbers to the state and O(d²) to learning a row.
    Solving costs O(d c²) for a = 1, else O(d³).
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    a: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number("a", self.a)
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """True if the method needs the rows' scatter matrix, which is so unless a = 1."""
        return float(self.a) != 1.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return directions and eigenvalues, largest eigenvalue first.

        If n_components is None, only directions of positive eigenvalue are returned.
        """
        return margin_directions(moments, 1.0 + self.a, 1.0 - self.a, self.n_components)

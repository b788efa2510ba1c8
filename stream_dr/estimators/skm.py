"""SKM (supervised Kampong measure), computed from the class means and the scatter."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.margin import margin_directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.statistics.moments.accumulator import MomentState
from stream_dr.statistics.moments.encoding import Encoding


@dataclass(eq=False, repr=False)
class SKM(ClosedForm):
    """Find directions that separate the classes and keep each class together.

    Supervised Kampong measure (Yan et al.) in closed form. The parameter `a` says how strongly the
    rows of one class are kept together. With a = 1 only the class means matter.

    >>> from stream_dr import SKM
    >>> SKM().fit([[0.0, 1.0], [0.0, 2.0], [4.0, 1.5]], ["a", "a", "b"]).components_.round(3).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. Merges and unlearns. For a ≥ 1 at most (classes − 1) eigenvalues
    are positive. n_components=None takes the components of positive eigenvalue. If more components
    are asked for and a ≠ 1, components of negative eigenvalue follow. `IncrementalSKM` is updated
    row by row and stores no scatter matrix.

    Parameters
    ----------
    a : float, default 1.0
        Weight that keeps the rows of one class together. The larger, the closer together.
    unlabelled : {"skip", "use"}, default "skip"
        What to do with rows without a label. "use" learns them, for a < 1. Class means and class
        shares are then those of the labelled rows, and St is the scatter of all rows.

    Notes
    -----
    Components are the orthonormal eigenvectors of S_c = 2 Sb + (1 − a) Sw, ordered by algebraic
    value. Sb is the between-class scatter weighted by the classes' shares of the rows, and Sw the
    within-class scatter divided by the number N of rows. The paper does not state this identity.
    With the paper's weights −(a − p_l) and p_j [SKM eq. 16, 17], where p_j is the share of class
    j, the identity holds to 6e-15 [mathematics §2].

    - a = 1 is the between-class scatter alone. Class means give it exactly after every row, while
      the incremental form needs many rows to converge.
    - a = 3 is twice the matrix of MMC.
    - SKM(a) is weighted MMC with α = (a − 1)/2.

    S_c is computed as (1 + a) Sb + (1 − a) St, where St = Sb + Sw is the scatter of all rows
    divided by N. With unlabelled="use", Sb has the labelled rows alone, and St all rows.

    If only the diagonal of Cxx, the scatter of the centred rows, is stored (see `scatter`),
    `solution_` is "diagonal". If a > 1, Sw is then taken as diagonal. If a < 1, a diagonal Sw
    would make single features the components, so transform raises NeedsRefine.

    State: O(d·(c + 2)) numbers for d features and c classes, and d² more with exact scatter if a ≠
    1. Learning a row costs O(its entries), and O(d²) with exact scatter. Solving costs O(d c²) for
    a = 1, else O(d³).
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    refined_by: ClassVar[Literal["first_stage", "subspace"] | None] = "subspace"

    fixed: ClassVar[tuple[str, ...]] = (*ClosedForm.fixed, "unlabelled")

    a: float = 1.0
    _: KW_ONLY
    unlabelled: Literal["skip", "use"] = "skip"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number("a", self.a)
        check_choice("unlabelled", self.unlabelled, ("skip", "use"))
        if self.unlabelled == "use" and self.a >= 1.0:
            raise InvalidParameter(
                f"unlabelled='use' with a={self.a}; it needs a < 1. For a > 1 the scatter of the rows is made "
                "small, which has to be that of the labelled rows. For a = 1 it has no effect."
            )
        super().check_parameters()

    def target_encoding(self) -> Encoding:
        """Return the encoding of targets as numeric columns."""
        return "partial" if self.unlabelled == "use" else self.encoding

    def reads_scatter(self) -> bool:
        """True unless a = 1, which needs no scatter matrix Cxx of the rows."""
        return float(self.a) != 1.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return directions and eigenvalues, in descending algebraic order.

        Only directions of positive eigenvalue are returned, unless n_components asks for more.
        """
        labelled = moments.label_weights.sum()
        if self.unlabelled == "use" and labelled > 0:
            # Sb is that of the labelled rows, about their own mean.
            cross = moments.cross - np.outer(moments.cross.sum(axis=1) / labelled, moments.label_weights)
            moments = moments._replace(cross=cross * np.sqrt(moments.weight / labelled))
        return margin_directions(moments, 1.0 + self.a, 1.0 - self.a, self.n_components)

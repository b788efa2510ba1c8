"""SKM (supervised Kampong measure), from class means and the scatter."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.refining import Refinable
from stream_dr.estimators.mmc import scatter_sum_directions
from stream_dr.statistics.moments.state import MomentState


@dataclass(eq=False, repr=False)
class SKM(Refinable):
    """Find directions that separate classes and keep each class together.

    The authors call the method supervised Kampong measure [SKM]. The larger the parameter `a`, the
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
    unlabelled : {"skip", "use"}, default "skip"
        What to do with rows without a label. "skip" ignores these rows. "use" learns these rows
        and needs a < 1 (see Notes).

    Notes
    -----
    Components are the orthonormal eigenvectors of 2 Sb + (1 − a) Sw, largest eigenvalue first. Sb
    is the between-class scatter, with the classes' shares of the rows as weights. Sw is the
    within-class scatter, divided by the number of rows. The paper defines its matrix by weights of
    pairs of rows instead [SKM eq. 16, 17]. The two matrices are equal to 6e-15 [mathematics §2].

    - With a = 1 only Sb remains. The components are exact after every row, while IncrementalSKM
      needs many rows to converge.
    - With a = 3 the matrix is twice the matrix of MMC (maximum margin criterion).
    - With any a, the components are those of `MMC` with alpha = (a − 1)/2.

    The matrix is computed as (1 + a) Sb + (1 − a) St. St = Sb + Sw is the scatter of all rows,
    divided by their number. With unlabelled="use", St is computed from all rows, and Sb from the
    labelled rows.

    Above 4,096 features only the diagonal of the rows' scatter may be stored (see `scatter`).
    `solution_` is then "diagonal", and if a ≠ 1, Sw is taken as diagonal. Call `refine` to make the
    solution exact. If a < 1, `transform` raises NeedsRefine until then, because the components of a
    diagonal Sw would only be the features of largest scatter.

    The state has O(d·(c + 2)) numbers for d features and c classes. Learning a row costs O(its
    entries). If a ≠ 1, the exact scatter adds d² numbers to the state and O(d²) to learning a row.
    Solving costs O(d c²) for a = 1, else O(d³).
    """

    target_kinds: ClassVar[tuple[str, ...]] = ("class",)

    fixed: ClassVar[tuple[str, ...]] = (*Refinable.fixed, "unlabelled")

    a: float = 1.0
    _: KW_ONLY
    unlabelled: Literal["skip", "use"] = "skip"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_number_in_range("a", self.a)
        check_choice("unlabelled", self.unlabelled, ("skip", "use"))
        if self.unlabelled == "use" and self.a >= 1.0:
            raise InvalidParameter(
                f"unlabelled='use' with a={self.a}; it needs a < 1. For a > 1 the scatter of the rows is made "
                "small, which has to be that of the labelled rows. For a = 1 it has no effect."
            )
        super().check_parameters()

    def reads_scatter(self) -> bool:
        """True if the method needs the rows' scatter matrix.

        The components are eigenvectors of 2 Sb + (1 − a) Sw. The scatter between classes Sb follows
        from the class means. The scatter within classes Sw needs the matrix, unless the parameter
        `a` is 1.
        """
        return float(self.a) != 1.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components as columns, and their eigenvalues.

        The largest eigenvalue comes first. If n_components is None, only components of positive
        eigenvalue are returned.

        moments: centred sums of the rows and targets, from which the components are computed.
        """
        labelled = moments.label_weights.sum()
        if self.unlabelled == "use" and labelled > 0:
            # Compute the between-class scatter from the labelled rows only, about their own mean.
            cross = moments.cross - np.outer(moments.cross.sum(axis=1) / labelled, moments.label_weights)
            moments = moments._replace(cross=cross * np.sqrt(moments.weight / labelled))
        return scatter_sum_directions(moments, 1.0 + self.a, 1.0 - self.a, self.n_components is None)

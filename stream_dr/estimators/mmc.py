"""MMC (maximum margin criterion), with weighted scatter within classes.

SKM (the supervised Kampong measure) and MMC both compute the eigenvectors of b·Sb + w·Cxx/N, where
b and w are numbers. Sb (features, features) is the scatter between classes, and Cxx (features,
features) is the scatter of all N rows. The two methods differ only in the values of b and w
[mathematics §2].
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_number_in_range
from stream_dr.estimators.fitting.refining import Refinable
from stream_dr.estimators.fitting.stream_learner import NeedsRefine
from stream_dr.solve.discriminant import positive_scatter_sum_eigenpairs, scatter_sum_eigenpairs
from stream_dr.statistics.moments.state import MomentState


def scatter_sum_directions(
    moments: Moments, between_weight: float, total_scatter_weight: float, only_positive: bool
) -> Directions:
    """Return eigenvectors and eigenvalues of two scatter matrices' sum.

    The sum is between_weight · Sb + total_scatter_weight · Cxx/N. Sb is the scatter between
    classes, and Cxx the scatter of all N rows. Cxx/N is Sb plus the scatter Sw within classes, so
    Sw has the weight total_scatter_weight. The largest eigenvalue comes first. Raises NeedsRefine
    if this weight is positive and only the diagonal of Cxx is stored.

    moments: centred sums of the rows.
    between_weight: factor of the scatter between classes.
    total_scatter_weight: factor of the scatter of all rows.
    only_positive: True to return only eigenvectors of positive eigenvalue.
    """
    # `roots` are the square roots of the eigenvalues of Sb. Without Cxx, or without rows, the
    # eigenvectors of Sb are the result.
    vectors, roots = moments.between_eigenpairs()
    if moments.weight <= 0 or total_scatter_weight == 0.0:
        return vectors, between_weight * roots**2
    # The diagonal subtracted from Sb makes features of large scatter count less. Added to Sb, it
    # would make the features of largest scatter the components.
    if moments.scatter is None and total_scatter_weight > 0.0:
        raise NeedsRefine(
            "only the diagonal of Cxx is stored (it is past 4,096 features), and with a positive share of "
            "the within-class scatter its axes would be single features. Call refine(source), give scatter='exact', or "
            "choose a ≥ 1 (SKM with unlabelled='skip') or alpha ≥ 0 (MMC)."
        )

    # G is a root of Sb: Sb = G Gᵀ.
    G = vectors * roots
    if moments.scatter is not None:
        # `floor` is the size up to which an eigenvalue of Cxx/N is rounding error.
        floor = moments.rounding.eigenvalue_floor(moments.diagonal) / moments.weight
        scatter = moments.scatter / moments.weight
        vectors, values = scatter_sum_eigenpairs(G, between_weight, scatter, total_scatter_weight, floor)
    else:
        diagonal = moments.diagonal / moments.weight
        vectors, values = positive_scatter_sum_eigenpairs(G, between_weight, diagonal, total_scatter_weight)

    # The eigenvalues are sorted, so the positive ones come first.
    p = len(values)
    if only_positive:
        p = int(np.count_nonzero(values > 0))
    return vectors[:, :p], values[:p]


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
    `SKM` with a = 1 + 2 · alpha has the same components and twice the eigenvalues.

    Above 4,096 features only the diagonal of the rows' scatter may be stored (see `scatter`).
    `solution_` is then "diagonal", and Sw is taken as diagonal. Call `refine` to make the solution
    exact. If alpha < 0, `transform` raises NeedsRefine until then, because the components of a
    diagonal Sw would only be the features of largest scatter.

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

        The components are eigenvectors of Sb − alpha · Sw. The scatter between classes Sb follows
        from the class means. The scatter within classes Sw needs the matrix, unless the parameter
        `alpha` is 0.
        """
        return float(self.alpha) != 0.0

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the components as columns, and their eigenvalues.

        The largest eigenvalue comes first. If n_components is None, only components of positive
        eigenvalue are returned.

        moments: centred sums of the rows and targets, from which the components are computed.
        """
        return scatter_sum_directions(moments, 1.0 + self.alpha, -float(self.alpha), self.n_components is None)

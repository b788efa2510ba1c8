"""Directions of SKM and MMC, from two scatter matrices.

SKM is the supervised Kampong measure. MMC is the maximum margin criterion. Both methods compute
the eigenvectors of b·Sb + w·Cxx/N, where b and w are numbers. Sb (features, features) is the
scatter between classes, and Cxx (features, features) is the scatter of all N rows. The two methods
differ only in the values of b and w [mathematics §2].
"""

import numpy as np

from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.stream_learner import NeedsRefine
from stream_dr.solve.discriminant import positive_scatter_sum_eigenpairs, scatter_sum_eigenpairs


def scatter_sum_directions(
    moments: Moments, between_weight: float, total_scatter_weight: float, only_positive: bool
) -> Directions:
    """Return eigenvectors and eigenvalues of two scatter matrices' sum.

    The sum is between_weight · Sb + total_scatter_weight · Cxx/N. Sb is the scatter between
    classes, and Cxx is the scatter of all N rows. The largest eigenvalue comes first. Raises
    NeedsRefine if total_scatter_weight > 0 and only the diagonal of Cxx is stored.

    moments: centred sums of the rows.
    between_weight: factor of the scatter between classes.
    total_scatter_weight: factor of the scatter of all rows.
    only_positive: True to return only eigenvectors of positive eigenvalue.
    """
    vectors, roots = moments.between_scatter_eigenvectors_and_roots()
    if moments.weight <= 0 or total_scatter_weight == 0.0:
        return vectors, between_weight * roots**2

    # Compute a root G of the scatter between classes, which is G Gᵀ.
    G = vectors * roots
    if moments.scatter is not None:
        floor = moments.rounding.eigenvalue_floor(moments.diagonal) / moments.weight
        scatter = moments.scatter / moments.weight
        vectors, values = scatter_sum_eigenpairs(G, between_weight, scatter, total_scatter_weight, floor)
    elif total_scatter_weight < 0.0:
        diagonal = moments.diagonal / moments.weight
        vectors, values = positive_scatter_sum_eigenpairs(G, between_weight, diagonal, total_scatter_weight)
    else:
        raise NeedsRefine(
            "only the diagonal of Cxx is stored (it is past 4,096 features), and with a positive share of "
            "the within-class scatter its axes would be single features. Call refine(source), give scatter='exact', or "
            "choose a ≥ 1 (SKM with unlabelled='skip') or alpha ≥ 0 (MMC)."
        )

    # The eigenvalues are sorted, so the positive ones come first.
    p = int(np.count_nonzero(values > 0)) if only_positive else len(values)
    return vectors[:, :p], values[:p]

"""Bounds on the rounding errors of centred sums.

A centred sum is a sum over rows whose mean was subtracted, so it is only as exact as this mean.
Its error grows with the distance of the rows from zero (`shift`). Unlearning rows subtracts large
numbers, which adds a further error (`lost`). The error decides what counts as zero:

* A column whose scatter is below the error does not vary.
* An eigenvalue below the error is zero.
* A cross sum (of rows times targets) below the error means nothing.

Components made of such numbers would be noise [mathematics §3, rules 1 and 3].
"""

from typing import NamedTuple

import numpy as np

from stream_dr.solve.singular import thin_svd
from stream_dr.solve.spectral import EPS


class Rounding(NamedTuple):
    """Sizes of the rounding errors in the sums of N rows.

    Attributes
    ----------
    shift : (features,) float64
        √N·|x̄| for the mean x̄ of the rows. It measures the rows' distance from zero.
    lost : float
        Relative error of the scatter that unlearning rows has caused. 0 if no row was unlearned.
    cancelled : float
        Factor √(N before / N now) by which unlearning raised the error of the cross sums.
    """

    shift: np.ndarray
    lost: float = 0.0
    cancelled: float = 1.0

    def varying(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the mask (features,) of the columns that vary.

        diagonal: (features,) scatter of each column. The scatter of a constant column is only
        rounding.
        """
        return np.asarray(diagonal > (8 * EPS * self.shift) ** 2)

    def floor(self, diagonal: np.ndarray) -> float:
        """Return the size up to which eigenvalues of the scatter are rounding error.

        The size is eps·‖√N x̄‖·√(tr Cxx) plus the error by unlearning. Cxx is the scatter of the N
        centred rows and x̄ their mean. The size is below the rank cut of `spectral.rank_cut`
        unless the rows' offset from zero is large compared with their standard deviation.

        diagonal: (features,) diagonal of Cxx.
        """
        total = float(diagonal.sum())
        return EPS * float(np.linalg.norm(self.shift)) * float(np.sqrt(total)) + self.lost * total

    def cross_floor(self, target_size: float, diagonal: np.ndarray) -> float:
        """Return the norm up to which cross sums are rounding error [mathematics §3, rule 3].

        Cross sums are the sums of rows times targets. If every row has the same class, all cross
        sums are only rounding error.

        target_size: √(tr HᵀH) for the targets H (rows, k) before centring.
        diagonal: (features,) scatter of each column.
        """
        spread = float(np.sqrt(diagonal.sum()))
        offset = float(np.abs(self.shift).max(initial=0.0))
        scale = (1e-12 + 8 * np.sqrt(EPS * self.lost)) * spread + 8 * EPS * offset
        return float(scale * self.cancelled * target_size)

    def noise(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the rounding error (features,) of each column's cross sums.

        A cross sum is the sum of a column's values times a target, over all rows. The returned
        errors are for targets of Euclidean norm 1. For other targets, multiply the errors by the
        targets' norm. Each column's error is computed from the column's own size.

        diagonal: (features,) scatter of each column.
        """
        own = 1e-12 * np.sqrt(np.count_nonzero(self.varying(diagonal)) * diagonal) + 8 * EPS * np.abs(self.shift)
        return np.asarray(self.cancelled * (own + 8 * np.sqrt(EPS * self.lost * float(diagonal.sum()))))

    def cleaned(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Return cross sums with zeros in columns that are only rounding error.

        cross: (features, k), sums of rows times targets.
        target_size: norm √(tr HᵀH) of the targets H (rows, k).
        diagonal: (features,) scatter of each column.

        Costs O(d k) for d features.
        """
        # A column's error may exceed the true sums of another column, so each has its own limit.
        shows = np.linalg.norm(cross, axis=1) > self.noise(diagonal) * target_size
        return cross if shows.all() else np.where(shows[:, None], cross, 0.0)

    def significant(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Return cross sums without the combinations of targets that are only rounding error.

        The result M (features, r), r ≤ k, is the cross sums times a rotation. M Mᵀ is the same as
        before the rotation, up to rounding. Each column is compared with its own rounding error,
        so true cross sums of columns of small values remain next to columns of large values. Costs
        O(d k min(d, k)) for d features.

        cross: (features, k), sums of rows times targets.
        target_size: norm √(tr HᵀH) of the targets H (rows, k).
        diagonal: (features,) scatter of each column.
        """
        varying = self.varying(diagonal)
        noise = self.noise(diagonal)[varying]
        _, values, targets = thin_svd(cross[varying] / noise[:, None])
        real = values > max(target_size, EPS * max(cross.shape) * float(values.max(initial=0.0)))
        return cross if real.sum() == cross.shape[1] else cross @ targets[real].T


def exact_rounding(features: int) -> Rounding:
    """Return the error sizes for rows whose mean is exactly zero.

    Centring these rows changes nothing, so it causes no rounding error.
    """
    return Rounding(np.zeros(features))

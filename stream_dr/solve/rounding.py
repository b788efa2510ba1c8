"""Bounds on the rounding errors of centred sums.

A centred sum is a sum over rows from which the mean was subtracted. The farther the rows are from
zero, the larger is the rounding error of this subtraction (`Rounding.shift`). Unlearning rows
subtracts large sums, which causes a further error (`Rounding.lost`).

A number that is smaller than its rounding error is treated as zero, so that no component is
computed from rounding errors [mathematics §3, rules 1 and 3]. Three kinds of numbers are compared
with their rounding errors:

* the scatter of a column (the column counts as constant if its scatter is only rounding error),
* an eigenvalue of the scatter,
* a cross sum (the sum over the rows of a feature times a target).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.solve.singular import thin_svd
from stream_dr.solve.spectral import EPS


class Rounding(NamedTuple):
    """Sizes of the rounding errors in centred sums over N rows.

    Attributes
    ----------
    shift : (features,) float64
        √N·|x̄|, where x̄ (features,) is the mean of the N rows. It measures how far the rows are
        from zero.
    lost : float
        Relative error of the scatter caused by unlearning rows. 0 if no row was unlearned.
    cancelled : float
        Factor by which unlearning rows increased the error of the cross sums of features and
        targets. The factor is √(number of rows before unlearning / number of rows now).
    """

    shift: np.ndarray
    lost: float = 0.0
    cancelled: float = 1.0

    def varying(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the mask (features,) of the columns that vary.

        A column does not vary if its scatter is only rounding error.

        diagonal: (features,), scatter of each column.
        """
        return np.asarray(diagonal > (8 * EPS * self.shift) ** 2)

    def floor(self, diagonal: np.ndarray) -> float:
        """Return the size up to which the scatter's eigenvalues are rounding error.

        The size is large if rows were unlearned, or if the rows' distance from zero is large
        compared with their standard deviation. In other cases, `spectral.rank_cut` returns a
        larger size, which counts.

        diagonal: (features,), diagonal of the scatter.
        """
        # The first term is the error of centring, the second is the error of unlearning rows.
        total = float(diagonal.sum())
        return EPS * float(np.linalg.norm(self.shift)) * float(np.sqrt(total)) + self.lost * total

    def cross_floor(self, target_size: float, diagonal: np.ndarray) -> float:
        """Return the norm up to which cross sums are rounding error [mathematics §3, rule 3].

        Cross sums are products of features and targets, summed over the rows. For example, all
        cross sums are only rounding error if all rows are of one class.

        target_size: Frobenius norm of the targets (rows, k) before centring.
        diagonal: (features,), scatter of each column.
        """
        # The error grows with the features' spread, with the error of unlearning rows, and with
        # the rows' distance from zero.
        spread = float(np.sqrt(diagonal.sum()))
        offset = float(np.abs(self.shift).max(initial=0.0))
        scale = (1e-12 + 8 * np.sqrt(EPS * self.lost)) * spread + 8 * EPS * offset
        return float(scale * self.cancelled * target_size)

    def noise(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the rounding error (features,) of each column's cross sums.

        A cross sum is the sum over all rows of the column's value times a target. The returned
        errors are for targets (rows, k) of Frobenius norm 1. For other targets, the caller
        multiplies the errors by the norm of the targets.

        diagonal: (features,), scatter of each column.
        """
        # `own` is the error of each column. The error of unlearning rows is equal in all columns.
        own = 1e-12 * np.sqrt(np.count_nonzero(self.varying(diagonal)) * diagonal) + 8 * EPS * np.abs(self.shift)
        return np.asarray(self.cancelled * (own + 8 * np.sqrt(EPS * self.lost * float(diagonal.sum()))))

    def cleaned(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Return the cross sums, with zeros for features of only rounding error.

        cross: (features, k), products of features and targets, summed over the rows.
        target_size: Frobenius norm of the targets (rows, k).
        diagonal: (features,), scatter of each column.

        Costs O(d k) for d features.
        """
        # Compare each feature with its own error. The error of a feature with large values may be
        # larger than the true sums of a feature with small values.
        shows = np.linalg.norm(cross, axis=1) > self.noise(diagonal) * target_size
        return cross if shows.all() else np.where(shows[:, None], cross, 0.0)

    def significant(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Return cross sums without combinations of targets that are rounding error.

        The result (features, r), r ≤ k, is `cross` times a matrix (k, r) of orthonormal columns.
        Each column of this matrix is a linear combination of targets. A combination is dropped if
        its cross sums with the features are at most their rounding errors. So the result times its
        transpose equals `cross` times its transpose, up to rounding. If nothing is dropped,
        `cross` is returned unchanged. Costs O(d k min(d, k)) for d features.

        cross: (features, k), products of features and targets, summed over the rows.
        target_size: Frobenius norm of the targets (rows, k).
        diagonal: (features,), scatter of each column.
        """
        # Divide each feature's sums by the feature's own error, so that features with large values
        # do not hide features with small values.
        varying = self.varying(diagonal)
        noise = self.noise(diagonal)[varying]
        _, values, targets = thin_svd(cross[varying] / noise[:, None])
        real = values > max(target_size, EPS * max(cross.shape) * float(values.max(initial=0.0)))
        return cross if real.sum() == cross.shape[1] else cross @ targets[real].T


def exact_rounding(features: int) -> Rounding:
    """Return rounding errors of zero, for rows whose mean is zero.

    Subtracting a mean of zero causes no rounding error in centred sums.

    features: number of features.
    """
    return Rounding(np.zeros(features))

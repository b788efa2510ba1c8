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

    def varying_columns(self, column_scatter: np.ndarray) -> np.ndarray:
        """Return the mask (features,) of the columns that vary.

        A column does not vary if its scatter is only rounding error.

        column_scatter: (features,), scatter of each column.
        """
        return np.asarray(column_scatter > (8 * EPS * self.shift) ** 2)

    def eigenvalue_floor(self, column_scatter: np.ndarray) -> float:
        """Return the size up to which the scatter's eigenvalues are rounding error.

        The size is large if rows were unlearned, or if the rows' distance from zero is large
        compared with their standard deviation. In other cases,
        `spectral.eigenvalue_rounding_limit` returns a larger size, which counts.

        column_scatter: (features,), diagonal of the scatter.
        """
        # The first term is the error of centring, the second is the error of unlearning rows.
        total = float(column_scatter.sum())
        return EPS * float(np.linalg.norm(self.shift)) * float(np.sqrt(total)) + self.lost * total

    def cross_sum_floor(self, target_norm: float, column_scatter: np.ndarray) -> float:
        """Return the norm up to which cross sums are rounding error [mathematics §3, rule 3].

        Cross sums are products of features and targets, summed over the rows. For example, all
        cross sums are only rounding error if all rows are of one class.

        target_norm: Frobenius norm of the targets before centring.
        column_scatter: (features,), scatter of each column.
        """
        # The error grows with the features' spread, with the error of unlearning rows, and with
        # the rows' distance from zero.
        spread = float(np.sqrt(column_scatter.sum()))
        offset = float(np.abs(self.shift).max(initial=0.0))
        scale = (1e-12 + 8 * np.sqrt(EPS * self.lost)) * spread + 8 * EPS * offset
        return float(scale * self.cancelled * target_norm)

    def cross_sum_noise(self, column_scatter: np.ndarray) -> np.ndarray:
        """Return the rounding error (features,) of each column's cross sums.

        A cross sum is the sum over all rows of the column's value times a target. The returned
        errors are for targets of Frobenius norm 1. For other targets, the caller
        multiplies the errors by the norm of the targets.

        column_scatter: (features,), scatter of each column.
        """
        # `own` (features,) is the rounding error that a column has without unlearning. The second
        # term below is the error of unlearning rows, which is one number for all columns.
        own = 1e-12 * np.sqrt(
            np.count_nonzero(self.varying_columns(column_scatter)) * column_scatter
        ) + 8 * EPS * np.abs(self.shift)
        return np.asarray(self.cancelled * (own + 8 * np.sqrt(EPS * self.lost * float(column_scatter.sum()))))

    def clear_noisy_features(
        self, cross_sums: np.ndarray, target_norm: float, column_scatter: np.ndarray
    ) -> np.ndarray:
        """Return the cross sums, with zeros for features of only rounding error.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets.
        column_scatter: (features,), scatter of each column.

        Costs O(d k) for d features.
        """
        # Compare each feature with its own error. The error of a feature with large values may be
        # larger than the true sums of a feature with small values.
        shows = np.linalg.norm(cross_sums, axis=1) > self.cross_sum_noise(column_scatter) * target_norm
        return cross_sums if shows.all() else np.where(shows[:, None], cross_sums, 0.0)

    def significant_combinations(
        self, cross_sums: np.ndarray, target_norm: float, column_scatter: np.ndarray
    ) -> np.ndarray:
        """Return cross sums without combinations of targets that are rounding error.

        The result (features, r), r ≤ k, is `cross_sums` times a matrix (k, r) of orthonormal
        columns. Each column of this matrix is a linear combination of targets. A combination is
        dropped if its cross sums with the features are at most their rounding errors. So the
        result times its transpose equals `cross_sums` times its transpose, up to rounding. If
        nothing is dropped, `cross_sums` is returned unchanged. Costs O(d k min(d, k)) for d
        features.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets.
        column_scatter: (features,), scatter of each column.
        """
        # Divide each feature's sums by the feature's own error, so that features with large values
        # do not hide features with small values.
        varying_columns = self.varying_columns(column_scatter)
        cross_sum_noise = self.cross_sum_noise(column_scatter)[varying_columns]
        _, values, targets = thin_svd(cross_sums[varying_columns] / cross_sum_noise[:, None])
        real = values > max(target_norm, EPS * max(cross_sums.shape) * float(values.max(initial=0.0)))
        return cross_sums if real.sum() == cross_sums.shape[1] else cross_sums @ targets[real].T


def zero_rounding(n_features: int) -> Rounding:
    """Return rounding errors of zero, for rows whose mean is zero.

    Subtracting a mean of zero causes no rounding error in centred sums.

    n_features: number of features.
    """
    return Rounding(np.zeros(n_features))

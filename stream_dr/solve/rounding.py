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
    """Sizes of rounding errors in sums over N centred rows.

    Centred rows are rows from which the mean was subtracted.

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

    def varying_columns(self, diagonal: np.ndarray) -> np.ndarray:
        """Return a mask (features,), True for features that vary.

        A feature does not vary if its scatter is only rounding error.

        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        return np.asarray(diagonal > (8 * EPS * self.shift) ** 2)

    def eigenvalue_floor(self, diagonal: np.ndarray) -> float:
        """Return the size up to which eigenvalues are rounding error.

        The eigenvalues are those of the scatter (features, features), the matrix of summed
        products of the centred features. The size is large if rows were unlearned, or if the rows'
        distance from zero is large compared with their standard deviation.

        diagonal: (features,), diagonal of the scatter.
        """
        # The result is the sum of the error of centring the rows and the error of unlearning rows.
        total = float(diagonal.sum())
        return EPS * float(np.linalg.norm(self.shift)) * float(np.sqrt(total)) + self.lost * total

    def cross_sum_floor(self, target_norm: float, diagonal: np.ndarray) -> float:
        """Return the norm below which cross sums are rounding error.

        Cross sums are products of centred features and targets, summed over the rows. For example,
        they are only rounding error if all rows are of one class.

        target_norm: Frobenius norm of the targets before centring.
        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # The rounding error of the cross sums grows with three sizes: the features' deviations from
        # their means (`spread`), the rows' distance from zero (`offset`) and what unlearning lost.
        spread = float(np.sqrt(diagonal.sum()))
        offset = float(np.abs(self.shift).max(initial=0.0))
        scale = (1e-12 + 8 * np.sqrt(EPS * self.lost)) * spread + 8 * EPS * offset
        return float(scale * self.cancelled * target_norm)

    def cross_sum_noise_per_target_norm(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the rounding error (features,) of each feature's cross sums.

        A cross sum is the sum over all rows of a feature times a target. The errors are for
        targets of Frobenius norm 1. For other targets, the caller multiplies them by the targets'
        norm.

        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # `own` is the rounding error of each feature if no row was unlearned.
        varying = np.count_nonzero(self.varying_columns(diagonal))
        own = 1e-12 * np.sqrt(varying * diagonal) + 8 * EPS * np.abs(self.shift)
        # Unlearning rows adds an error that is the same for all features.
        return np.asarray(self.cancelled * (own + 8 * np.sqrt(EPS * self.lost * float(diagonal.sum()))))

    def clear_noisy_features(self, cross_sums: np.ndarray, target_norm: float, diagonal: np.ndarray) -> np.ndarray:
        """Set cross sums that are only rounding error to zero.

        Returns the changed cross sums.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets.
        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # Compare the cross sums of each feature with the feature's own rounding error.
        # One error for all features could exceed the true sums of a feature with small values.
        shows = np.linalg.norm(cross_sums, axis=1) > self.cross_sum_noise_per_target_norm(diagonal) * target_norm
        return cross_sums if shows.all() else np.where(shows[:, None], cross_sums, 0.0)

    def significant_cross_sum_combinations(
        self, cross_sums: np.ndarray, target_norm: float, diagonal: np.ndarray
    ) -> np.ndarray:
        """Reduce cross sums to target combinations above rounding error.

        The k targets are replaced by r ≤ k orthogonal linear combinations of them. A combination
        is dropped if its products with all features are only rounding error. The result (features,
        r) has the cross sums of features and combinations. If nothing is dropped, `cross_sums` is
        returned unchanged.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets.
        diagonal: (features,), sum of squared deviations of each feature from its mean.
        """
        # Divide the cross sums of each feature by the feature's rounding error.
        # Without this division, features of large values would hide features of small values.
        varying_columns = self.varying_columns(diagonal)
        cross_sum_noise = self.cross_sum_noise_per_target_norm(diagonal)[varying_columns]
        _, values, targets = thin_svd(cross_sums[varying_columns] / cross_sum_noise[:, None])
        real = values > max(target_norm, EPS * max(cross_sums.shape) * float(values.max(initial=0.0)))
        return cross_sums if real.sum() == cross_sums.shape[1] else cross_sums @ targets[real].T


def zero_rounding(n_features: int) -> Rounding:
    """Return a Rounding without errors.

    Rows whose mean is zero have such a Rounding. Subtracting a mean of zero from the rows causes
    no rounding error.

    n_features: number of features.
    """
    return Rounding(np.zeros(n_features))

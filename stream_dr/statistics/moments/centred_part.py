"""CentredPart: weight, mean and centred second moments of rows.

The formulas are in [mathematics §1]. Let C_a and C_b (features, features) be the centred scatter
matrices of two sets of rows a and b, N_a and N_b their weights, and δ the mean of b minus the mean
of a. The scatter matrix C of all these rows, of weight N, follows from the formula of Chan, Golub
and LeVeque:

    C = C_a + C_b + (N_a N_b / N) δ δᵀ

To remove b, the weight of b is taken as negative.

A mean is stored as the sum of two float64 numbers, `mean` and `low`. A single float64 would be too
coarse if the rows have a large offset: at an offset of 1e9, δ would be known to 1e-7 only. With
two numbers the sums are right to 1e-15 at any offset.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import (
    check_at_least,
    check_dtype_and_shapes,
    check_field_equals,
    check_finite_arrays,
    field_error,
)
from stream_dr.statistics.protocol import register_nested_state


@register_nested_state
class CentredPart(NamedTuple):
    """Weight, mean and centred second moments of rows.

    Arrays are float64, for d features and k target columns. In the formulas below, x is a row, y
    the targets of the row, and w its weight. x̄ and ȳ are the weighted means of x and y. Centred
    sums are sums of products of x − x̄ and y − ȳ.

    Attributes
    ----------
    exact : bool
        True if the whole scatter matrix is stored. False if only its diagonal is stored.
    weight : float
        N = Σ w.
    mean, low : (d,)
        x̄ = mean + low. `low` holds the digits of x̄ that do not fit into `mean`.
    diagonal : (d,), or (0,) if exact
        Σ w (x − x̄)² of each feature.
    scatter : (d, d) if exact, or (0, 0)
        Σ w (x − x̄)(x − x̄)ᵀ.
    cross : (d, k)
        Σ w (x − x̄)(y − ȳ)ᵀ.
    nonzero : (d,)
        For each feature, the number of rows of weight above 0 in which the feature is not 0. NaN
        if this number is unknown. When the number falls to 0 after an unlearn, the sums of the
        feature are set to exactly 0.
    """

    exact: bool
    weight: float
    mean: np.ndarray
    low: np.ndarray
    diagonal: np.ndarray
    scatter: np.ndarray
    cross: np.ndarray
    nonzero: np.ndarray

    def check(self, n_features: int, n_target_columns: int, whole_scatter: bool) -> None:
        """Raise DamagedFile unless the arrays have the given shapes.

        All values must be finite, except that `nonzero` may have NaN.

        n_features: number of features.
        n_target_columns: number of target columns.
        whole_scatter: True if the whole scatter matrix must be stored.
        """
        check_field_equals(self, "exact", whole_scatter)
        check_at_least(self, 0.0, "weight")
        square = (n_features, n_features) if whole_scatter else (0, 0)
        d = n_features
        k = n_target_columns
        n_diagonal = 0 if whole_scatter else n_features
        check_dtype_and_shapes(self, np.float64, mean=(d,), low=(d,), diagonal=(n_diagonal,), scatter=square)
        check_dtype_and_shapes(self, np.float64, cross=(d, k), nonzero=(d,))
        check_finite_arrays(self, "mean", "low", "diagonal", "scatter", "cross")
        if (self.nonzero < 0.0).any() or np.isinf(self.nonzero).any():
            raise field_error(self, "nonzero", "negative or infinite", "at least 0, or NaN")

    @property
    def sums_of_squares(self) -> np.ndarray:
        """Sums of squared deviations of features from their means.

        The array is (features,) and read-only. For the values x of a feature, with weights w and
        mean x̄, the sum is Σ w (x − x̄)². It is not divided by the number of rows.
        """
        return np.diagonal(self.scatter) if self.exact else self.diagonal

    def scaled(self, factor: float) -> "CentredPart":
        """Return a copy with weight and sums multiplied by factor.

        The means do not change.
        """
        sums = (self.diagonal * factor, self.scatter * factor, self.cross * factor)
        return CentredPart(self.exact, self.weight * factor, self.mean, self.low, *sums, self.nonzero)

    def aligned(self, n_features: int, new_target_column_indices: np.ndarray, n_target_columns: int) -> "CentredPart":
        """Return a copy with more features and renumbered target columns.

        The sums of new features and new target columns are zero.

        n_features: number of features of the result.
        new_target_column_indices: (target columns,) new index of each target column.
        n_target_columns: number of target columns of the result.
        """
        cross = np.zeros((n_features, n_target_columns))
        cross[: len(self.cross), new_target_column_indices] = self.cross
        mean, low, nonzero = (pad_to_shape(a, (n_features,)) for a in (self.mean, self.low, self.nonzero))
        diagonal = self.diagonal if self.exact else pad_to_shape(self.diagonal, (n_features,))
        scatter = pad_to_shape(self.scatter, (n_features, n_features)) if self.exact else self.scatter
        return CentredPart(self.exact, self.weight, mean, low, diagonal, scatter, cross, nonzero)

    def without_negative_scatter(self) -> "CentredPart":
        """Return a copy with 0 in place of negative scatter.

        Rounding errors can make a variance negative when rows are removed. For a feature that is 0
        in every row, all sums become exactly 0.
        """
        part = self._replace(diagonal=np.maximum(self.diagonal, 0.0), scatter=self.scatter.copy())
        if self.exact:
            np.fill_diagonal(part.scatter, np.maximum(np.diagonal(part.scatter), 0.0))
        zero = np.flatnonzero(self.nonzero == 0.0)
        if len(zero):
            part = part._replace(mean=self.mean.copy(), low=self.low.copy(), cross=self.cross.copy())
            for sums in (part.mean, part.low, part.cross, part.scatter if self.exact else part.diagonal):
                sums[zero] = 0.0
            part.scatter[:, zero if self.exact else []] = 0.0
        return part

    def join(self, other: "CentredPart", other_minus_own_target_mean: np.ndarray | None, sign: float) -> "CentredPart":
        """Add or remove the rows of `other`.

        Returns the sums of the resulting rows. `self` and `other` must have the same features, the
        same target columns and the same `exact`. If one has weight 0, the other is returned. Costs
        O(d² + d k) for d features and k target columns.

        other_minus_own_target_mean: (k,), the targets' mean over the rows of `other` minus their
            mean over the rows of `self`. None if there are no target columns.
        sign: 1 to add the rows of other, −1 to remove them.
        """
        a = self
        b = other
        if b.weight == 0.0 or a.weight == 0.0:
            return a if b.weight == 0.0 else b

        # Compute the total weight of the resulting rows, and then their mean.
        total = a.weight + sign * b.weight
        if not total > 0.0:
            return empty_centred_part(len(a.mean), a.cross.shape[1], a.exact)
        step = (b.mean - a.mean) + (b.low - a.low)
        mean, low = add_to_double_double(a.mean, a.low, sign * (b.weight / total) * step)

        # Add the second moments. Each sum of products gets a term for the difference of the means.
        factor = sign * (a.weight / total) * b.weight
        cross = a.cross + sign * b.cross
        if other_minus_own_target_mean is not None:
            cross += factor * np.outer(step, other_minus_own_target_mean)

        scatter = a.scatter
        diagonal = a.diagonal
        if a.exact:
            scatter = a.scatter + sign * b.scatter + factor * np.outer(step, step)
        else:
            diagonal = a.diagonal + sign * b.diagonal + factor * step**2
        return CentredPart(a.exact, total, mean, low, diagonal, scatter, cross, a.nonzero + sign * b.nonzero)


def empty_centred_part(n_features: int, n_target_columns: int, whole_scatter: bool) -> CentredPart:
    """Return a CentredPart of no rows, with all sums zero.

    n_features: number of features.
    n_target_columns: number of target columns.
    whole_scatter: True to store the whole scatter matrix, False to store its diagonal.
    """
    diagonal = np.zeros(0 if whole_scatter else n_features)
    scatter = np.zeros((n_features, n_features) if whole_scatter else (0, 0))
    cross = np.zeros((n_features, n_target_columns))
    mean, low, nonzero = np.zeros((3, n_features))
    return CentredPart(whole_scatter, 0.0, mean, low, diagonal, scatter, cross, nonzero)


def add_to_double_double(high: np.ndarray, low: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add `step` to numbers stored as pairs of float64.

    A pair (high, low) stands for the number high + low, with about 32 digits. Returns the new high
    and the new low. No digit of high + step is lost (Knuth's two-sum).

    high, low, step: arrays of one shape.
    """
    total = high + step
    added = total - high
    low = low + ((high - (total - added)) + (step - added))
    high = total + low
    return high, low - (high - total)


def pad_to_shape(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the array extended by zeros to a larger shape.

    If the array already has this shape, the array itself is returned.
    """
    if array.shape == shape:
        return array
    out = np.zeros(shape, dtype=array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out

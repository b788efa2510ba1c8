"""SparseSums: sums over sparse rows, without the whole scatter matrix.

A row changes only the sums of its own features. For each feature, let v be its nonzeros, w the
weights of their rows, and c the first of the nonzeros. The sums store

- n = Σ w, and c,
- Σ w (v − c) and Σ w (v − c)²,
- the cross sums Σ w x (y − r)ᵀ of rows x and targets y. The reference r is a fixed point near the
  mean of continuous targets, and zero for labels.

From these, the mean and variance of a feature over all rows follow without a difference of two
large numbers (`SparsePart.sums_of_squares`, [mathematics §1]).

Centring the rows would cost O(d k) a batch, for d features and k target columns. So the cross sums
are centred only at the end (`SparsePart.centred`). This loses a factor |mean|/std of precision.
The factor is below 1 for a feature that is zero in half of the rows.

Under decay, c is moved to the mean of the feature's nonzeros whenever stored sums are rescaled. If
c stayed at a first value that is far from all later values, digits would be lost even after decay
has made the weight of the first value negligible.

A batch costs O(nonzeros · (labels of the row + 1)), whatever the number of features and target
columns. Memory is 8 d (k + 4) bytes. The arrays double in size when they are full.
"""

from typing import NamedTuple, Self

import numpy as np

from stream_dr.batch.block import Rows
from stream_dr.checks import check_dtype_and_shapes, check_finite_arrays, field_error
from stream_dr.compiled import readonly_view
from stream_dr.statistics.cache_lines import aligned_zeros
from stream_dr.statistics.moments import sparse_kernels
from stream_dr.statistics.moments.centred_part import CentredPart, add_to_double_double, pad_to_shape
from stream_dr.statistics.moments.encoding import EncodedTargets
from stream_dr.statistics.moments.target_sums import TargetSums
from stream_dr.statistics.protocol import register_nested_state

WEIGHT, POINT, SUM, SQUARES = range(4)
"""Columns of the array `features` (d, 4) of a SparsePart, for d features.

Row j of the array belongs to feature j. Let v be the nonzero values of the feature, w the weights
of their rows, and c a fixed number near the values (at first the first value). The columns are

- WEIGHT: Σ w,
- POINT: c,
- SUM: Σ w (v − c),
- SQUARES: Σ w (v − c)².
"""

HEAD = 4
"""Number of values of a feature that are stored before its cross sums."""

FAR = 8.0
"""Largest distance of the point `reference` from the mean of continuous targets.

The unit is the standard deviation of the targets. `reference` is subtracted from targets before
their products with features are summed. If it is farther from the mean, it is moved to the mean.
"""

NOTHING = 1e-14
"""Share of a feature's weight that counts as rounding error.

The weight is the total weight of the rows in which the feature is not 0. If at most this share of
the weight remains after rows are removed, the weight is set to 0.
"""


@register_nested_state
class SparsePart(NamedTuple):
    """Sums over sparse rows with their k target columns.

    The rows have d features. Arrays are float64. Let v be the nonzero values of a feature, w the
    weights of their rows, and c a fixed number near the values. Under decay, all sums are stored
    divided by a common number, the `scale` of the MomentState.

    Attributes
    ----------
    features : (d, 4)
        For each feature: Σ w, c, Σ w (v − c) and Σ w (v − c)².
    cross : (d, k)
        Σ w x (y − reference)ᵀ over all rows x, with their targets y and weights w.
    reference : (k,)
        Fixed point near the mean of continuous targets. Zero for labels.
    """

    features: np.ndarray
    cross: np.ndarray
    reference: np.ndarray

    def check(self, n_features: int, n_target_columns: int) -> None:
        """Raise DamagedFile unless the arrays fit the numbers of columns.

        n_features: number of features.
        n_target_columns: number of target columns.
        """
        d = n_features
        k = n_target_columns
        check_dtype_and_shapes(self, np.float64, features=(d, HEAD), cross=(d, k), reference=(k,))
        check_finite_arrays(self, "features", "cross", "reference")
        if (self.features[:, WEIGHT] < 0.0).any():
            raise field_error(self, "features", "of negative weight", "of weight 0 or more")

    @property
    def sums(self) -> np.ndarray:
        """Sums Σ w x (features,) of rows x with weights w."""
        sums: np.ndarray = self.features[:, WEIGHT] * self.features[:, POINT] + self.features[:, SUM]
        return sums

    def centred(self, total_weight: float, target_mean_minus_reference: np.ndarray) -> CentredPart:
        """Convert the sums to sums about the rows' mean.

        total_weight: total weight of all rows.
        target_mean_minus_reference: (target columns,) mean of the targets minus `reference`.
        """
        n = self.features[:, WEIGHT]
        point = self.features[:, POINT]
        offset, _ = nonzero_offsets_and_scatters(self.features)
        share = n / total_weight if total_weight > 0.0 else np.zeros_like(n)
        mean, low = add_to_double_double(share * point, np.zeros_like(n), share * offset)
        cross = np.outer(self.sums, target_mean_minus_reference)
        np.subtract(self.cross, cross, out=cross)
        nonzero = np.where(n > 0.0, np.nan, 0.0)
        diagonal = self.sums_of_squares(total_weight)
        return CentredPart(False, total_weight, mean, low, diagonal, np.zeros((0, 0)), cross, nonzero)

    def sums_of_squares(self, total_weight: float) -> np.ndarray:
        """Return the scatter (features,) of each feature.

        The scatter is the weighted sum of squared deviations from the feature's mean over all
        rows, zeros included.

        total_weight: total weight of all rows.
        """
        n, (offset, spread) = self.features[:, WEIGHT], nonzero_offsets_and_scatters(self.features)
        share = n / total_weight if total_weight > 0.0 else np.zeros_like(n)
        scatter: np.ndarray = spread + n * np.maximum(1.0 - share, 0.0) * (self.features[:, POINT] + offset) ** 2
        return scatter

    def scaled(self, factor: float) -> "SparsePart":
        """Return a copy with every sum multiplied by factor."""
        features = self.features * np.array([factor, 1.0, factor, factor])
        return SparsePart(features, self.cross * factor, self.reference)

    def aligned(self, n_features: int, new_column_indices: np.ndarray, n_target_columns: int) -> "SparsePart":
        """Return a copy with more features and renumbered target columns.

        The sums of new features and new target columns are zero.

        n_features: number of features of the result.
        new_column_indices: (target columns,) new index of each target column.
        n_target_columns: number of target columns of the result.
        """
        cross = np.zeros((n_features, n_target_columns))
        reference = np.zeros(n_target_columns)
        cross[: len(self.cross), new_column_indices] = self.cross
        reference[new_column_indices] = self.reference
        return SparsePart(pad_to_shape(self.features, (n_features, HEAD)), cross, reference)

    def join(self, other: "SparsePart", sign: float) -> "SparsePart":
        """Add or remove the rows of `other`.

        Returns the sums of the resulting rows. `self` and `other` must have the same features and
        target columns. The result has the `reference` of `self`, the point that is subtracted from
        targets.

        sign: 1 to add the rows of other, −1 to remove them.
        """
        # Subtract the same point from the targets of both.
        added = other.cross
        if not np.array_equal(other.reference, self.reference):
            added = added + np.outer(other.sums, other.reference - self.reference)
        features = add_or_subtract_features(self.features, other.features, sign)
        cross = self.cross + sign * added
        cross[features[:, WEIGHT] == 0.0] = 0.0
        return SparsePart(features, cross, self.reference)


class SparseSums:
    """Growing sums over sparse rows.

    `add` adds rows. `freeze` returns the sums as a SparsePart.
    """

    def __init__(self, n_features: int, reference: np.ndarray) -> None:
        """Create the sums of no rows.

        The arrays are large, but the operating system provides memory only for the parts that are
        written to.

        n_features: number of features.
        reference: (target columns,) point that is subtracted from the targets before their
            products with the features are summed.
        """
        self.width, self.columns = n_features, len(reference)
        self.reference = reference.copy()
        self._records = aligned_zeros(n_features, _values_per_feature(self.columns))

    @classmethod
    def continue_from_part(cls, part: SparsePart) -> Self:
        """Create sums that continue from `part`.

        The arrays of `part` are copied.
        """
        sums = cls(len(part.cross), part.reference)
        sums._records[:, :HEAD] = part.features
        sums._records[:, HEAD : HEAD + sums.columns] = part.cross
        return sums

    def freeze(self) -> SparsePart:
        """Return a copy of the sums as a SparsePart."""
        records = self._records[: self.width]
        end = HEAD + self.columns
        return SparsePart(records[:, :HEAD].copy(), records[:, HEAD:end].copy(), self.reference.copy())

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor.

        For each feature, a fixed number c is subtracted from its nonzeros before they are summed.
        This method also sets c to the mean of the nonzeros, so that no digits are lost under
        decay.
        """
        self._records[:, [WEIGHT, SUM, SQUARES]] *= factor
        self._records[:, HEAD:] *= factor
        head = self._records[:, :HEAD]
        offset, spread = nonzero_offsets_and_scatters(head)
        head[:] = _centred_nonzero_sums(head[:, WEIGHT], head[:, POINT], offset, spread)

    def grow(self, n_features: int, n_target_columns: int) -> None:
        """Make room for more features and more target columns.

        A full array doubles in size.

        n_features: number of features.
        n_target_columns: number of target columns.
        """
        rows, record = self._records.shape
        if n_features > rows or HEAD + n_target_columns > record:
            rows = rows if n_features <= rows else max(n_features, 2 * rows)
            if HEAD + n_target_columns > record:
                record = _values_per_feature(max(n_target_columns, 2 * (record - HEAD)))
            old = self._records
            self._records = aligned_zeros(rows, record)
            self._records[: old.shape[0], : old.shape[1]] = old
        self.reference = pad_to_shape(self.reference, (n_target_columns,))
        self.width = n_features
        self.columns = n_target_columns

    def add_total_weight(
        self, X: Rows, weights: np.ndarray, encoded: EncodedTargets | None, total_weight_before: float
    ) -> float:
        """Add rows and their targets.

        Returns the total weight of all rows so far.

        X: (rows, columns), at most as many columns as features.
        weights: (rows,) weights. Under decay they are divided by the same number as the stored
            sums.
        encoded: targets as numeric columns. None if there are no targets.
        total_weight_before: total weight of all earlier rows.
        """
        rows = (readonly_view(X.indptr), readonly_view(X.indices), readonly_view(X.data), weights)
        sums = (self._records, total_weight_before)
        if encoded is None:
            return float(sparse_kernels.add_sparse_rows(*rows, *sums))
        if encoded.values is not None:
            targets = encoded.values - self.reference
            return float(sparse_kernels.add_rows_continuous_targets(*rows, targets, *sums))
        if encoded.indptr is None:
            return float(sparse_kernels.add_rows_one_label(*rows, encoded.codes, *sums))
        scale = weights if encoded.row_values is None else weights * encoded.row_values
        labels = (readonly_view(encoded.indptr), readonly_view(encoded.codes), readonly_view(scale))
        return float(sparse_kernels.add_rows_many_labels(*rows, *labels, *sums))

    def move_target_reference(self, sums_of_targets: TargetSums) -> None:
        """Move `reference` to the targets' mean if far away.

        `reference` is the point that is subtracted from continuous targets before their products
        with the features are summed. It is far away if the distance is more than eight standard
        deviations of the targets. Nothing is done for labels.

        sums_of_targets: sums of all targets so far.
        """
        values = sums_of_targets.values
        if sums_of_targets.labelled or values.weight == 0.0:
            return
        offset = values.mean - self.reference
        if np.any(offset**2 * values.weight > FAR**2 * values.sums_of_squares) and np.any(offset != 0.0):
            end = HEAD + self.columns
            sums = self._records[:, WEIGHT] * self._records[:, POINT] + self._records[:, SUM]
            self._records[:, HEAD:end] -= np.outer(sums, offset)
            self.reference = values.mean.copy()


def _centred_nonzero_sums(
    weights: np.ndarray, subtracted_numbers: np.ndarray, mean_offsets: np.ndarray, nonzero_scatters: np.ndarray
) -> np.ndarray:
    """Return the sums of each feature's nonzeros about their mean.

    Let v be the nonzeros of a feature, w the weights of their rows, and c the mean of the
    nonzeros, rounded to float64. The result (features, 4) has the columns Σ w, c, Σ w (v − c) and
    Σ w (v − c)². The third column is 0 except for the rounding of c.

    weights: (features,) Σ w.
    subtracted_numbers: (features,) number that was subtracted from the nonzeros of each feature in
        older sums.
    mean_offsets: (features,) mean of the nonzeros minus `subtracted_numbers`.
    nonzero_scatters: (features,) Σ w (v − mean of v)².
    """
    mean = subtracted_numbers + mean_offsets
    rest = mean_offsets - (mean - subtracted_numbers)
    return np.stack((weights, mean, weights * rest, nonzero_scatters + weights * rest**2), axis=1)


def nonzero_offsets_and_scatters(feature_sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the scatter of each feature's nonzeros.

    The mean is returned as its difference from a number c, which is fixed for each feature. The
    scatter is Σ w (v − mean of v)².

    feature_sums: (features, 4). Let v be the nonzeros of a feature, and w the weights of their
        rows. The columns are Σ w, c, Σ w (v − c) and Σ w (v − c)².
    """
    n = feature_sums[:, WEIGHT]
    total = feature_sums[:, SUM]
    offset = np.divide(total, n, out=np.zeros_like(n), where=n > 0.0)
    return offset, np.maximum(feature_sums[:, SQUARES] - total * offset, 0.0)


def _values_per_feature(n_target_columns: int) -> int:
    """Return the number of values to reserve per feature.

    The values are float64. A feature has four sums of its own and one sum with each target column.
    The number of values is rounded up to whole cache lines, except without targets.

    n_target_columns: number of target columns.
    """
    return HEAD if n_target_columns == 0 else -(-(HEAD + n_target_columns) // sparse_kernels.LINE) * sparse_kernels.LINE


def add_or_subtract_features(first_sums: np.ndarray, second_sums: np.ndarray, sign: float) -> np.ndarray:
    """Add or subtract the feature sums of two row sets.

    Let v be the nonzeros of a feature, w the weights of their rows, and c a number that is fixed
    for each feature and each set of rows. Feature sums (features, 4) have the columns Σ w, c,
    Σ w (v − c) and Σ w (v − c)². The last column of the result may be negative, by rounding or
    because the second rows are not among the first rows.

    first_sums: sums of the first rows.
    second_sums: sums of the second rows.
    sign: 1 to add the second rows to the first rows, −1 to remove them from the first rows.
    """
    # For each feature, compute the mean of its nonzeros in both sets of rows together (`offset`).
    # Also compute the scatter of the nonzeros about this mean (`spread`).
    offset, spread = nonzero_offsets_and_scatters(first_sums)
    other, other_spread = nonzero_offsets_and_scatters(second_sums)
    n = first_sums[:, WEIGHT] + sign * second_sums[:, WEIGHT]
    n[n <= NOTHING * first_sums[:, WEIGHT]] = 0.0
    share = np.divide(second_sums[:, WEIGHT], n, out=np.zeros_like(n), where=n > 0.0)
    step = (second_sums[:, POINT] - first_sums[:, POINT]) + (other - offset)
    offset = offset + sign * share * step
    spread = spread + sign * (other_spread + first_sums[:, WEIGHT] * share * step**2)

    # Copy the sums of a feature that has nonzeros in only one of the two sets of rows.
    # Copied sums do not change by rounding.
    out = _centred_nonzero_sums(n, first_sums[:, POINT], offset, spread)
    out[n == 0.0] = 0.0
    out[second_sums[:, WEIGHT] == 0.0] = first_sums[second_sums[:, WEIGHT] == 0.0]
    if sign > 0.0:
        out[first_sums[:, WEIGHT] == 0.0] = second_sums[first_sums[:, WEIGHT] == 0.0]
    return out

"""Largest: largest values of sums before rows were unlearned.

See [mathematics §1]. When rows are subtracted from a sum, the sum keeps the rounding error that it
had with these rows. So the largest value that a sum has had shows how many of its digits are still
right.

In a total over all columns, a large column would hide a small column. So the largest value is
stored for the scatter of every feature, for every target, and for the weight.

An unlearn costs O(d + k), for d features and k target columns. Learning costs nothing. Memory is
8·(d + k) bytes after the first unlearn.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_at_least, check_dtype_and_shapes, check_finite_arrays
from stream_dr.statistics.moments.centred_part import pad_to_shape
from stream_dr.statistics.protocol import register_nested_state

EPS = float(np.finfo(np.float64).eps)
"""Distance from 1.0 to the next float64, about 2.2e-16."""

MOST_LOST = 1e-6
"""Largest relative error that unlearning may leave in the sums.

If the error would be larger, the unlearn raises PrecisionLost.
"""


@register_nested_state
class Largest(NamedTuple):
    """Largest value of each sum just before rows were unlearned.

    All values are 0 before the first unlearn. Under decay they are divided by the `scale` of the
    MomentState, like all stored sums. d is the number of features, and k the number of target
    columns.

    Attributes
    ----------
    weight : float
        Largest total weight of the rows.
    features : (≤ d,)
        Largest scatter of each feature, the weighted sum of squared deviations from its mean.
    targets : (≤ k,)
        Largest weight of each label, or largest scatter of each continuous target.
    """

    weight: float = 0.0
    features: np.ndarray = np.zeros(0)
    targets: np.ndarray = np.zeros(0)

    def check(self, n_features: int, n_target_columns: int) -> None:
        """Raise DamagedFile unless the arrays are valid.

        An array must not be too long, and its values must be finite. `weight` must be at least 0.

        n_features: number of features, the largest length of `features`.
        n_target_columns: number of target columns, the largest length of `targets`.
        """
        check_dtype_and_shapes(self, np.float64, features=(min(len(self.features), n_features),))
        check_dtype_and_shapes(self, np.float64, targets=(min(len(self.targets), n_target_columns),))
        check_finite_arrays(self, "features", "targets")
        check_at_least(self, 0.0, "weight")

    def scaled(self, factor: float) -> "Largest":
        """Return all values multiplied by factor."""
        return Largest(self.weight * factor, self.features * factor, self.targets * factor)

    def aligned(self, new_column_indices: np.ndarray, n_target_columns: int) -> "Largest":
        """Return a copy with renumbered target columns.

        The values of new target columns are zero.

        new_column_indices: (target columns,) new index of each target column.
        n_target_columns: number of target columns of the result.
        """
        targets = np.zeros(n_target_columns)
        targets[new_column_indices[: len(self.targets)]] = self.targets
        return self._replace(targets=targets)

    def join(self, other: "Largest") -> "Largest":
        """Return the larger value of each sum in `self` and `other`."""
        return Largest(
            max(self.weight, other.weight),
            np.maximum(*_pad_to_same_length(self.features, other.features)),
            np.maximum(*_pad_to_same_length(self.targets, other.targets)),
        )

    def rounding_error_from_unlearning(self, present_values: "Largest") -> float:
        """Return the largest relative error caused by unlearning.

        The sums are the total weight, the scatter of each feature, and the weight or scatter of
        each target. For one sum, the error is 2.2e-16 times its largest value, divided by its
        present value. Sums that were always 0 are left out.

        present_values: the present value of each sum.
        """
        pairs = [
            (np.array([self.weight]), np.array([present_values.weight])),
            _pad_to_same_length(self.features, present_values.features),
        ]
        worst = 0.0
        for before, remaining in (*pairs, _pad_to_same_length(self.targets, present_values.targets)):
            before, remaining = before[before > 0.0], remaining[before > 0.0]
            with np.errstate(divide="ignore"):
                worst = max(worst, float((before / np.maximum(remaining, 0.0)).max(initial=0.0)))
        return EPS * worst


def _pad_to_same_length(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays at equal length.

    The shorter array is extended by zeros.
    """
    shape = (max(len(a), len(b)),)
    return pad_to_shape(a, shape), pad_to_shape(b, shape)

"""Largest: the largest sizes that sums had before rows were unlearned [mathematics §1].

If rows are subtracted from a sum, the sum still has the rounding error that it had with these
rows. So the largest size of the sum shows how many digits are still right. The size of a total
says nothing about a small column next to a large one. So the sizes are stored for the scatter of
every column, for every target, and for the weight.

An unlearn costs O(d + k), for d features and k target columns. Learning costs nothing. Memory is
8·(d + k) bytes after the first unlearn.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays
from stream_dr.statistics.moments.centred_part import pad_to_shape
from stream_dr.statistics.protocol import nested_state

EPS = float(np.finfo(np.float64).eps)
"""Distance from 1.0 to the next float64, about 2.2e-16."""

MOST_LOST = 1e-6
"""Largest relative error that unlearning may leave in the sums.

An unlearn that would leave more raises PrecisionLost.
"""


@nested_state
class Largest(NamedTuple):
    """Largest size that each sum of a state has had just before rows were unlearned.

    All sizes are 0 before the first unlearn. Sizes are divided by the state's scale, as the stored
    sums are.

    Attributes
    ----------
    weight : float
        Weight N of all rows.
    features : (≤ d,)
        Centred scatter Σ w (x − x̄)² of each of the d features.
    targets : (≤ k,)
        Weight of each label, or centred scatter of each continuous target, for k target columns.
    """

    weight: float = 0.0
    features: np.ndarray = np.zeros(0)
    targets: np.ndarray = np.zeros(0)

    def check(self, width: int, columns: int) -> None:
        """Raise DamagedFile unless the arrays have at most the given lengths.

        width: number of features.
        columns: number of target columns.
        """
        check_array_shapes(self, np.float64, features=(min(len(self.features), width),))
        check_array_shapes(self, np.float64, targets=(min(len(self.targets), columns),))
        check_finite_arrays(self, "features", "targets")
        check_at_least(self, 0.0, "weight")

    def scaled(self, factor: float) -> "Largest":
        """Return all sizes multiplied by factor."""
        return Largest(self.weight * factor, self.features * factor, self.targets * factor)

    def aligned(self, columns: np.ndarray, total: int) -> "Largest":
        """Return a copy with renumbered target columns.

        columns: (k,) new index of each target column.
        total: number of target columns of the result.
        """
        targets = np.zeros(total)
        targets[columns[: len(self.targets)]] = self.targets
        return self._replace(targets=targets)

    def join(self, other: "Largest") -> "Largest":
        """Return, for each sum, the larger of the sizes in `self` and `other`."""
        return Largest(
            max(self.weight, other.weight),
            np.maximum(*_pad_to_longer(self.features, other.features)),
            np.maximum(*_pad_to_longer(self.targets, other.targets)),
        )

    def relative_error(self, now: "Largest") -> float:
        """Return the relative error that unlearning has left in the sums.

        The error of one sum is EPS · largest size / present size. The result is the maximum over
        the weight, all features and all targets.

        now: the present sizes of the sums.
        """
        pairs = [(np.array([self.weight]), np.array([now.weight])), _pad_to_longer(self.features, now.features)]
        worst = 0.0
        for before, remaining in (*pairs, _pad_to_longer(self.targets, now.targets)):
            before, remaining = before[before > 0.0], remaining[before > 0.0]
            with np.errstate(divide="ignore"):
                worst = max(worst, float((before / np.maximum(remaining, 0.0)).max(initial=0.0)))
        return EPS * worst


def _pad_to_longer(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays of equal length. The shorter one is extended by zeros."""
    shape = (max(len(a), len(b)),)
    return pad_to_shape(a, shape), pad_to_shape(b, shape)

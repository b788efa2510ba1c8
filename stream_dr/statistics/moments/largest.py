"""Largest: the largest sums that unlearning has taken rows from [mathematics §1].

A sum that rows are taken from keeps the rounding that it had while they were in it. So the largest
sizes tell how many digits remain. A total says nothing of a small column beside a large one, so
the scatter of every column and of every target, and the weight, are stored.

An unlearn costs O(d + k), learning nothing. Memory is 8·(d + k) bytes once something was
unlearned.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays
from stream_dr.statistics.moments.centred_part import padded
from stream_dr.statistics.protocol import nested_state

EPS = float(np.finfo(np.float64).eps)

MOST_LOST = 1e-6
"""Relative error left by unlearning above which it is refused."""


@nested_state
class Largest(NamedTuple):
    """Sizes of a state's sums, in its stored units. All 0 before any unlearn.

    Attributes
    ----------
    weight : float
        N.
    features : (≤ d,)
        Scatter of each column.
    targets : (≤ k,)
        n_j of labels, scatter of numbers.
    """

    weight: float = 0.0
    features: np.ndarray = np.zeros(0)
    targets: np.ndarray = np.zeros(0)

    def check(self, width: int, columns: int) -> None:
        """Raise DamagedFile unless it has at most these sizes.

        width, columns: numbers of features and target columns.
        """
        check_array_shapes(self, np.float64, features=(min(len(self.features), width),))
        check_array_shapes(self, np.float64, targets=(min(len(self.targets), columns),))
        check_finite_arrays(self, "features", "targets")
        check_at_least(self, 0.0, "weight")

    def scaled(self, factor: float) -> "Largest":
        """Return the sizes of sums multiplied by factor."""
        return Largest(self.weight * factor, self.features * factor, self.targets * factor)

    def aligned(self, columns: np.ndarray, total: int) -> "Largest":
        """Return it with `total` target columns, column j at columns[j]."""
        targets = np.zeros(total)
        targets[columns[: len(self.targets)]] = self.targets
        return self._replace(targets=targets)

    def join(self, other: "Largest") -> "Largest":
        """Return the larger of both, sum by sum."""
        return Largest(
            max(self.weight, other.weight),
            np.maximum(*_pad_to_longer(self.features, other.features)),
            np.maximum(*_pad_to_longer(self.targets, other.targets)),
        )

    def relative_error(self, now: "Largest") -> float:
        """Return the relative error of the sums `now`.

        They have it for having been this large. It is the worst of N, columns and targets.
        """
        pairs = [(np.array([self.weight]), np.array([now.weight])), _pad_to_longer(self.features, now.features)]
        worst = 0.0
        for before, remaining in (*pairs, _pad_to_longer(self.targets, now.targets)):
            before, remaining = before[before > 0.0], remaining[before > 0.0]
            with np.errstate(divide="ignore"):
                worst = max(worst, float((before / np.maximum(remaining, 0.0)).max(initial=0.0)))
        return EPS * worst


def _pad_to_longer(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both with zeros up to the length of the longer one."""
    shape = (max(len(a), len(b)),)
    return padded(a, shape), padded(b, shape)

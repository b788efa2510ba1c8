"""ClassScatter: scatter of each class about its own mean.

It is for WMV [mathematics §2]. It holds weight, mean and Σ w (x − m_j)(x − m_j)ᵀ of each of k
classes. These are the sums of dense rows, once a class. A row costs d² multiplications. Memory is
8·k·d² bytes (160 MB for 20 classes at d = 1,000), so it is stored with exact scatter only.
"""

from typing import NamedTuple, Self

import numpy as np

from stream_dr.checks import check_array_shapes, check_at_least, check_finite_arrays
from stream_dr.rows.block import Rows
from stream_dr.statistics.moments.centred_part import CentredPart, empty_part
from stream_dr.statistics.moments.centred_sums import CentredSums
from stream_dr.statistics.protocol import nested_state


@nested_state
class ClassScatter(NamedTuple):
    """Frozen scatter of classes, float64, stored units.

    Attributes
    ----------
    weights : (k,)
    mean, low : (k, d)
        The means are their sums.
    scatter : (k, d, d)
    """

    weights: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    scatter: np.ndarray

    @classmethod
    def empty(cls) -> Self:
        """Return the scatter of no class."""
        return cls(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0, 0)))

    def check(self, width: int, classes: int) -> None:
        """Raise DamagedFile unless it has these numbers of features and classes.

        Without a class it has no width.
        """
        k, d = classes, width if classes else 0
        check_array_shapes(self, np.float64, weights=(k,), mean=(k, d), low=(k, d), scatter=(k, d, d))
        check_finite_arrays(self, "mean", "low", "scatter")
        check_at_least(self, 0.0, "weights")

    def part(self, j: int) -> CentredPart:
        """Return class j's sums."""
        sums = (self.mean[j], self.low[j], np.zeros(0), self.scatter[j], np.zeros((self.mean.shape[1], 0)))
        return CentredPart(True, float(self.weights[j]), *sums)

    def scaled(self, factor: float) -> Self:
        """Return it with every sum multiplied by factor."""
        return self._replace(weights=self.weights * factor, scatter=self.scatter * factor)

    def aligned(self, width: int, columns: np.ndarray, total: int) -> Self:
        """Return it with `total` classes of `width` features, class j at columns[j]."""
        k, d = self.mean.shape
        if not k:
            return self
        weights, mean, low = np.zeros(total), np.zeros((total, width)), np.zeros((total, width))
        scatter = np.zeros((total, width, width))
        weights[columns], mean[columns, :d], low[columns, :d] = self.weights, self.mean, self.low
        scatter[columns, :d, :d] = self.scatter
        return type(self)(weights, mean, low, scatter)

    def join(self, other: "ClassScatter", sign: float, keep: np.ndarray) -> "ClassScatter":
        """Return the scatter of both. With sign −1 that without other.

        Classes not in keep (k,) bool are emptied. Both have the same width and classes.
        """
        if len(self.weights) == 0:
            return self
        nothing = empty_part(self.mean.shape[1], 0, exact=True)
        parts = [
            self.part(j).join(other.part(j), None, sign).clamped() if keep[j] else nothing
            for j in range(len(self.weights))
        ]
        return stacked(parts)


def stacked(parts: list[CentredPart]) -> ClassScatter:
    """Return parts of k ≥ 1 classes as one value."""
    return ClassScatter(
        np.array([p.weight for p in parts]),
        np.stack([p.mean for p in parts]),
        np.stack([p.low for p in parts]),
        np.stack([p.scatter for p in parts]),
    )


class ClassScatterSums:
    """The mutable side of ClassScatter."""

    def __init__(self, part: ClassScatter) -> None:
        """Continue from `part`, whose arrays are copied."""
        self._classes = [CentredSums(part.part(j)) for j in range(len(part.weights))]

    def freeze(self) -> ClassScatter:
        """Return the sums so far, copied."""
        return stacked([c.freeze() for c in self._classes]) if self._classes else ClassScatter.empty()

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor."""
        for c in self._classes:
            c.rescale(factor)

    def grow(self, width: int, columns: int) -> None:
        """Make room for more features and more classes."""
        for c in self._classes:
            c.grow(width, 0)
        for _ in range(columns - len(self._classes)):
            self._classes.append(CentredSums(empty_part(width, 0, exact=True)))

    def add(self, X: Rows, weights: np.ndarray, codes: np.ndarray) -> None:
        """Add rows (rows, ≤ d), dense or CSR.

        weights: (rows,), stored ones.
        codes: (rows,), classes.
        """
        for j in np.unique(codes):
            own = np.flatnonzero(codes == j)
            self._classes[j].add(X[own], weights[own], float(weights[own].sum()))

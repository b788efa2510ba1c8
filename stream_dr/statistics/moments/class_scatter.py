"""ClassScatter: scatter of each class about its own mean.

The estimator WMV needs this scatter [mathematics §2]. For each of k classes j, the weight, the
mean m_j and the sum Σ w (x − m_j)(x − m_j)ᵀ over the rows of the class are stored. A row of d
features costs d² multiplications. Memory is 8·k·d² bytes (160 MB for 20 classes at d = 1,000). The
scatter of classes is therefore stored only if the scatter of all rows is exact.
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
    """Frozen scatter of k classes of rows with d features, float64.

    All sums are stored divided by the state's scale.

    Attributes
    ----------
    weights : (k,)
        Weight of each class.
    mean, low : (k, d)
        Mean m of each class = mean + low. `low` holds the digits that do not fit into `mean`.
    scatter : (k, d, d)
        Σ w (x − m)(x − m)ᵀ over the rows x, of weight w, of each class.
    """

    weights: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    scatter: np.ndarray

    @classmethod
    def empty(cls) -> Self:
        """Return the scatter of no classes."""
        return cls(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0, 0)))

    def check(self, width: int, classes: int) -> None:
        """Raise DamagedFile unless the arrays have the given shapes.

        width: number of features. It does not matter if there are no classes.
        classes: number of classes.
        """
        k, d = classes, width if classes else 0
        check_array_shapes(self, np.float64, weights=(k,), mean=(k, d), low=(k, d), scatter=(k, d, d))
        check_finite_arrays(self, "mean", "low", "scatter")
        check_at_least(self, 0.0, "weights")

    def part(self, j: int) -> CentredPart:
        """Return the sums of class j as a CentredPart without targets."""
        sums = (self.mean[j], self.low[j], np.zeros(0), self.scatter[j], np.zeros((self.mean.shape[1], 0)))
        return CentredPart(True, float(self.weights[j]), *sums)

    def scaled(self, factor: float) -> Self:
        """Return a copy with every weight and scatter multiplied by factor."""
        return self._replace(weights=self.weights * factor, scatter=self.scatter * factor)

    def aligned(self, width: int, columns: np.ndarray, total: int) -> Self:
        """Return a copy with more features and renumbered classes.

        New features and classes are zero.

        width: number of features of the result.
        columns: (k,) new index of each class.
        total: number of classes of the result.
        """
        k, d = self.mean.shape
        if not k:
            return self
        weights, mean, low = np.zeros(total), np.zeros((total, width)), np.zeros((total, width))
        scatter = np.zeros((total, width, width))
        weights[columns], mean[columns, :d], low[columns, :d] = self.weights, self.mean, self.low
        scatter[columns, :d, :d] = self.scatter
        return type(self)(weights, mean, low, scatter)

    def join(self, other: "ClassScatter", sign: float, keep: np.ndarray) -> "ClassScatter":
        """Return the scatter of this value's rows and of other's rows.

        With sign −1, return the scatter of this value's rows without other's rows. The two values
        must have the same features and classes.

        keep: (k,) bool, False for classes that are set to zero.
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
    """Return the sums of several classes as one ClassScatter.

    parts: sums of each class. There must be at least one class.
    """
    return ClassScatter(
        np.array([p.weight for p in parts]),
        np.stack([p.mean for p in parts]),
        np.stack([p.low for p in parts]),
        np.stack([p.scatter for p in parts]),
    )


class ClassScatterSums:
    """Centred sums of each class, to which rows are added.

    `freeze` returns them as a ClassScatter.
    """

    def __init__(self, part: ClassScatter) -> None:
        """Continue from `part`, whose arrays are copied."""
        self._classes = [CentredSums(part.part(j)) for j in range(len(part.weights))]

    def freeze(self) -> ClassScatter:
        """Return a copy of the sums so far."""
        return stacked([c.freeze() for c in self._classes]) if self._classes else ClassScatter.empty()

    def rescale(self, factor: float) -> None:
        """Multiply every sum by factor. The means do not change."""
        for c in self._classes:
            c.rescale(factor)

    def grow(self, width: int, columns: int) -> None:
        """Make room for more features and more classes.

        width: number of features.
        columns: number of classes.
        """
        for c in self._classes:
            c.grow(width, 0)
        for _ in range(columns - len(self._classes)):
            self._classes.append(CentredSums(empty_part(width, 0, exact=True)))

    def add(self, X: Rows, weights: np.ndarray, codes: np.ndarray) -> None:
        """Add rows X (rows, ≤ features), dense or CSR, each to its class.

        weights: (rows,) weights divided by the state's scale, because stored sums are divided by
            it, too.
        codes: (rows,) class of each row.
        """
        for j in np.unique(codes):
            own = np.flatnonzero(codes == j)
            self._classes[j].add(X[own], weights[own], float(weights[own].sum()))

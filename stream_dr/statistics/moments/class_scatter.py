"""ClassScatter: each class's scatter matrix about the class mean.

The estimator WMV (weighted maximum variance) needs these matrices [mathematics §2]. For each
class, the weight, the mean m and the sum Σ w (x − m)(x − m)ᵀ over the rows x of the class are
stored. w is the weight of a row.

A row of d features costs d² multiplications. Memory is 8·k·d² bytes for k classes (160 MB for 20
classes and 1,000 features). With many features this is too much. So the matrices are stored only
if the state also has the full scatter matrix (d, d) of all rows.
"""

from typing import NamedTuple, Self

import numpy as np

from stream_dr.batch.block import Rows
from stream_dr.checks import check_at_least, check_dtype_and_shapes, check_finite_arrays
from stream_dr.statistics.moments.centred_part import CentredPart, empty_centred_part
from stream_dr.statistics.moments.centred_sums import CentredSums
from stream_dr.statistics.protocol import register_nested_state


@register_nested_state
class ClassScatter(NamedTuple):
    """Weight, mean and scatter matrix of each of k classes.

    The rows have d features. Arrays are float64. Under decay, weights and scatter matrices are
    stored divided by a common number, the `scale` of the MomentState.

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
        """Return a ClassScatter without classes."""
        return cls(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0, 0)))

    def check(self, n_features: int, n_classes: int) -> None:
        """Raise DamagedFile unless the arrays have the given shapes.

        n_features: number of features. It is not checked if there are no classes.
        n_classes: number of classes.
        """
        k = n_classes
        d = n_features if n_classes else 0
        check_dtype_and_shapes(self, np.float64, weights=(k,), mean=(k, d), low=(k, d), scatter=(k, d, d))
        check_finite_arrays(self, "mean", "low", "scatter")
        check_at_least(self, 0.0, "weights")

    def part(self, class_index: int) -> CentredPart:
        """Return one class's weight, mean and scatter as a CentredPart."""
        d = self.mean.shape[1]
        j = class_index
        cross = np.zeros((d, 0))
        nonzero = np.full(d, np.nan)
        return CentredPart(
            True, float(self.weights[j]), self.mean[j], self.low[j], np.zeros(0), self.scatter[j], cross, nonzero
        )

    def scaled(self, factor: float) -> Self:
        """Return a copy with all sums multiplied by factor.

        The sums are the weights and the scatter matrices. The means do not change.
        """
        return self._replace(weights=self.weights * factor, scatter=self.scatter * factor)

    def aligned(self, n_features: int, new_class_indices: np.ndarray, n_classes: int) -> Self:
        """Return a copy with more features and renumbered classes.

        The sums of new features and new classes are zero.

        n_features: number of features of the result.
        new_class_indices: (classes,) new index of each class.
        n_classes: number of classes of the result.
        """
        k, d = self.mean.shape
        if not k:
            return self
        weights = np.zeros(n_classes)
        mean = np.zeros((n_classes, n_features))
        low = np.zeros((n_classes, n_features))
        scatter = np.zeros((n_classes, n_features, n_features))
        weights[new_class_indices] = self.weights
        mean[new_class_indices, :d], low[new_class_indices, :d] = self.mean, self.low
        scatter[new_class_indices, :d, :d] = self.scatter
        return type(self)(weights, mean, low, scatter)

    def join(self, other: "ClassScatter", sign: float, is_not_empty: np.ndarray) -> "ClassScatter":
        """Add or remove the rows of `other` in each class.

        Returns the weights, means and scatter matrices of the resulting rows. `self` and `other`
        must have the same features and classes.

        sign: 1 to add the rows of other, −1 to remove them from the rows of `self`.
        is_not_empty: (k,) bool for k classes, False for classes whose sums are set to zero.
        """
        # Without classes (no row has a label), there is nothing to add or subtract.
        if not len(self.weights) or not len(other.weights):
            return self if len(self.weights) else other
        nothing = empty_centred_part(self.mean.shape[1], 0, whole_scatter=True)
        parts = [nothing] * len(self.weights)
        for j in np.flatnonzero(is_not_empty).tolist():
            parts[j] = self.part(j).join(other.part(j), None, sign).without_negative_scatter()
        return stack_class_parts(parts)


def stack_class_parts(parts: list[CentredPart]) -> ClassScatter:
    """Collect the sums of several classes in one ClassScatter.

    parts: weight, mean and scatter matrix of each class, at least one.
    """
    weights, mean, low = (np.array([getattr(part, name) for part in parts]) for name in ("weight", "mean", "low"))
    return ClassScatter(weights, mean, low, np.array([part.scatter for part in parts]))


class ClassScatterSums:
    """Growing weight, mean and scatter matrix of each class.

    `add` adds rows. `freeze` returns the sums as a ClassScatter.
    """

    def __init__(self, part: ClassScatter) -> None:
        """Continue from `part`, whose arrays are copied."""
        self._classes = [CentredSums(part.part(j)) for j in range(len(part.weights))]

    def freeze(self) -> ClassScatter:
        """Return a copy of the sums so far."""
        return stack_class_parts([c.freeze() for c in self._classes]) if self._classes else ClassScatter.empty()

    def rescale(self, factor: float) -> None:
        """Multiply all weights and scatter matrices by factor.

        The means do not change.
        """
        for c in self._classes:
            c.rescale(factor)

    def grow(self, n_features: int, n_classes: int) -> None:
        """Make room for more features and more classes.

        n_features: number of features.
        n_classes: number of classes.
        """
        for c in self._classes:
            c.grow(n_features, 0)
        for _ in range(n_classes - len(self._classes)):
            self._classes.append(CentredSums(empty_centred_part(n_features, 0, whole_scatter=True)))

    def add(self, X: Rows, weights: np.ndarray, class_codes: np.ndarray) -> None:
        """Add each row to the sums of its class.

        X: (rows, ≤ features), dense or CSR.
        weights: (rows,) weights. Under decay they are divided by the same number as the stored
            sums.
        class_codes: (rows,) index of each row's class.
        """
        for j in np.unique(class_codes):
            own = np.flatnonzero(class_codes == j)
            self._classes[j].add_rows(X[own], weights[own], float(weights[own].sum()))

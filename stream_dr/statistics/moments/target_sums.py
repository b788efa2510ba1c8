"""TargetSums: sums of the targets themselves.

- Labels: n_j and the number of rows of weight above 0 with label j, in sums of their own (N·ȳ_j
  would leave −2e-16 for an emptied class), Σ w y and, for several labels a row, Σ w y yᵀ about
  zero. Entries lie in [0, 1], so nothing is lost.
- Continuous targets: centred sums like those of the features, since their offset may be anything.

A row costs O(labels²), or O(k²) for continuous targets. Memory is 8 k² bytes (8 k for one label a
row).
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import MOST_ROWS, check_array_shapes, check_finite_arrays, check_within
from stream_dr.statistics.moments.centred_part import CentredPart, empty_part, padded
from stream_dr.statistics.moments.centred_sums import CentredSums
from stream_dr.statistics.moments.encoding import Encoded
from stream_dr.statistics.moments.target_kernels import add_target_sets
from stream_dr.statistics.protocol import nested_state


@nested_state
class TargetPart(NamedTuple):
    """Frozen sums of targets, in stored units.

    Attributes
    ----------
    label_weights : (k,) float64
        n_j.
    label_rows : (k,) int64
        Rows of weight above 0.
    total : (k,)
        Σ w y.
    gram : (k, k), or (0, 0) for one label a row
        Σ w y yᵀ.
    values : CentredPart
        Centred sums of continuous targets (0 wide for labels).
    """

    label_weights: np.ndarray
    label_rows: np.ndarray
    total: np.ndarray
    gram: np.ndarray
    values: CentredPart

    def check(self, kind: str | None, columns: int) -> None:
        """Raise DamagedFile unless it has this number of columns of targets of this kind.

        kind: None for no targets.
        """
        labels, values = (0, columns) if kind == "continuous" else (columns, 0)
        gram = (labels, labels) if kind == "multilabel" else (0, 0)
        check_array_shapes(self, np.float64, label_weights=(labels,), total=(labels,), gram=gram)
        check_array_shapes(self, np.int64, label_rows=(labels,))
        check_finite_arrays(self, "label_weights", "total", "gram")
        check_within(self, 0, MOST_ROWS, "label_rows")
        self.values.check(values, 0, exact=True)

    @property
    def labelled(self) -> bool:
        """True if targets are labels."""
        return len(self.values.mean) == 0

    def mean(self, weight: float) -> np.ndarray:
        """Return ȳ (k,), N being weight."""
        if not self.labelled:
            return self.values.mean
        return self.total / weight if weight > 0.0 else np.zeros_like(self.total)

    def scatter(self, weight: float) -> np.ndarray:
        """Return Cyy (k, k)."""
        if not self.labelled:
            return self.values.scatter
        gram = self.gram if len(self.gram) else np.diag(self.total)
        return gram - np.outer(self.total, self.mean(weight))

    def scaled(self, factor: float) -> "TargetPart":
        """Return the part with every weighted sum multiplied by factor."""
        sums = (self.total * factor, self.gram * factor, self.values.scaled(factor))
        return TargetPart(self.label_weights * factor, self.label_rows, *sums)

    def aligned(self, columns: np.ndarray, total: int, several: bool) -> "TargetPart":
        """Return the part with `total` labels, label j at columns[j].

        several: True if a row may have more than one.
        """
        if not self.labelled:
            return self
        weights, rows, sums = np.zeros(total), np.zeros(total, dtype=np.int64), np.zeros(total)
        weights[columns], rows[columns], sums[columns] = self.label_weights, self.label_rows, self.total
        gram = np.zeros((total, total) if several else (0, 0))
        if several:
            gram[np.ix_(columns, columns)] = self.gram
        return TargetPart(weights, rows, sums, gram, self.values)

    def mean_minus(self, other: "TargetPart", weight: float, other_weight: float) -> np.ndarray:
        """Return ȳ − ȳ of other (k,)."""
        if self.labelled:
            return self.mean(weight) - other.mean(other_weight)
        return (self.values.mean - other.values.mean) + (self.values.low - other.values.low)


def empty_targets(kind: str | None, columns: int) -> TargetPart:
    """Return the sums of no rows, for `columns` columns of targets of this kind.

    kind: None for no targets.
    """
    continuous = kind == "continuous"
    k = 0 if continuous else columns
    gram = k if kind == "multilabel" else 0
    values = empty_part(columns if continuous else 0, 0, exact=True)
    return TargetPart(np.zeros(k), np.zeros(k, dtype=np.int64), np.zeros(k), np.zeros((gram, gram)), values)


class TargetSums:
    """The mutable side of TargetPart."""

    def __init__(self, part: TargetPart) -> None:
        """Continue from `part`, whose arrays are copied."""
        self.label_weights, self.label_rows = part.label_weights.copy(), part.label_rows.copy()
        self.total, self.gram = part.total.copy(), part.gram.copy()
        self.labelled = part.labelled
        self.values = CentredSums(part.values)

    def freeze(self) -> TargetPart:
        """Return the sums so far, copied."""
        weights, rows, total, gram = (a.copy() for a in (self.label_weights, self.label_rows, self.total, self.gram))
        return TargetPart(weights, rows, total, gram, self.values.freeze())

    def mean(self, weight: float) -> np.ndarray:
        """Return ȳ (k,), N being weight."""
        if not self.labelled:
            return self.values.mean
        return self.total / weight if weight > 0.0 else np.zeros_like(self.total)

    def rescale(self, factor: float) -> None:
        """Multiply every weighted sum by factor."""
        for sums in (self.label_weights, self.total, self.gram):
            sums *= factor
        self.values.rescale(factor)

    def grow(self, columns: int, several: bool) -> None:
        """Make room for more labels.

        several: True if a row may have more than one.
        """
        self.label_weights, self.total = padded(self.label_weights, (columns,)), padded(self.total, (columns,))
        self.label_rows = padded(self.label_rows, (columns,))
        if several:
            self.gram = padded(self.gram, (columns, columns))

    def add(self, encoded: Encoded, weights: np.ndarray) -> np.ndarray | None:
        """Add the targets of rows of stored weights (rows,).

        A row of weight 0 does not count in label_rows. Returns continuous targets centred, with
        their joining row (rows + 1, k), as the cross sums need them.
        """
        if encoded.values is not None:
            return self.values.add(encoded.values, weights, float(weights.sum()))
        k = len(self.total)
        if encoded.indptr is None:
            added = np.bincount(encoded.codes, weights, minlength=k)
            self.label_weights += added
            self.total += added
            self.label_rows += np.bincount(encoded.codes[weights > 0.0], minlength=k)
            return None
        values = np.ones(len(weights)) if encoded.row_values is None else encoded.row_values
        sums = (self.label_weights, self.label_rows, self.total, self.gram)
        add_target_sets(encoded.indptr, encoded.codes, weights, values, *sums)
        return None


def joined_targets(a: TargetPart, b: TargetPart, sign: float = 1.0) -> TargetPart:
    """Return the sums of both. With sign −1 those of a without b.

    Both have the same columns. An emptied label's sums are exactly zero.
    """
    rows = a.label_rows + (b.label_rows if sign > 0 else -b.label_rows)
    weights, total = a.label_weights + sign * b.label_weights, a.total + sign * b.total
    gram = a.gram + sign * b.gram
    if sign < 0:
        gone = (rows <= 0) | (weights <= 0.0)
        weights[gone], total[gone] = 0.0, 0.0
        if len(gram):
            gram[gone], gram[:, gone] = 0.0, 0.0
    return TargetPart(weights, rows, total, gram, a.values.join(b.values, None, sign))

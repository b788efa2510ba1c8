"""TargetSums: sums of the targets, without the features.

For labels, these sums are stored for each label: the weight of its rows, the number of its rows,
and Σ w y. y is the value of a row in the label's target column, and w the weight of the row. If
rows may have several labels, Σ w y yᵀ is stored, too, with the values y (k,) of a row in all k
target columns. This sum is not centred. It loses no digits, because all values lie between 0 and
1.

For continuous targets, centred sums are stored, because the mean of the targets may be large.

A row costs O(labels²), or O(k²) for k continuous targets. Memory is 8 k² bytes for k target
columns, or 8 k bytes if every row has one label.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.checks import ROW_COUNT_LIMIT, check_dtype_and_shapes, check_finite_arrays, check_within
from stream_dr.statistics.moments.centred_part import CentredPart, empty_centred_part, pad_to_shape
from stream_dr.statistics.moments.centred_sums import CentredSums
from stream_dr.statistics.moments.encoding import EncodedTargets
from stream_dr.statistics.moments.sparse_kernels import add_multilabel_targets
from stream_dr.statistics.protocol import register_nested_state


@register_nested_state
class TargetPart(NamedTuple):
    """Sums of the targets of rows, without the features.

    There are k target columns. In the formulas below, y (k,) are the targets of a row, and w is
    its weight. Under decay, all sums are stored divided by a common number, the `scale` of the
    MomentState.

    Attributes
    ----------
    label_weights : (k,) float64
        Weight of the rows with each label.
    label_rows : (k,) int64
        Number of rows of weight above 0 with each label.
    total : (k,)
        Σ w y.
    gram : (k, k), or (0, 0) if every row has one label
        Σ w y yᵀ.
    values : CentredPart
        Mean and scatter of continuous targets. It has no columns if targets are labels. If targets
        are continuous, the other arrays are empty.
    """

    label_weights: np.ndarray
    label_rows: np.ndarray
    total: np.ndarray
    gram: np.ndarray
    values: CentredPart

    def check(self, kind: str | None, n_target_columns: int) -> None:
        """Raise DamagedFile unless the arrays have the given shapes.

        kind: kind of targets ("class", "multilabel" or "continuous"), or None without targets.
        n_target_columns: number of target columns.
        """
        labels, values = (0, n_target_columns) if kind == "continuous" else (n_target_columns, 0)
        gram = (labels, labels) if kind == "multilabel" else (0, 0)
        check_dtype_and_shapes(self, np.float64, label_weights=(labels,), total=(labels,), gram=gram)
        check_dtype_and_shapes(self, np.int64, label_rows=(labels,))
        check_finite_arrays(self, "label_weights", "total", "gram")
        check_within(self, 0, ROW_COUNT_LIMIT, "label_rows")
        self.values.check(values, 0, whole_scatter=True)

    @property
    def labelled(self) -> bool:
        """True if targets are labels, False if they are continuous."""
        return len(self.values.mean) == 0

    def scatter(self, total_weight: float) -> np.ndarray:
        """Return the centred scatter matrix of the target columns.

        The matrix is (k, k) for k target columns. With y the targets of a row, w its weight and ȳ
        the mean of the targets, the matrix is Σ w (y − ȳ)(y − ȳ)ᵀ.

        total_weight: total weight of all rows. Under decay it is divided by the same number as the
            sums.
        """
        if not self.labelled:
            return self.values.scatter
        gram = self.gram if len(self.gram) else np.diag(self.total)
        return gram - np.outer(self.total, target_mean(self, total_weight))

    def scaled(self, factor: float) -> "TargetPart":
        """Return a copy with every weighted sum multiplied by factor.

        Numbers of rows do not change.
        """
        sums = (self.total * factor, self.gram * factor, self.values.scaled(factor))
        return TargetPart(self.label_weights * factor, self.label_rows, *sums)

    def aligned(self, new_label_indices: np.ndarray, n_labels: int, many_labels_per_row: bool) -> "TargetPart":
        """Return a copy with more labels and renumbered labels.

        Sums of continuous targets are returned unchanged.

        new_label_indices: (labels,) new index of each label.
        n_labels: number of labels of the result.
        many_labels_per_row: True if a row may have more than one label.
        """
        if not self.labelled:
            return self
        weights = np.zeros(n_labels)
        rows = np.zeros(n_labels, dtype=np.int64)
        sums = np.zeros(n_labels)
        weights[new_label_indices] = self.label_weights
        rows[new_label_indices] = self.label_rows
        sums[new_label_indices] = self.total
        gram = np.zeros((n_labels, n_labels) if many_labels_per_row else (0, 0))
        if many_labels_per_row:
            gram[np.ix_(new_label_indices, new_label_indices)] = self.gram
        return TargetPart(weights, rows, sums, gram, self.values)


def empty_targets(kind: str | None, n_target_columns: int) -> TargetPart:
    """Return a TargetPart of no rows, with all sums zero.

    kind: kind of targets ("class", "multilabel" or "continuous"), or None without targets.
    n_target_columns: number of target columns.
    """
    continuous = kind == "continuous"
    k = 0 if continuous else n_target_columns
    gram = k if kind == "multilabel" else 0
    values = empty_centred_part(n_target_columns if continuous else 0, 0, whole_scatter=True)
    return TargetPart(np.zeros(k), np.zeros(k, dtype=np.int64), np.zeros(k), np.zeros((gram, gram)), values)


class TargetSums:
    """Growing sums of targets.

    `add` adds the targets of rows. `freeze` returns the sums as a TargetPart.
    """

    def __init__(self, part: TargetPart) -> None:
        """Continue from `part`, whose arrays are copied."""
        self.label_weights = part.label_weights.copy()
        self.label_rows = part.label_rows.copy()
        self.total = part.total.copy()
        self.gram = part.gram.copy()
        self.labelled = part.labelled
        self.values = CentredSums(part.values)

    def freeze(self) -> TargetPart:
        """Return a copy of the sums as a TargetPart."""
        weights, rows, total, gram = (a.copy() for a in (self.label_weights, self.label_rows, self.total, self.gram))
        return TargetPart(weights, rows, total, gram, self.values.freeze())

    def rescale(self, factor: float) -> None:
        """Multiply every weighted sum by factor.

        Numbers of rows do not change.
        """
        for sums in (self.label_weights, self.total, self.gram):
            sums *= factor
        self.values.rescale(factor)

    def grow(self, n_labels: int, many_labels_per_row: bool) -> None:
        """Make room for more labels.

        n_labels: number of labels.
        many_labels_per_row: True if a row may have more than one label.
        """
        if self.total.size < n_labels:
            self.label_weights = pad_to_shape(self.label_weights, (n_labels,))
            self.total = pad_to_shape(self.total, (n_labels,))
            self.label_rows = pad_to_shape(self.label_rows, (n_labels,))
        if many_labels_per_row:
            self.gram = pad_to_shape(self.gram, (n_labels, n_labels))

    def add_targets(self, encoded: EncodedTargets, scaled_weights: np.ndarray) -> np.ndarray | None:
        """Add the targets of rows.

        Returns None for labels. For continuous targets, returns an array (rows + 1, target
        columns), which the caller multiplies by the features. With y an added target, w its weight
        and ȳ the mean of the added targets, all rows except the last are √w (y − ȳ). The last row
        joins the added targets to the earlier sums (TargetRows in centred_sums.py).

        Rows of weight 0 are not counted in label_rows.

        encoded: targets as numeric columns.
        scaled_weights: (rows,) weights. Under decay they are divided by the same number as the
            stored sums.
        """
        if encoded.values is not None:
            return self.values.add_rows(encoded.values, scaled_weights, float(scaled_weights.sum()))

        # Without a Gram matrix, every row has at most one label, whose target column is 1.
        # Then `added` is both the weight of each label's rows and the weighted sum of its column.
        k = len(self.total)
        if not len(self.gram):
            if encoded.indptr is not None:
                scaled_weights = np.repeat(scaled_weights, np.diff(encoded.indptr))
            added = np.bincount(encoded.codes, scaled_weights, minlength=k)
            self.label_weights += added
            self.total += added
            self.label_rows += np.bincount(encoded.codes[scaled_weights.astype(bool)], minlength=k)
            return None

        # Rows may have several labels.
        assert encoded.indptr is not None
        values = np.ones(len(scaled_weights)) if encoded.row_values is None else encoded.row_values
        sums = (self.label_weights, self.label_rows, self.total, self.gram)
        add_multilabel_targets(encoded.indptr, encoded.codes, scaled_weights, values, *sums)
        return None


def target_mean(sums: TargetPart | TargetSums, total_weight: float) -> np.ndarray:
    """Return the mean (target columns,) of the targets.

    sums: sums of the targets.
    total_weight: total weight of all rows. Under decay it is divided by the same number as the
        sums.
    """
    if not sums.labelled:
        return sums.values.mean
    return sums.total / total_weight if total_weight > 0.0 else np.zeros_like(sums.total)


def add_or_subtract_targets(a: TargetPart, b: TargetPart, sign: float) -> TargetPart:
    """Add or subtract the target sums of two row sets.

    Returns the sums of the resulting rows. A label without remaining rows gets sums of exactly 0.

    a, b: target sums of the two sets of rows, with the same target columns.
    sign: 1 to add the rows of b, −1 to remove them from the rows of a.
    """
    rows = a.label_rows + (b.label_rows if sign > 0 else -b.label_rows)
    weights = a.label_weights + sign * b.label_weights
    total = a.total + sign * b.total
    gram = a.gram + sign * b.gram

    # Remove rounding errors from the sums of labels without rows.
    if sign < 0:
        gone = (rows <= 0) | (weights <= 0.0)
        weights[gone], total[gone] = 0.0, 0.0
        if len(gram):
            gram[gone], gram[:, gone] = 0.0, 0.0
    return TargetPart(weights, rows, total, gram, a.values.join(b.values, None, sign))

"""FeatureCounts: row counts by feature and label, for information gain.

A feature is present in a row if its value there is not 0. The state stores

- for each feature and label, the weight of the rows with the feature and the label,
- for each feature, the weight of the rows in which it is present,
- for each label, the number and the weight of the rows that have the label.

A row costs O(nonzeros · labels of the row). Memory is 8 · features · (labels + 1) bytes.

All of these numbers are sums. So states can be merged, batches may come in any order, and rows can
be removed. If the weights are whole numbers (1 by default), the sums are exact to the last bit.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.checks import (
    ROW_COUNT_LIMIT,
    check_at_least,
    check_common_state_fields,
    check_dtype_and_shapes,
    check_finite_arrays,
    check_within,
)
from stream_dr.compiled import compiled
from stream_dr.errors import CannotMerge, CannotUnlearn, InvalidTargets, PrecisionLost, WidthMismatch, width_mismatch
from stream_dr.rows.block import Block, check_numeric_finite_rows, weights_or_ones
from stream_dr.statistics.moments.centred_part import pad_to_shape
from stream_dr.statistics.moments.largest import EPS, MOST_LOST
from stream_dr.statistics.protocol import AccumulatorBase
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets, check_label_type, drop_rows_without_target, raise_unsupported_target_kind


class FeatureCounts(NamedTuple):
    """Weights of the rows with each feature and each label.

    Attributes
    ----------
    rows : int
        Number of rows learned.
    rows_skipped : int
        Number of rows that were not learned because they had no target.
    n_features : int
        Number of features.
    target_kind : str or None
        "class" or "multilabel". None before the first target.
    labels : tuple of Label
        Distinct labels in order of first appearance.
    weight : float
        Total weight of all rows.
    label_rows : (labels,) int64
        Number of rows with each label.
    label_weights : (labels,) float64
        Weight of the rows with each label.
    present : (features,) float64
        Weight of the rows in which each feature is not 0.
    counts : (features, labels) float64
        Weight of the rows that have the label and in which the feature is not 0.
    dense : bool
        True if any rows were dense, so that the number of features is fixed.
    largest : float
        Largest value that `weight` had just before rows were unlearned.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    weight: float
    label_rows: np.ndarray
    label_weights: np.ndarray
    present: np.ndarray
    counts: np.ndarray
    dense: bool = False
    largest: float = 0.0

    def check(self) -> None:
        """Raise DamagedFile unless all arrays fit the features and labels."""
        check_common_state_fields(self, ("class", "multilabel"))
        d, k = self.n_features, len(self.labels)
        check_dtype_and_shapes(self, np.int64, label_rows=(k,))
        check_dtype_and_shapes(self, np.float64, label_weights=(k,), present=(d,), counts=(d, k))
        check_within(self, 0, ROW_COUNT_LIMIT, "label_rows")
        check_at_least(self, 0.0, "weight", "present", "counts", "largest")
        check_finite_arrays(self, "label_weights")

    def merge(self, other: "FeatureCounts") -> "FeatureCounts":
        """Return the counts of all rows of `self` and `other`.

        The two states may have different labels, in any order. Costs O(features · labels). Raises
        CannotMerge if the states differ in the kind of targets, the type of labels, or the number
        of features of dense rows.
        """
        if self.target_kind and other.target_kind and self.target_kind != other.target_kind:
            raise CannotMerge(f"counts of {self.target_kind} and of {other.target_kind} targets cannot be merged.")
        # If a state has dense rows, the other state must not have more features.
        for fixed, other_counts in ((self, other), (other, self)):
            if fixed.dense and other_counts.n_features > fixed.n_features:
                raise CannotMerge(
                    f"counts of {other_counts.n_features} features cannot be merged with those of dense rows of "
                    f"{fixed.n_features}. Merge states of one width."
                )

        try:
            check_label_type(self.labels, other.labels)
        except InvalidTargets as e:
            raise CannotMerge(f"counts cannot be merged: {e}") from e

        # Pad and reorder the sums of both states for the labels of both, then add the sums.
        labels = tuple(dict.fromkeys((*self.labels, *other.labels)))
        width = max(self.n_features, other.n_features)
        mine, theirs = _sums_for_labels(self, labels, width), _sums_for_labels(other, labels, width)
        rows, weights, present, counts = (a + b for a, b in zip(mine, theirs, strict=True))
        return FeatureCounts(
            self.rows + other.rows,
            self.rows_skipped + other.rows_skipped,
            width,
            self.target_kind or other.target_kind,
            labels,
            self.weight + other.weight,
            rows,
            weights,
            present,
            counts,
            self.dense or other.dense,
            max(self.largest, other.largest),
        )


class FeatureCountAccumulator(AccumulatorBase):
    """Accumulator that counts rows by feature and label.

    Only one thread may change the accumulator. `freeze` returns the counts as FeatureCounts.

    state: counts to continue from, or None. Its arrays are copied.
    """

    def __init__(self, state: FeatureCounts | None = None) -> None:
        if state is None:
            none = np.zeros(0)
            state = FeatureCounts(0, 0, 0, None, (), 0.0, np.zeros(0, dtype=np.int64), none, none, np.zeros((0, 0)))
        self.rows, self.rows_skipped, self.n_features = state.rows, state.rows_skipped, state.n_features
        self.target_kind, self.labels, self._weight = state.target_kind, state.labels, state.weight
        self._label_rows, self._label_weights = state.label_rows.copy(), state.label_weights.copy()
        self._present, self._counts, self._dense = state.present.copy(), state.counts.copy(), state.dense
        self._largest = state.largest

    def add(self, block: Block) -> None:
        """Learn the rows of a batch that have a target.

        Rows without a target are skipped and counted. Raises WidthMismatch, TargetKindMismatch,
        InvalidTargets, InvalidIndex or NotFinite.
        """
        check_numeric_finite_rows(block)
        labelled, skipped = drop_rows_without_target(block)
        self._check_block_fits(labelled)
        self._make_room_for_block(labelled)
        if labelled.rows:
            batch = self._csr_label_and_weight_arguments(labelled)
            _count_features(*batch, self._present, self._counts)
            self._update_label_rows_and_weights(batch, 1)
            self._weight += float(batch[-1].sum())
            self.rows += labelled.rows
        self.rows_skipped += skipped

    def remove(self, block: Block) -> None:
        """Remove a batch that was learned before.

        Raises CannotUnlearn if the batch has more rows or weight than were learned. Raises
        PrecisionLost (a kind of CannotUnlearn) if the rounding errors of the remaining sums would
        be too large. After an error nothing has changed.
        """
        check_numeric_finite_rows(block)
        labelled, skipped = drop_rows_without_target(block)
        self._check_block_fits(labelled)
        if labelled.rows > self.rows or skipped > self.rows_skipped or labelled.features > self.n_features:
            raise CannotUnlearn(f"{block.rows} rows were given to unlearn; {self.rows} were learned. Give only those.")
        if labelled.rows:
            self._subtract_labelled_rows(labelled)
        self.rows_skipped -= skipped

    def freeze(self) -> FeatureCounts:
        """Return a copy of the counts so far.

        Costs O(features · labels).
        """
        d = self.n_features
        return FeatureCounts(
            self.rows,
            self.rows_skipped,
            d,
            self.target_kind,
            self.labels,
            self._weight,
            self._label_rows.copy(),
            self._label_weights.copy(),
            self._present[:d].copy(),
            self._counts[:d].copy(),
            self._dense,
            self._largest,
        )

    @property
    def label_rows(self) -> np.ndarray:
        """Array (labels,) int64, the number of rows with each label."""
        return self._label_rows

    def _check_block_fits(self, block: Block) -> None:
        if not block.sparse and self.n_features and block.features != self.n_features:
            raise width_mismatch(block.features, self.n_features)
        if self._dense and block.features > self.n_features:
            raise WidthMismatch(f"sparse batch has {block.features} features; dense rows fixed {self.n_features}.")
        if block.y is not None:
            if block.y.kind not in ("class", "multilabel"):
                raise_unsupported_target_kind(block.y.kind, ("class", "multilabel"))
            check_label_type(self.labels, block.y.labels)

    def _make_room_for_block(self, block: Block) -> None:
        """Make room for the features and labels of a batch.

        A full array doubles its number of features, because streams of sparse rows often get new
        features.
        """
        new = [] if block.y is None else [label for label in block.y.labels if label not in self.labels]
        width, room = max(self.n_features, block.features), len(self._present)
        if width > room or new:
            room = max(width, 2 * room) if width > room else room
            k = len(self.labels) + len(new)
            self._present = pad_to_shape(self._present, (room,))
            self._counts = pad_to_shape(self._counts, (room, k))
            self._label_rows = pad_to_shape(self._label_rows, (k,))
            self._label_weights = pad_to_shape(self._label_weights, (k,))
        self.labels, self.n_features = (*self.labels, *new), width
        self._dense = self._dense or (block.rows > 0 and not block.sparse)
        if block.y is not None and self.target_kind is None:
            self.target_kind = block.y.kind

    def _csr_label_and_weight_arguments(self, block: Block) -> tuple[np.ndarray, ...]:
        """Return a batch as the first six arguments of `_count_features`.

        The first three arguments are the arrays indptr, indices and data of the CSR rows. The
        fourth and fifth give the labels of each row. The sixth has the weights of the rows.
        """
        rows = block.X if block.sparse else sp.csr_matrix(block.X)
        targets: Targets = block.y
        places = {label: at for at, label in enumerate(self.labels)}
        table = np.asarray([places[label] for label in targets.labels] or [0], dtype=np.int64)
        at = np.arange(block.rows + 1) if targets.indptr is None else targets.indptr
        weights = weights_or_ones(block.weights, block.rows)
        return rows.indptr, rows.indices, rows.data, at, table[targets.codes], weights

    def _update_label_rows_and_weights(self, count_arguments: tuple[np.ndarray, ...], sign: int) -> None:
        """Add a batch to each label's row count and weight.

        count_arguments: the batch, as `_csr_label_and_weight_arguments` returns it.
        sign: 1 to add the rows, −1 to subtract them.
        """
        _, _, _, at, codes, weights = count_arguments
        k = len(self.labels)
        self._label_rows += sign * np.bincount(codes, minlength=k)[:k].astype(np.int64)
        self._label_weights += sign * np.bincount(codes, np.repeat(weights, np.diff(at)), minlength=k)[:k]

    def _subtract_labelled_rows(self, labelled: Block) -> None:
        """Subtract rows that have a target from all sums.

        Raises CannotUnlearn or PrecisionLost before any sum changes.
        """
        unknown = [label for label in labelled.y.labels if label not in self.labels]
        if unknown:
            raise CannotUnlearn(f"label {unknown[0]!r} was never learned. Give only rows that were.")
        batch = self._csr_label_and_weight_arguments(labelled)

        # Compute the counts of only the rows to remove. `gone` is their number of rows per label.
        gone = np.bincount(batch[4], minlength=len(self.labels))
        present, counts = np.zeros_like(self._present), np.zeros_like(self._counts)
        _count_features(*batch, present, counts)

        # Check that no count would become negative, except by rounding errors up to `slack`.
        slack = 1e-9 * max(self._weight, 1e-300)
        too_heavy = np.any(counts > self._counts + slack) or np.any(present > self._present + slack)
        if too_heavy or np.any(gone > self._label_rows):
            raise CannotUnlearn("rows that were not learned, or with other labels or weights, cannot be taken out.")

        # Remember the largest total weight before any removal.
        # After a removal, the sums keep the rounding errors that they had with all rows.
        self._largest = max(self._largest, self._weight)
        remaining = self._weight - float(batch[-1].sum())
        if self.rows > labelled.rows and remaining * MOST_LOST < EPS * self._largest:
            raise PrecisionLost(
                "the rows taken out weigh so much that those left would be lost in their rounding: count anew."
            )

        # All checks have passed, so subtract the counts of the removed rows.
        self._present = np.maximum(self._present - present, 0.0)
        self._counts = np.maximum(self._counts - counts, 0.0)

        self._update_label_rows_and_weights(batch, -1)
        self.rows -= labelled.rows
        self._weight = remaining if self.rows else 0.0

        # The sums of labels without remaining rows become exactly 0.
        emptied = self._label_rows == 0
        self._label_weights[emptied] = 0.0
        self._counts[:, emptied] = 0.0
        if not self.rows:
            self._present[:] = 0.0


def _sums_for_labels(state: FeatureCounts, all_labels: tuple[Label, ...], n_features: int) -> tuple[np.ndarray, ...]:
    """Return a state's sums, extended to more labels and features.

    The sums are label_rows, label_weights, present and counts, in this order. The sums of new
    labels and features are zero.

    all_labels: labels of the result.
    n_features: number of features of the result.
    """
    places = {label: at for at, label in enumerate(all_labels)}
    at = [places[label] for label in state.labels]
    k = len(all_labels)
    label_rows, label_weights = np.zeros(k, dtype=np.int64), np.zeros(k)
    label_rows[at], label_weights[at] = state.label_rows, state.label_weights
    counts = np.zeros((n_features, k))
    counts[: state.n_features, at] = state.counts
    return label_rows, label_weights, pad_to_shape(state.present, (n_features,)), counts


@compiled()
def _count_features(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    label_indptr: np.ndarray,
    label_codes: np.ndarray,
    weights: np.ndarray,
    feature_weights: np.ndarray,
    feature_label_weights: np.ndarray,
) -> None:
    """Add the weights of rows to feature and label counts.

    For each nonzero entry of a row, in feature j, the weight of the row is added to
    feature_weights[j], and to feature_label_weights[j, label] for each label of the row.

    indptr: (rows + 1,), start of each CSR row in `indices` and `values`.
    indices, values: (entries,), feature and value of each entry of the CSR rows.
    label_indptr: (rows + 1,). Row i has the labels
        label_codes[label_indptr[i]:label_indptr[i + 1]].
    label_codes: (labels of all rows,) index of each label, row after row.
    weights: (rows,) weight of each row.
    feature_weights: (features,), changed in place.
    feature_label_weights: (features, labels), changed in place.
    """
    for i in range(len(weights)):
        for e in range(indptr[i], indptr[i + 1]):
            if values[e] != 0.0:
                j = indices[e]
                feature_weights[j] += weights[i]
                for c in range(label_indptr[i], label_indptr[i + 1]):
                    feature_label_weights[j, label_codes[c]] += weights[i]

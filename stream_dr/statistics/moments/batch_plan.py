"""The plan for learning a batch.

Rows, targets and weights were checked where they came in. The plan only checks that they fit into
the arrays of sums, before anything is written. So the accumulator does not change if a check
fails. A plan costs O(labels).
"""

import warnings
from typing import NamedTuple, Protocol

import numpy as np

from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import (
    InvalidTargets,
    OnlyDiagonal,
    TooManyFeatures,
    WidthMismatch,
)
from stream_dr.rows.block import Block, Rows, weights_or_ones
from stream_dr.rows.sparse_rows import is_sparse
from stream_dr.statistics.moments.encoding import EncodedTargets, Encoding, encode_as_columns, take_encoded_rows
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets, drop_rows_without_target, targets_without_labels


class PlannedAccumulator(Protocol):
    """Properties that `plan_batch` reads from an accumulator."""

    encoding: Encoding
    scatter: str
    n_features: int
    dense: bool
    target_kind: str | None
    target_width: int
    labels: tuple[Label, ...]

    @property
    def n_target_columns(self) -> int:
        """Number of target columns."""
        ...

    @property
    def requires_one_label_per_row(self) -> bool:
        """True if every row must have exactly one label."""
        ...


class PlannedBatch(NamedTuple):
    """Checked batch, and properties that its accumulator gets with it.

    Attributes
    ----------
    X : (rows, ≤ width)
        The rows to learn, dense or CSR.
    weights : (rows,) float64
        Weights of the rows.
    encoded : EncodedTargets or None
        Targets of the rows as numeric columns. None if the learner does not read targets.
    skipped : int
        Number of rows that are not learned because they have no target.
    width : int
        Number of features of the accumulator after the batch.
    n_target_columns : int
        Number of target columns.
    scatter, dense, target_kind, target_width, labels
        As in MomentState.
    hashes : (rows,) uint64 or None
        Hash of each row or of its group, if the block has them. It decides the row's fold.
    """

    X: Rows
    weights: np.ndarray
    encoded: EncodedTargets | None
    skipped: int
    scatter: str
    width: int
    n_target_columns: int
    dense: bool
    target_kind: str | None
    target_width: int
    labels: tuple[Label, ...]
    hashes: np.ndarray | None = None

    def take(self, row_indices: np.ndarray) -> "PlannedBatch":
        """Return the plan of some of the rows.

        row_indices: int64 indices of the rows.
        """
        return self._replace(
            X=self.X[row_indices],
            weights=self.weights[row_indices],
            encoded=None if self.encoded is None else take_encoded_rows(self.encoded, row_indices),
            hashes=None if self.hashes is None else self.hashes[row_indices],
        )

    @property
    def rows(self) -> int:
        """Number of rows to learn."""
        return self.weights.size

    @property
    def sparse(self) -> bool:
        """True if the rows are CSR."""
        return not isinstance(self.X, np.ndarray)


def plan_batch(accumulator: PlannedAccumulator, label_codes: dict[Label, int], block: Block) -> PlannedBatch:
    """Return the plan for learning a batch.

    The plan holds the batch's arrays and the properties that the accumulator has after the batch.

    Raises WidthMismatch, TooManyFeatures or InvalidTargets if the batch does not fit
    into the arrays of sums.

    accumulator: accumulator that will learn the batch.
    label_codes: index of each label that the accumulator already has.
    block: the batch.
    """
    rows, features = block.X.shape
    sparse = is_sparse(block.X)
    _check_width(accumulator, features, sparse)

    # Drop rows without a target, unless the encoding of targets allows them.
    skipped = 0
    if accumulator.encoding == "none":
        y = None
    elif accumulator.encoding == "partial":
        y = block.y or targets_without_labels(rows)
    else:
        block, skipped = drop_rows_without_target(block)
        y = block.y
        rows -= skipped
    weights = weights_or_ones(block.weights, rows)

    # The first batch decides whether the whole scatter matrix is stored.
    scatter = accumulator.scatter
    width = max(accumulator.n_features, features)
    if scatter == "auto" and rows:
        stated = not sparse or block.width_stated
        scatter = "exact" if stated and features <= MAX_EXACT_WIDTH else "diagonal"
        if scatter == "diagonal" and not sparse:
            _warn_only_diagonal(features)

    # Encode the targets. New labels come after the earlier labels.
    kind, labels, target_width, encoded = accumulator.target_kind, accumulator.labels, accumulator.target_width, None
    if y is None:
        k = accumulator.n_target_columns
    else:
        kind = y.kind
        target_width = 0 if y.values is None else y.values.shape[1]
        if accumulator.target_kind == kind and target_width != accumulator.target_width:
            raise InvalidTargets(
                f"targets have {target_width} columns; this model was started with {accumulator.target_width}. "
                "Pass those columns or start a new model."
            )
        labels, column = with_new_labels_appended(label_codes, labels, y)
        encoded = encode_as_columns(y, accumulator.encoding, column)
        k = len(labels) if encoded.values is None else encoded.values.shape[1]

    dense = accumulator.dense or not sparse
    return PlannedBatch(
        block.X, weights, encoded, skipped, scatter, width, k, dense, kind, target_width, labels, block.hashes
    )


def with_new_labels_appended(
    label_codes: dict[Label, int], earlier_labels: tuple[Label, ...], targets: Targets
) -> tuple[tuple[Label, ...], np.ndarray]:
    """Append a batch's new labels to the earlier labels.

    Also returns the index (labels of the batch,) int32 of each label of the batch.

    label_codes: index of each earlier label.
    earlier_labels: labels before the batch.
    targets: targets of the batch.
    """
    try:
        return earlier_labels, np.array([*map(label_codes.__getitem__, targets.labels)], dtype=np.int32)
    except KeyError:
        new = tuple(label for label in targets.labels if label not in label_codes)
    codes = label_codes | {label: code for code, label in enumerate(new, len(earlier_labels))}
    return earlier_labels + new, np.array([codes[label] for label in targets.labels], dtype=np.int32)


def _warn_only_diagonal(n_features: int) -> None:
    gigabytes = 8 * n_features**2 / 1e9
    warnings.warn(
        f"only the diagonal of the scatter of {n_features} features is stored, as if they were uncorrelated. "
        f'scatter="exact" stores all of it ({gigabytes:.1f} GB, for each class where a method needs that), and '
        "refine(rows) solves exactly without it.",
        OnlyDiagonal,
        stacklevel=2,
    )


def _check_width(accumulator: PlannedAccumulator, n_features: int, sparse: bool) -> None:
    if accumulator.n_features and not sparse and n_features != accumulator.n_features:
        raise WidthMismatch(
            f"batch has {n_features} features; this model was started with {accumulator.n_features}. "
            "Send those columns or start a new model."
        )

    if accumulator.dense and n_features > accumulator.n_features:
        raise WidthMismatch(
            f"sparse batch has {n_features} features; dense rows have fixed them at {accumulator.n_features}. "
            "Send at most those or start a new model."
        )

    if accumulator.scatter == "exact" and sparse and n_features > MAX_EXACT_WIDTH:
        diagonal = 'Start a model with scatter="diagonal"'
        advice = "Use MMC, which has a diagonal form" if accumulator.requires_one_label_per_row else diagonal
        raise TooManyFeatures(
            f"batch has {n_features} features; exact scatter of sparse rows is stored for up to {MAX_EXACT_WIDTH}. {advice}."
        )

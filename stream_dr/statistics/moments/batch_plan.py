"""Checks of a batch, and the plan for learning it.

All checks are made before anything is written, so the accumulator does not change if a check
fails. Checking the targets costs O(labels). Checking the rows reads every value, unless the block
says that its values were already checked.
"""

from typing import NamedTuple, Protocol

import numpy as np

from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import EmptyInput, InvalidTargets, TargetKindMismatch, TooManyFeatures, WidthMismatch
from stream_dr.rows.block import Block, Rows, as_weights, check_rows, row_weights
from stream_dr.rows.sparse_rows import is_sparse
from stream_dr.statistics.moments.encoding import Encoded, Encoding, check_encoding_kind, encode, take_encoded
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets, check_label_type, labelled_rows, no_labels


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
    def columns(self) -> int:
        """Number of target columns."""
        ...

    @property
    def one_label_per_row(self) -> bool:
        """True if every row must have exactly one label."""
        ...


class BatchPlan(NamedTuple):
    """Checked batch, with the accumulator's properties after it.

    Attributes
    ----------
    X : (rows, ≤ width)
        The rows to learn, dense or CSR.
    weights : (rows,) float64
        Weights of the rows.
    encoded : Encoded or None
        Targets of the rows as numeric columns. None if the learner does not read targets.
    skipped : int
        Number of rows that are not learned because they have no target.
    width : int
        Number of features.
    columns : int
        Number of target columns.
    scatter, dense, target_kind, target_width, labels
        As in MomentState.
    hashes : (rows,) uint64 or None
        Hash of each row or of its group, if the block has them. It decides the row's fold.
    """

    X: Rows
    weights: np.ndarray
    encoded: Encoded | None
    skipped: int
    scatter: str
    width: int
    columns: int
    dense: bool
    target_kind: str | None
    target_width: int
    labels: tuple[Label, ...]
    hashes: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> "BatchPlan":
        """Return the plan of some of the rows.

        rows: int64 indices of the rows.
        """
        return self._replace(
            X=self.X[rows],
            weights=self.weights[rows],
            encoded=None if self.encoded is None else take_encoded(self.encoded, rows),
            hashes=None if self.hashes is None else self.hashes[rows],
        )

    @property
    def rows(self) -> int:
        """Number of rows to learn."""
        return self.weights.shape[0]

    @property
    def sparse(self) -> bool:
        """True if the rows are CSR."""
        return not isinstance(self.X, np.ndarray)


def plan_batch(learner: PlannedAccumulator, codes: dict[Label, int], block: Block) -> BatchPlan:
    """Check a batch, and return the plan for learning it.

    The plan holds the checked arrays and the properties that the accumulator has after the batch.

    Raises NotFinite, WidthMismatch, TooManyFeatures, EmptyInput, InvalidWeights, InvalidTargets or
    TargetKindMismatch.

    learner: accumulator that will learn the batch.
    codes: index of each label that the accumulator already has.
    block: the batch.
    """
    # Check the rows.
    rows, features = block.X.shape
    sparse = is_sparse(block.X)
    _check_width(learner, rows, features, sparse)
    check_rows(block)

    # Check the targets, and drop rows without a target if the encoding needs one.
    weights = as_weights(block.weights, rows)
    skipped = 0
    if learner.encoding == "none":
        y = None
    elif learner.encoding == "partial":
        y = block.y or no_labels(rows)
        _check_targets(learner, y, rows)
    else:
        _check_targets(learner, block.y, rows)
        block, skipped = labelled_rows(block if weights is None else block._replace(weights=weights))
        weights, y = block.weights, block.y
        rows -= skipped

    # The first batch decides whether the whole scatter matrix is stored.
    weights = row_weights(weights, rows)
    scatter, width = learner.scatter, max(learner.n_features, features)
    if scatter == "auto" and rows:
        stated = not sparse or block.width_stated
        scatter = "exact" if stated and features <= EXACT_WIDTH else "diagonal"

    # Encode the targets. New labels come after the earlier labels.
    kind, labels, columns, encoded = learner.target_kind, learner.labels, learner.columns, None
    target_width = learner.target_width
    if y is not None:
        kind, target_width = y.kind, 0 if y.values is None else y.values.shape[1]
        labels, column = vocabulary(codes, labels, y)
        encoded = encode(y, learner.encoding, column)
        columns = len(labels) if encoded.values is None else encoded.values.shape[1]

    dense = learner.dense or not sparse
    return BatchPlan(
        block.X, weights, encoded, skipped, scatter, width, columns, dense, kind, target_width, labels, block.hashes
    )


class ExtendedLabels(NamedTuple):
    """Labels after a batch.

    Attributes
    ----------
    labels : tuple of Label
        The earlier labels, then the new labels of the batch.
    batch_indices : (labels of the batch,) int32
        Index of each label of the batch in `labels`.
    """

    labels: tuple[Label, ...]
    batch_indices: np.ndarray


def vocabulary(codes: dict[Label, int], labels: tuple[Label, ...], y: Targets) -> ExtendedLabels:
    """Append the new labels of a batch to the earlier labels.

    codes: index of each earlier label.
    labels: labels before the batch.
    y: targets of the batch.
    """
    new = [label for label in y.labels if label not in codes]
    column = np.empty(len(y.labels), dtype=np.int32)
    fresh = len(labels)
    for i, label in enumerate(y.labels):
        code = codes.get(label)
        if code is None:
            code, fresh = fresh, fresh + 1
        column[i] = code
    return ExtendedLabels(labels + tuple(new) if new else labels, column)


def _check_width(learner: PlannedAccumulator, rows: int, features: int, sparse: bool) -> None:
    if learner.n_features and not sparse and features != learner.n_features:
        raise WidthMismatch(
            f"batch has {features} features; this model was started with {learner.n_features}. "
            "Send those columns or start a new model."
        )

    if learner.dense and features > learner.n_features:
        raise WidthMismatch(
            f"sparse batch has {features} features; dense rows have fixed them at {learner.n_features}. "
            "Send at most those or start a new model."
        )

    if learner.scatter == "exact" and features > EXACT_WIDTH:
        advice = (
            "Use MMC, which has a diagonal form"
            if learner.one_label_per_row
            else 'Start a model with scatter="diagonal"'
        )
        raise TooManyFeatures(
            f"batch has {features} features; exact scatter is stored for up to {EXACT_WIDTH}. {advice}."
        )
    if not sparse and rows and not features:
        raise EmptyInput("batch has 0 features; dense rows need at least one.")


def _check_targets(learner: PlannedAccumulator, y: Targets | None, rows: int) -> None:
    if y is None:
        return
    if y.rows != rows:
        raise InvalidTargets(f"batch has {rows} rows but {y.rows} targets; pass one target a row.")
    if learner.target_kind is not None and y.kind != learner.target_kind:
        raise TargetKindMismatch(
            f"targets are of kind {y.kind}; this model was started with {learner.target_kind}. "
            f"Pass {learner.target_kind} targets or start a new model."
        )

    check_encoding_kind(learner.encoding, y.kind)
    if learner.one_label_per_row and y.kind != "class":
        raise TargetKindMismatch(
            f"{y.kind} targets were given; the scatter of each class needs one label a row. Use OPLS, CCA or HSL."
        )

    check_label_type(learner.labels, y.labels)
    if y.values is None:
        return
    if learner.target_kind is not None and y.values.shape[1] != learner.target_width:
        raise InvalidTargets(
            f"targets have {y.values.shape[1]} columns; this model was started with {learner.target_width}. "
            "Pass those columns or start a new model."
        )

"""Admit: checks that batches must pass before an append.

A batch must fit

- the stream's schema (layout, columns, kind of targets, type of labels, weights),
- the directory's limits,
- every model that has not failed.

`check_block_and_extend_schema` returns a new Schema that includes the batch, and changes nothing.
Whether all values are finite is checked earlier, when the batch is parsed in the caller's thread.

Once a batch is admitted, learning must not raise an error. So the log has only rows that every
model can learn. There is one exception: HSL's clique and star find out while learning that there
are too many label sets, and such a model fails at that event.

A Draft is an event that is not in the log yet. Drafts are admitted in groups, and each group is
written in one transaction (`DraftGroup`). Each draft is checked against the schema that includes
the accepted drafts before it. A refused draft does not affect the other drafts of its group.

Cost: O(rows + labels) for each batch.
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from stream_dr import errors
from stream_dr.directory.draft import REFERENCE, Draft, DryRunReceipt, Receipt, Removal, parse_removal
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import (
    check_max_table_width,
    feature_map_or_none,
    is_category,
    map_reads_tables,
)
from stream_dr.feature_maps.table import check_map_can_learn
from stream_dr.log.event import EventDraft
from stream_dr.log.log import Log
from stream_dr.models.model import Learner, Model
from stream_dr.models.schema import (
    Limits,
    Schema,
    all_missing_table_row,
    bound_state_bytes,
    drop_unneeded_targets_and_add_hashes,
    extend_by_accumulator_schema,
    extend_columns_or_kinds,
    refuse_ambiguous_columns,
    reorder_columns,
    schema_delta,
    table_columns_missing_in_batch,
)
from stream_dr.rows.block import Block
from stream_dr.statistics.protocol import State
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import (
    KINDS,
    Label,
    Targets,
    check_label_type,
    check_labels_allowed,
    drop_rows_without_target,
    no_row_has_target,
    raise_unsupported_target_kind,
)

log = logging.getLogger("stream_dr.admit")

MAX_TRIAL_ROWS = 2
"""Number of rows that `check_can_learn_first_rows` learns.

Two rows are enough, because the trial only shows whether an estimator accepts rows of this kind.
Values and labels are checked elsewhere, in every batch.
"""

NONE = "none"
"""Target kind of a stream that is set to carry no targets."""


def check_block_and_extend_schema(
    block: Block | None, schema: Schema, learners: Sequence[Learner], limits: Limits
) -> Schema:
    """Return the stream's schema, extended by a batch.

    The schema (layout, columns, labels and so on) is extended by the batch's new columns and
    labels. Nothing is changed.

    block: the batch. None, for an event without rows, returns `schema`.
    schema: the stream's schema before the batch.
    learners: the models that will learn the batch.

    Raises the error that refuses the batch. Cost: O(rows + labels).
    """
    if block is None:
        return schema
    if block.rows == 0 or (block.features == 0 and not block.sparse):
        raise errors.EmptyInput("the batch has no rows, or rows without features; send at least one of each.")

    refuse_ambiguous_columns(block, schema)
    block = block if schema.layout is None else reorder_columns(block, schema)
    _check_text_lengths("id", block.ids or (), limits)
    if block.table:
        for model in learners:
            check_map_can_learn(feature_map_or_none(model.estimator.feature_map), block.X)
        # A text that no model takes as a category may have more characters.
        for name, column in zip(block.X.names, block.X.columns, strict=True):
            longest = max(column.labels, key=len, default="")
            if len(longest) > limits.max_text and any(
                is_category(model.estimator.feature_map, model.table, name, column) for model in learners
            ):
                _check_text_lengths(f"category of column {name}", [longest], limits)

    # Extend the schema by the batch.
    # Every model has accepted the old schema, so check the models only if the new schema differs.
    new_schema = _add_targets_to_schema(block.y, _set_or_check_weighted(block, _add_layout_and_width(block, schema)))
    if new_schema == schema:
        return schema
    _check_schema_limits(new_schema, limits)
    _check_text_lengths("label", new_schema.labels[len(schema.labels) :], limits)
    if schema.layout is None:
        _check_text_lengths("column name", new_schema.names or (), limits)

    # Find out if the batch decides the stream's layout or its kind of targets.
    # For example, the first batch with targets does.
    # Each model then tries to learn a few rows of the batch in the loop below.
    first_targets = schema.n_targets == 0 < new_schema.n_targets
    decides = schema.layout is None or schema.target_kind != new_schema.target_kind or first_targets
    for model in learners:
        check_can_learn_stream(model.estimator, new_schema, limits)
        if decides:
            check_can_learn_first_rows(
                model.estimator, reorder_columns(block, new_schema), model.state_if_started_from_saved
            )
    return new_schema


def check_can_learn_stream(estimator: Estimator, schema: Schema, limits: Limits) -> None:
    """Raise an error if an estimator cannot learn a stream.

    Raises
    ------
    TargetKindMismatch
        The estimator learns from targets of another kind.
    InvalidWeights
        The batches carry weights, and the estimator takes none.
    LimitExceeded
        The state and solving it would need more bytes than `limits.max_state_bytes`.
    SchemaMismatch, TooManyFeatures
        The estimator cannot learn rows of this layout or width.

    The estimator's method `state_bytes` may raise further errors.
    """
    if schema.weighted and not can_learn_weights(type(estimator)):
        raise errors.InvalidWeights(
            f"this stream's batches carry weights; {type(estimator).__name__} is a recurrence that takes none. "
            "Use an additive estimator, or send batches without weights to another stream."
        )
    _check_table_or_numeric_rows(estimator, schema)
    _check_target_kind(estimator, schema.target_kind)
    _check_width(estimator, schema)

    # The state and the memory for computing a projection must fit into `max_state_bytes`.
    solve_bytes = estimator.solve_bytes()
    needed = bound_state_bytes(estimator, schema) + solve_bytes
    if needed > limits.max_state_bytes:
        raise errors.LimitExceeded(
            f"{type(estimator).__name__} would need {needed} bytes for {schema.features} features and {schema.n_targets} "
            f"targets, {solve_bytes} of them to be solved; at most {limits.max_state_bytes} are allowed (max_state_bytes). "
            "Delete the model if it is there, or allow more.",
            needed=needed,
            limit=limits.max_state_bytes,
        )


def check_can_continue_stream(estimator: Estimator, schema: Schema, limits: Limits) -> None:
    """Raise an error if a saved estimator cannot continue to learn from a stream.

    schema: schema of the stream. The kind of targets, the labels and the column names that the
        estimator has learned are added for the check.
    """
    fitted = estimator.fitted()
    accumulator = fitted.accumulator
    new_schema = extend_by_accumulator_schema(schema, accumulator, fitted.names)

    _check_text_lengths("label", new_schema.labels, limits)
    _check_text_lengths("column name", new_schema.names or (), limits)

    width = max(new_schema.features, accumulator.n_features)
    check_can_learn_stream(estimator, new_schema._replace(features=width), limits)
    if schema.layout is not None:
        zero_row = reorder_columns(_block_of_one_zero_row(new_schema), new_schema)
        check_can_learn_first_rows(estimator, zero_row, accumulator.freeze())


def _check_table_or_numeric_rows(estimator: Estimator, schema: Schema) -> None:
    """Raise SchemaMismatch if the estimator cannot learn the stream's layout.

    The rows of a table need an estimator with a feature map for tables. Sparse rows need an
    estimator without such a feature map.
    """
    if map_reads_tables(estimator.feature_map) and schema.layout == "sparse":
        raise errors.SchemaMismatch(
            "this stream's rows are sparse, and the feature map takes a table's columns. Leave it out."
        )
    if (columns := all_missing_table_row(schema)) is not None:
        check_map_can_learn(feature_map_or_none(estimator.feature_map), columns)
        if estimator.stored_scatter() == "exact":
            kinds_by_column = dict(zip(columns.names, schema.kinds or (), strict=True))
            check_max_table_width(estimator.feature_map, kinds_by_column)


def _check_width(estimator: Estimator, schema: Schema) -> None:
    """Raise TooManyFeatures if the stream is too wide for an estimator."""
    if schema.layout is None:
        return
    widest = estimator.max_width(schema.layout == "sparse", schema.stated)
    if widest is not None and schema.features > widest:
        raise errors.TooManyFeatures(
            f"{type(estimator).__name__} keeps exact scatter of up to {widest} features; the stream would have "
            f'{schema.features}. Make the model with scatter="diagonal".',
            needed=schema.features,
            limit=widest,
        )


def check_can_learn_first_rows(estimator: Estimator, block: Block, initial_state: State | None = None) -> None:
    """Test whether an estimator can learn a batch's rows.

    A temporary accumulator learns the first rows of the batch.

    initial_state: state from which the accumulator continues. None to start without learned rows.

    Raises the StreamDRError that refuses the rows. Any other error is only logged.
    """
    try:
        rows = trial_rows_with_target_if_any(block)
        estimator.accumulator(initial_state).add(drop_unneeded_targets_and_add_hashes(estimator, rows))
    except errors.StreamDRError:
        raise
    except Exception:
        log.exception("%s could not try the first batch; it will fail when it learns it", type(estimator).__name__)


def trial_rows_with_target_if_any(block: Block) -> Block:
    """Return the first MAX_TRIAL_ROWS rows of a block.

    If any row has a target, the first rows with a target are returned.
    """
    if block.y is not None and not no_row_has_target(block.y):
        block = drop_rows_without_target(block)[0]
    return block.take(np.arange(min(MAX_TRIAL_ROWS, block.rows)))


def _check_target_kind(estimator: Estimator, target_kind: str | None) -> None:
    """Raise TargetKindMismatch unless the estimator learns targets of this kind.

    target_kind: the stream's kind of targets. None if no batch had targets so far.
    """
    if target_kind is None or not estimator.target_kinds:
        return

    if target_kind == NONE:
        raise errors.TargetKindMismatch(
            f"this stream is set to carry no targets; {type(estimator).__name__} learns from "
            f"{' or '.join(estimator.target_kinds)} targets. Use an unsupervised estimator, or another stream."
        )
    if target_kind not in estimator.target_kinds:
        raise_unsupported_target_kind(target_kind, estimator.target_kinds)
    # Check the kind that the estimator's parameter `target` demands. `target` is "" for an
    # estimator without this parameter.
    if estimator.target not in ("", "auto", target_kind):
        raise errors.TargetKindMismatch(
            f"this stream's targets are of kind {target_kind}; the model was made with target={estimator.target!r}."
        )


def _block_of_one_zero_row(schema: Schema) -> Block:
    """Return a Block of one row that fits a schema.

    The row has the stream's layout. Its values are zeros, or all missing for the row of a table.
    Its target is the stream's first label, or zeros if targets are continuous.
    """
    shape = (1, schema.features)
    X: Any = all_missing_table_row(schema)
    if X is None:
        X = csr_matrix(shape) if schema.layout == "sparse" else np.zeros(shape)
    label = schema.labels[:1]
    targets: Any = {
        "class": label,
        "multilabel": [label] if label else [],
        "continuous": np.zeros((1, schema.outputs)) if schema.outputs else [],
    }.get(schema.target_kind or NONE, [])
    y = parse_targets(targets, 1, KINDS, earlier_kind=schema.target_kind) if len(targets) else None
    return Block(X, y, np.ones(1) if schema.weighted else None, names=schema.names)


@cache
def can_learn_weights(estimator_class: type[Estimator]) -> bool:
    """Return True if an estimator class can learn weighted rows.

    The `partial_fit` of such a class has the argument `sample_weight`.

    estimator_class: the estimator class.
    """
    return "sample_weight" in inspect.signature(estimator_class.partial_fit).parameters


def _add_layout_and_width(block: Block, schema: Schema) -> Schema:
    """Return the schema, extended by a block's layout and width.

    Raises SchemaMismatch or WidthMismatch if the block does not fit the schema.
    """
    # The layout decides which checks apply.
    # A table is not checked here: `extend_columns_or_kinds` matches the columns of a table by name.
    layout = "sparse" if block.sparse else "named" if block.names else "dense"
    if block.table:
        return extend_columns_or_kinds(block.X, schema)

    # The schema has no layout before the first batch, which decides the layout and the width.
    if schema.layout is None:
        if schema.stated and not block.sparse and block.features != schema.stated:
            raise errors.WidthMismatch(
                f"batch has {block.features} features; {schema.stated} are stated for this stream (by its first shards or "
                f"n_features). Send {schema.stated} columns, or start another stream."
            )
        stated = max(schema.stated, block.features if block.width_stated else 0) if block.sparse else 0
        return schema._replace(layout=layout, features=max(block.features, stated), names=block.names, stated=stated)

    # A later batch must have the layout of the first one. Only sparse rows may become wider.
    if layout != schema.layout:
        raise errors.SchemaMismatch(
            f"the batch's rows are {layout}; this stream was started with {schema.layout} rows. "
            "Send those, or start a new stream."
        )
    if not block.sparse and block.features != schema.features:
        raise errors.WidthMismatch(
            f"batch has {block.features} features; this stream was started with {schema.features}. "
            "Send those columns or start a new stream.",
            given=block.features,
            needed=schema.features,
        )
    return schema._replace(features=max(schema.features, block.features))


def _set_or_check_weighted(block: Block, schema: Schema) -> Schema:
    """Return the schema with the attribute `weighted` set.

    `weighted` is True if batches carry row weights. The first batch decides. Raises InvalidWeights
    if the block has weights and earlier batches have none, or the other way round.
    """
    has_weights = block.weights is not None
    if schema.weighted is None:
        return schema._replace(weighted=has_weights)
    if schema.weighted != has_weights:
        says = "carry weights" if schema.weighted else "carry no weights"
        raise errors.InvalidWeights(
            f"this stream's batches {says}, as its first batch decided; send this one likewise."
        )
    return schema


def _add_targets_to_schema(batch_targets: Targets | None, schema: Schema) -> Schema:
    """Return the schema, extended by the targets of a batch.

    The kind of the targets and new labels are added.

    batch_targets: the batch's targets, or None.

    Raises TargetKindMismatch if earlier targets were of another kind, and the errors of wrong
    labels.
    """
    if batch_targets is None or no_row_has_target(batch_targets):
        return schema
    if schema.target_kind not in (None, batch_targets.kind):
        raise errors.TargetKindMismatch(
            f"targets are of kind {batch_targets.kind}; this stream was started with {schema.target_kind}. "
            f"Send {schema.target_kind} targets (Client.partial_fit: target={schema.target_kind!r}) or start a new stream."
        )

    if batch_targets.values is not None:
        n_columns = batch_targets.values.shape[1]
        if schema.outputs not in (0, n_columns):
            raise errors.InvalidTargets(
                f"targets have {n_columns} columns; this stream was started with {schema.outputs}. Send those."
            )
        return schema._replace(target_kind="continuous", outputs=n_columns)

    check_label_type(schema.labels or schema.allowed_labels, batch_targets.labels)
    check_labels_allowed(schema.allowed_labels, batch_targets.labels)
    known = set(schema.labels)
    new = tuple(label for label in batch_targets.labels if label not in known)
    return schema._replace(target_kind=batch_targets.kind, labels=schema.labels + new)


def _check_schema_limits(schema: Schema, limits: Limits) -> None:
    """Raise an error if the schema has too many features or labels."""
    if schema.features > limits.max_features:
        kind = errors.InvalidIndex if schema.layout == "sparse" else errors.LimitExceeded
        raise kind(
            f"the batch would make the stream {schema.features} features wide; at most {limits.max_features} are allowed "
            "(max_features). Check the indices, or raise the limit.",
            needed=schema.features,
            limit=limits.max_features,
        )

    if schema.n_targets > limits.max_labels:
        raise errors.LimitExceeded(
            f"the batch would make {schema.n_targets} labels; at most {limits.max_labels} are allowed (max_labels). "
            "Check the labels, or raise the limit.",
            needed=schema.n_targets,
            limit=limits.max_labels,
        )


def _check_text_lengths(noun: str, texts: Iterable[Label], limits: Limits) -> None:
    """Raise LimitExceeded if a text has too many characters.

    Snapshots and responses repeat these texts.

    noun: what the texts are, for the message.
    """
    longest = max((str(text) for text in texts), key=len, default="")
    if len(longest) > limits.max_text:
        raise errors.LimitExceeded(
            f"the {noun} {longest[:20]}… has {len(longest)} characters; at most {limits.max_text} are allowed "
            "(max_text). Send a shorter one, or raise the limit.",
            needed=len(longest),
            limit=limits.max_text,
        )


class _Placement(NamedTuple):
    """Place of an event in its group.

    The events of a group are written in one transaction.

    Attributes
    ----------
    number : int
        Index of the event in `DraftGroup.events`.
    repeated : bool
        True if an earlier event of the group has the same idempotency key and payload. Then
        `number` is the index of the earlier event, and no second event is written.
    columns_missing : tuple of str
        Columns of the stream's table that are missing in the event's rows.
    """

    number: int
    repeated: bool
    columns_missing: tuple[str, ...] = ()


class DraftGroup:
    """Drafts admitted one by one and written in one transaction.

    If the log or the group has an event with a draft's idempotency key, the draft gets the
    position of that event and is not written again.

    Parameters
    ----------
    log : Log
    schema : Schema
        The stream's schema before the first draft.
    recorded_schema : Schema
        The schema that the log records. `schema` is the same schema, completed by the settings.
    models : sequence of Model
        The models that will learn the drafts.
    limits : Limits
        Limits past which drafts are refused.
    check_removable : callable
        Function that raises an error if the rows of a removal cannot be unlearned.

    Attributes
    ----------
    events : list of EventDraft
        The events to be written.
    drafts : list of Draft
        The draft of each event.
    schema, recorded_schema : Schema
        The parameters `schema` and `recorded_schema`, extended by the accepted drafts.
    """

    def __init__(
        self,
        log: Log,
        schema: Schema,
        recorded_schema: Schema,
        models: Sequence[Model],
        limits: Limits,
        check_removable: Callable[[Removal], None],
    ) -> None:
        self.schema = schema
        self.recorded_schema = recorded_schema
        self.models = models
        self._log = log
        self._limits = limits
        self._check_removable = check_removable

        self.events: list[EventDraft] = []
        self.drafts: list[Draft] = []
        self._keys: dict[str, int] = {}
        self._outcomes: list[Receipt | errors.StreamDRError | _Placement] = []

    def add_or_raise(self, draft: Draft) -> None:
        """Add a draft, or raise the error that refuses it.

        draft: an event that is not in the log yet.
        """
        outcome = self._result_of_same_key(draft) or self._admit_and_list_event(draft)
        self._outcomes.append(outcome._replace(columns_missing=self._missing_columns(draft)))

    def add_unless_refused(self, draft: Draft) -> bool:
        """Add a draft, and return False if it is refused.

        If the draft is refused, its error is not raised. The method `receipts_and_errors` returns
        the error later.

        draft: an event that is not in the log yet.
        """
        try:
            self.add_or_raise(draft)
        except errors.StreamDRError as e:
            self._outcomes.append(errors.remove_stack_frames(e))
        return not isinstance(self._outcomes[-1], errors.StreamDRError)

    def receipts_and_errors(
        self, positions: Sequence[int], write_error: errors.StreamDRError | None = None
    ) -> list[Receipt | errors.StreamDRError]:
        """Return the Receipt or error of each draft, in order.

        positions: positions that the group's events have in the log.
        write_error: error of a write that failed, for all events of the group. None if the events
            were written.
        """
        results: list[Receipt | errors.StreamDRError] = []
        for outcome in self._outcomes:
            if not isinstance(outcome, _Placement):
                results.append(outcome)
            elif write_error is not None:
                results.append(write_error)
            else:
                rows = self.events[outcome.number].rows
                results.append(Receipt(positions[outcome.number], rows, *outcome[1:]))
        return results

    def check(self, draft: Draft) -> DryRunReceipt:
        """Return a draft's receipt without adding the draft.

        A draft is an event that is not in the log yet. Raises the error with which the draft would
        be refused.
        """
        duplicate = self._result_of_same_key(draft) is not None
        if not duplicate:
            self.check_and_extend_schema(draft)
        return DryRunReceipt(draft.rows, duplicate, self._missing_columns(draft))

    def check_and_extend_schema(self, draft: Draft) -> Schema:
        """Return the stream's schema, extended by a draft's rows.

        A draft is an event that is not in the log yet. The draft is not added to this group. Raises
        a StreamDRError if the draft is refused.
        """
        if draft.key is not None and draft.kind != "reference" and draft.key.startswith(REFERENCE):
            raise errors.InvalidParameter(f"idempotency keys may not start with {REFERENCE!r}; choose another.")
        if draft.kind == "unlearn":
            self._check_removable(parse_removal(draft.body))
        return check_block_and_extend_schema(draft.block, self.schema, self.models, self._limits)

    def _missing_columns(self, draft: Draft) -> tuple[str, ...]:
        """Return the stream's table columns that the draft's rows lack."""
        return () if draft.block is None else table_columns_missing_in_batch(draft.block, self.schema)

    def _admit_and_list_event(self, draft: Draft) -> _Placement:
        """Check a draft and list its event to be written.

        A draft is a request that is to be appended to the log as an event. Returns a _Placement,
        which has the event's index in `events`. Raises the error that refuses the draft.
        """
        schema = self.check_and_extend_schema(draft)
        changes = schema_delta(self.recorded_schema, schema)
        self.schema = self.recorded_schema = schema
        if draft.key is not None:
            self._keys[draft.key] = len(self.events)

        self.drafts.append(draft)
        event = EventDraft(draft.kind, draft.key, draft.fingerprint, draft.rows, draft.body, changes, ids=draft.ids)
        self.events.append(event)
        return _Placement(len(self.events) - 1, False)

    def _result_of_same_key(self, draft: Draft) -> Receipt | _Placement | None:
        """Return the result of an earlier draft with the same idempotency key.

        A draft is an event that is not in the log yet.

        Returns

        - a Receipt (position and number of rows), if an event in the log has the key,
        - a _Placement (index of an event), if an event that waits to be appended has the key,
        - None, if the draft has no key or its key is new.

        Raises KeyConflict if the payloads of the two drafts differ.
        """
        if draft.key is None:
            return None

        if draft.key in self._keys:
            number = self._keys[draft.key]
            self._check_same_body(draft, self.events[number].fingerprint)
            return _Placement(number, True)

        known = self._log.find_key(draft.key)
        if known is None:
            return None
        self._check_same_body(draft, known.fingerprint)
        return Receipt(known.position, known.rows, True)

    def _check_same_body(self, draft: Draft, earlier_fingerprint: str) -> None:
        """Raise KeyConflict unless a draft's payload equals an earlier payload.

        earlier_fingerprint: digest of the earlier payload with the same key.
        """
        if draft.fingerprint != earlier_fingerprint:
            raise errors.KeyConflict(
                f"idempotency key {draft.key!r} was used for another body (its digest is {earlier_fingerprint[:12]}…, now "
                f"{draft.fingerprint[:12]}…). Use a new key for new rows."
            )

"""Admit: checks that batches must pass before an append.

A batch must fit

- the stream's schema (layout, columns, kind of targets, type of labels, weights),
- the directory's limits,
- every model that has not failed.

`Schema.extend` compares the batch with the stream. It returns a new Schema, and changes nothing.
Whether all values are finite is checked earlier, when the batch is parsed in the caller's thread.

Once a batch is admitted, learning must not raise an error. So the log has only rows that every
model can learn. There are exceptions, and such a model fails at that event: HSL's clique and star
find out while learning that there are too many label sets. A polynomial map finds out while mapping
that values are too large, or that sparse rows have become wider.

A Draft is an event that is not in the log yet. Drafts are admitted in groups, and each group is
written in one transaction (`DraftGroup`). Each draft is checked against the schema that includes
the accepted drafts before it. A refused draft does not affect the other drafts of its group.

Cost: O(rows + labels) for each batch.
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from stream_dr import errors
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.schema import Schema, schema_delta
from stream_dr.batch.table import columns_by_name, refuse_table, row_of_missing_values
from stream_dr.batch.targets import (
    Label,
    check_label_type,
    class_targets,
    continuous_targets,
    multilabel_targets,
    raise_unsupported_target_kind,
)
from stream_dr.directory.draft import REFERENCE, Draft, DryRunReceipt, Receipt, Removal, parse_removal
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import map_reads_tables
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.nystroem import Nystroem
from stream_dr.feature_maps.table import Table, check_map_can_learn, is_category
from stream_dr.feature_maps.widths import check_max_encoded_columns
from stream_dr.log.event import EventDraft
from stream_dr.log.log import Log
from stream_dr.models.limits import Limits, bound_state_bytes
from stream_dr.models.model import Learner, Model
from stream_dr.projection import check_n_features
from stream_dr.statistics.protocol import Accumulator, State

log = logging.getLogger("stream_dr.admit")

MAX_STEADY_COMPONENTS = 4_096
"""Largest number of components of a model with a steady basis."""

NONE = "none"
"""Target kind of a stream that is set to carry no targets."""


def admit_block(block: Block, schema: Schema, learners: Sequence[Learner], limits: Limits) -> tuple[Schema, Block]:
    """Return the schema with a batch added, and the batch.

    The returned batch has its columns in the order of the schema. Nothing is changed.

    schema: the stream's schema before the batch.
    learners: the models that will learn the batch.

    Raises the error that refuses the batch. Cost: O(rows + labels).
    """
    if block.rows == 0 or (block.features == 0 and not block.sparse):
        raise errors.EmptyInput("the batch has no rows, or rows without features; send at least one of each.")

    # A model of numbers names the column that it cannot learn, in any stream.
    if block.table and not all(map_reads_tables(model.estimator.feature_map) for model in learners):
        refuse_table(block.X)
    new_schema, block = schema.extend(block)
    _check_text_lengths("id", block.ids or (), limits)
    if block.table:
        _check_table_texts(block.X, learners, limits)

    # Every model has accepted the old schema, so check the models only if the new schema differs.
    if new_schema == schema:
        return schema, block
    _check_schema_limits(new_schema, limits)
    _check_text_lengths("label", new_schema.labels[len(schema.labels) :], limits)
    if schema.layout is None:
        _check_text_lengths("column name", new_schema.names or (), limits)

    # The first batch decides the layout, and the first batch with targets decides their kind.
    decides = schema.layout is None or schema.n_targets == 0 < new_schema.n_targets
    for model in learners:
        check_can_learn_stream(model.estimator, new_schema, limits)
        if decides:
            _try_row(model.estimator, new_schema, model.state_if_started_from_saved)
    return new_schema, block


def _check_table_texts(rows: Rows, learners: Sequence[Learner], limits: Limits) -> None:
    """Raise an error if a model cannot learn a table's rows.

    A text that no model takes as a category may have more than `limits.max_text` characters.
    """
    for model in learners:
        check_map_can_learn(feature_map(model.estimator.feature_map), rows)
    for name, column in columns_by_name(rows).items():
        texts = column.dictionary.to_pylist() if isinstance(column, pa.DictionaryArray) else []
        longest = max(texts, key=len, default="")
        if len(longest) > limits.max_text and any(
            is_category(feature_map(model.estimator.feature_map), model.table, name, column) for model in learners
        ):
            _check_text_lengths(f"category of column {name}", [longest], limits)


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
    _check_layout(estimator, schema)
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


def check_can_be_steady(estimator: Estimator) -> None:
    """Raise InvalidParameter if an estimator's basis cannot be steady."""
    name = type(estimator).__name__
    if not estimator.is_linear:
        raise errors.InvalidParameter(
            f'basis="steady" turns components, and those of {name} are columns or sampled rows. Leave basis out, or use a '
            "method with a linear map."
        )
    if isinstance(feature_map(estimator.feature_map), Nystroem):
        raise errors.InvalidParameter(
            'basis="steady" needs mapped columns that keep their meaning, and those of nystroem change with its landmarks. '
            "Use random_fourier, or leave basis out."
        )
    # All these components are published, also those that are zero.
    n_components = estimator.n_components
    is_whole = isinstance(n_components, int) and not isinstance(n_components, bool)
    if not is_whole or n_components > MAX_STEADY_COMPONENTS:  # type: ignore[operator]
        raise errors.InvalidParameter(
            f'basis="steady" needs a whole number of components, at most {MAX_STEADY_COMPONENTS:,}; n_components is '
            f"{n_components!r}. Give n_components."
        )


_FAMILIES = {"number": "number", "date": "date", "time": "date", "text": "text"}
"""Kind of a table's column in the schema, by the kind of the column in the feature map.

If the feature map has another kind, the next batch decides the kind in the schema.
"""


def extend_by_accumulator_schema(
    schema: Schema, accumulator: Accumulator, column_names: tuple[str, ...] | None
) -> Schema:
    """Return the schema, extended by a saved estimator's schema.

    The kind of targets and the labels of the estimator are added. If the stream has no batch yet,
    the names of the estimator's columns are also added.

    accumulator: accumulator of the estimator.
    column_names: names of the estimator's columns, or None.

    Raises TargetKindMismatch or SchemaMismatch. Raises InvalidTargets if the labels have another
    type than the labels of the stream.
    """
    # Check that the estimator fits the stream.
    if None not in (accumulator.target_kind, schema.target_kind) and accumulator.target_kind != schema.target_kind:
        raise errors.TargetKindMismatch(
            f"the saved estimator has learned {accumulator.target_kind} targets; this stream's are {schema.target_kind}."
        )
    check_label_type(schema.labels, accumulator.labels)
    if column_names and schema.names and column_names != schema.names:
        raise errors.SchemaMismatch(
            f"the saved estimator has learned the columns {', '.join(column_names[:5])} …; this stream has "
            f"{', '.join(schema.names[:5])} …, in that order. Serve it in another directory."
        )

    # If the stream has no batch yet, the estimator's columns become the columns of the stream.
    table = accumulator.table
    if table is not None and schema.layout is None:
        kinds = tuple(_FAMILIES.get(column.kind, "") for column in table.columns)
        schema = schema._replace(layout="table", features=len(kinds), names=table.names, kinds=kinds, stated=0)
    elif column_names and schema.layout is None:
        schema = schema._replace(layout="named", features=len(column_names), names=column_names, stated=0)

    schema = schema._replace(target_kind=schema.target_kind or accumulator.target_kind)
    return schema.add_labels(accumulator.labels)


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
        _try_row(estimator, new_schema, accumulator.freeze())


def _check_layout(estimator: Estimator, schema: Schema) -> None:
    """Raise SchemaMismatch if the estimator cannot learn the stream's layout.

    The rows of a table need an estimator with a feature map for tables. Sparse rows need an
    estimator without such a feature map.
    """
    if map_reads_tables(estimator.feature_map) and schema.layout == "sparse":
        raise errors.SchemaMismatch(
            "this stream's rows are sparse, and the feature map takes a table's columns. Leave it out."
        )
    if schema.layout == "table":
        mapping = feature_map(estimator.feature_map)
        check_map_can_learn(mapping, row_of_missing_values(schema.families))
        if estimator.stored_scatter() == "exact" and isinstance(mapping, Table):
            check_max_encoded_columns(mapping, schema.families)


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


def _try_row(estimator: Estimator, schema: Schema, initial_state: State | None) -> None:
    """Raise an error if an estimator cannot learn a stream's rows.

    A temporary accumulator learns a row of zeros. For example, a feature map may need a column of
    texts, and a saved estimator the number of columns that it has learned.

    initial_state: state from which the accumulator continues. None to start without learned rows.

    Any error that is no StreamDRError is only logged.
    """
    # Rows that a feature map identifies by name may have other columns than the learned rows.
    by_name = schema.layout == "named" and estimator.identifies_columns_by_name()
    if initial_state is not None and initial_state.n_features and schema.layout in ("dense", "named") and not by_name:
        check_n_features(schema.features, initial_state.n_features, "the saved estimator")
    try:
        row = _zero_row(schema)
        estimator.accumulator(initial_state).add(estimator.block_to_learn(row))
    except errors.StreamDRError:
        raise
    except Exception:
        log.exception("%s could not try a row; it will fail when it learns one", type(estimator).__name__)


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


def _zero_row(schema: Schema) -> Block:
    """Return a Block of one row that fits a schema.

    The row has the stream's layout. Its values are zeros, or all missing for the row of a table.
    Its target is the stream's first label, or zeros if targets are continuous.
    """
    X: Rows = np.zeros((1, schema.features))
    if schema.layout == "sparse":
        X = csr_matrix(X.shape)
    elif schema.layout == "table":
        X = row_of_missing_values(schema.families)

    y = None
    if schema.outputs:
        y = continuous_targets(np.zeros((1, schema.outputs)))
    elif schema.labels:
        label = schema.labels[:1]
        y = multilabel_targets([label]) if schema.target_kind == "multilabel" else class_targets(label)
    weights = np.ones(1) if schema.weighted else None
    return schema.conform(Block(X, y, weights, names=schema.names))


@cache
def can_learn_weights(estimator_class: type[Estimator]) -> bool:
    """Return True if an estimator class can learn weighted rows.

    The `partial_fit` of such a class has the argument `sample_weight`.

    estimator_class: the estimator class.
    """
    return "sample_weight" in inspect.signature(estimator_class.partial_fit).parameters


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

    @property
    def unlearns(self) -> bool:
        """True if one of the events unlearns rows."""
        return any(event.kind == "unlearn" for event in self.events)

    def add_or_raise(self, draft: Draft) -> None:
        """Add a draft, or raise the error that refuses it.

        draft: an event that is not in the log yet.
        """
        outcome = self._result_of_same_key(draft) or self._admit_and_list_event(draft)
        self._outcomes.append(outcome._replace(columns_missing=self.schema.missing_columns(draft.block)))

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
            self._extend_schema(draft)
        return DryRunReceipt(draft.rows, duplicate, self.schema.missing_columns(draft.block))

    def _extend_schema(self, draft: Draft) -> tuple[Schema, Block | None]:
        """Return the schema with a draft's rows added, and the rows.

        The rows have their columns in the order of the schema. The draft is not added to this
        group. Raises a StreamDRError if the draft is refused.
        """
        if draft.key is not None and draft.kind != "reference" and draft.key.startswith(REFERENCE):
            raise errors.InvalidParameter(f"idempotency keys may not start with {REFERENCE!r}; choose another.")
        if draft.kind == "unlearn":
            self._check_removable(parse_removal(draft.body))
        if draft.block is None:
            return self.schema, None
        return admit_block(draft.block, self.schema, self.models, self._limits)

    def _admit_and_list_event(self, draft: Draft) -> _Placement:
        """Check a draft and list its event to be written.

        A draft is a request that is to be appended to the log as an event. Returns a _Placement,
        which has the event's index in `events`. Raises the error that refuses the draft.
        """
        schema, block = self._extend_schema(draft)
        changes = schema_delta(self.recorded_schema, schema)
        self.schema = self.recorded_schema = schema
        if draft.key is not None:
            self._keys[draft.key] = len(self.events)

        self.drafts.append(draft._replace(block=block))
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

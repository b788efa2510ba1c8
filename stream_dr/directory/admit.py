"""Admit: everything that can refuse a batch, decided before it is written down.

A batch must fit the stream's schema (layout, columns, kind of targets, type of labels, weights), the directory's limits, and
every model that has not failed. What it adds to the schema (new labels, new features, what the first batch decides) is
returned as the next Schema; nothing is changed. Finite values were checked when the draft was made, in the caller's thread.
Drafts are admitted in groups, to be written in one transaction (`Group`): each against the schema as the accepted ones
before it left it; a refused one does not affect the others, and an idempotency key that came before, in the log or in the
group, gets its first position back.

Some models keep sums per distinct label set, up to a limit; a batch that would exceed it is refused. Counted are the sets in
the model's state and those that this process has admitted since; sets that an earlier process admitted are counted once the
model has applied them.

Cost: O(rows + labels) a batch; where label sets are bounded O(sets) near the bound.

Why this way: after admit has accepted a batch, advancing must not raise: a row is in the log only if every model can learn
it. A model is asked again only when the schema changes, since it accepted the old one; the batches that decide the stream's
layout and kind of targets are also tried: a throw-away accumulator of each model, going on from what a saved estimator had
learned, learns a few of their rows. The cost of a durable write is shared by all that wait for it.
"""

import inspect
import logging
from collections.abc import Callable, Sequence, Set
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from stream_dr.directory.draft import REFERENCE, Draft, DryRunReceipt, Receipt, Removal, removal_of
from stream_dr.errors import (
    EmptyInput,
    InvalidIndex,
    InvalidParameter,
    InvalidTargets,
    InvalidWeights,
    KeyConflict,
    LimitExceeded,
    SchemaMismatch,
    StreamDRError,
    TargetKindMismatch,
    TooManyFeatures,
    WidthMismatch,
    without_frames,
)
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import check_table, check_table_width, takes_tables
from stream_dr.log.event import EventDraft, same
from stream_dr.log.log import Log
from stream_dr.models.model import Learner, Model
from stream_dr.models.schema import (
    Limits,
    Schema,
    bytes_needed,
    check_stated,
    columns_in_order,
    columns_missing,
    delta,
    learned_by,
    table_of,
    with_table,
)
from stream_dr.rows.block import Block
from stream_dr.statistics.protocol import State
from stream_dr.targets.targets import (
    Label,
    Targets,
    all_absent,
    check_allowed,
    check_label_type,
    labelled_rows,
    refuse_kind,
)

log = logging.getLogger("stream_dr.admit")

TRIED = 2
"""Rows with targets of the deciding batch that are tried. What is refused for its numbers or its labels is asked of every
batch elsewhere; this is about what kind of rows they are."""

NONE = "none"
"""The kind of a stream that is set to carry no targets."""


def admit_block(block: Block | None, schema: Schema, models: Sequence[Learner], limits: Limits) -> Schema:
    """Return the schema once the block is in, or raise the error that refuses it. O(rows + labels)."""
    if block is None:
        return schema
    if block.rows == 0 or (block.features == 0 and not block.sparse):
        raise EmptyInput("the batch has no rows, or rows without features; send at least one of each.")
    block = block if schema.layout is None else columns_in_order(block, schema)
    for model in models if block.table else ():
        check_table(model.estimator, block.X)
    grown = _with_targets(block.y, _with_weights(block, _with_rows(block, schema)))
    if grown == schema:
        return schema
    _check_limits(grown, limits)
    first_targets = schema.n_targets == 0 < grown.n_targets
    decides = schema.layout is None or schema.target_kind != grown.target_kind or first_targets
    for model in models:
        admit_model(model.estimator, grown, limits)
        if decides:
            try_batch(model.estimator, columns_in_order(block, grown), model.begun)
    return grown


def admit_model(estimator: Estimator, schema: Schema, limits: Limits) -> None:
    """Raise what keeps an estimator from learning a stream of this schema.

    TargetKindMismatch, InvalidWeights (a recurrence on a weighted stream), LimitExceeded (its state's bytes), or what
    the estimator's own `state_bytes` raises.
    """
    if schema.weighted and not takes_weights(type(estimator)):
        raise InvalidWeights(
            f"this stream's batches carry weights; {type(estimator).__name__} is a recurrence that takes none. "
            "Use an additive estimator, or send batches without weights to another stream."
        )
    _check_rows(estimator, schema)
    _check_kind(estimator, schema.target_kind)
    _check_width(estimator, schema)
    solving = estimator.solve_bytes()
    needed = bytes_needed(estimator, schema) + solving
    if needed > limits.max_state_bytes:
        raise LimitExceeded(
            f"{type(estimator).__name__} would need {needed} bytes for {schema.features} features and {schema.n_targets} "
            f"targets, {solving} of them to be solved; at most {limits.max_state_bytes} are allowed (max_state_bytes). "
            "Delete the model if it is there, or allow more.",
            needed=needed,
            limit=limits.max_state_bytes,
        )


def _check_rows(estimator: Estimator, schema: Schema) -> None:
    """Raise SchemaMismatch for a table without a map for it, and for sparse rows with one."""
    if takes_tables(estimator) and schema.layout == "sparse":
        raise SchemaMismatch(
            "this stream's rows are sparse, and the feature map takes a table's columns. Leave it out."
        )
    if (columns := table_of(schema)) is not None:
        check_table(estimator, columns)
        check_table_width(estimator, dict(zip(columns.names, schema.kinds or (), strict=True)))


def _check_width(estimator: Estimator, schema: Schema) -> None:
    """Raise TooManyFeatures where an estimator says up to which width it learns, and the stream is wider."""
    if schema.layout is None or not hasattr(estimator, "widest"):
        return
    widest = estimator.widest(schema.layout == "sparse", schema.stated)
    if widest is not None and schema.features > widest:
        raise TooManyFeatures(
            f"{type(estimator).__name__} keeps exact scatter of up to {widest} features; the stream would have "
            f'{schema.features}. Make the model with scatter="diagonal".',
            needed=schema.features,
            limit=widest,
        )


def try_batch(estimator: Estimator, block: Block, state: State = None) -> None:
    """Let a new accumulator, or one that goes on from `state`, learn a few rows of the batch that decides what the stream
    is, and forget them. Raises what refuses them."""
    try:
        estimator.accumulator(state).add(learned_by(estimator, _few(block)))
    except StreamDRError:
        raise
    except Exception:
        log.exception("%s could not try the first batch; it will fail when it learns it", type(estimator).__name__)


def _few(block: Block) -> Block:
    """The block's first TRIED rows, of those with targets where it has any."""
    if block.y is not None and not all_absent(block.y):
        block = labelled_rows(block)[0]
    return block.take(np.arange(min(TRIED, block.rows)))


def _check_kind(estimator: Estimator, kind: str | None) -> None:
    if kind is None or not estimator.target_kinds:
        return
    if kind == NONE:
        raise TargetKindMismatch(
            f"this stream is set to carry no targets; {type(estimator).__name__} learns from "
            f"{' or '.join(estimator.target_kinds)} targets. Use an unsupervised estimator, or another stream."
        )
    if kind not in estimator.target_kinds:
        refuse_kind(kind, estimator.target_kinds)
    if (wanted := getattr(estimator, "target", "auto")) not in ("auto", kind):
        raise TargetKindMismatch(
            f"this stream's targets are of kind {kind}; the model was made with target={wanted!r}."
        )


@cache
def takes_weights(kind: type[Estimator]) -> bool:
    """Whether an estimator class learns with weights; those that do have the argument."""
    return "sample_weight" in inspect.signature(kind.partial_fit).parameters


def _with_rows(block: Block, schema: Schema) -> Schema:
    layout = "sparse" if block.sparse else "named" if block.names else "dense"
    if block.table:
        return with_table(block.X, schema)
    if schema.layout is None:
        check_stated(block, schema.stated)
        stated = max(schema.stated, block.features if block.width_stated else 0) if block.sparse else 0
        return schema._replace(layout=layout, features=max(block.features, stated), names=block.names, stated=stated)
    if layout != schema.layout:
        raise SchemaMismatch(
            f"the batch's rows are {layout}; this stream was started with {schema.layout} rows. "
            "Send those, or start a new stream."
        )
    if not block.sparse and block.features != schema.features:
        raise WidthMismatch(
            f"batch has {block.features} features; this stream was started with {schema.features}. "
            "Send those columns or start a new stream.",
            given=block.features,
            needed=schema.features,
        )
    return schema._replace(features=max(schema.features, block.features))


def _with_weights(block: Block, schema: Schema) -> Schema:
    given = block.weights is not None
    if schema.weighted is None:
        return schema._replace(weighted=given)
    if schema.weighted != given:
        says = "carry weights" if schema.weighted else "carry no weights"
        raise InvalidWeights(f"this stream's batches {says}, as its first batch decided; send this one likewise.")
    return schema


def _with_targets(targets: Targets | None, schema: Schema) -> Schema:
    if targets is None or all_absent(targets):
        return schema
    if schema.target_kind not in (None, targets.kind):
        raise TargetKindMismatch(
            f"targets are of kind {targets.kind}; this stream was started with {schema.target_kind}. "
            f"Send {schema.target_kind} targets (Client.partial_fit: target={schema.target_kind!r}) or start a new stream."
        )
    if targets.values is not None:
        return _with_outputs(targets.values.shape[1], schema)
    check_label_type(schema.labels or schema.allowed_labels, targets.labels)
    check_allowed(schema.allowed_labels, targets.labels)
    known = set(schema.labels)
    new = tuple(label for label in targets.labels if label not in known)
    return schema._replace(target_kind=targets.kind, labels=schema.labels + new)


def _with_outputs(outputs: int, schema: Schema) -> Schema:
    if schema.outputs not in (0, outputs):
        raise InvalidTargets(
            f"targets have {outputs} columns; this stream was started with {schema.outputs}. Send those."
        )
    return schema._replace(target_kind="continuous", outputs=outputs)


def _check_limits(schema: Schema, limits: Limits) -> None:
    if schema.features > limits.max_features:
        kind = InvalidIndex if schema.layout == "sparse" else LimitExceeded
        raise kind(
            f"the batch would make the stream {schema.features} features wide; at most {limits.max_features} are allowed "
            "(max_features). Check the indices, or raise the limit.",
            needed=schema.features,
            limit=limits.max_features,
        )
    if schema.n_targets > limits.max_labels:
        raise LimitExceeded(
            f"the batch would make {schema.n_targets} labels; at most {limits.max_labels} are allowed (max_labels). "
            "Check the labels, or raise the limit.",
            needed=schema.n_targets,
            limit=limits.max_labels,
        )


MetSets = Set[frozenset[Label]]
"""Distinct, non-empty sets of labels."""


class _Place(NamedTuple):
    """Where a draft stands: the number of its event in the group, whether it repeats an earlier one, and as in a receipt."""

    number: int
    repeated: bool
    columns_missing: tuple[str, ...] = ()


class Group:
    """One group commit. schema: as the drafts find it; written: the same without the settings, as the log has it. models:
    that learn. admitted: label sets admitted for each model, by its id, and perhaps not in its state yet. removable:
    raises what keeps rows from being taken out. Attributes: events, drafts (those of
    the events), schema, written, label_sets (of the drafts)."""

    def __init__(
        self,
        log: Log,
        schema: Schema,
        written: Schema,
        models: Sequence[Model],
        limits: Limits,
        admitted: dict[int, set[frozenset[Label]]],
        removable: Callable[[Removal], None],
    ) -> None:
        self.schema, self.written, self.models = schema, written, models
        self._log, self._limits, self._admitted, self._removable = log, limits, admitted, removable
        self.events: list[EventDraft] = []
        self.drafts: list[Draft] = []
        self.label_sets: set[frozenset[Label]] = set()
        self._keys: dict[str, int] = {}
        self._placed: list[Receipt | StreamDRError | _Place] = []

    def put(self, draft: Draft) -> None:
        """Admit a draft. Raises what refuses it."""
        placed = self._known(draft) or self._place(draft)
        self._placed.append(placed._replace(columns_missing=self._missing(draft)))

    def add(self, draft: Draft) -> bool:
        """Admit a draft; False where it was refused."""
        try:
            self.put(draft)
        except StreamDRError as e:
            self._placed.append(without_frames(e))
        return not isinstance(self._placed[-1], StreamDRError)

    def answers(self, positions: Sequence[int], error: StreamDRError | None = None) -> list[Receipt | StreamDRError]:
        """What became of each draft, once the events have positions, or an error kept them from it."""
        return [
            p if isinstance(p, Receipt | StreamDRError) else error or self._receipt(p, positions) for p in self._placed
        ]

    def check(self, draft: Draft) -> DryRunReceipt:
        """Raise what refuses this draft, else say what its receipt would; change nothing."""
        duplicate = self._known(draft) is not None
        if not duplicate:
            self.admit(draft)
        return DryRunReceipt(draft.rows, duplicate, self._missing(draft))

    def admit(self, draft: Draft) -> tuple[Schema, MetSets]:
        """The schema once this draft is in, and its distinct label sets. Raises what refuses it."""
        if draft.key is not None and draft.kind != "reference" and draft.key.startswith(REFERENCE):
            raise InvalidParameter(f"idempotency keys may not start with {REFERENCE!r}; choose another.")
        if draft.kind == "unlearn":
            self._removable(removal_of(draft.body))
        schema = admit_block(draft.block, self.schema, self.models, self._limits)
        return schema, self._check_label_sets(draft, schema)

    def _missing(self, draft: Draft) -> tuple[str, ...]:
        return () if draft.block is None else columns_missing(draft.block, self.schema)

    def _receipt(self, placed: _Place, positions: Sequence[int]) -> Receipt:
        return Receipt(positions[placed.number], self.events[placed.number].rows, *placed[1:])

    def _place(self, draft: Draft) -> _Place:
        schema, sets = self.admit(draft)
        changes = delta(self.written, schema)
        self.schema = self.written = schema
        self.label_sets |= sets
        if draft.key is not None:
            self._keys[draft.key] = len(self.events)
        self.drafts.append(draft)
        event = EventDraft(draft.kind, draft.key, draft.fingerprint, draft.rows, draft.body, changes, ids=draft.ids)
        self.events.append(event)
        return _Place(len(self.events) - 1, False)

    def _known(self, draft: Draft) -> Receipt | _Place | None:
        """What is known of the draft's key. Raises KeyConflict."""
        if draft.key is None:
            return None
        if draft.key in self._keys:
            number = self._keys[draft.key]
            self._same_body(draft, self.events[number].fingerprint)
            return _Place(number, True)
        found = self._log.find_key(draft.key)
        if found is None:
            return None
        self._same_body(draft, found.fingerprint)
        return Receipt(found.position, found.rows, True)

    def _same_body(self, draft: Draft, fingerprint: str) -> None:
        if draft.fingerprint != fingerprint and not (draft.kind == "rows" and same(draft.body, fingerprint)):
            raise KeyConflict(
                f"idempotency key {draft.key!r} was used for another body (its digest is {fingerprint[:12]}…, now "
                f"{draft.fingerprint[:12]}…). Use a new key for new rows."
            )

    def _check_label_sets(self, draft: Draft, schema: Schema) -> MetSets:
        """The batch's label sets, where a model keeps sums of them; else none. Raises LimitExceeded."""
        sparse = schema.layout == "sparse"
        bounds = [(m, m.estimator.most_label_sets(schema.features, sparse)) for m in self.models]
        bounded = [(model, most) for model, most in bounds if most is not None]
        if not bounded or draft.block is None:
            return frozenset()
        given = frozenset() if draft.block.y is None else draft.block.y.label_sets()
        for model, most in bounded:
            self._check_bound(model, given, most)
        return given

    def _check_bound(self, model: Model, given: MetSets, most: int) -> None:
        admitted: set[frozenset[Label]] = self._admitted.get(model.id, set())
        learner: Any = getattr(model.accumulator, "inner", model.accumulator)
        if learner.label_set_count + len(admitted) + len(self.label_sets) + len(given) <= most:
            return
        known = learner.label_sets() | admitted | self.label_sets
        needed = len(known | given)
        if needed > most and not given <= known:
            raise LimitExceeded(
                f"the batch would make {needed} distinct label sets; model {model.name!r} keeps sums of each, of "
                f"at most {most} at this width. Use a method or parameters that need none, or remove the model.",
                needed=needed,
                limit=most,
            )

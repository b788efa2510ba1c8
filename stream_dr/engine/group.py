"""Group: drafts that are admitted one after the other, to be written in one transaction.

Each draft is admitted against the schema that those before it have left. One that is refused leaves the others alone, and
a key that came before, in the log or in this group, is answered with its first position.

Some models keep sums for each distinct label set, of so many at most; a batch that would make more is refused before it is
in the log, for what advancing would refuse must not be there. The sets such a model will have met once it has applied the
log are those in its state and those admitted since, which the directory counts; those of events that an earlier process
admitted are not known until the model has met them.

Cost: O(rows + labels) a batch; where label sets are bounded O(sets) near the bound.

Why this way: the cost of a durable write is shared by all that wait for it, and the answers are those of drafts that came
one by one. A group changes nothing: the directory takes over what it has come to, once that is in the log.
"""

from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from stream_dr.engine.admit import admit
from stream_dr.engine.draft import REFERENCE, Draft, Receipt, Removal, removal_of
from stream_dr.engine.model import Model
from stream_dr.engine.schema import Limits, Schema, delta
from stream_dr.errors import InvalidParameter, KeyConflict, LimitExceeded, StreamDRError, without_frames
from stream_dr.log.event import EventDraft, same
from stream_dr.log.log import Log
from stream_dr.targets import Label, Targets

LabelSets = Set[frozenset[Label]]
"""Distinct, non-empty sets of labels."""


class _Place(NamedTuple):
    """Where a draft stands: the number of its event in the group, and whether it repeats an earlier one."""

    number: int
    repeated: bool


class Group:
    """One group commit. schema: as the drafts find it; written: the same without the settings, as the log has it. models:
    that learn. admitted: label sets admitted for each model, by its id, and perhaps not in its state yet. removable:
    raises what keeps rows from being taken out. Attributes: events, drafts (those of the events), schema, written,
    label_sets (of the drafts)."""

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

    def add(self, draft: Draft) -> bool:
        """Admit a draft; False where it was refused."""
        try:
            self._placed.append(self._known(draft) or self._place(draft))
        except StreamDRError as e:
            self._placed.append(without_frames(e))
        return not isinstance(self._placed[-1], StreamDRError)

    def answers(self, positions: Sequence[int], error: StreamDRError | None = None) -> list[Receipt | StreamDRError]:
        """What became of each draft, once the events have positions, or an error kept them from it."""
        return [
            p if isinstance(p, Receipt | StreamDRError) else error or self._receipt(p, positions) for p in self._placed
        ]

    def admit(self, draft: Draft) -> tuple[Schema, LabelSets]:
        """The schema once this draft is in, and its distinct label sets. Raises what refuses it."""
        if draft.key is not None and draft.kind != "reference" and draft.key.startswith(REFERENCE):
            raise InvalidParameter(f"idempotency keys may not start with {REFERENCE!r}; choose another.")
        if draft.kind == "unlearn":
            self._removable(removal_of(draft.body))
        schema = admit(draft, self.schema, [m.estimator for m in self.models], self._limits)
        return schema, self._check_label_sets(draft, schema)

    def _receipt(self, placed: _Place, positions: Sequence[int]) -> Receipt:
        return Receipt(positions[placed.number], self.events[placed.number].rows, placed.repeated)

    def _place(self, draft: Draft) -> _Place:
        schema, sets = self.admit(draft)
        changes = delta(self.written, schema)
        self.schema = self.written = schema
        self.label_sets |= sets
        if draft.key is not None:
            self._keys[draft.key] = len(self.events)
        self.drafts.append(draft)
        self.events.append(EventDraft(draft.kind, draft.key, draft.fingerprint, draft.rows, draft.body, changes))
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

    def _check_label_sets(self, draft: Draft, schema: Schema) -> LabelSets:
        """The batch's label sets, where a model keeps sums of them; else none. Raises LimitExceeded."""
        sparse = schema.layout == "sparse"
        bounds = [(m, m.estimator.most_label_sets(schema.features, sparse)) for m in self.models]
        bounded = [(model, most) for model, most in bounds if most is not None]
        if not bounded or draft.block is None:
            return frozenset()
        given = label_sets(draft.block.y)
        for model, most in bounded:
            self._check_bound(model, given, most)
        return given

    def _check_bound(self, model: Model, given: LabelSets, most: int) -> None:
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


def label_sets(targets: Targets | None) -> LabelSets:
    """The distinct, non-empty label sets of a batch's rows; none where targets are not labels."""
    if targets is None or targets.values is not None:
        return frozenset()
    if targets.indptr is None:
        codes = targets.codes if targets.present is None else targets.codes[targets.present]
        return {frozenset((targets.labels[c],)) for c in np.unique(codes).tolist()}
    codes, at = targets.codes.tolist(), targets.indptr.tolist()
    sets = {tuple(codes[at[i] : at[i + 1]]) for i in range(targets.rows)} - {()}
    return {frozenset(targets.labels[c] for c in s) for s in sets}

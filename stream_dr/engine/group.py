"""Group: drafts that are admitted one after the other and written in one transaction.

Each draft is admitted against the schema that those before it have left. One that is refused leaves the others alone, and
a key that came before, in the log or in this group, is answered with its first position.

Why this way: the cost of a durable write is shared by all that wait for it, and the answers are those of drafts that came
one by one.
"""

from collections.abc import Sequence
from typing import Any

from stream_dr.engine.admit import admit
from stream_dr.engine.draft import REFERENCE, Draft, Receipt
from stream_dr.engine.history import check_removable
from stream_dr.engine.label_sets import LabelSets
from stream_dr.engine.needs import going_on
from stream_dr.engine.schema import Schema, delta
from stream_dr.engine.unlearn import removal_of
from stream_dr.errors import InsufficientStorage, InvalidParameter, KeyConflict, StreamDRError, without_frames
from stream_dr.log.event import EventDraft, same


class Group:
    """One group commit: drafts admitted one after the other against a schema that grows with them; all of them, or those up
    to the first that is refused."""

    def __init__(self, directory: Any, drafts: Sequence[Draft], up_to_refusal: bool = False) -> None:
        self.directory, self.drafts, self.up_to_refusal = directory, drafts, up_to_refusal
        self.schema, self.written = directory.schema, directory.written
        self.models = list(going_on(directory))
        self.events: list[EventDraft] = []
        self.admitted: list[Draft] = []
        self.keys: dict[str, int] = {}

    def write(self) -> list[Receipt | StreamDRError]:
        """Answers to the drafts that were looked at; the events are in the log on return."""
        full = self._storage()
        self.directory.label_sets.settle(appended=False)  # of a group that an error nobody foresaw ended
        placed: list[Any] = []
        for draft in self.drafts:
            placed.append(full or self._place(draft))
            if self.up_to_refusal and isinstance(placed[-1], StreamDRError):
                break
        positions: list[int] = []
        if self.events:
            try:
                positions = self.directory.log.append(self.events)
            except InsufficientStorage as e:
                full = without_frames(e)
                return self._up_to_refusal([p if isinstance(p, StreamDRError | Receipt) else full for p in placed])
            finally:
                self.directory.label_sets.settle(appended=bool(positions))
            self.directory.schema, self.directory.written = self.schema, self.written
            for model in self.models:
                model.goal = positions[-1]
            self._hold(positions)
        return [self._answer(p, positions) for p in placed]

    def admit(self, draft: Draft) -> tuple[Schema, LabelSets]:
        """The schema once this draft is in, and its distinct label sets. Raises what refuses it."""
        if draft.key is not None and draft.kind != "reference" and draft.key.startswith(REFERENCE):
            raise InvalidParameter(f"idempotency keys may not start with {REFERENCE!r}; choose another.")
        if draft.kind == "unlearn":
            check_removable(self.directory, removal_of(draft.body))
        schema = admit(draft, self.schema, [m.estimator for m in self.models], self.directory.limits)
        return schema, self.directory.label_sets.check(draft.block, schema, self.models)

    def _place(self, draft: Draft) -> "Receipt | StreamDRError | tuple[int, bool]":
        """A finished answer, or (number of its event in this group, whether it repeats one of this group)."""
        try:
            known = self._known(draft)
            if known is not None:
                return known
            schema, sets = self.admit(draft)
        except StreamDRError as e:
            return without_frames(e)
        changes = delta(self.written, schema)
        self.schema = self.written = schema
        self.directory.label_sets.add(sets, self.models)
        if draft.key is not None:
            self.keys[draft.key] = len(self.events)
        self.admitted.append(draft)
        self.events.append(EventDraft(draft.kind, draft.key, draft.fingerprint, draft.rows, draft.body, changes))
        return len(self.events) - 1, False

    def _known(self, draft: Draft) -> "Receipt | tuple[int, bool] | None":
        """What is known of the draft's key."""
        if draft.key is None:
            return None
        if draft.key in self.keys:
            event = self.events[self.keys[draft.key]]
            self._same_body(draft, event.fingerprint)
            return self.keys[draft.key], True
        found = self.directory.log.find_key(draft.key)
        if found is None:
            return None
        position, fingerprint, rows = found
        self._same_body(draft, fingerprint)
        return Receipt(position, rows, True)

    def _same_body(self, draft: Draft, fingerprint: str) -> None:
        if draft.fingerprint != fingerprint and not (draft.kind == "rows" and same(draft.body, fingerprint)):
            raise KeyConflict(
                f"idempotency key {draft.key!r} was used for another body (its digest is {fingerprint[:12]}…, now "
                f"{draft.fingerprint[:12]}…). Use a new key for new rows."
            )

    def _answer(self, placed: Any, positions: list[int]) -> Receipt | StreamDRError:
        if isinstance(placed, tuple) and not isinstance(placed, Receipt):
            number, repeated = placed
            return Receipt(positions[number], self.events[number].rows, repeated)
        return placed

    def _hold(self, positions: list[int]) -> None:
        if self.directory.recent is not None:
            for position, draft in zip(positions, self.admitted, strict=True):
                self.directory.recent.put(position, draft)

    def _up_to_refusal(self, answers: list[Receipt | StreamDRError]) -> list[Receipt | StreamDRError]:
        if not self.up_to_refusal:
            return answers
        refused = next(i for i, answer in enumerate(answers) if isinstance(answer, StreamDRError))
        return answers[: refused + 1]

    def _storage(self) -> InsufficientStorage | None:
        needed = self.directory.limits.min_free_bytes
        free = self.directory.room.free(needed, sum(draft.size for draft in self.drafts))
        if free >= needed:
            return None
        return InsufficientStorage(
            f"{free} bytes free on the disk of {self.directory.path}; {needed} are needed (min_free_bytes). Make room."
        )

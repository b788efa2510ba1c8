"""Unlearn: rows are taken out again by an event of the log, so every model and every rebuild sees it at the same
position.

The event names positions and row numbers; ids were looked up before it was appended. A model whose state is a sum
subtracts those rows; any other is rebuilt from the log up to the event without them (and without what earlier events
took out). A sum under decay subtracts whole events that are its oldest or its newest; rows from between have made those
before them older, which no subtraction undoes, so it is rebuilt.

Cost: subtracting costs as much as learning those rows; rebuilding, as much as learning the log again.

Why this way: the log says what was taken out and when, so nothing else has to be remembered to come back to the same
state.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from stream_dr.block import Block
from stream_dr.engine.model import Model
from stream_dr.log.event import Body
from stream_dr.targets import all_absent, labelled_rows

Removal = dict[int, Sequence[int] | None]
"""Position → row numbers within that event (None: all)."""

LEAST = 1e-3
"""Share of its weight that a decayed sum must keep when its newest rows are subtracted; below, it is rebuilt."""


class History(Protocol):
    """What advancing may need beyond the event: the log's past, and a place to write a failure down."""

    def remaining(self, after: int, until: int) -> Iterator[tuple[int, Block]]:
        """(position, Block), for after < position ≤ until, of the rows that unlearn events up to `until` have left."""
        ...

    def picked(self, removal: Removal, after: int, until: int) -> Iterator[Block]:
        """The Blocks of the rows a removal at `until` names, of events past `after`, less what was taken out before
        it."""
        ...

    def remember_failure(self, model: Model) -> None:
        """Write a model's failure down."""
        ...


def removal_of(body: Body) -> Removal:
    """The Removal in an unlearn event's body."""
    return {int(position): rows for position, rows in json.loads(bytes(body))["rows"].items()}


def take_out(model: Model, position: int, removal: Removal, history: History) -> None:
    """Apply the unlearn event at `position` to a model: subtract, or rebuild."""
    if subtracts(model.estimator):
        for block in history.picked(removal, model.start - 1, position):
            model.accumulator.remove(learned_by(model.estimator, block))
    elif not (model.estimator.additive and _take_from_an_end(model, position, removal, history)):
        _rebuild(model, position, history)


def _rebuild(model: Model, position: int, history: History) -> None:
    accumulator = model.estimator.accumulator()
    for _, block in history.remaining(model.start - 1, position):
        accumulator.add(learned_by(model.estimator, block))
    model.accumulator = accumulator


def _take_from_an_end(model: Model, position: int, removal: Removal, history: History) -> bool:
    """Subtract the oldest or the newest events from a decayed sum; False where they are neither, or would leave too few
    digits: what was subtracted until then is of no use."""
    events = sorted(p for p in removal if p >= model.start)
    oldest = next(history.remaining(model.start - 1, position), None)
    if not events or oldest is None:
        return not events
    if oldest[0] > events[-1]:
        return _subtract(model, events, position, removal, history, newest=False)
    if next(history.remaining(events[0] - 1, position), None) is None:
        return _subtract(model, events[::-1], position, removal, history, newest=True)
    return False


def _subtract(
    model: Model, events: Sequence[int], position: int, removal: Removal, history: History, newest: bool
) -> bool:
    """Subtract events in this order, each then the newest or the oldest; False where too little weight would remain."""
    left = 1.0
    for event in events:
        for block in history.picked({event: removal[event]}, model.start - 1, position):
            given = learned_by(model.estimator, block)
            rows = labelled_rows(given)[0].rows if model.estimator.target_kinds else given.rows
            left *= model.estimator.decay**rows if newest else 1.0
            if left < LEAST:
                return False
            model.accumulator.remove(given, age=0 if newest else model.accumulator.rows - rows)
    return True


def learned_by(estimator: Any, block: Block) -> Block:
    """The block as the estimator takes it: without targets when it is unsupervised, or no row has one, of whatever kind."""
    if block.y is None or (estimator.target_kinds and not all_absent(block.y)):
        return block
    return block._replace(y=None)


def subtracts(estimator: Any) -> bool:
    """Whether rows can be subtracted as they are: a sum whose rows do not weigh less with age."""
    return bool(estimator.additive) and getattr(estimator, "decay", 1.0) == 1.0

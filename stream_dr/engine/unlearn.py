"""Unlearn: rows are taken out again by an event of the log, so every model and every rebuild sees it at the same
position.

The event names positions and row numbers; ids were looked up before it was appended. A model whose state is a sum
subtracts those rows; any other is rebuilt from the log up to the event without them (and without what earlier events
took out).

Cost: subtracting costs as much as learning those rows; rebuilding, as much as learning the log again.

Why this way: the log says what was taken out and when, so nothing else has to be remembered to come back to the same
state.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from stream_dr.block import Block
from stream_dr.engine.model import Model

Removal = dict[int, Sequence[int] | None]
"""Position → row numbers within that event (None: all)."""


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


def removal_of(body: bytes) -> Removal:
    """The Removal in an unlearn event's body."""
    return {int(position): rows for position, rows in json.loads(body)["rows"].items()}


def take_out(model: Model, position: int, removal: Removal, history: History) -> None:
    """Apply the unlearn event at `position` to a model: subtract, or rebuild."""
    if subtracts(model.estimator):
        for block in history.picked(removal, model.start - 1, position):
            model.accumulator.remove(learned_by(model.estimator, block))
        return
    accumulator = model.estimator.accumulator()
    for _, block in history.remaining(model.start - 1, position):
        accumulator.add(learned_by(model.estimator, block))
    model.accumulator = accumulator


def learned_by(estimator: Any, block: Block) -> Block:
    """The block as the estimator takes it: without targets when it is unsupervised."""
    return block if estimator.target_kinds or block.y is None else block._replace(y=None)


def subtracts(estimator: Any) -> bool:
    """Whether rows can be subtracted as they are: a sum whose rows do not weigh less with age."""
    return bool(estimator.additive) and getattr(estimator, "decay", 1.0) == 1.0


def pick(block: Block, rows: np.ndarray) -> Block:
    """The block's rows of those numbers, (picked,) int64."""
    return block._replace(
        X=block.X[rows],
        y=None if block.y is None else block.y.take(rows),
        weights=None if block.weights is None else block.weights[rows],
        ids=None if block.ids is None else [block.ids[i] for i in rows.tolist()],
    )

"""needs: which of the log's past the models still need, so that the rest may be forgotten and dropped.

A model goes on from any snapshot it keeps. From the oldest it needs every later event, and what the unlearn events among
those name, however far back: a sum subtracts those rows, any other model is rebuilt from its start. A model whose failure
is written down does not go on and needs nothing; one that failed for its surroundings is tried again.

Cost: a listing of each model's snapshots, and the log's unlearn events.

Why this way: it is asked under the lock that a new model and an unlearning take, so nothing can come to need what is just
being given up.
"""

from collections.abc import Iterator
from typing import Any

from stream_dr.engine.advance import PASSING
from stream_dr.engine.model import Model
from stream_dr.engine.snapshot import oldest_snapshot
from stream_dr.engine.unlearn import Removal, removal_of, subtracts

_TRIED_AGAIN = {error.code for error in PASSING}


def passed(directory: Any) -> int:
    """The position that every kept snapshot of every model has reached; the log's last where there is no model."""
    return min((oldest_snapshot(directory.path, m) for m in going_on(directory)), default=directory.position)


def needed(directory: Any) -> int:
    """The first position that a model may still have to read."""
    last = directory.position
    removals = [(e.position, removal_of(e.body)) for e in directory.log.read_kind("unlearn", last + 1)]
    return min((_needed_by(model, directory, removals) for model in going_on(directory)), default=last + 1)


def _needed_by(model: Model, directory: Any, removals: list[tuple[int, Removal]]) -> int:
    oldest = oldest_snapshot(directory.path, model)
    ahead = [removal for position, removal in removals if position > oldest]
    if ahead and not subtracts(model.estimator):
        return model.start
    named = (position for removal in ahead for position in removal if position >= model.start)
    return min(oldest + 1, min(named, default=oldest + 1))


def going_on(directory: Any) -> Iterator[Model]:
    """The models that learn, or will after a restart."""
    for model in directory.models.values():
        if model.failure is None or model.failure.code in _TRIED_AGAIN:
            yield model

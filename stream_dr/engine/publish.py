"""Publish: a frozen State is solved, oriented like its predecessor, numbered, and swapped in as one reference.

`freeze` waits for the event that is just being learned; `publish` runs on a worker, one at a time a model. A refined
projection stays published until the next refine: rows learned since are in the state, not in it.

Why this way: the number is taken from a ceiling that was made durable before, so no version is used twice, whatever is
killed; and a reader sees either the old projection or the new one, whole.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from stream_dr.engine.model import Change, Model, Published
from stream_dr.engine.model_table import ModelTable
from stream_dr.projection import Projection
from stream_dr.solve.orientation import alignment, oriented

RESERVED = 1_000
"""Version numbers made durable at once."""


class Frozen(NamedTuple):
    """A model's state at a position."""

    state: Any
    position: int
    rows: int


class Refined(NamedTuple):
    """A projection found by refine: its relative residual and the position it was found at."""

    projection: Projection
    residual: float
    position: int
    rows: int


def freeze(model: Model) -> Frozen:
    """The model's state now, from any thread: between two events. Raises ModelFailed: its state may be half new."""
    with model.learning:
        if model.failure is not None:
            raise model.failed(model.failure)
        return Frozen(model.accumulator.freeze(), model.position, model.rows)


def publish(model: Model, frozen: Frozen, table: ModelTable) -> Published:
    """Solve a frozen state and make it what readers see. Raises what the solver raises; then nothing has changed."""
    projection = model.estimator.solve(frozen.state)
    return _swap(model, projection, frozen.position, frozen.rows, table)


def publish_refined(model: Model, refined: Refined, table: ModelTable) -> Published:
    """Make a refined projection what readers see, until the next refine."""
    return _swap(model, refined.projection, refined.position, refined.rows, table, refined)


def release_versions(model: Model, table: ModelTable) -> None:
    """Give back version numbers that were made durable and not used; for a clean end, after the last snapshot."""
    if model.version_ceiling >= model.next_version:
        model.version_ceiling = model.next_version - 1
        table.set_ceiling(model.id, model.version_ceiling)


def change(old: Projection, new: Projection) -> Change | None:
    """What leads from old's answers to new's; None where a projection is not linear."""
    before, after = getattr(old, "loadings", None), getattr(new, "loadings", None)
    if before is None or after is None:
        return None
    found, residual = alignment(before, after)
    shift = _mean(old, len(after)) - _mean(new, len(after))
    return Change(found, shift @ after, residual)


def _swap(
    model: Model, projection: Any, position: int, rows: int, table: ModelTable, refined: Refined | None = None
) -> Published:
    last = model.published
    projection = oriented(projection, last.projection if last else None)
    if hasattr(projection, "prepared"):
        projection = projection.prepared()
    published = Published(
        _next_version(model, table),
        position,
        projection,
        rows,
        change(last.projection, projection) if last else None,
        refined.position if refined else None,
        refined.residual if refined else None,
    )
    model.versions.add(published)
    model.published = published
    model.published_at = time.monotonic()
    return published


def _next_version(model: Model, table: ModelTable) -> int:
    version = model.next_version
    if version > model.version_ceiling:
        table.set_ceiling(model.id, version + RESERVED - 1)
        model.version_ceiling = version + RESERVED - 1
    model.next_version = version + 1
    return version


def _mean(projection: Any, width: int) -> np.ndarray:
    mean = np.zeros(width)
    known = getattr(projection, "mean", np.zeros(0))[:width]
    mean[: len(known)] = known
    return mean

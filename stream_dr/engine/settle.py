"""Settle: a model's clean end, where a replay is done or a service stops.

Why this way: what was learned is published and snapshotted once, so that the next start finds it as it was left.
"""

import logging
from typing import Any

from stream_dr.engine.model import Model
from stream_dr.engine.publish import Frozen, freeze, publish, release_versions
from stream_dr.engine.snapshot import snapshot
from stream_dr.errors import StreamDRError, without_frames

log = logging.getLogger("stream_dr.settle")


def settle(directory: Any, model: Model, publishing: bool = True) -> None:
    """Publish (if `publishing`) what a model has learned, snapshot it, give back unused version numbers: a clean end."""
    if model.status == "failed":
        return
    frozen = freeze(model)
    if publishing and model.stale:
        _publish_last(model, frozen, directory)
    if not model.snapshotted(frozen.position):
        snapshot(model, frozen, directory.path)
    release_versions(model, directory.table)


def _publish_last(model: Model, frozen: Frozen, directory: Any) -> None:
    """Publish; a state that has no answer yet is told and leaves the last projection."""
    try:
        publish(model, frozen, directory.table)
    except StreamDRError as e:
        model.solve_error = without_frames(e)
        log.warning("model %s has no projection of position %d (%s): %s", model.name, frozen.position, e.code, e)

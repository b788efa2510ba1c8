"""Refine: a model's exact projection by passes over the log up to the position it was frozen at.

After each pass what is needed to go on is written beside the snapshots, so that a refine that was killed or cancelled
goes on at its next pass when it is asked for again at the same position; so does one that ended before it reached its
tolerance, when it is given more passes. The refined projection stays published until the next refine.

Cost: a pass reads every event the model has learned; the file is rewritten once a pass.

Why this way: the numerics (estimators/refining.py) are a generator over any Source; the engine gives them the log as
one, and stopping, resuming and progress are what happens between two steps.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stream_dr.engine.catch_up import catch_up
from stream_dr.engine.history import LogHistory
from stream_dr.engine.model import Model, Published
from stream_dr.engine.publish import Frozen, Refined, freeze, publish_refined, release_versions
from stream_dr.engine.snapshot import remove_snapshots, snapshot, snapshot_folder
from stream_dr.engine.snapshot_file import read_file, write_file
from stream_dr.engine.unlearn import learned_by
from stream_dr.errors import CannotRefine, HistoryGone, StreamDRError
from stream_dr.statistics.protocol import pack, unpack

Tell = Callable[[dict[str, Any]], None]


def check_model(directory: Any, model: Model) -> None:
    """Raise CannotRefine (no out-of-core solution) or HistoryGone (events the model has learned are no longer kept)."""
    from stream_dr.estimators.refining import check_method

    check_method(model.estimator)
    if directory.log.first > model.start:
        raise HistoryGone(
            f"refine reads every event that model {model.name!r} has learned, from position {model.start}; the log begins "
            f"at {directory.log.first}."
        )


def refine(
    directory: Any,
    model: Model,
    frozen: Frozen,
    tol: float = 1e-6,
    max_passes: int = 20,
    tell: Tell | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Published | None:
    """Refine a frozen model and publish the result; None when it was cancelled before the end, which is asked at every
    event.

    tell: called with {"pass", "rows", "residual", "angle", "seconds", "total_rows"} after each pass, and with {"pass",
    "rows", "total_rows"} within one. Raises CannotRefine, HistoryGone, InvalidParameter, NotFitted,
    InsufficientStorage.
    """
    check_model(directory, model)
    learned = _Learned(directory, model, frozen.position, cancelled)
    try:
        return _passes(directory, model, frozen, learned, tol, max_passes, tell or (lambda facts: None))
    except _Cancelled:
        return None
    finally:
        if not directory.holds(model):
            remove_snapshots(directory.path, model)  # the part that was remembered after it was removed


def _passes(
    directory: Any, model: Model, frozen: Frozen, learned: Any, tol: float, max_passes: int, told: Tell
) -> Published:
    from stream_dr.estimators.refining import refine_steps

    path = snapshot_folder(directory.path, model.name, model.id) / "refine.part"
    last = None
    for step in refine_steps(
        model.estimator,
        frozen.state,
        learned,
        tol=tol,
        max_passes=max_passes,
        resume=_begun(path, frozen.position, max_passes),
        progress=lambda number, rows: told({"pass": number, "rows": rows, "total_rows": frozen.rows}),
    ):
        last = step
        r = step.report
        told(
            {
                "pass": r.number,
                "rows": r.rows,
                "residual": r.residual,
                "angle": r.angle,
                "seconds": r.seconds,
                "converged": r.converged,
                "total_rows": frozen.rows,
            }
        )
        _remember(path, frozen.position, step.refining)
    if last is None:
        raise CannotRefine(f"max_passes={max_passes} is not more than the passes already made. Give more.")
    refined = Refined(last.projection, last.report.residual, frozen.position, frozen.rows)
    with model.solving:
        published = publish_refined(model, refined, directory.table)
    if last.report.converged:
        path.unlink(missing_ok=True)
    return published


def refine_model(directory: Any, model: Model, tol: float, max_passes: int, tell: Tell | None = None) -> Published:
    """Catch a model up with the log, refine and snapshot it: the whole work of `stream-dr refine`. Raises as
    `refine`."""
    from threadpoolctl import threadpool_limits

    check_model(directory, model)
    with threadpool_limits(1):
        catch_up(directory, [model], directory.position)
        frozen = freeze(model)
        published = refine(directory, model, frozen, tol, max_passes, tell)
    if published is None:
        raise CannotRefine("the refine was cancelled.")
    snapshot(model, frozen, directory.path)
    release_versions(model, directory.table)
    return published


class _Cancelled(Exception):
    """Ends a pass; the passes before it are remembered."""


class _Learned:
    """What a model has learned, up to a position, as a Source; a pass over it ends with _Cancelled once that is asked."""

    def __init__(self, directory: Any, model: Model, until: int, cancelled: Callable[[], bool] | None) -> None:
        self._history, self._model, self._until = LogHistory(directory), model, until
        self._cancelled = cancelled or (lambda: False)

    def events(self, after: int = -1, until: int | None = None) -> Any:
        last = self._until if until is None else min(until, self._until)
        for position, block in self._history.remaining(max(after, self._model.start - 1), last):
            if self._cancelled():
                raise _Cancelled
            yield position, learned_by(self._model.estimator, block)


def _remember(path: Path, position: int, refining: Any) -> None:
    arrays, description = pack(refining)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, arrays, {"kind": "refine", "position": position, "refining": description})


def _begun(path: Path, position: int, max_passes: int) -> Any:
    """What an earlier refine of the same position left; None when there is nothing to go on from."""
    from stream_dr.estimators.refining import Refining

    if not path.exists():
        return None
    try:
        arrays, facts = read_file(path)
    except StreamDRError:
        return None
    if facts.get("kind") != "refine" or facts["position"] != position:
        return None
    refining = unpack(Refining, arrays, facts["refining"])
    return refining if refining.number < max_passes else None

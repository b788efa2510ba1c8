"""Refine: a model's exact projection by passes over the log up to the position it was frozen at.

After each pass what is needed to go on is written beside the snapshots, so that a refine that was killed or cancelled
goes on at its next pass when it is asked for again at the same position; so does one that ended before it reached its
tolerance, when it is given more passes. The refined projection stays published until the next refine.

Cost: a pass reads every event the model has learned; the file is rewritten once a pass.

Why this way: the numerics (estimators/fitting/refining.py) are a generator over any Source; the engine gives them the log as
one, and stopping, resuming and progress are what happens between two steps.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

from threadpoolctl import threadpool_limits

from stream_dr.directory.directory import Directory
from stream_dr.errors import CannotRefine, HistoryGone, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import PassSums, Refining, check_method, is_exact, refine_steps
from stream_dr.evaluation.held_out import scores_of_refining
from stream_dr.models.model import Frozen, Model
from stream_dr.models.schema import Facts, block_for
from stream_dr.models.snapshot import remove_snapshots, snapshot, snapshot_folder
from stream_dr.models.snapshot_file import contents_of, read_file, write_file
from stream_dr.models.versions import Published
from stream_dr.rows.block import Block
from stream_dr.running.advance import backfill
from stream_dr.statistics.protocol import pack, unpack
from stream_dr.threads import ahead

Tell = Callable[[Facts], None]


def check_model(directory: Directory, model: Model) -> None:
    """Raise CannotRefine (no out-of-core solution, or learned before it came here) or HistoryGone (events the model has
    learned are no longer kept)."""
    check_method(model.estimator)
    if model.spec.saved is not None:
        raise CannotRefine(
            f"model {model.name!r} began with a saved estimator, whose rows are not in this log. Refine the estimator where "
            "they are and save it again, or make a model that learns the log from its start."
        )
    if directory.log.first > model.start:
        raise HistoryGone(
            f"refine reads every event that model {model.name!r} has learned, from position {model.start}; the log begins "
            f"at {directory.log.first}."
        )


def refine(
    directory: Directory,
    model: Model,
    frozen: Frozen,
    tol: float = 1e-6,
    max_passes: int = 20,
    tell: Tell | None = None,
    cancelled: Callable[[], bool] | None = None,
    threads: int = 1,
    sums: PassSums | None = None,
) -> Published | None:
    """Refine a frozen model and publish the result; None when it was cancelled before the end, which is asked at every
    event. Passes begin at the last refined projection. What is exact already is left, and told as {"exact", "note"}.

    tell: called with {"pass", "rows", "residual", "angle", "components", "seconds", "converged", "total_rows"} after each
    pass, and with {"pass", "rows", "total_rows"} within one. Raises CannotRefine, HistoryGone, InvalidParameter, NotFitted,
    InsufficientStorage.
    """
    check_model(directory, model)
    if is_exact(model.estimator, frozen.state) and model.published is not None:
        (tell or (lambda facts: None))({"exact": True, "note": "the model is exact already, from one pass"})
        return model.published
    learned = _Learned(directory, model, frozen, cancelled)
    try:
        with directory.retention.pin_rows():
            return _passes(
                directory, model, frozen, learned, tol, max_passes, tell or (lambda facts: None), threads, sums
            )
    except _Cancelled:
        return None
    finally:
        if not directory.holds(model):
            remove_snapshots(directory.path, model)  # the part that was remembered after it was removed


def _passes(
    directory: Directory,
    model: Model,
    frozen: Frozen,
    learned: "_Learned",
    tol: float,
    max_passes: int,
    told: Tell,
    threads: int,
    sums: PassSums | None,
) -> Published:
    path = snapshot_folder(directory.path, model.name, model.id) / "refine.part"
    last = None
    for step in refine_steps(
        model.estimator,
        frozen.state,
        learned,
        tol=tol,
        max_passes=max_passes,
        names=directory.schema.names,
        resume=_begun(path, frozen, max_passes),
        guess=model.published.projection if model.published and model.published.refined_at is not None else None,
        progress=lambda number, rows: told({"pass": number, "rows": rows, "total_rows": frozen.rows}),
        threads=threads,
        sums=sums,
    ):
        last = step
        made = step.report._asdict()
        told({"pass": made.pop("number"), **made, "total_rows": frozen.rows})
        directory.records.add(
            "pass", model=model.name, position=frozen.position, **{"pass": last.report.number}, **made
        )
        _remember(path, frozen, step.refining)
    if last is None:
        raise CannotRefine(f"max_passes={max_passes} is not more than the passes already made. Give more.")
    published = model.publish_refined(last.projection, frozen, last.report.residual)
    if last.report.converged:
        path.unlink(missing_ok=True)
    return published


def refine_model(
    directory: Directory,
    model: Model,
    tol: float,
    max_passes: int,
    tell: Tell | None = None,
    threads: int = 1,
    elsewhere: Callable[[Frozen], PassSums] | None = None,
) -> Published:
    """Backfill a model, refine and snapshot it: the whole work of `stream-dr refine`. elsewhere: gives what sums the passes,
    where that is not this process. Raises as `refine`."""
    check_model(directory, model)
    with threadpool_limits(1):
        backfill(directory, [model], directory.position)
        frozen = model.freeze()
        sums = None if elsewhere is None else elsewhere(frozen)
        published = refine(directory, model, frozen, tol, max_passes, tell, threads=threads, sums=sums)
    if published is None:
        raise CannotRefine("the refine was cancelled.")
    snapshot(model, frozen, directory.path)
    model.release_versions()
    return published


def held_out_scores(directory: Directory, model: Model, tol: float, max_passes: int) -> tuple[float, float]:
    """Return what a model that predicts scores on held-out rows before and after a refine.

    The model is left as it is: another one of its spec learns its rows but every tenth. Raises as `refine`.
    """
    check_model(directory, model)
    learned = _Learned(directory, model, model.freeze(), None)
    with directory.retention.pin_rows(), threadpool_limits(1):
        return scores_of_refining(make(model.spec.estimator, model.spec.params), learned, tol, max_passes)


def publish_unrefined(directory: Directory, model: Model) -> None:
    """Publish the solution from one pass in place of a refined one, and snapshot the model."""
    frozen = model.freeze()
    model.publish(frozen)
    snapshot(model, frozen, directory.path)
    model.release_versions()


class _Cancelled(Exception):
    """Ends a pass; the passes before it are remembered."""


class _Learned:
    """What a frozen model has learned, as a Source; a pass over it ends with _Cancelled once that is asked."""

    def __init__(
        self, directory: Directory, model: Model, frozen: Frozen, cancelled: Callable[[], bool] | None
    ) -> None:
        self._history, self._model, self._frozen = directory.history, model, frozen
        self._cancelled = cancelled or (lambda: False)

    def events(self, after: int = -1, until: int | None = None) -> Generator[tuple[int, Block], None, None]:
        first, last = max(after, self._model.start - 1), self._frozen.position
        last = last if until is None else min(until, last)
        events = self._history.events(first, last, unlearn_horizon=self._frozen.unlearn_horizon)
        with closing(ahead(events)) as blocks:
            for position, block in blocks:
                if self._cancelled():
                    raise _Cancelled
                yield position, block_for(self._model.estimator, block)


def _remember(path: Path, frozen: Frozen, refining: Refining) -> None:
    arrays, description = pack(refining)
    path.parent.mkdir(parents=True, exist_ok=True)
    where = {"position": frozen.position, "removed_to": frozen.unlearn_horizon}
    write_file(path, arrays, {"kind": "refine", **where, "refining": description})


def _begun(path: Path, frozen: Frozen, max_passes: int) -> Refining | None:
    """What an earlier refine of the same rows left; None when there is nothing to go on from."""
    if not path.exists():
        return None
    try:
        arrays, facts = read_file(path)
        with contents_of(path):
            unlearn_horizon = facts.get("removed_to", facts["position"])
            if facts["kind"] != "refine" or (facts["position"], unlearn_horizon) != (
                frozen.position,
                frozen.unlearn_horizon,
            ):
                return None
            refining: Refining = unpack(Refining, arrays, facts["refining"])
    except StreamDRError:
        return None
    return refining if refining.number < max_passes else None

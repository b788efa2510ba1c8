"""Refine: computes a model's exact projection by passes over the log.

A refine reads the events that the model has learned, several times. After each pass a checkpoint
is written to the folder of the model's snapshots. A second refine of the same model at the same
position of the log continues from the checkpoint, if the first refine

- was killed or cancelled, or
- made all its passes without reaching the tolerance, and the second refine may make more passes.

The refined projection stays published until the next refine. If rows that a refine reads are
unlearned meanwhile, its projection is not published. The numerical method is in
estimators/fitting/refining.py.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.directory.directory import Directory
from stream_dr.disk import make_private_folder
from stream_dr.errors import CannotRefine, HistoryGone, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.refining import (
    ComputePassSums,
    Refining,
    check_has_refine,
    is_exact_without_refine,
    refine_steps,
)
from stream_dr.evaluation.scores import score_before_after_refine
from stream_dr.models.model import FrozenState, Model
from stream_dr.models.snapshot import remove_snapshots, snapshot_folder, write_snapshot_if_needed
from stream_dr.models.snapshot_file import errors_as_damaged_file, read_file, write_file
from stream_dr.models.versions import Published
from stream_dr.projection import Projection
from stream_dr.running.advance import backfill
from stream_dr.statistics.protocol import pack, unpack
from stream_dr.threads import compute_ahead

PassCallback = Callable[[JsonDict], None]
"""Function that receives the progress of a refine, as `refine_frozen_and_publish` describes it."""


def check_can_refine(directory: Directory, model: Model) -> None:
    """Raise an error if a model cannot be refined.

    A refine reads again all rows that the model has learned. Raises

    - CannotRefine if the model's method has no refine,
    - CannotRefine if the model was made from a saved estimator, whose rows are not in the log,
    - HistoryGone if events that the model has learned are no longer in the log.
    """
    check_has_refine(model.estimator)
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


def refuse_while_release_served(model: Model) -> None:
    """Raise CannotRefine while the model serves a release, which a refine would replace."""
    if model.served_release is not None:
        raise CannotRefine(
            f"model {model.name!r} serves the release {model.served_release!r}, and publishes nothing else. Publish the "
            f"model first: POST /models/{model.name}/publish."
        )


def refine_frozen_and_publish(
    directory: Directory,
    model: Model,
    frozen: FrozenState,
    tol: float = 1e-6,
    max_passes: int = 20,
    on_progress: PassCallback | None = None,
    should_cancel: Callable[[], bool] | None = None,
    n_threads: int = 1,
    compute_sums: ComputePassSums | None = None,
) -> Published | None:
    """Refine a model's frozen state, and publish the result.

    The passes start from the projection of the last refine, if there is one. If the model's
    solution is exact without a refine, the model does not change, and `on_progress` receives
    {"exact", "note"}.

    Parameters
    ----------
    frozen : FrozenState
        State of the model, and the position up to which the log is read.
    tol : float
        Tolerance of the residual at which the passes end.
    max_passes : int
        Maximum number of passes, including the passes of a refine that is continued.
    on_progress : callable or None
        Receives dicts with these keys. After each pass: "pass", "rows", "residual", "angle",
        "components", "seconds", "converged", "total_rows". During a pass: "pass", "rows",
        "total_rows".
    should_cancel : callable or None
        Called at every event. It returns True to cancel the refine.
    n_threads : int
        Number of threads for matrix products.
    compute_sums : ComputePassSums or None
        Computes the sums of a pass in other processes. None: this process computes them.

    Returns
    -------
    Published or None
        None if cancelled, or if rows were unlearned or a release was published meanwhile.

    Raises CannotRefine, HistoryGone, InvalidParameter, NotFitted, InsufficientStorage.
    """
    check_can_refine(directory, model)
    refuse_while_release_served(model)
    report = on_progress or (lambda progress: None)
    if is_exact_without_refine(model.estimator, frozen.state) and model.published is not None:
        report({"exact": True, "note": "the model is exact already, from one pass"})
        return model.published

    source = _FrozenSource(directory, model, frozen, partial(_should_stop, directory, model, frozen, should_cancel))
    try:
        with directory.retention.prevent_row_erasure():
            return _run_passes(directory, model, frozen, source, tol, max_passes, report, n_threads, compute_sums)
    except _Cancelled:
        return None
    finally:
        # If the model was removed during the refine, remove the checkpoint that the refine wrote.
        if not directory.holds(model):
            remove_snapshots(directory.path, model)


def _run_passes(
    directory: Directory,
    model: Model,
    frozen: FrozenState,
    source: "_FrozenSource",
    tol: float,
    max_passes: int,
    on_progress: PassCallback,
    n_threads: int,
    compute_sums: ComputePassSums | None,
) -> Published | None:
    """Run a refine's remaining passes, and publish the refined projection.

    A checkpoint is written after each pass. `source` yields the rows, and `on_progress` receives
    the progress. The other parameters have the meaning that `refine_frozen_and_publish` describes.
    Returns None if a release was published meanwhile.
    """
    # Run the passes. They continue from a checkpoint of an earlier refine, if there is one.
    path = snapshot_folder(directory.path, model.name, model.id) / "refine.part"
    last = None
    for step in refine_steps(
        model.estimator,
        frozen.state,
        source,
        tol=tol,
        max_passes=max_passes,
        feature_names=directory.schema.names,
        resume=_load_usable_checkpoint(path, frozen, max_passes),
        guess=_refined_before(model),
        progress=lambda number, rows: on_progress({"pass": number, "rows": rows, "total_rows": frozen.rows}),
        n_threads=n_threads,
        compute_pass_sums=compute_sums,
    ):
        # Report the pass, record it, and write the checkpoint.
        last = step
        fields = step.report._asdict()
        number = fields.pop("number")
        on_progress({"pass": number, **fields, "total_rows": frozen.rows})
        directory.records.add("pass", model=model.name, position=frozen.position, **{"pass": number}, **fields)
        arrays, description = pack(step.refining)
        make_private_folder(path.parent)
        write_file(path, arrays, _checkpoint_metadata(frozen) | {"refining": description})

    if last is None:
        raise CannotRefine(f"max_passes={max_passes} is not more than the passes already made. Give more.")

    if _is_outdated(directory, model, frozen):
        raise _Cancelled

    # Publish the result. Remove the checkpoint only if this refine has reached the tolerance.
    # Another refine may continue from the checkpoint of a refine that was stopped earlier.
    published = model.publish_refined(last.projection, frozen, last.report.residual)
    if last.report.converged:
        path.unlink(missing_ok=True)
    return published


def _refined_before(model: Model) -> Projection | None:
    """Return the projection of a model's last refine, from which the next one starts, or None.

    The projections of a steady basis depend on no earlier one.
    """
    published = model.published
    if published is None or published.refined_at is None or model.spec.basis is not None:
        return None
    return published.projection


def refine_model(
    directory: Directory,
    model: Model,
    tol: float,
    max_passes: int,
    on_progress: PassCallback | None = None,
    n_threads: int = 1,
    make_compute_sums: Callable[[FrozenState], ComputePassSums] | None = None,
) -> Published:
    """Refine and snapshot a model, like the command `stream-dr refine`.

    The model first learns the events of the log that it has not learned yet.

    make_compute_sums: function that receives the model's state and returns a function. The
        returned function computes the sums of each pass in other processes. If `make_compute_sums`
        is None, this process computes the sums.

    The other parameters and the errors are described in `refine_frozen_and_publish`.
    """
    check_can_refine(directory, model)
    with threadpool_limits(1):
        backfill(directory, [model], directory.position)
        frozen = model.freeze()
        sums = None if make_compute_sums is None else make_compute_sums(frozen)
        published = refine_frozen_and_publish(
            directory, model, frozen, tol, max_passes, on_progress, n_threads=n_threads, compute_sums=sums
        )

    if published is None:
        raise CannotRefine("the refine was cancelled.")
    write_snapshot_if_needed(model, frozen, directory.path)
    model.version_numbers.release_unused()
    return published


def held_out_scores(directory: Directory, model: Model, tol: float, max_passes: int) -> tuple[float, float]:
    """Return a model's prediction scores before and after a refine.

    Returns two values:

    - Score before refine.
    - Score after refine.

    The model does not change. A copy of the model learns nine of ten rows, and predicts the
    targets of the other rows. The copy is then refined and predicts these targets again.

    The errors are described in `refine_frozen_and_publish`.
    """
    check_can_refine(directory, model)
    source = _FrozenSource(directory, model, model.freeze(), None)
    with directory.retention.prevent_row_erasure(), threadpool_limits(1):
        return score_before_after_refine(make(model.spec.estimator, model.spec.params), source, tol, max_passes)


def publish_unrefined_again(directory: Directory, model: Model) -> None:
    """Replace a model's refined projection by the unrefined projection.

    The model is then snapshotted.
    """
    frozen = model.freeze()
    model.publish(frozen)
    write_snapshot_if_needed(model, frozen, directory.path)
    model.version_numbers.release_unused()


def _is_outdated(directory: Directory, model: Model, frozen: FrozenState) -> bool:
    """Return True if rows of a frozen state were unlearned since then."""
    return directory.history.has_unlearned(model.start, frozen.position, frozen.unlearn_horizon)


def _should_stop(
    directory: Directory, model: Model, frozen: FrozenState, should_cancel: Callable[[], bool] | None
) -> bool:
    if _is_outdated(directory, model, frozen) or model.served_release is not None:
        return True
    return should_cancel is not None and should_cancel()


class _Cancelled(Exception):
    """Error that stops a refine during a pass.

    The checkpoint of the earlier passes is not removed.
    """


class _FrozenSource:
    """Source of the rows that a frozen state has learned.

    Reading the rows raises _Cancelled once `should_cancel` returns True.
    """

    def __init__(
        self, directory: Directory, model: Model, frozen: FrozenState, should_cancel: Callable[[], bool] | None
    ) -> None:
        self._history = directory.history
        self._model = model
        self._frozen = frozen
        self._should_cancel = should_cancel or (lambda: False)

    def events(self, after: int = -1, until: int | None = None) -> Generator[tuple[int, Block], None, None]:
        """Yield the position and the rows of each event.

        Only events with after < position ≤ until that the frozen state includes are read.
        Unlearned rows are left out.
        """
        first = max(after, self._model.start - 1)
        last = self._frozen.position if until is None else min(until, self._frozen.position)
        events = self._history.events(first, last, unlearn_horizon=self._frozen.unlearn_horizon)
        with closing(compute_ahead(events)) as blocks:
            for position, block in blocks:
                if self._should_cancel():
                    raise _Cancelled
                yield position, self._model.estimator.block_to_learn(block)


def _checkpoint_metadata(frozen: FrozenState) -> JsonDict:
    """Return metadata that a checkpoint of a frozen state has."""
    return {"kind": "refine", "position": frozen.position, "removed_to": frozen.unlearn_horizon}


def _load_usable_checkpoint(path: Path, frozen: FrozenState, max_passes: int) -> Refining | None:
    """Return an earlier refine's checkpoint, if it can be used.

    Returns None in these cases:

    - There is no checkpoint, or it cannot be read.
    - The checkpoint belongs to another state of the model.
    - The checkpoint already includes `max_passes` passes.
    """
    if not path.exists():
        return None

    # The checkpoint must be of the frozen state: the same position and the same unlearned rows.
    try:
        arrays, header = read_file(path)
        with errors_as_damaged_file(path):
            if not _checkpoint_metadata(frozen).items() <= header.items():
                return None
            refining: Refining = unpack(Refining, arrays, header["refining"])
    except StreamDRError:
        return None
    return refining if refining.number < max_passes else None

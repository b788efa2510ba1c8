"""Opening: restores a directory's models from its table and their newest snapshots."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stream_dr.errors import DamagedFile, HistoryGone, InvalidParameter
from stream_dr.estimators import make
from stream_dr.models.entry import Entry, ModelFailure
from stream_dr.models.model import Model
from stream_dr.models.saved import estimator_of, with_defaults
from stream_dr.models.snapshot import restore, restore_published
from stream_dr.models.versions import Versions

READ_TRIES = 5
"""Number of times that a reader tries to open a directory that its writer shortens."""


def new_model(entry: Entry, keep: int, folder: Path | None, reserve: Callable[[int, int], None]) -> Model:
    """Return an entry's model, which has learned nothing yet.

    It has failed if its parameters are not accepted any more.

    keep: number of projections to keep.
    folder: path of the folder for older projections. None keeps them in memory.
    reserve: stores a ceiling of version numbers, as ModelTable.set_ceiling.
    """
    refused = None
    try:
        spec = with_defaults(entry.spec)
        estimator = estimator_of(spec)
    except InvalidParameter as e:
        # An earlier release accepted the parameters.
        refused = e
        spec = entry.spec
        estimator = make(spec.estimator)

    versions = Versions(keep, folder)
    reserved = partial(reserve, entry.id)
    model = Model(entry.name, entry.id, spec, entry.start, estimator, versions, entry.version_ceiling, reserved)
    model.set_policies(entry.policy, entry.refine)
    if refused is not None:
        model.set_failure(ModelFailure(entry.start, refused.code, str(refused)))
    return model


def restore_model(model: Model, entry: Entry, path: Path, first: int, last: int, writable: bool) -> None:
    """Restore what a new model had learned and published.

    path: path of the directory.
    first, last: positions of the first and last event in the log.

    Raises HistoryGone if events that the model needs were dropped.
    """
    if model.failure is not None:
        restore_published(model, path)
        return

    restored = restore(model, path, last, writable)
    if not restored and not model.subtracts:
        # So the model need not be rebuilt at each unlearn event on its way.
        model.set_unlearn_horizon(last)
    if model.published is not None and model.published.refined_at is not None:
        model.begin_refine(model.published.rows)

    if entry.failure is not None:
        model.set_failure(entry.failure)
        restore_published(model, path)
    elif model.spec.saved is not None and not restored:
        why = "the saved estimator that it began with cannot be read; restore the directory from a copy"
        model.set_failure(ModelFailure(entry.start, DamagedFile.code, why))
    elif model.position + 1 < first:
        raise HistoryGone(f"no usable snapshot, and events before position {first} are no longer kept")
    elif model.position >= last:
        model.live()

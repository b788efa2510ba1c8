"""Opening: a directory's models as its table names them, each from its newest snapshot."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from stream_dr.errors import DamagedFile, HistoryGone, InvalidParameter
from stream_dr.estimators import make
from stream_dr.models.entry import Entry, Failure
from stream_dr.models.model import Model
from stream_dr.models.saved import completed, estimator_of
from stream_dr.models.snapshot import restore, restore_published
from stream_dr.models.versions import Versions

READ_TRIES = 5
"""How often a reader tries to open what its writer shortens meanwhile."""


def made(entry: Entry, keep: int, folder: Path | None, reserve: Callable[[int, int], None]) -> Model:
    """An entry's model, which has learned nothing yet; failed where its parameters are no longer taken.

    keep: projections kept. folder: where older ones are written, None: in memory. reserve: as ModelTable.set_ceiling.
    """
    refused = None
    try:
        spec = completed(entry.spec)
        estimator = estimator_of(spec)
    except InvalidParameter as e:  # an earlier release took it
        spec, estimator, refused = entry.spec, make(entry.spec.estimator), e
    versions, reserved = Versions(keep, folder), partial(reserve, entry.id)
    model = Model(entry.name, entry.id, spec, entry.start, estimator, versions, entry.version_ceiling, reserved)
    model.set_policies(entry.policy, entry.refine)
    if refused is not None:
        model.failed_before(Failure(entry.start, refused.code, str(refused)))
    return model


def bring_back(model: Model, entry: Entry, directory: Path, first: int, last: int, writable: bool) -> None:
    """Give a model that was just made what it had learned and published; first, last: positions that the log holds. Raises
    HistoryGone where it lacks events that are not kept."""
    if model.failure is not None:
        restore_published(model, directory)
        return
    found = restore(model, directory, last, writable)
    if not found and not model.subtracts:
        model.leave_out(last)  # it need not be rebuilt at each unlearn event on its way
    if model.published is not None and model.published.refined_at is not None:
        model.begin_refine(model.published.rows)
    if entry.failure is not None:
        model.failed_before(entry.failure)
        restore_published(model, directory)
    elif model.spec.saved is not None and not found:
        why = "the saved estimator that it began with cannot be read; restore the directory from a copy"
        model.failed_before(Failure(entry.start, DamagedFile.code, why))
    elif model.position + 1 < first:
        raise HistoryGone(f"no usable snapshot, and events before position {first} are no longer kept")
    elif model.position >= last:
        model.live()

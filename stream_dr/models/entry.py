"""Entry: a row of the table of models, with name, spec, policies and failure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_dr.aliases import JsonDict
from stream_dr.errors import DamagedFile, DamagedShard, ForeignFile, InsufficientStorage, SourceMissing, StreamDRError

PASSING: tuple[type[StreamDRError], ...] = (SourceMissing, DamagedShard, DamagedFile, ForeignFile, InsufficientStorage)
"""Errors of the surroundings, not of an event.

A model that stopped at one is tried again after a restart.
"""


class ModelFailure(NamedTuple):
    """Reason why a model stopped.

    position: event that it could not apply.
    code: code of the error, "internal" if it is not one of ours.
    """

    position: int
    code: str
    message: str

    @classmethod
    def of(cls, position: int, error: Exception) -> "ModelFailure":
        """Return the failure that an error at an event causes."""
        code = error.code if isinstance(error, StreamDRError) else "internal"
        return cls(position, code, f"{type(error).__name__}: {error}")

    @property
    def is_retried(self) -> bool:
        """True if a restart tries again."""
        return self.code in {error.code for error in PASSING}


class PublishPolicy(NamedTuple):
    """When a model is solved and published.

    rows: after this number of rows, or None.
    seconds: after this number of seconds, or None.
    idle: whenever all events in the log are learned.

    If none is set, the model is published on demand only.

    >>> import stream_dr
    >>> stream_dr.PublishPolicy(rows=1000, seconds=None, idle=False).described
    'it is after 1000 rows'
    """

    rows: int | None = None
    seconds: float | None = 1.0
    idle: bool = True

    @property
    def auto_publishes(self) -> bool:
        """True if learned rows are published within a minute, even if no more come."""
        return self.idle or (self.seconds is not None and self.seconds <= 60)

    @property
    def described(self) -> str:
        """Description of what triggers publishing."""
        ways = [f"after {self.rows} rows"] if self.rows is not None else []
        ways += [f"after {self.seconds:g} seconds"] if self.seconds is not None else []
        return f"it is {' or '.join(ways) or 'on demand only'}"


class RefinePolicy(NamedTuple):
    """When a model is refined again automatically.

    rows: after this number of rows since the last refine, or None.
    seconds: after this number of seconds if rows came, or None.

    Never if both are None.

    >>> import stream_dr
    >>> stream_dr.RefinePolicy(rows=100_000)
    RefinePolicy(rows=100000, seconds=None)
    """

    rows: int | None = None
    seconds: float | None = None


class Spec(NamedTuple):
    """Estimator and parameters of a model.

    estimator: registry key.
    params: the parameters that were given.
    saved: sha256 of the state of the saved estimator that the model began with, or None.
    defaults: defaults of the parameters that are not in `params`, and under "feature_map" those
    that are not in that, as they were when the model was added. A later release may have other
    defaults.
    """

    estimator: str
    params: JsonDict
    saved: str | None = None
    defaults: Mapping[str, Any] = {}


class Entry(NamedTuple):
    """Row of the table of models."""

    id: int
    name: str
    spec: Spec
    start: int
    policy: PublishPolicy | None
    refine: RefinePolicy | None
    failure: ModelFailure | None
    version_ceiling: int

"""Entry: what the table of models keeps of one: its name, its spec, its policies, and why it failed."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_dr.errors import DamagedFile, DamagedShard, ForeignFile, InsufficientStorage, SourceMissing, StreamDRError

PASSING: tuple[type[StreamDRError], ...] = (SourceMissing, DamagedShard, DamagedFile, ForeignFile, InsufficientStorage)
"""Errors of the surroundings, not of the event: a model that met one is tried again after a restart."""


class Failure(NamedTuple):
    """Why a model stopped: the event it could not apply, the error's code and message."""

    position: int
    code: str
    message: str

    @classmethod
    def of(cls, position: int, error: Exception) -> "Failure":
        """What an error at an event says."""
        code = error.code if isinstance(error, StreamDRError) else "internal"
        return cls(position, code, f"{type(error).__name__}: {error}")

    @property
    def passing(self) -> bool:
        """Whether a restart tries again."""
        return self.code in {error.code for error in PASSING}


class PublishPolicy(NamedTuple):
    """When a model is solved and published: every `rows` rows, every `seconds` seconds, whenever the log is drained
    (`idle`); all None / False: on demand only."""

    rows: int | None = None
    seconds: float | None = 1.0
    idle: bool = True

    @property
    def soon(self) -> bool:
        """Whether what is learned is published within a minute, though no more rows come."""
        return self.idle or (self.seconds is not None and self.seconds <= 60)

    @property
    def described(self) -> str:
        """What is to come first, in words."""
        ways = [f"after {self.rows} rows"] if self.rows is not None else []
        ways += [f"after {self.seconds:g} seconds"] if self.seconds is not None else []
        return f"it is {' or '.join(ways) or 'on demand only'}"


class RefinePolicy(NamedTuple):
    """When a model is refined again automatically: `rows` rows after the last time, or `seconds` seconds if rows came.

    Never where both are None.
    """

    rows: int | None = None
    seconds: float | None = None


class Spec(NamedTuple):
    """What a model is.

    estimator: registry key. params: parameters, as they were given. saved: sha256 of the state of a saved estimator that it
    began with. defaults: what was left out of `params`, and under "feature_map" what was left out of that, as the defaults
    were then: a later release may have others.
    """

    estimator: str
    params: dict[str, Any]
    saved: str | None = None
    defaults: Mapping[str, Any] = {}


class Entry(NamedTuple):
    """One model's row."""

    id: int
    name: str
    spec: Spec
    start: int
    policy: PublishPolicy | None
    refine: RefinePolicy | None
    failure: Failure | None
    version_ceiling: int

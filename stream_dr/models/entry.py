"""Entry: a model's row in the directory's table of models.

An entry holds the model's name, its spec, its policies and the reason for its failure, if any.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stream_dr.aliases import JsonDict
from stream_dr.errors import DamagedFile, DamagedShard, ForeignFile, InsufficientStorage, SourceMissing, StreamDRError

RETRIED_ERRORS = (SourceMissing, DamagedShard, DamagedFile, ForeignFile, InsufficientStorage)
"""Errors that files or the disk cause, and not an event.

If a model failed with one of these errors, a restart tries the model again.
"""


class ModelFailure(NamedTuple):
    """Reason why a model has failed.

    position: position in the log of the event that the model could not apply.
    code: code of the error. "internal" if the error is not a StreamDRError.
    message: type and text of the error.
    """

    position: int
    code: str
    message: str

    @classmethod
    def from_error(cls, position: int, error: Exception) -> "ModelFailure":
        """Return the failure for an event that raised an error.

        position: position of the event in the log.
        error: error that was raised when the event was applied.
        """
        code = error.code if isinstance(error, StreamDRError) else "internal"
        return cls(position, code, f"{type(error).__name__}: {error}")

    @property
    def described(self) -> str:
        """Position, code and message, for a client.

        The message of an unexpected error may contain private data, so clients do not get it.
        """
        message = "the log has the details" if self.code == "internal" else self.message
        return f"at position {self.position} ({self.code}): {message}"

    @property
    def is_retried_on_restart(self) -> bool:
        """True if a restart tries the model again."""
        return self.code in {error.code for error in RETRIED_ERRORS}


class PublishPolicy(NamedTuple):
    """Rule that says when a model's projection is published.

    rows: publish after this number of rows. None for no such rule.
    seconds: publish after this number of seconds. None for no such rule.
    idle: if true, publish whenever all live models have learned all events in the log.

    If no rule is set, the model is published only on request.

    >>> import stream_dr
    >>> stream_dr.PublishPolicy(rows=1000, seconds=None, idle=False).described
    'it is after 1000 rows'
    """

    rows: int | None = None
    seconds: float | None = 1.0
    idle: bool = True

    @property
    def auto_publishes(self) -> bool:
        """True if rows are published within a minute, without request."""
        return self.idle or (self.seconds is not None and self.seconds <= 60)

    @property
    def described(self) -> str:
        """End of a sentence on when the model is published."""
        ways = [f"after {self.rows} rows"] if self.rows is not None else []
        ways += [f"after {self.seconds:g} seconds"] if self.seconds is not None else []
        return f"it is {' or '.join(ways) or 'on demand only'}"


ON_DEMAND = PublishPolicy(None, None, False)
"""Policy without a rule: the model is published only on request."""


class RefinePolicy(NamedTuple):
    """Rule that says when a model is refined automatically.

    To refine a model is to compute its projection more exactly, by further passes over the rows.

    rows: refine when this number of rows was learned since the last refine. None for no such rule.
    seconds: refine after this number of seconds since the last refine, if rows were learned since
        then. None for no such rule.

    If both are None, the model is never refined automatically.

    >>> import stream_dr
    >>> stream_dr.RefinePolicy(rows=100_000)
    RefinePolicy(rows=100000, seconds=None)
    """

    rows: int | None = None
    seconds: float | None = None


class Spec(NamedTuple):
    """Estimator and parameters of a model.

    estimator: key of the estimator in the registry, such as "lda".
    params: parameters that the user has set.
    saved: sha256 of the state of the saved estimator that the model started from. None if the
        model started empty.
    defaults: values of the parameters that the user has not set. They are stored because a later
        release may have other default values. The key "feature_map" has the parameters of the
        feature map that the user has not set.
    basis: "steady" if published components are turned to those of the newest release. None if not.
    """

    estimator: str
    params: JsonDict
    saved: str | None = None
    defaults: Mapping[str, Any] = {}
    basis: str | None = None


class Entry(NamedTuple):
    """A model's row in the directory's table of models.

    start: position in the log of the first event that the model learns.
    policy: rule for publishing, or None for the default rule.
    refine: rule for automatic refines, or None.
    failure: reason why the model has failed, or None.
    version_ceiling: upper bound on the version numbers of the model's projections.
    """

    id: int
    name: str
    spec: Spec
    start: int
    policy: PublishPolicy | None
    refine: RefinePolicy | None
    failure: ModelFailure | None
    version_ceiling: int

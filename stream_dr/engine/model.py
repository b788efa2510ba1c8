"""Model: an estimator's spec, its accumulator, the position it has applied, and the projection it has published.

One thread advances a model; any thread reads it. What readers take is `published`: an immutable value swapped as one
reference, so a transform needs no lock and never waits.

Why this way: the accumulator has one owner, and everything that others see of it is a value that no one writes to
again.
"""

import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_dr.engine.versions import Versions
from stream_dr.errors import CatchingUp, ModelFailed, NotFitted, StreamDRError, UnknownVersion
from stream_dr.projection import Projection


class Change(NamedTuple):
    """What leads from one projection to another: z_new ≈ z_old · map + offset.

    map: (p_old, p_new) float64, least squares. offset: (p_new,) float64. residual: ‖L_old · map − L_new‖ / ‖L_new‖ (0:
    the same subspace, 1: nothing in common).
    """

    map: np.ndarray
    offset: np.ndarray
    residual: float


class Published(NamedTuple):
    """A projection as readers see it.

    version: ascending, never used twice, also across restarts. position: last event it includes. rows: rows it
    includes. change: from the version before it, or None. refined_at, residual: position and residual of a refined
    solution, or None.
    """

    version: int
    position: int
    projection: Projection
    rows: int = 0
    change: Change | None = None
    refined_at: int | None = None
    residual: float | None = None


class Failure(NamedTuple):
    """Why a model stopped: the event it could not apply, the error's code and message."""

    position: int
    code: str
    message: str


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


class Spec(NamedTuple):
    """What a model is: registry key and parameters."""

    estimator: str
    params: dict[str, Any]


class Model:
    """A live model. Attributes are read by any thread and written by the one that advances it.

    name, id (never used twice in a directory), spec, start (first position it learns from), status ("live",
    "catching_up" or "failed"), position (last event applied; start − 1 before any), goal (the log's last), rows,
    rows_skipped, failure, published, versions (kept ones), policy (None: the engine's), advance_seconds and advanced_rows
    (time spent learning, and rows learned, by this process).
    """

    def __init__(
        self,
        name: str,
        id: int,
        spec: Spec,
        start: int,
        estimator: Any,
        keep_versions: int = 32,
        folder: Path | None = None,
    ) -> None:
        self.name, self.id, self.spec, self.start = name, id, spec, start
        self.estimator = estimator
        self.policy: PublishPolicy | None = None
        self.status = "catching_up"
        self.position = start - 1
        self.goal = start - 1
        self.accumulator: Any = estimator.accumulator()
        self.failure: Failure | None = None
        self.published: Published | None = None
        self.versions = Versions(keep_versions, folder)
        self.next_version = 1
        self.version_ceiling = 0
        self.snapshot_position = start - 1
        self.snapshot_version = 0  # what was published then
        self.published_at = time.monotonic()
        self.publish_seconds = 0.0
        self.publishing = False
        self.learning = threading.Lock()  # held while an event is applied, and while the state is frozen
        self.solving = threading.Lock()
        self.snapshotting = threading.Lock()
        self.solve_error: Exception | None = None
        self.attempted = start - 1
        self.advance_seconds = 0.0
        self.advanced_rows = 0

    @property
    def rows(self) -> int:
        """Rows learned."""
        return int(self.accumulator.rows)

    @property
    def rows_skipped(self) -> int:
        """Rows left out because they had no target."""
        return int(self.accumulator.rows_skipped)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels learned so far, sorted."""
        return tuple(sorted(self.accumulator.labels))

    @property
    def published_version(self) -> int:
        """Version of what is published; 0: nothing is."""
        return self.published.version if self.published else 0

    @property
    def soon(self) -> bool:
        """Whether its policy publishes what it learns within a minute, unasked."""
        return self.policy is None or self.policy.soon

    @property
    def kept(self) -> bool:
        """Whether the last snapshot has what is published."""
        return self.snapshot_version == self.published_version

    def snapshotted(self, position: int) -> bool:
        """Whether a snapshot of its state at `position` would tell nothing new."""
        return position < self.snapshot_position + (1 if self.kept else 0)

    @property
    def stale(self) -> bool:
        """Whether rows were learned that the published projection should include; a refined one stays as it is."""
        if self.rows == 0 or (self.published is not None and self.published.refined_at is not None):
            return False
        return self.published is None or self.published.position < self.position

    def fail(self, position: int, error: Exception) -> Failure:
        """Stop at the event that could not be applied; what is published goes on serving."""
        code = error.code if isinstance(error, StreamDRError) else "internal"
        self.failure = Failure(position, code, f"{type(error).__name__}: {error}")
        self.status = "failed"
        return self.failure

    def failed(self, where: Failure) -> ModelFailed:
        """What is raised where a model is asked to go on that has failed."""
        return ModelFailed(f"model {self.name!r} failed at position {where.position} ({where.code}): {where.message}")

    def unpublished(self) -> StreamDRError:
        """Why there is no projection: CatchingUp where there will be one in a moment."""
        if self.failure is not None:
            return self.failed(self.failure)
        kind, why = self._unsolved()
        return kind(f"model {self.name!r} {why}")

    def _unsolved(self) -> tuple[type[NotFitted], str]:
        if self.position < self.goal:
            return CatchingUp, (
                f"has published no projection yet: it has learned the log up to position {self.position} of {self.goal}. "
                "Ask again in a moment, while a service or a replay runs."
            )
        if self.rows == 0:
            return NotFitted, "has published no projection yet: it has learned no row. Send rows first."
        if self.solve_error is not None:
            kind = type(self.solve_error) if isinstance(self.solve_error, NotFitted) else NotFitted
            if isinstance(self.solve_error, StreamDRError):
                return kind, f"has no projection of its {self.rows} rows: {self.solve_error}"
            return kind, f"could not be solved ({type(self.solve_error).__name__}); the log has the details."
        if self.policy is not None and not self.soon:
            return NotFitted, (
                f"has not been published since it learned its {self.rows} rows ({self.policy.described}): "
                f"POST /models/{self.name}/publish."
            )
        return CatchingUp, (
            f"is not solved yet for its {self.rows} rows; a service or a replay that runs does so in a moment."
        )

    def version(self, number: int) -> Published:
        """A kept projection by its version. Raises UnknownVersion."""
        kept: Published | None = self.versions.find(number)
        if kept is None:
            numbers = self.versions.numbers
            raise UnknownVersion(
                f"model {self.name!r} keeps versions {numbers[:1]} … {numbers[-1:]}; {number} is not there."
            )
        return kept

    def describe(self, last: int) -> dict[str, Any]:
        """All that is told about a model, JSON-able; `last` is the log's last position (for the lag, in events)."""
        published = self.published
        projection: Any = published.projection if published else None
        eigenvalues = getattr(projection, "eigenvalues", None)
        return {
            "name": self.name,
            "estimator": self.spec.estimator,
            "params": self.spec.params,
            "state": self.status,
            "position": self.position,
            "rows": self.rows,
            "rows_skipped": self.rows_skipped,
            "lag": max(0, last - self.position),
            "version": published.version if published else 0,
            "published_position": published.position if published else None,
            "components": projection.n_components if published else 0,
            "classes": list(self.classes),
            "eigenvalues": [] if eigenvalues is None else eigenvalues.tolist(),
            "solution": projection.solution if published else None,
            "refined_at": published.refined_at if published else None,
            "residual": published.residual if published else None,
            "bytes": self.estimator.state_bytes(self.accumulator.n_features, max(1, len(self.classes))),
            "publish": self.policy._asdict() if self.policy else None,
            "failure": self.failure._asdict() if self.failure else None,
        }

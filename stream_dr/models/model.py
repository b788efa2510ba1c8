"""Model: an estimator's spec, its accumulator, its position, and the projections it published.

Only a model's own methods change it. They let it learn a batch, continue from a state, catch up,
fail and publish. Other threads read its attributes.

To publish, a frozen State is solved, oriented like the projection before, numbered, and swapped in
as one reference. Readers take `published`, an immutable value, so no transform waits. The
accumulator has one owner, and all that others see of it are values that are never written to
again.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, Protocol

from stream_dr.aliases import JsonDict
from stream_dr.errors import (
    CatchingUp,
    InvalidParameter,
    ModelFailed,
    NotFitted,
    StreamDRError,
    UnknownVersion,
    without_frames,
)
from stream_dr.estimators import make
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import state_bytes
from stream_dr.models.entry import Entry, ModelFailure, PublishPolicy, RefinePolicy
from stream_dr.models.saved import estimator_of, with_defaults
from stream_dr.models.schema import block_for, class_rows
from stream_dr.models.versions import Published, Versions, projection_change
from stream_dr.projection import Linear, Projection
from stream_dr.rows.block import Block
from stream_dr.solve.orientation import oriented
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.targets.targets import Label

log = logging.getLogger("stream_dr.model")

_RESERVED = 1_000
"""Number of version numbers that are made durable at once."""


ModelStatus = Literal["live", "catching_up", "failed"]
"""How far a model is.

- "live": it is at the log's end or near it, and is advanced with the other live models.
- "catching_up": it is behind or to be rebuilt, and is advanced by itself.
- "failed": it stopped at an event that it could not apply.
"""


class Frozen(NamedTuple):
    """A model's state at a position.

    unlearn_horizon: as in Model, at least `position`.
    """

    state: State
    position: int
    rows: int
    unlearn_horizon: int


class Learner(Protocol):
    """Anything that learns batches: a Model, or an estimator by itself."""

    @property
    def estimator(self) -> Estimator:
        """Estimator that learns."""

    @property
    def initial_state(self) -> State | None:
        """State from which learning continues. None if it begins empty."""


class Model:
    """Model of a directory.

    All threads may read the attributes. Only the model's own methods change them, and one thread at
    a time learns (tests/stream_dr/models/test_changes.py).

    Parameters
    ----------
    entry : Entry
        Stored name, spec and policies. Its `version_ceiling` is the highest version number that
        may have been handed out.
    keep : int
        Number of published projections that can be looked up by version.
    reserve : callable
        Function of the model's id and a new ceiling. It stores the ceiling, durable on return.

    Attributes
    ----------
    name : str
    id : int
        Never used twice in a directory.
    spec : Spec
    start : int
        First position that the model learns from.
    status : ModelStatus
    position : int
        Last event applied, start − 1 before any.
    unlearn_horizon : int
        Unlearn events up to `max(unlearn_horizon, position)` are already reflected in the state.
        Applying one again changes nothing, and the rows it removes from later events are skipped
        when those events are learned.
    log_end : int
        Last position of the log.
    names : tuple of str or None
        Names of the columns, which snapshots store.
    failure : ModelFailure or None
    published : Published or None
        Projection that readers see.
    versions : Versions
        Projections that can be looked up by version.
    policy : PublishPolicy or None
        None stands for the driver's policy.
    refine_policy : RefinePolicy or None
    last_refine : (int, float)
        Number of rows learned, and the time, when a refine last began.
    attempted : int
        Position of the last state that was solved or failed to be.
    solve_error : Exception or None
        Error that the last attempt to solve raised.
    publishing : bool
        True while a solution is under way.
    published_at, publish_seconds : float
        Time when the last solution ended (time.monotonic), and seconds it took.
    snapshot_position, snapshot_version : int
        Position and published version of the last snapshot.
    advance_seconds : float
    advanced_rows : int
        Time spent learning, and rows learned, by this process.

    Examples
    --------
    >>> import stream_dr  # running, directory and model are those of the example of Running
    >>> model.rows, model.classes
    (4, ('a', 'b'))
    """

    def __init__(self, entry: Entry, keep: int, reserve: Callable[[int, int], None]) -> None:
        refused: InvalidParameter | None = None
        try:
            self.spec = with_defaults(entry.spec)
            self.estimator: Estimator = estimator_of(self.spec)
        except InvalidParameter as e:
            # Another release accepted the parameters. This fails one model and not the start.
            refused = e
            self.spec = entry.spec
            self.estimator = make(entry.spec.estimator)

        start = entry.start
        self.name = entry.name
        self.id = entry.id
        self.start = start
        self.names: tuple[str, ...] | None = None
        self.policy = entry.policy
        self.refine_policy = entry.refine
        self.last_refine = (0, time.monotonic())

        self.status: ModelStatus = "catching_up"
        self.position = self.log_end = self.unlearn_horizon = start - 1
        self.accumulator: Accumulator = self.estimator.accumulator()
        self.failure: ModelFailure | None = None
        self.advance_seconds = 0.0
        self.advanced_rows = 0

        self.published: Published | None = None
        self.versions = Versions(keep)
        self.next_version = entry.version_ceiling + 1
        self._ceiling = entry.version_ceiling
        self._reserve = partial(reserve, entry.id)

        self.attempted = start - 1
        self.solve_error: Exception | None = None
        self.publishing = False
        self.published_at = time.monotonic()
        self.publish_seconds = 0.0

        self.snapshot_position = start - 1
        self.snapshot_version = 0

        # Held while an event is applied, and while the state is frozen.
        self._learning = threading.Lock()
        self._solving = threading.Lock()

        # Held by the thread that writes a snapshot.
        self.snapshotting = threading.Lock()

        if refused is not None:
            self.set_failure(ModelFailure(start, refused.code, str(refused)))

    def live(self) -> None:
        """Mark the model as live.

        A failed model stays failed.
        """
        self.status = "live" if self.failure is None else "failed"

    def catch_up(self) -> None:
        """Mark the model as catching up.

        A failed model stays failed.
        """
        self.status = "catching_up" if self.failure is None else "failed"

    def learn(self, position: int, block: Block | None) -> None:
        """Apply the event at a position, and learn its rows if it has any.

        Raises the accumulator's error. The model has failed then, because its state may be half
        new.
        """
        started = time.perf_counter()
        rows_before = self.rows
        with self._learning:
            try:
                if block is not None:
                    self.accumulator.add(block_for(self.estimator, block))
            except Exception as e:
                self.fail(position, e)
                raise
            self.position = position

        self.advance_seconds += time.perf_counter() - started
        self.advanced_rows += self.rows - rows_before

    def set_unlearn_horizon(self, unlearn_horizon: int) -> None:
        """Skip all rows that unlearn events up to a position remove.

        The model must not have learned anything yet.
        """
        self.unlearn_horizon = unlearn_horizon

    def resume(self, state: State, position: int, unlearn_horizon: int = -1) -> None:
        """Continue from a state.

        It is that of a snapshot, one that lost rows, or one that was learned elsewhere. If no row
        is left, the published projection is withdrawn.
        """
        accumulator = self.estimator.accumulator(state)
        with self._learning:
            self.accumulator, self.position, self.unlearn_horizon = accumulator, position, unlearn_horizon
            if self.published is not None and not self.rows:
                self.published = None

    def fail(self, position: int, error: Exception) -> ModelFailure:
        """Stop at the event that could not be applied.

        The published projection is still served.
        """
        return self.set_failure(ModelFailure.of(position, error))

    def set_failure(self, failure: ModelFailure) -> ModelFailure:
        """Stop for a reason that is stored already."""
        self.status = "failed"
        self.failure = failure
        return failure

    def set_log_end(self, log_end: int, names: tuple[str, ...] | None) -> None:
        """Set the log's last position and the names of its columns."""
        self.log_end = log_end
        self.names = names or self.names

    def set_policies(self, publish: PublishPolicy | None, refine: RefinePolicy | None) -> None:
        """Publish and refine by these policies from now on.

        None keeps the present policy.
        """
        self.policy = publish or self.policy
        self.refine_policy = refine or self.refine_policy

    def begin_refine(self, rows: int | None = None) -> None:
        """Note that a refine begins.

        rows: number of rows it covers. None stands for all rows learned.
        """
        self.last_refine = (self.rows if rows is None else rows, time.monotonic())

    def restore_published(self, published: Published | None, next_version: int = 0) -> None:
        """Serve a projection that was published before, if there is one.

        next_version: lowest number of the next version.
        """
        self.next_version = max(self.next_version, next_version)
        if published is not None:
            self.next_version = max(self.next_version, published.version + 1)
            self.versions.add(published)
            self.published = published

    @property
    def initial_state(self) -> State | None:
        """State of the saved estimator that the model began with.

        None if it began empty.
        """
        if self.spec.saved is None:
            return None
        with self._learning:
            return self.accumulator.freeze()

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        return int(self.accumulator.rows)

    @property
    def rows_skipped(self) -> int:
        """Number of rows skipped because they had no target."""
        return int(self.accumulator.rows_skipped)

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels learned so far of which a row is left, sorted."""
        return tuple(sorted(self.accumulator.labels_left))

    @property
    def published_version(self) -> int:
        """Version of the published projection, 0 if there is none."""
        return self.published.version if self.published else 0

    @property
    def auto_publishes(self) -> bool:
        """True if the policy publishes learned rows within a minute, without a request."""
        return self.policy is None or self.policy.auto_publishes

    @property
    def subtracts(self) -> bool:
        """True if rows can be subtracted from the state.

        The state must be a sum, in which older rows weigh as much as new ones.
        """
        return self.estimator.additive and self.estimator.decay == 1.0

    @property
    def is_snapshotted(self) -> bool:
        """True if the last snapshot has the published projection."""
        return self.snapshot_version == self.published_version

    def has_snapshot_of(self, position: int) -> bool:
        """Return True if a snapshot of the state at `position` would add nothing new."""
        return position < self.snapshot_position + (1 if self.is_snapshotted else 0)

    @property
    def stale_rows(self) -> int:
        """Number of rows learned that the published projection does not include."""
        return max(0, self.rows - (self.published.rows if self.published else 0))

    @property
    def refine_due(self) -> float:
        """Time (time.monotonic) at which the policy lets the model be refined.

        Infinite if no refine is due before more rows come.
        """
        refined_rows, refined_at = self.last_refine
        if self.refine_policy is None or self.published is None or self.published.projection.solution == "exact":
            return math.inf
        if self.refine_policy.rows is not None and self.rows - refined_rows >= self.refine_policy.rows:
            return refined_at
        return (
            refined_at + self.refine_policy.seconds
            if self.refine_policy.seconds and self.rows != refined_rows
            else math.inf
        )

    @property
    def stale(self) -> bool:
        """True if the published projection lacks rows that it should include.

        A refined projection is not stale. It stays as it is until the next refine.
        """
        if self.rows == 0 or (self.published is not None and self.published.refined_at is not None):
            return False
        return self.published is None or self.published.position < self.position

    def includes(self, position: int) -> bool:
        """Return True if `position` is applied, and published as far as it should be."""
        return self.position >= position and (not self.stale or self.published_to(position))

    def published_to(self, position: int) -> bool:
        """Return True if the published projection is of `position` or later."""
        return self.published is not None and self.published.position >= position

    def blocking_reason(self, position: int) -> str | None:
        """Return the reason why no published projection will include `position`.

        The model has failed, or could not be solved there or later. None if no such reason is
        known.
        """
        failure = self.failure
        if failure is None and self.solve_error is not None and position <= self.attempted:
            failure = self.publish_failure
        if failure is None:
            return None

        what = "failed" if self.failure else "cannot be published"
        why = "the log has the details" if failure.code == "internal" else failure.message
        return f"model {self.name!r} {what} at position {failure.position} ({failure.code}): {why}"

    def freeze(self) -> Frozen:
        """Return the state between two events. All threads may call it.

        Raises ModelFailed if the model has failed, because its state may be half new.
        """
        with self._learning:
            if self.failure is not None:
                raise self.failure_error(self.failure)
            return Frozen(self.accumulator.freeze(), self.position, self.rows, max(self.position, self.unlearn_horizon))

    def publish(self, frozen: Frozen) -> Published:
        """Solve a frozen state and make the result what readers see.

        One thread at a time solves. Raises the solver's error, and then nothing has changed.
        """
        with self._solving:
            return self._swap(self.estimator.solve(frozen.state), frozen)

    def begin_publishing(self) -> Frozen:
        """Return the state to be solved.

        The caller solves no other state until `try_to_publish` returns.
        """
        self.publishing = True
        return self.freeze()

    def try_to_publish(self, frozen: Frozen) -> Published | None:
        """Solve and publish a frozen state, or return None.

        Nothing is published if a newer or refined projection was published meanwhile. If the state
        cannot be solved, the last projection stays and `solve_error` is set.
        """
        started = time.monotonic()
        try:
            with self._solving:
                current = self.published
                if current is not None and (current.refined_at is not None or current.position >= frozen.position):
                    return None
                published = self._swap(self.estimator.solve(frozen.state), frozen)

            self.solve_error = None
            return published
        except Exception as e:
            self._store_solve_error(frozen.position, e)
            return None
        finally:
            self.attempted = max(self.attempted, frozen.position)
            self.published_at = time.monotonic()
            self.publish_seconds = self.published_at - started
            self.publishing = False

    def publish_refined(self, projection: Projection, frozen: Frozen, residual: float) -> Published:
        """Make a refined projection of a frozen state what readers see.

        It stays until the next refine.
        """
        with self._solving:
            return self._swap(projection, frozen, residual)

    @property
    def publish_failure(self) -> ModelFailure | None:
        """Reason why the last state could not be solved, or None.

        What is published, if anything, lags behind.
        """
        if self.solve_error is None:
            return None
        return ModelFailure.of(self.attempted, self.solve_error)

    @property
    def state(self) -> str:
        """Status, or "failed_to_publish" if the model is live and cannot be solved."""
        return "failed_to_publish" if self.status == "live" and self.solve_error is not None else self.status

    def _store_solve_error(self, position: int, error: Exception) -> None:
        """Store the error of solving, and log it if it is a new one.

        Only an unexpected error is logged with a traceback.
        """
        if str(error) != str(self.solve_error):
            traceback = None if isinstance(error, StreamDRError) else error
            log.warning(
                "model %s could not be solved at position %d: %s", self.name, position, error, exc_info=traceback
            )

        # The frames of an error hold the state in memory.
        self.solve_error = without_frames(error)

    def _swap(self, projection: Projection, frozen: Frozen, residual: float | None = None) -> Published:
        """Orient, number and publish a projection."""
        last = self.published

        # Components keep the signs and order of the last projection.
        covariance_product = partial(self.estimator.scatter_product, frozen.state)
        projection = oriented(projection, last.projection if last else None, covariance_product)
        if isinstance(projection, Linear):
            projection = projection.prepared()

        published = Published(
            self._next_version(),
            frozen.position,
            projection,
            frozen.rows,
            projection_change(last.projection, projection) if last else None,
            None if residual is None else frozen.position,
            residual,
        )

        self.versions.add(published)
        self.published = published
        self.published_at = time.monotonic()
        return published

    def _next_version(self) -> int:
        """Return the next version number.

        Numbers below the ceiling may have been used, whatever was killed. So the ceiling is
        raised, durably, before a number past it is used.
        """
        version = self.next_version
        if version > self._ceiling:
            self._set_ceiling(version + _RESERVED - 1)
        self.next_version = version + 1
        return version

    def release_versions(self) -> None:
        """Lower the ceiling to the version numbers that were used.

        Call it at a clean end, after the last snapshot.
        """
        if self._ceiling >= self.next_version:
            self._set_ceiling(self.next_version - 1)

    def _set_ceiling(self, ceiling: int) -> None:
        """Store the ceiling of version numbers, durable on return."""
        self._reserve(ceiling)
        self._ceiling = ceiling

    def note_snapshot(self, position: int, version: int) -> None:
        """Note what the last snapshot has.

        version: published version that it has, 0 for none.
        """
        self.snapshot_position = position
        self.snapshot_version = version

    def failure_error(self, failure: ModelFailure) -> ModelFailed:
        """Return the error for a request to a failed model."""
        why = "the log has the details" if failure.code == "internal" else failure.message
        return ModelFailed(f"model {self.name!r} failed at position {failure.position} ({failure.code}): {why}.")

    def unpublished_error(self) -> StreamDRError:
        """Return the error for a request to a model without a projection.

        ModelFailed if the model has failed, CatchingUp if there will be a projection in a moment,
        else NotFitted or the solver's error of that kind.
        """
        if self.failure is not None:
            return self.failure_error(self.failure)
        kind, why = self._unpublished_reason()
        return kind(f"model {self.name!r} {why}")

    def _unpublished_reason(self) -> tuple[type[NotFitted], str]:
        """Return the class and the text of the error."""
        if self.position < self.log_end:
            return CatchingUp, (
                f"has published no projection yet: it has learned the log up to position {self.position} of {self.log_end}. "
                "Ask again in a moment, while a service or a replay runs."
            )
        if self.rows == 0:
            return NotFitted, "has published no projection yet: it has learned no row. Send rows first."

        error = self.solve_error
        if error is not None:
            kind = type(error) if isinstance(error, NotFitted) else NotFitted
            if isinstance(error, StreamDRError):
                return kind, f"has no projection of its {self.rows} rows: {error}"
            return kind, f"could not be solved ({type(error).__name__}); the log has the details."

        if self.policy is not None and not self.auto_publishes:
            return NotFitted, (
                f"has not been published since it learned its {self.rows} rows ({self.policy.described}): "
                f"POST /models/{self.name}/publish."
            )
        return CatchingUp, (
            f"is not solved yet for its {self.rows} rows; a service or a replay that runs does so in a moment."
        )

    def version(self, number: int) -> Published:
        """Return a stored projection by its version. Raises UnknownVersion."""
        published = self.versions.find(number)
        if published is None:
            numbers = self.versions.numbers
            raise UnknownVersion(
                f"model {self.name!r} keeps versions {numbers[:1]} … {numbers[-1:]}; {number} is not there."
            )
        return published

    def describe(self, last: int) -> JsonDict:
        """Return the description of the model, JSON-able.

        last: last position of the log, from which the lag in events is computed.
        """
        published = self.published
        accumulator = self.accumulator
        projection = published.projection if published else None

        return {
            "name": self.name,
            "estimator": self.spec.estimator,
            "params": self.spec.params | accumulator.decided,
            "state": self.state,
            "position": self.position,
            "rows": self.rows,
            "rows_skipped": self.rows_skipped,
            "lag": max(0, last - self.position),
            "version": self.published_version,
            "versions": self.versions.numbers,
            "published_position": published.position if published else None,
            "components": projection.n_components if projection else 0,
            "classes": list(self.classes),
            "class_rows": class_rows(accumulator, self.classes),
            "classes_waiting": list(self.estimator.classes_waiting(accumulator)),
            "eigenvalues": published.eigenvalues.tolist() if published else [],
            "solution": projection.solution if projection else None,
            "refined_at": published.refined_at if published else None,
            "residual": published.residual if published else None,
            "bytes": state_bytes(
                self.estimator,
                accumulator.n_features,
                len(accumulator.labels) or 1,
                accumulator.table,
            ),
            "stale_rows": self.stale_rows,
            "publish": self.policy._asdict() if self.policy else None,
            "refine": self.refine_policy._asdict() if self.refine_policy and any(self.refine_policy) else None,
            "failure": self.failure._asdict() if self.failure else None,
            "publish_failure": self.publish_failure._asdict() if self.publish_failure else None,
        }

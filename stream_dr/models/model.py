"""Model: an estimator that learns the events of the log, and its published projections.

Only the methods of a model change its attributes. Other threads read the attributes.

Publishing has four steps:

1. Compute a projection from a frozen State.
2. Give its components the order and signs of the previous projection's components.
3. Give it a version number.
4. Set the attribute `published` to the new projection. This is one assignment of an immutable
   object, so readers never wait.

One thread at a time changes the accumulator. Other threads get only copies of its values.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
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
from stream_dr.models.versions import Published, VersionNumbers, Versions, projection_change
from stream_dr.projection import Linear, Projection, linear_part
from stream_dr.rows.block import Block
from stream_dr.solve.orientation import orient_components
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.targets.targets import Label

log = logging.getLogger("stream_dr.model")

ModelStatus = Literal["live", "catching_up", "failed"]
"""How much of the log a model has learned.

- "live": the model is at the end of the log or near it. It learns new events together with the
  other live models.
- "catching_up": the model is behind the end of the log, or learns the log again from an earlier
  state. It learns events alone.
- "failed": the model stopped at an event that it could not learn.
"""


class Frozen(NamedTuple):
    """Immutable copy of a model's state.

    position: log position of the last event that the state includes.
    rows: number of rows learned.
    unlearn_horizon: position up to which unlearn events are already reflected in the state. It is
        at least `position`.
    """

    state: State
    position: int
    rows: int
    unlearn_horizon: int


@dataclass
class Solving:
    """Last attempt to compute a model's projection from its state.

    attempted: log position of the last event that the state includes.
    error: error that the solver raised, or None.
    under_way: True while a projection is being computed and published.
    ended_at: time at which the attempt ended (time.monotonic).
    seconds: time that the attempt took.
    """

    attempted: int
    error: Exception | None = None
    under_way: bool = False
    ended_at: float = field(default_factory=time.monotonic)
    seconds: float = 0.0


class SnapshotMark(NamedTuple):
    """Contents of the newest file with a model's state.

    position: log position of the last event that the state includes.
    version: version of the projection in the file, 0 if the file has no projection.
    """

    position: int
    version: int


@dataclass
class LearningTime:
    """Time that this process has spent learning rows.

    seconds: number of seconds.
    rows: number of rows learned in this time.
    """

    seconds: float = 0.0
    rows: int = 0

    @property
    def rows_per_second(self) -> float:
        """Number of rows learned per second, 0 before the first row."""
        return self.rows / self.seconds if self.rows else 0.0


class Learner(Protocol):
    """Object that learns batches, either a Model or an estimator alone."""

    @property
    def estimator(self) -> Estimator:
        """Estimator whose method and parameters are used to learn."""

    @property
    def initial_state(self) -> State | None:
        """State from which learning continues. None if the learner starts empty."""


class Model:
    """A model that learns from the log and publishes projections.

    All threads may read the attributes. Only the methods of the model change them. One thread at a
    time may call `learn` (tests/stream_dr/models/test_changes.py).

    Parameters
    ----------
    entry : Entry
        Name, spec and policies of the model, as stored on disk.
    keep : int
        Number of published projections that can be looked up by version.
    reserve : callable
        Function that stores an upper bound on the version numbers in use. Its arguments are the
        model's id and the bound. The bound must be durable when the function returns.

    Attributes
    ----------
    name : str
    id : int
        Number of the model. No two models of a directory have the same id, not even removed ones.
    spec : Spec
    start : int
        Position of the first event that the model learns.
    status : ModelStatus
    position : int
        Position of the last event that the model has learned. start − 1 before the first event.
    unlearn_horizon : int
        An unlearn event removes rows of earlier events. Unlearn events up to
        `max(unlearn_horizon, position)` are already reflected in the state. To apply such an event
        again changes nothing. Rows that it removes and that are not learned yet are never learned.
    log_end : int
        Last position of the log.
    names : tuple of str or None
        Names of the columns, which snapshots store.
    failure : ModelFailure or None
        Reason why the model has failed.
    published : Published or None
        Projection that readers see.
    versions : Versions
        Projections that can be looked up by version.
    policy : PublishPolicy or None
        Rule for publishing. None stands for the default policy of the thread that publishes.
    refine_policy : RefinePolicy or None
        Rule for automatic refines.
    last_refine : (int, float)
        Number of rows learned, and the time (time.monotonic), when the last refine started.
    version_numbers : VersionNumbers
        Gives each published projection its number.
    solving : Solving
        Last attempt to compute a projection from the state.
    last_snapshot : SnapshotMark
        Contents of the last snapshot (file with the model's state).
    learning_time : LearningTime
        Time that this process has spent learning.

    Examples
    --------
    The example uses `running`, `directory` and `model` from the example of Running.

    >>> import stream_dr
    >>> model.rows, model.classes
    (4, ('a', 'b'))
    """

    def __init__(self, entry: Entry, keep: int, reserve: Callable[[int, int], None]) -> None:
        refused: InvalidParameter | None = None
        try:
            self.spec = with_defaults(entry.spec)
            self.estimator: Estimator = estimator_of(self.spec)
        except InvalidParameter as e:
            # Another release accepted the parameters. The error stops this model, not the process.
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
        self.learning_time = LearningTime()

        self.published: Published | None = None
        self.versions = Versions(keep)
        self.version_numbers = VersionNumbers(entry.version_ceiling, partial(reserve, entry.id))
        self.solving = Solving(attempted=start - 1)
        self.last_snapshot = SnapshotMark(start - 1, 0)

        # This lock is held while an event is applied, and while the state is frozen.
        self._learning = threading.Lock()
        self._solve_lock = threading.Lock()

        # The thread that writes a snapshot holds this lock.
        self.snapshotting = threading.Lock()

        if refused is not None:
            self.set_failure(ModelFailure(start, refused.code, str(refused)))

    def live(self) -> None:
        """Mark the model as live, unless it has failed.

        A live model has learned all events of the log, or all but the last few. New events are
        applied to all live models together.
        """
        self.status = "live" if self.failure is None else "failed"

    def catch_up(self) -> None:
        """Mark the model as catching up, unless it has failed.

        The model is behind the log's end, or must be rebuilt. Until it is live it learns events
        alone, apart from the live models.
        """
        self.status = "catching_up" if self.failure is None else "failed"

    def learn(self, position: int, block: Block | None) -> None:
        """Learn the rows of the event at a position.

        If the accumulator raises an error, the model is marked as failed and the error is raised.
        The state may then contain only a part of the event.

        block: rows of the event. None if the event has no rows to learn. The position of the model
            then still changes to `position`.
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

        self.learning_time.seconds += time.perf_counter() - started
        self.learning_time.rows += self.rows - rows_before

    def set_unlearn_horizon(self, unlearn_horizon: int) -> None:
        """Skip the rows that are removed by unlearn events so far.

        The model must not have learned anything yet. These rows are left out when their events are
        learned.

        unlearn_horizon: position of the last of these unlearn events.
        """
        self.unlearn_horizon = unlearn_horizon

    def resume(self, state: State, position: int, unlearn_horizon: int = -1) -> None:
        """Continue from a state.

        The state may come from a snapshot, from unlearning rows, or from learning in another
        process. If the state has no row, the published projection is withdrawn.

        position: position of the last event that the state includes.
        unlearn_horizon: position up to which unlearn events are already reflected in the state.
        """
        accumulator = self.estimator.accumulator(state)
        with self._learning:
            self.accumulator, self.position, self.unlearn_horizon = accumulator, position, unlearn_horizon
            if self.published is not None and not self.rows:
                self.published = None

    def fail(self, position: int, error: Exception) -> ModelFailure:
        """Mark the model as failed at an event, and return the failure.

        The published projection is still served.

        position: position of the event that raised the error.
        """
        return self.set_failure(ModelFailure.of(position, error))

    def set_failure(self, failure: ModelFailure) -> ModelFailure:
        """Mark the model as failed for a reason that is already stored on disk."""
        self.status = "failed"
        self.failure = failure
        return failure

    def set_log_end(self, log_end: int, names: tuple[str, ...] | None) -> None:
        """Set the log's last position and the names of its columns."""
        self.log_end = log_end
        self.names = names or self.names

    def set_policies(self, publish: PublishPolicy | None, refine: RefinePolicy | None) -> None:
        """Set the policies for publishing and refining.

        An argument of None does not change the present policy.
        """
        self.policy = publish or self.policy
        self.refine_policy = refine or self.refine_policy

    def begin_refine(self, rows: int | None = None) -> None:
        """Note that the model is refined from now on, in `last_refine`.

        rows: number of rows with which the model is refined. None stands for all rows learned.
        """
        self.last_refine = (self.rows if rows is None else rows, time.monotonic())

    def restore_published(self, published: Published | None, next_version: int = 0) -> None:
        """Serve a projection that was published earlier. Do nothing if it is None.

        next_version: lowest number that the next version may get.
        """
        self.version_numbers.skip_to(next_version)
        if published is not None:
            self.version_numbers.skip_to(published.version + 1)
            self.versions.add(published)
            self.published = published

    @property
    def initial_state(self) -> State | None:
        """Current state if the model started from a saved estimator, else None."""
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
        """Labels that still have rows after unlearning, sorted."""
        return tuple(sorted(self.accumulator.remaining_labels))

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
        """True if the last snapshot file contains the published projection."""
        return self.last_snapshot.version == self.published_version

    def snapshot_covers(self, position: int) -> bool:
        """Return True if a snapshot of the state at `position` would add nothing new.

        A snapshot is a file with the model's state and its published projection.
        """
        return position < self.last_snapshot.position + (1 if self.is_snapshotted else 0)

    @property
    def stale_rows(self) -> int:
        """Number of rows learned that the published projection does not include."""
        return max(0, self.rows - (self.published.rows if self.published else 0))

    @property
    def refine_due(self) -> float:
        """Time (time.monotonic) from which the model may be refined again, by its policy.

        Infinite if the model must not be refined automatically before it has learned more rows.
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
        """True if the model must be published again to include all learned rows.

        False if the published projection is a refined one. A refined projection stays published
        until the model is refined again, so it need not include the rows learned since then.
        """
        if self.rows == 0 or (self.published is not None and self.published.refined_at is not None):
            return False
        return self.published is None or self.published.position < self.position

    def includes(self, position: int) -> bool:
        """Return True if the event at `position` is learned and need not be published.

        Either the published projection includes the event. Or the published projection is a
        refined one, which stays published until the model is refined again, even without the
        event.
        """
        return self.position >= position and (not self.stale or self.published_to(position))

    def published_to(self, position: int) -> bool:
        """Return True if the published projection includes all events up to `position`."""
        return self.published is not None and self.published.position >= position

    def blocking_reason(self, position: int) -> str | None:
        """Return the reason why the event at `position` cannot be published, or None.

        There are two possible reasons:

        * The model has failed.
        * The projection of a state that includes the event could not be computed.
        """
        failure = self.failure
        if failure is None and self.solving.error is not None and position <= self.solving.attempted:
            failure = self.publish_failure
        if failure is None:
            return None

        what = "failed" if self.failure else "cannot be published"
        why = "the log has the details" if failure.code == "internal" else failure.message
        return f"model {self.name!r} {what} at position {failure.position} ({failure.code}): {why}"

    def freeze(self) -> Frozen:
        """Return the current state, after all learned events. All threads may call this method.

        Raises ModelFailed if the model has failed. Its state may then include only a part of the
        event at which it failed.
        """
        with self._learning:
            if self.failure is not None:
                raise self.failure_error(self.failure)
            return Frozen(self.accumulator.freeze(), self.position, self.rows, max(self.position, self.unlearn_horizon))

    def publish(self, frozen: Frozen) -> Published:
        """Compute the projection of a frozen state, publish it, and return it.

        If several threads call this method, they run one after the other. If the projection cannot
        be computed, the error is raised and nothing has changed.
        """
        with self._solve_lock:
            return self._swap(self.estimator.solve(frozen.state), frozen)

    def begin_publishing(self) -> Frozen:
        """Return the state for `try_to_publish`, and set `solving.under_way`.

        The caller must not call this method again until `try_to_publish` has returned.
        """
        self.solving.under_way = True
        return self.freeze()

    def try_to_publish(self, frozen: Frozen) -> Published | None:
        """Compute the projection of a frozen state, publish it, and return it.

        Returns None and publishes nothing in two cases:

        * The published projection is a refined one, or includes all events of the state.
        * The projection cannot be computed. The error is then stored in `solving.error`.
        """
        started = time.monotonic()
        try:
            with self._solve_lock:
                current = self.published
                if current is not None and (current.refined_at is not None or current.position >= frozen.position):
                    return None
                published = self._swap(self.estimator.solve(frozen.state), frozen)

            self.solving.error = None
            return published
        except Exception as e:
            self._store_solve_error(frozen.position, e)
            return None
        finally:
            self.solving.attempted = max(self.solving.attempted, frozen.position)
            self.solving.ended_at = time.monotonic()
            self.solving.seconds = self.solving.ended_at - started
            self.solving.under_way = False

    def publish_refined(self, projection: Projection, frozen: Frozen, residual: float) -> Published:
        """Publish a refined projection of a frozen state.

        A refined projection was computed by further passes over the rows. It stays published until
        the model is refined again.

        frozen: state from which the first pass started.
        residual: relative residual of the refined solution.
        """
        with self._solve_lock:
            published = self._swap(projection, frozen, residual)
        self.solving.error = None
        return published

    @property
    def publish_failure(self) -> ModelFailure | None:
        """Reason why the last attempt to publish failed, or None.

        If there is a reason, the published projection does not include the latest rows.
        """
        if self.solving.error is None:
            return None
        return ModelFailure.of(self.solving.attempted, self.solving.error)

    @property
    def state(self) -> str:
        """The status, or "failed_to_publish" for a live model whose last publish failed."""
        return "failed_to_publish" if self.status == "live" and self.solving.error is not None else self.status

    def _store_solve_error(self, position: int, error: Exception) -> None:
        """Store the error that the last attempt to compute a projection raised.

        The error is logged unless the attempt before raised an error with the same message. Only
        an error that is no StreamDRError is logged with a traceback.

        position: log position of the last event that the state includes.
        """
        if str(error) != str(self.solving.error):
            traceback = None if isinstance(error, StreamDRError) else error
            log.warning(
                "model %s could not be solved at position %d: %s", self.name, position, error, exc_info=traceback
            )

        # The traceback of an error refers to the state, which would stay in memory with the error.
        self.solving.error = without_frames(error)

    def _swap(self, projection: Projection, frozen: Frozen, residual: float | None = None) -> Published:
        """Orient a projection, give it a version number, publish it, and return it.

        The components get the order and signs of the components published before.

        frozen: state from which the projection was computed.
        residual: relative residual of a refined solution. None if the projection is not refined.
        """
        last = self.published

        # Give the components the signs and order of the last published components.
        covariance_product = partial(self.estimator.scatter_product, frozen.state)
        projection = orient_components(projection, last.projection if last else None, covariance_product)
        if isinstance(projection, Linear):
            projection = projection.prepared()
        # If a solution without one fold fails, the projection is published without its spread.
        with suppress(StreamDRError):
            projection = self.estimator.with_spread(projection, frozen.state)

        published = Published(
            self.version_numbers.take(),
            frozen.position,
            projection,
            frozen.rows,
            projection_change(last.projection, projection) if last else None,
            None if residual is None else frozen.position,
            residual,
        )

        self.versions.add(published)
        self.published = published
        self.solving.ended_at = time.monotonic()
        return published

    def note_snapshot(self, position: int, version: int) -> None:
        """Note that a file with the model's state was written, in `last_snapshot`.

        position: log position of the last event that the state includes.
        version: version of the projection in the file, 0 if the file has no projection.
        """
        self.last_snapshot = SnapshotMark(position, version)

    def failure_error(self, failure: ModelFailure) -> ModelFailed:
        """Return the error for a request to a failed model."""
        why = "the log has the details" if failure.code == "internal" else failure.message
        return ModelFailed(f"model {self.name!r} failed at position {failure.position} ({failure.code}): {why}.")

    def unpublished_error(self) -> StreamDRError:
        """Return the error for a request to a model without a projection.

        The error is one of these:

        * ModelFailed if the model has failed.
        * CatchingUp if the model will soon publish a projection.
        * Otherwise NotFitted, or the subclass of NotFitted that the solver raised.
        """
        if self.failure is not None:
            return self.failure_error(self.failure)
        kind, why = self._unpublished_reason()
        return kind(f"model {self.name!r} {why}")

    def _unpublished_reason(self) -> tuple[type[NotFitted], str]:
        """Return the class and the text of the error for a model without a projection."""
        if self.position < self.log_end:
            return CatchingUp, (
                f"has published no projection yet: it has learned the log up to position {self.position} of {self.log_end}. "
                "Ask again in a moment, while a service or a replay runs."
            )
        if self.rows == 0:
            return NotFitted, "has published no projection yet: it has learned no row. Send rows first."

        error = self.solving.error
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
        """Return a JSON-able description of the model.

        last: last position of the log, from which the lag in events is computed.
        """
        published = self.published
        accumulator = self.accumulator
        projection = published.projection if published else None
        linear = linear_part(projection)

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
            "chosen": linear.choice.describe() if linear and linear.choice else None,
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

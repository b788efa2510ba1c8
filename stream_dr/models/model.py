"""Model: an estimator that learns the log and publishes projections.

Only the methods of a model change its attributes. Other threads read the attributes.

Publishing has four steps:

1. Compute a projection from a State, an immutable copy of the learned sums.
2. Give its components the order and signs of the previous projection's components.
3. Give it a version number.
4. Set the attribute `published` to the new projection. This is one assignment of an immutable
   object, so readers never wait.

A model's accumulator is the mutable object that learns rows. One thread at a time changes the
accumulator. Other threads get only copies of its values.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, Protocol

from stream_dr import errors
from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label
from stream_dr.estimators import make
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.feature_maps.table import TableState
from stream_dr.models.entry import ON_DEMAND, Entry, ModelFailure, PublishPolicy, RefinePolicy
from stream_dr.models.saved import all_parameter_values, complete_stored_spec, estimator_from_spec
from stream_dr.models.versions import Published, VersionNumbers, Versions, change
from stream_dr.projection import Linear, Projection, linear_part_or_none
from stream_dr.solve.orientation import orient_components, turn_to_release
from stream_dr.statistics.protocol import Accumulator, State

log = logging.getLogger("stream_dr.model")

MonotonicTime = float
"""Time in seconds on the clock time.monotonic. Infinity means never."""

ModelStatus = Literal["live", "warming", "catching_up", "failed"]
"""How much of the log a model has learned.

- "live": the model is at the end of the log or near it. It learns new events together with the
  other live models.
- "warming": the model learns nothing yet, because its functions are being compiled. It is shown
  as "catching_up".
- "catching_up": the model is behind the end of the log, or learns the log again from an earlier
  state. It learns events alone.
- "failed": the model stopped at an event that it could not learn.
"""

WARMING_REASON = "its functions are being compiled, once on this machine"
"""Reason why a model with status "warming" does not learn yet."""


class Unlearned(NamedTuple):
    """Rows that an unlearn event took out of a model's state.

    position: position of the unlearn event.
    first: lowest position of the events whose rows it took out.
    rows: number of rows.
    """

    position: int
    first: int
    rows: int


class FrozenState(NamedTuple):
    """Immutable copy of a model's state.

    position: log position of the last event that the state includes.
    rows: number of rows learned.
    unlearn_horizon: position up to which unlearn events are already reflected in the state. It is
        at least `position`.
    unlearned: rows that were taken out of the state since the last published state.
    """

    state: State
    position: int
    rows: int
    unlearn_horizon: int
    unlearned: tuple[Unlearned, ...]


@dataclass
class SolveAttempt:
    """Most recent attempt to compute a model's projection from its state.

    attempted_position: log position of the last event that the state includes.
    error: error that the solver raised, or None.
    is_running: True while a projection is being computed and published.
    ended_at: time (time.monotonic) at which the attempt ended.
    seconds: number of seconds that the attempt took.
    """

    attempted_position: int
    error: Exception | None = None
    is_running: bool = False
    ended_at: MonotonicTime = field(default_factory=time.monotonic)
    seconds: float = 0.0


class SnapshotContents(NamedTuple):
    """Contents of a model's newest snapshot, a file with its state.

    position: log position of the last event that the state includes.
    version: version number of the projection in the file, 0 if the file has no projection.
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
    """Model or estimator that learns batches."""

    @property
    def estimator(self) -> Estimator:
        """Estimator whose method and parameters are used to learn."""

    @property
    def state_if_started_from_saved(self) -> State | None:
        """State from which learning continues, or None to start empty."""

    @property
    def table(self) -> TableState | None:
        """Statistics of the table's columns, or None before the first rows of a table."""


class Model:
    """Model that learns from the log and publishes projections.

    All threads may read the attributes. Only the methods of the model change the attributes. One
    thread at a time may call `learn` (tests/stream_dr/models/test_changes.py).

    Parameters
    ----------
    entry : Entry
        Name, spec and policies of the model, as stored on disk.
    max_versions : int
        Number of published projections that can be looked up by version.
    store_version_ceiling : callable
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
        An unlearn event removes rows of earlier events. The rows that unlearn events up to this
        position remove are not in the state. They are left out when their events are learned. A
        value below `position` means the same as `position`.
    unlearned : tuple of Unlearned
        Rows that were taken out of the state since the last published state.
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
    solving : SolveAttempt
        Last attempt to compute a projection from the state.
    last_snapshot : SnapshotContents
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

    def __init__(self, entry: Entry, max_versions: int, store_version_ceiling: Callable[[int, int], None]) -> None:
        refused: errors.InvalidParameter | None = None
        try:
            self.spec = complete_stored_spec(entry.spec)
            self.estimator: Estimator = estimator_from_spec(self.spec)
        except errors.InvalidParameter as e:
            # The stored parameters are not valid in this release.
            # Only this model fails, and the process goes on.
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
        self.unlearned: tuple[Unlearned, ...] = ()
        self.accumulator: Accumulator = self.estimator.accumulator()
        self.failure: ModelFailure | None = None
        self.learning_time = LearningTime()

        self.published: Published | None = None
        self.versions = Versions(max_versions)
        self.version_numbers = VersionNumbers(entry.version_ceiling, partial(store_version_ceiling, entry.id))
        self.solving = SolveAttempt(attempted_position=start - 1)
        self.last_snapshot = SnapshotContents(start - 1, 0)

        # A thread holds this lock while it applies an event or freezes the state.
        self._learning = threading.Lock()

        # A thread holds this lock while it solves a state and publishes the projection.
        self._solve_lock = threading.Lock()

        # The thread that writes a snapshot holds this lock.
        self.snapshotting = threading.Lock()

        if refused is not None:
            self.mark_failed(ModelFailure(start, refused.code, str(refused)))

    def mark_live(self) -> None:
        """Mark the model as live, unless it has failed.

        New events are applied to all live models together.
        """
        self.status = "live" if self.failure is None else "failed"

    def mark_catching_up(self, warming: bool = False) -> None:
        """Mark the model as catching up, unless it has failed.

        Call this method if the model is behind the log's end or must be rebuilt. Until the model
        is live, it learns events alone.

        warming: True if the functions that the model needs must be compiled first.
        """
        if self.failure is None:
            self.status = "warming" if warming else "catching_up"

    def learn(self, position: int, block: Block | None) -> None:
        """Learn the rows of the event at a position.

        If the accumulator raises an error, the model is marked as failed and the error is raised.
        An error that no check of the batch finds, such as a lack of memory, may leave a part of
        the event in the state.

        block: rows of the event. None if the event has no rows to learn. The attribute `position`
            changes also in this case.
        """
        # Measure the time of learning, to report the rows learned per second.
        started = time.perf_counter()
        rows_before = self.rows
        with self._learning:
            try:
                if block is not None:
                    self.accumulator.add(self.estimator.block_to_learn(block))
            except Exception as e:
                self.mark_failed_by_error(position, e)
                raise
            self.position = position

        self.learning_time.seconds += time.perf_counter() - started
        self.learning_time.rows += self.rows - rows_before

    def set_unlearn_horizon(self, unlearn_horizon: int) -> None:
        """Skip the rows that unlearn events in the log remove.

        The model must not have learned any row yet. The removed rows are skipped when their events
        are learned.

        unlearn_horizon: position of the last unlearn event whose rows are skipped.
        """
        self.unlearn_horizon = unlearn_horizon

    def replace_state(
        self, state: State, position: int, unlearn_horizon: int = -1, unlearned: Iterable[Unlearned] = ()
    ) -> None:
        """Replace the model's state, and continue from the new state.

        The state may come from a snapshot, from unlearning rows, or from learning in another
        process. If the state has no row, the published projection is withdrawn.

        position: position of the last event that the state includes.
        unlearn_horizon: position up to which unlearn events are already reflected in the state.
        unlearned: rows that the old state includes and that were unlearned.
        """
        accumulator = self.estimator.accumulator(state)
        with self._learning:
            # Readers that see the new position must also see the unlearned rows.
            self.unlearned = (*self.unlearned, *unlearned)
            self.accumulator = accumulator
            self.position = position
            self.unlearn_horizon = unlearn_horizon
            self._withdraw_unlearned()

    def mark_failed_by_error(self, position: int, error: Exception) -> ModelFailure:
        """Mark the model as failed, and return the failure.

        Readers can still use the published projection.

        position: position of the event that raised the error.
        """
        return self.mark_failed(ModelFailure.from_error(position, error))

    def mark_failed(self, failure: ModelFailure) -> ModelFailure:
        """Mark the model as failed for a stored reason.

        Returns the reason.
        """
        self.status = "failed"
        self.failure = failure
        return failure

    def set_log_end(self, log_end: int, column_names: tuple[str, ...] | None) -> None:
        """Set the log's last position and its column names.

        column_names: names of the columns. None does not change the present names.
        """
        self.log_end = log_end
        self.names = column_names or self.names

    def replace_given_policies(self, publish: PublishPolicy | None, refine: RefinePolicy | None) -> None:
        """Set the policies for publishing and refining.

        An argument of None does not change the present policy.
        """
        self.policy = publish or self.policy
        self.refine_policy = refine or self.refine_policy

    def note_refine_start(self, refined_rows: int | None = None) -> None:
        """Store in `last_refine` that a refine starts now.

        refined_rows: number of rows that the refine includes. None stands for all rows learned.
        """
        self.last_refine = (self.rows if refined_rows is None else refined_rows, time.monotonic())

    def restore_published(self, published: Published | None, least_next_version: int = 0) -> None:
        """Publish a projection again that was published before a restart.

        published: the projection. None if no projection was published.
        least_next_version: smallest version number that the next new projection may get.
        """
        self.version_numbers.make_next_at_least(least_next_version)
        if published is not None:
            self.version_numbers.make_next_at_least(published.version + 1)
            self.versions.add(published)
            self.published = published

    @property
    def state_if_started_from_saved(self) -> State | None:
        """Current state if the model started from a saved estimator.

        None if the model started empty.
        """
        if self.spec.saved is None:
            return None
        with self._learning:
            return self.accumulator.freeze()

    @property
    def table(self) -> TableState | None:
        """Statistics of the table's columns, or None before the first rows of a table."""
        return self.accumulator.table

    @property
    def rows(self) -> int:
        """Number of rows learned."""
        return int(self.accumulator.rows)

    @property
    def rows_skipped(self) -> int:
        """Number of rows skipped because they had no target."""
        return int(self.accumulator.rows_skipped)

    @property
    def state_bytes(self) -> int:
        """Number of bytes of the accumulator's state, as a bound."""
        accumulator = self.accumulator
        n_targets = len(accumulator.labels) or 1
        return self.estimator.max_state_bytes(accumulator.n_features, n_targets, accumulator.table)

    @property
    def classes(self) -> tuple[Label, ...]:
        """Sorted labels of the rows that were not unlearned."""
        return tuple(sorted(self.accumulator.remaining_labels))

    @property
    def published_version(self) -> int:
        """Version of the published projection, 0 if there is none."""
        return self.published.version if self.published else 0

    @property
    def auto_publishes(self) -> bool:
        """True if rows are published within a minute, without request."""
        return self.policy is None or self.policy.auto_publishes

    @property
    def can_subtract_rows(self) -> bool:
        """True if rows can be subtracted from the state.

        The state must be a sum over rows, in which older rows have the same weight as new rows.
        """
        return self.estimator.additive and self.estimator.decay == 1.0

    @property
    def snapshot_has_published(self) -> bool:
        """True if the last snapshot file contains the published projection."""
        return self.last_snapshot.version == self.published_version

    def snapshot_would_be_new_at(self, position: int) -> bool:
        """Return True if a snapshot of the state at `position` would be new.

        It would not be new if the last snapshot is of a later position, or if it is of this
        position and contains the published projection.
        """
        newest = self.last_snapshot.position
        return position > newest or (position == newest and not self.snapshot_has_published)

    @property
    def stale_rows(self) -> int:
        """Number of rows by which the published projection differs from the state.

        These are the learned rows that the projection lacks, and the unlearned rows that it
        includes.
        """
        published = self.published
        if published is None:
            return self.rows
        served = sum(unlearned.rows for unlearned in self._served_unlearned)
        return served + max(0, self.rows - (published.rows - served))

    @property
    def _later_unlearned(self) -> list[Unlearned]:
        """Rows that were unlearned after the state of the published projection."""
        published = self.published
        if published is None:
            return []
        return [u for u in self.unlearned if u.position > published.unlearn_horizon]

    @property
    def _served_unlearned(self) -> list[Unlearned]:
        """Unlearned rows that the published projection includes."""
        published = self.published
        return [u for u in self._later_unlearned if published is not None and u.first <= published.position]

    @property
    def serves_unlearned(self) -> bool:
        """True if the published projection includes unlearned rows."""
        return bool(self._served_unlearned)

    @property
    def must_refine_again(self) -> bool:
        """True if rows were unlearned since the published refine."""
        is_refined = self.published is not None and self.published.refined_at is not None
        return is_refined and self.served_release is None and bool(self._later_unlearned)

    @property
    def served_release(self) -> str | None:
        """Name of the release that is published. None if the model publishes its own state.

        While a release is published, nothing else is, until `end_release` or a drop of the release.
        """
        return self.published.release if self.published else None

    @property
    def _is_on_demand(self) -> bool:
        """True if the model is published only on request."""
        return self.policy == ON_DEMAND

    @property
    def refine_due_at(self) -> MonotonicTime:
        """Time (time.monotonic) at which the next refine is due.

        Infinity if no refine is due before the model learns more rows.
        """
        # Without a policy, or with a solution that is exact without a refine, nothing is due.
        refined_rows, refined_at = self.last_refine
        if self.refine_policy is None or self.published is None or self.published.projection.solution == "exact":
            return math.inf
        if self.served_release is not None:
            return math.inf

        # Apply the rule for rows, then the rule for seconds.
        if self.refine_policy.rows is not None and self.rows - refined_rows >= self.refine_policy.rows:
            return refined_at
        if self.refine_policy.seconds and self.rows != refined_rows:
            return refined_at + self.refine_policy.seconds
        return math.inf

    @property
    def needs_publishing(self) -> bool:
        """True if learned rows are missing in the published projection.

        False if the published projection is refined. A refined projection stays published until
        the model is refined again, even without the rows learned since then. False, too, while a
        release is published.
        """
        published = self.published
        if self.rows == 0 or published is None:
            return self.rows > 0
        return not published.stays and published.position < self.position

    @property
    def needs_solving(self) -> bool:
        """True if the model must be solved to be published.

        False if it is being solved, or if the last attempt to solve this state has failed.
        """
        return self.needs_publishing and not self.solving.is_running and self.solving.attempted_position < self.position

    def is_published_up_to(self, position: int) -> bool:
        """True if the event at `position` is learned and published.

        An unlearn event is not published while the projection includes the rows that it removed.
        Any other event need not be published in these cases:

        * The published projection is refined. A refined projection stays published until the model
          is refined again.
        * The model is published only on request.
        * The model has no rows.

        While a release is published, no event need be published, not even an unlearn event.
        """
        if self.position < position or self._must_replace_for(position):
            return False
        if self._is_on_demand or not self.needs_publishing:
            return True
        return self.published is not None and self.published.position >= position

    def _must_replace_for(self, position: int) -> bool:
        """Return True if the unlearn event at `position` outdates the published projection."""
        if self.served_release is not None:
            return False
        unlearned = self._later_unlearned if self.must_refine_again else self._served_unlearned
        return any(u.position == position for u in unlearned)

    def reason_not_publishable(self, position: int) -> str | None:
        """Return why the event at `position` cannot be published.

        The result is a sentence. There are three possible reasons:

        * The model is published only on request, and its projection includes rows that the event
          removed.
        * The model has failed.
        * The projection of a state that includes the event could not be computed.

        Returns None if none is the case.
        """
        if self._is_on_demand and self._must_replace_for(position) and not self.must_refine_again:
            return (
                f"model {self.name!r} serves the unlearned rows until it is published: POST /models/{self.name}/publish"
            )

        failure = self.failure
        if failure is None and self.solving.error is not None and position <= self.solving.attempted_position:
            failure = self.publish_failure
        if failure is None:
            return None

        what = "failed" if self.failure else "cannot be published"
        return f"model {self.name!r} {what} {failure.described}"

    def freeze(self) -> FrozenState:
        """Return an immutable copy of the current state.

        All threads may call this method. Raises ModelFailed if the model has failed, because the
        state may then include only a part of an event.
        """
        with self._learning:
            if self.failure is not None:
                raise self.failed_request_error(self.failure)
            horizon = max(self.position, self.unlearn_horizon)
            return FrozenState(self.accumulator.freeze(), self.position, self.rows, horizon, self.unlearned)

    def publish(self, frozen: FrozenState) -> Published:
        """Compute the projection of a frozen state, and publish it.

        If several threads call this method, they run one after the other. If the projection cannot
        be computed, the error is raised and the model does not change.
        """
        with self._solve_lock:
            return self._orient_and_publish(self.estimator.solve(frozen.state), frozen, residual=None)

    def freeze_and_mark_solving(self) -> FrozenState:
        """Return the state for `publish_unless_refined_or_current`, and set `solving.is_running`.

        The caller must pass the state to `publish_unless_refined_or_current`, which resets
        `solving.is_running`. If two threads solve one model, the first to end resets it.
        """
        self.solving.is_running = True
        return self.freeze()

    def publish_unless_refined_or_current(self, frozen: FrozenState) -> Published | None:
        """Compute the projection of a frozen state, and publish it.

        Returns None and publishes nothing in these cases:

        * The published projection is refined, or a release is published.
        * The published projection already includes all events of the state.
        * The projection cannot be computed. The error is then stored in `solving.error`.
        """
        # The lock makes sure that an older state never replaces the projection of a newer state.
        started = time.monotonic()
        try:
            with self._solve_lock:
                current = self.published
                if current is not None and (current.stays or current.position >= frozen.position):
                    return None
                published = self._orient_and_publish(self.estimator.solve(frozen.state), frozen, residual=None)

            self.solving.error = None
            return published
        except Exception as e:
            self._store_solve_error(frozen.position, e)
            return None
        finally:
            self.solving.attempted_position = max(self.solving.attempted_position, frozen.position)
            self.solving.ended_at = time.monotonic()
            self.solving.seconds = self.solving.ended_at - started
            self.solving.is_running = False

    def publish_refined(self, projection: Projection, frozen: FrozenState, residual: float) -> Published | None:
        """Publish a refined projection of a frozen state.

        A refined projection was computed by further passes over the rows. It stays published until
        the model is refined again. Returns None and publishes nothing while a release is published.

        frozen: state of the model when the passes started.
        residual: relative residual of the refined solution.
        """
        with self._solve_lock:
            if self.served_release is not None:
                return None
            published = self._orient_and_publish(projection, frozen, residual)
        self.solving.error = None
        return published

    def publish_release(self, released: Published, while_it_exists: AbstractContextManager[object]) -> Published:
        """Publish a release's projection as the newest version, unless it is published already.

        It stays published until `end_release`, whatever the policies say.

        released: the projection, as the release holds it.
        while_it_exists: holds the release in its with-block, or raises the error that it is gone.
        """
        with self._solve_lock:
            last = self.published
            if last is not None and last.release == released.release:
                return last
            moved = change(last.projection, released.projection) if last else None
            version = self.version_numbers.take_next()
            published = released._replace(version=version, change=moved, timestamp=time.time())
            with while_it_exists, self._learning:
                self.versions.add(published)
                self.published = published
        self.solving.error = None
        return published

    def end_release(self) -> Published:
        """Publish the present state instead of a release.

        From now on the policies apply again. If the state has no solution, the error is raised and
        the release stays published. If only a refine finds a solution, the model has no projection
        until then, because no model that serves a release is refined. Raises ModelFailed.
        """
        if not self.rows:
            raise errors.NotFitted(f"model {self.name!r} has no rows to publish instead of its release.")
        frozen = self.freeze()
        try:
            with self._solve_lock:
                published = self._orient_and_publish(self.estimator.solve(frozen.state), frozen, residual=None)
                self.versions.drop_if(lambda version: version.release is not None)
        except errors.NeedsRefine:
            self.withdraw_if(lambda version: version.release is not None)
            raise
        self.solving.error = None
        return published

    def withdraw_if(self, is_withdrawn: Callable[[Published], bool]) -> None:
        """Withdraw projections, such as those of releases that are gone.

        If one of them is published, the model has no projection until its state is published.
        """
        with self._learning:
            self.versions.drop_if(is_withdrawn)
            if self.published is not None and is_withdrawn(self.published):
                self.published = None
                # The state may have been solved before. It is to be solved again.
                self.solving = SolveAttempt(self.start - 1)

    def replace_refined(self) -> Published | None:
        """Replace a refined projection by the solution of one pass.

        If the state has no such solution, the projection is withdrawn, and None is returned. The
        error is then stored in `solving.error`. Raises ModelFailed.
        """
        frozen = self.freeze()
        try:
            published = self.publish(frozen)
        except Exception as e:
            self._store_solve_error(frozen.position, e)
            self.solving.attempted_position = max(self.solving.attempted_position, frozen.position)
            with self._learning:
                self.published = None
                self._withdraw_unlearned()
            return None
        self.solving.error = None
        return published

    @property
    def publish_failure(self) -> ModelFailure | None:
        """Reason why the last attempt to publish failed, or None.

        After a failed attempt, the published projection does not include the latest rows.
        """
        if self.solving.error is None:
            return None
        return ModelFailure.from_error(self.solving.attempted_position, self.solving.error)

    @property
    def shown_status(self) -> str:
        """Status of the model, "failed_to_publish" if publishing a live model failed."""
        if self.status == "warming":
            return "catching_up"
        return "failed_to_publish" if self.status == "live" and self.solving.error is not None else self.status

    def _store_solve_error(self, position: int, error: Exception) -> None:
        """Store the error of the last attempt to publish.

        The error is logged if its message differs from the message of the stored error. The
        traceback is logged if the error is no StreamDRError.

        position: log position of the last event that the state includes.
        """
        if str(error) != str(self.solving.error):
            cause = None if isinstance(error, errors.StreamDRError) else error
            log.warning("model %s could not be solved at position %d: %s", self.name, position, error, exc_info=cause)

        # The traceback of an error refers to the state, which would stay in memory with the error.
        self.solving.error = errors.remove_stack_frames(error)

    def _orient_and_publish(self, projection: Projection, frozen: FrozenState, residual: float | None) -> Published:
        """Orient a projection, give it a version, and publish it.

        The components get the order and signs of the last published components, or are turned to
        those of the newest release.

        frozen: state from which the projection was computed.
        residual: relative residual of a refined solution. None if the projection is not refined.
        """
        last = self.published

        # Take the last published components' signs and order, because a solution fixes neither.
        # A steady basis depends on the state and the newest release alone.
        is_steady = self.spec.basis is not None
        previous = last.projection if last and not is_steady else None
        multiply_by_scatter = partial(self.estimator.scatter_product, frozen.state)
        projection = orient_components(projection, previous, multiply_by_scatter)

        # The spread of the components comes from solutions that each leave out one fold of rows.
        # If such a solution fails, the projection is published without the spread.
        with suppress(errors.StreamDRError):
            projection = self.estimator.add_fold_uncertainty(projection, frozen.state)

        if is_steady:
            n_components = all_parameter_values(self.spec)["n_components"]
            release = self.versions.newest_release()
            projection = turn_to_release(projection, release, multiply_by_scatter, n_components)
        if isinstance(projection, Linear):
            # Compute mean · loadings now. A sparse row is then projected in O(its entries).
            projection = projection.with_offset()

        published = Published(
            self.version_numbers.take_next(),
            frozen.position,
            projection,
            frozen.rows,
            change(last.projection, projection) if last else None,
            refined_at=None if residual is None else frozen.position,
            residual=residual,
            unlearn_horizon=frozen.unlearn_horizon,
            timestamp=time.time(),
        )

        # Store the version first, because readers see it after the assignment to `self.published`.
        with self._learning:
            self.versions.add(published)
            self.published = published
            self._withdraw_unlearned()
            self.unlearned = tuple(u for u in self.unlearned if u.position > published.unlearn_horizon)
        return published

    def _withdraw_unlearned(self) -> None:
        """Drop versions that are older than the last unlearn event.

        The published projection is dropped only if the state has no row and no release is published.
        The caller holds the lock `_learning`.
        """
        if not self.rows and self.served_release is None:
            self.published = None
        if self.unlearned:
            self.versions.drop_before(self.unlearned[-1].position, self.published)

    def note_snapshot(self, position: int, projection_version: int) -> None:
        """Store in `last_snapshot` that a snapshot was written.

        position: log position of the last event that the snapshot includes.
        projection_version: version number of the projection in the snapshot, 0 if it has no
            projection.
        """
        self.last_snapshot = SnapshotContents(position, projection_version)

    def failed_request_error(self, failure: ModelFailure) -> errors.ModelFailed:
        """Return the error for a request to a failed model."""
        return errors.ModelFailed(f"model {self.name!r} failed {failure.described}.")

    def newest(self) -> Published:
        """Return the published projection, or raise `unpublished_error`."""
        if self.published is None:
            raise self.unpublished_error()
        return self.published

    def unpublished_error(self) -> errors.StreamDRError:
        """Return the error for requests without a published projection.

        * ModelFailed if the model has failed.
        * CatchingUp if the model will soon publish a projection.
        * In all other cases NotFitted, or the subclass of NotFitted that the solver raised.
        """
        if self.failure is not None:
            return self.failed_request_error(self.failure)
        kind, why = self._unpublished_class_and_text()
        return kind(f"model {self.name!r} {why}")

    def _unpublished_class_and_text(self) -> tuple[type[errors.NotFitted], str]:
        """Return class and text of the error of `unpublished_error`."""
        if self.status == "warming":
            return errors.CatchingUp, f"has published no projection yet: {WARMING_REASON}. Ask again in a moment."
        if self.position < self.log_end:
            return errors.CatchingUp, (
                f"has published no projection yet: it has learned the log up to position {self.position} of {self.log_end}. "
                "Ask again in a moment, while a service or a replay runs."
            )
        if self.rows == 0:
            return errors.NotFitted, "has published no projection yet: it has learned no row. Send rows first."

        # The state could not be solved.
        error = self.solving.error
        if error is not None:
            kind = type(error) if isinstance(error, errors.NotFitted) else errors.NotFitted
            if isinstance(error, errors.StreamDRError):
                return kind, f"has no projection of its {self.rows} rows: {error}"
            return kind, f"could not be solved ({type(error).__name__}); the log has the details."

        # The state was not solved yet.
        # The policy says whether a projection is computed without a request.
        if self.policy is not None and not self.auto_publishes:
            return errors.NotFitted, (
                f"has not been published since it learned its {self.rows} rows ({self.policy.described}): "
                f"POST /models/{self.name}/publish."
            )
        return errors.CatchingUp, (
            f"is not solved yet for its {self.rows} rows; a service or a replay that runs does so in a moment."
        )

    def version(self, number: int) -> Published:
        """Return the stored projection with a version number. Raises UnknownVersion."""
        published = self.versions.find(number)
        if published is None:
            numbers = self.versions.numbers
            raise errors.UnknownVersion(
                f"model {self.name!r} keeps versions {numbers[:1]} … {numbers[-1:]}; {number} is not there."
            )
        return published

    def describe(self, log_end: int) -> JsonDict:
        """Return a description of the model, for JSON.

        log_end: last position of the log. The key "lag" is the number of events up to this
            position that the model has not learned.
        """
        published = self.published
        accumulator = self.accumulator
        projection = published.projection if published else None
        linear = linear_part_or_none(projection)

        return {
            "name": self.name,
            "estimator": self.spec.estimator,
            "params": self.spec.params | accumulator.first_batch_parameters,
            "basis": self.spec.basis,
            "state": self.shown_status,
            "reason": WARMING_REASON if self.status == "warming" else None,
            "position": self.position,
            "rows": self.rows,
            "rows_skipped": self.rows_skipped,
            "lag": max(0, log_end - self.position),
            "version": self.published_version,
            "versions": self.versions.numbers,
            "release": self.served_release,
            "published_position": published.position if published else None,
            "components": projection.n_components if projection else 0,
            "classes": list(self.classes),
            "class_rows": _count_class_rows(accumulator, self.classes),
            "classes_waiting": list(self.estimator.classes_waiting(accumulator)),
            "eigenvalues": published.eigenvalues.tolist() if published else [],
            "chosen": linear.choice.describe() if linear and linear.choice else None,
            "solution": projection.solution if projection else None,
            "refined_at": published.refined_at if published else None,
            "residual": published.residual if published else None,
            "bytes": self.state_bytes,
            "stale_rows": self.stale_rows,
            "publish": self.policy._asdict() if self.policy else None,
            "refine": self.refine_policy._asdict() if self.refine_policy and any(self.refine_policy) else None,
            "failure": self.failure._asdict() if self.failure else None,
            "publish_failure": self.publish_failure._asdict() if self.publish_failure else None,
        }


def _count_class_rows(accumulator: Accumulator, classes: Sequence[Label]) -> list[int] | None:
    """Return the number of rows of each class.

    Returns None if the accumulator does not count rows by label. A class that another thread is
    adding at this moment may have 0 rows.
    """
    counts = accumulator.label_rows
    if counts is None:
        return None
    rows = dict(zip(accumulator.labels, counts.tolist(), strict=False))
    return [rows.get(label, 0) for label in classes]

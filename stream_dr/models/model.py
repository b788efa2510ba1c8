"""Model: an estimator's spec, its accumulator, the position it has applied, and the projections it has published.

A model changes itself: it learns a batch, goes on from a state, is live, catches up, fails, publishes. Others read what
it is, from any thread, and change nothing of it. A frozen State is solved, oriented like its predecessor, numbered and
swapped in as one reference: what readers take is `published`, an immutable value, so no transform waits.

Why this way: the accumulator has one owner, and everything that others see of it is a value that no one writes to
again. A version's number is taken from a ceiling that was made durable before, so none is used twice, whatever is killed.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from stream_dr.errors import ModelFailed, StreamDRError, UnknownVersion, without_frames
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import state_bytes
from stream_dr.models.entry import Failure, PublishPolicy, RefinePolicy, Spec
from stream_dr.models.schema import Facts, class_rows, learned_by
from stream_dr.models.versions import Published, Versions, change
from stream_dr.projection import Projection
from stream_dr.rows.block import Block
from stream_dr.solve.orientation import oriented
from stream_dr.statistics.protocol import AdditiveAccumulator, State
from stream_dr.targets.targets import Label

log = logging.getLogger("stream_dr.model")

_RESERVED = 1_000
"""Version numbers made durable at once."""


class Frozen(NamedTuple):
    """A model's state at a position. removed_to: as a Model's."""

    state: State
    position: int
    rows: int
    removed_to: int


class Learner(Protocol):
    """What is asked whether it learns a batch: a Model, or an estimator alone."""

    @property
    def estimator(self) -> Estimator:
        """What learns."""

    @property
    def begun(self) -> State:
        """The state it goes on from; None: it begins empty."""


class Model:
    """A live model. Its attributes are read by any thread and changed by its own methods alone
    (tests/stream_dr/models/test_changes.py); one thread at a time learns.

    name, id (never used twice in a directory), spec, start (first position it learns from), status ("live", "catching_up"
    or "failed"), position (last event applied; start − 1 before any), removed_to (up to this position, or position where
    that is later, rows that unlearn events take out are left out of its state: such an event changes nothing, and what it
    takes out of later events is not learned), goal (the log's last), names (the columns' names that snapshots tell, None
    where they have none), failure, published, versions (kept ones), policy (None: the
    driver's), refine_policy, refine_begun (rows learned, and the time, when a refine last began), attempted (position of
    the last state that it was tried to solve), solve_error (why that could not be solved), publishing (a solution is
    under way), published_at, publish_seconds (when the last solution ended, by time.monotonic, and what it took),
    snapshot_position, snapshot_version (what the last snapshot has), advance_seconds and advanced_rows (time spent
    learning, and rows learned, by this process). ceiling: version numbers that may have been handed out; reserve: makes
    another one durable.
    """

    def __init__(
        self,
        name: str,
        id: int,
        spec: Spec,
        start: int,
        estimator: Estimator,
        versions: Versions | None = None,
        ceiling: int = 0,
        reserve: Callable[[int], None] = lambda ceiling: None,
    ) -> None:
        self.name, self.id, self.spec, self.start = name, id, spec, start
        self.estimator = estimator
        self.names: tuple[str, ...] | None = None
        self.policy: PublishPolicy | None = None
        self.refine_policy: RefinePolicy | None = None
        self.refine_begun = (0, time.monotonic())

        self.status = "catching_up"
        self.position = self.goal = self.removed_to = start - 1
        self.accumulator: AdditiveAccumulator = estimator.accumulator()
        self.failure: Failure | None = None
        self.advance_seconds, self.advanced_rows = 0.0, 0

        self.published: Published | None = None
        self.versions = versions or Versions(32)
        self.next_version = ceiling + 1
        self._ceiling, self._reserve = ceiling, reserve
        self.attempted = start - 1
        self.solve_error: Exception | None = None
        self.publishing = False
        self.published_at, self.publish_seconds = time.monotonic(), 0.0

        self.snapshot_position, self.snapshot_version = start - 1, 0

        self._learning = threading.Lock()  # held while an event is applied, and while the state is frozen
        self._solving = threading.Lock()
        self.snapshotting = threading.Lock()  # held by who writes a snapshot

    def live(self) -> None:
        """It is at the log's end, or near it, and is advanced with the others. One that has failed stays so."""
        self.status = "live" if self.failure is None else "failed"

    def catch_up(self) -> None:
        """It is behind, or to be rebuilt, and advanced by itself. One that has failed stays so."""
        self.status = "catching_up" if self.failure is None else "failed"

    def learn(self, position: int, block: Block | None) -> None:
        """Apply the event at a position: learn its rows, if it has any. Raises what the accumulator raises; it has failed
        then, for its state may be half new."""
        begun, rows = time.perf_counter(), self.rows
        with self._learning:
            try:
                if block is not None:
                    self.accumulator.add(learned_by(self.estimator, block))
            except Exception as e:
                self.fail(position, e)
                raise
            self.position = position
        self.advance_seconds += time.perf_counter() - begun
        self.advanced_rows += self.rows - rows

    def leave_out(self, removed_to: int) -> None:
        """Learn no row that unlearn events up to a position take out; it has learned nothing yet."""
        self.removed_to = removed_to

    def resume(self, state: State, position: int, removed_to: int = -1) -> None:
        """Go on from a state: a snapshot's, one that lost rows, or one that was learned elsewhere. Where no row is left,
        what was published of those that there were is withdrawn."""
        accumulator = self.estimator.accumulator(state)
        with self._learning:
            self.accumulator, self.position, self.removed_to = accumulator, position, removed_to
            if self.published is not None and not self.rows:
                self.published = None

    def fail(self, position: int, error: Exception) -> Failure:
        """Stop at the event that could not be applied; what is published goes on serving."""
        return self.failed_before(Failure.of(position, error))

    def failed_before(self, failure: Failure) -> Failure:
        """Stop for a reason that is written down already."""
        self.status, self.failure = "failed", failure
        return failure

    def follow(self, goal: int, names: tuple[str, ...] | None) -> None:
        """The log has come to a position, its columns have these names."""
        self.goal, self.names = goal, names or self.names

    def set_policies(self, publish: PublishPolicy | None, refine: RefinePolicy | None) -> None:
        """From now on publish and refine by these; None: as before."""
        self.policy, self.refine_policy = publish or self.policy, refine or self.refine_policy

    def begin_refine(self, rows: int | None = None) -> None:
        """A refine begins, of so many rows; None: of all that are learned."""
        self.refine_begun = (self.rows if rows is None else rows, time.monotonic())

    def take(self, published: Published | None, next_version: int = 0) -> None:
        """Serve what was published before, if anything was; the next version has at least that number."""
        self.next_version = max(self.next_version, next_version)
        if published is not None:
            self.next_version = max(self.next_version, published.version + 1)
            self.versions.add(published)
            self.published = published

    @property
    def begun(self) -> State | None:
        """The state to go on from of a model that began with a saved estimator; None: it began empty."""
        if self.spec.saved is None:
            return None
        with self._learning:
            return self.accumulator.freeze()

    @property
    def rows(self) -> int:
        """Rows learned."""
        return int(self.accumulator.rows)

    @property
    def rows_skipped(self) -> int:
        """Rows left out because they had no target."""
        return int(self.accumulator.rows_skipped)

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels learned so far of which a row is left, sorted."""
        return tuple(sorted(getattr(self.accumulator, "labels_left", self.accumulator.labels)))

    @property
    def published_version(self) -> int:
        """Version of what is published; 0: nothing is."""
        return self.published.version if self.published else 0

    @property
    def soon(self) -> bool:
        """Whether its policy publishes what it learns within a minute, unasked."""
        return self.policy is None or self.policy.soon

    @property
    def subtracts(self) -> bool:
        """Whether rows can be subtracted as they are: a sum whose rows do not weigh less with age."""
        return self.estimator.additive and getattr(self.estimator, "decay", 1.0) == 1.0

    @property
    def kept(self) -> bool:
        """Whether the last snapshot has what is published."""
        return self.snapshot_version == self.published_version

    def snapshotted(self, position: int) -> bool:
        """Whether a snapshot of its state at `position` would tell nothing new."""
        return position < self.snapshot_position + (1 if self.kept else 0)

    @property
    def stale_rows(self) -> int:
        """Rows learned that what is published does not include."""
        return max(0, self.rows - (self.published.rows if self.published else 0))

    @property
    def refine_due(self) -> float:
        """When, by time.monotonic, it is to be refined by its policy; inf: not before more rows come."""
        rows, begun = self.refine_begun
        if self.refine_policy is None or self.published is None or self.published.projection.solution == "exact":
            return math.inf
        if self.refine_policy.rows is not None and self.rows - rows >= self.refine_policy.rows:
            return begun
        return begun + self.refine_policy.seconds if self.refine_policy.seconds and self.rows != rows else math.inf

    @property
    def stale(self) -> bool:
        """Whether rows were learned that the published projection should include; a refined one stays as it is."""
        if self.rows == 0 or (self.published is not None and self.published.refined_at is not None):
            return False
        return self.published is None or self.published.position < self.position

    def includes(self, position: int) -> bool:
        """Whether it has applied `position`, and what is published includes it, as far as it is to."""
        return self.position >= position and (not self.stale or self.published_to(position))

    def published_to(self, position: int) -> bool:
        """Whether what is published is of `position` or later."""
        return self.published is not None and self.published.position >= position

    def why_never(self, position: int) -> str | None:
        """Why what is published will not include `position`, as far as is known: it has failed, or could not be solved
        there or later; else None."""
        failure = self.failure
        if failure is None and self.solve_error is not None and position <= self.attempted:
            failure = self.publish_failure
        if failure is None:
            return None
        what = "failed" if self.failure else "cannot be published"
        why = "the log has the details" if failure.code == "internal" else failure.message
        return f"model {self.name!r} {what} at position {failure.position} ({failure.code}): {why}"

    def freeze(self) -> Frozen:
        """The state now, from any thread: between two events. Raises ModelFailed: it may be half new."""
        with self._learning:
            if self.failure is not None:
                raise self.failed(self.failure)
            return Frozen(self.accumulator.freeze(), self.position, self.rows, max(self.position, self.removed_to))

    def publish(self, frozen: Frozen) -> Published:
        """Solve a frozen state and make it what readers see; one at a time. Raises what the solver raises; then nothing has
        changed."""
        with self._solving:
            return self._swap(self.estimator.solve(frozen.state), frozen)

    def begin_publishing(self) -> Frozen:
        """The state to be solved; no other is begun until `try_to_publish` has ended."""
        self.publishing = True
        return self.freeze()

    def try_to_publish(self, frozen: Frozen) -> Published | None:
        """Publish, unless something newer, or a refined solution, was published meanwhile, or it cannot be solved: then the
        last projection stays, and `solve_error` says why."""
        begun = time.monotonic()
        try:
            with self._solving:
                now = self.published
                if now is not None and (now.refined_at is not None or now.position >= frozen.position):
                    return None
                published = self._swap(self.estimator.solve(frozen.state), frozen)
            self.solve_error = None
            return published
        except Exception as e:
            self._note_unsolved(frozen.position, e)
            return None
        finally:
            self.attempted = max(self.attempted, frozen.position)
            self.published_at = time.monotonic()
            self.publish_seconds = self.published_at - begun
            self.publishing = False

    def publish_refined(self, projection: Projection, frozen: Frozen, residual: float) -> Published:
        """Make a refined projection of a frozen state what readers see, until the next refine."""
        with self._solving:
            return self._swap(projection, frozen, residual)

    @property
    def publish_failure(self) -> Failure | None:
        """Why its last state could not be solved, so that what is published, if anything is, lags behind; else None."""
        if self.solve_error is None:
            return None
        return Failure.of(self.attempted, self.solve_error)

    @property
    def state(self) -> str:
        """Its status or, where it is live and cannot be solved, "failed_to_publish"."""
        return "failed_to_publish" if self.status == "live" and self.solve_error is not None else self.status

    def _note_unsolved(self, position: int, error: Exception) -> None:
        """Keep why it could not be solved, and log it when it is something new; one of ours needs no traceback."""
        if str(error) != str(self.solve_error):
            trace = None if isinstance(error, StreamDRError) else error
            log.warning("model %s could not be solved at position %d: %s", self.name, position, error, exc_info=trace)
        self.solve_error = without_frames(error)  # its frames hold the state

    def _swap(self, projection: Projection, frozen: Frozen, residual: float | None = None) -> Published:
        last = self.published
        spread = partial(self.estimator.covariance_product, frozen.state)
        projection = oriented(projection, last.projection if last else None, spread)
        if hasattr(projection, "prepared"):
            projection = projection.prepared()
        published = Published(
            self._next_version(),
            frozen.position,
            projection,
            frozen.rows,
            change(last.projection, projection) if last else None,
            None if residual is None else frozen.position,
            residual,
        )
        self.versions.add(published)
        self.published = published
        self.published_at = time.monotonic()
        return published

    def _next_version(self) -> int:
        version = self.next_version
        if version > self._ceiling:
            self._set_ceiling(version + _RESERVED - 1)
        self.next_version = version + 1
        return version

    def release_versions(self) -> None:
        """Give back version numbers that were made durable and not used; for a clean end, after the last snapshot."""
        if self._ceiling >= self.next_version:
            self._set_ceiling(self.next_version - 1)

    def _set_ceiling(self, ceiling: int) -> None:
        self._reserve(ceiling)
        self._ceiling = ceiling

    def note_snapshot(self, position: int, version: int) -> None:
        """A snapshot has its state at a position, and that version of what it has published (0: none)."""
        self.snapshot_position, self.snapshot_version = position, version

    def failed(self, where: Failure) -> ModelFailed:
        """What is raised where a model is asked to go on that has failed."""
        why = "the log has the details" if where.code == "internal" else where.message
        return ModelFailed(f"model {self.name!r} failed at position {where.position} ({where.code}): {why}.")

    def version(self, number: int) -> Published:
        """A kept projection by its version. Raises UnknownVersion."""
        kept = self.versions.find(number)
        if kept is None:
            numbers = self.versions.numbers
            raise UnknownVersion(
                f"model {self.name!r} keeps versions {numbers[:1]} … {numbers[-1:]}; {number} is not there."
            )
        return kept

    def describe(self, last: int) -> Facts:
        """All that is told about a model, JSON-able; `last` is the log's last position (for the lag, in events)."""
        published, held = self.published, self.accumulator
        projection = published.projection if published else None
        return {
            "name": self.name,
            "estimator": self.spec.estimator,
            "params": self.spec.params | getattr(held, "decided", {}),
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
            "class_rows": class_rows(held, self.classes),
            "classes_waiting": list(self.estimator.classes_waiting(held)),
            "eigenvalues": np.asarray(getattr(projection, "eigenvalues", ())).tolist(),
            "solution": projection.solution if projection else None,
            "refined_at": published.refined_at if published else None,
            "residual": published.residual if published else None,
            "bytes": state_bytes(self.estimator, held.n_features, len(held.labels) or 1, getattr(held, "table", None)),
            "stale_rows": self.stale_rows,
            "publish": self.policy._asdict() if self.policy else None,
            "refine": self.refine_policy._asdict() if self.refine_policy and any(self.refine_policy) else None,
            "failure": self.failure._asdict() if self.failure else None,
            "publish_failure": self.publish_failure._asdict() if self.publish_failure else None,
        }

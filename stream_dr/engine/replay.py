"""Replay: shards through any number of models in one pass, resumable after a kill at any moment.

Each batch of each shard becomes a reference event (shard sha256, batch, pass), appended only if the log has none such;
then the models advance. The same command, given again, catches the models up from their snapshots, appends what is
missing and ends with the same bits as an uninterrupted run. Passes 1 … loops; `again` completes a begun pass, or else
starts the next.

Four stages overlap: checking the next shard's bytes, reading and checking batches, the log's commits, and learning (models
side by side, as many as there are processors); snapshots are written from frozen states meanwhile. Groups of batches go
from stage to stage; they start small, so that learning does not wait for the first, and are bounded in bytes: at most
seven are held.

Why this way: what has been done is read off the log and the snapshots; the only thing remembered beside them is how
many passes an unfinished replay was to reach.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

from stream_dr.engine.advance import Step, advance_all, rows_of
from stream_dr.engine.batches import Batches, references
from stream_dr.engine.cadence import Cadence
from stream_dr.engine.catch_up import catch_up
from stream_dr.engine.decode import in_order
from stream_dr.engine.draft import Draft, Receipt
from stream_dr.engine.forget import forget
from stream_dr.engine.history import LogHistory
from stream_dr.engine.model import Model
from stream_dr.engine.places import remember_places
from stream_dr.engine.publish import Frozen, freeze
from stream_dr.engine.reading import ahead
from stream_dr.engine.settle import settle
from stream_dr.engine.snapshot import snapshot
from stream_dr.errors import InsufficientStorage, StreamDRError

SWITCH_INTERVAL = 2e-4
"""Seconds a thread may hold the interpreter while another waits. With Python's 5e-3 learning waits behind reading after its
kernels: LDA 0.46 of its rate in memory instead of 0.54 (`python benchmarks/replay_rate.py --switch-interval 0.005`)."""


class ReplaySettings(NamedTuple):
    """loops: passes to reach. again: one pass more than are complete. shuffle: seed of the shards' order, another in
    every pass; None: as given. skip_damaged: pass over what cannot be read. snapshot_rows, snapshot_seconds: snapshot
    after either."""

    loops: int = 1
    again: bool = False
    shuffle: int | None = None
    skip_damaged: bool = False
    snapshot_rows: int | None = None
    snapshot_seconds: float | None = 60.0


class Report(NamedTuple):
    """What a replay did: rows and events appended, rows applied from the log before that, seconds, what was skipped."""

    rows: int
    events: int
    caught_up: int
    seconds: float
    passes: int
    skipped: tuple[str, ...] = ()


class Progress(NamedTuple):
    """How far a replay is: rows done of all there are, shards of all (over all passes)."""

    rows: int
    total_rows: int
    shards: int
    total_shards: int
    phase: str


Watch = Callable[[Progress], None]


def replay(directory: Any, dataset: Any, settings: ReplaySettings, watch: Watch | None = None) -> Report:
    """Replay a data set into a directory's models; see the module's text.

    Raises what refuses a batch (the ones before it are learned), DamagedShard, SourceMissing, InsufficientStorage, and
    ModelFailed at the end when a model has failed. On KeyboardInterrupt the models are snapshotted where they are.
    """
    with _switching(SWITCH_INTERVAL), _Replay(directory, dataset, settings, watch) as run:
        return run.run()


class _Appended(NamedTuple):
    """A group that is in the log: its events to learn, and the refusal that ended it."""

    steps: list[Step]
    refused: StreamDRError | None


class _Replay:
    """One run."""

    def __init__(self, directory: Any, dataset: Any, settings: ReplaySettings, watch: Watch | None) -> None:
        self.directory, self.dataset, self.settings, self.watch = directory, dataset, settings, watch
        self.models: list[Model] = [m for m in directory.models.values() if m.status != "failed"]
        self.history = LogHistory(directory)
        threads = min(len(self.models), len(os.sched_getaffinity(0))) + 1  # one for snapshots
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="stream_dr-model")
        self.cadence = Cadence(settings.snapshot_rows, settings.snapshot_seconds)
        self.writing: Future[None] | None = None
        self.rows = self.events = self.caught_up = 0
        self.passes = self._passes()
        self.noted = self.passes > 1 or settings.again  # a single pass is known by what the log lacks
        self.batches = Batches(directory.log, dataset, self.passes, settings.shuffle, settings.skip_damaged)

    def __enter__(self) -> "_Replay":
        self.limited = self.pool.submit(_one_blas_thread)  # 10 ms, in which the first batches are read
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let the models finish what they are at; keep what they have learned, whatever ended the run."""
        self.pool.shutdown(wait=True)
        try:
            if kind is not None:
                self._snapshot_all(self._frozen())
        finally:
            self.limited.result().restore_original_limits()

    def run(self) -> Report:
        """Catch up, append and advance, publish, snapshot."""
        begun = time.monotonic()
        remember_places(self.directory, self.dataset)
        if self.noted:
            self.directory.table.begin_replay(self.identity, self.passes)
        self._catch_up()
        reading = ahead(self._appended(), depth=1)
        try:
            for appended in reading:
                self._learn(appended)
        finally:
            reading.close()  # type: ignore[attr-defined]
        self._finish()
        self._refuse_failed()
        seconds = time.monotonic() - begun
        return Report(self.rows, self.events, self.caught_up, seconds, self.passes, tuple(self.batches.skipped))

    def _catch_up(self) -> None:
        """Bring the models to the end of the log."""
        if any(m.position < self.directory.position for m in self.models):
            self.limited.result()
            catch_up(self.directory, self.models, self.directory.position, self.pool, self._caught_up)
        for model in self.models:
            model.status = "live" if model.status != "failed" else model.status

    def _appended(self) -> Iterator[_Appended]:
        """The groups, durable in the log, in order; ends with the first that holds a refusal."""
        groups = ahead(self.batches.groups())
        try:
            for drafts in groups:
                answers = self.directory.append(drafts, up_to_refusal=True)
                last = answers[-1]
                refused = _refusal(drafts[len(answers) - 1], last) if isinstance(last, StreamDRError) else None
                yield _Appended(self._steps(drafts, answers), refused)
                if refused is not None:
                    return
        finally:
            groups.close()  # type: ignore[attr-defined]

    def _steps(self, drafts: Sequence[Draft], answers: Sequence[Receipt | StreamDRError]) -> list[Step]:
        return [
            Step(a.position, in_order(d.block, self.directory.schema))
            for d, a in zip(drafts, answers, strict=False)
            if isinstance(a, Receipt) and not a.duplicate and d.block is not None
        ]

    def _learn(self, appended: _Appended) -> None:
        """One group, durable already. A refusal is raised once what came before it is learned."""
        steps = appended.steps
        self.limited.result()
        advance_all(self.models, steps, self.history, self.pool)
        self.events += len(steps)
        self._done(rows_of(steps), "learning")
        if appended.refused is not None:
            raise appended.refused

    def _caught_up(self, steps: list[Step]) -> None:
        rows = rows_of(steps)
        self.caught_up += rows
        self._done(0, "catching up")
        self.cadence.add(rows)

    def _done(self, rows: int, phase: str) -> None:
        self.rows += rows
        self.cadence.add(rows)
        if self.cadence.due:
            self._snapshot_soon()
        if self.watch is not None:
            shards = len(self.dataset.shards) * self.passes
            told = Progress(
                self.rows + self.caught_up, self.dataset.rows * self.passes, self.batches.shards, shards, phase
            )
            self.watch(told)

    @cached_property
    def identity(self) -> str:
        """What names the data set: its shards' digests, in any order. Reads the shards that no manifest gives a digest."""
        return hashlib.sha256("".join(sorted(s.sha256 for s in self.dataset.shards)).encode()).hexdigest()

    def _passes(self) -> int:
        """Passes to reach."""
        begun = int(self.directory.table.replay_passes(self.identity)) if self.directory.table.replaying() else 0
        if not self.settings.again:
            return max(self.settings.loops, begun)
        return begun or self._complete() + 1

    def _complete(self) -> int:
        """Passes that the log holds, in part where damaged shards are passed over: none that was begun is unfinished."""
        passed, held = 0, any if self.settings.skip_damaged else all
        while self.dataset.rows and held(
            self.directory.log.find_key(r.key) is not None
            for s in self.dataset.shards
            for r in references(s, passed + 1)
        ):
            passed += 1
        return passed

    def _snapshot_soon(self) -> None:
        """Snapshot all models from states frozen now, while they go on; waits for the snapshots before."""
        if self.writing is not None:
            self.writing.result()
        self.cadence.start()
        self.writing = self.pool.submit(self._snapshot_all, self._frozen())

    def _frozen(self) -> list[tuple[Model, Frozen]]:
        """The states of the models that go on and are past their last snapshot."""
        return [(m, freeze(m)) for m in self.models if m.failure is None and m.position > m.snapshot_position]

    def _snapshot_all(self, frozen: Sequence[tuple[Model, Frozen]]) -> None:
        try:
            for model, state in frozen:
                snapshot(model, state, self.directory.path)
        finally:
            self.cadence.done()

    def _finish(self) -> None:
        self.limited.result()
        if self.writing is not None:
            self.writing.result()
        for settled in [self.pool.submit(settle, self.directory, model) for model in self.models]:
            settled.result()
        forget(self.directory)
        if self.noted:
            self.directory.table.end_replay(self.identity)

    def _refuse_failed(self) -> None:
        for model in self.models:
            if model.failure is not None:
                raise model.failed(model.failure)


def _refusal(draft: Draft, error: StreamDRError) -> StreamDRError:
    """The error that refused a batch of a shard, which it names."""
    if isinstance(error, InsufficientStorage):
        return error
    facts = json.loads(bytes(draft.body))
    return type(error)(f"{facts['uri']}, batch {facts['batch']}: {error}", **error.details)


def _one_blas_thread() -> Any:
    """Make BLAS use one thread, here and in all others, until the answer's `restore_original_limits` is called."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    """The interpreter's switch interval for a while; a shorter one stays."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(seconds, before))
    try:
        yield
    finally:
        sys.setswitchinterval(before)

"""Replay: learns shards with any number of models in one pass, resumable after a kill.

Each batch of each shard becomes a reference event (sha256 of the shard, batch, pass). It is
appended only if the log does not hold it. Then the models advance. The same command, given again,
catches the models up from their snapshots, appends what is missing and ends with the same bits as
an uninterrupted run.

Four stages overlap: checking the next shard's bytes, reading and checking batches, the log's
commits, and learning (models side by side, as many as there are processors). Meanwhile snapshots
are written from frozen states. Appended batches are held in memory, parsed, until they are
learned. Groups of batches are bounded in bytes, and so is their number between two stages.

Progress is read off the log and the snapshots. The only other thing stored is how many passes an
unfinished replay was to reach.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt
from stream_dr.directory.records import Recorder
from stream_dr.directory.references import GROUP_BYTES, Batches, references, remember_places
from stream_dr.errors import InsufficientStorage, StreamDRError
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Model
from stream_dr.running.advance import Step, Steps, rows_to_learn
from stream_dr.running.driver import Driver, EngineEvent, RunSettings
from stream_dr.shards.dataset import Dataset
from stream_dr.threads import compute_ahead, fast_switching, thread_pool

ON_DEMAND = PublishPolicy(rows=None, seconds=None, idle=False)


class ReplaySettings(NamedTuple):
    """Settings of a replay.

    Attributes
    ----------
    loops : int
        Number of passes to reach.
    again : bool
        Complete an unfinished pass, or add one to those that are complete. Overrides `loops`.
    shuffle : int or None
        Seed of the order of shards, which differs in every pass. None: the given order.
    skip_damaged : bool
        Skip what cannot be read.
    run : RunSettings
        How models are kept current on the way. They are published at the end.
    test : bool
        Test models on some rows of the first pass before they learn them.
    """

    loops: int = 1
    again: bool = False
    shuffle: int | None = None
    skip_damaged: bool = False
    run: RunSettings = RunSettings()
    test: bool = False


class ReplayReport(NamedTuple):
    """Result of a replay.

    Attributes
    ----------
    rows, events : int
        Number of rows and events appended and learned.
    caught_up : int
        Number of rows learned from the log before that.
    seconds : float
    passes : int
        Number of passes reached.
    skipped : tuple of str
        What was skipped.
    columns_missing : tuple of str
        Columns of a table that some rows did not have. They count as missing values.
    """

    rows: int
    events: int
    caught_up: int
    seconds: float
    passes: int
    skipped: tuple[str, ...] = ()
    columns_missing: tuple[str, ...] = ()


class Progress(NamedTuple):
    """Progress of a replay: rows and shards done, of the totals over all passes."""

    rows: int
    total_rows: int
    shards: int
    total_shards: int
    phase: str


Watch = Callable[[Progress], None]


def replay(
    directory: Directory, dataset: Dataset, settings: ReplaySettings, watch: Watch | None = None
) -> ReplayReport:
    """Replay a data set into a directory's models.

    Raises the error that refuses a batch (earlier batches are learned), DamagedShard,
    SourceMissing, InsufficientStorage. Raises ModelFailed at the end if a model has failed. On
    KeyboardInterrupt the models are snapshotted where they are.
    """
    run = Replay(directory, dataset, settings, watch)
    return run.run(run.append_and_learn_all)


class _Appended(NamedTuple):
    """A group of batches in the log.

    last: position of its last event.
    refusal: error that refused the next batch, or None.
    """

    last: int
    refusal: StreamDRError | None


class Replay:
    """One run of `replay`, or of a replay in parts."""

    def __init__(self, directory: Directory, dataset: Dataset, settings: ReplaySettings, watch: Watch | None) -> None:
        self.directory = directory
        self.dataset = dataset
        self.settings = settings
        self.watch = watch
        self.models: list[Model] = [m for m in directory.models.values() if m.status != "failed"]

        self.rows = self.events = self.caught_up = 0
        # Used as an ordered set.
        self.columns_missing: dict[str, None] = {}
        self.passes = self._target_passes()
        # A single pass needs no record. What the log lacks says what is to be done.
        self.recorded = self.passes > 1 or settings.again
        self.batches = Batches(directory.log, dataset, self.passes, settings.shuffle, settings.skip_damaged)

        # Models are published once, at the end.
        run = settings.run._replace(publish=ON_DEMAND, test_then_train=settings.test)
        self.advance = thread_pool("advance")
        self.work = thread_pool("work", run.workers)
        self.driver = Driver(directory, run, self.advance, self.work, self._on_event, solving=True)
        self.recorder: Recorder = Recorder(directory, self.driver.scores)

    def run(self, learn: Callable[[], None]) -> ReplayReport:
        """Catch up, learn, publish and snapshot.

        After an error, models are snapshotted as they are.
        """
        started_at = time.monotonic()
        with fast_switching(), threadpool_limits(1), self.recorder:
            try:
                self._catch_up()
                learn()
                self.driver.finish(self.models)
            except BaseException:
                # Wait until the models have finished their steps.
                self.advance.shutdown()
                self.driver.write_snapshots([(m, m.freeze()) for m in self.models if m.failure is None])
                raise
            finally:
                self.advance.shutdown()
                self.work.shutdown()
                self.directory.hold_recent(0)

        if self.recorded:
            self.directory.table.end_replay(self.identity)
        for model in self.models:
            if model.failure is not None:
                raise model.failure_error(model.failure)

        return ReplayReport(
            self.rows, self.events, self.caught_up, time.monotonic() - started_at, self.passes,
            tuple(self.batches.skipped), tuple(self.columns_missing),
        )  # fmt: skip

    def _catch_up(self) -> None:
        """Bring the models to the end of the log."""
        remember_places(self.directory.path, self.directory.log, self.dataset)
        if self.recorded:
            self.directory.table.begin_replay(self.identity, self.passes)

        def after_turn(page: Sequence[Step]) -> None:
            self.caught_up += rows_to_learn(page)
            self.show("catching up")

        self.driver.catch_up(self.models, self.directory.position, after_turn=after_turn)
        for model in self.models:
            model.live()

    def append_and_learn_all(self) -> None:
        """Append the batches that the log lacks, and learn them.

        If a batch is refused, the error is raised once the batches before it are learned.
        """
        self.directory.hold_recent(4 * GROUP_BYTES)
        steps = Steps(self.directory)
        position = self.directory.position
        with closing(compute_ahead(self._append(), depth=1)) as groups:
            for group in groups:
                for page in self._turns(steps.pages(position, group.last)):
                    self.driver.turn(self.models, page, test=self._in_first_pass())
                    position = page[-1].position
                    self.directory.recent.forget(position)

                    self.rows += rows_to_learn(page)
                    self.events += len(page)
                    self.show("learning")

                if group.refusal is not None:
                    raise group.refusal

    def _turns(self, pages: Iterable[Sequence[Step]]) -> Iterator[Sequence[Step]]:
        """Yield the steps of each turn.

        A turn is a page. If models are tested, it is one event, so that each event is tested by
        models that have learned all events before it.
        """
        tested = self.driver.tests is not None and self._in_first_pass()
        return ([step] for page in pages for step in page) if tested else iter(pages)

    def _in_first_pass(self) -> bool:
        """Return True if some rows of the data set have not been learned at all."""
        return self.rows + self.caught_up < self.dataset.rows

    def _on_event(self, event: EngineEvent, **details: int | str) -> None:
        self.recorder.woken.set()

    def show(self, phase: str) -> None:
        """Show and record the progress."""
        self.recorder.woken.set()
        if self.watch is not None:
            done = self.rows + self.caught_up
            total = self.dataset.rows * self.passes
            self.watch(Progress(done, total, self.batches.shards, len(self.dataset.shards) * self.passes, phase))

    def _append(self) -> Generator[_Appended, None, None]:
        """Append groups of batches, and yield each once it is durable.

        Ends with the first group that has a refusal.
        """
        with closing(compute_ahead(self.batches.groups())) as groups:
            for drafts in groups:
                answers = self.directory.append(drafts, up_to_refusal=True)
                for receipt in answers:
                    if isinstance(receipt, Receipt):
                        self.columns_missing |= dict.fromkeys(receipt.columns_missing)

                last = answers[-1]
                refusal = (
                    _refusal_with_shard(drafts[len(answers) - 1], last) if isinstance(last, StreamDRError) else None
                )
                yield _Appended(self.directory.position, refusal)
                if refusal is not None:
                    return

    @cached_property
    def identity(self) -> str:
        """Name of the data set, derived from the digests of its shards in any order.

        Reads the shards whose digest is in no manifest.
        """
        return hashlib.sha256("".join(sorted(s.sha256 for s in self.dataset.shards)).encode()).hexdigest()

    def _target_passes(self) -> int:
        """Return the number of passes to reach."""
        unfinished = self.directory.table.replay_passes(self.identity) if self.directory.table.replaying() else 0
        if not self.settings.again:
            return max(self.settings.loops, unfinished)
        return unfinished or self._complete_passes() + 1

    def _complete_passes(self) -> int:
        """Return the number of passes that the log holds.

        If damaged shards are skipped, one batch of a pass is enough, since no unfinished pass is
        recorded then.
        """
        passes = 0
        enough = any if self.settings.skip_damaged else all
        while self.dataset.rows and enough(
            self.directory.log.find_key(r.key) is not None
            for s in self.dataset.shards
            for r in references(s, passes + 1)
        ):
            passes += 1
        return passes


def _refusal_with_shard(draft: Draft, error: StreamDRError) -> StreamDRError:
    """Return the error that refused a batch of a shard, with the shard's name."""
    if isinstance(error, InsufficientStorage):
        return error
    reference = json.loads(bytes(draft.body))
    return type(error)(f"{reference['uri']}, batch {reference['batch']}: {error}", **error.details)

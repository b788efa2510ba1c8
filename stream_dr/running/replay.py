"""Replay: shards through any number of models in one pass, resumable after a kill at any moment.

Each batch of each shard becomes a reference event (shard sha256, batch, pass), appended only if the log has none such;
then the models advance. The same command, given again, catches the models up from their snapshots, appends what is
missing and ends with the same bits as an uninterrupted run. Passes 1 … loops; `again` completes a begun pass, or else
starts the next.

Four stages overlap: checking the next shard's bytes, reading and checking batches, the log's commits, and learning (models
side by side, as many as there are processors); snapshots are written from frozen states meanwhile. What was appended is
held, parsed, until it is learned; groups of batches are bounded in bytes, and so is their number between two stages.

Why this way: what has been done is read off the log and the snapshots; the only thing remembered beside them is how
many passes an unfinished replay was to reach.
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
from stream_dr.directory.draft import Draft
from stream_dr.directory.records import Recorder
from stream_dr.directory.references import GROUP_BYTES, Batches, references, remember_places
from stream_dr.errors import InsufficientStorage, StreamDRError
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Model
from stream_dr.running.advance import Step, Steps, rows_of
from stream_dr.running.driver import Driver, RunSettings
from stream_dr.shards.dataset import Dataset
from stream_dr.threads import ahead, pool, switching

ON_DEMAND = PublishPolicy(rows=None, seconds=None, idle=False)


class ReplaySettings(NamedTuple):
    """loops: passes to reach. again: one pass more than are complete. shuffle: seed of the shards' order, another in
    every pass; None: as given. skip_damaged: pass over what cannot be read. run: how models are kept current on the way;
    they are published at the end. test: whether they are tested on some rows of the first pass before they learn them."""

    loops: int = 1
    again: bool = False
    shuffle: int | None = None
    skip_damaged: bool = False
    run: RunSettings = RunSettings()
    test: bool = False


class ReplayReport(NamedTuple):
    """What a replay did: rows and events appended, rows applied from the log before that, seconds, what was skipped, and a
    table's columns that some rows did not have, taken as missing."""

    rows: int
    events: int
    caught_up: int
    seconds: float
    passes: int
    skipped: tuple[str, ...] = ()
    columns_missing: tuple[str, ...] = ()


class Progress(NamedTuple):
    """How far a replay is: rows done of all there are, shards of all (over all passes)."""

    rows: int
    total_rows: int
    shards: int
    total_shards: int
    phase: str


Watch = Callable[[Progress], None]


def replay(
    directory: Directory, dataset: Dataset, settings: ReplaySettings, watch: Watch | None = None
) -> ReplayReport:
    """Replay a data set into a directory's models; see the module's text.

    Raises what refuses a batch (the ones before it are learned), DamagedShard, SourceMissing, InsufficientStorage, and
    ModelFailed at the end when a model has failed. On KeyboardInterrupt the models are snapshotted where they are.
    """
    run = Replay(directory, dataset, settings, watch)
    return run.run(run.learn_all)


class _Appended(NamedTuple):
    """A group that is in the log: the position of its last event, and the refusal that ended it."""

    last: int
    refused: StreamDRError | None


class Replay:
    """One run of `replay`, or of a replay in parts."""

    def __init__(self, directory: Directory, dataset: Dataset, settings: ReplaySettings, watch: Watch | None) -> None:
        self.directory, self.dataset, self.settings, self.watch = directory, dataset, settings, watch
        self.models: list[Model] = [m for m in directory.models.values() if m.status != "failed"]
        self.rows = self.events = self.caught_up = 0
        self.missing: dict[str, None] = {}
        self.passes = self._passes()
        self.noted = self.passes > 1 or settings.again  # a single pass is known by what the log lacks
        self.batches = Batches(directory.log, dataset, self.passes, settings.shuffle, settings.skip_damaged)

        # Models are published once, at the end.
        run = settings.run._replace(publish=ON_DEMAND, test_then_train=settings.test)
        self.advance, self.work = pool("advance"), pool("work", run.workers)
        self.driver = Driver(directory, run, self.advance, self.work, self._wake_recorder, solving=True)
        self.recorder: Recorder = Recorder(directory, self.driver.scores)

    def run(self, learn: Callable[[], None]) -> ReplayReport:
        """Catch up, learn, publish, snapshot; what ends it leaves what was learned snapshotted."""
        begun = time.monotonic()
        with switching(), threadpool_limits(1), self.recorder:
            try:
                self._catch_up()
                learn()
                self.driver.finish(self.models)
            except BaseException:
                self.advance.shutdown()  # models finish what they are at
                self.driver.write([(m, m.freeze()) for m in self.models if m.failure is None])
                raise
            finally:
                self.advance.shutdown()
                self.work.shutdown()
                self.directory.hold_recent(0)

        if self.noted:
            self.directory.table.end_replay(self.identity)
        for model in self.models:
            if model.failure is not None:
                raise model.failure_error(model.failure)
        seconds, lists = time.monotonic() - begun, (tuple(self.batches.skipped), tuple(self.missing))
        return ReplayReport(self.rows, self.events, self.caught_up, seconds, self.passes, *lists)

    def _catch_up(self) -> None:
        """Bring the models to the end of the log."""
        remember_places(self.directory.path, self.directory.log, self.dataset)
        if self.noted:
            self.directory.table.begin_replay(self.identity, self.passes)

        def after_turn(page: Sequence[Step]) -> None:
            self.caught_up += rows_of(page)
            self.show("catching up")

        self.driver.catch_up(self.models, self.directory.position, after_turn=after_turn)
        for model in self.models:
            model.live()

    def learn_all(self) -> None:
        """Append the batches that the log lacks and learn them; a refusal is raised once what came before it is learned."""
        self.directory.hold_recent(4 * GROUP_BYTES)
        steps, position = Steps(self.directory), self.directory.position
        with closing(ahead(self._appended(), depth=1)) as groups:
            for group in groups:
                for page in self._turns(steps.pages(position, group.last)):
                    self.driver.turn(self.models, page, test=self._in_first_pass())
                    position = page[-1].position
                    self.directory.recent.forget(position)
                    self.rows += rows_of(page)
                    self.events += len(page)
                    self.show("learning")
                if group.refused is not None:
                    raise group.refused

    def _turns(self, pages: Iterable[Sequence[Step]]) -> Iterator[Sequence[Step]]:
        """Pages, or where models are tested, events: each by what was learned before it."""
        tested = self.driver.tests is not None and self._in_first_pass()
        return ([step] for page in pages for step in page) if tested else iter(pages)

    def _in_first_pass(self) -> bool:
        """Return True while rows are left that no earlier pass has learned."""
        return self.rows + self.caught_up < self.dataset.rows

    def _wake_recorder(self, event: str, **facts: int | str) -> None:
        self.recorder.woken.set()

    def show(self, phase: str) -> None:
        """Show and record how far it is."""
        self.recorder.woken.set()
        if self.watch is not None:
            done, total = self.rows + self.caught_up, self.dataset.rows * self.passes
            self.watch(Progress(done, total, self.batches.shards, len(self.dataset.shards) * self.passes, phase))

    def _appended(self) -> Generator[_Appended, None, None]:
        """The groups, durable in the log, in order; ends with the first that holds a refusal."""
        with closing(ahead(self.batches.groups())) as groups:
            for drafts in groups:
                answers = self.directory.append(drafts, up_to_refusal=True)
                last = answers[-1]
                for answer in answers:
                    self.missing |= dict.fromkeys(getattr(answer, "columns_missing", ()))
                refused = _refusal(drafts[len(answers) - 1], last) if isinstance(last, StreamDRError) else None
                yield _Appended(self.directory.position, refused)
                if refused is not None:
                    return

    @cached_property
    def identity(self) -> str:
        """What names the data set: its shards' digests, in any order. Reads the shards that no manifest gives a digest."""
        return hashlib.sha256("".join(sorted(s.sha256 for s in self.dataset.shards)).encode()).hexdigest()

    def _passes(self) -> int:
        """Passes to reach."""
        begun = self.directory.table.replay_passes(self.identity) if self.directory.table.replaying() else 0
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


def _refusal(draft: Draft, error: StreamDRError) -> StreamDRError:
    """The error that refused a batch of a shard, which it names."""
    if isinstance(error, InsufficientStorage):
        return error
    facts = json.loads(bytes(draft.body))
    return type(error)(f"{facts['uri']}, batch {facts['batch']}: {error}", **error.details)

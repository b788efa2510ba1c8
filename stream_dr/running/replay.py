"""Replay: lets a directory's models learn a data set of shards.

Each pass reads the data set once for all models. A shard is a file of batches. Each batch becomes
an event in the log that refers to the shard by its sha256, the number of the batch and the number
of the pass. The models then learn the event.

A replay that was killed is continued by running the same replay again. It finds the batches that
are already in the log, lets the models catch up from their snapshots, and appends the missing
batches. The models end with the same bits as without the kill. In addition to the log and the
snapshots, only the number of passes of an unfinished replay is stored.

Four stages run in parallel: checking the sha256 of the next shard, reading batches, committing
them to the log, and learning. Parsed batches stay in memory until they are learned. The number of
bytes that wait between two stages is limited.
"""

import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import Literal, NamedTuple

from threadpoolctl import threadpool_limits

from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Draft, Receipt
from stream_dr.directory.references import GROUP_BYTES, MissingBatches, references_to_batches, store_current_shard_uris
from stream_dr.errors import InsufficientStorage, StreamDRError
from stream_dr.models.entry import PublishPolicy
from stream_dr.models.model import Model
from stream_dr.running.advance import EventReader, ParsedEvent, count_rows_to_learn
from stream_dr.running.driver import Driver, EngineEvent, RunSettings
from stream_dr.running.recorder import Recorder
from stream_dr.shards.dataset import Dataset
from stream_dr.threads import compute_ahead, new_thread_pool, shorter_switch_interval

ON_DEMAND = PublishPolicy(rows=None, seconds=None, idle=False)
"""Policy of models that are published only on request."""

Phase = Literal["catching up", "learning"]


class ReplaySettings(NamedTuple):
    """Settings of a replay.

    Attributes
    ----------
    loops : int
        Number of passes over the data set, including the passes of earlier replays.
    again : bool
        True to complete an unfinished pass. If no pass is unfinished, one more pass is made. The
        setting `loops` is then ignored.
    shuffle : int or None
        Seed of a random order of the shards, which differs in every pass. None: the given order.
    skip_damaged : bool
        True to skip the shards and batches that cannot be read.
    run : RunSettings
        When models are snapshotted during the replay. Models are published only at the end.
    test : bool
        True to test models on some rows of the first pass before they learn these rows.
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
    rows : int
        Number of rows that this replay appended to the log and the models learned.
    events : int
        Number of events that this replay appended to the log.
    caught_up : int
        Number of rows that were already in the log and that the models learned at the start.
    seconds : float
        Duration of the replay.
    passes : int
        Number of passes over the data set, including the passes of earlier replays.
    skipped : tuple of str
        Descriptions of the skipped shards and batches.
    columns_missing : tuple of str
        Names of columns that some rows did not have. Their values counted as missing.
    """

    rows: int
    events: int
    caught_up: int
    seconds: float
    passes: int
    skipped: tuple[str, ...] = ()
    columns_missing: tuple[str, ...] = ()


class Progress(NamedTuple):
    """Progress of a replay.

    rows: number of rows learned so far.
    total_rows: number of rows of all passes together.
    shards: number of shards read so far.
    total_shards: number of shards of all passes together.
    phase: "catching up" while models learn events that were already in the log, then "learning".
    """

    rows: int
    total_rows: int
    shards: int
    total_shards: int
    phase: Phase


ReplayCallback = Callable[[Progress], None]
"""Function that receives the progress of a replay."""


def replay(
    directory: Directory, dataset: Dataset, settings: ReplaySettings, on_progress: ReplayCallback | None = None
) -> ReplayReport:
    """Let all models of a directory learn a data set.

    on_progress: function that receives the progress, or None.

    Raises DamagedShard, SourceMissing and InsufficientStorage. If a batch is refused, the models
    learn the batches before, and then the error is raised. If a model has failed, ModelFailed is
    raised at the end. On an error or Ctrl-C, the models are snapshotted before the error is
    raised.
    """
    run = Replay(directory, dataset, settings, on_progress)
    return run.run(run.append_and_learn_missing)


class Replay:
    """Run in which a directory's models learn a data set.

    Each batch of the data set becomes an event in the directory's log. The batches are learned by
    this process (`append_and_learn_missing`), or by tasks in several threads or processes whose
    learned states are merged (distributed/parts.py).
    """

    def __init__(
        self, directory: Directory, dataset: Dataset, settings: ReplaySettings, on_progress: ReplayCallback | None
    ) -> None:
        self.directory = directory
        self.dataset = dataset
        self.settings = settings
        self.on_progress = on_progress
        self.models: list[Model] = [m for m in directory.models.values() if m.status != "failed"]

        self.rows = self.events = self.caught_up = 0
        # The keys are an ordered set of names. The values are not used.
        self.columns_missing: dict[str, None] = {}
        self.passes = self._target_passes()
        # A killed replay of one pass is continued with the batches that are missing in the log.
        # For several passes, the directory must also store the number of passes.
        self.recorded = self.passes > 1 or settings.again
        self.batches = MissingBatches(directory.log, dataset, self.passes, settings.shuffle, settings.skip_damaged)

        # A replay publishes models only at the end, so the policy for publishing is replaced.
        run = settings.run._replace(publish=ON_DEMAND, test_then_train=settings.test)
        self.advance = new_thread_pool("advance")
        self.work = new_thread_pool("work", run.workers)
        self.driver = Driver(directory, run, self.advance, self.work, self._wake_recorder, solve_for_tests=True)
        self.recorder: Recorder = Recorder(directory, self.driver.scores)

    def run(self, learn_all_passes: Callable[[], None]) -> ReplayReport:
        """Run the replay, then publish and snapshot the models.

        learn_all_passes: function that lets the models learn the data set. It is called after the
            models have learned the events that are already in the log.

        After an error, the models are snapshotted and the error is raised.
        """
        # Let the models learn. Shut the thread pools down after success or an error.
        started_at = time.monotonic()
        with shorter_switch_interval(), threadpool_limits(1), self.recorder:
            try:
                self._catch_up()
                learn_all_passes()
                self.driver.publish_and_snapshot_all(self.models)
            except BaseException:
                # Wait until the models have finished the events that they are learning.
                self.advance.shutdown()
                self.driver.snapshot_and_trim_log([(m, m.freeze()) for m in self.models if m.failure is None])
                raise
            finally:
                self.advance.shutdown()
                self.work.shutdown()
                self.directory.cache_appended_drafts(0)

        # The replay is complete. Raise the failure of a model, or return the result.
        if self.recorded:
            self.directory.table.remove_unfinished_replay(self.data_set_digest)
        for model in self.models:
            if model.failure is not None:
                raise model.failed_request_error(model.failure)

        return ReplayReport(
            self.rows, self.events, self.caught_up, time.monotonic() - started_at, self.passes,
            tuple(self.batches.skipped), tuple(self.columns_missing),
        )  # fmt: skip

    def _catch_up(self) -> None:
        """Learn the events that are already in the log."""
        store_current_shard_uris(self.directory.path, self.directory.log, self.dataset)
        if self.recorded:
            self.directory.table.store_unfinished_replay(self.data_set_digest, self.passes)

        def count_page(page: Sequence[ParsedEvent]) -> None:
            self.caught_up += count_rows_to_learn(page)
            self.report_progress("catching up")

        self.driver.catch_up(self.models, self.directory.position, after_page=count_page)
        for model in self.models:
            model.mark_live()

    def append_and_learn_missing(self) -> None:
        """Append and learn the batches that the log lacks.

        If a batch is refused, the models learn the earlier batches, and then the error is raised.
        """
        # Batches stay in memory from the commit until they are learned.
        self.directory.cache_appended_drafts(4 * GROUP_BYTES)
        reader = EventReader(self.directory)
        position = self.directory.position
        with closing(compute_ahead(self._append_missing_batches(), max_items_ahead=1)) as groups:
            for last_appended, refusal in groups:
                for page in self._split_into_turns(reader.pages(position, last_appended)):
                    self.driver.learn_and_schedule(self.models, page, test_first=self._is_in_first_pass())
                    position = page[-1].position
                    self.directory.recent.remove_up_to(position)

                    self.rows += count_rows_to_learn(page)
                    self.events += len(page)
                    self.report_progress("learning")

                if refusal is not None:
                    raise refusal

    def _split_into_turns(self, pages: Iterable[Sequence[ParsedEvent]]) -> Iterator[Sequence[ParsedEvent]]:
        """Yield lists of events for the models to learn.

        The models learn one list at a time. While models are tested, each list has one event, so
        that a model has learned all earlier events when it is tested. When no models are tested,
        the lists are the pages.

        pages: lists of consecutive events of the log.
        """
        tested = self.driver.tests is not None and self._is_in_first_pass()
        return ([event] for page in pages for event in page) if tested else iter(pages)

    def _is_in_first_pass(self) -> bool:
        """Return True until one pass of rows was learned."""
        return self.rows + self.caught_up < self.dataset.rows

    def _wake_recorder(self, event: EngineEvent, **details: int | str) -> None:
        self.recorder.woken.set()

    def report_progress(self, phase: Phase) -> None:
        """Report the progress to `on_progress`, and wake the recording thread."""
        self.recorder.woken.set()
        if self.on_progress is not None:
            done = self.rows + self.caught_up
            total = self.dataset.rows * self.passes
            self.on_progress(Progress(done, total, self.batches.shards, len(self.dataset.shards) * self.passes, phase))

    def _append_missing_batches(self) -> Generator[tuple[int, StreamDRError | None], None, None]:
        """Append missing batches to the log, and yield each result.

        A result is yielded after each commit. It is the position of the last appended event, and
        the error with which the next batch was refused, or None. No batch is appended after the
        first batch that is refused.
        """
        with closing(compute_ahead(self.batches.draft_groups_by_commit())) as groups:
            for drafts in groups:
                answers = self.directory.append(drafts, stop_at_refusal=True)
                for receipt in answers:
                    if isinstance(receipt, Receipt):
                        self.columns_missing |= dict.fromkeys(receipt.columns_missing)

                # Only the last answer can be an error, because the directory stops at a refusal.
                last = answers[-1]
                refused = drafts[len(answers) - 1]
                refusal = _name_batch_in_error(refused, last) if isinstance(last, StreamDRError) else None
                yield self.directory.position, refusal
                if refusal is not None:
                    return

    @cached_property
    def data_set_digest(self) -> str:
        """Hex digest that identifies the data set.

        The digest does not depend on the order of the shards. It is computed from the sha256 of
        each shard. If no manifest has a shard's sha256, the shard is read to compute it.
        """
        return hashlib.sha256("".join(sorted(s.sha256 for s in self.dataset.shards)).encode()).hexdigest()

    def _target_passes(self) -> int:
        """Return the number of passes after which replay is complete.

        This number includes the passes of earlier replays.
        """
        table = self.directory.table
        unfinished = table.unfinished_target_passes(self.data_set_digest) if table.has_unfinished_replay() else 0
        if not self.settings.again:
            return max(self.settings.loops, unfinished)
        return unfinished or self._count_complete_passes() + 1

    def _count_complete_passes(self) -> int:
        """Return how many passes are completely in the log.

        A pass counts if all its batches are in the log. If damaged shards are skipped, a pass
        counts if one of its batches is in the log.

        Call this method only if the directory has no record of an unfinished pass.
        """
        # Count the complete passes. The batches of damaged shards never enter the log.
        # If damaged shards are skipped, a pass is complete with one batch in the log.
        passes = 0
        enough = any if self.settings.skip_damaged else all
        while self.dataset.rows and enough(
            self.directory.log.find_key(r.key) is not None
            for s in self.dataset.shards
            for r in references_to_batches(s, passes + 1)
        ):
            passes += 1
        return passes


def _name_batch_in_error(draft: Draft, error: StreamDRError) -> StreamDRError:
    """Return an error with the refused batch in its message.

    The message also names the batch's shard. An InsufficientStorage is returned unchanged.

    draft: the refused draft. Its payload refers to the batch.
    error: the error with which the draft was refused.
    """
    if isinstance(error, InsufficientStorage):
        return error
    reference = json.loads(bytes(draft.body))
    return type(error)(f"{reference['uri']}, batch {reference['batch']}: {error}", **error.details)

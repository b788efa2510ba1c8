"""Replay in parts: what an ordinary replay would learn one batch after the other, by a plan whose tasks run side by side.

The directory is afterwards as after a replay: the batches' events are appended in one transaction once everything is
learned, then every model has what its part has, merged after what it had. A batch that is refused is named, and the
directory is as it was; so is it after a kill before that transaction. After a kill between it and the snapshot the models
learn the new events from the log, as after any.

Why this way: what a plan's parts say of the stream is admitted as batches from anywhere are, so neither the log nor a model
knows how it was learned.
"""

from collections.abc import Sequence

from threadpoolctl import threadpool_limits

from stream_dr.directory.admit import admit_block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference, reference_draft
from stream_dr.directory.records import Recorder
from stream_dr.distributed.kept import Kept, Run
from stream_dr.distributed.plan import Plan, Recurrence, Task, tasks_of
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.mapping import merges_parts
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.running.replay import Progress, Replay, ReplayReport, ReplaySettings, Watch
from stream_dr.shards.dataset import Dataset, Shard
from stream_dr.statistics.protocol import State
from stream_dr.threads import switching


def replay_in_parts(
    run: Run,
    directory: Directory,
    dataset: Dataset,
    settings: ReplaySettings,
    watch: Watch | None = None,
    kept: Kept | None = None,
) -> ReplayReport:
    """Replay a data set into a directory's models by a plan; see the module's text. kept: where finished parts are kept
    until all is learned. Raises as `running.replay.replay` does, and what `run` raises."""
    with switching(), threadpool_limits(1), Recorder(directory) as recorder:
        return _InParts(directory, dataset, settings, watch, recorder, run, kept).run()


class _InParts(Replay):
    def __init__(
        self,
        directory: Directory,
        dataset: Dataset,
        settings: ReplaySettings,
        watch: Watch | None,
        recorder: Recorder,
        run: Run,
        kept: Kept | None,
    ) -> None:
        super().__init__(directory, dataset, settings, watch, recorder)
        self._run, self._kept = run, kept
        self._begun = set[str]()

    def learn_all(self) -> None:
        """Append the batches that the log lacks, once models have learned them all."""
        missing = list(self.batches.missing())
        if not missing:
            return
        merging = [m for m in self.models if merges_parts(m.estimator)]
        others = [m for m in self.models if not merges_parts(m.estimator)]
        plan = Plan(
            self._tasks(missing, merging),
            tuple(m.spec for m in merging),
            tuple(Recurrence(m.spec, m.accumulator.freeze() if m.rows else None) for m in others),
            self._schema(*missing[0]),
            self.directory.limits,
        )
        parts = self._run(plan, self._learned, self._kept)
        for part in parts:
            if part.refused is not None:
                raise part.refused
        drafts = [reference_draft(r, o) for (_, r), o in zip(missing, parts[0].outlines, strict=True)]
        self.directory.append_all(drafts)
        self.events += len(drafts)
        states = [state for part in parts for state in part.states]
        for model, state in zip(merging + others, states, strict=True):
            _take(model, state, self.directory.position)
        if self._kept is not None:
            self._kept.remove(plan.keys())

    def _schema(self, shard: Shard, reference: Reference) -> Schema:
        """The stream's schema with its first batch: tasks agree on the columns' order."""
        try:
            return admit_block(shard.read(reference.batch), self.directory.schema, self.models, self.directory.limits)
        except StreamDRError as e:
            raise type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details) from e

    def _tasks(self, missing: Sequence[tuple[Shard, Reference]], models: Sequence[Model]) -> tuple[Task, ...]:
        width, labels = self.dataset.n_features or 0, max(1, len(self.dataset.labels))
        states = sum(m.estimator.state_bytes(width, labels) for m in models) if width else 0
        each = [shard.bytes / max(shard.rows, 1) * reference.rows for shard, reference in missing]
        return tasks_of([reference for _, reference in missing], each, states)

    def _learned(self, reference: Reference) -> None:
        """A batch is learned, perhaps once more, after the worker that had learned it was lost."""
        if reference.key not in self._begun:
            self._begun.add(reference.key)
            self.rows += reference.rows
        if self.watch is not None:
            total, shards = self.dataset.rows * self.passes, len(self.dataset.shards) * self.passes
            self.watch(Progress(self.rows + self.caught_up, total, self.batches.shards, shards, "learning"))


def _take(model: Model, state: State, position: int) -> None:
    with model.learning:
        known = model.accumulator.freeze()
        if merges_parts(model.estimator) and known.rows + known.rows_skipped:
            state = known.merge(state)
        model.accumulator, model.position = model.estimator.accumulator(state), position

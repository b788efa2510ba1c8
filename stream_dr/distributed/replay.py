"""Replay in parts: what an ordinary replay would learn one batch after the other, by a plan whose tasks run side by side.

The directory is afterwards as after a replay: the batches' events are appended in one transaction once everything is
learned, then every model has what its part has, merged after what it had. A batch that is refused is named, and the
directory is as it was; so is it after a kill before that transaction. After a kill between it and the snapshot the models
learn the new events from the log, as after any.

Why this way: what a plan's parts say of the stream is admitted as batches from anywhere are, so neither the log nor a model
knows how it was learned.
"""

from collections.abc import Sequence

from stream_dr.directory.admit import admit_block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference, reference_draft
from stream_dr.distributed.kept import Kept, Run
from stream_dr.distributed.plan import Plan, Recurrence, Task, tasks_of
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.mapping import merges_parts
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.running.replay import Replay, ReplayReport, ReplaySettings, Watch
from stream_dr.shards.dataset import Dataset, Shard
from stream_dr.statistics.protocol import State


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
    replay = Replay(directory, dataset, settings, watch)
    return replay.run(_Parts(replay, run, kept).learn_all)


class _Parts:
    """What a replay learns by a plan."""

    def __init__(self, replay: Replay, run: Run, kept: Kept | None) -> None:
        self._replay, self._run, self._kept = replay, run, kept
        self._directory, self._dataset, self._models = replay.directory, replay.dataset, replay.models
        self._begun = set[str]()

    def learn_all(self) -> None:
        """Append the batches that the log lacks, once models have learned them all."""
        missing = list(self._replay.batches.missing())
        if not missing:
            return
        merging = [m for m in self._models if merges_parts(m.estimator)]
        others = [m for m in self._models if not merges_parts(m.estimator)]
        plan = Plan(
            self._tasks(missing, merging),
            tuple(m.spec for m in merging),
            tuple(Recurrence(m.spec, m.accumulator.freeze() if m.rows else None) for m in others),
            self._schema(*missing[0]),
            self._directory.limits,
        )
        parts = self._run(plan, self._learned, self._kept)
        for part in parts:
            if part.refused is not None:
                raise part.refused
        batches = zip(missing, parts[0].outlines, strict=True)
        drafts = [reference_draft(reference, outline) for (_, reference), outline in batches]
        self._directory.append_all(drafts)
        self._replay.events += len(drafts)
        states = [state for part in parts for state in part.states]
        for model, state in zip(merging + others, states, strict=True):
            _take(model, state, self._directory.position)
        if self._kept is not None:
            self._kept.remove(plan.keys())

    def _schema(self, shard: Shard, reference: Reference) -> Schema:
        """The stream's schema with its first batch: tasks agree on the columns' order."""
        try:
            return admit_block(
                shard.read(reference.batch), self._directory.schema, self._models, self._directory.limits
            )
        except StreamDRError as e:
            raise type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details) from e

    def _tasks(self, missing: Sequence[tuple[Shard, Reference]], models: Sequence[Model]) -> tuple[Task, ...]:
        width, labels = self._dataset.n_features or 0, max(1, len(self._dataset.labels))
        states = sum(m.estimator.state_bytes(width, labels) for m in models) if width else 0
        each = [shard.bytes / max(shard.rows, 1) * reference.rows for shard, reference in missing]
        return tasks_of([reference for _, reference in missing], each, states)

    def _learned(self, reference: Reference) -> None:
        """A batch is learned, perhaps once more, after the worker that had learned it was lost."""
        if reference.key not in self._begun:
            self._begun.add(reference.key)
            self._replay.rows += reference.rows
        self._replay.show("learning")


def _take(model: Model, state: State, position: int) -> None:
    known = model.freeze().state
    if merges_parts(model.estimator) and known.rows + known.rows_skipped:
        state = known.merge(state)
    model.resume(state, position)

"""Replay in parts: learns by a plan whose tasks run side by side.

Afterwards the directory is as after a replay. Once everything is learned, the events of all
batches are appended in one transaction. Then the state of every model is merged with the result of
its part. A batch that is refused is named.

If a batch is refused, or after a kill before that transaction, the directory is as it was. After a
kill between the transaction and the snapshots the models learn the new events from the log, as
after any.
"""

from collections.abc import Sequence
from typing import cast

from stream_dr.directory.admit import admit_block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference, reference_draft
from stream_dr.distributed.part_store import PartStore, PlanRunner
from stream_dr.distributed.task_plan import Recurrence, Task, TaskPlan, tasks_of
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.mapping import merges_parts
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.running.replay import Replay, ReplayReport, ReplaySettings, Watch
from stream_dr.shards.dataset import Dataset, Shard
from stream_dr.statistics.protocol import AdditiveState


def replay_in_parts(
    run: PlanRunner,
    directory: Directory,
    dataset: Dataset,
    settings: ReplaySettings,
    watch: Watch | None = None,
    store: PartStore | None = None,
) -> ReplayReport:
    """Replay a data set into a directory's models by a plan.

    run: runs the plan.
    store: holds finished results until everything is learned.

    Raises as `running.replay.replay`, and what `run` raises.
    """
    replay = Replay(directory, dataset, settings, watch)
    return replay.run(_PartedReplay(replay, run, store).learn_all)


class _PartedReplay:
    """The learning of a replay, by a plan."""

    def __init__(self, replay: Replay, run: PlanRunner, store: PartStore | None) -> None:
        self._replay = replay
        self._run = run
        self._store = store
        self._directory = replay.directory
        self._dataset = replay.dataset
        self._models = replay.models
        # Keys of the batches that were counted.
        self._counted: set[str] = set()

    def learn_all(self) -> None:
        """Learn the batches that the log lacks, then append them."""
        missing = list(self._replay.batches.missing())
        if not missing:
            return

        merging = [m for m in self._models if merges_parts(m.estimator)]
        others = [m for m in self._models if not merges_parts(m.estimator)]
        plan = TaskPlan(
            self._tasks(missing, merging),
            tuple(m.spec for m in merging),
            tuple(Recurrence(m.spec, m.accumulator.freeze() if m.rows else None) for m in others),
            self._schema(*missing[0]),
            self._directory.limits,
        )
        results = self._run(plan, self._count_batch, self._store)
        for result in results:
            if result.refusal is not None:
                raise result.refusal

        batches = zip(missing, results[0].outlines, strict=True)
        drafts = [reference_draft(reference, outline) for (_, reference), outline in batches]
        self._directory.append_all(drafts)
        self._replay.events += len(drafts)

        states = [state for result in results for state in result.states]
        for model, state in zip(merging + others, states, strict=True):
            _merge_into_model(model, state, self._directory.position)
        if self._store is not None:
            self._store.remove(plan.keys())

    def _schema(self, shard: Shard, reference: Reference) -> Schema:
        """Return the stream's schema with its first batch. All tasks order columns by it."""
        try:
            return admit_block(
                shard.read(reference.batch), self._directory.schema, self._models, self._directory.limits
            )
        except StreamDRError as e:
            raise type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details) from e

    def _tasks(self, missing: Sequence[tuple[Shard, Reference]], models: Sequence[Model]) -> tuple[Task, ...]:
        """Return the tasks of a plan. models: the models that merge."""
        width = self._dataset.n_features or 0
        labels = max(1, len(self._dataset.labels))
        state_bytes = sum(m.estimator.state_bytes(width, labels) for m in models) if width else 0
        row_bytes = [shard.bytes / max(shard.rows, 1) * reference.rows for shard, reference in missing]
        return tasks_of([reference for _, reference in missing], row_bytes, state_bytes)

    def _count_batch(self, reference: Reference) -> None:
        """Count a batch as learned."""
        # A batch is learned again if the worker that had learned it was lost.
        if reference.key not in self._counted:
            self._counted.add(reference.key)
            self._replay.rows += reference.rows
        self._replay.show("learning")


def _merge_into_model(model: Model, state: AdditiveState, position: int) -> None:
    """Merge the state of a model's part into the model."""
    current = model.freeze().state
    if merges_parts(model.estimator) and current.rows + current.rows_skipped:
        state = cast(AdditiveState, current).merge(state)
    model.resume(state, position)

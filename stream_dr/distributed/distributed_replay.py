"""Replay a data set in tasks that run in parallel.

The directory is the same afterwards as after a replay in one thread. A replay has three steps:

1. The tasks learn all batches. Nothing is written to the directory yet.
2. The events of all batches are appended to the log in one transaction.
3. The state of each model is merged with the state that the tasks learned.

If a batch cannot be learned, an error names that batch and the directory does not change. A kill
before the transaction of step 2 does not change the directory either. After a kill between that
transaction and the models' next snapshots, the models learn the new events from the log, as in any
recovery.
"""

from collections.abc import Sequence
from typing import cast

from stream_dr.directory.admit import check_block_and_extend_schema
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference, reference_draft
from stream_dr.distributed.parts import PlanRunner, Recurrence, Task, TaskPlan, divide_into_tasks_of_minimum_size
from stream_dr.errors import StreamDRError
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema
from stream_dr.running.replay import Replay, ReplayCallback, ReplayReport, ReplaySettings
from stream_dr.shards.dataset import Dataset, Shard
from stream_dr.statistics.protocol import AdditiveState


def replay_in_parallel_tasks(
    plan_runner: PlanRunner,
    directory: Directory,
    dataset: Dataset,
    settings: ReplaySettings,
    on_progress: ReplayCallback | None = None,
) -> ReplayReport:
    """Replay a data set into a directory in parallel tasks.

    plan_runner: function that runs the tasks, in threads or on Dask.
    on_progress: function that receives the progress, as in `running.replay.replay`.

    Raises the errors of `plan_runner` and the errors of `running.replay.replay`.
    """
    replay = Replay(directory, dataset, settings, on_progress)
    return replay.run(_ParallelReplay(replay, plan_runner).append_and_learn_missing)


class _ParallelReplay:
    """One replay whose batches are learned in tasks.

    plan_runner: function that runs the tasks, in threads or on Dask.
    """

    def __init__(self, replay: Replay, plan_runner: PlanRunner) -> None:
        self._replay = replay
        self._run = plan_runner
        self._directory = replay.directory
        self._dataset = replay.dataset
        self._models = replay.models
        # Keys of the batches whose rows are already counted in the progress.
        self._counted_keys: set[str] = set()

    def append_and_learn_missing(self) -> None:
        """Learn the missing batches, then append their events.

        Missing batches are batches that the log does not have yet. If a batch cannot be learned,
        an error names the batch and nothing changes.
        """
        missing = list(self._replay.batches.missing_batches())
        if not missing:
            return

        # Let tasks learn the batches. Nothing is written to the directory yet.
        merging = [m for m in self._models if m.estimator.can_merge_parts()]
        others = [m for m in self._models if not m.estimator.can_merge_parts()]
        plan = TaskPlan(
            self._divide_into_tasks(missing, merging),
            tuple(m.spec for m in merging),
            tuple(Recurrence(m.spec, m.accumulator.freeze() if m.rows else None) for m in others),
            self._schema_with_batch(*missing[0]),
            self._directory.limits,
        )
        results = self._run(plan, self._count_batch_and_report)
        for result in results:
            if result.refusal is not None:
                raise result.refusal

        # Append the events of the missing batches to the log.
        batches = zip(missing, results[0].outlines, strict=True)
        drafts = [reference_draft(reference, outline) for (_, reference), outline in batches]
        self._directory.append_all(drafts)
        self._replay.events += len(drafts)

        # Update the models with the states that the tasks have learned.
        states = [state for result in results for state in result.states]
        for model, state in zip(merging + others, states, strict=True):
            # A state that cannot be merged was continued from the model's own state.
            current = model.freeze().state
            if model.estimator.can_merge_parts() and current.rows + current.rows_skipped:
                state = cast(AdditiveState, current).merge(state)
            model.replace_state(state, self._directory.position)

    def _schema_with_batch(self, shard: Shard, batch_reference: Reference) -> Schema:
        """Return the schema, extended by the columns of a batch.

        All tasks put the columns of their batches in the order of this schema. If the stream
        cannot accept the batch, an error names the batch and the reason.

        shard: shard of the first batch that the log does not have yet.
        batch_reference: reference to that batch.
        """
        try:
            block = shard.read(batch_reference.batch)
            schema, limits = self._directory.schema, self._directory.limits
            return check_block_and_extend_schema(block, schema, self._models, limits)
        except StreamDRError as e:
            raise type(e)(f"{batch_reference.uri}, batch {batch_reference.batch}: {e}", **e.details) from e

    def _divide_into_tasks(
        self, missing_batches: Sequence[tuple[Shard, Reference]], mergeable_models: Sequence[Model]
    ) -> tuple[Task, ...]:
        """Divide the missing batches into tasks.

        missing_batches: shard and reference of each batch that the log does not have yet.
        mergeable_models: the models whose states can be merged. The larger their states, the more
            batches a task has.
        """
        # Estimate the bytes of all states from the number of features and labels.
        # Without a declared number of features, tasks are divided by their number of rows only.
        width = self._dataset.n_features or 0
        labels = max(1, len(self._dataset.labels))
        state_bytes = sum(m.estimator.state_bytes(width, labels) for m in mergeable_models) if width else 0
        sized = [(r, shard.bytes / max(shard.rows, 1) * r.rows) for shard, r in missing_batches]
        return divide_into_tasks_of_minimum_size(sized, state_bytes)

    def _count_batch_and_report(self, reference: Reference) -> None:
        """Count the rows of a batch and report progress."""
        # Count the rows of a batch once, even if a worker is lost and another learns them again.
        if reference.key not in self._counted_keys:
            self._counted_keys.add(reference.key)
            self._replay.rows += reference.rows
        self._replay.report_progress("learning")

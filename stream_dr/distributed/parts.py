"""Replay a data set in tasks that run in parallel.

The directory is the same afterwards as after a replay in one thread. A replay has three steps:

1. The tasks learn all batches. Nothing is written to the directory yet.
2. The events of all batches are appended to the log in one transaction.
3. The state of each model is merged with the state that the tasks learned.

If a batch cannot be learned, an error names that batch and the directory does not change. A kill
before the transaction of step 2 does not change the directory either. After a kill between that
transaction and the models' next snapshots, the models learn the new events from the log, as in any
recovery.

A task is a run of consecutive batches that are learned together. Every task except the last one
has at least 50,000 rows. The rows of these tasks take at least four times as many bytes as the
states of the models. With fewer rows, merging would cost more than learning.

The results of tasks are merged along a binary tree. Level 0 of the tree has one node for each
task. A node of level 1 has the merged result of two neighbouring tasks. A node of level 2 has the
merged result of two neighbouring nodes of level 1, and so on. The shape of the tree depends only
on the number of tasks.

The result of a task depends on the task's batches, the models' specs and the stream's schema. The
result of any other node depends on the node's children. So the same plan gives the same bits on
every run, even if processes are killed or tasks end in another order.

A partial result has a state for each model and an outline of each batch. An outline is a Block
with one row of the batch. It has the batch's number of features, labels and kind of targets. The
process that appends a batch to the log needs these to update the stream's schema. With the
outline, this process does not need the batch's rows. Learning costs as much as in one process. A
merge takes two passes over the states.

`thread_plan_runner` runs a task plan in threads of this process. Each thread runs one task after
the other. After a task, the thread checks if the neighbouring result in the tree is ready. If so,
the thread merges the two results, and continues with the merged result one level higher. Threads
need memory for at most one result for each thread, and one result for each level of the tree.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import NamedTuple, cast

import numpy as np

from stream_dr.batch.block import Block
from stream_dr.batch.schema import Schema
from stream_dr.directory.admit import admit_block
from stream_dr.directory.directory import Directory
from stream_dr.directory.draft import Reference, reference_draft
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.models.entry import Spec
from stream_dr.models.limits import Limits
from stream_dr.models.model import Model
from stream_dr.models.saved import estimator_from_spec
from stream_dr.running.replay import Replay, ReplayCallback, ReplayReport, ReplaySettings
from stream_dr.shards.dataset import Dataset, Shard, open_shard
from stream_dr.statistics.protocol import AdditiveState, State

MIN_TASK_ROWS = 50_000
"""Minimum number of rows of a task."""

ROW_TO_STATE_BYTES = 4
"""Minimum bytes of a task's rows, as a multiple of the bytes of its models' states."""


class Node(NamedTuple):
    """Node of the binary tree that merges results of tasks.

    level: level of the node in the tree. Level 0 has one node for each task.
    number: index of the node among the nodes of its level, in the order of the batches.
    """

    level: int
    number: int


class Task(NamedTuple):
    """Consecutive batches of a replay, which one thread or worker learns."""

    references: tuple[Reference, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all batches of the task."""
        return sum(reference.rows for reference in self.references)


class Recurrence(NamedTuple):
    """Model whose states cannot be merged.

    A recurrence learns all batches in one task.

    spec: spec of the model.
    state: the state from which the model continues. None if the model has learned no rows.
    """

    spec: Spec
    state: State | None


class TaskPlan(NamedTuple):
    """Tasks of a replay, and the models to learn with.

    Attributes
    ----------
    tasks : tuple of Task
        Tasks in the order of their batches.
    specs : tuple of Spec
        Models whose states can be merged. Each task learns its batches with all these models.
    recurrences : tuple of Recurrence
        Models whose states cannot be merged. For each of these models, one more task learns all
        batches.
    schema : Schema
        The stream's schema, which includes the columns of the stream's first batch.
    limits : Limits
        Limits above which a batch is refused.
    """

    tasks: tuple[Task, ...]
    specs: tuple[Spec, ...]
    recurrences: tuple[Recurrence, ...]
    schema: Schema
    limits: Limits

    @property
    def whole(self) -> Task:
        """One task with all batches.

        Models whose states cannot be merged learn this task.
        """
        return Task(tuple(reference for task in self.tasks for reference in task.references))

    @property
    def root(self) -> Node:
        """Root of the merge tree.

        The result of the root is the merged result of all tasks.
        """
        # A tree with the root at level L has up to 2^L tasks, so L is the smallest such level.
        return Node(max(len(self.tasks) - 1, 0).bit_length(), 0)

    def is_only_child(self, node: Node) -> bool:
        """Return True if a node of the merge tree has no neighbour to be merged with.

        The result of its parent node is then the node's own result.
        """
        # Only a first child (even number) may be alone. The second child would have the number
        # `number + 1`, and start at the task (number + 1) * 2^level.
        level, number = node
        return number % 2 == 0 and ((number + 1) << level) >= len(self.tasks)


def divide_into_tasks(batches: Iterable[tuple[Reference, float]], total_state_bytes: int) -> tuple[Task, ...]:
    """Divide batches into tasks of consecutive batches.

    A task has at least MIN_TASK_ROWS rows. Its rows take at least ROW_TO_STATE_BYTES *
    `total_state_bytes` bytes. The next batch starts a new task as soon as both limits are reached.
    The last task may be smaller.

    batches: reference and number of bytes of all rows of each batch, in order.
    total_state_bytes: number of bytes of one state of each model.
    """
    # `run` has the batches of the next task. `rows` and `run_bytes` are the size of their rows.
    tasks: list[Task] = []
    run: list[Reference] = []
    rows = 0
    run_bytes = 0.0

    for reference, size in batches:
        run.append(reference)
        rows += reference.rows
        run_bytes += size
        if rows >= MIN_TASK_ROWS and run_bytes >= ROW_TO_STATE_BYTES * total_state_bytes:
            tasks.append(Task(tuple(run)))
            run = []
            rows = 0
            run_bytes = 0.0
    if run:
        tasks.append(Task(tuple(run)))
    return tuple(tasks)


BatchCallback = Callable[[Reference], None]
"""Function that receives every batch before the batch is learned."""


class PartialResult(NamedTuple):
    """Result of learning consecutive batches.

    states: state of each model after these batches, in the order of `TaskPlan.specs`.
    outlines: a Block with one row of each batch, of which `representative_row` returns it. The
        batch's event in the log takes its labels and number of features from this Block.
    refusal: error that names the first batch that cannot be learned, or None. If there is an
        error, `states` and `outlines` are empty.
    """

    states: tuple[AdditiveState, ...]
    outlines: tuple[Block, ...]
    refusal: StreamDRError | None = None


PlanRunner = Callable[[TaskPlan, BatchCallback], Sequence[PartialResult]]
"""Function that runs a task plan.

The arguments are the plan, and the function to call with each batch. The results are, in this
order:

- one merged result of all tasks, if the plan has models whose states can be merged,
- one result for each recurrence, which is a model whose states cannot be merged.
"""


class _Learner(NamedTuple):
    """Object with which a task checks that a model can learn a batch.

    `admit_block` checks a batch by the fields of the models that shall learn it. A task has only
    the models' specs. It makes an unfitted estimator from each spec, and passes this object in
    place of the model.
    """

    estimator: Estimator
    # `admit_block` reads this state only for a stream's first batch. That batch is checked with the
    # models themselves, before the tasks start.
    state_if_started_from_saved: None = None
    table: None = None


def learn_task(
    task: Task,
    specs: Sequence[Spec],
    schema: Schema,
    limits: Limits,
    initial_states: Sequence[State | None] = (),
    before_batch: BatchCallback | None = None,
) -> PartialResult:
    """Learn the batches of a task, one after the other.

    If the stream or a model cannot learn a batch, the error is returned in the result's field
    `refusal`.

    specs: models that learn the batches.
    schema: the stream's schema, which includes the columns of the stream's first batch.
    limits: limits above which a batch is refused.
    initial_states: state of each model to continue from. Empty to start without learned rows.
    before_batch: function that receives each batch before the batch is learned.

    Raises SourceMissing or DamagedShard if a shard cannot be read.
    """
    # Each model has an estimator, and an accumulator that learns the batches.
    learners = [_Learner(estimator_from_spec(spec)) for spec in specs]
    estimators = [learner.estimator for learner in learners]
    states = initial_states or [None] * len(specs)
    accumulators = [e.accumulator(state) for e, state in zip(estimators, states, strict=True)]
    outlines = []

    for reference in task.references:
        if before_batch is not None:
            before_batch(reference)

        # Learn the batch, and add its outline (a Block with one row of the batch) to the result.
        block = read_batch(reference)
        try:
            # Check the batch, and put its columns in the order of the schema.
            schema, block = admit_block(block, schema, learners, limits)
            for estimator, accumulator in zip(estimators, accumulators, strict=True):
                accumulator.add(estimator.block_to_learn(block))
        except StreamDRError as e:
            # Return an error of the same class, whose message also names the batch.
            refusal = type(e)(f"{reference.uri}, batch {reference.batch}: {e}", **e.details)
            return PartialResult(states=(), outlines=(), refusal=refusal)
        outlines.append(representative_row(block))

    # If a model's states cannot be merged, its state is no AdditiveState. No caller merges it.
    learned = tuple(cast(AdditiveState, accumulator.freeze()) for accumulator in accumulators)
    return PartialResult(learned, tuple(outlines))


def merge(older: PartialResult, newer: PartialResult) -> PartialResult:
    """Merge the results of learning two runs of consecutive batches.

    If one of the results has an error (`refusal`), the merged result has this error. If both
    results have an error, the merged result has the error of `older`.

    older: result of the earlier batches.
    newer: result of the batches that follow.
    """
    refusal = older.refusal or newer.refusal
    if refusal is not None:
        return PartialResult((), (), refusal)
    states = tuple(a.merge(b) for a, b in zip(older.states, newer.states, strict=True))
    return PartialResult(states, older.outlines + newer.outlines)


def representative_row(block: Block) -> Block:
    """Return a Block with one row of a batch.

    The Block has the batch's number of features and its list of labels. The row is the first row
    with a target. If no row has a target, the row is the batch's first row.
    """
    # `y.present` (rows,) is True for rows with a target. It is None if all rows have one.
    y = block.y
    row = 0
    if y is not None and y.present is not None and y.present.any():
        row = int(np.argmax(y.present))
    return block.take(np.array([row]))


def read_batch(reference: Reference) -> Block:
    """Return the rows of the batch that a reference names.

    A reference names a shard and a batch in the shard.
    """
    return _cached_shard(reference.uri, reference.sha256).read(reference.batch)


@lru_cache(maxsize=256)
def _cached_shard(uri: str, sha256: str) -> Shard:
    """Return the shard at `uri`, from a cache if possible.

    At its first read, a shard compares the checksum of its bytes with `sha256`. With the cache, a
    process does this once for each shard and not for every task.
    """
    return open_shard(uri, sha256)


class OtherTaskFailed(Exception):
    """Raised to end a task after another task has failed."""


class _PlanRun:
    """One run of a task plan (tasks and models) in this process's threads.

    on_batch: function that receives each batch before the batch is learned. Any thread may call
        this function, but only one thread at a time.
    """

    def __init__(self, plan: TaskPlan, on_batch: BatchCallback) -> None:
        self.plan = plan
        self._on_batch = on_batch
        self.refusals: dict[int, PartialResult] = {}
        self.stopped = False
        # Results whose neighbour in the tree is not ready, by their node in the tree.
        self._unmerged: dict[Node, PartialResult] = {}
        self._lock = threading.Lock()

    def learn_and_merge(self, task_index: int) -> PartialResult | None:
        """Learn the batches of a task, then merge results.

        Returns the merged result of all tasks if all other tasks have ended. If not, the task's
        result is stored and None is returned. If a batch cannot be learned, the error is stored in
        `refusals` and None is returned. If an earlier task has such an error, nothing is done.

        task_index: index of the task in the plan's `tasks`.
        """
        # `refusals` has the results of the tasks that cannot be learned, by their index.
        # Only the refusal of the earliest task is reported, so later tasks need not run.
        if task_index > min(self.refusals, default=task_index):
            return None

        # `_report_batch` is called before each batch. It raises if another task has failed.
        plan = self.plan
        task = plan.tasks[task_index]
        result = learn_task(task, plan.specs, plan.schema, plan.limits, before_batch=self._report_batch)
        if result.refusal is not None:
            self.refusals[task_index] = result
            return None
        # The results of tasks are the nodes of level 0 of the merge tree.
        return self._merge_up_tree(result, Node(level=0, number=task_index))

    def learn_unmergeable_model(self, recurrence_index: int) -> PartialResult:
        """Learn all batches with one model whose states cannot be merged.

        recurrence_index: index of the model in the plan's `recurrences`.
        """
        plan = self.plan
        spec, state = plan.recurrences[recurrence_index]
        # Report each batch once, although several models learn the batch. The tasks of mergeable
        # models (`plan.specs`) report all batches. Without such models, the first recurrence does.
        # Both callbacks raise OtherTaskFailed if another task has failed.
        if not plan.specs and recurrence_index == 0:
            on_batch = self._report_batch
        else:
            on_batch = self._check_other_tasks
        return learn_task(plan.whole, [spec], plan.schema, plan.limits, [state], on_batch)

    def _merge_up_tree(self, result: PartialResult, node: Node) -> PartialResult | None:
        """Merge a result with its neighbours up the tree.

        Returns the result of the root, which is the merged result of all tasks. If a neighbouring
        result is not ready, None is returned. The result is then stored, and the thread that
        completes the neighbour merges the two.

        node: node of the merge tree that has `result`.
        """
        while node != self.plan.root:
            # Nodes 2n and 2n + 1 of a level are neighbours, so `number ^ 1` is the neighbour's
            # number. `_unmerged` has the results that wait for their neighbour, by node. With the
            # lock, exactly one of two threads finds the result of the other.
            level, number = node
            if not self.plan.is_only_child(node):
                with self._lock:
                    other = self._unmerged.pop(Node(level, number ^ 1), None)
                    if other is None:
                        self._unmerged[node] = result
                        return None
                # The result of the earlier batches, which has the even number, must be first.
                result = merge(other, result) if number % 2 else merge(result, other)
            node = Node(level + 1, number // 2)
        return result

    def _report_batch(self, reference: Reference) -> None:
        """Pass the batch that is learned next to the caller's function `on_batch`.

        Raises OtherTaskFailed if another task of the plan has failed, so that this one ends, too.
        """
        self._check_other_tasks(reference)
        with self._lock:
            self._on_batch(reference)

    def _check_other_tasks(self, reference: Reference) -> None:
        """Raise OtherTaskFailed if another task of the plan has failed.

        reference: the batch to learn next. Not used, but `learn_task` passes it to its callback.
        """
        if self.stopped:
            raise OtherTaskFailed


def thread_plan_runner(n_threads: int) -> PlanRunner:
    """Return a function that runs a task plan in this process's threads.

    The returned function has two arguments: the TaskPlan, and a function to call with each batch
    before the batch is learned. It returns the results of the plan's tasks.

    n_threads: number of threads in this process that run tasks.
    """
    return partial(_run_plan_in_threads, n_threads)


def _run_plan_in_threads(n_threads: int, plan: TaskPlan, before_batch: BatchCallback) -> tuple[PartialResult, ...]:
    """Run a task plan in threads of this process.

    n_threads: number of threads that run tasks.
    before_batch: function that receives each batch before the batch is learned.

    The results are, in this order:

    - one merged result of all tasks, if the plan has models whose states can be merged,
    - one result for each recurrence, which is a model whose states cannot be merged.

    If tasks cannot learn a batch, only one result is returned. Its `refusal` names the first batch
    that cannot be learned. Other errors are raised.
    """
    # `plan.specs` are the models whose states can be merged. Each of the plan's tasks learns its
    # batches with all of them. Without such models, only recurrences are run.
    plan_run = _PlanRun(plan, before_batch)
    task_indices = range(len(plan.tasks)) if plan.specs else ()
    with ThreadPoolExecutor(n_threads, thread_name_prefix="stream_dr-part") as pool:
        try:
            # Recurrences start first. Each one learns all batches, so it takes longer than a task.
            recurrences = [pool.submit(plan_run.learn_unmergeable_model, n) for n in range(len(plan.recurrences))]
            tasks = [pool.submit(plan_run.learn_and_merge, i) for i in task_indices]

            # Wait for the tasks. Only the one that ends last returns the merged result, the others
            # return None.
            results = [result for task in tasks if (result := task.result()) is not None]
            # `refusals` has the results of tasks that cannot learn a batch, by index of the task.
            if plan_run.refusals:
                return (plan_run.refusals[min(plan_run.refusals)],)
            return (*results, *(task.result() for task in recurrences))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            # After an error, the other tasks end before their next batch.
            plan_run.stopped = True


def replay_in_parallel_tasks(
    plan_runner: PlanRunner,
    directory: Directory,
    dataset: Dataset,
    settings: ReplaySettings,
    on_progress: ReplayCallback | None = None,
) -> ReplayReport:
    """Replay a data set into a directory in parallel tasks.

    A replay appends the batches that the log does not have yet, and the models learn them.

    plan_runner: function that runs the tasks, in threads or on Dask.
    on_progress: function that receives the progress, as in `running.replay.replay`.

    Raises the errors of `plan_runner` and the errors of `running.replay.replay`.
    """
    replay = Replay(directory, dataset, settings, on_progress)
    parallel = _ParallelReplay(replay, plan_runner)
    # The models first learn the events that are in the log already. Then `run` calls the method
    # that learns and appends the others.
    return replay.run(parallel.append_and_learn_missing)


def _learned_state(model: Model) -> State | None:
    """Return a model's state, or None if it has learned no rows."""
    return model.accumulator.freeze() if model.rows else None


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
        """Learn the batches of the data set that the log lacks, and append them to the log.

        If a batch cannot be learned, an error names the batch and nothing changes.
        """
        # Each missing batch is a pair (shard, reference to the batch).
        missing = list(self._replay.batches.missing_batches())
        if not missing:
            return

        # Let tasks learn the batches. Nothing is written to the directory yet.
        # Models whose states can be merged learn in parallel. Each other model learns in one task.
        merging = [m for m in self._models if m.estimator.can_merge_parts()]
        others = [m for m in self._models if not m.estimator.can_merge_parts()]

        # Estimate the bytes of all states from the number of features and labels.
        # Without a declared number of features, tasks are divided by their number of rows only.
        width = self._dataset.n_features or 0
        labels = max(1, len(self._dataset.labels))
        state_bytes = 0
        if width:
            state_bytes = sum(m.estimator.state_bytes(width, labels) for m in merging)
        # The bytes of a batch are estimated by its part of the shard's rows.
        sized = [(r, shard.bytes / max(shard.rows, 1) * r.rows) for shard, r in missing]
        tasks = divide_into_tasks(sized, state_bytes)
        specs = tuple(m.spec for m in merging)
        recurrences = tuple(Recurrence(m.spec, _learned_state(m)) for m in others)
        schema = self._schema_with_batch(*missing[0])
        plan = TaskPlan(tasks, specs, recurrences, schema, self._directory.limits)
        results = self._run(plan, self._count_batch)
        for result in results:
            if result.refusal is not None:
                raise result.refusal

        # Append the events of the missing batches to the log.
        # Every result has the same outlines. An outline is a Block with one row of a batch.
        batches = zip(missing, results[0].outlines, strict=True)
        drafts = [reference_draft(reference, outline) for (_, reference), outline in batches]
        self._directory.append_all(drafts)
        self._replay.events += len(drafts)

        # Update the models with the states that the tasks have learned.
        states = [state for result in results for state in result.states]
        for model, state in zip(merging + others, states, strict=True):
            # A state that cannot be merged was continued from the model's own state.
            # Rows without a target also change a state, so skipped rows (`rows_skipped`) count.
            current = model.freeze().state
            if model.estimator.can_merge_parts() and current.rows + current.rows_skipped:
                state = cast(AdditiveState, current).merge(state)
            model.replace_state(state, self._directory.position)

    def _schema_with_batch(self, shard: Shard, batch_reference: Reference) -> Schema:
        """Return the stream's schema, extended by the columns of a batch."""
        # All tasks put the columns of their batches in the order of this schema. `admit_block`
        # returns the schema and the block, and raises an error if a model cannot learn the block.
        try:
            block = shard.read(batch_reference.batch)
            schema, limits = self._directory.schema, self._directory.limits
            return admit_block(block, schema, self._models, limits)[0]
        except StreamDRError as e:
            raise type(e)(f"{batch_reference.uri}, batch {batch_reference.batch}: {e}", **e.details) from e

    def _count_batch(self, reference: Reference) -> None:
        """Add a batch's rows to the replay's progress, and report it."""
        # Count the rows of a batch once, even if a worker is lost and another learns them again.
        if reference.key not in self._counted_keys:
            self._counted_keys.add(reference.key)
            self._replay.rows += reference.rows
        self._replay.report_progress("learning")

"""local: runs a task plan in threads of this process.

The results of the tasks are merged in pairs, along a binary tree (task_plan.py). Each thread takes
the next task. If the neighbouring result in the tree is ready, the thread merges the two results,
then goes on with the merged result, as far up the tree as possible.

Memory: at most one result for each thread, and one for each level of the tree.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from stream_dr.directory.draft import Reference
from stream_dr.distributed.part_store import PartStore, PlanRunner, load_or_compute
from stream_dr.distributed.parts import PartialResult, ProgressCallback, learn, merge
from stream_dr.distributed.task_plan import Node, TaskPlan


class Stopped(Exception):
    """Raised inside a task to end it after another task has failed."""


class _PlanRun:
    """One run of a task plan.

    on_batch: function that receives each batch before the batch is learned. It may be called from
        any thread, but by one thread at a time.
    store: files of results, or None.
    """

    def __init__(self, plan: TaskPlan, on_batch: ProgressCallback, store: PartStore | None) -> None:
        self.plan = plan
        self._on_batch = on_batch
        self._store = store
        self.stored = frozenset[str]() if store is None else store.keys()
        self.refusals: dict[int, PartialResult] = {}
        self.stopped = False
        # Results that wait for the neighbouring result, by node.
        self._unmerged: dict[Node, PartialResult] = {}
        self._lock = threading.Lock()

    def run_node(self, node: Node) -> PartialResult | None:
        """Compute or read a node's result, then merge upwards.

        node: a task, or a node of the merge tree whose result is stored.

        Returns the result of the whole plan if this node was the last one missing, else None.
        Nothing is done if an earlier task was refused.
        """
        plan = self.plan
        first_task = node[1] << node[0]
        if first_task > min(self.refusals, default=first_task):
            return None

        key = plan.key(node)
        if self._store is not None and key in self.stored:
            result = self._store.require(key, plan.specs)
            for reference in plan.references(node):
                self._begin_batch(reference)
        else:
            arguments = (plan.tasks[first_task], plan.specs, plan.schema, plan.limits)
            result = load_or_compute(
                self._store, key, plan.specs, lambda: learn(*arguments, on_batch=self._begin_batch)
            )

        if result.refusal is not None:
            self.refusals[first_task] = result
            return None
        return self._merge_up(result, node)

    def run_recurrence(self, number: int) -> PartialResult:
        """Learn all batches with a model whose states cannot be merged.

        number: index of the model in the plan's `recurrences`.
        """
        plan = self.plan
        spec, state = plan.recurrences[number]
        # Each batch is reported once. Tasks of models that merge report it, if there are any.
        # Otherwise the first model whose states cannot be merged reports it.
        on_batch = self._raise_if_stopped if plan.specs or number else self._begin_batch
        return load_or_compute(
            self._store,
            plan.recurrence_key(number),
            [spec],
            lambda: learn(plan.whole, [spec], plan.schema, plan.limits, [state], on_batch),
        )

    def _merge_up(self, result: PartialResult, node: Node) -> PartialResult | None:
        """Merge a result with its neighbour, and so on up the tree.

        Returns the result of the root. If a neighbouring result is not ready, the result is stored
        for the thread that will complete the neighbour, and None is returned.
        """
        while node != self.plan.root:
            level, number = node
            parent = (level + 1, number // 2)
            if not self.plan.has_no_neighbour(node):
                with self._lock:
                    other = self._unmerged.pop((level, number ^ 1), None)
                    if other is None:
                        self._unmerged[node] = result
                        return None
                pair = (other, result) if number % 2 else (result, other)
                result = load_or_compute(self._store, self.plan.key(parent), self.plan.specs, partial(merge, *pair))
            node = parent
        return result

    def _begin_batch(self, reference: Reference) -> None:
        self._raise_if_stopped(reference)
        with self._lock:
            self._on_batch(reference)

    def _raise_if_stopped(self, reference: Reference) -> None:
        """Raise Stopped if another task of the plan has failed."""
        if self.stopped:
            raise Stopped


def thread_runner(count: int) -> PlanRunner:
    """Return a function that runs a task plan in threads.

    count: number of threads of this process.
    """

    def run_in_threads(
        plan: TaskPlan, on_batch: ProgressCallback, store: PartStore | None
    ) -> tuple[PartialResult, ...]:
        return run(plan, count, on_batch, store)

    return run_in_threads


def run(
    plan: TaskPlan, threads: int, on_batch: ProgressCallback = lambda reference: None, store: PartStore | None = None
) -> tuple[PartialResult, ...]:
    """Run a task plan in threads of this process.

    on_batch: function that receives each batch before the batch is learned.
    store: files of results. Results in the store are not computed again.

    Returns the merged result of the tasks, if the plan has models whose states merge, and then one
    result for each recurrence. If a batch is refused, returns only the result with the error.
    Raises the other errors of learning.
    """
    plan_run = _PlanRun(plan, on_batch, store)
    nodes = plan.starting_nodes(plan_run.stored) if plan.specs else ()
    with ThreadPoolExecutor(threads, thread_name_prefix="stream_dr-part") as pool:
        try:
            recurrences = [pool.submit(plan_run.run_recurrence, n) for n in range(len(plan.recurrences))]
            tasks = [pool.submit(plan_run.run_node, node) for node in nodes]

            results = [result for task in tasks if (result := task.result()) is not None]
            if plan_run.refusals:
                return (plan_run.refusals[min(plan_run.refusals)],)
            return (*results, *(task.result() for task in recurrences))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            plan_run.stopped = True

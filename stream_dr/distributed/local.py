"""local: runs a plan in threads of this process.

Each thread takes the next task. If the neighbour of its result is done, it merges both, then their
parents, as far as it can. So at most one result for each thread and one for each level of the tree
are in memory.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from stream_dr.directory.draft import Reference
from stream_dr.distributed.part_store import PartStore, PlanRunner, load_or_compute
from stream_dr.distributed.parts import PartialResult, ProgressCallback, learn, merge
from stream_dr.distributed.task_plan import Node, TaskPlan


class Stopped(Exception):
    """Ends a task whose plan has failed elsewhere."""


class _PlanRun:
    """One run of a plan.

    Any thread calls `on_batch` with every batch before it is learned.
    """

    def __init__(self, plan: TaskPlan, on_batch: ProgressCallback, store: PartStore | None) -> None:
        self.plan = plan
        self._on_batch = on_batch
        self._store = store
        self.stored = frozenset[str]() if store is None else store.keys()
        self.refusals: dict[int, PartialResult] = {}
        self.stopped = False
        # Results whose neighbour is not done.
        self._unmerged: dict[Node, PartialResult] = {}
        self._lock = threading.Lock()

    def run_node(self, node: Node) -> PartialResult | None:
        """Learn a task, or read a stored node, and merge as far as possible.

        Returns the root's result if that completes it. A task after a refused one is skipped.
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
        """Learn all batches with one model."""
        plan = self.plan
        spec, state = plan.recurrences[number]
        # Each batch is reported once, by the tasks or else by the first recurrence.
        on_batch = self._raise_if_stopped if plan.specs or number else self._begin_batch
        return load_or_compute(
            self._store,
            plan.recurrence_key(number),
            [spec],
            lambda: learn(plan.whole, [spec], plan.schema, plan.limits, [state], on_batch),
        )

    def _merge_up(self, result: PartialResult, node: Node) -> PartialResult | None:
        """Merge a result with its neighbour, then the parents, up to the root.

        Returns None if a neighbour is not done. The thread that completes it goes on.
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
        """Raise Stopped if the plan has failed elsewhere."""
        if self.stopped:
            raise Stopped


def thread_runner(count: int) -> PlanRunner:
    """Return a function that runs plans in `count` threads of this process."""

    def run_in_threads(
        plan: TaskPlan, on_batch: ProgressCallback, store: PartStore | None
    ) -> tuple[PartialResult, ...]:
        return run(plan, count, on_batch, store)

    return run_in_threads


def run(
    plan: TaskPlan, threads: int, on_batch: ProgressCallback = lambda reference: None, store: PartStore | None = None
) -> tuple[PartialResult, ...]:
    """Run a plan in threads, as a PlanRunner. Raises what learning raises."""
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

"""local: runs a task plan in threads of this process.

A task learns some batches of a replay. The results of the tasks are merged in pairs, along a
binary tree (task_plan.py). Each thread takes the next task. If the neighbouring result in the tree
is ready, the thread merges the two results, then goes on with the merged result, as far up the
tree as possible.

Memory: at most one result for each thread, and one for each level of the tree.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from stream_dr.directory.draft import Reference
from stream_dr.distributed.parts import BatchCallback, PartialResult, PlanRunner, learn, merge
from stream_dr.distributed.task_plan import Node, TaskPlan


class Stopped(Exception):
    """Raised inside a task to end it after another task has failed."""


class _PlanRun:
    """One run of a task plan.

    on_batch: function that receives each batch before the batch is learned. It may be called from
        any thread, but by one thread at a time.
    """

    def __init__(self, plan: TaskPlan, on_batch: BatchCallback) -> None:
        self.plan = plan
        self._on_batch = on_batch
        self.refusals: dict[int, PartialResult] = {}
        self.stopped = False
        # _unmerged holds results that wait for the neighbouring result, by their node in the tree.
        self._unmerged: dict[Node, PartialResult] = {}
        self._lock = threading.Lock()

    def run_task(self, number: int) -> PartialResult | None:
        """Learn the batches of a task, then merge its result with those of other tasks.

        Returns the result of the whole plan if this task was the last one missing, else None. If a
        batch of an earlier task could not be learned, nothing is done.

        number: index of the task.
        """
        plan = self.plan
        if number > min(self.refusals, default=number):
            return None

        result = learn(plan.tasks[number], plan.specs, plan.schema, plan.limits, on_batch=self._begin_batch)
        if result.refusal is not None:
            self.refusals[number] = result
            return None
        return self._merge_up(result, (0, number))

    def run_recurrence(self, number: int) -> PartialResult:
        """Learn all batches with a model whose states cannot be merged.

        number: index of the model in the plan's `recurrences`.
        """
        plan = self.plan
        spec, state = plan.recurrences[number]
        # Each batch is reported once, by the tasks. Without tasks, the first recurrence reports.
        on_batch = self._raise_if_stopped if plan.specs or number else self._begin_batch
        return learn(plan.whole, [spec], plan.schema, plan.limits, [state], on_batch)

    def _merge_up(self, result: PartialResult, node: Node) -> PartialResult | None:
        """Merge a result with its neighbour in the tree, and so on up the tree.

        Returns the result of the root. If a neighbouring result is not ready, the result is stored
        for the thread that will complete the neighbour, and None is returned.

        node: place of the result in the tree (task_plan.py).
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
                result = merge(other, result) if number % 2 else merge(result, other)
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

    def run_in_threads(plan: TaskPlan, on_batch: BatchCallback) -> tuple[PartialResult, ...]:
        return run(plan, count, on_batch)

    return run_in_threads


def run(plan: TaskPlan, threads: int, on_batch: BatchCallback = lambda reference: None) -> tuple[PartialResult, ...]:
    """Run a task plan in threads of this process.

    on_batch: function that receives each batch before the batch is learned.

    The results are, in this order:

    - one merged result of all tasks, if the plan has models whose states can be merged,
    - one result for each recurrence, which is a model whose states cannot be merged.

    If the stream cannot accept a batch, the only result is the result that describes the error.
    Other errors are raised.
    """
    plan_run = _PlanRun(plan, on_batch)
    numbers = range(len(plan.tasks)) if plan.specs else ()
    with ThreadPoolExecutor(threads, thread_name_prefix="stream_dr-part") as pool:
        try:
            recurrences = [pool.submit(plan_run.run_recurrence, n) for n in range(len(plan.recurrences))]
            tasks = [pool.submit(plan_run.run_task, number) for number in numbers]

            results = [result for task in tasks if (result := task.result()) is not None]
            if plan_run.refusals:
                return (plan_run.refusals[min(plan_run.refusals)],)
            return (*results, *(task.result() for task in recurrences))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            plan_run.stopped = True

"""Run a task plan in threads of this process.

A task learns some batches of a replay. The results of the tasks are merged in pairs, along a
binary tree (task_plan.py). Each thread runs one task after the other. After a task, the thread
checks if the neighbouring result in the tree is ready. If so, the thread merges the two results,
and continues with the merged result one level higher.

Memory: at most one result for each thread, and one result for each level of the tree.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from stream_dr.directory.draft import Reference
from stream_dr.distributed.parts import BatchCallback, PartialResult, PlanRunner, learn_task_or_return_refusal, merge
from stream_dr.distributed.task_plan import Node, TaskPlan


class OtherTaskFailed(Exception):
    """Raised to end a task after another task has failed."""


class _PlanRun:
    """One run of a task plan.

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

    def learn_task_and_merge_if_last(self, task_index: int) -> PartialResult | None:
        """Learn the batches of a task, then merge results.

        Returns the merged result of all tasks if all other tasks have ended. If not, the task's
        result is stored and None is returned. If a batch cannot be learned, the error is stored in
        `refusals` and None is returned. If an earlier task has such an error, nothing is done.

        task_index: index of the task in the plan's `tasks`.
        """
        plan = self.plan
        if task_index > min(self.refusals, default=task_index):
            return None

        task, on_batch = plan.tasks[task_index], self._report_batch_if_running
        result = learn_task_or_return_refusal(task, plan.specs, plan.schema, plan.limits, before_batch=on_batch)
        if result.refusal is not None:
            self.refusals[task_index] = result
            return None
        return self._merge_up_tree(result, Node(0, task_index))

    def learn_unmergeable_model(self, recurrence_index: int) -> PartialResult:
        """Learn all batches with one recurrence.

        A recurrence is a model whose states cannot be merged.

        recurrence_index: index of the model in the plan's `recurrences`.
        """
        plan = self.plan
        spec, state = plan.recurrences[recurrence_index]
        # Report each batch once, although several models learn the batch.
        # If models have mergeable states (`plan.specs`), their tasks report all batches.
        # If no model has a mergeable state, the first model of `plan.recurrences` reports them.
        on_batch = self._raise_if_other_task_failed if plan.specs or recurrence_index else self._report_batch_if_running
        return learn_task_or_return_refusal(plan.whole, [spec], plan.schema, plan.limits, [state], on_batch)

    def _merge_up_tree(self, result: PartialResult, node: Node) -> PartialResult | None:
        """Merge a result with its neighbours up the tree.

        Returns the result of the root, which is the merged result of all tasks. If a neighbouring
        result is not ready, None is returned. The result is then stored, and the thread that
        completes the neighbour merges the two.

        node: node of the merge tree (task_plan.py) that has `result`.
        """
        while node != self.plan.root:
            level, number = node
            if not self.plan.is_only_child(node):
                with self._lock:
                    other = self._unmerged.pop(Node(level, number ^ 1), None)
                    if other is None:
                        self._unmerged[node] = result
                        return None
                # The result of the earlier batches must be the first argument.
                result = merge(other, result) if number % 2 else merge(result, other)
            node = Node(level + 1, number // 2)
        return result

    def _report_batch_if_running(self, reference: Reference) -> None:
        """Report the batch to learn next, unless another task has failed.

        Raises OtherTaskFailed if another task of the plan has failed.
        """
        self._raise_if_other_task_failed(reference)
        with self._lock:
            self._on_batch(reference)

    def _raise_if_other_task_failed(self, reference: Reference) -> None:
        """Raise OtherTaskFailed if another task of the plan has failed."""
        if self.stopped:
            raise OtherTaskFailed


def thread_plan_runner(n_threads: int) -> PlanRunner:
    """Return a function that runs task plans in threads.

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
    # Without models whose states can be merged, only recurrences are run.
    plan_run = _PlanRun(plan, before_batch)
    numbers = range(len(plan.tasks)) if plan.specs else ()
    with ThreadPoolExecutor(n_threads, thread_name_prefix="stream_dr-part") as pool:
        try:
            recurrences = [pool.submit(plan_run.learn_unmergeable_model, n) for n in range(len(plan.recurrences))]
            tasks = [pool.submit(plan_run.learn_task_and_merge_if_last, number) for number in numbers]

            # Only the task that ends last returns the merged result. The other tasks return None.
            results = [result for task in tasks if (result := task.result()) is not None]
            if plan_run.refusals:
                return (plan_run.refusals[min(plan_run.refusals)],)
            return (*results, *(task.result() for task in recurrences))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            # After an error, the other tasks end before their next batch.
            plan_run.stopped = True

"""local: a plan in threads of this process.

Each thread takes the next task; who has learned a task whose neighbour is done merges both, and their parent, as far as it
goes. So at most one part a thread and one a level of the tree are held.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stream_dr.distributed.parts import Part, Run, learn, merge
from stream_dr.distributed.plan import Node, Plan
from stream_dr.engine.draft import Reference


class Stopped(Exception):
    """Ends a task whose plan has failed elsewhere."""


class _Run:
    """One run of a plan. told: called by any thread, with every batch before it is learned."""

    def __init__(self, plan: Plan, told: Callable[[Reference], None]) -> None:
        self.plan, self._told = plan, told
        self.refusals: dict[int, Part] = {}
        self.stopped = False
        self._waiting: dict[Node, Part] = {}
        self._lock = threading.Lock()

    def task(self, number: int) -> Part | None:
        """Learn a task and merge what can be; gives the root's part where that completes it. A task after one that was
        refused is left out."""
        plan = self.plan
        if number > min(self.refusals, default=number):
            return None
        part = learn(plan.tasks[number], plan.specs, plan.schema, plan.limits, told=self._go_on)
        if part.refused is not None:
            self.refusals[number] = part
            return None
        return self._merged(part, (0, number))

    def recurrence(self, number: int) -> Part:
        """Learn all batches with one model."""
        spec, state = self.plan.recurrences[number]
        told = self._check if self.plan.specs or number else self._go_on
        return learn(self.plan.whole, [spec], self.plan.schema, self.plan.limits, [state], told)

    def _merged(self, part: Part, node: Node) -> Part | None:
        while node != self.plan.root:
            level, at = node
            if not self.plan.alone(node):
                with self._lock:
                    other = self._waiting.pop((level, at ^ 1), None)
                    if other is None:
                        self._waiting[node] = part
                        return None
                part = merge(other, part) if at % 2 else merge(part, other)
            node = (level + 1, at // 2)
        return part

    def _go_on(self, reference: Reference) -> None:
        self._check(reference)
        with self._lock:
            self._told(reference)

    def _check(self, reference: Reference) -> None:
        if self.stopped:
            raise Stopped


def threads(count: int) -> Run:
    """What runs plans in so many threads."""
    return lambda plan, told: run(plan, count, told)


def run(plan: Plan, threads: int, told: Callable[[Reference], None] = lambda reference: None) -> tuple[Part, ...]:
    """The root's part, where the plan has models that merge, and then one of each recurrence. Raises what learning
    raises."""
    running = _Run(plan, told)
    with ThreadPoolExecutor(threads, thread_name_prefix="stream_dr-part") as pool:
        try:
            alone = [pool.submit(running.recurrence, n) for n in range(len(plan.recurrences))]
            tasks = [pool.submit(running.task, n) for n in range(len(plan.tasks))] if plan.specs else []
            parts = [part for task in tasks if (part := task.result()) is not None]
            if running.refusals:
                return (running.refusals[min(running.refusals)],)
            return (*parts, *(task.result() for task in alone))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            running.stopped = True

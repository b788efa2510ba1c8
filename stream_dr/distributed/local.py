"""local: a plan in threads of this process.

Each thread takes the next task; who has learned a task whose neighbour is done merges both, and their parent, as far as it
goes. So at most one part a thread and one a level of the tree are held.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from stream_dr.directory.draft import Reference
from stream_dr.distributed.kept import Kept, Run, once
from stream_dr.distributed.parts import Part, Told, learn, merge
from stream_dr.distributed.plan import Node, Plan


class Stopped(Exception):
    """Ends a task whose plan has failed elsewhere."""


class _Run:
    """One run of a plan. told: called by any thread, with every batch before it is learned."""

    def __init__(self, plan: Plan, told: Told, kept: Kept | None) -> None:
        self.plan, self._told, self._kept = plan, told, kept
        self.there = frozenset[str]() if kept is None else kept.keys()
        self.refusals: dict[int, Part] = {}
        self.stopped = False
        self._waiting: dict[Node, Part] = {}
        self._lock = threading.Lock()

    def begin(self, node: Node) -> Part | None:
        """Learn a task, or read a node that is kept, and merge what can be; gives the root's part where that completes it. A
        task after one that was refused is left out."""
        plan, number = self.plan, node[1] << node[0]
        if number > min(self.refusals, default=number):
            return None
        key = plan.key(node)
        if self._kept is not None and key in self.there:
            part = self._kept.expected(key, plan.specs)
            for reference in plan.references(node):
                self._go_on(reference)
        else:
            given = (plan.tasks[number], plan.specs, plan.schema, plan.limits)
            part = once(self._kept, key, plan.specs, lambda: learn(*given, told=self._go_on))
        if part.refused is not None:
            self.refusals[number] = part
            return None
        return self._merged(part, node)

    def recurrence(self, number: int) -> Part:
        """Learn all batches with one model."""
        plan, (spec, state) = self.plan, self.plan.recurrences[number]
        told = self._check if plan.specs or number else self._go_on
        key = plan.recurrence_key(number)
        return once(self._kept, key, [spec], lambda: learn(plan.whole, [spec], plan.schema, plan.limits, [state], told))

    def _merged(self, part: Part, node: Node) -> Part | None:
        while node != self.plan.root:
            level, at = node
            if not self.plan.alone(node):
                with self._lock:
                    other = self._waiting.pop((level, at ^ 1), None)
                    if other is None:
                        self._waiting[node] = part
                        return None
                pair = (other, part) if at % 2 else (part, other)
                part = once(self._kept, self.plan.key((level + 1, at // 2)), self.plan.specs, partial(merge, *pair))
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

    def run_in_threads(plan: Plan, told: Told, kept: Kept | None) -> tuple[Part, ...]:
        return run(plan, count, told, kept)

    return run_in_threads


def run(plan: Plan, threads: int, told: Told = lambda reference: None, kept: Kept | None = None) -> tuple[Part, ...]:
    """The root's part, where the plan has models that merge, and then one of each recurrence. Raises what learning
    raises."""
    running = _Run(plan, told, kept)
    nodes = plan.begun_from(running.there) if plan.specs else ()
    with ThreadPoolExecutor(threads, thread_name_prefix="stream_dr-part") as pool:
        try:
            alone = [pool.submit(running.recurrence, n) for n in range(len(plan.recurrences))]
            tasks = [pool.submit(running.begin, node) for node in nodes]
            parts = [part for task in tasks if (part := task.result()) is not None]
            if running.refusals:
                return (running.refusals[min(running.refusals)],)
            return (*parts, *(task.result() for task in alone))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            running.stopped = True

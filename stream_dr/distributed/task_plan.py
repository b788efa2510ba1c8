"""Task plan: the tasks of a replay, and the order in which their results are merged.

A task is a run of consecutive batches that are learned together. It has at least 50,000 rows. Its
rows take at least four times as many bytes as its models' states, because otherwise merging would
cost more than learning. The last task may be smaller.

The results are merged along a binary tree. Level 0 has one node for each task. A node of level 1
has the merged result of two neighbouring tasks, a node of level 2 the merged result of two
neighbouring nodes of level 1, and so on. The shape of the tree depends on the number of tasks
alone.

A task's result depends on its batches, the specs and the stream's schema. Any other node's result
depends on its two children. So the same plan gives the same bits on every run, even if processes
are killed or tasks end in another order.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stream_dr.directory.draft import Reference
from stream_dr.models.entry import Spec
from stream_dr.models.schema import Limits, Schema
from stream_dr.statistics.protocol import State

LEAST_ROWS = 50_000
"""Minimum number of rows of a task."""

ROW_BYTES_RATIO = 4
"""Minimum bytes of a task's rows, as a multiple of the bytes of its models' states."""

Node = tuple[int, int]
"""(level, number) of a node in the binary tree along which results of tasks are merged.

Level 0 has one node for each task.
"""


class Task(NamedTuple):
    """Consecutive batches that one task learns, one after the other."""

    references: tuple[Reference, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all batches of the task."""
        return sum(reference.rows for reference in self.references)


class Recurrence(NamedTuple):
    """Model whose states cannot be merged.

    Such a model learns all batches in one task.

    state: the state from which the model continues. None if the model has learned no rows.
    """

    spec: Spec
    state: State | None


class TaskPlan(NamedTuple):
    """Tasks of a replay, and the models that learn their batches.

    Attributes
    ----------
    tasks : tuple of Task
        Tasks in the order of their batches.
    specs : tuple of Spec
        Models whose states merge. Each task learns its batches with all of them.
    recurrences : tuple of Recurrence
        Models whose states cannot be merged. Each learns all batches in one task of its own.
    schema : Schema
        The stream's schema, which includes its first batch.
    limits : Limits
        Limits past which the directory refuses batches.
    """

    tasks: tuple[Task, ...]
    specs: tuple[Spec, ...]
    recurrences: tuple[Recurrence, ...]
    schema: Schema
    limits: Limits

    @property
    def whole(self) -> Task:
        """One task with all batches, for models whose states cannot be merged."""
        return Task(tuple(reference for task in self.tasks for reference in task.references))

    @property
    def root(self) -> Node:
        """Node of the tree whose result is the merged result of all tasks."""
        return (max(len(self.tasks) - 1, 0).bit_length(), 0)

    def has_no_neighbour(self, node: Node) -> bool:
        """Return True if the parent of a node in the tree has no other child.

        Then the parent has the same result as the node.
        """
        level, number = node
        return number % 2 == 0 and ((number + 1) << level) >= len(self.tasks)


def tasks_of(references: Iterable[Reference], row_bytes: Sequence[float], state_bytes: int) -> tuple[Task, ...]:
    """Divide batches into tasks of consecutive batches.

    references: the batches, in order.
    row_bytes: number of bytes of each batch's rows.
    state_bytes: number of bytes of all states that a task holds.
    """
    tasks: list[Task] = []
    run: list[Reference] = []
    rows = 0
    run_bytes = 0.0

    for reference, size in zip(references, row_bytes, strict=True):
        run.append(reference)
        rows += reference.rows
        run_bytes += size
        if rows >= LEAST_ROWS and run_bytes >= ROW_BYTES_RATIO * state_bytes:
            tasks.append(Task(tuple(run)))
            run = []
            rows = 0
            run_bytes = 0.0
    return (*tasks, Task(tuple(run))) if run else tuple(tasks)

"""Divide a replay into tasks, and plan their merges.

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
"""

from collections.abc import Iterable
from typing import NamedTuple

from stream_dr.directory.draft import Reference
from stream_dr.models.entry import Spec
from stream_dr.models.schema import Limits, Schema
from stream_dr.statistics.protocol import State

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
    """Consecutive batches that one task learns, one after the other."""

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
        return Node(max(len(self.tasks) - 1, 0).bit_length(), 0)

    def is_only_child(self, node: Node) -> bool:
        """Return True if a node is its parent's only child.

        The result of the parent is then the result of the node.
        """
        level, number = node
        return number % 2 == 0 and ((number + 1) << level) >= len(self.tasks)


def divide_into_tasks_of_minimum_size(
    batches: Iterable[tuple[Reference, float]], total_state_bytes: int
) -> tuple[Task, ...]:
    """Divide batches into tasks of consecutive batches.

    A task has at least MIN_TASK_ROWS rows. Its rows take at least ROW_TO_STATE_BYTES *
    `total_state_bytes` bytes. The next batch starts a new task as soon as both limits are reached.
    The last task may be smaller.

    batches: reference and number of bytes of all rows of each batch, in order.
    total_state_bytes: number of bytes of one state of each model.
    """
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
    return (*tasks, Task(tuple(run))) if run else tuple(tasks)

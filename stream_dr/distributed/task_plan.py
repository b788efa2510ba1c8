"""Task plan: which batches are learned together, and in which order the results are merged.

A task is a run of consecutive batches. It has at least 50,000 rows, and at least four times as
many bytes of rows as the states have, since otherwise merging would cost more than learning.

The results of two neighbours are merged, then those of two such pairs, and so on. This is a tree
whose shape depends on the number of tasks alone. A node is (level, number), and level 0 has the
tasks.

A task's result depends on its batches, the specs and the stream's schema, a node's result on its
two children. So the same plan gives the same bits wherever it runs, whichever process is killed,
and in whatever order tasks end.
"""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stream_dr import __version__
from stream_dr.directory.draft import Reference
from stream_dr.models.entry import Spec
from stream_dr.models.schema import Limits, Schema
from stream_dr.models.snapshot import state_sha256
from stream_dr.statistics.protocol import State

LEAST_ROWS = 50_000
"""Minimum number of rows of a task."""

ROW_BYTES_RATIO = 4
"""Minimum bytes of a task's rows, in multiples of the bytes of its states."""

Node = tuple[int, int]
"""Level and number of a node."""


class Task(NamedTuple):
    """Consecutive batches, learned one after the other."""

    references: tuple[Reference, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all batches."""
        return sum(reference.rows for reference in self.references)


class Recurrence(NamedTuple):
    """A model whose states do not merge.

    It learns all batches in one task.

    state: the state from which it continues, or None.
    """

    spec: Spec
    state: State | None


class TaskPlan(NamedTuple):
    """Tasks, and the models that learn them.

    Attributes
    ----------
    tasks : tuple of Task
        In the order of the batches.
    specs : tuple of Spec
        Models that every task learns.
    recurrences : tuple of Recurrence
        Models that learn all batches in one task each.
    schema : Schema
        Schema of the stream with its first batch.
    limits : Limits
        Limits of the directory.
    """

    tasks: tuple[Task, ...]
    specs: tuple[Spec, ...]
    recurrences: tuple[Recurrence, ...]
    schema: Schema
    limits: Limits

    @property
    def whole(self) -> Task:
        """All batches as one task, for recurrences."""
        return Task(tuple(reference for task in self.tasks for reference in task.references))

    @property
    def root(self) -> Node:
        """Node that covers all tasks."""
        return (max(len(self.tasks) - 1, 0).bit_length(), 0)

    def nodes(self) -> Iterator[Node]:
        """Yield every node, level by level, children before parents."""
        count = len(self.tasks)
        for level in range(self.root[0] + 1):
            yield from ((level, number) for number in range(count))
            count = -(-count // 2)

    def starting_nodes(self, stored: Container[str], node: Node | None = None) -> Iterator[Node]:
        """Yield the nodes from which a run starts, in order.

        They are the highest nodes whose results are stored, and the tasks under no such node.

        stored: keys of the stored results.
        node: yield only nodes under this one.
        """
        level, number = node = node or self.root
        if number << level >= len(self.tasks):
            return
        if level == 0 or self.key(node) in stored:
            yield node
            return
        for child in (2 * number, 2 * number + 1):
            yield from self.starting_nodes(stored, (level - 1, child))

    def has_no_neighbour(self, node: Node) -> bool:
        """Return True if a node has nothing to be merged with."""
        level, number = node
        return number % 2 == 0 and ((number + 1) << level) >= len(self.tasks)

    def tasks_under(self, node: Node) -> tuple[Task, ...]:
        """Return the tasks that a node covers."""
        level, number = node
        return self.tasks[number << level : (number + 1) << level]

    def references(self, node: Node) -> Iterator[Reference]:
        """Yield the batches that a node covers, in order."""
        return (reference for task in self.tasks_under(node) for reference in task.references)

    def key(self, node: Node) -> str:
        """Return a digest of what determines a node's result.

        That is its batches (by sha256 of their shards), the specs, the schema and the releases of
        stream_dr and numpy.
        """
        return self._key(self.specs, self.tasks_under(node))

    def recurrence_key(self, number: int) -> str:
        """Return a digest as `key`, for a recurrence.

        It includes the state to continue from.
        """
        spec, state = self.recurrences[number]
        return self._key([spec, "" if state is None else state_sha256(state)], self.tasks)

    def keys(self) -> frozenset[str]:
        """Return the keys of all nodes and recurrences."""
        return frozenset(map(self.key, self.nodes())) | set(map(self.recurrence_key, range(len(self.recurrences))))

    def _key(self, models: object, tasks: Sequence[Task]) -> str:
        batches = [[(r.sha256, r.batch, r.pass_number) for r in task.references] for task in tasks]
        inputs = [__version__, np.__version__, models, self.schema.describe(), batches]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def tasks_of(references: Iterable[Reference], row_bytes: Sequence[float], state_bytes: int) -> tuple[Task, ...]:
    """Return tasks of consecutive batches.

    row_bytes: bytes of each batch's rows.
    state_bytes: bytes of all states of a task.
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

"""Plan: which batches are learned together, and in which order what was learned is merged.

Tasks are runs of consecutive batches: at least 50,000 rows, and at least four times as many bytes of rows as the states
have, or more would be spent on states than on rows. What two neighbours have learned is merged, then what two neighbours of
those have, and so on: a tree whose shape depends on the number of tasks alone. A node is (level, number); level 0 are the
tasks.

Why this way: what a task computes depends on its batches, the specs and the stream's schema, what a node computes on its two
children; so the same plan gives the same bits wherever it runs, whoever is killed, and in whatever order tasks end.
"""

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stream_dr import __version__
from stream_dr.directory.draft import Reference
from stream_dr.models.entry import Spec
from stream_dr.models.schema import Limits, Schema
from stream_dr.models.snapshot import state_sha256

LEAST_ROWS = 50_000
"""Rows of a task, at least."""

STATES = 4
"""Bytes of a task's rows, at least, in bytes of the states that it learns."""

Node = tuple[int, int]


class Task(NamedTuple):
    """Consecutive batches, learned one after the other."""

    references: tuple[Reference, ...]

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(reference.rows for reference in self.references)


class Recurrence(NamedTuple):
    """A model whose states do not merge: it learns all batches in one task, going on from `state`."""

    spec: Spec
    state: Any


class Plan(NamedTuple):
    """tasks: in order. specs: the models that every task learns. recurrences: those that learn all batches in one task each.
    schema: the stream's, with its first batch. limits: the directory's."""

    tasks: tuple[Task, ...]
    specs: tuple[Spec, ...]
    recurrences: tuple[Recurrence, ...]
    schema: Schema
    limits: Limits

    @property
    def whole(self) -> Task:
        """All batches as one task, as a model whose states do not merge learns them."""
        return Task(tuple(reference for task in self.tasks for reference in task.references))

    @property
    def root(self) -> Node:
        """The node that holds everything."""
        return (max(len(self.tasks) - 1, 0).bit_length(), 0)

    def nodes(self) -> Iterator[Node]:
        """Every node, children before parents, level by level."""
        count = len(self.tasks)
        for level in range(self.root[0] + 1):
            yield from ((level, number) for number in range(count))
            count = -(-count // 2)

    def begun_from(self, kept: Container[str], node: Node | None = None) -> Iterator[Node]:
        """The nodes that a run begins from, in order: the highest ones whose keys are kept, and the tasks under no such
        one. node: only under this one."""
        level, number = node = node or self.root
        if number << level >= len(self.tasks):
            return
        if level == 0 or self.key(node) in kept:
            yield node
            return
        for child in (2 * number, 2 * number + 1):
            yield from self.begun_from(kept, (level - 1, child))

    def alone(self, node: Node) -> bool:
        """Whether a node has no neighbour to be merged with: it is its parent."""
        level, number = node
        return number % 2 == 0 and ((number + 1) << level) >= len(self.tasks)

    def under(self, node: Node) -> tuple[Task, ...]:
        """The tasks that a node is merged of."""
        level, number = node
        return self.tasks[number << level : (number + 1) << level]

    def references(self, node: Node) -> Iterator[Reference]:
        """The batches under a node, in order."""
        return (reference for task in self.under(node) for reference in task.references)

    def key(self, node: Node) -> str:
        """What a node holds, as a digest: the batches under it by their shards' sha256, the specs, the schema and the
        releases that compute it."""
        return self._key(self.specs, self.under(node))

    def recurrence_key(self, number: int) -> str:
        """What a recurrence's part holds, as a digest: as `key`, and the state that it goes on from."""
        spec, state = self.recurrences[number]
        return self._key([spec, "" if state is None else state_sha256(state)], self.tasks)

    def keys(self) -> frozenset[str]:
        """The keys of all nodes and recurrences."""
        return frozenset(map(self.key, self.nodes())) | set(map(self.recurrence_key, range(len(self.recurrences))))

    def _key(self, learned: Any, under: Sequence[Task]) -> str:
        batches = [[(r.sha256, r.batch, r.pass_number) for r in task.references] for task in under]
        facts = [__version__, np.__version__, learned, self.schema.describe(), batches]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def tasks_of(references: Iterable[Reference], row_bytes: Sequence[float], state_bytes: int) -> tuple[Task, ...]:
    """Tasks of consecutive batches. row_bytes: bytes of each batch's rows."""
    tasks, run, rows, held = list[Task](), list[Reference](), 0, 0.0
    for reference, size in zip(references, row_bytes, strict=True):
        run.append(reference)
        rows, held = rows + reference.rows, held + size
        if rows >= LEAST_ROWS and held >= STATES * state_bytes:
            tasks.append(Task(tuple(run)))
            run, rows, held = [], 0, 0.0
    return (*tasks, Task(tuple(run))) if run else tuple(tasks)

"""TestThenTrain: how well a stream's live models tell classes apart, on rows that they have not learned yet.

Before an event is learned, some of its labelled rows are projected as each model has published, and given the label of the
nearest class mean; means are of the rows tested before, projected the same way. Beside it stands the baseline: the label of
the row before. Of several labels a row, the nearest one is right where it is among them. Numbers as targets are not tested.

Rows that are taken out of the stream leave the means and the scores. Nothing that is learned or published depends on any of
this. One owner (thread) tests; any thread reads `scores`.

Cost: memory of ROWS rows, at most KEPT_BYTES; at most a SHARE-th of the time, so that of small batches not every one is
tested.
"""

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_dr.directory.draft import Removal
from stream_dr.models.model import Model
from stream_dr.models.schema import Facts
from stream_dr.rows.block import Block
from stream_dr.running.advance import Step
from stream_dr.solve.nearest_mean import means_by_class, nearest
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets

log = logging.getLogger("stream_dr.test_then_train")

ROWS, AT_ONCE = 2_000, 200
"""Rows that means and scores are of, the newest; rows of one event that are tested."""

KEPT_BYTES = 16 << 20
"""Most bytes of rows that are held."""

SHARE = 50
"""Between two tests passes so many times what the last took."""


class _Part(NamedTuple):
    """Tested rows of one event. numbers: (rows,) within it. block: the rows. codes: (rows,) the label into whose mean
    each is taken. right: by model id, (rows,) bool; of the baseline under None."""

    position: int
    numbers: np.ndarray
    block: Block
    codes: np.ndarray
    right: dict[int | None, np.ndarray]

    def take(self, stays: np.ndarray) -> "_Part":
        """The part with those rows, (rows,) bool."""
        right = {key: was[stays] for key, was in self.right.items()}
        return _Part(
            self.position, self.numbers[stays], self.block.take(np.flatnonzero(stays)), self.codes[stays], right
        )


class TestThenTrain:
    """The tests of a directory's live models."""

    __test__ = False  # pytest: this is no test class

    def __init__(self) -> None:
        self._parts: tuple[_Part, ...] = ()
        self._labels: dict[Label, int] = {}
        self._last: Label | None = None
        self._projected: dict[int, tuple[int, dict[int, np.ndarray]]] = {}  # by model: its version, z by position
        self._next = 0.0

    def test(self, models: Sequence[Model], steps: Sequence[Step]) -> None:
        """Test the events that are about to be learned. Raises nothing: what cannot be tested is logged."""
        for step in steps:
            if step.removal is not None:
                self._remove(step.removal)
            elif step.block is not None and isinstance(step.block.y, Targets) and step.block.y.kind != "continuous":
                self._offer(models, step.position, step.block)

    def scores(self, model: Model) -> Facts:
        """{"accuracy", "baseline", "tested"} over the rows tested last; {} where none was."""
        parts = [p for p in self._parts if model.id in p.right]
        tested = sum(len(p.numbers) for p in parts)
        if not tested:
            return {}
        mine, last = (sum(int(p.right[key].sum()) for p in parts) / tested for key in (model.id, None))
        return {"accuracy": round(mine, 4), "baseline": round(last, 4), "tested": tested}

    def _offer(self, models: Sequence[Model], position: int, block: Block) -> None:
        begun, labelled = time.monotonic(), _labelled(block.y)
        if not len(labelled):
            return
        unlearned = [m for m in models if m.position < position and m.published is not None]
        if unlearned and begun >= self._next:
            try:
                self._test(unlearned, position, block, labelled)
            except Exception:
                log.exception("the rows at position %d were not tested", position)
            now = time.monotonic()
            self._next = now + SHARE * (now - begun)
        self._last = _label_sets(block.y, labelled[-1:])[0][0]

    def _test(self, models: Sequence[Model], position: int, block: Block, labelled: np.ndarray) -> None:
        chosen = np.unique(np.linspace(0, len(labelled) - 1, min(AT_ONCE, len(labelled))).astype(np.int64))
        last = [labels[0] for labels in _label_sets(block.y, labelled[chosen[chosen > 0] - 1])]
        before = last if chosen[0] else [self._last, *last]
        rows = block.take(labelled[chosen])
        truth = _label_sets(block.y, labelled[chosen])
        right: dict[int | None, np.ndarray] = {None: _among(before, truth)}
        for model in models:
            nearest = self._nearest(model, rows)
            if nearest is not None:
                right[model.id] = _among(nearest, truth)
        codes = np.array([self._labels.setdefault(labels[0], len(self._labels)) for labels in truth])
        self._keep(_Part(position, labelled[chosen], rows, codes, right))

    def _nearest(self, model: Model, rows: Block) -> list[Label] | None:
        """Each row's label by the nearest class mean; None while there are no means."""
        published = model.published
        if published is None or not self._parts:
            return None
        version, projected = self._projected.get(model.id, (0, {}))
        if version != published.version:
            projected = {}
        self._projected[model.id] = published.version, projected
        for part in self._parts:
            if part.position not in projected:
                projected[part.position] = published.projection.apply(part.block.X)
        z = np.vstack([projected[part.position] for part in self._parts])
        means = means_by_class(z, np.concatenate([part.codes for part in self._parts]), len(self._labels))
        labels = list(self._labels)
        return [labels[code] for code in nearest(published.projection.apply(rows.X), means).tolist()]

    def _keep(self, part: _Part) -> None:
        parts = [*self._parts, part]
        rows, size = sum(p.block.rows for p in parts), sum(p.block.nbytes for p in parts)
        first = 0
        while first < len(parts) - 1 and (rows > ROWS or size > KEPT_BYTES):
            rows, size = rows - parts[first].block.rows, size - parts[first].block.nbytes
            self._forget(parts[first].position)
            first += 1
        self._parts = tuple(parts[first:])

    def _remove(self, removal: Removal) -> None:
        left = []
        for part in self._parts:
            if part.position in removal:
                rows = removal[part.position]
                part = part.take(np.zeros(len(part.numbers), bool) if rows is None else ~np.isin(part.numbers, rows))
                self._forget(part.position)
            left += [part] if part.block.rows else []
        self._parts = tuple(left)

    def _forget(self, position: int) -> None:
        for _, projected in self._projected.values():
            projected.pop(position, None)


def _labelled(y: Targets) -> np.ndarray:
    """The numbers of the rows that have a label."""
    there = y.codes >= 0 if y.indptr is None else np.diff(y.indptr) > 0
    return np.flatnonzero(there if y.present is None else there & y.present)


def _label_sets(y: Targets, rows: np.ndarray) -> list[list[Label]]:
    """The labels of each of those rows."""
    given = y.take(rows).row_labels()
    return [[label] for label in given] if y.indptr is None else given


def _among(given: Sequence[Label | None], truth: Sequence[list[Label]]) -> np.ndarray:
    """Whether each label given is one of the row's, (rows,) bool."""
    return np.array([label in labels for label, labels in zip(given, truth, strict=True)])

"""TestThenTrain: how well a stream's live models tell classes apart, on rows that they have not learned yet.

Before an event is learned, some of its labelled rows are projected as each model has published, and given the label of the
nearest class mean; means are of the rows tested before, projected the same way. Beside it stands the baseline: the label of
the row before. Of several labels a row, the nearest one is right where it is among them. Numbers as targets are not tested.
Where models publish at the end alone, as in a replay, they are solved for the tests each time that their rows have doubled.

Rows that are taken out of the stream leave the means and the scores. Nothing that is learned or published depends on any of
this. One owner (thread) tests; any thread reads `scores`.

Cost: memory of ROWS rows, at most KEPT_BYTES; after FREE_SECONDS at most a SHARE-th of the time, so that of small batches
not every one is tested.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_dr.directory.draft import Removal
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.mapping import state_bytes
from stream_dr.models.model import Model
from stream_dr.models.schema import Facts
from stream_dr.projection import Projection
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

SHARE, FREE_SECONDS = 50, 0.5
"""Between two tests passes so many times what the last took, once they have taken so much in all: a file that is learned
within seconds is tested, too."""


SOLVING_SHARE, CHEAP_BYTES = 10, 16 << 20
"""Of the time since tests began at most a tenth is spent on solving for them; and what the first solution costs is not known
before, so that larger states are not solved at all."""

MOST_CLASSES = 12
"""Labels that a confusion tells apart, the most frequent among the rows tested."""


class _Part(NamedTuple):
    """Tested rows of one event. numbers: (rows,) within it. block: the rows. codes: (rows,) the label into whose mean
    each is taken. right: by model id, (rows,) bool; of the baseline under None. found: by model id, (rows,) the code of the
    nearest mean."""

    position: int
    numbers: np.ndarray
    block: Block
    codes: np.ndarray
    right: dict[int | None, np.ndarray]
    found: dict[int, np.ndarray]

    def take(self, stays: np.ndarray) -> "_Part":
        """The part with those rows, (rows,) bool."""
        rows = self.block.take(np.flatnonzero(stays))
        right = {key: was[stays] for key, was in self.right.items()}
        found = {id: was[stays] for id, was in self.found.items()}
        return _Part(self.position, self.numbers[stays], rows, self.codes[stays], right, found)


class TestThenTrain:
    """The tests of a directory's live models. before: what `scores` told of models by id when they were last tested, by
    another process. solving: whether models are solved for the tests, because they publish at the end alone."""

    __test__ = False  # pytest: this is no test class

    def __init__(self, before: Mapping[int, Facts] | None = None, solving: bool = False) -> None:
        self._before, self._solving = before or {}, solving
        self._begun, self._spent, self._solving_spent = time.monotonic(), 0.0, 0.0
        self._solved: dict[int, tuple[int, float, Projection | None]] = {}
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
        """{"accuracy", "baseline", "tested", "confusion"} over the rows tested last, by this process and, while they are
        fewer than ROWS, the one before; {} where none was. confusion: {"labels": (c,), "counts": (c, c) rows of a label that
        were given each, those given others left out, "rows": (c,) of each label}; None of several labels a row."""
        parts, before = [p for p in self._parts if model.id in p.right], self._before.get(model.id, {})
        tested = sum(len(p.numbers) for p in parts)
        if not tested:
            return dict(before)
        mine, last = (sum(int(p.right[key].sum()) for p in parts) / tested for key in (model.id, None))
        told: Facts = {"accuracy": mine, "baseline": last, "tested": tested}
        told["confusion"] = self._confusion(parts, model)
        told = _joined(told, before) if before and tested < ROWS else told
        return told | {name: round(told[name], 4) for name in ("accuracy", "baseline")}

    def _confusion(self, parts: Sequence[_Part], model: Model) -> Facts | None:
        if any(part.block.y.kind != "class" for part in parts):
            return None
        labels = list(self._labels)
        truth, found = (
            np.concatenate(codes) for codes in zip(*((p.codes, p.found[model.id]) for p in parts), strict=True)
        )
        counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(counts, (truth, found), 1)
        rows = counts.sum(axis=1)
        shown = np.argsort(-rows, kind="stable")[:MOST_CLASSES]
        told = sorted(labels[code] for code in shown if rows[code])
        at = [self._labels[label] for label in told]
        return {"labels": told, "counts": counts[np.ix_(at, at)].tolist(), "rows": rows[at].tolist()}

    def _offer(self, models: Sequence[Model], position: int, block: Block) -> None:
        begun, labelled = time.monotonic(), _labelled(block.y)
        if not len(labelled):
            return
        unlearned = [m for m in models if m.position < position and self._projection(m) is not None]
        if unlearned and begun >= self._next:
            try:
                self._test(unlearned, position, block, labelled)
            except Exception:
                log.exception("the rows at position %d were not tested", position)
            now = time.monotonic()
            self._spent += now - begun
            self._next = now + SHARE * (now - begun) if self._spent > FREE_SECONDS else 0.0
        self._last = _label_sets(block.y, labelled[-1:])[0][0]

    def _test(self, models: Sequence[Model], position: int, block: Block, labelled: np.ndarray) -> None:
        chosen = np.unique(np.linspace(0, len(labelled) - 1, min(AT_ONCE, len(labelled))).astype(np.int64))
        last = [labels[0] for labels in _label_sets(block.y, labelled[chosen[chosen > 0] - 1])]
        before = last if chosen[0] else [self._last, *last]
        rows = block.take(labelled[chosen])
        truth = _label_sets(block.y, labelled[chosen])
        right: dict[int | None, np.ndarray] = {None: _among(before, truth)}
        found, known = {}, list(self._labels)
        for model in models:
            codes = self._nearest(model, rows)
            if codes is not None:
                found[model.id] = codes
                right[model.id] = _among([known[code] for code in codes.tolist()], truth)
        codes = np.array([self._labels.setdefault(labels[0], len(self._labels)) for labels in truth])
        self._keep(_Part(position, labelled[chosen], rows, codes, right, found))

    def _nearest(self, model: Model, rows: Block) -> np.ndarray | None:
        """The code (rows,) of each row's nearest class mean; None while there are no means."""
        solved = self._projection(model)
        if solved is None or not self._parts:
            return None
        version, projection = solved
        known, projected = self._projected.get(model.id, (0, {}))
        if version != known:
            projected = {}
        self._projected[model.id] = version, projected
        for part in self._parts:
            if part.position not in projected:
                projected[part.position] = projection.apply(part.block.X)
        z = np.vstack([projected[part.position] for part in self._parts])
        means = means_by_class(z, np.concatenate([part.codes for part in self._parts]), len(self._labels))
        return nearest(projection.apply(rows.X), means)

    def _projection(self, model: Model) -> tuple[int, Projection] | None:
        """What a model is tested by, and a number that changes with it: what it has published or, solving for the tests, the
        solution of the state when its rows had last doubled."""
        if not self._solving:
            return None if model.published is None else (model.published.version, model.published.projection)
        rows, cost, projection = self._solved.get(model.id, (0, 0.0, None))
        if model.rows >= max(1, 2 * rows) and self._may_solve(model, cost):
            begun = time.monotonic()
            try:
                projection = model.estimator.solve(model.freeze().state)
            except StreamDRError:
                projection = None  # too few rows, or none has a target
            cost = time.monotonic() - begun
            self._solving_spent += cost
            rows = model.rows
            self._solved[model.id] = rows, cost, projection
        return None if projection is None else (rows, projection)

    def _may_solve(self, model: Model, cost: float) -> bool:
        """Whether solving a model that took so many seconds the last time, 0 for not known, leaves it at its share."""
        if not cost:
            estimator, held = model.estimator, model.accumulator
            size = state_bytes(estimator, held.n_features, len(held.labels) or 1, getattr(held, "table", None))
            return size + estimator.solve_bytes() <= CHEAP_BYTES
        spent = self._solving_spent + cost
        return spent <= FREE_SECONDS or SOLVING_SHARE * spent <= time.monotonic() - self._begun

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


def _joined(told: Facts, before: Facts) -> Facts:
    """Scores of fewer than ROWS rows, and those that another process tested before, together of ROWS at most."""
    others = min(before["tested"], ROWS - told["tested"])
    rows = told["tested"] + others
    means = {name: (told[name] * told["tested"] + before[name] * others) / rows for name in ("accuracy", "baseline")}
    now, then = told["confusion"], before["confusion"]
    if now is None or then is None:
        return told | means | {"tested": rows}

    labels = sorted({*now["labels"], *then["labels"]})
    counts, of_each = np.zeros((len(labels), len(labels))), np.zeros(len(labels))
    for part, share in ((now, 1.0), (then, others / before["tested"])):
        at = [labels.index(label) for label in part["labels"]]
        counts[np.ix_(at, at)] += share * np.array(part["counts"])
        of_each[at] += share * np.array(part["rows"])
    joined = {
        "labels": labels,
        "counts": counts.round().astype(int).tolist(),
        "rows": of_each.round().astype(int).tolist(),
    }
    return told | means | {"tested": rows, "confusion": joined}


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

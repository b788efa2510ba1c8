"""Live scores: how well the models of a stream predict rows that they have not learned yet.

Before an event is learned, some of its rows with a target are projected as each model has
published. A row is predicted to have the label of the nearest class mean. Where targets are
numbers, least squares on the projected rows predicts them. The means and the least squares are of
the rows tested before. If rows have several labels, a predicted label is right if it is among
them.

Two baselines need no model: the target of the row before, and the most frequent label.

Rows that are unlearned leave the scores. Nothing that is learned or published depends on the
tests. One thread tests, and any thread reads `scores`.

Memory: MOST_ROWS rows, at most MOST_BYTES. Time: after FREE_SECONDS, one part in `share` of the
time. When batches are small and come fast, not every one is tested.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.directory.draft import Removal
from stream_dr.errors import StreamDRError
from stream_dr.estimators.fitting.mapping import state_bytes
from stream_dr.models.model import Model
from stream_dr.models.schema import block_for
from stream_dr.projection import Projection
from stream_dr.rows.block import Block
from stream_dr.running.advance import Step
from stream_dr.solve.nearest_mean import means_by_class, nearest_mean
from stream_dr.statistics.protocol import State
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets

log = logging.getLogger("stream_dr.test_then_train")

MOST_ROWS, ROWS_AT_ONCE = 2_000, 500
"""Number of the newest rows that scores are of, and of rows of one event that are tested."""

MOST_BYTES = 16 << 20
"""Upper bound on the bytes of the rows held."""

FREE_SECONDS = 0.5
"""Seconds of testing that no share limits, so that short runs are tested too."""

SOLVING_SHARE, CHEAP_BYTES = 10, 16 << 20
"""One part in SOLVING_SHARE of the time goes to solving for tests. A state above CHEAP_BYTES is
never solved for them, because the cost of its first solution is not known beforehand."""

FEWEST_ROWS = 200
"""Number of tested rows from which scores replace those of an earlier process. A model with fewer
does not narrow the rows that models are compared on."""

FEWEST_HALVED = 40
"""Number of rows with a target from which the first event is tested by halves."""

CURVE_GROWTH = 1.25
"""Growth of the number of learned rows between two points of a model's curve."""

MOST_CLASSES = 12
"""Number of labels in a confusion matrix, the most frequent among the rows tested."""

PREVIOUS, MOST_FREQUENT = "previous", "most_frequent"


class _Part(NamedTuple):
    """Tested rows of one event.

    position: position of the event in the log.
    numbers: (rows,) row numbers within the event.
    block: the rows.
    targets: (rows,) codes of the label whose mean a row counts for, or (rows, q) numbers.
    errors: (rows,) 1.0 where a prediction was wrong, or (rows, q) squared errors, by model id or
        name of a baseline.
    predicted: (rows,) codes of the predicted labels by model id. Empty where targets are numbers.
    """

    position: int
    numbers: np.ndarray
    block: Block
    targets: np.ndarray
    errors: dict[int | str, np.ndarray]
    predicted: dict[int, np.ndarray]

    def take(self, rows: np.ndarray) -> "_Part":
        """Return the part with these rows, (rows,) bool."""
        errors = {key: values[rows] for key, values in self.errors.items()}
        predicted = {id: codes[rows] for id, codes in self.predicted.items()}
        block = self.block.take(np.flatnonzero(rows))
        return _Part(self.position, self.numbers[rows], block, self.targets[rows], errors, predicted)


class TestThenTrain:
    """Tests of a directory's live models.

    earlier: scores by model id that an earlier process measured last.
    solves: whether models are solved for the tests, because they publish at the end alone, as in a
        replay. They are solved each time that their rows have doubled. Of the first event, every
        second row teaches what is tested on the others.
    """

    # Tells pytest that this is no test class.
    __test__ = False

    # One part in `share` of the time goes to testing. 0 tests every event.
    share = 50

    def __init__(self, earlier: Mapping[int, JsonDict] | None = None, solves: bool = False) -> None:
        self._earlier = earlier or {}
        self._solves = solves
        self._started = time.monotonic()
        self._spent = 0.0
        self._solving_spent = 0.0
        self._next_test = 0.0
        self._parts: tuple[_Part, ...] = ()
        self._labels: dict[Label, int] = {}
        # Target of the last row before an event, (1,) or (1, q).
        self._previous: np.ndarray | None = None
        self._tested_at = 0.0
        self._curves: dict[int, list[tuple[int, float]]] = {}
        # By model id: rows learned when it was solved for the tests, seconds of solving, solution.
        self._solved: dict[int, tuple[int, float, Projection | None]] = {}
        # By model id: number of the projection, and the projected rows of each part by position.
        self._projected: dict[int, tuple[int, dict[int, np.ndarray]]] = {}

    def test(self, models: Sequence[Model], steps: Sequence[Step]) -> None:
        """Test events that are about to be learned.

        An event that cannot be tested is logged.
        """
        for step in steps:
            if step.removal is not None:
                self._remove(step.removal)
            elif step.block is not None and isinstance(step.block.y, Targets):
                started = time.monotonic()
                try:
                    self._test_event(models, step.position, step.block, started >= self._next_test)
                except Exception:
                    log.exception("the rows at position %d were not tested", step.position)
                seconds = time.monotonic() - started
                self._spent += seconds
                if self._spent > FREE_SECONDS:
                    self._next_test = max(self._next_test, started + self.share * seconds)

    def scores(self, model: Model) -> JsonDict:
        """Return a model's scores on the rows tested last.

        accuracy: share of rows with the right label. Or r2: R² averaged over targets, where
            targets are numbers.
        error: standard error of the accuracy. None for R².
        baseline, most_frequent: the same score of the two baselines. None for the second where
            targets are numbers.
        tested: number of rows. tested_at: time of the last test, seconds since 1970.
        curve: [rows learned, score] over time.
        confusion: "labels" (c,), "counts" (c, c) number of rows of a label that were predicted to
            have each, and "rows" (c,) of each label. None unless a row has one label.

        Models are compared on rows that all of them were tested on. Until FEWEST_ROWS rows are
        tested, the scores are those of the earlier process. {} if there are none.
        """
        parts = self._common_parts(model)
        earlier = self._earlier.get(model.id)
        tested = sum(len(part.numbers) for part in parts)
        if earlier and tested < FEWEST_ROWS:
            return dict(earlier)
        if not tested:
            return {}

        targets = np.concatenate([part.targets for part in parts])
        score = _score(parts, targets, model.id)
        previous = _score(parts, targets, PREVIOUS)
        measured: JsonDict
        if targets.ndim == 1:
            error = round((score * (1 - score) / tested) ** 0.5, 4)
            frequent = _score(parts, targets, MOST_FREQUENT)
            measured = {"accuracy": score, "error": error, "most_frequent": frequent}
        else:
            measured = {"r2": score, "error": None, "most_frequent": None}
        curve = [*(earlier or {}).get("curve", ()), *self._curves.get(model.id, ())]
        measured |= {"baseline": previous, "tested": tested}
        return measured | {"tested_at": self._tested_at, "curve": curve, "confusion": self._confusion(parts, model)}

    def _common_parts(self, model: Model) -> list[_Part]:
        """Return the parts that this model and all others of the newest part were tested on."""
        parts = [part for part in self._parts if model.id in part.errors]
        if not parts:
            return []
        tested = {key: sum(len(p.numbers) for p in self._parts if key in p.errors) for key in parts[-1].errors}
        peers = {key for key, rows in tested.items() if rows >= FEWEST_ROWS}
        return [part for part in parts if peers <= part.errors.keys()] or parts

    def _confusion(self, parts: Sequence[_Part], model: Model) -> JsonDict | None:
        if any(part.block.y.kind != "class" for part in parts):
            return None
        labels = list(self._labels)
        truth = np.concatenate([part.targets for part in parts])
        predicted = np.concatenate([part.predicted[model.id] for part in parts])
        counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(counts, (truth, predicted), 1)

        rows = counts.sum(axis=1)
        most_frequent = np.argsort(-rows, kind="stable")[:MOST_CLASSES]
        frequent = sorted(labels[code] for code in most_frequent if rows[code])
        codes = [self._labels[label] for label in frequent]
        return {"labels": frequent, "counts": counts[np.ix_(codes, codes)].tolist(), "rows": rows[codes].tolist()}

    def _test_event(self, models: Sequence[Model], position: int, block: Block, wanted: bool) -> None:
        numbers = _rows_with_target(block.y)
        if not len(numbers):
            return
        models = [model for model in models if model.position < position]
        is_first = self._solves and not self._parts and not any(model.rows for model in models)
        if wanted and is_first and len(numbers) >= FEWEST_HALVED:
            self._learn_half(models, position, block, numbers[::2])
            self._test_rows(models, position, block, numbers, np.arange(1, len(numbers), 2))
        elif wanted:
            self._test_rows(models, position, block, numbers, np.arange(len(numbers)))
        self._previous = self._targets(block.y.take(numbers[-1:]))

    def _learn_half(self, models: Sequence[Model], position: int, block: Block, numbers: np.ndarray) -> None:
        """Learn some rows of the first event, apart from the models.

        Its other rows can then be tested.
        """
        half = block.take(numbers)
        for model in models:
            if self._may_solve(model, 0.0):
                accumulator = model.estimator.accumulator()
                accumulator.add(block_for(model.estimator, half))
                self._solve(model, accumulator.freeze(), half.rows)
        numbers = _evenly_spread(numbers)
        rows = block.take(numbers)
        self._add(_Part(position, numbers, rows, self._targets(rows.y), {}, {}))

    def _test_rows(
        self, models: Sequence[Model], position: int, block: Block, numbers: np.ndarray, among: np.ndarray
    ) -> None:
        """Test rows numbers[among], or ROWS_AT_ONCE of them.

        numbers: numbers of all rows with a target.
        """
        projections = {m.id: solution for m in models if (solution := self._projection(m)) is not None}
        if not projections:
            return

        chosen = _evenly_spread(among)
        rows = block.take(numbers[chosen])
        targets = self._targets(rows.y)
        part = _Part(position, numbers[chosen], rows, targets, {}, {})

        # The first part has no tested rows before it to predict from.
        if self._parts:
            known = np.concatenate([part.targets for part in self._parts])
            for id, (number, projection) in projections.items():
                Z = self._projected_parts(id, number, projection)
                predictions = _predict_from_means(Z, known, projection.apply(rows.X), len(self._labels))
                if predictions is not None:
                    part.predicted[id] = predictions
                    part.errors[id] = self._errors(predictions, rows.y, targets)
            part.errors[PREVIOUS] = self._errors(self._targets_before(block.y, numbers, chosen), rows.y, targets)
            if targets.ndim == 1:
                most_frequent = np.full(len(targets), np.bincount(known).argmax())
                part.errors[MOST_FREQUENT] = self._errors(most_frequent, rows.y, targets)

        self._add(part)
        self._tested_at = round(time.time())
        self._extend_curves([model for model in models if model.id in part.errors])

    def _targets_before(self, y: Targets, numbers: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return the target of the row with a target before each row of numbers[chosen]."""
        before = self._targets(y.take(numbers[chosen[chosen > 0] - 1]))
        if chosen[0] > 0:
            return before
        # Before the first row of all there is none. No label has the code -1.
        first = np.full_like(before, -1, shape=(1, *before.shape[1:])) if self._previous is None else self._previous
        return np.concatenate([first, before])

    def _targets(self, y: Targets) -> np.ndarray:
        """Return the code of each row's first label, (rows,), or its numbers, (rows, q)."""
        if y.values is not None:
            return y.values
        codes = y.codes if y.indptr is None else y.codes[y.indptr[:-1]]
        return np.array(
            [self._labels.setdefault(y.labels[c], len(self._labels)) for c in codes.tolist()], dtype=np.int64
        )

    def _errors(self, predicted: np.ndarray, y: Targets, targets: np.ndarray) -> np.ndarray:
        """Return squared errors of numbers, (rows, q), or which labels are wrong, (rows,)."""
        if y.values is not None:
            return np.asarray(np.square(predicted - targets))
        if y.indptr is None:
            return np.asarray(predicted != targets)
        labels = [*self._labels, None]
        return np.array([labels[c] not in row for c, row in zip(predicted.tolist(), y.row_labels(), strict=True)])

    def _projected_parts(self, id: int, number: int, projection: Projection) -> np.ndarray:
        """Return all rows of the parts as this projection has them, (rows, p)."""
        known, projected = self._projected.get(id, (0, {}))
        if number != known:
            projected = {}
        self._projected[id] = number, projected
        for part in self._parts:
            if part.position not in projected:
                projected[part.position] = projection.apply(part.block.X)
        return np.vstack([projected[part.position] for part in self._parts])

    def _extend_curves(self, models: Sequence[Model]) -> None:
        for model in models:
            curve = self._curves.setdefault(model.id, [])
            learned = max(model.rows, self._solved.get(model.id, (0,))[0])
            if not curve or learned >= CURVE_GROWTH * curve[-1][0]:
                parts = self._common_parts(model)
                score = _score(parts, np.concatenate([part.targets for part in parts]), model.id)
                curve.append((learned, score))

    def _projection(self, model: Model) -> tuple[int, Projection] | None:
        """Return (number, projection) for the tests of a model, or None.

        The number changes with the projection.
        """
        if not self._solves:
            return None if model.published is None else (model.published.version, model.published.projection)
        rows, seconds, _ = self._solved.get(model.id, (0, 0.0, None))
        if model.rows >= max(1, 2 * rows) and self._may_solve(model, seconds):
            self._solve(model, model.freeze().state, model.rows)
        rows, _, projection = self._solved.get(model.id, (0, 0.0, None))
        return None if projection is None else (rows, projection)

    def _solve(self, model: Model, state: State, rows: int) -> None:
        started = time.monotonic()
        projection = None
        # Too few rows, or no row has a target.
        with suppress(StreamDRError):
            projection = model.estimator.solve(state)
        seconds = time.monotonic() - started
        self._solving_spent += seconds
        self._solved[model.id] = rows, seconds, projection

    def _may_solve(self, model: Model, seconds: float) -> bool:
        """Return True if solving keeps within its share.

        seconds: time that the last solution took, 0 if there is none.
        """
        if not seconds:
            estimator, accumulator = model.estimator, model.accumulator
            size = state_bytes(estimator, accumulator.n_features, len(accumulator.labels) or 1, accumulator.table)
            return size + estimator.solve_bytes() <= CHEAP_BYTES
        spent = self._solving_spent + seconds
        return spent <= FREE_SECONDS or SOLVING_SHARE * spent <= time.monotonic() - self._started

    def _add(self, part: _Part) -> None:
        parts = [*self._parts, part]
        rows, size = sum(p.block.rows for p in parts), sum(p.block.nbytes for p in parts)
        while len(parts) > 1 and (rows > MOST_ROWS or size > MOST_BYTES):
            oldest = parts.pop(0)
            rows, size = rows - oldest.block.rows, size - oldest.block.nbytes
            self._forget(oldest.position)
        self._parts = tuple(parts)

    def _remove(self, removal: Removal) -> None:
        parts = []
        for part in self._parts:
            if part.position in removal:
                removed = removal[part.position]
                stays = np.zeros(len(part.numbers), bool) if removed is None else ~np.isin(part.numbers, removed)
                part = part.take(stays)
                self._forget(part.position)
            parts += [part] if part.block.rows else []
        self._parts = tuple(parts)

    def _forget(self, position: int) -> None:
        for _, projected in self._projected.values():
            projected.pop(position, None)


def _score(parts: Sequence[_Part], targets: np.ndarray, key: int | str) -> float:
    """Return the score of a model or a baseline.

    It is the share of right labels, or R² averaged over the targets that vary (0 if none does).
    """
    errors = np.concatenate([part.errors[key] for part in parts]).mean(axis=0)
    if targets.ndim == 1:
        return round(1 - float(errors), 4)
    variances = targets.var(axis=0)
    varies = variances > 0
    return round(float((1 - errors[varies] / variances[varies]).mean()), 4) if varies.any() else 0.0


def _predict_from_means(Z: np.ndarray, targets: np.ndarray, X: np.ndarray, labels: int) -> np.ndarray | None:
    """Predict the targets of projected rows X.

    Z, targets: projected rows with known targets.
    labels: number of labels.

    Returns None if least squares would have more coefficients than half the known rows.
    """
    if targets.ndim == 1:
        return nearest_mean(X, means_by_class(Z, targets, labels))
    if 2 * (Z.shape[1] + 1) > len(Z):
        return None

    # Imported here because streams without such targets do not need it.
    from sklearn.linear_model import LinearRegression

    return np.asarray(LinearRegression().fit(Z, targets).predict(X))


def _evenly_spread(numbers: np.ndarray) -> np.ndarray:
    """Return at most ROWS_AT_ONCE of the numbers, evenly spread."""
    at = np.linspace(0, len(numbers) - 1, min(ROWS_AT_ONCE, len(numbers)))
    return numbers[at.astype(np.int64)]


def _rows_with_target(y: Targets) -> np.ndarray:
    """Return the numbers of the rows that have a target: a label, or numbers."""
    there = np.ones(y.rows, bool) if y.present is None else y.present
    if y.values is None:
        there = there & (y.codes >= 0 if y.indptr is None else np.diff(y.indptr) > 0)
    return np.flatnonzero(there)

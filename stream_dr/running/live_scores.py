"""Live scores: how well models predict targets before learning them.

Before the models learn an event, some of its rows are tested. Each model's published projection
projects these rows, and their targets are predicted from the projected rows of earlier tests:

- A label is predicted by the nearest class mean. If a row has several labels, the predicted label
  is right if it is one of them.
- Numbers are predicted by linear least squares.

Two baselines need no model: they predict the previous row's target, and the most frequent label.

An event is tested once, in the order of the log. A model that learns an event after other models
were tested on it is not tested on that event, because the rows would then predict themselves.

Unlearned rows are removed from the scores. Testing does not change what models learn or publish.
One thread runs the tests. Any thread may read the scores.

The newest MAX_TESTED_ROWS tested rows are held in memory, with at most MAX_TESTED_BYTES bytes.
After UNLIMITED_SECONDS seconds of testing, tests may take at most a fraction of the time, which is
1 divided by `TestThenTrain.share`. Events that arrive too fast for this limit are not tested.
"""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label, Targets
from stream_dr.directory.draft import Removal
from stream_dr.directory.history import mask_of_numbers
from stream_dr.errors import StreamDRError
from stream_dr.evaluation.scores import standard_error, weakness
from stream_dr.log.event import remaining_row_numbers
from stream_dr.models.model import Model
from stream_dr.projection import Projection
from stream_dr.running.advance import ParsedEvent
from stream_dr.solve.neighbours import means_by_class, nearest_mean
from stream_dr.statistics.protocol import State

log = logging.getLogger("stream_dr.test_then_train")

MAX_TESTED_ROWS = 2_000
"""Maximum number of tested rows that are held in memory. Scores are computed from these rows."""

MAX_ROWS_PER_EVENT = 500
"""Maximum number of rows of one event that are tested."""

MAX_TESTED_BYTES = 16 << 20
"""Maximum number of bytes of the tested rows that are held in memory."""

UNLIMITED_SECONDS = 0.5
"""Number of seconds of testing that are allowed before the time of the tests is limited.

Without these seconds, models would not be tested in short runs.
"""

SOLVING_TIME_DIVISOR = 10
"""Divisor of the time that bounds the solving of models for the tests.

With 10, at most a tenth of the time is spent on solving models for the tests.
"""

MAX_SOLVED_STATE_BYTES = 16 << 20
"""Maximum number of bytes of a model's state if the model is to be solved for the tests.

Solving takes an unknown time before the model was solved once, so its size is limited instead.
"""

MIN_RELIABLE_ROWS = 200
"""Number of tested rows from which a model's scores are reliable.

Fewer tested rows have two effects:

- The scores of an earlier process are returned if there are any.
- The other models are also compared on rows on which this model was not tested.
"""

MIN_ROWS_TO_SPLIT = 40
"""Minimum number of rows with a target for which the first event is split into two halves.

Copies of the models learn one half, and are tested on the other half.
"""

CURVE_GROWTH = 1.25
"""Factor by which the number of learned rows grows between two points of a learning curve."""

MAX_CONFUSION_LABELS = 12
"""Maximum number of labels in a confusion matrix. The most frequent labels are shown."""

# Names of the baselines, which predict the previous row's target and the most frequent label.
PREVIOUS = "previous"
MOST_FREQUENT = "most_frequent"


class _TestedRows(NamedTuple):
    """Tested rows of one event, with their targets and predictions.

    The targets are labels, or q numbers for each row.

    position: position of the event in the log.
    numbers: (rows,) numbers of the tested rows within the event as it was appended.
    block: the tested rows.
    targets: (rows,) code of each row's first label, or (rows, q) numeric targets.
    errors: errors of the predictions, by model id or name of a baseline. For labels, an array
        (rows,) that is True or 1.0 if the prediction is wrong. For numbers, squared errors
        (rows, q).
    predicted: predictions by model id. Each is an array (rows,) of label codes, or (rows, q) of
        numbers.
    """

    position: int
    numbers: np.ndarray
    block: Block
    targets: np.ndarray
    errors: dict[int | str, np.ndarray]
    predicted: dict[int, np.ndarray]

    @property
    def key(self) -> tuple[int, int]:
        """Position and first row number, which differs between the halves of a first event."""
        return self.position, int(self.numbers[0])


class TestThenTrain:
    """Tests live models on rows before the models learn them.

    earlier_scores: last scores of an earlier process, by model id.
    solve_for_tests: True to solve models for the tests. A replay needs this, because it publishes
        models only at its end. A model is solved each time its number of rows has doubled.

    If `solve_for_tests` is True, the first event is split. A copy of each model learns a random
    half of the event's rows, and is tested on the other half.
    """

    # This attribute prevents pytest from collecting the class.
    __test__ = False

    # At most 1 / share of the time is spent on tests. If share is 0, every event is tested.
    share = 50

    def __init__(self, earlier_scores: Mapping[int, JsonDict] | None = None, solve_for_tests: bool = False) -> None:
        self._earlier = earlier_scores or {}
        self._solves = solve_for_tests
        self._started = time.monotonic()
        self._spent = 0.0
        self._solving_spent = 0.0
        self._next_test = 0.0
        self._parts: tuple[_TestedRows, ...] = ()
        self._labels: dict[Label, int] = {}
        # Target of the last row of the previous event: (1,) label code, or (1, q) numbers.
        self._previous: np.ndarray | None = None
        self._tested_at = 0.0
        self._curves: dict[int, list[tuple[int, float]]] = {}
        # Maps a model's id to the last time that it was solved for tests.
        # The values are rows learned, seconds to solve, and the projection.
        self._solved: dict[int, tuple[int, float, Projection | None]] = {}
        # Maps a model's id to its projection's number and the projected rows by key.
        self._projected: dict[int, tuple[int, dict[tuple[int, int], np.ndarray]]] = {}

    def test(self, models: Sequence[Model], events: Sequence[ParsedEvent]) -> None:
        """Test models on events that they have not learned.

        Events up to the last tested one are not tested again. The rows that an unlearn event names
        are removed from the tested rows. If a test raises an error, the error is logged.
        """
        for event in events:
            is_new = not self._parts or event.position > self._parts[-1].position
            if event.removal is not None:
                self._remove_unlearned_rows(event.removal)
            elif is_new and event.block is not None and isinstance(event.block.y, Targets):
                started = time.monotonic()
                try:
                    self._test_event(models, event, event.block, started >= self._next_test)
                except Exception:
                    log.exception("the rows at position %d were not tested", event.position)

                # Limit the share of the time that is spent on tests.
                seconds = time.monotonic() - started
                self._spent += seconds
                if self._spent > UNLIMITED_SECONDS:
                    self._next_test = max(self._next_test, started + self.share * seconds)

    def scores(self, model: Model) -> JsonDict:
        """Return a model's scores on the newest tested rows.

        accuracy: share of the rows whose label was predicted correctly. Only for labels.
        r2: R², averaged over the targets. Only for numeric targets.
        error: standard error of the accuracy. None for numeric targets.
        baseline: accuracy or R² of predicting the previous row's target.
        most_frequent: accuracy of predicting the most frequent label. None for numeric targets.
        weakness: "no better than the most frequent label (62.4 %)", or "". Only for labels.
        tested: number of tested rows.
        tested_at: time of the last test, in seconds since 1970.
        curve: list of [number of learned rows, score], in order of time.
        confusion: dict of a confusion matrix. None if rows have several labels or numeric targets.
            "labels" lists the c most frequent labels. "counts" (c, c) has the number of rows for
            each true label (row) and predicted label (column). "rows" (c,) has the number of rows
            of each true label.

        The scores of several models can be compared, because they are computed from rows on which
        all these models were tested. Until MIN_RELIABLE_ROWS rows are tested, the scores of an
        earlier process are returned if there are any. The dict is empty if the model was not
        tested.
        """
        parts = self._tested_rows_for_comparison(model)
        earlier = self._earlier.get(model.id)
        tested = sum(len(part.numbers) for part in parts)
        if earlier and tested < MIN_RELIABLE_ROWS:
            return dict(earlier)
        if not tested:
            return {}

        # Score the model and the baselines on the same rows.
        targets = np.concatenate([part.targets for part in parts])
        score = _accuracy_or_r2(parts, targets, model.id)
        previous = _accuracy_or_r2(parts, targets, PREVIOUS)
        measured: JsonDict
        if targets.ndim == 1:
            error = round(standard_error(score, tested), 4)
            frequent = _accuracy_or_r2(parts, targets, MOST_FREQUENT)
            weak = weakness(score, tested, frequent)
            measured = {"accuracy": score, "error": error, "most_frequent": frequent, "weakness": weak}
        else:
            measured = {"r2": score, "error": None, "most_frequent": None}

        # The learning curve of an earlier process is continued.
        curve = [*(earlier or {}).get("curve", ()), *self._curves.get(model.id, ())]
        measured |= {"baseline": previous, "tested": tested, "tested_at": self._tested_at, "curve": curve}
        return measured | {"confusion": self._confusion_matrix(parts, model)}

    def _tested_rows_for_comparison(self, model: Model) -> list[_TestedRows]:
        """Return tested rows on which models can be compared.

        These are the rows of the events on which all models of the newest test were tested. Other
        models with fewer than MIN_RELIABLE_ROWS tested rows are ignored.
        """
        parts = [part for part in self._parts if model.id in part.errors]
        if not parts:
            return []
        tested = {key: sum(len(p.numbers) for p in self._parts if key in p.errors) for key in parts[-1].errors}
        peers = {key for key, rows in tested.items() if rows >= MIN_RELIABLE_ROWS}
        return [part for part in parts if peers <= part.errors.keys()] or parts

    def _confusion_matrix(self, parts: Sequence[_TestedRows], model: Model) -> JsonDict | None:
        """Return a model's confusion matrix, as `scores` describes it.

        Returns None unless the targets have the kind "class" (one label for each row).
        """
        if any(part.block.y.kind != "class" for part in parts):
            return None
        labels = list(self._labels)
        truth = np.concatenate([part.targets for part in parts])
        predicted = np.concatenate([part.predicted[model.id] for part in parts])
        counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
        np.add.at(counts, (truth, predicted), 1)

        # Select the labels with the most rows.
        rows = counts.sum(axis=1)
        most_frequent = np.argsort(-rows, kind="stable")[:MAX_CONFUSION_LABELS]
        frequent = sorted(labels[code] for code in most_frequent if rows[code])
        codes = [self._labels[label] for label in frequent]
        return {"labels": frequent, "counts": counts[np.ix_(codes, codes)].tolist(), "rows": rows[codes].tolist()}

    def _test_event(self, models: Sequence[Model], event: ParsedEvent, block: Block, test_rows: bool) -> None:
        """Test models on one event, and store its last target.

        block: rows of the event.
        test_rows: False to skip the test and only store the target.
        """
        numbers = _numbers_of_labelled_rows(block.y)
        if not len(numbers):
            return
        all_indices = np.arange(len(numbers))
        models = [model for model in models if model.position < event.position]

        # Before the first event of a replay, no model has a projection.
        # Let copies of the models learn one half of the first event, and test the other half.
        is_first = self._solves and not self._parts and not any(model.rows for model in models)
        if test_rows and is_first and len(numbers) >= MIN_ROWS_TO_SPLIT:
            learned = _random_sample(all_indices, (len(numbers) + 1) // 2)
            self._split_new_copies(models, event, block, numbers[learned])
            self._test_rows(models, event, block, numbers, np.setdiff1d(all_indices, learned))
        elif test_rows:
            self._test_rows(models, event, block, numbers, all_indices)
        self._previous = self._target_array(block.y.take(numbers[-1:]))

    def _split_new_copies(
        self, models: Sequence[Model], event: ParsedEvent, block: Block, rows_to_learn: np.ndarray
    ) -> None:
        """Let copies of models learn half of an event's rows.

        The event is the first one of a replay, before which the models have learned nothing. Each
        copy learns the same rows and is solved. The models do not change.

        A test of a model predicts the targets of an event's rows and compares them with the true
        targets. It predicts from the projected rows of earlier tests. The first test has no
        earlier rows, so the rows learned here are stored in their place.

        block: rows of the event.
        rows_to_learn: indices in `block` of the rows to learn.
        """
        half = block.take(rows_to_learn)
        for model in models:
            if self._has_time_to_solve(model, 0.0):
                accumulator = model.estimator.accumulator()
                accumulator.add(model.estimator.block_to_learn(half))
                self._solve_and_store(model, accumulator.freeze(), half.rows)
        chosen = _random_sample(rows_to_learn, MAX_ROWS_PER_EVENT)
        self._append_tested_rows(self._rows_to_test(event, block, chosen))

    def _test_rows(
        self,
        models: Sequence[Model],
        event: ParsedEvent,
        block: Block,
        rows_with_target: np.ndarray,
        testable_indices: np.ndarray,
    ) -> None:
        """Test models on at most MAX_ROWS_PER_EVENT rows of an event.

        block: rows of the event.
        rows_with_target: (n,) indices in `block` of the rows that have a target.
        testable_indices: indices (0 … n − 1) of the entries of `rows_with_target` that may be
            tested.
        """
        solutions = {model.id: self._tested_projection(model) for model in models}
        projections = {id: solution for id, solution in solutions.items() if solution is not None}
        if not projections:
            return

        # Choose the rows to test.
        chosen = _random_sample(testable_indices, MAX_ROWS_PER_EVENT)
        part = self._rows_to_test(event, block, rows_with_target[chosen])
        rows = part.block
        targets = part.targets

        # Predict the targets from the rows of earlier tests. In the first test there are none.
        if self._parts:
            known = np.concatenate([part.targets for part in self._parts])
            for id, (number, projection) in projections.items():
                Z = self._project_tested_rows(id, number, projection)
                predictions = _predict_projected(Z, known, projection.apply(rows.X), len(self._labels))
                if predictions is not None:
                    part.predicted[id] = predictions
                    part.errors[id] = self._prediction_errors(predictions, rows.y, targets)
            previous = self._previous_targets(block.y, rows_with_target, chosen)
            part.errors[PREVIOUS] = self._prediction_errors(previous, rows.y, targets)
            if targets.ndim == 1:
                most_frequent = np.full(len(targets), self._most_frequent_code())
                part.errors[MOST_FREQUENT] = self._prediction_errors(most_frequent, rows.y, targets)

        # Add the rows to the tested rows, also if no prediction was made.
        self._append_tested_rows(part)
        self._tested_at = round(time.time())
        self._extend_curves([model for model in models if model.id in part.errors])

    def _most_frequent_code(self) -> int:
        """Return the code of the label that most tested rows have."""
        y = [part.block.y for part in self._parts]
        counts = Counter(targets.labels[code] for targets in y for code in targets.codes.tolist())
        label, _ = counts.most_common(1)[0]
        return self._labels.setdefault(label, len(self._labels))

    def _rows_to_test(self, event: ParsedEvent, block: Block, chosen_rows: np.ndarray) -> _TestedRows:
        """Return some rows of an event, without predictions.

        block: rows of the event.
        chosen_rows: indices in `block` of the rows to return.
        """
        # Unlearn events name rows by their original numbers, also if some were erased meanwhile.
        numbers = remaining_row_numbers(block.rows, event.gone)[chosen_rows]
        rows = block.take(chosen_rows)
        return _TestedRows(event.position, numbers, rows, self._target_array(rows.y), {}, {})

    def _previous_targets(self, y: Targets, rows_with_target: np.ndarray, tested_indices: np.ndarray) -> np.ndarray:
        """Return the target of the row before each tested row.

        These targets are the predictions of a baseline. Rows without a target are skipped.

        y: targets of all rows of the event.
        rows_with_target: (n,) row numbers of the rows that have a target.
        tested_indices: indices (0 … n − 1) of the entries of `rows_with_target` that are tested.
        """
        before = self._target_array(y.take(rows_with_target[tested_indices[tested_indices > 0] - 1]))
        if tested_indices[0] > 0:
            return before
        # The row before an event's first row is the last row of the previous event.
        # For the first event, the previous target is −1, the code of no label.
        first = np.full_like(before, -1, shape=(1, *before.shape[1:])) if self._previous is None else self._previous
        return np.concatenate([first, before])

    def _target_array(self, y: Targets) -> np.ndarray:
        """Return targets as an array of label codes or numbers.

        For labels (rows,), the code of each row's first label. For q numeric targets, (rows, q).
        """
        if y.values is not None:
            return y.values
        codes = y.codes if y.indptr is None else y.codes[y.indptr[:-1]]
        common_codes = [self._labels.setdefault(y.labels[c], len(self._labels)) for c in codes.tolist()]
        return np.array(common_codes, dtype=np.int64)

    def _prediction_errors(self, predicted: np.ndarray, y: Targets, actual: np.ndarray) -> np.ndarray:
        """Return the errors of predictions.

        For labels, an array (rows,) of bool that is True if the predicted label is none of the
        row's labels. For q numeric targets, squared errors (rows, q).

        y: targets of the rows.
        actual: array of label codes or of numbers that `_target_array` returns for
            `y`.
        """
        if y.values is not None:
            return np.asarray(np.square(predicted - actual))
        if y.indptr is None:
            return np.asarray(predicted != actual)
        labels = [*self._labels, None]
        return np.array([labels[c] not in row for c, row in zip(predicted.tolist(), y.targets_by_row(), strict=True)])

    def _project_tested_rows(self, model_id: int, projection_number: int, projection: Projection) -> np.ndarray:
        """Return all tested rows in memory, projected (rows, components).

        model_id: id of the model.
        projection_number: number of the projection. Rows that the same projection has already
            projected are not projected again.
        """
        known, earlier = self._projected.get(model_id, (0, {}))
        if projection_number != known:
            earlier = {}
        projected = {part.key: earlier[part.key] for part in self._parts if part.key in earlier}
        for part in self._parts:
            if part.key not in projected:
                projected[part.key] = projection.apply(part.block.X)
        self._projected[model_id] = projection_number, projected
        return np.vstack([projected[part.key] for part in self._parts])

    def _extend_curves(self, models: Sequence[Model]) -> None:
        """Add points to learning curves if enough rows were learned."""
        for model in models:
            curve = self._curves.setdefault(model.id, [])
            learned = max(model.rows, self._solved.get(model.id, (0,))[0])
            if not curve or learned >= CURVE_GROWTH * curve[-1][0]:
                parts = self._tested_rows_for_comparison(model)
                score = _accuracy_or_r2(parts, np.concatenate([part.targets for part in parts]), model.id)
                curve.append((learned, score))

    def _tested_projection(self, model: Model) -> tuple[int, Projection] | None:
        """Return the number and projection with which a model is tested.

        Different projections of a model have different numbers. Returns None if the model has no
        projection yet.
        """
        if not self._solves:
            return None if model.published is None else (model.published.version, model.published.projection)
        rows, seconds, _ = self._solved.get(model.id, (0, 0.0, None))
        if model.rows >= max(1, 2 * rows) and self._has_time_to_solve(model, seconds):
            self._solve_and_store(model, model.freeze().state, model.rows)
        rows, _, projection = self._solved.get(model.id, (0, 0.0, None))
        return None if projection is None else (rows, projection)

    def _solve_and_store(self, model: Model, state: State, n_rows: int) -> None:
        """Solve a model's state, and store the projection for tests.

        n_rows: number of rows that the state includes.
        """
        started = time.monotonic()
        projection = None
        # Solving raises an error if there are too few rows or no row has a target.
        with suppress(StreamDRError):
            projection = model.estimator.solve(state)
        seconds = time.monotonic() - started
        self._solving_spent += seconds
        self._solved[model.id] = n_rows, seconds, projection

    def _has_time_to_solve(self, model: Model, last_seconds: float) -> bool:
        """Return True if there is time to solve a model.

        If the model was never solved, the result depends on the size of its state instead.

        last_seconds: number of seconds that the last solving took, 0 if the model was never
            solved.
        """
        if not last_seconds:
            return model.state_bytes + model.estimator.solve_bytes() <= MAX_SOLVED_STATE_BYTES
        spent = self._solving_spent + last_seconds
        return spent <= UNLIMITED_SECONDS or SOLVING_TIME_DIVISOR * spent <= time.monotonic() - self._started

    def _append_tested_rows(self, part: _TestedRows) -> None:
        """Add the tested rows of an event.

        The oldest tested rows are dropped if there are too many.
        """
        parts = [*self._parts, part]
        rows = sum(p.block.rows for p in parts)
        size = sum(p.block.nbytes for p in parts)
        while len(parts) > 1 and (rows > MAX_TESTED_ROWS or size > MAX_TESTED_BYTES):
            oldest = parts.pop(0)
            rows = rows - oldest.block.rows
            size = size - oldest.block.nbytes
        self._parts = tuple(parts)

    def _remove_unlearned_rows(self, removal: Removal) -> None:
        """Remove unlearned rows from the tested rows."""
        parts = []
        for part in self._parts:
            if part.position in removal:
                stays = ~mask_of_numbers(part.numbers, removal[part.position])
                part = part._replace(
                    numbers=part.numbers[stays],
                    block=part.block.take(np.flatnonzero(stays)),
                    targets=part.targets[stays],
                    errors={key: values[stays] for key, values in part.errors.items()},
                    predicted={id: codes[stays] for id, codes in part.predicted.items()},
                )
            parts += [part] if part.block.rows else []
        self._parts = tuple(parts)
        self._projected.clear()


def _accuracy_or_r2(parts: Sequence[_TestedRows], targets: np.ndarray, model_id_or_baseline: int | str) -> float:
    """Return a model's or baseline's accuracy for labels, or R² for numbers.

    R² is averaged over the numeric targets that are not constant. R² is 0 if all targets are
    constant.

    targets: (rows,) label codes or (rows, q) numbers of all rows in `parts`.
    model_id_or_baseline: id of the model or name of the baseline.
    """
    errors = np.concatenate([part.errors[model_id_or_baseline] for part in parts]).mean(axis=0)
    if targets.ndim == 1:
        return round(1 - float(errors), 4)
    variances = targets.var(axis=0)
    varies = variances > 0
    return round(float((1 - errors[varies] / variances[varies]).mean()), 4) if varies.any() else 0.0


def _predict_projected(
    Z_known: np.ndarray, known_targets: np.ndarray, Z_new: np.ndarray, n_labels: int
) -> np.ndarray | None:
    """Predict the targets of projected rows.

    Labels are predicted by the nearest class mean, and numbers by least squares.

    The targets of n rows are known. They are labels, or q numbers for each row.

    Z_known: (n, components) projected rows whose targets are known.
    known_targets: (n,) label codes, or (n, q) numbers.
    Z_new: (rows, components) projected rows whose targets are predicted.
    n_labels: number of different labels.

    Returns None if least squares has fewer than two known rows for each coefficient.
    """
    if known_targets.ndim == 1:
        return nearest_mean(Z_new, means_by_class(Z_known, known_targets, n_labels))
    if 2 * (Z_known.shape[1] + 1) > len(Z_known):
        return None

    # scikit-learn is imported here because the import is slow and rarely needed.
    from sklearn.linear_model import LinearRegression

    return np.asarray(LinearRegression().fit(Z_known, known_targets).predict(Z_new))


def _random_sample(values: np.ndarray, size: int) -> np.ndarray:
    """Return at most `size` random entries of an array, in order.

    The seed is fixed.
    """
    # Evenly spaced entries would all have one label if labels take turns.
    chosen = np.random.default_rng(0).permutation(len(values))[:size]
    return values[np.sort(chosen)]


def _numbers_of_labelled_rows(y: Targets) -> np.ndarray:
    """Return the numbers of the rows that have a target."""
    there = np.ones(y.rows, bool) if y.present is None else y.present
    if y.values is None:
        there = there & (y.codes >= 0 if y.indptr is None else np.diff(y.indptr) > 0)
    return np.flatnonzero(there)

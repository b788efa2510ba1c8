"""Test-then-train evaluation: each batch is classified first, then learned.

All models learn every batch. A uniform sample of rows is stored in full. Each time the rows have
grown by the factor `solve_growth`, every model is solved, the sample is projected, and the probes
are fitted on it. These probes classify until the next time. Class means are exact (of all rows) if
a projection is linear. The baseline `full` classifies the rows themselves.

A batch is tested only with what came before it, so the figures are those of unseen rows. Probes
are fitted whenever the projection is solved, so the coordinates of two projections are never
mixed.

Memory: the models' states, the sample, and O(d k) for the class means of d features and k labels.
Time in addition to learning: the probes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.errors import InvalidParameter, TargetKindMismatch, TargetsRequired
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.evaluation.probes import Probe, Sample, make_probe
from stream_dr.evaluation.row_sample import RowSample
from stream_dr.evaluation.scores import ClassScores, LabelScores
from stream_dr.projection import Projection
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.raw_rows import refuse_table
from stream_dr.rows.source import Source
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import labelled_rows, refuse_kind

PROBES = ("mean", "knn", "linear")
"""Names of the probes."""

FULL = "full"
"""Name of the baseline that classifies the rows themselves."""

NO_CHANGE = "no change"
"""Name of the baseline that predicts for each row the label of the row before it."""

_NO_CHANGE_PROBE = "previous"


class EvaluateSettings(NamedTuple):
    """Settings of an evaluation.

    Attributes
    ----------
    first : int
        Number of rows learned before the first solve.
    solve_growth : float
        Models are solved again when the rows have grown by this factor.
    reservoir : int
        Number of rows in the sample.
    neighbours : int
        Number of neighbours of the probe "knn".
    probes : tuple of str
        Names of the probes.
    full : bool
        If True, the rows themselves are classified too.
    seed : int
        Seed of the sample.
    baseline : bool
        If True, there is a line NO_CHANGE with the figures `unchanged` and `by_chance`, about the
        order of labels. It takes 4 bytes for each row of one label.
    """

    first: int = 500
    solve_growth: float = 1.2
    reservoir: int = 2_000
    neighbours: int = 5
    probes: tuple[str, ...] = PROBES
    full: bool = False
    seed: int = 0
    baseline: bool = False

    def check(self) -> None:
        """Raise InvalidParameter if a probe is unknown."""
        if unknown := [probe for probe in self.probes if probe not in PROBES]:
            raise InvalidParameter(f"there is no probe {', '.join(unknown)}; probes are {', '.join(PROBES)}.")


class Point(NamedTuple):
    """Accuracy of one model and probe on one batch.

    Attributes
    ----------
    rows : int
        Number of rows learned before the batch.
    model, probe : str
    tested : int
        Number of rows in the batch.
    accuracy : float
        Accuracy on the batch, defined as in Score.
    """

    rows: int
    model: str
    probe: str
    tested: int
    accuracy: float


class Score(NamedTuple):
    """Figures of one model and probe.

    Attributes
    ----------
    model, probe : str
    components : int
        Number of components of the last projection.
    figures : dict
        accuracy, micro_f1, macro_f1 and rows, the number of rows tested. For several labels a row,
        auc too.
    """

    model: str
    probe: str
    components: int
    figures: dict[str, float]


def evaluate(
    source: Source,
    models: Mapping[str, Estimator | None],
    settings: EvaluateSettings = EvaluateSettings(),
    progress: Callable[[int], None] | None = None,
    test: Source | None = None,
    curve: Callable[[Point], object] | None = None,
) -> list[Score]:
    """Return the scores of every model and probe.

    Rows without a target are left out. Raises TargetsRequired if no row has a target,
    TargetKindMismatch for continuous targets or a kind that a model does not learn from,
    InvalidParameter, and what learning and solving raise.

    Parameters
    ----------
    source : Source
        Rows to test and learn.
    models : mapping
        Unfitted estimators by name.
    settings : EvaluateSettings
    progress : callable or None
        Called after each batch with the number of rows learned.
    test : Source or None
        Rows that all models are tested with, after the source has been learned. The rows of the
        source are then not tested.
    curve : callable or None
        Called for each batch, model and probe that was tested.
    """
    if settings.full:
        models = {**models, FULL: None}
    settings.check()
    if not models:
        raise InvalidParameter("at least one model is needed; none was given.")

    evaluation = _Evaluation(models, settings, curve or (lambda point: None))
    for block in _labelled_batches(source):
        evaluation.admit(block)
        if test is None:
            evaluation.test(block)
        evaluation.train(block)
        if progress is not None:
            progress(evaluation.rows)
    if evaluation.rows == 0:
        raise TargetsRequired("no row of the source has a target; test-then-train needs labelled rows.")

    if test is not None:
        evaluation.solve()
        for block in _labelled_batches(test):
            evaluation.admit(block)
            evaluation.test(block)
    return evaluation.scores()


def _labelled_batches(source: Source) -> Iterator[Block]:
    """Return the rows with targets, in batches that are not empty."""
    blocks = (labelled_rows(block)[0] for _, block in source.events())
    return (block for block in blocks if block.rows)


class Shuffled:
    """Rows of another source, in random order.

    The batches are small pieces of the source's. All rows are held in memory.
    """

    def __init__(self, source: Source, seed: int) -> None:
        self._source = source
        self._seed = seed

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield (number, Block) of pieces for after < number ≤ until."""
        rng = np.random.default_rng(self._seed)
        blocks = list(_labelled_batches(self._source))

        # Each row is drawn into one turn. A turn has a piece of every batch, in random order.
        turns = max(64, len(blocks))
        turn_of_row = [rng.integers(0, turns, block.rows) for block in blocks]
        order = ((i, turn) for turn in range(turns) for i in rng.permutation(len(blocks)).tolist())
        pieces = ((i, rng.permutation(np.flatnonzero(turn_of_row[i] == turn))) for i, turn in order)

        for number, (i, rows) in enumerate((i, rows) for i, rows in pieces if len(rows)):
            if number > after and (until is None or number <= until):
                yield number, blocks[i].take(rows)


class _Evaluation:
    """State of one evaluation while it goes over the batches.

    A row's truth is the list of its label codes, in the evaluation's own order of labels.
    """

    def __init__(
        self,
        models: Mapping[str, Estimator | None],
        settings: EvaluateSettings,
        curve: Callable[[Point], object],
    ) -> None:
        self._models = models
        self._settings = settings
        self._curve = curve
        self._accumulators = {name: e.accumulator() for name, e in models.items() if e is not None}

        self.rows = 0
        self._kind = ""
        self._labels: dict[Label, int] = {}
        self._moments = MomentAccumulator("indicator", scatter="none")
        self._sample = RowSample(settings.reservoir, settings.seed)
        self._sample_truth: dict[int, list[int]] = {}
        self._next_solve = settings.first

        self._probes: dict[tuple[str, str], Probe] = {}
        self._projections: dict[str, Projection | _Identity] = {}
        self._class_scores: dict[tuple[str, str], ClassScores] = {}
        self._label_scores: dict[tuple[str, str], LabelScores] = {}

        # For the baseline NO_CHANGE.
        self._last_codes: list[int] = []
        self._all_codes: list[np.ndarray] = []

    def test(self, block: Block) -> None:
        """Classify a batch with the probes that exist."""
        if self.rows >= self._next_solve:
            self.solve()

        truth = self._codes(block)
        for name, projection in self._projections.items():
            Z = projection.apply(block.X)
            for probe in self._settings.probes:
                self._count_predictions((name, probe), truth, self._probes[name, probe].predict(Z))
        if self._settings.baseline and self._projections:
            self._count_no_change(truth)

    def solve(self) -> None:
        """Solve every model, fit its probes, and plan the next solve."""
        self._solve_and_fit_probes()
        self._next_solve = max(self.rows + 1, int(self.rows * self._settings.solve_growth))

    def _count_no_change(self, truth: list[list[int]]) -> None:
        """Count the baseline's predictions for a batch."""
        previous = [self._last_codes, *truth[:-1]]
        self._last_codes = truth[-1]
        if self._kind == "class":
            predicted = np.array([codes[0] if codes else 0 for codes in previous], np.int64)
        else:
            predicted = np.where(self._target_array(previous), 1.0, -1.0)
        self._count_predictions((NO_CHANGE, _NO_CHANGE_PROBE), truth, predicted)

    def train(self, block: Block) -> None:
        """Learn a batch."""
        truth = self._codes(block)
        self._sample_truth.update(enumerate(truth, self.rows))
        if self._kind == "class" and self._settings.baseline:
            self._all_codes.append(np.array([codes[0] for codes in truth], np.int32))

        for accumulator in self._accumulators.values():
            accumulator.add(block)
        if not block.table:
            self._moments.add(block)
        self._sample.add(block)
        self.rows += block.rows

    def scores(self) -> list[Score]:
        """Return the figures of every model and probe so far."""
        scores = [
            Score(name, probe, self._component_count(name), self._figures((name, probe)))
            for name in self._models
            for probe in self._settings.probes
        ]
        if self._settings.baseline:
            figures = self._figures((NO_CHANGE, _NO_CHANGE_PROBE)) | self._order_figures()
            scores.append(Score(NO_CHANGE, _NO_CHANGE_PROBE, 0, figures))
        return scores

    def _figures(self, key: tuple[str, str]) -> dict[str, float]:
        """Return the figures of a model and probe, NaN if nothing was tested."""
        if self._kind == "multilabel":
            return self._label_scores.get(key, LabelScores()).figures()
        return self._class_scores.get(key, ClassScores()).figures()

    def _order_figures(self) -> dict[str, float]:
        """Return the figures about the order of labels.

        `unchanged` is the share of all rows, tested or not, with the label of the row before.
        `by_chance` is the share expected in random order.
        """
        codes = np.concatenate(self._all_codes) if self._all_codes else np.zeros(0, np.int64)
        if self._kind != "class" or len(codes) < 2:
            return {}
        shares = np.bincount(codes) / len(codes)
        return {"unchanged": float((codes[1:] == codes[:-1]).mean()), "by_chance": float(shares @ shares)}

    def admit(self, block: Block) -> None:
        """Check a batch's targets and register its labels.

        Raises TargetKindMismatch if the kind differs from before or cannot be evaluated.
        """
        kind = block.y.kind
        if kind == "continuous":
            raise TargetKindMismatch("evaluate classifies; these targets are continuous. Give labelled rows.")
        if self._settings.full:
            refuse_table(block.X)

        if self._kind not in ("", kind):
            raise TargetKindMismatch(f"targets are of kind {kind}; the first rows' were {self._kind}.")
        if self._kind == "":
            for estimator in self._models.values():
                if estimator is not None and estimator.target_kinds and kind not in estimator.target_kinds:
                    refuse_kind(kind, estimator.target_kinds)

        self._kind = kind
        for label in block.y.labels:
            self._labels.setdefault(label, len(self._labels))

    def _codes(self, block: Block) -> list[list[int]]:
        """Return each row's codes, in the evaluation's order of labels."""
        new_codes = np.array([self._labels[label] for label in block.y.labels], np.int64)
        if block.y.indptr is None:
            return new_codes[block.y.codes][:, None].tolist()
        flat = new_codes[block.y.codes].tolist()
        offsets = block.y.indptr.tolist()
        return [flat[offsets[i] : offsets[i + 1]] for i in range(block.rows)]

    def _solve_and_fit_probes(self) -> None:
        """Solve every model and fit its probes on the sample."""
        # The truth of rows that have left the sample is dropped.
        self._sample_truth = {number: self._sample_truth[number] for number in self._sample.numbers().tolist()}
        y = self._target_array(list(self._sample_truth.values()))
        means, others = self._class_means()

        for name, estimator in self._models.items():
            projection: Projection | _Identity
            if estimator is None:
                projection = _Identity(self._sample.n_features)
            else:
                projection = estimator.solve(self._accumulators[name].freeze())
            self._projections[name] = projection

            # The mean of projected rows is the projected mean only if the projection is linear.
            linear = projection.kind in ("linear", "columns")
            sample = Sample(
                self._sample.projected(projection),
                y,
                projection.apply(means) if linear else None,
                projection.apply(others) if linear and self._kind == "multilabel" else None,
                len(self._labels),
            )
            for probe in self._settings.probes:
                self._probes[name, probe] = make_probe(probe, sample, self._settings.neighbours)

    def _class_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the means of the rows with each label, and without it.

        Both are (labels, features). They are in the evaluation's order of labels, NaN for a label
        without such rows.
        """
        moments = self._moments.freeze().centred()
        weights = moments.label_weights
        with np.errstate(invalid="ignore", divide="ignore"):
            weight_with = np.where(weights > 0, 1.0 / weights, np.inf)
            weight_without = np.where(moments.weight > weights, 1.0 / (moments.weight - weights), np.inf)
            means = moments.mean + (moments.cross * weight_with).T
            others = moments.mean - (moments.cross * weight_without).T

        order = np.argsort([self._labels[label] for label in moments.labels])
        return means[order], others[order]

    def _target_array(self, truth: list[list[int]]) -> np.ndarray:
        """Return codes (rows,), or an indicator (rows, labels) bool."""
        if self._kind == "class":
            return np.array([codes[0] for codes in truth], np.int64)
        Y = np.zeros((len(truth), len(self._labels)), bool)
        for row, codes in enumerate(truth):
            Y[row, codes] = True
        return Y

    def _count_predictions(self, key: tuple[str, str], truth: list[list[int]], predicted: np.ndarray) -> None:
        """Count a batch's predictions by a model and probe.

        `predicted` are codes, or scores of the labels known when the probe was fitted.
        """
        y = self._target_array(truth)
        if self._kind == "class":
            correct = y == predicted
            self._class_scores.setdefault(key, ClassScores()).add(y, predicted, len(self._labels))
        else:
            scores = np.full(y.shape, -1.0)
            scores[:, : predicted.shape[1]] = predicted
            correct = (y == (scores > 0)).all(1)
            self._label_scores.setdefault(key, LabelScores()).add(y, scores > 0, scores)

        self._curve(Point(self.rows, *key, len(y), float(correct.mean())))

    def _component_count(self, name: str) -> int:
        projection = self._projections.get(name)
        return 0 if projection is None else projection.n_components


class _Identity(NamedTuple):
    """Projection of the baseline FULL, which returns rows (rows, n_features) as they are.

    Features that appeared after it was made are left out.
    """

    n_features: int
    kind: str = "columns"

    @property
    def n_components(self) -> int:
        return self.n_features

    def apply(self, X: Rows) -> Rows:
        if not sp.issparse(X) or X.shape[1] == self.n_features:
            return X
        X = X[:, : self.n_features]
        return sp.csr_matrix((X.data, X.indices, X.indptr), shape=(X.shape[0], self.n_features))

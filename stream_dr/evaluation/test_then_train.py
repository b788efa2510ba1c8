"""Evaluate: test-then-train. Every batch is first classified with what was learned before it, then learned.

All models learn every batch. A uniform sample of rows is kept in full; each time the rows have grown by `solve_growth`,
every model is solved, the sample projected, and the probes fitted on it; until then they classify. Class means are
exact (of all rows) wherever a projection is linear. The baseline `full` classifies the rows themselves.

Memory: the models' states, the sample, O(d k) class means. Time beside learning: the probes.

Why this way: a batch is tested only with what came before it, so the figures are those of rows never seen; and
classifiers that are fitted when the projection is solved never mix two projections' coordinates. It reads any Source.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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
_FULL = "full"
NO_CHANGE = "no change"
"""The baseline that says of each row what the row before it was."""


class EvaluateSettings(NamedTuple):
    """first: rows learned before the first solve. solve_growth: solve again when rows have grown by this factor.
    reservoir: rows sampled. neighbours: of knn. probes: which. full: also the rows themselves. seed: of the sample.
    baseline: also the line NO_CHANGE, with figures `unchanged` and `by_chance` of the order in which labels come; keeps 4
    bytes a row of one label."""

    first: int = 500
    solve_growth: float = 1.2
    reservoir: int = 2_000
    neighbours: int = 5
    probes: tuple[str, ...] = PROBES
    full: bool = False
    seed: int = 0
    baseline: bool = False

    def check(self) -> None:
        """Raise InvalidParameter for probes that are none."""
        if unknown := [probe for probe in self.probes if probe not in PROBES]:
            raise InvalidParameter(f"there is no probe {', '.join(unknown)}; probes are {', '.join(PROBES)}.")


class Point(NamedTuple):
    """rows: learned before a batch. model, probe: which. tested: rows of the batch. accuracy: on it, as in Score."""

    rows: int
    model: str
    probe: str
    tested: int
    accuracy: float


class Score(NamedTuple):
    """One line of the answer. figures: accuracy, micro_f1, macro_f1, rows tested; auc where rows have several
    labels."""

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
    """Scores of every model and probe over a source's rows that have targets.

    models: name → unfitted estimator. progress(rows) after each batch. test: rows that all are tested with, once the source
    has been learned, instead of its own. curve(point) for each batch, model and probe that was tested. Raises
    TargetsRequired (no row has a target), TargetKindMismatch (continuous targets, or a kind a model does not learn from),
    InvalidParameter, and what learning and solving raise.
    """
    if settings.full:
        models = {**models, _FULL: None}
    settings.check()
    if not models:
        raise InvalidParameter("at least one model is needed; none was given.")
    run = _Run(models, settings, curve or (lambda point: None))
    for block in _labelled(source):
        run.admit(block)
        if test is None:
            run.test(block)
        run.train(block)
        if progress is not None:
            progress(run.rows)
    if run.rows == 0:
        raise TargetsRequired("no row of the source has a target; test-then-train needs labelled rows.")
    if test is not None:
        run.solve()
        for block in _labelled(test):
            run.admit(block)
            run.test(block)
    return run.scores()


def _labelled(source: Source) -> Iterator[Block]:
    blocks = (labelled_rows(given)[0] for _, given in source.events())
    return (block for block in blocks if block.rows)


class Shuffled:
    """A Source's rows in random order, seeded, as small pieces of its batches; holds them all in memory."""

    def __init__(self, source: Source, seed: int) -> None:
        self._source, self._seed = source, seed

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """(number, Block) of pieces of batches, for after < number ≤ until."""
        rng = np.random.default_rng(self._seed)
        blocks = list(_labelled(self._source))
        turns = max(64, len(blocks))  # in each comes a piece of every batch
        places = [rng.integers(0, turns, block.rows) for block in blocks]
        pieces = ((i, k) for k in range(turns) for i in rng.permutation(len(blocks)).tolist())
        taken = ((i, rng.permutation(np.flatnonzero(places[i] == k))) for i, k in pieces)
        for number, (i, rows) in enumerate((i, rows) for i, rows in taken if len(rows)):
            if number > after and (until is None or number <= until):
                yield number, blocks[i].take(rows)


class _Run:
    """One evaluation under way."""

    def __init__(
        self,
        models: Mapping[str, Estimator | None],
        settings: EvaluateSettings,
        curve: Callable[[Point], object],
    ) -> None:
        self.rows, self._kind, self._settings, self._curve = 0, "", settings, curve
        self._before: list[int] | None = None
        self._order: list[np.ndarray] = []
        self._models, self._learners = models, {n: e.accumulator() for n, e in models.items() if e is not None}
        self._labels: dict[Label, int] = {}
        self._moments = MomentAccumulator("indicator", scatter="none")
        self._sample = RowSample(settings.reservoir, settings.seed)
        self._truth: dict[int, list[int]] = {}
        self._next = settings.first
        self._probes: dict[tuple[str, str], Probe] = {}
        self._projections: dict[str, Projection | _Rows] = {}
        self._scores: dict[tuple[str, str], Any] = {}

    def test(self, block: Block) -> None:
        """Classify a batch with the probes there are."""
        if self.rows >= self._next:
            self.solve()
        truth = self._codes(block)
        for name, projection in self._projections.items():
            Z = projection.apply(block.X)
            for probe in self._settings.probes:
                self._count((name, probe), truth, self._probes[name, probe].predict(Z))
        if self._settings.baseline and self._projections:
            self._count_no_change(truth)

    def solve(self) -> None:
        """Solve every model and fit its probes on the sample; the next time when the rows have grown."""
        self._fit()
        self._next = max(self.rows + 1, int(self.rows * self._settings.solve_growth))

    def _count_no_change(self, truth: list[list[int]]) -> None:
        before = [self._before or [], *truth[:-1]]
        self._before = truth[-1]
        if self._kind == "class":
            found = np.array([codes[0] if codes else 0 for codes in before], np.int64)
        else:
            found = np.where(self._targets(before), 1.0, -1.0)
        self._count((NO_CHANGE, "previous"), truth, found)

    def train(self, block: Block) -> None:
        """Learn a batch."""
        truth = self._codes(block)
        self._truth.update(enumerate(truth, self.rows))
        if self._kind == "class" and self._settings.baseline:
            self._order.append(np.array([codes[0] for codes in truth], np.int32))
        for learner in self._learners.values():
            learner.add(block)
        if not block.table:
            self._moments.add(block)
        self._sample.add(block)
        self.rows += block.rows

    def scores(self) -> list[Score]:
        """Every model's and probe's figures so far."""
        none = LabelScores() if self._kind == "multilabel" else ClassScores()
        found = [
            Score(name, probe, self._components(name), self._scores.get((name, probe), none).figures())
            for name in self._models
            for probe in self._settings.probes
        ]
        if self._settings.baseline:
            figures = self._scores.get((NO_CHANGE, "previous"), none).figures()
            found.append(Score(NO_CHANGE, "previous", 0, figures | self._runs()))
        return found

    def _runs(self) -> dict[str, float]:
        """unchanged: share of all rows, tested or not, with the label of the row before; by_chance: in random order."""
        codes = np.concatenate(self._order) if self._order else np.zeros(0, np.int64)
        if self._kind != "class" or len(codes) < 2:
            return {}
        shares = np.bincount(codes) / len(codes)
        return {"unchanged": float((codes[1:] == codes[:-1]).mean()), "by_chance": float(shares @ shares)}

    def admit(self, block: Block) -> None:
        """Meet a batch's labels. Raises TargetKindMismatch for another kind than before."""
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
        """Each row's codes in the run's own order of labels."""
        own = np.array([self._labels[label] for label in block.y.labels], np.int64)
        if block.y.indptr is None:
            return own[block.y.codes][:, None].tolist()
        flat, at = own[block.y.codes].tolist(), block.y.indptr.tolist()
        return [flat[at[i] : at[i + 1]] for i in range(block.rows)]

    def _fit(self) -> None:
        """Solve every model and fit its probes on the sample."""
        numbers = self._sample.numbers().tolist()
        self._truth = {number: self._truth[number] for number in numbers}
        y = self._targets(list(self._truth.values()))
        means, others = self._class_means()
        for name, estimator in self._models.items():
            projection = (
                _Rows(self._sample.n_features) if estimator is None else estimator.solve(self._learners[name].freeze())
            )
            self._projections[name] = projection
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
        """(labels, d) means of the rows with each label, and of those without it, in the run's order; NaN where none is."""
        c = self._moments.freeze().centred()
        with np.errstate(invalid="ignore", divide="ignore"):
            there = np.where(c.label_weights > 0, 1.0 / c.label_weights, np.inf)
            absent = np.where(c.weight > c.label_weights, 1.0 / (c.weight - c.label_weights), np.inf)
            means, others = c.mean + (c.cross * there).T, c.mean - (c.cross * absent).T
        own = [self._labels[label] for label in c.labels]
        order = np.argsort(own)
        return means[order], others[order]

    def _targets(self, truth: list[list[int]]) -> np.ndarray:
        """Codes (rows,), or an indicator (rows, labels) bool."""
        if self._kind == "class":
            return np.array([codes[0] for codes in truth], np.int64)
        Y = np.zeros((len(truth), len(self._labels)), bool)
        for row, codes in enumerate(truth):
            Y[row, codes] = True
        return Y

    def _count(self, key: tuple[str, str], truth: list[list[int]], found: np.ndarray) -> None:
        y = self._targets(truth)
        if self._kind == "class":
            right = y == found
            self._scores.setdefault(key, ClassScores()).add(y, found, len(self._labels))
        else:
            scores = np.full(y.shape, -1.0)
            scores[:, : found.shape[1]] = found
            right = (y == (scores > 0)).all(1)
            self._scores.setdefault(key, LabelScores()).add(y, scores > 0, scores)
        self._curve(Point(self.rows, *key, len(y), float(right.mean())))

    def _components(self, name: str) -> int:
        projection = self._projections.get(name)
        return 0 if projection is None else projection.n_components


class _Rows(NamedTuple):
    """The baseline's projection: rows (rows, n_features) as they are, features not seen when it was made left out."""

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

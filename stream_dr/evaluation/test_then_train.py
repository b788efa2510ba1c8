"""Evaluate: test-then-train. Every batch is first classified with what was learned before it, then learned.

All models learn every batch. A uniform sample of rows is kept in full; each time the rows have grown by `solve_growth`,
every model is solved, the sample projected, and the probes fitted on it; until then they classify. Class means are
exact (of all rows) wherever a projection is linear. The baseline `full` classifies the rows themselves.

Memory: the models' states, the sample, O(d k) class means. Time beside learning: the probes.

Why this way: a batch is tested only with what came before it, so the figures are those of rows never seen; and
classifiers that are fitted when the projection is solved never mix two projections' coordinates. It reads any Source.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from stream_dr.block import Block, Rows
from stream_dr.errors import InvalidParameter, TargetKindMismatch, TargetsRequired
from stream_dr.estimators.estimator import Estimator
from stream_dr.evaluation.probes import Probe, Sample, make_probe
from stream_dr.evaluation.scores import ClassScores, LabelScores
from stream_dr.label_codes import Label
from stream_dr.projection import Projection
from stream_dr.source import Source
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.reservoir import ReservoirAccumulator
from stream_dr.targets import labelled_rows, refuse_kind

PROBES = ("mean", "knn", "linear")
_FULL = "full"


class EvaluateSettings(NamedTuple):
    """first: rows learned before the first solve. solve_growth: solve again when rows have grown by this factor.
    reservoir: rows sampled. neighbours: of knn. probes: which. full: also the rows themselves. seed: of the sample."""

    first: int = 500
    solve_growth: float = 1.2
    reservoir: int = 2_000
    neighbours: int = 5
    probes: tuple[str, ...] = PROBES
    full: bool = False
    seed: int = 0


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
) -> list[Score]:
    """Scores of every model and probe over a source's rows that have targets.

    models: name → unfitted estimator. progress(rows) after each batch. Raises TargetsRequired (no row has a target),
    TargetKindMismatch (continuous targets, or a kind a model does not learn from), InvalidParameter, and what learning
    and solving raise.
    """
    if settings.full:
        models = {**models, _FULL: None}
    unknown = [p for p in settings.probes if p not in PROBES]
    if unknown or not models:
        raise InvalidParameter(f"probes are {', '.join(PROBES)} and at least one model is needed; given {unknown}.")
    run = _Run(models, settings)
    for _, given in source.events():
        block = labelled_rows(given)[0]
        if block.rows == 0:
            continue
        run.test(block)
        run.train(block)
        if progress is not None:
            progress(run.rows)
    if run.rows == 0:
        raise TargetsRequired("no row of the source has a target; test-then-train needs labelled rows.")
    return run.scores()


class _Run:
    """One evaluation under way."""

    def __init__(self, models: Mapping[str, Estimator | None], settings: EvaluateSettings) -> None:
        self.rows, self._kind, self._settings = 0, "", settings
        self._models, self._learners = models, {n: e.accumulator() for n, e in models.items() if e is not None}
        self._labels: dict[Label, int] = {}
        self._moments = MomentAccumulator("indicator", scatter="none")
        self._sample = ReservoirAccumulator(settings.reservoir, settings.seed)
        self._truth: dict[int, list[int]] = {}
        self._next = settings.first
        self._probes: dict[tuple[str, str], Probe] = {}
        self._projections: dict[str, Projection | _Rows] = {}
        self._scores: dict[tuple[str, str], Any] = {}

    def test(self, block: Block) -> None:
        """Classify a batch with the probes there are."""
        self._admit(block)
        if self.rows >= self._next:
            self._fit()
            self._next = max(self.rows + 1, int(self.rows * self._settings.solve_growth))
        truth = self._codes(block)
        for name, projection in self._projections.items():
            Z = projection.apply(block.X)
            for probe in self._settings.probes:
                self._count((name, probe), truth, self._probes[name, probe].predict(Z))

    def train(self, block: Block) -> None:
        """Learn a batch."""
        for number, codes in enumerate(self._codes(block), self.rows):
            self._truth[number] = codes
        for learner in self._learners.values():
            learner.add(block)
        self._moments.add(block)
        self._sample.add(block._replace(weights=None))
        self.rows += block.rows

    def scores(self) -> list[Score]:
        """Every model's and probe's figures so far."""
        none = LabelScores() if self._kind == "multilabel" else ClassScores()
        return [
            Score(name, probe, self._components(name), self._scores.get((name, probe), none).figures())
            for name in self._models
            for probe in self._settings.probes
        ]

    def _admit(self, block: Block) -> None:
        kind = block.y.kind
        if kind == "continuous":
            raise TargetKindMismatch("evaluate classifies; these targets are continuous. Give labelled rows.")
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
        kept = self._sample.freeze()
        self._truth = {int(n): self._truth[int(n)] for n in kept.numbers}
        y = self._targets([self._truth[int(n)] for n in kept.numbers])
        means, others = self._class_means()
        for name, estimator in self._models.items():
            projection = _Rows(kept.n_features) if estimator is None else estimator.solve(self._learners[name].freeze())
            self._projections[name] = projection
            linear = projection.kind in ("linear", "columns")
            sample = Sample(
                projection.apply(kept.kept),
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
            self._scores.setdefault(key, ClassScores()).add(y, found, len(self._labels))
            return
        scores = np.full(y.shape, -1.0)
        scores[:, : found.shape[1]] = found
        self._scores.setdefault(key, LabelScores()).add(y, scores > 0, scores)

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

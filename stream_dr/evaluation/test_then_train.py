"""Test-then-train evaluation: each batch is first classified and then learned.

A probe is a small classifier of projected rows. Each time the number of learned rows has grown by
the factor `solve_growth`,

1. every model is solved, which gives a new projection,
2. a uniform sample of the learned rows is projected,
3. the probes of the model are fitted on the projected sample.

These probes classify all batches until the models are solved again. They never classify rows that
they or the models have learned, so the scores are scores on unseen rows.

The nearest-mean probe of a linear projection uses the class means of all learned rows. Other
probes use the sample only. The baseline `full` classifies rows without a projection.

The memory holds the models' states, the sample, and the class means (labels, features).

The sample is a uniform random sample of the rows of a stream. Rows may be dense, sparse or rows of
a table. The sample stores unprojected rows, so that each new projection can be applied to the same
rows.

There are three kinds of probes:

- nearest class mean,
- k nearest neighbours among sampled rows,
- linear classifier: a multinomial logistic regression. If rows have several labels, a ridge
  regression for all labels together.

All probes are fitted on the same sampled rows after the projection. If rows have one label, a
probe predicts the code of the label. If rows have several labels, a probe predicts a score in
[−1, 1] for each label.

When the projection changes, the probes must be fitted again, because the projected rows have
other coordinates.

Costs, with r sampled rows, p components and k labels:

    probe        fit                     prediction of a row
    mean         O(r p)                  O(p k)
    neighbours   O(r p)                  O(r p)
    linear       O(r p k) per iteration  O(p k)
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Ridge

from stream_dr.batch.block import Block, Rows, as_weights, check_source_rows
from stream_dr.batch.rows import Source
from stream_dr.batch.schema import Schema
from stream_dr.batch.table import refuse_table
from stream_dr.batch.targets import Label, drop_rows_without_target, raise_unsupported_target_kind
from stream_dr.errors import InvalidParameter, InvalidTargets, TargetKindMismatch, TargetsRequired
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.evaluation.scores import ClassScores, LabelScores
from stream_dr.projection import Projection
from stream_dr.solve.neighbours import fit_sparse_width, means_by_class, nearest_mean, squared_distances
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.reservoir import ReservoirAccumulator


class ProbeSample(NamedTuple):
    """Projected rows on which probes (small classifiers) are fitted.

    Attributes
    ----------
    Z : ndarray or CSR (rows, components)
        Projected rows.
    y : ndarray
        If rows have one label: (rows,) label codes. If rows have several labels: (rows, labels)
        bool, True if the row has the label.
    means : ndarray (labels, components) or None
        For each label, the projected mean of all learned rows with the label. None: use the means
        of the sampled rows.
    others : ndarray (labels, components) or None
        For each label, the projected mean of all learned rows without the label. None if rows have
        one label.
    labels : int
        Number of different labels.
    """

    Z: Rows
    y: np.ndarray
    means: np.ndarray | None
    others: np.ndarray | None
    labels: int


class Probe(Protocol):
    """Classifier that was fitted on a sample of projected rows."""

    def predict(self, Z: Rows) -> np.ndarray:
        """Predict the labels of projected rows Z (rows, components).

        If rows have one label, returns label codes (rows,). If rows have several labels, returns
        scores (rows, labels) in [−1, 1]. A score above 0 means that the row has the label.
        """
        ...


class NearestMean:
    """Classifier that predicts the label with the nearest class mean.

    If rows have several labels, two means are compared for each label: the mean of the rows with
    the label, and the mean of the rows without the label. A row is predicted to have the label if
    the first mean is nearer.
    """

    def __init__(self, sample: ProbeSample) -> None:
        if sample.means is not None:
            self._means, self._others = sample.means, sample.others
        else:
            self._means, self._others = label_presence_means(sample)

    def predict(self, Z: Rows) -> np.ndarray:
        """Predict the labels of projected rows Z (rows, components).

        If rows have one label, returns label codes (rows,). If rows have several labels, returns
        scores (rows, labels) in [−1, 1].
        """
        # Only if rows have several labels, there are means of the rows without each label.
        if self._others is None:
            return nearest_mean(Z, self._means)

        # Each label has two means, of the rows with the label and of the rows without the label.
        # A mean over no rows is NaN, and the label's score is then −1.
        with np.errstate(invalid="ignore"):
            distance_with = np.sqrt(squared_distances(Z, self._means))
            distance_without = np.sqrt(squared_distances(Z, self._others))
            scores = (distance_without - distance_with) / (distance_without + distance_with)
        return np.where(np.isfinite(scores), scores, -1.0)


class NearestNeighbours:
    """Classifier that predicts from k neighbours, the nearest sampled rows.

    If rows have one label, the most frequent label of the neighbours is predicted. If two labels
    are equally frequent, the label of the nearer neighbours is predicted.

    If rows have several labels, the score of a label is the share of the neighbours that have the
    label, scaled to [−1, 1].
    """

    def __init__(self, sample: ProbeSample, n_neighbours: int) -> None:
        self._sample = sample
        self._k = min(n_neighbours, len(sample.y))

    def predict(self, Z: Rows) -> np.ndarray:
        """Predict the labels of projected rows Z (rows, components).

        If rows have one label, returns label codes (rows,). If rows have several labels, returns
        scores (rows, labels) in [−1, 1].
        """
        # Find the k nearest sampled rows of each row (`near`), and sort them by distance.
        # `neighbour_targets` has their targets in this order: (rows, k), or (rows, k, labels).
        distances = squared_distances(Z, self._sample.Z)
        near = np.argpartition(distances, self._k - 1, axis=1)[:, : self._k]
        order = np.argsort(np.take_along_axis(distances, near, 1), axis=1, kind="stable")
        neighbour_targets = self._sample.y[np.take_along_axis(near, order, 1)]

        # If rows have several labels, the sample's `y` is (sampled rows, labels) bool.
        # The score of a label is the share of neighbours with the label, scaled to [−1, 1].
        if self._sample.y.ndim == 2:
            return np.asarray(2.0 * neighbour_targets.mean(1) - 1.0)

        # Count the votes (rows, labels): each neighbour votes for its label.
        votes = np.zeros((len(neighbour_targets), self._sample.labels))
        for rank in range(self._k):
            # Count a nearer neighbour's vote slightly more, to decide between equal votes.
            votes[np.arange(len(votes)), neighbour_targets[:, rank]] += 1.0 - rank * 1e-6
        return np.asarray(np.argmax(votes, axis=1))


class LinearProbe:
    """Linear classifier of projected rows.

    The coordinates are scaled first. If rows have one label, the classifier is a logistic
    regression. If rows have several labels, it is a ridge regression on the values +1 (the row has
    the label) and −1 (the row does not).
    """

    def __init__(self, sample: ProbeSample) -> None:
        # Divide each component by its standard deviation, except constant components.
        deviation = _column_scales(sample.Z)
        self._scale = 1.0 / np.where(deviation > 0, deviation, 1.0)
        self._multilabel = sample.y.ndim == 2
        self._labels = sample.labels

        # Label code or score that is predicted for every row if nothing can be fitted, else None.
        self._constant: int | None = None

        self._model: LogisticRegression | Ridge
        Z = self._scale_columns(sample.Z)
        if self._multilabel and Z.shape[1]:
            # Fit 1 for rows with the label, and −1 for rows without it.
            self._model = Ridge(alpha=1.0).fit(Z, 2.0 * sample.y - 1.0)
        elif self._multilabel:
            # Without components, predict that no row has a label.
            self._constant = -1
        elif Z.shape[1] == 0 or len(np.unique(sample.y)) < 2:
            # Without components, or with only one label, predict the most frequent label.
            self._constant = int(np.argmax(np.bincount(sample.y)))
        else:
            self._model = LogisticRegression(max_iter=1_000).fit(Z, sample.y)

    def predict(self, Z: Rows) -> np.ndarray:
        """Predict the labels of projected rows Z (rows, components).

        If rows have one label, returns label codes (rows,). If rows have several labels, returns
        scores (rows, labels) in [−1, 1].
        """
        # If nothing could be fitted, the same label code or score is predicted for every row.
        if self._constant is not None:
            shape = (Z.shape[0], self._labels) if self._multilabel else Z.shape[0]
            return np.full(shape, self._constant)

        predicted = np.asarray(self._model.predict(self._scale_columns(Z)))
        if self._multilabel:
            predicted = np.clip(predicted.reshape(Z.shape[0], -1), -1.0, 1.0)
        return predicted

    def _scale_columns(self, Z: Rows) -> Rows:
        """Divide each coordinate of projected rows by its standard deviation."""
        if sp.issparse(Z):
            return Z @ sp.diags(self._scale)
        return Z * self._scale


def fit_probe(probe_kind: str, sample: ProbeSample, n_neighbours: int) -> Probe:
    """Return a classifier of projected rows, fitted on a sample.

    probe_kind: "mean" (nearest class mean), "knn" (nearest neighbours) or "linear".
    n_neighbours: number of neighbours for "knn". The other classifiers ignore this parameter.
    """
    if probe_kind == "mean":
        return NearestMean(sample)
    if probe_kind == "knn":
        return NearestNeighbours(sample, n_neighbours)
    return LinearProbe(sample)


def label_presence_means(sample: ProbeSample) -> tuple[np.ndarray, np.ndarray | None]:
    """Return means of sampled rows with and without each label.

    Returns two values:

    - (labels, components) mean of the rows with each label.
    - (labels, components) mean of the rows without each label. None if the stream has one label a
      row, because only the means of classes are then needed.
    """
    if sample.y.ndim == 1:
        return means_by_class(sample.Z, sample.y, sample.labels), None

    # `y` is (rows, labels) bool. A mean over no rows is 0/0, which is NaN.
    sums = np.asarray(sample.Z.T @ sample.y.astype(float)).T
    counts = sample.y.sum(0)[:, None]
    total = np.asarray(sample.Z.sum(0)).ravel()
    rows = len(sample.y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, (total - sums) / (rows - counts)


def _column_scales(Z: Rows) -> np.ndarray:
    """Return the standard deviation (components,) of each coordinate of projected rows."""
    # Sparse rows are not centred, so that they stay sparse. Take their root mean square instead.
    if sp.issparse(Z):
        return np.asarray(np.sqrt(Z.multiply(Z).mean(0))).ravel()
    return np.asarray(Z.std(0))


class RowSample:
    """Uniform random sample of the rows of a stream.

    The memory is O(max_rows). Adding a batch takes O(rows of the batch), and O(max_rows) more if
    the batch is a table.

    Parameters
    ----------
    max_rows : int
        Maximum number of rows in the sample.
    seed : int
        Seed of the random numbers.
    """

    def __init__(self, max_rows: int, seed: int) -> None:
        self._reservoir = ReservoirAccumulator(max_rows, seed)

        # Sampled rows of tables: (row numbers, rows) for each batch that has some.
        self._tables: list[tuple[np.ndarray, Block]] = []

    @property
    def n_features(self) -> int:
        """Number of columns of the rows added so far.

        It has no meaning for rows of a table, which are not stored in the reservoir.
        """
        return self._reservoir.n_features

    def add(self, block: Block) -> None:
        """Add random rows of a batch to the sample.

        If the sample is full, the rows replace earlier rows. Raises the errors of
        ReservoirAccumulator.add.
        """
        # The reservoir draws the random rows. Without weights, all rows are equally likely.
        if not block.table:
            self._reservoir.add(block._replace(weights=None))
            return

        # The reservoir cannot store rows of a table. It gets a row of zeros for each of them.
        # `_tables` stores the table's rows whose numbers the reservoir has sampled. Rows are
        # numbered from the start of the stream, and `_reservoir.rows` is the number of rows so far.
        rows_before = self._reservoir.rows
        self._reservoir.add(Block(np.zeros((block.rows, 1))))
        numbers = self.sampled_row_numbers()
        new = numbers[numbers >= rows_before]
        self._tables.append((new, Block(block.X).take(new - rows_before)))

    def sampled_row_numbers(self) -> np.ndarray:
        """Return the numbers of the sampled rows, in ascending order.

        The result is (sampled rows,) int64. A row's number is its index in the stream, from 0.
        """
        return self._reservoir.freeze().numbers

    def project_sampled_rows(self, project: Callable[[Rows], Rows]) -> Rows:
        """Return the projected sampled rows (sampled rows, components).

        The rows have the same order as in the stream.
        """
        # The reservoir has the sampled rows (`kept`) and their indices in the stream (`numbers`).
        # Rows of tables are not in the reservoir. `_tables` has their indices and rows by batch.
        reservoir = self._reservoir.freeze()
        if not self._tables:
            return project(reservoir.kept)

        # Remove the rows that are no longer in the sample, because newer rows replaced them.
        sampled = []
        for numbers, rows in self._tables:
            remaining = np.flatnonzero(np.isin(numbers, reservoir.numbers))
            if len(remaining):
                sampled.append((numbers[remaining], rows.take(remaining)))
        self._tables = sampled
        return np.vstack([project(rows.X) for _, rows in self._tables])


PROBES = ("mean", "knn", "linear")
"""Names of the probes (classifiers of projected rows).

"mean" is the nearest class mean, "knn" the nearest neighbours, "linear" a linear classifier.
"""

FULL_BASELINE = "full"
"""Name of the baseline that classifies rows without a projection."""

NO_CHANGE = "no change"
"""Name of the baseline that predicts the previous row's label for each row."""

_NO_CHANGE_PROBE = "previous"
"""Name that stands for the classifier in the scores of the baseline NO_CHANGE."""


class EvaluateSettings(NamedTuple):
    """Settings of an evaluation.

    Attributes
    ----------
    first : int
        Number of learned rows at which the models are solved for the first time.
    solve_growth : float
        Models are solved again when the number of learned rows has grown by this factor.
    reservoir : int
        Maximum number of rows in the sample on which the classifiers are fitted.
    neighbours : int
        Number of neighbours of the classifier "knn".
    probes : tuple of str
        Names of the classifiers of projected rows, see PROBES.
    full : bool
        True to classify rows also without a projection.
    seed : int
        Seed of the random sample.
    baseline : bool
        True to add the scores of the baseline NO_CHANGE, which predicts the previous row's label.
        These scores have the entry "unlabelled", the number of rows without a target. If rows have
        one label, there are two more entries. "unchanged" is the share of rows with the previous
        row's label. "by_chance" is the expected share if the rows were in random order. The two
        entries take 4 bytes of memory for each row.
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
        """Raise InvalidParameter if there is no classifier (probe) of a name in `probes`."""
        if unknown := [probe for probe in self.probes if probe not in PROBES]:
            raise InvalidParameter(f"there is no probe {', '.join(unknown)}; probes are {', '.join(PROBES)}.")


class Point(NamedTuple):
    """Accuracy of a model and classifier on one batch.

    A learning curve consists of such points.

    Attributes
    ----------
    rows : int
        Number of rows learned before the batch.
    model : str
        Name of the model.
    probe : str
        Name of the classifier of the model's projected rows.
    tested : int
        Number of classified rows, which is the number of rows in the batch.
    accuracy : float
        Share of the batch's rows that were classified correctly. If rows have several labels, all
        labels of a row must be correct.
    """

    rows: int
    model: str
    probe: str
    tested: int
    accuracy: float


class Score(NamedTuple):
    """Scores of one model with one classifier.

    Attributes
    ----------
    model : str
        Name of the model.
    probe : str
        Name of the classifier of the model's projected rows.
    components : int
        Number of components of the model's last projection.
    figures : dict
        Scores by name: "accuracy", "micro_f1", "macro_f1", and "rows" (number of tested rows). Rows
        with several labels also have "auc" (area under the ROC curve). Rows with one label have
        "most_frequent" (share of the rows that have the most frequent label).
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
    test_source: Source | None = None,
    on_point: Callable[[Point], object] | None = None,
) -> list[Score]:
    """Evaluate models by classifying each batch before it is learned.

    Every model's projected rows are classified by every classifier of `settings.probes`. Rows
    without a target are ignored. Returns a Score for each pair of a model and a classifier.

    Raises TargetsRequired if no row has a target. Raises TargetKindMismatch if targets are numbers
    or a model cannot learn from this kind of targets. Raises InvalidParameter, and the errors of
    learning and solving.

    Parameters
    ----------
    source : Source
        Rows to test and learn.
    models : mapping
        Unfitted estimators by name. None stands for rows that are not projected.
    settings : EvaluateSettings
        Classifiers, baselines and size of the sample.
    progress : callable or None
        Function called after each batch with the number of rows learned so far.
    test_source : Source or None
        Separate test rows, which are classified after all of `source` was learned. None: the rows
        of `source` are classified before they are learned.
    on_point : callable or None
        Function that receives a Point for each batch, model and classifier.
    """
    # The baseline `full` classifies the rows themselves, so it has no estimator.
    if settings.full:
        models = {**models, FULL_BASELINE: None}
    settings.check()
    if not models:
        raise InvalidParameter("at least one model is needed; none was given.")

    # Learn all batches. Without separate test rows, classify each batch before it is learned.
    # `skipped` gets the number of rows without a target of each batch.
    evaluation = _Evaluation(models, settings, on_point or (lambda point: None))
    skipped: list[int] = []
    for block in _labelled_batches(source, skipped):
        block = evaluation.admit(block)
        if test_source is None:
            evaluation.count_correct(block)
        evaluation.learn_and_sample(block)
        if progress is not None:
            progress(evaluation.rows)
    if evaluation.rows == 0:
        raise TargetsRequired("no row of the source has a target; test-then-train needs labelled rows.")

    # Solve once more before the test rows, so that the models have learned all rows.
    if test_source is not None:
        evaluation.fit_classifiers()
        for block in _labelled_batches(test_source, skipped):
            evaluation.count_correct(evaluation.admit(block))
    return evaluation.all_scores(sum(skipped))


def _labelled_batches(source: Source, skipped: list[int]) -> Iterator[Block]:
    """Yield the rows of each batch that have a target.

    Batches without such a row are not yielded. A caller's own source may have any rows, targets and
    weights, so they are checked. Raises InvalidIndex, NotFinite, InvalidTargets or InvalidWeights.

    skipped: list to which the number of each batch's rows without a target is added.
    """
    for _, block in source.events():
        check_source_rows(block.X)
        if block.y is not None and block.y.rows != block.rows:
            raise InvalidTargets(f"batch has {block.rows} rows but {block.y.rows} targets; pass one target a row.")
        weights = as_weights(block.weights, block.rows)
        labelled, n_skipped = drop_rows_without_target(block._replace(weights=weights))
        skipped.append(n_skipped)
        if labelled.rows:
            yield labelled


class ShuffledSource:
    """Source that yields another source's rows in random order.

    Each yielded batch has some random rows of one batch of the other source. All rows are held in
    memory.
    """

    def __init__(self, source: Source, seed: int) -> None:
        self._source = source
        self._seed = seed

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield batches in random order, as pairs (number, Block).

        The batches are numbered from 0 in this order. Only batches with after < number ≤ until are
        yielded.
        """
        rng = np.random.default_rng(self._seed)
        blocks = [block for _, block in self._source.events()]

        # The batches are visited in several turns, in another random order in each turn.
        # Each row is assigned to one turn at random, and is yielded only in this turn.
        # There are at least 64 turns, so that rows are mixed well even if there are few batches.
        turns = max(64, len(blocks))
        turn_of_row = [rng.integers(0, turns, block.rows) for block in blocks]
        number = -1
        for turn in range(turns):
            for i in rng.permutation(len(blocks)).tolist():
                rows = rng.permutation(np.flatnonzero(turn_of_row[i] == turn))
                if not len(rows):
                    continue
                number += 1
                if number > after and (until is None or number <= until):
                    yield number, blocks[i].take(rows)


class _Evaluation:
    """State of one evaluation, updated batch by batch.

    Call `admit` for each batch before `count_correct` and `learn_and_sample`.

    Labels are numbered from 0 in the order in which they first appear. A label's number is its
    code. The parameter `truth` of the methods is a list with each row's list of label codes.
    """

    def __init__(
        self, models: Mapping[str, Estimator | None], settings: EvaluateSettings, on_point: Callable[[Point], object]
    ) -> None:
        self._models = models
        self._settings = settings
        self._on_point = on_point
        self._accumulators = {name: e.accumulator() for name, e in models.items() if e is not None}

        # Number of rows learned so far, and the number at which the models are solved next.
        self.rows = 0
        self._next_solve = settings.first

        # Code of each label, class means of all rows, and a sample of the rows.
        self._schema = Schema()
        self._labels: dict[Label, int] = {}
        self._moments = MomentAccumulator("indicator", scatter="none")
        self._sample = RowSample(settings.reservoir, settings.seed)
        # Label codes of the sampled rows, by the row's index in the stream.
        self._sample_truth: dict[int, list[int]] = {}

        # Solutions and scores, by name of the model, or by (name of the model, classifier).
        self._probes: dict[tuple[str, str], Probe] = {}
        self._projections: dict[str, Projection | _FirstColumnsProjection] = {}
        self._class_scores: dict[tuple[str, str], ClassScores] = {}
        self._label_scores: dict[tuple[str, str], LabelScores] = {}

        # The baseline NO_CHANGE needs the label codes of the last tested row, and of all rows.
        self._last_codes: list[int] = []
        self._all_codes: list[np.ndarray] = []

    def count_correct(self, block: Block) -> None:
        """Classify a batch and count the correct predictions.

        Every model projects the rows, and every classifier predicts their labels. If enough rows
        were learned since the last solution, the models are solved again first.
        """
        if self.rows >= self._next_solve:
            self.fit_classifiers()

        # Before the first solution there are no projections, so nothing is counted.
        # A probe is a classifier of projected rows.
        truth = self._label_codes_by_row(block)
        for name, projection in self._projections.items():
            Z = projection.apply(block.X)
            for probe in self._settings.probes:
                self._count_predictions((name, probe), truth, self._probes[name, probe].predict(Z))
        if self._settings.baseline and self._projections:
            self._count_baseline(truth)

    def _count_baseline(self, codes_by_row: list[list[int]]) -> None:
        """Count the baseline's correct predictions for a batch.

        The baseline predicts the labels of the previous row for each row.

        codes_by_row: list of label codes for each row.
        """
        # `_last_codes` has the label codes of the last row of the batch before.
        previous = [self._last_codes, *codes_by_row[:-1]]
        self._last_codes = codes_by_row[-1]
        # The first row of the stream has no previous row. It gets the code 0, or no labels.
        if self._schema.target_kind == "class":
            first_codes = [codes[0] if codes else 0 for codes in previous]
            predicted = np.array(first_codes, np.int64)
        else:
            predicted = np.where(self._label_array(previous), 1.0, -1.0)
        self._count_predictions((NO_CHANGE, _NO_CHANGE_PROBE), codes_by_row, predicted)

    def fit_classifiers(self) -> None:
        """Solve every model, and fit classifiers on its projected sample.

        Also sets the number of learned rows at which the models are solved next.
        """
        # Solve again when the number of learned rows has grown by the factor `solve_growth`.
        self._next_solve = max(self.rows + 1, int(self.rows * self._settings.solve_growth))

        # Forget the label codes of rows that are no longer in the sample.
        numbers = self._sample.sampled_row_numbers().tolist()
        self._sample_truth = {number: self._sample_truth[number] for number in numbers}
        y = self._label_array(list(self._sample_truth.values()))
        # Means of the learned rows with each label, and without each label (`others`).
        means, others = self._label_feature_means()

        # A model that is None is the baseline of the rows' own columns, without a projection.
        for name, estimator in self._models.items():
            projection: Projection | _FirstColumnsProjection
            if estimator is None:
                projection = _FirstColumnsProjection(self._sample.n_features)
            else:
                projection = estimator.solve(self._accumulators[name].freeze())
            self._projections[name] = projection

            # A linear projection maps class means of rows to class means of projected rows. The
            # kind "columns" returns the rows unchanged, so it is linear, too. If the projection is
            # not linear, pass None. Probes then use means of projected rows.
            Z = self._sample.project_sampled_rows(projection.apply)
            projected_means = None
            projected_others = None
            if projection.kind in ("linear", "columns"):
                projected_means = projection.apply(means)
                if self._schema.target_kind == "multilabel":
                    projected_others = projection.apply(others)
            sample = ProbeSample(Z, y, projected_means, projected_others, len(self._labels))
            for probe in self._settings.probes:
                self._probes[name, probe] = fit_probe(probe, sample, self._settings.neighbours)

    def learn_and_sample(self, block: Block) -> None:
        """Let every model learn a batch, and add rows to the sample.

        The classifiers of projected rows are fitted on the sample.
        """
        # `_sample_truth` has the label codes of each row by the row's index in the stream. Rows
        # that do not stay in the sample are removed later, by `fit_classifiers`.
        truth = self._label_codes_by_row(block)
        self._sample_truth.update(enumerate(truth, self.rows))
        if self._schema.target_kind == "class" and self._settings.baseline:
            self._all_codes.append(np.array([codes[0] for codes in truth], np.int32))

        # `_moments` has the class means of all rows. Rows of a table are no numbers and have none.
        for accumulator in self._accumulators.values():
            accumulator.add(block)
        if not block.table:
            self._moments.add(block)
        self._sample.add(block)
        self.rows += block.rows

    def all_scores(self, n_unlabelled: int) -> list[Score]:
        """Return a Score for each pair of model and classifier.

        n_unlabelled: number of rows without a target, for the scores of the baseline.
        """
        # A model that was not solved yet has 0 components. The baseline's scores also have figures
        # on the stream: how often labels repeat, and how many rows have no label.
        scores = []
        for name in self._models:
            n_components = 0
            if name in self._projections:
                n_components = self._projections[name].n_components
            for probe in self._settings.probes:
                scores.append(Score(name, probe, n_components, self._scores_of_pair((name, probe))))
        if self._settings.baseline:
            figures = self._scores_of_pair((NO_CHANGE, _NO_CHANGE_PROBE))
            figures |= self._label_repeat_shares()
            figures["unlabelled"] = n_unlabelled
            scores.append(Score(NO_CHANGE, _NO_CHANGE_PROBE, 0, figures))
        return scores

    def _scores_of_pair(self, model_and_probe: tuple[str, str]) -> dict[str, float]:
        """Return the scores of a model with a classifier, by name.

        The scores are NaN if no row was tested.

        model_and_probe: pair (name of the model, name of the classifier).
        """
        if self._schema.target_kind == "multilabel":
            return self._label_scores.get(model_and_probe, LabelScores()).scores_by_name()
        return self._class_scores.get(model_and_probe, ClassScores()).scores_by_name()

    def _label_repeat_shares(self) -> dict[str, float]:
        """Return how often labels repeat from row to row.

        The dict has two entries, and is empty if rows have several labels:

        - "unchanged": share of the rows with the same label as the previous row.
        - "by_chance": expected value of this share if the rows were in random order.
        """
        # `_all_codes` has one array of label codes for each learned batch. The empty array is there
        # because it may have none.
        codes = np.concatenate([np.zeros(0, np.int64), *self._all_codes])
        if self._schema.target_kind != "class" or len(codes) < 2:
            return {}
        unchanged = codes[1:] == codes[:-1]
        shares = np.bincount(codes) / len(codes)
        return {"unchanged": float(unchanged.mean()), "by_chance": float(shares @ shares)}

    def admit(self, block: Block) -> Block:
        """Return a batch with its columns in the order of the first batch.

        Raises TargetKindMismatch if the targets are numbers, or if a model cannot learn from this
        kind of targets. Raises the errors of `Schema.extend` if the batch does not fit the earlier
        batches.
        """
        if block.y.kind == "continuous":
            raise TargetKindMismatch("evaluate classifies; these targets are continuous. Give labelled rows.")
        # The baseline `full` classifies the rows themselves, which must be numbers.
        if self._settings.full:
            refuse_table(block.X)
        # The schema refuses batches with weights after batches without. Here both may occur,
        # because the rows to test may come from another source. So the schema gets no weights.
        weights = block.weights
        self._schema, block = self._schema.extend(block._replace(weights=None))
        block = block._replace(weights=weights)
        # At the first batch, check that all models can learn this kind of targets. A model that is
        # None, a baseline, learns nothing. An estimator with no target kinds takes any targets.
        if not self._labels:
            for estimator in self._models.values():
                if estimator is not None and estimator.target_kinds and block.y.kind not in estimator.target_kinds:
                    raise_unsupported_target_kind(block.y.kind, estimator.target_kinds)
        self._labels = {label: code for code, label in enumerate(self._schema.labels)}
        return block

    def _label_codes_by_row(self, block: Block) -> list[list[int]]:
        """Return a list with each row's list of label codes."""
        # A label's code is its number in the order in which labels first appear.
        codes = tuple(self._labels[label] for label in block.y.labels)
        rows = block.y._replace(labels=codes).targets_by_row()
        return [[code] for code in rows] if self._schema.target_kind == "class" else rows

    def _label_feature_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the class means of all learned rows.

        Returns two arrays (labels, features) in the order of the label codes. The first has the
        mean of the rows with each label. The second has the mean of the rows without each label.
        If there are no such rows, the mean is NaN.
        """
        # `cross` (features, labels) has the sum of the centred rows of each label. This sum
        # divided by the label's weight is the class mean minus `mean`. The rows without the label
        # have the negative sum. `weight` is the weight of all rows.
        # If no row has the label, or all rows have it, inf times 0 gives the NaN.
        moments = self._moments.freeze().centred()
        weights = moments.label_weights
        with np.errstate(invalid="ignore", divide="ignore"):
            weight_with = np.where(weights > 0, 1.0 / weights, np.inf)
            weight_without = np.where(moments.weight > weights, 1.0 / (moments.weight - weights), np.inf)
            means = moments.mean + (moments.cross * weight_with).T
            others = moments.mean - (moments.cross * weight_without).T

        order = np.argsort([self._labels[label] for label in moments.labels])
        return means[order], others[order]

    def _label_array(self, codes_by_row: list[list[int]]) -> np.ndarray:
        """Return the labels of rows as an array.

        If rows have one label, returns label codes (rows,). If rows have several labels, returns
        (rows, labels) bool, True if the row has the label.

        codes_by_row: list of label codes for each row.
        """
        if self._schema.target_kind == "class":
            return np.array([codes[0] for codes in codes_by_row], np.int64)
        Y = np.zeros((len(codes_by_row), len(self._labels)), bool)
        for row, codes in enumerate(codes_by_row):
            Y[row, codes] = True
        return Y

    def _count_predictions(
        self, model_and_probe: tuple[str, str], codes_by_row: list[list[int]], predicted: np.ndarray
    ) -> None:
        """Add a batch's predictions to the scores, and report the accuracy on the batch.

        The report is a Point, which the caller of the evaluation receives in `on_point`.

        model_and_probe: pair (name of the model, name of the classifier that is fitted to its
            projected rows).
        codes_by_row: list of label codes for each row.
        predicted: if rows have one label, the predicted label codes (rows,). If rows have several
            labels, scores (rows, labels), positive for predicted labels. Labels that came after the
            classifier was fitted have no score.
        """
        # `y` has the true labels in the shape that `predicted` has. The scores of all batches are
        # stored by model and classifier.
        y = self._label_array(codes_by_row)
        if self._schema.target_kind == "class":
            correct = y == predicted
            self._class_scores.setdefault(model_and_probe, ClassScores()).add(y, predicted, len(self._labels))
        else:
            # Labels that the classifier does not know get the lowest score.
            scores = np.full(y.shape, -1.0)
            scores[:, : predicted.shape[1]] = predicted
            correct = (y == (scores > 0)).all(1)
            self._label_scores.setdefault(model_and_probe, LabelScores()).add(y, scores > 0, scores)

        accuracy = float(correct.mean())
        self._on_point(Point(self.rows, *model_and_probe, len(y), accuracy))


class _FirstColumnsProjection(NamedTuple):
    """Projection that returns the first features of rows, for the baseline FULL_BASELINE.

    n_features: number of features to return.
    kind: kind of the projection, a field that all projections have.
    """

    n_features: int
    kind: str = "columns"

    @property
    def n_components(self) -> int:
        """Number of columns that `apply` returns."""
        return self.n_features

    def apply(self, X: Rows) -> Rows:
        """Return the first `n_features` columns of X (rows, features)."""
        return fit_sparse_width(X, self.n_features)

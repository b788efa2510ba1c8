"""Compare methods by cross-validation on a sample of the rows.

A uniform sample is drawn from all rows and divided into folds. One fold after the other is held
out. Every method that suits the rows and targets is fitted on the remaining folds and predicts the
targets of the held-out fold. The score measures these predictions.

If a method has only an approximate ("diagonal") solution, its estimator's method `refine` computes
the exact one before the prediction.

Three baselines are scored on the same folds:

- scikit-learn's linear classifier or regression on all features,
- the same classifier or regression on principal components,
- the most frequent class, or the mean of the targets.

Every method is scored on one fold before any method goes on to the next fold. If time runs out,
all methods have therefore been scored on the same folds.

Memory holds the sample and the state of one estimator. After the rows are read, the comparison
takes at most 60 seconds (SECONDS), plus the time of the fit that is running at this moment.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.matrix import columns_to_write, read_table, table_from_arrow
from stream_dr.batch.parsing import are_probably_measurements, parse_targets
from stream_dr.batch.rows import RepeatableBatches, Source, as_block
from stream_dr.batch.sparse import pad_with_zero_columns
from stream_dr.batch.targets import class_targets, continuous_targets, drop_rows_without_target, label_array
from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import InvalidParameter, InvalidTargets, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.named_columns import read_rows_and_names
from stream_dr.estimators.fitting.predictor import LinearClassifier, Predictor
from stream_dr.evaluation.scores import weakness
from stream_dr.feature_maps import feature_map as feature_map_of
from stream_dr.feature_maps.column_report import describe, suitable_map_spec
from stream_dr.feature_maps.table import map_table_rows
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.protocol import pack

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import Pipeline

MAX_SAMPLE_ROWS = 20_000
"""Maximum number of rows in a sample."""

MAX_SAMPLE_BYTES = 64 << 20
"""Maximum number of bytes in a sample.

If rows are wide, the sample therefore has fewer than MAX_SAMPLE_ROWS rows.
"""

SECONDS = 60.0
"""Number of seconds after which no further fit is started. Reading the rows does not count."""

MAX_FOLDS = 5
"""Maximum number of folds."""

FOLD_ROWS = 20
"""Minimum number of rows for each fold."""

WARM_UP_ROWS = 32
"""Number of rows on which each method is fitted before times are measured.

This first fit compiles numba functions, so that measured times do not include compilation.
"""

RIDGE_MIN_COLUMNS = 100
"""Minimum number of numeric columns for which `default_estimator_spec` sets a ridge (a
regularisation)."""

MAX_DENSE_COLUMNS = 4096
"""Maximum number of columns of sparse rows that are converted to dense rows for scikit-learn."""

_ALL_FEATURES = "all features"
_MOST_FREQUENT = "most frequent class"
_MEAN = "mean"

# `gamma` and `shrinkage` are two parameters for a ridge (regularisation).
# Tables with columns of texts and of numbers ("words beside columns") use `gamma`.
# Mixed columns do not use `shrinkage`, because its effect depends on the columns' units.
# On an example table with a column in cents, shrinkage=.1 lowers LDA's accuracy from .70 to .54.
# For rows of at least RIDGE_MIN_COLUMNS numbers ("many numbers"), models have shrinkage=.1.
# The value .1 was chosen on embeddings of 384 numbers.
# After 1,600 learned rows, the accuracy is .860 without a ridge and .950 with shrinkage=.1.
# After 16,000 learned rows, the accuracy is .940 without a ridge and .944 with shrinkage=.1.
RIDGES: dict[str, dict[str, Any]] = {
    "words": {"gamma": 1.0},
    "words beside columns": {"gamma": 20.0},
    "many numbers": {"shrinkage": 0.1},
    "numbers": {},
}
"""Parameters that set the default ridge, by the kind of rows (`ridge_row_kind`)."""

StageProgress = Callable[[str, int, int], object]
"""Function called to report progress.

Its arguments are the stage ("read" or "learn"), the number of rows done so far, and the total
number of rows.
"""


class _Method(NamedTuple):
    """Method or baseline to compare.

    name: name shown in the result.
    key: key of the estimator in ESTIMATORS, "" for a baseline.
    params: parameters of the estimator.
    """

    name: str
    key: str
    params: JsonDict


_Fold = tuple[np.ndarray, np.ndarray]
"""Indices of the sampled rows to learn, and of the rows held out."""


class MethodResult(NamedTuple):
    """Result of one method in a comparison.

    Attributes
    ----------
    method : str
        Name of the baseline, or key and parameters of the estimator.
    key : str
        Key of the estimator in ESTIMATORS, "" for a baseline.
    params : dict
        Parameters of the estimator.
    score : float
        Mean score over the folds. NaN if the method could not be fitted.
    components : int
        Number of components of the last fit. For the baseline "all features", number of features.
    seconds : float
        Mean number of seconds of a fit.
    bytes : int
        Number of bytes of the estimator's state. For the baseline "all features", number of bytes
        of the learned rows.
    cannot : str
        Abilities that the method lacks, such as "predict, merge". If the fit failed, the message
        of the error.
    spread : float
        Standard deviation of the score over the folds.
    """

    method: str
    key: str
    params: JsonDict
    score: float
    components: int = 0
    seconds: float = 0.0
    bytes: int = 0
    cannot: str = ""
    spread: float = 0.0


class Comparison(NamedTuple):
    """Result of `suggest`.

    Attributes
    ----------
    measure : str
        What the scores measure: "accuracy" for labels, "R2" for numeric targets.
    rows : int
        Number of rows in the sample.
    read : int
        Number of rows from which the sample was drawn.
    folds : int
        Number of folds on which all methods were scored before the time limit.
    lines : tuple of MethodResult
        Results of the methods, highest score first, and then results of the baselines.
    tested : int
        Number of rows on which all methods were scored.
    """

    measure: str
    rows: int
    read: int
    folds: int
    lines: tuple[MethodResult, ...]
    tested: int

    @property
    def best(self) -> MethodResult | None:
        """Result of the method with the highest score.

        Baselines do not count. None if this method is no better than the most frequent label.
        """
        if self.weakness(self.lines[0]):
            return None
        return self.lines[0]

    def weakness(self, line: MethodResult) -> str:
        """Return a note if a method is hardly better than the most frequent label.

        The difference of the accuracies is then less than its uncertainty. The note is "" for
        baselines, numeric targets, and methods that failed.

        line: result of the method.
        """
        # Only a comparison of classifiers has this baseline.
        frequent = next((c.score for c in self.lines if c.method == _MOST_FREQUENT), None)
        if frequent is None or not line.key or np.isnan(line.score):
            return ""
        return weakness(line.score, self.tested, frequent)

    def __str__(self) -> str:
        """Return a text table with one line for each method."""
        lines = [f"{'method':<44} {self.measure:>8}      +-  components  seconds      memory  cannot"]
        lines += [
            f"{c.method:<44} {c.score:8.4f}  {c.spread:6.4f}  {c.components:>10}  {c.seconds:7.2f} "
            f"{c.bytes / 1e3:8,.1f} kB  {c.cannot}  {self.weakness(c)}".rstrip()
            for c in self.lines
        ]
        return "\n".join([*lines, f"{self.folds} folds of {self.rows} rows, a sample of {self.read}"])


def suggest(
    X: Any,
    y: Any = None,
    *,
    target: str = "auto",
    time: bool = False,
    feature_map: JsonDict | None = None,
    progress: StageProgress | None = None,
) -> Comparison:
    """Compare methods on a sample of the rows, by cross-validation.

    The sample has at most 20,000 rows and 64 MiB. It is drawn from all rows with a fixed seed.
    No further fit is started when 60 seconds have passed since the start of the first fit.

    Raises TargetKindMismatch if rows have several labels. Raises InvalidTargets, InvalidParameter,
    and the errors of reading the rows.

    Parameters
    ----------
    X : rows (rows, features) or Source
        Anything that `fit` accepts as rows, or a Source, such as `open_source` returns.
    y : array (rows,), str or None
        One label or one number for each row, or the name of the column with the targets.
    target : "auto", "class" or "continuous"
        What whole numbers in `y` are, labels or measurements. "auto" decides by the values.
    time : bool
        True to hold out rows that come after the learned rows. False to hold out random rows.
    feature_map : dict or None
        Parameters of the feature map that encodes a table's columns as numbers. None takes the map
        `text` if all columns are prose, else the map `table`.
    progress : callable or None
        Function of the stage ("read" or "learn"), the number of rows so far, and their total.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> comparison = suggest(*load_iris(return_X_y=True))
    >>> comparison.measure, comparison.best.score > 0.95
    ('accuracy', True)
    """
    progress = progress or (lambda stage, done, total: None)
    source = X if isinstance(X, Source) else RepeatableBatches([as_block(X, y)])
    # `read` is the number of rows with a target, from which the sample is drawn.
    sample, read = sample_rows_with_target((block for _, block in source.events()), target, progress)
    if target == "auto":
        _refuse_many_labels(sample)

    # Only rows of a table need a feature map. All methods get the same map.
    map_spec = feature_map or {}
    if sample.table and not map_spec:
        map_spec = suitable_map_spec(sample.X, {"map": "table"})
    map_params = {"feature_map": map_spec} if sample.table else {}
    methods = [*_methods_to_compare(sample, map_spec), *_baselines(sample.y.kind)]
    folds = _make_folds(sample, in_time_order=time)
    outcomes, n_scored, tested = _score_all_folds(sample, methods, map_params, folds, progress)

    # Rank by the folds on which all methods were scored. The time limit may exclude later folds.
    lines = _rank_methods(methods, [measured[:n_scored] for measured in outcomes])
    measure = "accuracy" if sample.y.kind == "class" else "R2"
    return Comparison(measure, sample.rows, read=read, folds=n_scored, lines=tuple(lines), tested=tested)


def _rank_methods(methods: list[_Method], outcomes: list[list[MethodResult]]) -> list[MethodResult]:
    """Return the average result of each method, ranked by score.

    Baselines come after all methods. `outcomes` has a list for each method, with its result on each
    fold. Raises InvalidParameter if no method could learn the rows.
    """
    lines = [_average_over_folds(method, results) for method, results in zip(methods, outcomes, strict=True)]
    # Baselines have no key. A method that failed has the score NaN, and ranks last.
    lines.sort(key=lambda line: (not line.key, -np.nan_to_num(line.score, nan=-np.inf)))
    if np.isnan(lines[0].score):
        raise InvalidParameter(f"no method could learn these rows: {lines[0].cannot}")
    return lines


def _refuse_many_labels(sample: Block) -> None:
    """Raise InvalidTargets if labels look like numbers or ids."""
    if are_probably_measurements(sample.y.kind, len(sample.y.labels), sample.rows):
        raise InvalidTargets(
            f"y has {len(sample.y.labels)} values in {sample.rows} rows, as numbers or ids have; say target='class' or "
            "target='continuous'."
        )


def _score_all_folds(
    sample: Block, methods: Sequence[_Method], extra_params: JsonDict, folds: Sequence[_Fold], progress: StageProgress
) -> tuple[list[list[MethodResult]], int, int]:
    """Score every method on every fold.

    Returns three values:

    - For each method a list of its results, one for each fold.
    - Number of folds on which all methods were scored.
    - Number of rows of these folds.

    No fit is started after SECONDS seconds.

    extra_params: parameters that every method gets in addition to its own. They set the feature
        map of a table. Empty if the rows are not a table.
    """
    # For the progress, each fit counts as all rows of the sample, learned and held out.
    done = 0
    total = len(methods) * len(folds) * sample.rows
    outcomes: list[list[MethodResult]] = [[] for _ in methods]

    with warnings.catch_warnings():
        # Hide the warnings of these fits, because only the scores are returned to the caller.
        warnings.simplefilter("ignore")
        # Compile numba's functions now, so that the first method's time does not include this.
        _compile_functions(sample, methods, extra_params)
        progress("learn", 0, total)

        deadline = perf_counter() + SECONDS
        for train, test in folds:
            learned = sample.take(train)
            held_out = sample.take(test)
            # Score every method on this fold before any method goes on to the next fold.
            for method, measured in zip(methods, outcomes, strict=True):
                if perf_counter() > deadline:
                    break
                done += sample.rows
                progress("learn", done, total)
                measured.append(_score_method(method, extra_params, learned, held_out))

    # The first fold always counts. A method may have no result if the time ended in this fold.
    n_scored = max(1, min(map(len, outcomes)))
    return outcomes, n_scored, sum(len(test) for _, test in folds[:n_scored])


def _compile_functions(sample: Block, methods: Sequence[_Method], extra_params: JsonDict) -> None:
    """Fit every method on few rows, which compiles numba functions.

    The times that are measured later then do not include compilation. The scores of these fits are
    not used.

    extra_params: parameters that every method gets in addition to its own.
    """
    few = sample.take(np.linspace(0, sample.rows - 1, WARM_UP_ROWS).astype(int))
    for method in methods:
        _score_method(method, extra_params, few, few)


def default_estimator_spec(first_batch: Block, map_spec: JsonDict) -> tuple[str, JsonDict]:
    """Return key and parameters of a data set's default estimator.

    The estimator is "lda" if each row has one label, "opls" for other targets, and "pca" if rows
    have no targets.

    first_batch: first batch of the data set.
    map_spec: parameters of the feature map that encodes a table's columns. Empty if the rows are
        not a table.
    """
    # Find the kind of the rows, by which RIDGES gives the parameters of the ridge
    # (regularisation). The kinds with words are "words" and "words beside columns".
    kind = ridge_row_kind(first_batch, map_spec)
    has_words = "words" in kind
    if first_batch.y is None:
        # Rows of words and wide rows need `refine`, which needs a number of components.
        if has_words or first_batch.features > MAX_EXACT_WIDTH:
            return "pca", {"n_components": 10}
        return "pca", {}
    if first_batch.y.kind == "class":
        return "lda", RIDGES[kind]
    # The ridge for "many numbers" was chosen with labels, so other targets do not get it.
    if has_words:
        return "opls", RIDGES[kind]
    return "opls", {}


def ridge_row_kind(batch: Block, map_spec: JsonDict | None) -> str:
    """Return the kind of a batch's rows, such as "words".

    The kinds are the keys of RIDGES. Sparse rows count as "words".

    map_spec: parameters of the feature map that encodes a table's columns. None if the rows are
        not a table.
    """
    map_name = ""
    if batch.table and map_spec:
        map_name = map_spec["map"]
    if batch.sparse or map_name == "text":
        return "words"
    # The map "table" encodes a column as words if it takes the column for text.
    if map_name == "table" and any(column.taken_for == "text" for column in describe(batch.X, map_spec).columns):
        return "words beside columns"
    if batch.features >= RIDGE_MIN_COLUMNS:
        return "many numbers"
    return "numbers"


def _methods_to_compare(sample: Block, map_spec: JsonDict) -> list[_Method]:
    """Return the methods to compare on a sample, without baselines.

    map_spec: parameters of the feature map that encodes a table's columns. Empty if the rows are
        not a table.
    """
    kind = sample.y.kind
    key, params = default_estimator_spec(sample, map_spec)
    # Do not standardise texts and sparse rows, because a row's word weights have a common scale.
    # The kind of such rows is a text with "words", such as "sparse words".
    has_words = "words" in ridge_row_kind(sample, map_spec)
    scaling: JsonDict = {} if has_words else {"standardize": True}

    # Compare the default method, without and with shrinkage, and methods of other kinds.
    choices: list[tuple[str, JsonDict]] = [(key, params)]
    # The default method may have this shrinkage already. It is then not compared twice.
    shrunk = {"shrinkage": 0.1, **scaling}
    if shrunk != params:
        choices.append((key, shrunk))
    # The keys stand for partial least squares (plsda), projection to class means, the supervised
    # Kampong measure (skm), supervised random projections (srp) and a choice of informative
    # features.
    choices.append(("plsda", {"n_components": 10, **scaling}))
    if kind == "class":
        choices += [("class_means", scaling), ("skm", scaling), ("srp", {"n_components": 20, **scaling})]
    if sample.sparse and kind == "class":
        choices.append(("information_gain", {"n_components": 500}))

    # Compare also the default method on a nonlinear feature map.
    if not sample.sparse and not sample.table:
        choices.append((key, {"gamma": 1.0, "feature_map": _fourier_map_spec(sample.X)}))

    return [_Method(_method_text(key, params), key, params) for key, params in choices]


def _fourier_map_spec(X: np.ndarray) -> JsonDict:
    """Return the spec of a map of random Fourier features for dense rows."""
    # Its gamma is 1 / (sum of the columns' variances), rounded to two digits. If all columns are
    # constant, gamma is 1.
    variance = float(X.var(axis=0).sum()) or 1.0
    return {"map": "random_fourier", "n_features": 500, "gamma": float(f"{1 / variance:.2g}")}


def _method_text(key: str, params: JsonDict) -> str:
    """Return a method as text, such as "lda gamma=1.0"."""
    words = [key]
    for name, value in params.items():
        if isinstance(value, dict):
            value = value["map"]
        words.append(f"{name}={value}")
    return " ".join(words)


def _baselines(target_kind: str) -> list[_Method]:
    """Return the three baselines for targets of a kind.

    target_kind: "class" (one label a row) or "continuous" (numbers).
    """
    constant = _MEAN
    if target_kind == "class":
        constant = _MOST_FREQUENT
    pca = _Method("pca", "", {"n_components": 10})
    return [_Method(constant, "", {}), pca, _Method(_ALL_FEATURES, "", {})]


def _average_over_folds(method: _Method, fold_results: list[MethodResult]) -> MethodResult:
    """Return a method's mean score and time over the folds.

    fold_results: the method's result on each fold. If the list is empty, the returned result says
        that there was no time for the method.

    If the fit failed on a fold, the result's score is NaN, and its field `cannot` is the error's
    message.
    """
    if not fold_results:
        return MethodResult(*method, float("nan"), cannot=f"learn a fold within {SECONDS:g} s")

    scores = [fold.score for fold in fold_results]
    score = float(np.mean(scores))
    spread = float(np.std(scores))
    seconds = float(np.mean([fold.seconds for fold in fold_results]))
    # Take the other fields from a fold on which the fit failed, or else from the last fold.
    shown = next((fold for fold in fold_results if np.isnan(fold.score)), fold_results[-1])
    return shown._replace(params=method.params, score=score, seconds=seconds, spread=spread)


def _score_method(method: _Method, extra_params: JsonDict, train: Block, test: Block) -> MethodResult:
    """Fit a method or baseline, and score held-out rows.

    extra_params: parameters that the method gets in addition to its own. They set the feature map
        of a table.
    train: rows to learn.
    test: held-out rows.

    The result's field `cannot` lists what the method cannot do. If the fit fails, the score is NaN,
    and `cannot` is the error's message.
    """
    name = method.name
    key = method.key
    params = method.params | extra_params
    start = perf_counter()
    try:
        # A baseline is scored by scikit-learn, and an estimator by its own predictions.
        # The baseline of all features has no key. It needs any estimator, for its feature map.
        if name in (_MOST_FREQUENT, _MEAN):
            return _score_constant_baseline(name, train, test)
        estimator = make(key or "pca", params).fit(train)
        if name == _ALL_FEATURES:
            return _score_linear_baseline(estimator, train, test)
        # If only the diagonal of the scatter is stored, the solution is an approximation.
        # Refine it roughly (tol=1e-3), because more digits do not change the score.
        if estimator.solution_ == "diagonal":
            estimator.refine([train], tol=1e-3)
        seconds = perf_counter() - start

        predicted = _predict_held_out(estimator, train, test)
    # Errors of stream_dr are ValueErrors.
    # scikit-learn raises a ValueError if, for example, all learned rows have the same label.
    except ValueError as e:
        return MethodResult(name, key, params, float("nan"), cannot=str(e))

    # The size is that of the state's arrays, which `pack` returns by name.
    size = sum(array.nbytes for array in pack(estimator.state_)[0].values())
    score = _accuracy_or_r2(_targets_for_sklearn(test), predicted)
    cannot = _missing_abilities_text(estimator, train.y.kind)
    rank = estimator.rank_
    return MethodResult(name, key, params, score, components=rank, seconds=seconds, bytes=size, cannot=cannot)


def _predict_held_out(estimator: Estimator, train: Block, test: Block) -> np.ndarray:
    """Predict the targets of held-out rows.

    If the estimator does not predict, a linear model predicts from its components.

    train: rows that the estimator has learned.
    test: held-out rows.
    """
    if isinstance(estimator, Predictor):
        return estimator.predict(test)
    linear = _new_linear_model(train).fit(estimator.transform(train), _targets_for_sklearn(train))
    return np.asarray(linear.predict(estimator.transform(test)))


def _score_constant_baseline(baseline: str, train: Block, test: Block) -> MethodResult:
    """Score the baseline that predicts one value for all rows.

    baseline: name of the baseline. It decides whether the value is the most frequent label of
        `train` or the mean of the targets of `train`.
    train: rows to learn.
    test: held-out rows.
    """
    from sklearn.dummy import DummyClassifier, DummyRegressor

    if baseline == _MOST_FREQUENT:
        model = DummyClassifier(strategy="most_frequent")
    else:
        model = DummyRegressor()
    # These models ignore the rows, so they get one column of zeros. The result's field `cannot`
    # continues the sentence "the method cannot …".
    model.fit(np.zeros((train.rows, 1)), _targets_for_sklearn(train))
    predicted = model.predict(np.zeros((test.rows, 1)))
    score = _accuracy_or_r2(_targets_for_sklearn(test), predicted)
    return MethodResult(baseline, key="", params={}, score=score, cannot="tell rows apart")


def _score_linear_baseline(estimator_with_feature_map: Estimator, train: Block, test: Block) -> MethodResult:
    """Score scikit-learn's linear classifier or regression on all features.

    estimator_with_feature_map: fitted estimator. If the rows are a table, the estimator's feature
        map encodes the columns as numbers.
    train: rows to learn.
    test: held-out rows.
    """
    start = perf_counter()
    X = _matrix_for_sklearn(estimator_with_feature_map, train)
    X_test = _matrix_for_sklearn(estimator_with_feature_map, test)
    model = _new_linear_model(train, standardize=not sp.issparse(X))
    model.fit(X, _targets_for_sklearn(train))
    score = _accuracy_or_r2(_targets_for_sklearn(test), model.predict(X_test))
    seconds = perf_counter() - start

    # In the table of results, the features count as components. scikit-learn needs the values of
    # all rows at once, so they count as the model's bytes.
    cannot = "reduce, merge, unlearn, learn row by row"
    size = X.data.nbytes
    return MethodResult(_ALL_FEATURES, "", {}, score, X.shape[1], seconds=seconds, bytes=size, cannot=cannot)


def _matrix_for_sklearn(estimator_with_feature_map: Estimator, block: Block) -> Rows:
    """Return the rows of a block as a matrix that scikit-learn reads.

    A table's columns are encoded by the estimator's feature map. Narrow sparse rows become dense.
    """
    X = block.X
    # `state.table` has the statistics of a table's columns. It is None for rows of numbers.
    state = estimator_with_feature_map.state_
    if isinstance(state, MappedState) and state.table is not None:
        X = map_table_rows(feature_map_of(state.feature_map), state.table, X)
    if sp.issparse(X) and X.shape[1] <= MAX_DENSE_COLUMNS:
        return X.toarray()
    return X


def _missing_abilities_text(estimator: Estimator, target_kind: str) -> str:
    """Return an estimator's missing abilities, such as "predict, merge"."""
    abilities = {
        "predict": isinstance(estimator, Predictor),
        "give probabilities": isinstance(estimator, LinearClassifier) or target_kind != "class",
        "merge": estimator.merges,
        "unlearn": estimator.additive,
        "use targets": bool(estimator.target_kinds),
    }
    return ", ".join(ability for ability, present in abilities.items() if not present)


def _new_linear_model(train: Block, standardize: bool = True) -> "Pipeline | LogisticRegression | Ridge":
    """Return an unfitted linear model of scikit-learn.

    train: rows to learn. If their targets are labels, the model is a LogisticRegression. If their
        targets are numbers, the model is a Ridge.
    standardize: True to standardise the columns first.
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if train.y.kind == "class":
        model = LogisticRegression(max_iter=1_000)
    else:
        model = Ridge()
    if standardize:
        return make_pipeline(StandardScaler(), model)
    return model


def _targets_for_sklearn(rows: Block) -> np.ndarray:
    """Return the targets of rows as an array for scikit-learn.

    Labels are returned as an array (rows,). Numbers are returned as (rows,), or as (rows, target
    columns) if there are several target columns.
    """
    if rows.y.kind == "class":
        return label_array(rows.y.targets_by_row())
    values: np.ndarray = rows.y.values
    if values.shape[1] > 1:
        return values
    return values[:, 0]


def _accuracy_or_r2(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the accuracy or R² of predicted targets.

    The score is the accuracy if the targets are labels. If the targets are floats, the score is
    R², averaged over the target columns.

    truth: true targets of the rows.
    predicted: predicted targets of the same rows.
    """
    # Numeric targets are always float64, and labels have other types.
    if truth.dtype != np.float64:
        return float((truth == predicted).mean())
    errors = ((truth - predicted) ** 2).sum(0)
    deviations = ((truth - truth.mean(0)) ** 2).sum(0)
    # A target column that is constant in these rows has deviations of 0, so its R² is not finite.
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.mean(1.0 - errors / deviations))


def _make_folds(sample: Block, in_time_order: bool) -> list[_Fold]:
    """Split the sampled rows into folds for cross-validation.

    in_time_order: True to hold out rows that come after the learned rows. False to hold out random
        rows, so that each label has about the same share of the rows in every fold.

    Raises InvalidTargets if there are too few rows or labels.
    """
    from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit

    labelled = sample.y.kind == "class"
    # `limit` is the number of folds that the targets allow. It is 0 if there is only one label,
    # because a comparison of classifiers needs at least two labels.
    # scikit-learn refuses more folds than the most frequent label has rows. On average, a fold has
    # at least FOLD_ROWS rows.
    limit = sample.rows
    if labelled:
        limit = 0
        if len(sample.y.labels) > 1:
            limit = int(np.bincount(sample.y.codes).max())
    n_folds = min(MAX_FOLDS, sample.rows // FOLD_ROWS, limit)
    if n_folds < 2:
        raise InvalidTargets(
            f"{sample.rows} rows with a target, of {len(sample.y.labels)} labels; folds need {2 * FOLD_ROWS} rows, and two "
            "labels, one of which has two rows."
        )

    if in_time_order:
        return list(TimeSeriesSplit(n_folds).split(np.zeros(sample.rows)))
    splitter = KFold
    if labelled:
        splitter = StratifiedKFold
    with warnings.catch_warnings():
        # Ignore scikit-learn's warning that a label has fewer rows than folds, which is valid.
        warnings.simplefilter("ignore")
        folds = splitter(n_folds, shuffle=True, random_state=0)
        return list(folds.split(np.zeros(sample.rows), _targets_for_sklearn(sample)))


def sample_rows_with_target(blocks: Iterable[Block], target_kind: str, progress: StageProgress) -> tuple[Block, int]:
    """Draw a uniform random sample of rows with a target.

    Returns two values:

    - The sampled rows, in their original order.
    - Number of rows from which the sample was drawn.

    target_kind: kind of the targets, "class" or "continuous". "auto": decide by the values.

    Raises InvalidTargets if no row has a target.
    """
    rng = np.random.default_rng(0)
    # Each row gets a random number, its key. The rows with the smallest keys are the sample.
    # `parts` has the candidates so far, as pairs (rows, keys). `read` and `n_bytes` count all rows.
    parts: list[tuple[Block, np.ndarray]] = []
    capacity = MAX_SAMPLE_ROWS
    read = 0
    n_bytes = 0
    for block in blocks:
        # The first batch with a target decides the kind of the targets of all batches.
        kind = parts[0][0].y.kind if parts else None
        labelled = drop_rows_without_target(_parse_block(block, target_kind, kind))[0]
        if not labelled.rows:
            continue

        # If rows are wide, the capacity shrinks, so that the sample has at most MAX_SAMPLE_BYTES.
        parts.append((labelled, rng.random(labelled.rows)))
        read += labelled.rows
        n_bytes += labelled.nbytes
        capacity = min(capacity, max(1, MAX_SAMPLE_BYTES * read // max(n_bytes, 1)))
        # Each selection copies rows, so select only when twice the capacity is held.
        if sum(part.rows for part, _ in parts) > 2 * capacity:
            parts = _select_smallest_keys(parts, capacity)
        # The total is the number so far, because the number of rows to come is not known.
        progress("read", read, read)

    if not parts:
        raise InvalidTargets("no row has a target, by which methods are compared. Pass y, or name their column.")
    return _concatenate_blocks([block for block, _ in _select_smallest_keys(parts, capacity)]), read


def _parse_block(block: Block, target_kind: str, earlier_kind: str | None) -> Block:
    """Return a batch whose rows and targets are parsed.

    The rows become an array of numbers if possible. Rows that are not numeric become a table.

    target_kind: kind of the targets, "class" or "continuous". "auto": decide by the values.
    earlier_kind: kind of the targets of the earlier batches. None for the first batch.
    """
    # Read numbers. Rows that are not numeric raise an error, and are read again as a table.
    try:
        X, names = read_rows_and_names(block, columns_found_by_name=False, as_table=False)
    except StreamDRError:
        X, names = read_rows_and_names(block, columns_found_by_name=True, as_table=True)
    # Methods are not compared on rows with several labels, so this kind is not allowed.
    kinds = ("class", "continuous")
    y = None
    if block.y is not None:
        y = parse_targets(block.y, X.shape[0], kinds, target_kind, earlier_kind)
    return block._replace(X=X, y=y, ids=None, names=names)


def _select_smallest_keys(
    rows_and_keys: list[tuple[Block, np.ndarray]], max_rows: int
) -> list[tuple[Block, np.ndarray]]:
    """Return the rows with the smallest keys.

    rows_and_keys: for each batch a pair (rows, random keys of these rows).
    max_rows: maximum number of rows to return.
    """
    all_keys = np.concatenate([keys for _, keys in rows_and_keys])
    # Exactly `max_rows` keys are smaller than the key that follows them in sorted order.
    if len(all_keys) > max_rows:
        cutoff = np.partition(all_keys, max_rows)[max_rows]
    else:
        cutoff = np.inf
    chosen = ((block, keys, np.flatnonzero(keys < cutoff)) for block, keys in rows_and_keys)
    return [(block.take(rows), keys[rows]) for block, keys, rows in chosen if len(rows)]


def _concatenate_blocks(blocks: list[Block]) -> Block:
    """Return one Block with the rows of all blocks.

    If the rows are tables, the result has every column that occurs in some block. Rows of a block
    that lacks a column have null in this column.
    """
    rows: list[Rows] = [block.X for block in blocks]
    if any(block.table for block in blocks):
        tables = [pa.table(columns_to_write(read_table(block.X, block.names))) for block in blocks]
        X: Rows = table_from_arrow(pa.concat_tables(tables, promote_options="permissive"))
    elif blocks[0].sparse:
        width = max(block.features for block in blocks)
        X = sp.vstack([pad_with_zero_columns(x, width) for x in rows], "csr")
    else:
        X = np.vstack(rows)

    # Encode the targets of all rows again, because blocks number their labels differently.
    build = class_targets if blocks[0].y.kind == "class" else continuous_targets
    y = build([target for block in blocks for target in block.y.targets_by_row()])
    return Block(X, y, names=blocks[0].names)

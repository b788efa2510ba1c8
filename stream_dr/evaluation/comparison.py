"""Compare methods by cross-validation on a sample of the rows.

A uniform sample is drawn from all rows and divided into folds. For each fold, every method that
fits the kind of rows and targets learns the other folds, as `stream-dr learn` would, and predicts
the rows of the held-out fold. If a method's solution is diagonal, it is refined.

Three baselines are scored on the same folds:

- scikit-learn's linear classifier or regression on all features,
- the same classifier or regression on principal components,
- the most frequent class, or the mean of the targets.

Rows that a method has learned would give a score that is too high, so held-out rows are scored.
All methods learn one fold before the next fold begins. So if time runs out, all methods are still
compared on the same folds.

Memory: the sample and one state. Time: reading all rows, then at most SECONDS plus the time of the
method that runs when SECONDS are over.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.aliases import JsonDict
from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import InvalidParameter, InvalidTargets, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.named_columns import numeric_rows
from stream_dr.feature_maps import feature_map as feature_map_of
from stream_dr.feature_maps.column_report import describe, map_for
from stream_dr.feature_maps.table import mapped_rows
from stream_dr.rows.batches import as_block
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.source import GivenBatches, Source
from stream_dr.rows.table_rows import arrow_from_raw, raw_from_arrow, raw_rows
from stream_dr.statistics.mapped import MappedState
from stream_dr.targets.kind import look_like_numbers
from stream_dr.targets.label_codes import label_array
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import class_targets, continuous_targets, labelled_rows

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import Pipeline

SAMPLE_ROWS = 20_000
"""Maximum number of rows in a sample."""

SAMPLE_BYTES = 64 << 20
"""Maximum number of bytes in a sample. A sample of wide rows has fewer rows."""

SECONDS = 60.0
"""Seconds after the end of reading from which on no method begins another fold."""

MAX_FOLDS = 5
"""Maximum number of folds."""

FOLD_ROWS = 20
"""Minimum number of rows for each fold."""

WARM_UP_ROWS = 32
"""Number of rows that each method learns before times are measured.

This compiles the kernels, so that no measured time includes compilation.
"""

MANY_NUMBERS = 100
"""Minimum number of columns of numeric rows for which `default_method` sets a ridge."""

MAX_DENSE_COLUMNS = 4096
"""Maximum number of columns with which sparse rows are converted to dense for scikit-learn."""

_ALL_FEATURES = "all features"
_MOST_FREQUENT = "most frequent class"
_MEAN = "mean"

# The ridge `gamma` does not depend on the units of columns, and the ridge `shrinkage` does.
# With one column in cents, shrinkage=.1 lowers LDA's accuracy from .70 to .54 on an example table.
#
# The ridge for many numbers was chosen on embeddings of 384 numbers.
# After 1,600 rows their accuracy is .860 without a ridge and .950 with the ridge.
# After 16,000 rows their accuracy is .940 without a ridge and .944 with the ridge.
RIDGES: dict[str, dict[str, Any]] = {
    "words": {"gamma": 1.0},
    "words beside columns": {"gamma": 20.0},
    "many numbers": {"shrinkage": 0.1},
    "numbers": {},
}
"""Parameters of the default ridge of a method, by the kind of the rows."""

Progress = Callable[[str, int, int], object]
"""Function called to report progress.

Its arguments are the stage ("read" or "learn"), the number of rows done, and the number of all
rows.
"""


class _Method(NamedTuple):
    """Method or baseline to compare.

    key: registry key of the estimator, "" for a baseline.
    params: parameters of the estimator.
    """

    name: str
    key: str
    params: JsonDict


@runtime_checkable
class _Predictor(Protocol):
    """An estimator that predicts targets."""

    def predict(self, X: Rows) -> np.ndarray: ...


@runtime_checkable
class _ProbabilityPredictor(Protocol):
    """An estimator that predicts probabilities of classes."""

    def predict_proba(self, X: Rows) -> np.ndarray: ...


class Compared(NamedTuple):
    """Result of one method in a comparison.

    Attributes
    ----------
    method : str
        Key of the estimator with the parameters that are not defaults, or name of the baseline.
    key : str
        Registry key of the estimator, "" for a baseline.
    params : dict
        Parameters of the estimator.
    score : float
        Mean score over the folds. NaN if the method could not learn.
    components : int
        Number of components in the last fold. For the baseline on all features, their number.
    seconds : float
        Mean number of seconds to learn a fold.
    bytes : int
        Number of bytes of the estimator's state. For the baseline on all features, of the rows.
    cannot : str
        Abilities that the method lacks, in words, or the message of its error.
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
        "accuracy" for labels, or "R2" for numbers.
    rows : int
        Number of rows in the sample.
    read : int
        Number of rows from which the sample was drawn.
    folds : int
        Number of folds that all methods learned in time.
    lines : tuple of Compared
        Results of the methods with the highest score first, then of the baselines.
    """

    measure: str
    rows: int
    read: int
    folds: int
    lines: tuple[Compared, ...]

    @property
    def best(self) -> Compared:
        """Result of the method with the highest score, baselines excluded."""
        return self.lines[0]

    def __str__(self) -> str:
        """Return a table with one line for each method."""
        lines = [f"{'method':<44} {self.measure:>8}      +-  components  seconds    memory  cannot"]
        lines += [
            f"{c.method:<44} {c.score:8.4f}  {c.spread:6.4f}  {c.components:>10}  {c.seconds:7.2f} {c.bytes / 1e6:6.1f} MB  "
            f"{c.cannot}".rstrip()
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
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods on a sample of the rows, by cross-validation.

    The sample has at most 20,000 rows and 64 MiB. It is drawn from all rows with a fixed seed.
    From 60 seconds after the end of reading, no method begins another fold.

    Raises TargetKindMismatch if rows have several labels, InvalidTargets, InvalidParameter, and
    the errors of reading the rows.

    Parameters
    ----------
    X : rows (rows, features) or Source
        Rows as the method `fit` of an estimator takes them, or a Source such as `open_source`
        returns.
    y : array (rows,), str or None
        One label or one number for each row, or the name of the column with the targets.
    target : "auto", "class" or "continuous"
        Kind of the targets if they are whole numbers, which may be labels or measurements.
    time : bool
        If True, hold out rows that come after the learned rows (TimeSeriesSplit). If False, hold
        out random rows.
    feature_map : dict or None
        Spec of the feature map that encodes a table's columns. None takes the map `text` if all
        columns are prose, else the map `table`.
    progress : callable or None
        Function called with "read" or "learn", the number of rows done, and the number of all
        rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> comparison = suggest(*load_iris(return_X_y=True))
    >>> comparison.measure, comparison.best.score > 0.95
    ('accuracy', True)
    """
    progress = progress or (lambda stage, done, total: None)
    blocks = X.events() if isinstance(X, Source) else GivenBatches([as_block(X, y)]).events()
    sample, read = _sample_rows((block for _, block in blocks), target, progress)
    if target == "auto":
        _check_labels(sample)

    table = feature_map or (map_for(sample.X, {"map": "table"}) if sample.table else {})
    map_params = {"feature_map": table} if sample.table else {}
    methods = [*_fitting_methods(sample, table), *_baselines(sample.y.kind)]
    outcomes, folds = _learn_folds(sample, methods, map_params, _make_folds(sample, time), progress)

    lines = [_mean_over_folds(method, measured[:folds]) for method, measured in zip(methods, outcomes, strict=True)]
    lines.sort(key=lambda line: (not line.key, -np.nan_to_num(line.score, nan=-np.inf)))
    if np.isnan(lines[0].score):
        raise InvalidParameter(f"no method could learn these rows: {lines[0].cannot}")
    return Comparison("accuracy" if sample.y.kind == "class" else "R2", sample.rows, read, folds, tuple(lines))


def _learn_folds(
    sample: Block,
    methods: Sequence[_Method],
    map_params: JsonDict,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    progress: Progress,
) -> tuple[list[list[Compared]], int]:
    """Score every method on every fold until SECONDS are over.

    map_params: parameters that are added to each method's own (the feature map of a table).
    folds: (numbers of rows to learn, numbers of held-out rows) of each fold.

    Returns the results of each method, one for each fold, and the number of folds that all methods
    completed.
    """
    done = 0
    total = len(methods) * len(folds) * sample.rows
    outcomes: list[list[Compared]] = [[] for _ in methods]

    with warnings.catch_warnings():
        # Estimators may warn about a fit on a sample. The caller only needs the scores.
        warnings.simplefilter("ignore")
        _compile_kernels(sample, methods, map_params)
        progress("learn", 0, total)

        deadline = perf_counter() + SECONDS
        for train, test in folds:
            learned, held_out = sample.take(train), sample.take(test)
            for method, measured in zip(methods, outcomes, strict=True):
                if perf_counter() > deadline:
                    break
                progress("learn", done := done + sample.rows, total)
                measured.append(_learn_and_score(method, map_params, learned, held_out))

    return outcomes, max(1, min(map(len, outcomes)))


def default_method(first: Block, table: JsonDict) -> tuple[str, JsonDict]:
    """Return the key and parameters of the default method for some rows.

    The method is "lda" if each row has one label, "opls" for other targets, and "pca" without
    targets.

    first: the first rows of the data.
    table: spec of the feature map that encodes a table's columns. Empty for other rows.
    """
    kind = kind_of_rows(first, table)
    words = "words" in kind
    if first.y is None:
        # Models of words and of wide rows are refined, and refine needs the number of components.
        return "pca", {"n_components": 10} if words or first.features > EXACT_WIDTH else {}
    if first.y.kind == "class":
        return "lda", RIDGES[kind]
    return "opls", RIDGES[kind] if words else {}


def kind_of_rows(rows: Block, spec: JsonDict | None) -> str:
    """Return the kind of some rows, which is a key of RIDGES.

    spec: spec of the feature map that encodes a table's columns. None for other rows.
    """
    map_name = spec["map"] if rows.table and spec else ""
    if rows.sparse or map_name == "text":
        return "words"
    if map_name == "table" and any(column.taken_for == "text" for column in describe(rows.X, spec).columns):
        return "words beside columns"
    return "many numbers" if rows.features >= MANY_NUMBERS else "numbers"


def _check_labels(sample: Block) -> None:
    """Raise InvalidTargets if the labels of the sample look like numbers or ids."""
    if look_like_numbers(sample.y):
        raise InvalidTargets(
            f"y has {len(sample.y.labels)} values in {sample.rows} rows, as numbers or ids have; say target='class' or "
            "target='continuous'."
        )


def _compile_kernels(sample: Block, methods: Iterable[_Method], map_params: JsonDict) -> None:
    """Let every method learn a few rows, which compiles its kernels.

    So the times that are measured later do not include compilation.
    """
    few = sample.take(np.linspace(0, sample.rows - 1, WARM_UP_ROWS).astype(int))
    for method in methods:
        _learn_and_score(method, map_params, few, few)


def _fitting_methods(sample: Block, table: JsonDict) -> list[_Method]:
    """Return the methods to compare on a sample, without baselines.

    table: spec of the feature map that encodes a table's columns. Empty for other rows.
    """
    kind = sample.y.kind
    key, params = default_method(sample, table)
    # Rows of words are not standardised, because their values are already weights of the words.
    words = "words" in kind_of_rows(sample, table)
    scaling: JsonDict = {} if words else {"standardize": True}

    choices: list[tuple[str, JsonDict]] = [(key, params)]
    shrunk = {"shrinkage": 0.1, **scaling}
    if shrunk != params:
        choices.append((key, shrunk))
    choices.append(("plsda", {"n_components": 10, **scaling}))
    if kind == "class":
        choices += [("class_means", scaling), ("skm", scaling), ("srp", {"n_components": 20, **scaling})]
    if sample.sparse and kind == "class":
        choices.append(("information_gain", {"n_components": 500}))
    if not sample.sparse and not sample.table:
        variance = float(sample.X.var(axis=0).sum())
        fourier = {"map": "random_fourier", "n_features": 500, "gamma": float(f"{1 / variance if variance else 1:.2g}")}
        choices.append((key, {"gamma": 1.0, "feature_map": fourier}))

    return [_Method(_method_text(key, params), key, params) for key, params in choices]


def _method_text(key: str, params: JsonDict) -> str:
    """Return a method's key and parameters as one line of text."""
    return " ".join([key, *(f"{k}={v['map'] if isinstance(v, dict) else v}" for k, v in params.items())])


def _baselines(kind: str) -> list[_Method]:
    """Return the baselines for a kind of targets.

    kind: "class" or "continuous".
    """
    constant = _MOST_FREQUENT if kind == "class" else _MEAN
    return [_Method(constant, "", {}), _Method("pca", "", {"n_components": 10}), _Method(_ALL_FEATURES, "", {})]


def _mean_over_folds(method: _Method, measured: list[Compared]) -> Compared:
    """Return the mean result of a method over its folds.

    measured: result of each fold.

    If the method failed on a fold, the mean score is NaN and the result has the error of that
    fold. Without any fold, the result says that there was no time.
    """
    if not measured:
        return Compared(*method, float("nan"), cannot=f"learn a fold within {SECONDS:g} s")

    scores = [fold.score for fold in measured]
    seconds = [fold.seconds for fold in measured]
    last = next((fold for fold in measured if np.isnan(fold.score)), measured[-1])
    return last._replace(
        params=method.params,
        score=float(np.mean(scores)),
        seconds=float(np.mean(seconds)),
        spread=float(np.std(scores)),
    )


def _learn_and_score(method: _Method, map_params: JsonDict, train: Block, test: Block) -> Compared:
    """Fit a method or baseline and score it on held-out rows.

    map_params: parameters that are added to the method's own (the feature map of a table).
    train: rows to learn.
    test: held-out rows.

    If the fit fails, the result has the score NaN and the error's message.
    """
    name, key = method.name, method.key
    params = method.params | map_params
    start = perf_counter()
    try:
        if name in (_MOST_FREQUENT, _MEAN):
            return _score_constant(name, train, test)
        estimator = make(key or "pca", params).fit(train)
        if name == _ALL_FEATURES:
            return _score_all_features(estimator, train, test)
        if estimator.solution_ == "diagonal":
            estimator.refine([train], tol=1e-3)
        seconds = perf_counter() - start

        if isinstance(estimator, _Predictor):
            predicted = estimator.predict(test)
        else:
            linear = _linear_pipeline(train).fit(estimator.transform(train), _sklearn_targets(train))
            predicted = linear.predict(estimator.transform(test))
    # The project's own errors are ValueErrors.
    # scikit-learn raises a ValueError too, for example if all learned rows have the same label.
    except ValueError as e:
        return Compared(name, key, params, float("nan"), cannot=str(e))

    size = estimator.state_bytes(estimator.n_features_in_, len(train.y.labels) or train.y.values.shape[1])
    score = _score(_sklearn_targets(test), predicted)
    return Compared(
        name, key, params, score, estimator.rank_, seconds, size, _missing_abilities(estimator, train.y.kind)
    )


def _score_constant(name: str, train: Block, test: Block) -> Compared:
    """Score the baseline that predicts the same value for all rows.

    The value is the most frequent class or the mean of the targets of `train`.

    name: name of the baseline.
    """
    from sklearn.dummy import DummyClassifier, DummyRegressor

    model = DummyClassifier(strategy="most_frequent") if name == _MOST_FREQUENT else DummyRegressor()
    predicted = model.fit(np.zeros((train.rows, 1)), _sklearn_targets(train)).predict(np.zeros((test.rows, 1)))
    return Compared(name, "", {}, _score(_sklearn_targets(test), predicted), cannot="tell rows apart")


def _score_all_features(estimator: Estimator, train: Block, test: Block) -> Compared:
    """Score scikit-learn's linear classifier or regression on all features.

    estimator: fitted estimator. Its feature map encodes the columns of a table.
    train: rows to learn.
    test: held-out rows.
    """
    X, Z = train.X, test.X
    start = perf_counter()
    state = estimator.state_
    if isinstance(state, MappedState) and state.table is not None:
        table_map = feature_map_of(state.feature_map)
        X, Z = (mapped_rows(table_map, state.table, rows) for rows in (X, Z))
    if sp.issparse(X) and X.shape[1] <= MAX_DENSE_COLUMNS:
        X, Z = X.toarray(), Z.toarray()

    predicted = _linear_pipeline(train, scaled=not sp.issparse(X)).fit(X, _sklearn_targets(train)).predict(Z)
    score = _score(_sklearn_targets(test), predicted)
    seconds = perf_counter() - start
    cannot = "reduce, merge, unlearn, learn row by row"
    return Compared(_ALL_FEATURES, "", {}, score, X.shape[1], seconds, X.data.nbytes, cannot)


def _missing_abilities(estimator: Estimator, kind: str) -> str:
    """Return the abilities that an estimator lacks, as words separated by commas.

    kind: kind of the targets, "class" or "continuous".
    """
    abilities = {
        "predict": isinstance(estimator, _Predictor),
        "give probabilities": isinstance(estimator, _ProbabilityPredictor) or kind != "class",
        "merge": estimator.merges,
        "unlearn": estimator.additive,
        "use targets": bool(estimator.target_kinds),
    }
    return ", ".join(ability for ability, present in abilities.items() if not present)


def _linear_pipeline(train: Block, scaled: bool = True) -> "Pipeline | LogisticRegression | Ridge":
    """Return an unfitted linear classifier or regression of scikit-learn.

    train: rows whose kind of targets decides between the two.
    scaled: True to standardise the columns first.
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = LogisticRegression(max_iter=1_000) if train.y.kind == "class" else Ridge()
    return make_pipeline(StandardScaler(), model) if scaled else model


def _sklearn_targets(rows: Block) -> np.ndarray:
    """Return the targets of rows as an array for scikit-learn.

    The array has labels (rows,), or numbers (rows,) or (rows, target columns).
    """
    if rows.y.kind == "class":
        return label_array(rows.y.row_labels())
    return rows.y.values if rows.y.values.shape[1] > 1 else rows.y.values[:, 0]


def _score(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Return the accuracy of labels, or the mean R² of columns of floats."""
    if truth.dtype != np.float64:
        return float((truth == predicted).mean())
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.mean(1.0 - ((truth - predicted) ** 2).sum(0) / ((truth - truth.mean(0)) ** 2).sum(0)))


def _make_folds(sample: Block, time: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (numbers of rows to learn, numbers of held-out rows) of each fold.

    Each class has the same share of the rows in all folds.

    time: True to hold out rows that come after the learned rows. Then shares may differ.

    Raises InvalidTargets if there are too few rows or labels.
    """
    from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit

    labelled = sample.y.kind == "class"
    # Each fold needs a row of the most frequent label. A comparison needs at least two labels.
    limit = sample.rows
    if labelled:
        limit = int(np.bincount(sample.y.codes).max()) if len(sample.y.labels) > 1 else 0
    n_folds = min(MAX_FOLDS, sample.rows // FOLD_ROWS, limit)
    if n_folds < 2:
        raise InvalidTargets(
            f"{sample.rows} rows with a target, of {len(sample.y.labels)} labels; folds need {2 * FOLD_ROWS} rows, and two "
            "labels, one of which has two rows."
        )

    if time:
        return list(TimeSeriesSplit(n_folds).split(np.zeros(sample.rows)))
    splitter = StratifiedKFold if labelled else KFold
    with warnings.catch_warnings():
        # scikit-learn warns if a label has fewer rows than there are folds. This is no error here.
        warnings.simplefilter("ignore")
        return list(
            splitter(n_folds, shuffle=True, random_state=0).split(np.zeros(sample.rows), _sklearn_targets(sample))
        )


def _sample_rows(blocks: Iterable[Block], target: str, progress: Progress) -> tuple[Block, int]:
    """Draw a uniform sample of the rows that have a target.

    target: "auto", or the kind of targets that the caller chose.

    Returns the sample, in the order of the rows, and the number of rows with a target.
    """
    rng = np.random.default_rng(0)
    # Each row gets a random key. The sample consists of the rows with the smallest keys.
    parts: list[tuple[Block, np.ndarray]] = []
    capacity = SAMPLE_ROWS
    read = 0
    size = 0
    for block in blocks:
        kind = parts[0][0].y.kind if parts else None
        labelled = labelled_rows(_parse_block(block, target, kind))[0]
        if not labelled.rows:
            continue

        parts.append((labelled, rng.random(labelled.rows)))
        read += labelled.rows
        size += labelled.nbytes
        capacity = min(capacity, max(1, SAMPLE_BYTES * read // max(size, 1)))
        if sum(part.rows for part, _ in parts) > 2 * capacity:
            parts = _with_smallest_keys(parts, capacity)
        progress("read", read, read)

    if not parts:
        raise InvalidTargets("no row has a target, by which methods are compared. Pass y, or name their column.")
    return _concatenate([block for block, _ in _with_smallest_keys(parts, capacity)]), read


def _parse_block(block: Block, target: str, kind: str | None) -> Block:
    """Return a batch with its rows and targets parsed.

    Rows become numbers if possible, else columns of a table.

    target: "auto", or the kind of targets that the caller chose.
    kind: kind of the targets of earlier batches. None for the first batch.
    """
    try:
        X, names = numeric_rows(block, by_name=False, table=False)
    except StreamDRError:
        X, names = numeric_rows(block, by_name=True, table=True)
    y = None if block.y is None else parse_targets(block.y, X.shape[0], ("class", "continuous"), target, kind)
    return block._replace(X=X, y=y, ids=None, names=names, checked=True)


def _with_smallest_keys(parts: list[tuple[Block, np.ndarray]], capacity: int) -> list[tuple[Block, np.ndarray]]:
    """Return the rows with the smallest keys, at most `capacity` of them.

    parts: (rows, key of each row) of each batch.
    """
    all_keys = np.concatenate([keys for _, keys in parts])
    cutoff = np.partition(all_keys, capacity)[capacity] if len(all_keys) > capacity else np.inf
    chosen = ((block, keys, np.flatnonzero(keys < cutoff)) for block, keys in parts)
    return [(block.take(rows), keys[rows]) for block, keys, rows in chosen if len(rows)]


def _concatenate(blocks: list[Block]) -> Block:
    """Return one Block of the rows of all blocks.

    A table gets the columns of all blocks. A value that a block lacks is null.
    """
    rows: list[Rows] = [block.X for block in blocks]
    if any(block.table for block in blocks):
        tables = [pa.table(arrow_from_raw(raw_rows(block.X, block.names))) for block in blocks]
        X: Rows = raw_from_arrow(pa.concat_tables(tables, promote_options="permissive"))
    elif blocks[0].sparse:
        width = max(block.features for block in blocks)
        X = sp.vstack([sp.csr_matrix((x.data, x.indices, x.indptr), shape=(x.shape[0], width)) for x in rows], "csr")
    else:
        X = np.vstack(rows)

    build = class_targets if blocks[0].y.kind == "class" else continuous_targets
    y = build([target for block in blocks for target in block.y.row_labels()])
    return Block(X, y, names=blocks[0].names)

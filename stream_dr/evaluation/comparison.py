"""Comparison: which method to take for rows with targets, by held-out folds of a sample.

A uniform sample is drawn from all rows. Every method that fits the rows and their targets learns four fifths of it, as
`stream-dr learn` would, refined where it is solved from the diagonal, and predicts the last fifth. The same is asked of what
needs no method: all features with scikit-learn's linear classifier or regression, PCA before it, and the most frequent class
or the mean.

Memory: the sample, in which a table's rows become numbers, and one state. Time: reading all rows, then at most SECONDS and
what the last method takes.

Why this way: a figure of rows that were learned flatters, and one without the plain ways beside it says nothing. All methods
get a fold before the next one begins, so that the figures of a comparison that is cut short are of the same rows.
"""

import warnings
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from stream_dr.checks import EXACT_WIDTH
from stream_dr.errors import InvalidParameter, InvalidTargets, StreamDRError
from stream_dr.estimators import make
from stream_dr.estimators.fitting.named_columns import parse_rows
from stream_dr.feature_maps import feature_map as feature_map_of
from stream_dr.feature_maps.report import describe, map_for
from stream_dr.feature_maps.table import mapped_rows
from stream_dr.rows.batches import as_block
from stream_dr.rows.block import Block, Rows, check_rows
from stream_dr.rows.source import GivenBatches, Source
from stream_dr.rows.table_rows import arrow_from_raw, raw_from_arrow, raw_rows
from stream_dr.targets.kind import look_like_numbers
from stream_dr.targets.label_codes import label_array
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import class_targets, continuous_targets, labelled_rows

SAMPLE_ROWS, SAMPLE_BYTES = 20_000, 64 << 20
"""Most rows of a sample, and most bytes of them. Wide rows are fewer."""

SECONDS = 60.0
"""No method begins to learn a fold later than this after the rows were read."""

MOST_FOLDS, FOLD_ROWS = 5, 20
"""Folds, and rows that each needs to be made."""

FEW_ROWS = 32
"""Rows that compile what learning needs."""

_ALL, _MOST_FREQUENT, _MEAN = "all features", "most frequent class", "mean"

MANY_NUMBERS = 100
"""Number of columns from which rows of numbers get a ridge."""

# gamma does not depend on the units of columns beside the words: with one of them in cents, shrinkage=.1 takes LDA's
# accuracy on the first hour's table from .70 to .54. Embeddings of 384 numbers give .860 without and .950 with their ridge
# from 1,600 rows, .940 and .944 from 16,000.
RIDGES: dict[str, dict[str, Any]] = {
    "words": {"gamma": 1.0},
    "words beside columns": {"gamma": 20.0},
    "many numbers": {"shrinkage": 0.1},
    "numbers": {},
}
"""Ridge of a model that the caller does not choose, by the kind of its rows."""

NARROW = 4096
"""Columns up to which sparse rows are made dense for scikit-learn."""

Params = dict[str, Any]
Progress = Callable[[str, int, int], object]
"""Told what is done ("read", "learn"), how many rows of it, and of how many."""


class Compared(NamedTuple):
    """One line. method: its name. key, params: the estimator's; key "" where it is none of ours. score: mean over folds,
    NaN where it could not learn. components: of the last fold, features where none are made. seconds: to learn a fold, mean.
    bytes: of its state (state_bytes), or of what it holds. cannot: in words. spread: standard deviation over folds."""

    method: str
    key: str
    params: Params
    score: float
    components: int = 0
    seconds: float = 0.0
    bytes: int = 0
    cannot: str = ""
    spread: float = 0.0


class Comparison(NamedTuple):
    """measure: "accuracy" or "R2". rows: of the sample. read: rows it was drawn from. folds: number that all methods learned
    in time. lines: methods, best first, then what stands beside them."""

    measure: str
    rows: int
    read: int
    folds: int
    lines: tuple[Compared, ...]

    @property
    def best(self) -> Compared:
        """The method of the highest score."""
        return self.lines[0]

    def __str__(self) -> str:
        """A line a method."""
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
    feature_map: Params | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the methods that fit rows and targets, on a sample.

    The sample has at most 20,000 rows and 64 MiB, drawn from all rows by a fixed seed. After 60 seconds, reading not
    counted, no method begins another fold.

    X: rows (rows, features), as `fit` of an estimator takes them, or a Source, such as `open_source` gives.
    y: one label or number a row, or the name of the column that has them.
    target: "class" or "continuous" where whole numbers leave it open.
    time: hold out later rows in the order they have, by TimeSeriesSplit, instead of random ones.
    feature_map: of a table's columns; None: `text` where prose is all there is, else `table`.
    progress: called with "read" or "learn", the rows done, and all there are.

    Raises InvalidTargets, TargetKindMismatch (several labels a row), InvalidParameter, and what reading raises.

    >>> from sklearn.datasets import load_iris
    >>> comparison = suggest(*load_iris(return_X_y=True))
    >>> comparison.measure, comparison.best.score > 0.95
    ('accuracy', True)
    """
    progress = progress or (lambda what, done, total: None)
    blocks = X.events() if isinstance(X, Source) else GivenBatches([as_block(X, y)]).events()
    sample, read = _sample((block for _, block in blocks), target, progress)
    if target == "auto":
        _check_labels(sample)

    table = feature_map or (map_for(sample.X, {"map": "table"}) if sample.table else {})
    through = {"feature_map": table} if sample.table else {}
    plain = _MOST_FREQUENT if sample.y.kind == "class" else _MEAN
    methods = [*_methods(sample, table), (plain, "", {}), ("pca", "", {"n_components": 10}), (_ALL, "", {})]
    folds = _folds(sample, time)
    done, total = 0, len(methods) * len(folds) * sample.rows
    outcomes: list[list[Compared]] = [[] for _ in methods]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits on a sample: what counts is what they score
        _compile(sample, methods, through)
        progress("learn", 0, total)
        deadline = perf_counter() + SECONDS
        for train, test in folds:
            learned, held_out = sample.take(train), sample.take(test)
            for (name, key, params), measured in zip(methods, outcomes, strict=True):
                if perf_counter() > deadline:
                    break
                progress("learn", done := done + sample.rows, total)
                measured.append(_measured(name, key, params | through, learned, held_out))

    complete = max(1, min(map(len, outcomes)))
    lines = [_line(*method, measured[:complete]) for method, measured in zip(methods, outcomes, strict=True)]
    lines.sort(key=lambda line: (not line.key, -np.nan_to_num(line.score, nan=-np.inf)))
    if np.isnan(lines[0].score):
        raise InvalidParameter(f"no method could learn these rows: {lines[0].cannot}")
    return Comparison("accuracy" if sample.y.kind == "class" else "R2", sample.rows, read, complete, tuple(lines))


def default_method(first: Block, table: Params) -> tuple[str, Params]:
    """Return key and parameters of the method for rows like these.

    That is lda for one label a row, opls for other targets and pca without.

    table: spec of the map of a table's columns.
    """
    kind = kind_of_rows(first, table)
    words = "words" in kind
    if first.y is None:
        # Refining needs the number of components.
        return "pca", {"n_components": 10} if words or first.features > EXACT_WIDTH else {}
    if first.y.kind == "class":
        return "lda", RIDGES[kind]
    return "opls", RIDGES[kind] if words else {}


def kind_of_rows(rows: Block, spec: Params | None) -> str:
    """Return the kind of rows, a key of RIDGES.

    spec: of the map of a table's columns, None without one.
    """
    map_name = spec["map"] if rows.table and spec else ""
    if rows.sparse or map_name == "text":
        return "words"
    if map_name == "table" and any(column.taken_for == "text" for column in describe(rows.X, spec).columns):
        return "words beside columns"
    return "many numbers" if rows.features >= MANY_NUMBERS else "numbers"


def _check_labels(sample: Block) -> None:
    """Raise InvalidTargets where labels look like numbers or ids."""
    if look_like_numbers(sample.y):
        raise InvalidTargets(
            f"y has {len(sample.y.labels)} values in {sample.rows} rows, as numbers or ids have; say target='class' or "
            "target='continuous'."
        )


def _compile(sample: Block, methods: Iterable[tuple[str, str, Params]], through: Params) -> None:
    """Let every method learn a few rows, so that no time that is measured or estimated has compiling in it."""
    few = sample.take(np.linspace(0, sample.rows - 1, FEW_ROWS).astype(int))
    for name, key, params in methods:
        _measured(name, key, params | through, few, few)


def _methods(sample: Block, table: Params) -> list[tuple[str, str, Params]]:
    """(name, key, parameters) of the methods that fit the rows and their targets."""
    kind = sample.y.kind
    key, params = default_method(sample, table)
    # Words are weighted already.
    words = "words" in kind_of_rows(sample, table)
    level: Params = {} if words else {"standardize": True}
    other = {"shrinkage": 0.1, **level}
    found = [(key, params), *([(key, other)] if other != params else []), ("plsda", {"n_components": 10, **level})]
    if kind == "class":
        found += [("class_means", level), ("skm", level), ("srp", {"n_components": 20, **level})]
    if sample.sparse and kind == "class":
        found.append(("information_gain", {"n_components": 500}))
    if not sample.sparse and not sample.table:
        spread = float(sample.X.var(axis=0).sum())
        fourier = {"map": "random_fourier", "n_features": 500, "gamma": float(f"{1 / spread if spread else 1:.2g}")}
        found.append((key, {"gamma": 1.0, "feature_map": fourier}))
    names = [
        [key, *(f"{k}={v['map'] if isinstance(v, dict) else v}" for k, v in params.items())] for key, params in found
    ]
    return [(" ".join(name), key, params) for name, (key, params) in zip(names, found, strict=True)]


def _line(name: str, key: str, params: Params, measured: list[Compared]) -> Compared:
    """Return the mean of what a method scored on the folds, with the error of one that failed."""
    if not measured:
        return Compared(name, key, params, float("nan"), cannot=f"learn a fold within {SECONDS:g} s")
    scores, seconds = [one.score for one in measured], [one.seconds for one in measured]
    last = next((one for one in measured if np.isnan(one.score)), measured[-1])
    spread = float(np.std(scores))
    return last._replace(params=params, score=float(np.mean(scores)), seconds=float(np.mean(seconds)), spread=spread)


def _measured(name: str, key: str, params: Params, train: Block, test: Block) -> Compared:
    """Learn rows by a method, or by what stands beside the methods (`key` is ""), and score it on others."""
    began = perf_counter()
    try:
        if name in (_MOST_FREQUENT, _MEAN):
            return _constant(name, train, test)
        estimator = make(key or "pca", params).fit(train)
        if name == _ALL:
            return _all_features(estimator.state_, train, test)
        if estimator.solution_ == "diagonal":
            estimator.refine([train], tol=1e-3)
        seconds = perf_counter() - began
        if hasattr(estimator, "predict"):
            predicted = estimator.predict(test)
        else:
            linear = _linear(train).fit(estimator.transform(train), _values(train))
            predicted = linear.predict(estimator.transform(test))
    except ValueError as e:  # ours, or scikit-learn's about a fold of a single label
        return Compared(name, key, params, float("nan"), cannot=str(e))
    size = estimator.state_bytes(estimator.n_features_in_, len(train.y.labels) or train.y.values.shape[1])
    score, cannot = _score(_values(test), predicted), _cannot(estimator, train.y.kind)
    return Compared(name, key, params, score, estimator.rank_, seconds, size, cannot)


def _constant(name: str, train: Block, test: Block) -> Compared:
    """Score scikit-learn's prediction of the most frequent class, or of the mean, for every row."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    model = DummyClassifier(strategy="most_frequent") if name == _MOST_FREQUENT else DummyRegressor()
    predicted = model.fit(np.zeros((train.rows, 1)), _values(train)).predict(np.zeros((test.rows, 1)))
    return Compared(name, "", {}, _score(_values(test), predicted), cannot="tell rows apart")


def _all_features(state: Any, train: Block, test: Block) -> Compared:
    """scikit-learn's linear classifier or regression on all columns, those that the state's map makes of a table's."""
    X, Z, began = train.X, test.X, perf_counter()
    if train.table:
        made = feature_map_of(state.feature_map)
        X, Z = (mapped_rows(made, state.table, rows) for rows in (X, Z))
    if sp.issparse(X) and X.shape[1] <= NARROW:
        X, Z = X.toarray(), Z.toarray()
    predicted = _linear(train, scaled=not sp.issparse(X)).fit(X, _values(train)).predict(Z)
    score, seconds = _score(_values(test), predicted), perf_counter() - began
    cannot = "reduce, merge, unlearn, learn row by row"
    return Compared(_ALL, "", {}, score, X.shape[1], seconds, X.data.nbytes, cannot)


def _cannot(estimator: Any, kind: str) -> str:
    able = {"predict": hasattr(estimator, "predict"), "give probabilities": hasattr(estimator, "predict_proba")}
    able |= {"merge": estimator.merges, "unlearn": estimator.additive, "use targets": bool(estimator.target_kinds)}
    return ", ".join(
        what for what, can in able.items() if not can and (kind == "class" or what != "give probabilities")
    )


def _linear(train: Block, scaled: bool = True) -> Any:
    """scikit-learn's linear classifier, or regression."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = LogisticRegression(max_iter=1_000) if train.y.kind == "class" else Ridge()
    return make_pipeline(StandardScaler(), model) if scaled else model


def _values(rows: Block) -> np.ndarray:
    """Targets as scikit-learn takes them: labels (rows,), or numbers (rows,) or (rows, k)."""
    if rows.y.kind == "class":
        return label_array(rows.y.row_labels())
    return rows.y.values if rows.y.values.shape[1] > 1 else rows.y.values[:, 0]


def _score(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Share of labels that are right; of numbers, which are floats, R2, the mean over columns."""
    if truth.dtype != np.float64:
        return float((truth == predicted).mean())
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.mean(1.0 - ((truth - predicted) ** 2).sum(0) / ((truth - truth.mean(0)) ** 2).sum(0)))


def _folds(sample: Block, time: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (rows learned, rows held out), with classes in equal shares, or the later rows held out.

    Raises InvalidTargets where rows or labels are too few.
    """
    from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit

    labelled, several = sample.y.kind == "class", len(sample.y.labels) > 1
    most = sample.rows if not labelled else int(np.bincount(sample.y.codes).max()) if several else 0
    number = min(MOST_FOLDS, sample.rows // FOLD_ROWS, most)
    if number < 2:
        raise InvalidTargets(
            f"{sample.rows} rows with a target, of {len(sample.y.labels)} labels; folds need {2 * FOLD_ROWS} rows, and two "
            "labels, one of which has two rows."
        )
    if time:
        return list(TimeSeriesSplit(number).split(np.zeros(sample.rows)))
    kind = StratifiedKFold if labelled else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels of fewer rows than folds
        return list(kind(number, shuffle=True, random_state=0).split(np.zeros(sample.rows), _values(sample)))


def _sample(blocks: Iterable[Block], target: str, progress: Progress) -> tuple[Block, int]:
    """Return a uniform sample of the rows with a target, in their order, and the number of these rows."""
    rng = np.random.default_rng(0)
    kept: list[tuple[Block, np.ndarray]] = []
    most, read, size = SAMPLE_ROWS, 0, 0
    for given in blocks:
        block = labelled_rows(_parsed(given, target, kept[0][0].y.kind if kept else None))[0]
        if not block.rows:
            continue
        kept.append((block, rng.random(block.rows)))
        read, size = read + block.rows, size + block.nbytes
        most = min(most, max(1, SAMPLE_BYTES * read // max(size, 1)))
        kept = _thinned(kept, most) if sum(part.rows for part, _ in kept) > 2 * most else kept
        progress("read", read, read)
    if not kept:
        raise InvalidTargets("no row has a target, by which methods are compared. Pass y, or name their column.")

    return _joined([block for block, _ in _thinned(kept, most)]), read


def _parsed(given: Block, target: str, known: str | None) -> Block:
    """Rows as numbers, or where they are not as a table's columns, and their targets."""
    try:
        block = parse_rows(given, by_name=False, table=False)
        check_rows(block)
    except StreamDRError:
        block = parse_rows(given, by_name=True, table=True)
    y = None if given.y is None else parse_targets(given.y, block.rows, ("class", "continuous"), target, known)
    return block._replace(y=y, ids=None)


def _thinned(kept: list[tuple[Block, np.ndarray]], most: int) -> list[tuple[Block, np.ndarray]]:
    """The `most` rows of the smallest keys."""
    keys = np.concatenate([keys for _, keys in kept])
    cut = np.partition(keys, most)[most] if len(keys) > most else np.inf
    chosen = ((block, keys, np.flatnonzero(keys < cut)) for block, keys in kept)
    return [(block.take(rows), keys[rows]) for block, keys, rows in chosen if len(rows)]


def _joined(blocks: list[Block]) -> Block:
    """The blocks as one."""
    rows: Any = [block.X for block in blocks]
    if any(block.table for block in blocks):
        tables = [pa.table(arrow_from_raw(raw_rows(block.X, block.names))) for block in blocks]
        X: Rows = raw_from_arrow(pa.concat_tables(tables, promote_options="permissive"))
    elif blocks[0].sparse:
        wide = max(block.features for block in blocks)
        X = sp.vstack([sp.csr_matrix((x.data, x.indices, x.indptr), shape=(x.shape[0], wide)) for x in rows], "csr")
    else:
        X = np.vstack(rows)
    build = class_targets if blocks[0].y.kind == "class" else continuous_targets
    y = build([target for block in blocks for target in block.y.row_labels()])
    return Block(X, y, names=blocks[0].names)

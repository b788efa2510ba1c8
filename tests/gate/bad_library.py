"""Bad inputs of the library: rows, weights, groups, ids, targets and estimators that calls refuse."""

import copy
import datetime
import decimal
import functools
from collections.abc import Callable
from typing import Any

import dask.array
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp

import stream_dr
from stream_dr import CCIPCA, LDA, OPLS, PCA
from tests.gate.outcomes import Outcome, outcome

X = np.array([[i % 3 + 0.5, i % 4, (i * i) % 5, i % 2] for i in range(12)], dtype=float)
Y = np.array(list("abcabcabcabc"))
FRAME = pd.DataFrame(X, columns=list("pqrs"))
TABLE = FRAME.assign(town=["here", "there", "here"] * 4)

Rows = dict[str, Callable[[], Any]]


def spoilt(value: Any, kind: type = float) -> np.ndarray:
    """Return the rows with one bad value."""
    rows = X.astype(kind)
    rows[3, 2] = value
    return rows


def spoilt_csr(indices: list[int], values: list[float], width: int = 4) -> sp.csr_matrix:
    """Return sparse rows of which the first has these entries, without the checks of scipy."""
    rows = sp.csr_matrix((12, width))
    rows.data = np.array(values)
    rows.indices = np.array(indices, dtype=np.int32)
    rows.indptr = np.array([0] + [len(indices)] * 12, dtype=np.int32)
    return rows


class Odd:
    """An object that is no table."""


class Liar:
    """An object with a shape and no values."""

    shape = (12, 4)


ROWS: Rows = {
    "None": lambda: None,
    "number": lambda: 3.5,
    "string": lambda: "rows",
    "bytes": lambda: b"rows",
    "object": Odd,
    "object with a shape": Liar,
    "dict": lambda: {"p": 1},
    "dict of columns": lambda: {name: X[:, i].tolist() for i, name in enumerate("pqrs")},
    "set": lambda: {1, 2},
    "generator of rows": lambda: (row for row in X),
    "0-d array": lambda: np.array(3.5),
    "1-d array": lambda: X[0],
    "3-d array": lambda: X[None],
    "list of numbers": lambda: [1.0, 2.0, 3.0, 4.0],
    "list of rows of other lengths": lambda: [[1.0, 2.0], [3.0]] * 6,
    "list of rows with a text": lambda: [[1.0, 2.0, 3.0, "x"]] * 12,
    "list of rows with numbers as text": lambda: [["1", "2", "3", "4"]] * 12,
    "list of rows with None": lambda: [[1.0, 2.0, 3.0, None]] * 12,
    "list of texts": lambda: ["a text"] * 12,
    "list of dicts with a text": lambda: [{"p": 1, "q": 2, "r": 3, "s": "x"}] * 12,
    "list of dicts of other keys": lambda: [{"a": 1, "b": 2, "c": 3, "d": 4}] * 12,
    "list of dicts with a gap": lambda: [{"p": 1, "q": 2, "r": 3, "s": None}] * 12,
    "list of dicts and lists": lambda: [{"p": 1}, [1, 2, 3, 4]] * 6,
    "list of dicts with numbers as keys": lambda: [{0: 1, 1: 2, 2: 3, 3: 4}] * 12,
    "empty list": list,
    "empty array": lambda: np.zeros((0, 4)),
    "array without columns": lambda: np.zeros((12, 0)),
    "three columns": lambda: X[:, :3],
    "five columns": lambda: np.hstack([X, X[:, :1]]),
    "NaN": lambda: spoilt(np.nan),
    "inf": lambda: spoilt(np.inf),
    "-inf": lambda: spoilt(-np.inf),
    "1e101": lambda: spoilt(1e101),
    "float32 NaN": lambda: spoilt(np.nan, np.float32),
    "float16 inf": lambda: spoilt(np.inf, np.float16),
    "complex": lambda: X + 1j,
    "datetime64": lambda: np.full((12, 4), "2024-01-01", dtype="datetime64[D]"),
    "timedelta64": lambda: np.ones((12, 4), dtype="timedelta64[s]"),
    "texts": lambda: np.full((12, 4), "x"),
    "byte texts": lambda: np.full((12, 4), b"x"),
    "numbers as texts": lambda: np.full((12, 4), "1"),
    "objects with a text": lambda: spoilt("x", object),
    "objects with None": lambda: spoilt(None, object),
    "objects with a list": lambda: spoilt([1], object),
    "objects with a huge int": lambda: spoilt(10**400, object),
    "objects with a Decimal NaN": lambda: spoilt(decimal.Decimal("nan"), object),
    "structured": lambda: np.zeros(12, dtype=[("p", "f8"), ("q", "f8")]),
    "masked": lambda: np.ma.masked_array(X, mask=X == 0.5),
    "csr with NaN": lambda: sp.csr_matrix(spoilt(np.nan)),
    "csr with inf": lambda: sp.csr_matrix(spoilt(np.inf)),
    "csr of complex": lambda: sp.csr_matrix(X + 1j),
    "csr of three columns": lambda: sp.csr_matrix(X[:, :3]),
    "csr with an index past the width": lambda: spoilt_csr([9], [1.0]),
    "csr with a negative index": lambda: spoilt_csr([-1], [1.0]),
    "csr with an index twice": lambda: spoilt_csr([1, 1], [1.0, 2.0]),
    "coo of three columns": lambda: sp.coo_matrix(X[:, :3]),
    "1-d sparse": lambda: sp.coo_array(X[0]),
    "Series": lambda: FRAME["p"],
    "frame with a text": lambda: FRAME.assign(s="x"),
    "frame with dates": lambda: FRAME.assign(s=pd.Timestamp("2024-01-01")),
    "frame with NaN": lambda: FRAME.mask(FRAME == 0.5),
    "frame with Float64 NA": lambda: FRAME.astype("Float64").mask(FRAME == 0.5),
    "frame of objects with None": lambda: FRAME.astype(object).mask(FRAME == 0.5, None),
    "frame with lists": lambda: FRAME.assign(s=[[1, 2]] * 12),
    "frame with bytes": lambda: FRAME.assign(s=b"x"),
    "frame with one name twice": lambda: FRAME.set_axis(["p", "q", "r", "p"], axis=1),
    "frame with other names": lambda: FRAME.set_axis(list("abcd"), axis=1),
    "frame with one name else": lambda: FRAME.set_axis(["p", "q", "r", "S"], axis=1),
    "frame with a column more": lambda: FRAME.assign(t=1.0),
    "frame with a column less": lambda: FRAME[["p", "q", "r"]],
    "frame with numbers as names": lambda: FRAME.set_axis([0, 1, 2, 3], axis=1),
    "frame with mixed names": lambda: FRAME.set_axis(["p", 1, "r", 2], axis=1),
    "frame with two levels of names": lambda: FRAME.set_axis(
        pd.MultiIndex.from_product([["a", "b"], ["c", "d"]]), axis=1
    ),
    "frame without rows": lambda: FRAME[:0],
    "frame without columns": lambda: FRAME[[]],
    "polars with a text": lambda: pl.from_pandas(FRAME).with_columns(s=pl.lit("x")),
    "polars with null": lambda: pl.from_pandas(FRAME).with_columns(s=pl.lit(None)),
    "polars with other names": lambda: pl.from_pandas(FRAME).rename({"s": "z"}),
    "polars with lists": lambda: pl.from_pandas(FRAME).with_columns(s=pl.lit([1, 2])),
    "polars Series": lambda: pl.Series(X[:, 0]),
    "Arrow with a text": lambda: pa.table({"p": X[:, 0], "q": X[:, 1], "r": X[:, 2], "s": Y}),
    "Arrow with null": lambda: pa.table({"p": X[:, 0], "q": X[:, 1], "r": X[:, 2], "s": pa.nulls(12, pa.float64())}),
    "Arrow with a date": lambda: pa.table({"p": X[:, 0], "q": [datetime.date(2024, 1, 1)] * 12}),
    "Arrow with one name twice": lambda: pa.Table.from_arrays([pa.array(X[:, 0])] * 2, names=["p", "p"]),
    "Arrow with structs": lambda: pa.table({"p": [{"a": 1}] * 12}),
    "Arrow with binary": lambda: pa.table({"p": [b"x"] * 12}),
    "Arrow array": lambda: pa.array(X[:, 0]),
    "Arrow without rows": lambda: pa.table({"p": pa.array([], pa.float64())}),
    "Dask with NaN": lambda: dask.array.from_array(spoilt(np.nan), chunks=(6, 4)),
    "Dask of three columns": lambda: dask.array.from_array(X[:, :3], chunks=(6, 3)),
}
"""Rows that are bad for estimators of four unnamed columns, of the columns p, q, r and s, or for all."""


@functools.cache
def fitted(kind: str) -> Any:
    """Return an estimator that has learned the rows, under names or without, or a table."""
    if kind == "table":
        return LDA(feature_map=stream_dr.table()).fit(TABLE, Y)
    return LDA().fit(FRAME if kind == "named" else X, Y)


def copied(kind: str) -> Any:
    """Return a copy of an estimator that has learned the rows."""
    return copy.deepcopy(fitted(kind))


VERBS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda rows: LDA().fit(rows, Y),
    "partial_fit": lambda rows: copied("unnamed").partial_fit(rows, Y),
    "partial_fit, named": lambda rows: copied("named").partial_fit(rows, Y),
    "transform": lambda rows: fitted("unnamed").transform(rows),
    "predict, named": lambda rows: fitted("named").predict(rows),
    "unlearn": lambda rows: copied("unnamed").unlearn(rows, Y),
    "fit, table": lambda rows: LDA(feature_map=stream_dr.table()).fit(rows, Y),
    "fit, text": lambda rows: LDA(feature_map=stream_dr.text()).fit(rows, Y),
    "transform, table": lambda rows: fitted("table").transform(rows),
}
"""Calls that receive the bad rows."""

WEIGHTS: Rows = {
    "negative": lambda: -np.ones(12),
    "NaN": lambda: np.where(np.arange(12) == 3, np.nan, 1.0),
    "inf": lambda: np.where(np.arange(12) == 3, np.inf, 1.0),
    "1e200": lambda: np.full(12, 1e200),
    "zeros": lambda: np.zeros(12),
    "eleven": lambda: np.ones(11),
    "none": list,
    "(12, 1)": lambda: np.ones((12, 1)),
    "(12, 2)": lambda: np.ones((12, 2)),
    "texts": lambda: ["x"] * 12,
    "numbers as texts": lambda: ["1"] * 12,
    "None in a list": lambda: [None, *[1.0] * 11],
    "complex": lambda: np.ones(12) * 1j,
    "bool": lambda: np.ones(12, dtype=bool),
    "datetime64": lambda: np.full(12, "2024-01-01", dtype="datetime64[D]"),
    "a number": lambda: 2.0,
    "a text": lambda: "w",
    "a dict": lambda: dict.fromkeys(range(12), 1.0),
    "a set": lambda: {1.0},
    "a generator": lambda: (1.0 for _ in range(12)),
    "Series of NA": lambda: pd.Series([None, *[1] * 11], dtype="Int64"),
    "Series of text": lambda: pd.Series(Y),
    "polars null": lambda: pl.Series([None, *[1.0] * 11]),
    "Arrow null": lambda: pa.array([None, *[1.0] * 11]),
    "Arrow text": lambda: pa.array(Y),
    "object": Odd,
}
"""Row weights."""

GROUPS: Rows = {
    "eleven": lambda: list(range(11)),
    "none": list,
    "float": lambda: np.linspace(0, 1, 12),
    "None in a list": lambda: [None, *range(11)],
    "mixed": lambda: ["a", *range(11)],
    "lists": lambda: [[1]] * 12,
    "a text": lambda: "abcabcabcabc",
    "a number": lambda: 3,
    "(12, 2)": lambda: np.zeros((12, 2), dtype=int),
    "bool": lambda: [True, False] * 6,
    "dates": lambda: [datetime.date(2024, 1, 1)] * 12,
    "a generator": lambda: iter(range(12)),
    "objects": lambda: [Odd()] * 12,
}
"""Groups of rows."""

CALLS: Rows = {
    "fit without y": lambda: LDA().fit(X),
    "fit with eleven targets": lambda: LDA().fit(X, Y[:11]),
    "fit with all targets absent": lambda: LDA().fit(X, [None] * 12),
    "fit with one class": lambda: LDA().fit(X, ["a"] * 12),
    "partial_fit with labels of another type": lambda: LDA().fit(X, Y).partial_fit(X, np.arange(12) % 3),
    "partial_fit with bool after int": lambda: LDA().fit(X, np.arange(12) % 2).partial_fit(X, [True, False] * 6),
    "partial_fit with int after bool": lambda: LDA().fit(X, [True, False] * 6).partial_fit(X, np.arange(12) % 2),
    "partial_fit with sets after labels": lambda: OPLS().fit(X, Y).partial_fit(X, [["a"], ["b", "c"]] * 6),
    "partial_fit with labels after sets": lambda: OPLS().fit(X, [["a"], ["b", "c"]] * 6).partial_fit(X, Y),
    "partial_fit with numbers after labels": lambda: OPLS().fit(X, Y).partial_fit(X, X[:, 0] + 0.25),
    "partial_fit with labels after numbers": lambda: OPLS().fit(X, X[:, 0] + 0.25).partial_fit(X, Y),
    "partial_fit with another number of targets": lambda: (
        OPLS().fit(X, X[:, :2] + 0.25).partial_fit(X, X[:, :3] + 0.25)
    ),
    "partial_fit with one target after two": lambda: OPLS().fit(X, X[:, :2] + 0.25).partial_fit(X, X[:, 0] + 0.25),
    "partial_fit with classes it does not have": lambda: LDA().partial_fit(X, Y, classes=["x", "y"]),
    "partial_fit with classes that are mixed": lambda: LDA().partial_fit(X, Y, classes=["x", 1]),
    "partial_fit with classes that are a text": lambda: LDA().partial_fit(X, Y, classes="abc"),
    "partial_fit with other classes": lambda: (
        LDA().partial_fit(X, Y, classes=list("abc")).partial_fit(X, Y, classes=["z"])
    ),
    "partial_fit with sparse after dense": lambda: LDA().fit(X, Y).partial_fit(sp.csr_matrix((12, 9)), Y),
    "partial_fit with dense after sparse": lambda: LDA().fit(sp.csr_matrix(X), Y).partial_fit(X[:, :3], Y),
    "partial_fit with a frame after an array": lambda: LDA().fit(X, Y).partial_fit(FRAME, Y),
    "partial_fit with an array after a frame": lambda: LDA().fit(FRAME, Y).partial_fit(X, Y),
    "partial_fit with a frame of one name else": lambda: PCA().fit(FRAME).partial_fit(FRAME.rename(columns={"s": "t"})),
    "target is no kind": lambda: LDA(target="labels").fit(X, Y),
    "target is continuous": lambda: LDA(target="continuous").fit(X, Y),
    "target is multilabel": lambda: LDA(target="multilabel").fit(X, Y),
    "transform before fit": lambda: LDA().transform(X),
    "predict before fit": lambda: LDA().predict(X),
    "predict without targets": lambda: PCA().fit(X).predict(X),
    "score with eleven targets": lambda: LDA().fit(X, Y).score(X, Y[:11]),
    "score with other labels": lambda: LDA().fit(X, Y).score(X, np.arange(12)),
    "merge with itself": lambda: merge_with_itself(),
    "merge with another estimator": lambda: LDA().fit(X, Y).merge(PCA().fit(X)),
    "merge with other parameters": lambda: LDA().fit(X, Y).merge(LDA(decay=0.9).fit(X, Y)),
    "merge with another width": lambda: LDA().fit(X, Y).merge(LDA().fit(X[:, :3], Y)),
    "merge with other names": lambda: LDA().fit(FRAME, Y).merge(LDA().fit(FRAME.rename(columns={"s": "t"}), Y)),
    "merge with labels of another type": lambda: LDA().fit(X, Y).merge(LDA().fit(X, np.arange(12) % 3)),
    "merge with another kind": lambda: OPLS().fit(X, Y).merge(OPLS().fit(X, X[:, 0] + 0.25)),
    "merge with another number of targets": lambda: OPLS().fit(X, X[:, :2] + 0.1).merge(OPLS().fit(X, X[:, :3] + 0.1)),
    "merge with None": lambda: LDA().fit(X, Y).merge(None),  # type: ignore[arg-type]
    "merge with a text": lambda: LDA().fit(X, Y).merge("lda"),  # type: ignore[arg-type]
    "merge of a recurrence": lambda: CCIPCA().fit(X).merge(CCIPCA().fit(X)),
    "unlearn before fit": lambda: LDA().unlearn(X, Y),
    "unlearn of more rows": lambda: LDA().fit(X[:6], Y[:6]).unlearn(X, Y),
    "unlearn of a label it does not have": lambda: LDA().fit(X, Y).unlearn(X[:3], ["z"] * 3),
    "unlearn of more rows of a label": lambda: LDA().fit(X, Y).unlearn(X[:6], ["a"] * 6),
    "unlearn without y": lambda: LDA().fit(X, Y).unlearn(X[:3]),
    "unlearn with eleven targets": lambda: LDA().fit(X, Y).unlearn(X, Y[:11]),
    "unlearn of larger rows": lambda: LDA().fit(X, Y).unlearn(X[:3] * 1e30, Y[:3]),
    "unlearn with more weight": lambda: LDA().fit(X, Y).unlearn(X[:3], Y[:3], np.full(3, 100.0)),
    "unlearn of a recurrence": lambda: CCIPCA().fit(X).unlearn(X[:3]),
    "unlearn under decay": lambda: LDA(decay=0.9).fit(X, Y).unlearn(X[:3], Y[:3]),
    "weights of a recurrence": lambda: CCIPCA().fit(X, sample_weight=np.ones(12)),
    "groups without folds": lambda: LDA().fit(X, Y, groups=list(range(12))),
    "folds by id without ids": lambda: LDA(folds=3, folds_by="id").fit(X, Y),
    "refine of other rows": lambda: LDA(scatter="diagonal").fit(X, Y).refine([(X[:6], Y[:6])]),
    "refine of no rows": lambda: LDA(scatter="diagonal").fit(X, Y).refine([]),
    "refine before fit": lambda: LDA().refine([(X, Y)]),
    "Block of eleven ids": lambda: LDA().fit(stream_dr.Block(X, Y, ids=list(range(11)))),  # type: ignore[arg-type]
    "Block and y": lambda: LDA().fit(stream_dr.Block(X, Y), Y),  # type: ignore[arg-type]
    "Block of three names": lambda: LDA().fit(stream_dr.Block(X, Y, names=("p", "q", "r"))),  # type: ignore[arg-type]
    "Block of eleven weights": lambda: LDA().fit(stream_dr.Block(X, Y, np.ones(11))),  # type: ignore[arg-type]
    "Block with NaN": lambda: LDA().fit(stream_dr.Block(spoilt(np.nan), Y)),  # type: ignore[arg-type]
    "text map of numbers": lambda: LDA(feature_map=stream_dr.text()).fit(X, Y),
    "text map of two columns": lambda: LDA(feature_map=stream_dr.text()).fit(TABLE.assign(u="a text"), Y),
    "table map, other columns": lambda: fitted("table").transform(pd.DataFrame({"a": [1]})),
    "table map, an array after a table": lambda: copied("table").partial_fit(X, Y),
    "table map, texts for numbers": lambda: copied("table").partial_fit(TABLE.assign(p="x"), Y),
    "unknown parameter": lambda: LDA().set_params(gama=1),
    "parameter of another type": lambda: LDA(n_components="2").fit(X, Y),  # type: ignore[arg-type]
    "parameter out of range": lambda: LDA(gamma=-1.0).fit(X, Y),
    "parameter changed": lambda: LDA().fit(X, Y).set_params(decay=0.5).partial_fit(X, Y),
}
"""Calls that are bad in other ways."""


def merge_with_itself() -> Any:
    """Merge an estimator with itself."""
    estimator = LDA().fit(X, Y)
    return estimator.merge(estimator)


CASES: dict[str, Callable[[], Any]] = {
    **{
        f"library | rows: {name} | {verb}": lambda make=make, call=call: call(make())
        for name, make in ROWS.items()
        for verb, call in VERBS.items()
    },
    **{
        f"library | weights: {name} | {verb}": lambda make=make, call=call: call(make())
        for name, make in WEIGHTS.items()
        for verb, call in {
            "fit": lambda weights: LDA().fit(X, Y, weights),
            "unlearn": lambda weights: LDA().fit(X, Y).unlearn(X, Y, weights),
        }.items()
    },
    **{
        f"library | groups: {name} | fit": lambda make=make: LDA(folds=3, folds_by="id").fit(X, Y, groups=make())
        for name, make in GROUPS.items()
    },
    **{f"library | {name} | call": call for name, call in CALLS.items()},
}
"""Every bad input of the library and the call that receives it."""


def library_outcome(entry: str) -> Outcome:
    """Return the outcome of a call. What an accepted call returned is not stored."""

    def call() -> str:
        CASES[entry]()
        return "yes"

    return outcome(call)

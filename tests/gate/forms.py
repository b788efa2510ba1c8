"""Forms of targets: every way in which people pass y for six rows, by name.

`FORMS` are passed as `y` to estimators. `JSON_FORMS` are keys of a JSON object, `ARROW_FORMS` columns of an Arrow
stream, and `FILE_FORMS` files with the options to read them.
"""

import collections
import datetime
import decimal
import fractions
import json
from collections.abc import Callable
from typing import Any

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp

ROWS = 6
WORDS = ["b", "a", "b", "c", "a", "c"]
WHOLE = [2, 1, 2, 3, 1, 3]
BITS = [1, 0, 1, 1, 0, 0]
TRUTHS = [True, False, True, True, False, False]
FLOATS = [2.0, 1.0, 2.0, 3.0, 1.0, 3.0]
MEASURED = [2.5, 1.25, 2.5, 3.75, 1.0, 3.0]
WORDS_GAP = ["b", None, "b", "c", "a", "c"]
WHOLE_GAP = [2, None, 2, 3, 1, 3]
FLOATS_GAP = [2.0, np.nan, 2.0, 3.0, 1.0, 3.0]
MEASURED_GAP = [2.5, np.nan, 2.5, 3.75, 1.0, 3.0]
SETS = [["b", "a"], [], ["c"], ["a"], ["b", "b"], ["c", "a"]]
SETS_GAP = [["b", "a"], None, ["c"], ["a"], ["b", "b"], ["c", "a"]]
NUMBER_SETS = [[2, 1], [], [3], [1], [2, 2], [3, 1]]
INDICATOR = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]])
TABLE = np.arange(12).reshape(6, 2) / 4
DAYS = [datetime.date(2024, 1, 1 + i % 3) for i in range(6)]
TIMES = [datetime.datetime(2024, 1, 1 + i % 3) for i in range(6)]
DECIMALS = [decimal.Decimal(text) for text in ("2.5", "1.25", "2.5", "3.75", "1.0", "3.0")]
WIDE = [2**63, 2**63 + 1, 2**63, 2**64 - 1, 2**63 + 1, 2**64 - 1]

Forms = dict[str, Callable[[], Any]]


class Count(int):
    """An integer of a class of its own."""


class Name(str):
    """A text of a class of its own."""


class Opaque:
    """An object that is no label."""


class Numbers:
    """An object that numpy reads, and nothing else does."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(WHOLE, dtype=dtype)


def masked(values: list[Any], **kind: Any) -> Any:
    """Return a masked array whose second value is missing."""
    return np.ma.masked_array(values, mask=[False, True, False, False, False, False], **kind)


def nested(kind: str) -> pd.Series:
    """Return a column of pandas that holds lists."""
    return pd.Series([np.array(labels) if kind == "array" else labels for labels in SETS])


PLAIN: Forms = {
    "list of str": lambda: WORDS,
    "list of int": lambda: WHOLE,
    "list of bool": lambda: TRUTHS,
    "list of 0 and 1": lambda: BITS,
    "list of whole float": lambda: FLOATS,
    "list of float": lambda: MEASURED,
    "list of None": lambda: [None] * 6,
    "list of NaN": lambda: [np.nan] * 6,
    "list of str and None": lambda: WORDS_GAP,
    "list of str and NaN": lambda: ["b", np.nan, "b", "c", "a", "c"],
    "list of int and None": lambda: WHOLE_GAP,
    "list of int and NaN": lambda: [2, np.nan, 2, 3, 1, 3],
    "list of bool and None": lambda: [True, None, True, False, False, False],
    "list of float and None": lambda: [2.5, None, 2.5, 3.75, 1.0, 3.0],
    "list of whole float and NaN": lambda: FLOATS_GAP,
    "list of float and NaN": lambda: MEASURED_GAP,
    "list of float and inf": lambda: [2.5, np.inf, 2.5, 3.75, 1.0, 3.0],
    "list of float and -inf": lambda: [2.5, -np.inf, 2.5, 3.75, 1.0, 3.0],
    "list of float and 1e101": lambda: [2.5, 1e101, 2.5, 3.75, 1.0, 3.0],
    "list of int and float": lambda: [2, 1.5, 2, 3, 1, 3],
    "list of int and whole float": lambda: [2, 1.0, 2, 3, 1, 3],
    "list of int and bool": lambda: [2, True, 2, 3, 1, 3],
    "list of int and str": lambda: [2, "a", 2, 3, 1, 3],
    "list of str and bool": lambda: ["b", True, "b", "c", "a", "c"],
    "list of str and float": lambda: ["b", 1.5, "b", "c", "a", "c"],
    "list of str and bytes": lambda: ["b", b"a", "b", "c", "a", "c"],
    "list of bytes": lambda: [word.encode() for word in WORDS],
    "list of bytearray": lambda: [bytearray(word.encode()) for word in WORDS],
    "list of negative int": lambda: [-2, -1, -2, -3, -1, -3],
    "list of int beyond 2**63": lambda: WIDE,
    "list of int beyond 2**64": lambda: [2**64, 1, 2**64, 3, 1, 3],
    "list of int below -2**63": lambda: [-(2**63) - 1, 1, 2, 3, 1, 3],
    "list of -1 and 2**63": lambda: [-1, 2**63, -1, 2**63, -1, 2**63],
    "list of complex": lambda: [1j, 2j, 1j, 2j, 1j, 2j],
    "list of Decimal": lambda: DECIMALS,
    "list of Decimal and None": lambda: [DECIMALS[0], None, *DECIMALS[2:]],
    "list of Fraction": lambda: [fractions.Fraction(i, 2) for i in range(6)],
    "list of date": lambda: DAYS,
    "list of datetime": lambda: TIMES,
    "list of pandas Timestamp": lambda: [pd.Timestamp(day) for day in DAYS],
    "list of int subclass": lambda: [Count(i) for i in WHOLE],
    "list of str subclass": lambda: [Name(word) for word in WORDS],
    "list of object()": lambda: [Opaque() for _ in WORDS],
    "list of dict": lambda: [{"a": 1} for _ in WORDS],
    "list of range": lambda: [range(2) for _ in WORDS],
    "list of empty str": lambda: ["", "a", "", "c", "a", "c"],
    "list of blank str": lambda: [" ", "a", " a", "a ", "a", " "],
    "list of str with NUL": lambda: ["a\0", "a", "a\0", "a", "a", "a"],
    "list of lone surrogates": lambda: ["a\ud800", "a", "a", "c", "a", "c"],
    "list of composed and decomposed é": lambda: ["\u00e9", "e\u0301", "\u00e9", "e\u0301", "a", "c"],
    "list of long str": lambda: ["x" * 70_000, "a", "b", "c", "a", "c"],
    "list of numeric str": lambda: ["2", "1", "2", "3", "1", "03"],
    "list of 'nan' and 'None'": lambda: ["nan", "None", "nan", "a", "None", ""],
    "list of numpy str_": lambda: [np.str_(word) for word in WORDS],
    "list of numpy int64": lambda: [np.int64(i) for i in WHOLE],
    "list of numpy uint8": lambda: [np.uint8(i) for i in WHOLE],
    "list of numpy uint64 and int64": lambda: [np.uint64(2**63), np.int64(-1)] * 3,
    "list of numpy bool": lambda: [np.bool_(i) for i in BITS],
    "list of numpy float32": lambda: [np.float32(i) for i in MEASURED],
    "list of numpy and Python int": lambda: [np.int32(2), 1, np.int16(2), 3, 1, 3],
    "list of 0-d arrays": lambda: [np.array(i) for i in WHOLE],
    "list of pandas NA": lambda: ["b", pd.NA, "b", "c", "a", "c"],
    "list of pandas NaT": lambda: ["b", pd.NaT, "b", "c", "a", "c"],
    "list of pyarrow scalars": lambda: list(pa.array(WORDS)),
    "tuple of str": lambda: tuple(WORDS),
    "deque of str": lambda: collections.deque(WORDS),
    "range": lambda: range(6),
    "dict values": lambda: dict(enumerate(WORDS)).values(),
    "dict keys": lambda: dict.fromkeys("bacdef").keys(),
    "dict": lambda: dict(enumerate(WORDS)),
    "set": lambda: set("abcdef"),
    "frozenset": lambda: frozenset("abcdef"),
    "generator": lambda: (word for word in WORDS),
    "iterator": lambda: iter(WORDS),
    "map": lambda: map(str, WHOLE),
    "string": lambda: "bababc",
    "bytes": lambda: b"bababc",
    "bytearray": lambda: bytearray(b"bababc"),
    "memoryview": lambda: memoryview(np.array(WHOLE)),
    "None": lambda: None,
    "int": lambda: 3,
    "float": lambda: 3.5,
    "object()": Opaque,
    "object with __array__": Numbers,
    "list of five": lambda: WORDS[:5],
    "list of seven": lambda: [*WORDS, "a"],
    "empty list": list,
    "empty array": lambda: np.zeros(0),
    "one label for all": lambda: ["a"] * 6,
    "another label each row": lambda: list("abcdef"),
}

COLLECTIONS: Forms = {
    "lists of str": lambda: SETS,
    "lists of str and None": lambda: SETS_GAP,
    "lists of str and NaN": lambda: [["b", "a"], np.nan, ["c"], ["a"], ["b", "b"], ["c", "a"]],
    "lists of int": lambda: NUMBER_SETS,
    "lists of bool": lambda: [[True], [], [False], [True, False], [True], []],
    "lists of 0 and 1": lambda: INDICATOR.tolist(),
    "lists of one str": lambda: [[word] for word in WORDS],
    "lists of one int": lambda: [[i] for i in WHOLE],
    "lists of one float": lambda: [[i] for i in MEASURED],
    "lists of two float": lambda: TABLE.tolist(),
    "lists of two whole float": lambda: (TABLE * 4).tolist(),
    "lists of float of other lengths": lambda: [[0.5], [1.5, 2.5], [0.5], [1.5], [0.5], [2.5]],
    "lists of int and float": lambda: [[1, 0.5], [2, 1.5], [1, 0.5], [2, 2.5], [1, 0.5], [3, 1.5]],
    "lists of Decimal": lambda: [[value, value] for value in DECIMALS],
    "lists with a null label": lambda: [["b", None], [], ["c"], ["a"], ["b"], ["c"]],
    "lists of mixed labels": lambda: [["b", 1], [], ["c"], ["a"], ["b"], ["c"]],
    "lists of int and str rows": lambda: [["b"], [1], ["c"], ["a"], ["b"], ["c"]],
    "lists of lists": lambda: [[["b"], ["a"]]] * 6,
    "lists and labels": lambda: [["b"], "a", ["c"], ["a"], ["b"], ["c"]],
    "lists of bytes": lambda: [[b"b"], [b"a"], [b"c"], [b"a"], [b"b"], [b"c"]],
    "lists of lone surrogates": lambda: [["a\ud800"], [], ["c"], ["a"], ["b"], ["c"]],
    "lists of empty str": lambda: [[""], [], ["c"], ["a", ""], ["b"], ["c"]],
    "empty lists": lambda: [[] for _ in WORDS],
    "empty lists and None": lambda: [[], None, [], None, [], []],
    "tuples of str": lambda: [tuple(labels) for labels in SETS],
    "tuple of tuples": lambda: tuple(tuple(labels) for labels in SETS),
    "sets of str": lambda: [set(labels[:1]) for labels in SETS],
    "frozensets of int": lambda: [frozenset(labels) for labels in NUMBER_SETS],
    "lists, tuples and sets": lambda: [["b"], ("a",), {"c"}, frozenset("a"), ["b"], ()],
    "arrays of str": lambda: [np.array(labels, dtype=str) for labels in SETS],
    "arrays of int": lambda: [np.array(labels, dtype=int) for labels in NUMBER_SETS],
    "object array of lists": lambda: np.array([*SETS, None], dtype=object)[:6],
    "lists of five": lambda: SETS[:5],
    "generators in a list": lambda: [(label for label in labels) for labels in SETS],
    "dicts of labels": lambda: [dict.fromkeys(labels) for labels in SETS],
    "a deque a row": lambda: [collections.deque(labels) for labels in SETS],
}

NUMBER_DTYPES = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "longdouble",
    ">i4",
    ">f8",
)

NUMPY: Forms = {
    **{f"ndarray of {kind}": lambda kind=kind: np.array(WHOLE, dtype=kind) for kind in NUMBER_DTYPES},
    **{
        f"ndarray of {kind}, measured": lambda kind=kind: np.array(MEASURED, dtype=kind)
        for kind in ("float16", "float32", "float64", "longdouble", ">f8")
    },
    "ndarray of uint64 beyond 2**63": lambda: np.array(WIDE, dtype=np.uint64),
    "ndarray of whole float beyond 2**53": lambda: np.array([2.0**53, 1, 2, 3, 1, 3]),
    "ndarray of whole float and NaN": lambda: np.array(FLOATS_GAP),
    "ndarray of float and NaN": lambda: np.array(MEASURED_GAP),
    "ndarray of NaN": lambda: np.full(6, np.nan),
    "ndarray of float and inf": lambda: np.array([2.5, np.inf, 2.5, 3.75, 1.0, 3.0]),
    "ndarray of 1e101": lambda: np.array([2.5, 1e101, 2.5, 3.75, 1.0, 3.0]),
    "ndarray of -0.0": lambda: np.array([0.0, -0.0, 0.0, 1.0, 1.0, 1.0]),
    "ndarray of bool": lambda: np.array(TRUTHS),
    "ndarray of complex": lambda: np.array([1j, 2j] * 3),
    "ndarray of str": lambda: np.array(WORDS),
    "ndarray of big-endian str": lambda: np.array(WORDS, dtype=">U3"),
    "ndarray of StringDType": lambda: np.array(WORDS, dtype=np.dtypes.StringDType()),
    "ndarray of bytes": lambda: np.array(WORDS, dtype="S"),
    "ndarray of lone surrogates": lambda: np.array(["a\ud800", "a", "a", "c", "a", "c"]),
    "ndarray of empty str": lambda: np.array(["", "a", "", "c", "a", "c"]),
    "ndarray of datetime64": lambda: np.array(DAYS, dtype="datetime64[D]"),
    "ndarray of timedelta64": lambda: np.array(WHOLE, dtype="timedelta64[s]"),
    "ndarray of void": lambda: np.zeros(6, dtype="V4"),
    "structured ndarray": lambda: np.zeros(6, dtype=[("a", "i4"), ("b", "f8")]),
    "recarray": lambda: np.rec.array(np.zeros(6, dtype=[("a", "i4")])),
    "object ndarray of str": lambda: np.array(WORDS, dtype=object),
    "object ndarray of str and None": lambda: np.array(WORDS_GAP, dtype=object),
    "object ndarray of int": lambda: np.array(WHOLE, dtype=object),
    "object ndarray of int and None": lambda: np.array(WHOLE_GAP, dtype=object),
    "object ndarray of float and None": lambda: np.array([2.5, None, 2.5, 3.75, 1.0, 3.0], dtype=object),
    "object ndarray of int and float": lambda: np.array([2, 1.5, 2, 3, 1, 3], dtype=object),
    "object ndarray of int and whole float": lambda: np.array([2, 1.0, 2, 3, 1, 3], dtype=object),
    "object ndarray of bool": lambda: np.array(TRUTHS, dtype=object),
    "object ndarray of mixed": lambda: np.array([2, "a", 2, 3, 1, 3], dtype=object),
    "object ndarray of bytes": lambda: np.array([word.encode() for word in WORDS], dtype=object),
    "object ndarray of large int": lambda: np.array([10**30, 1, 2, 3, 1, 3], dtype=object),
    "object ndarray of None": lambda: np.array([None] * 6, dtype=object),
    "object ndarray of Decimal": lambda: np.array(DECIMALS, dtype=object),
    "read-only ndarray": lambda: np.broadcast_to(np.array(2), 6),
    "strided ndarray": lambda: np.repeat(WHOLE, 2)[::2],
    "reversed ndarray": lambda: np.array(WHOLE)[::-1],
    "ndarray (6, 1) of int": lambda: np.array(WHOLE)[:, None],
    "ndarray (6, 1) of 0 and 1": lambda: np.array(BITS)[:, None],
    "ndarray (6, 1) of bool": lambda: np.array(TRUTHS)[:, None],
    "ndarray (6, 1) of str": lambda: np.array(WORDS)[:, None],
    "ndarray (6, 1) of float": lambda: np.array(MEASURED)[:, None],
    "ndarray (6, 1) of NaN": lambda: np.full((6, 1), np.nan),
    "ndarray (6, 1) of object": lambda: np.array(WORDS_GAP, dtype=object)[:, None],
    "ndarray (1, 6)": lambda: np.array(WHOLE)[None],
    "ndarray (6, 3) of 0 and 1": lambda: INDICATOR,
    "ndarray (6, 3) of bool": lambda: INDICATOR.astype(bool),
    "ndarray (6, 3) of 0.0 and 1.0": lambda: INDICATOR.astype(float),
    "ndarray (6, 3) of uint8 0 and 1": lambda: INDICATOR.astype(np.uint8),
    "ndarray (6, 3) of 0 and 2": lambda: INDICATOR * 2,
    "ndarray (6, 3) of -1 and 1": lambda: INDICATOR * 2 - 1,
    "ndarray (6, 3) of zeros": lambda: np.zeros((6, 3)),
    "ndarray (6, 2) of float": lambda: TABLE,
    "ndarray (6, 2) of float32": lambda: TABLE.astype(np.float32),
    "ndarray (6, 2) in Fortran order": lambda: np.asfortranarray(TABLE),
    "ndarray (6, 2) with a NaN": lambda: np.where(TABLE == 0.5, np.nan, TABLE),
    "ndarray (6, 2) with a row of NaN": lambda: np.where(np.arange(6)[:, None] == 1, np.nan, TABLE),
    "ndarray (6, 2) with inf": lambda: np.where(TABLE == 0.5, np.inf, TABLE),
    "ndarray (6, 2) of str": lambda: np.array([WORDS, WORDS]).T,
    "ndarray (6, 2) of object numbers": lambda: TABLE.astype(object),
    "ndarray (6, 2) of object str": lambda: np.array([WORDS, WORDS], dtype=object).T,
    "ndarray (6, 2) of Decimal": lambda: np.array([DECIMALS, DECIMALS], dtype=object).T,
    "ndarray (6, 2) of complex": lambda: TABLE + 1j,
    "ndarray (6, 2) of datetime64": lambda: np.array([DAYS, DAYS], dtype="datetime64[D]").T,
    "ndarray (6, 0)": lambda: np.zeros((6, 0)),
    "ndarray (5, 2)": lambda: TABLE[:5],
    "ndarray (6, 1, 1)": lambda: np.zeros((6, 1, 1)),
    "0-d ndarray": lambda: np.array(3),
    "numpy scalar": lambda: np.int64(3),
    "matrix (6, 1)": lambda: np.asmatrix(WHOLE).T,
    "matrix (6, 3) of 0 and 1": lambda: np.asmatrix(INDICATOR),
    "masked array of int": lambda: masked(WHOLE),
    "masked array of int, none masked": lambda: np.ma.masked_array(WHOLE),
    "masked array of float": lambda: masked(MEASURED),
    "masked array of str": lambda: masked(WORDS),
    "masked array of object": lambda: masked(WORDS, dtype=object),
    "masked array, all masked": lambda: np.ma.masked_all(6, dtype=int),
    "masked array (6, 2)": lambda: np.ma.masked_array(TABLE, mask=TABLE == 0.5),
    "masked array (6, 3) of 0 and 1": lambda: np.ma.masked_array(INDICATOR, mask=INDICATOR > 1),
    "csr_matrix of 0 and 1": lambda: sp.csr_matrix(INDICATOR),
    "csr_array of 0 and 1": lambda: sp.csr_array(INDICATOR),
    "csc_matrix of 0 and 1": lambda: sp.csc_matrix(INDICATOR),
    "coo_matrix of 0 and 1": lambda: sp.coo_matrix(INDICATOR),
    "lil_matrix of 0 and 1": lambda: sp.lil_matrix(INDICATOR),
    "csr_matrix of bool": lambda: sp.csr_matrix(INDICATOR.astype(bool)),
    "csr_matrix of float": lambda: sp.csr_matrix(TABLE),
    "csr_matrix (6, 1)": lambda: sp.csr_matrix(np.array(WHOLE)[:, None]),
    "csr_matrix (5, 3)": lambda: sp.csr_matrix(INDICATOR[:5]),
}

PANDAS: Forms = {
    "Series of object str": lambda: pd.Series(WORDS, dtype=object),
    "Series of string": lambda: pd.Series(WORDS, dtype="string"),
    "Series of string and NA": lambda: pd.Series(WORDS_GAP, dtype="string"),
    "Series of str and None": lambda: pd.Series(WORDS_GAP, dtype=object),
    "Series of int": lambda: pd.Series(WHOLE),
    "Series of int with an odd index": lambda: pd.Series(WHOLE, index=[9, 9, 3, 2, 1, 0]),
    "Series of Int64": lambda: pd.Series(WHOLE, dtype="Int64"),
    "Series of Int64 and NA": lambda: pd.Series(WHOLE_GAP, dtype="Int64"),
    "Series of UInt64 beyond 2**63 and NA": lambda: pd.Series([2**63, None, *WIDE[2:]], dtype="UInt64"),
    "Series of int8": lambda: pd.Series(WHOLE, dtype="int8"),
    "Series of bool": lambda: pd.Series(TRUTHS),
    "Series of boolean": lambda: pd.Series(TRUTHS, dtype="boolean"),
    "Series of boolean and NA": lambda: pd.Series([True, None, *TRUTHS[2:]], dtype="boolean"),
    "Series of float": lambda: pd.Series(MEASURED),
    "Series of whole float and NaN": lambda: pd.Series(FLOATS_GAP),
    "Series of Float64 and NA": lambda: pd.Series([2.5, None, 2.5, 3.75, 1.0, 3.0], dtype="Float64"),
    "Series of whole Float64 and NA": lambda: pd.Series([2.0, None, 2.0, 3.0, 1.0, 3.0], dtype="Float64"),
    "Series of datetime": lambda: pd.Series(pd.to_datetime(DAYS)).astype("datetime64[us]"),
    "Series of datetime and NaT": lambda: pd.Series([pd.Timestamp("2024-01-01"), pd.NaT] * 3).astype("datetime64[us]"),
    "Series of timedelta": lambda: pd.Series(pd.to_timedelta(WHOLE, unit="s")).astype("timedelta64[us]"),
    "Series of period": lambda: pd.Series(pd.period_range("2024-01", periods=6, freq="M")),
    "Series of category": lambda: pd.Series(WORDS, dtype="category"),
    "Series of category and NA": lambda: pd.Series(WORDS_GAP, dtype="category"),
    "Series of category of int": lambda: pd.Series(WHOLE, dtype="category"),
    "Series of category of float": lambda: pd.Series(MEASURED, dtype="category"),
    "Series of ordered category": lambda: pd.Series(pd.Categorical(WORDS, ["c", "b", "a", "z"], ordered=True)),
    "Series of Arrow string": lambda: pd.Series(WORDS_GAP, dtype=pd.ArrowDtype(pa.string())),
    "Series of Arrow int64": lambda: pd.Series(WHOLE_GAP, dtype=pd.ArrowDtype(pa.int64())),
    "Series of Arrow double": lambda: pd.Series(MEASURED, dtype=pd.ArrowDtype(pa.float64())),
    "Series of Arrow list": lambda: pd.Series(SETS, dtype=pd.ArrowDtype(pa.list_(pa.string()))),
    "Series of sparse": lambda: pd.Series(pd.arrays.SparseArray(BITS)),
    "Series of lists": lambda: nested("list"),
    "Series of arrays": lambda: nested("array"),
    "Series of None": lambda: pd.Series([None] * 6, dtype=object),
    "Series of five": lambda: pd.Series(WORDS[:5]),
    "Categorical": lambda: pd.Categorical(WORDS),
    "Categorical and NA": lambda: pd.Categorical(WORDS_GAP),
    "Index": lambda: pd.Index(WORDS),
    "RangeIndex": lambda: pd.RangeIndex(6),
    "MultiIndex": lambda: pd.MultiIndex.from_arrays([WORDS, WHOLE]),
    "pandas array of Int64": lambda: pd.array(WHOLE_GAP, dtype="Int64"),
    "DataFrame of one column of str": lambda: pd.DataFrame({"y": WORDS}),
    "DataFrame of one column of int": lambda: pd.DataFrame({"y": WHOLE}),
    "DataFrame of one column of Int64 and NA": lambda: pd.DataFrame({"y": pd.array(WHOLE_GAP, dtype="Int64")}),
    "DataFrame of one column of category": lambda: pd.DataFrame({"y": pd.Categorical(WORDS)}),
    "DataFrame of 0 and 1": lambda: pd.DataFrame(INDICATOR, columns=list("pqr")),
    "DataFrame of bool": lambda: pd.DataFrame(INDICATOR.astype(bool), columns=list("pqr")),
    "DataFrame of float": lambda: pd.DataFrame(TABLE, columns=list("pq")),
    "DataFrame of Float64 and NA": lambda: pd.DataFrame(TABLE, columns=list("pq")).astype("Float64").mask(TABLE == 0.5),
    "DataFrame of str": lambda: pd.DataFrame({"p": WORDS, "q": WORDS}),
    "DataFrame of int and str": lambda: pd.DataFrame({"p": WHOLE, "q": WORDS}),
    "DataFrame without columns": lambda: pd.DataFrame(index=range(6)),
    "sparse DataFrame of 0 and 1": lambda: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(INDICATOR)),
}

POLARS: Forms = {
    "polars str": lambda: pl.Series(WORDS),
    "polars str and null": lambda: pl.Series(WORDS_GAP),
    "polars int": lambda: pl.Series(WHOLE),
    "polars int and null": lambda: pl.Series(WHOLE_GAP),
    "polars UInt64 beyond 2**63 and null": lambda: pl.Series([2**63, None, *WIDE[2:]], dtype=pl.UInt64),
    "polars bool": lambda: pl.Series(TRUTHS),
    "polars float": lambda: pl.Series(MEASURED),
    "polars float and null": lambda: pl.Series([2.5, None, 2.5, 3.75, 1.0, 3.0]),
    "polars Categorical": lambda: pl.Series(WORDS, dtype=pl.Categorical),
    "polars Categorical and null": lambda: pl.Series(WORDS_GAP, dtype=pl.Categorical),
    "polars Enum": lambda: pl.Series(WORDS, dtype=pl.Enum(["c", "b", "a"])),
    "polars Decimal": lambda: pl.Series(DECIMALS),
    "polars Date": lambda: pl.Series(DAYS),
    "polars Datetime": lambda: pl.Series(TIMES),
    "polars Null": lambda: pl.Series([None] * 6),
    "polars List of str": lambda: pl.Series(SETS),
    "polars List of str and null": lambda: pl.Series(SETS_GAP),
    "polars List of int": lambda: pl.Series(NUMBER_SETS),
    "polars List of float": lambda: pl.Series(TABLE.tolist()),
    "polars Array of float": lambda: pl.Series(TABLE.tolist(), dtype=pl.Array(pl.Float64, 2)),
    "polars Struct": lambda: pl.Series([{"a": i} for i in WHOLE]),
    "polars Object": lambda: pl.Series(WORDS, dtype=pl.Object),
    "polars DataFrame of one column": lambda: pl.DataFrame({"y": WORDS}),
    "polars DataFrame of 0 and 1": lambda: pl.DataFrame(INDICATOR, schema=["p", "q", "r"]),
    "polars DataFrame of float": lambda: pl.DataFrame(TABLE, schema=["p", "q"]),
    "polars LazyFrame": lambda: pl.LazyFrame({"y": WORDS}),
}


def dictionary(indices: list[int | None], values: list[Any]) -> pa.Array:
    """Return a dictionary column."""
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(values))


def fixed(values: np.ndarray, width: int, mask: list[bool] | None = None) -> pa.Array:
    """Return lists of a fixed length."""
    missing = None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), width, mask=missing)


ARROW_TYPES = {
    "int8": pa.int8,
    "int16": pa.int16,
    "int32": pa.int32,
    "int64": pa.int64,
    "uint8": pa.uint8,
    "uint16": pa.uint16,
    "uint32": pa.uint32,
    "uint64": pa.uint64,
    "float32": pa.float32,
    "float64": pa.float64,
}

ARROW: Forms = {
    **{f"Arrow {name}": lambda kind=kind: pa.array(WHOLE, kind()) for name, kind in ARROW_TYPES.items()},
    **{f"Arrow {name} and null": lambda kind=kind: pa.array(WHOLE_GAP, kind()) for name, kind in ARROW_TYPES.items()},
    "Arrow float16": lambda: pa.array(np.array(MEASURED, dtype=np.float16)),
    "Arrow float64, measured": lambda: pa.array(MEASURED),
    "Arrow float64 and null, measured": lambda: pa.array([2.5, None, 2.5, 3.75, 1.0, 3.0]),
    "Arrow float64 and NaN, measured": lambda: pa.array(MEASURED_GAP, from_pandas=False),
    "Arrow float64 and inf": lambda: pa.array([2.5, np.inf, 2.5, 3.75, 1.0, 3.0]),
    "Arrow float64 and 1e101": lambda: pa.array([2.5, 1e101, 2.5, 3.75, 1.0, 3.0]),
    "Arrow uint64 beyond 2**63": lambda: pa.array(WIDE, pa.uint64()),
    "Arrow bool": lambda: pa.array(TRUTHS),
    "Arrow bool and null": lambda: pa.array([True, None, *TRUTHS[2:]]),
    "Arrow string": lambda: pa.array(WORDS),
    "Arrow string and null": lambda: pa.array(WORDS_GAP),
    "Arrow string, empty": lambda: pa.array(["", "a", "", "c", "a", "c"]),
    "Arrow large_string": lambda: pa.array(WORDS, pa.large_string()),
    "Arrow string_view": lambda: pa.array(WORDS_GAP, pa.string_view()),
    "Arrow binary": lambda: pa.array([word.encode() for word in WORDS]),
    "Arrow fixed_size_binary": lambda: pa.array([word.encode() for word in WORDS], pa.binary(1)),
    "Arrow dictionary of string": lambda: pa.array(WORDS).dictionary_encode(),
    "Arrow dictionary of string and null": lambda: pa.array(WORDS_GAP).dictionary_encode(),
    "Arrow dictionary of int": lambda: pa.array(WHOLE).dictionary_encode(),
    "Arrow dictionary of bool": lambda: pa.array(TRUTHS).dictionary_encode(),
    "Arrow dictionary of float": lambda: pa.array(MEASURED).dictionary_encode(),
    "Arrow dictionary with unused labels": lambda: dictionary([2, 0, 2, 3, 0, 3], ["a", "z", "b", "c"]),
    "Arrow dictionary with repeated labels": lambda: dictionary([0, 1, 2, 3, 1, 3], ["b", "a", "b", "c"]),
    "Arrow dictionary with a null label": lambda: dictionary([0, 1, 0, 2, 1, 2], ["b", None, "c"]),
    "Arrow decimal128": lambda: pa.array(DECIMALS, pa.decimal128(10, 2)),
    "Arrow whole decimal128": lambda: pa.array([decimal.Decimal(i) for i in WHOLE], pa.decimal128(10, 0)),
    "Arrow date32": lambda: pa.array(DAYS),
    "Arrow timestamp": lambda: pa.array(TIMES),
    "Arrow duration": lambda: pa.array(WHOLE, pa.duration("s")),
    "Arrow time32": lambda: pa.array(WHOLE, pa.time32("s")),
    "Arrow null": lambda: pa.nulls(6),
    "Arrow list of string": lambda: pa.array(SETS),
    "Arrow list of string and null": lambda: pa.array(SETS_GAP),
    "Arrow list with a null label": lambda: pa.array([["b", None], [], ["c"], ["a"], ["b"], ["c"]]),
    "Arrow list of int": lambda: pa.array(NUMBER_SETS),
    "Arrow list of float": lambda: pa.array(TABLE.tolist()),
    "Arrow list of dictionary": lambda: pa.array(SETS, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "Arrow list of null": lambda: pa.array([[] for _ in WORDS], pa.list_(pa.null())),
    "Arrow large_list of string": lambda: pa.array(SETS, pa.large_list(pa.string())),
    "Arrow list_view of string": lambda: pa.array(SETS, pa.list_view(pa.string())),
    "Arrow fixed_size_list of float": lambda: fixed(TABLE, 2),
    "Arrow fixed_size_list of float and null": lambda: fixed(TABLE, 2, [False, True, False, False, False, False]),
    "Arrow fixed_size_list of int": lambda: fixed((TABLE * 4).astype(int), 2),
    "Arrow fixed_size_list of 0 and 1": lambda: fixed(INDICATOR, 3),
    "Arrow fixed_size_list of string": lambda: fixed(np.array([WORDS, WORDS]).T, 2),
    "Arrow fixed_size_list of one": lambda: fixed(np.array(MEASURED), 1),
    "Arrow struct": lambda: pa.array([{"a": i} for i in WHOLE]),
    "Arrow map": lambda: pa.array([[("a", i)] for i in WHOLE], pa.map_(pa.string(), pa.int64())),
    "Arrow union": lambda: pa.UnionArray.from_sparse(pa.array([0] * 6, pa.int8()), [pa.array(WHOLE)]),
    "Arrow run-end encoded": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 6], pa.int32()), pa.array([1, 2])),
    "Arrow extension bool8": lambda: pa.ExtensionArray.from_storage(pa.bool8(), pa.array(BITS, pa.int8())),
    "Arrow extension uuid": lambda: pa.array([bytes([i] * 16) for i in WHOLE], pa.uuid()),
    "Arrow slice": lambda: pa.array(["z", *WORDS, "z"])[1:7],
}

CHUNKED: Forms = {
    "Arrow five": lambda: pa.array(WORDS[:5]),
    "Arrow chunked string": lambda: pa.chunked_array([WORDS[:2], WORDS[2:]]),
    "Arrow chunked dictionary": lambda: pa.chunked_array(
        [pa.array(WORDS[:2]).dictionary_encode(), pa.array(WORDS[2:]).dictionary_encode()]
    ),
    "Arrow chunked list": lambda: pa.chunked_array([SETS[:2], SETS[2:]]),
    "Arrow chunked float": lambda: pa.chunked_array([MEASURED[:2], MEASURED[2:]]),
    "Arrow table of one column": lambda: pa.table({"y": WORDS}),
    "Arrow table of float": lambda: pa.table({"p": TABLE[:, 0], "q": TABLE[:, 1]}),
    "Arrow table of 0 and 1": lambda: pa.table({"p": INDICATOR[:, 0], "q": INDICATOR[:, 1]}),
    "Arrow record batch": lambda: pa.record_batch({"y": WORDS}),
    "Dask array of int": lambda: dask.array.from_array(np.array(WHOLE), chunks=3),
    "Dask array of str": lambda: dask.array.from_array(np.array(WORDS), chunks=3),
    "Dask Series": lambda: dask.dataframe.from_pandas(pd.Series(WORDS), npartitions=2),
    "Dask DataFrame": lambda: dask.dataframe.from_pandas(pd.DataFrame({"y": WORDS}), npartitions=2),
}

FORMS: Forms = PLAIN | COLLECTIONS | NUMPY | PANDAS | POLARS | ARROW | CHUNKED
"""Targets passed as `y`."""

JSON_FORMS: dict[str, dict[str, Any]] = {
    **{
        f"labels: {name}": {"labels": values}
        for name, values in {
            "str": WORDS,
            "int": WHOLE,
            "bool": TRUTHS,
            "whole float": FLOATS,
            "float": MEASURED,
            "str and null": WORDS_GAP,
            "int and null": WHOLE_GAP,
            "int and whole float": [2, 1.0, 2, 3, 1, 3],
            "int and str": [2, "a", 2, 3, 1, 3],
            "int and bool": [2, True, 2, 3, 1, 3],
            "int beyond 2**63": WIDE,
            "int beyond 2**64": [2**64, 1, 2, 3, 1, 3],
            "-1 and 2**63": [-1, 2**63] * 3,
            "2**53 as float": [2.0**53, 1.0, 2.0, 3.0, 1.0, 3.0],
            "empty str": ["", "a", "", "c", "a", "c"],
            "lists": SETS,
            "lists and null": SETS_GAP,
            "lists of int": NUMBER_SETS,
            "lists of bool": [[True], [], [False], [True, False], [True], []],
            "lists of float": TABLE.tolist(),
            "lists of whole float": [[1.0], [2.0], [1.0, 2.0], [], [1.0], [2.0]],
            "lists of mixed": [["b", 1], [], ["c"], ["a"], ["b"], ["c"]],
            "lists with null": [["b", None], [], ["c"], ["a"], ["b"], ["c"]],
            "lists and str": [["b"], "a", ["c"], ["a"], ["b"], ["c"]],
            "lists of lists": [[["b"]]] * 6,
            "empty lists": [[]] * 6,
            "objects": [{"a": 1}] * 6,
            "nulls": [None] * 6,
            "none": [],
            "five": WORDS[:5],
            "a string": "bababc",
            "an object": {"a": 1},
            "a number": 3,
            "null": None,
        }.items()
    },
    **{
        f"target: {name}": {"target": values}
        for name, values in {
            "float": MEASURED,
            "int": WHOLE,
            "float and null": [2.5, None, 2.5, 3.75, 1.0, 3.0],
            "float and int": [2.5, 1, 2.5, 3.75, 1, 3],
            "bool": TRUTHS,
            "str": WORDS,
            "numeric str": ["1", "2", "3", "4", "5", "6"],
            "1e101": [2.5, 1e101, 2.5, 3.75, 1.0, 3.0],
            "large int": [2.5, 2**64 - 1, 2.5, 3.75, 1.0, 3.0],
            "lists": TABLE.tolist(),
            "lists and null": [[0.5, 1.5], None, [0.5, 1.5], [1.5, 2.5], [0.5, 1.5], [2.5, 1.5]],
            "lists of one": [[value] for value in MEASURED],
            "lists of other lengths": [[0.5], [1.5, 2.5], [0.5], [1.5], [0.5], [2.5]],
            "lists with null": [[0.5, None]] * 6,
            "lists and numbers": [[0.5], 1.5, [0.5], [1.5], [0.5], [2.5]],
            "lists of lists": [[[0.5]]] * 6,
            "empty lists": [[]] * 6,
            "nulls": [None] * 6,
            "five": MEASURED[:5],
            "a number": 3,
            "a string": "1",
            "null": None,
        }.items()
    },
    "labels and target": {"labels": WORDS, "target": MEASURED},
    "label": {"label": WORDS},
    "y": {"y": WORDS},
    "neither": {},
}
"""Keys of a JSON object beside `rows`."""

ARROW_FORMS: Forms = {
    **{f"label: {name}": form for name, form in ARROW.items()},
    **{f"labels: {name}": ARROW[name] for name in ARROW if "list" in name or name in ("Arrow string", "Arrow null")},
    **{
        f"target: {name}": ARROW[name]
        for name in ARROW
        if any(
            word in name for word in ("float", "list", "decimal", "int8", "bool", "date", "null", "union", "run-end")
        )
    },
}
"""Columns of an Arrow stream beside `features`, by "column: form"."""


def csv(column: list[str]) -> str:
    """Return a CSV file with six columns of features and one of targets."""
    rows = [",".join([*map(str, unit), text]) for unit, text in zip(np.eye(6, dtype=int).tolist(), column, strict=True)]
    return "\n".join(["p,q,r,s,t,u,y", *rows, ""])


def lines(key: str, column: list[Any]) -> str:
    """Return a file of JSON objects, one a line."""
    named = [dict(zip("pqrstu", unit, strict=True)) for unit in np.eye(6).tolist()]
    return "".join(json.dumps({**row, key: value}) + "\n" for row, value in zip(named, column, strict=True))


def svm(column: list[str]) -> str:
    """Return a file in the format of libsvm."""
    return "".join(f"{target} {i + 1}:1\n" for i, target in enumerate(column))


FILE_FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "csv of str": ("a.csv", csv(WORDS), {"label": "y"}),
    "csv of int": ("a.csv", csv(["2", "1", "2", "3", "1", "3"]), {"label": "y"}),
    "csv of leading zeros": ("a.csv", csv(["007", "7", "007", "12", "7", "12"]), {"label": "y"}),
    "csv of float": ("a.csv", csv([str(value) for value in MEASURED]), {"label": "y"}),
    "csv of float as targets": ("a.csv", csv([str(value) for value in MEASURED]), {"targets": "y"}),
    "csv of float and a gap as targets": ("a.csv", csv(["2.5", "", "2.5", "3.75", "1", "3"]), {"targets": "y"}),
    "csv of str as targets": ("a.csv", csv(WORDS), {"targets": "y"}),
    "csv of str and a gap": ("a.csv", csv(["b", "", "b", "c", "a", "c"]), {"label": "y"}),
    "csv of int and a gap": ("a.csv", csv(["2", "", "2", "3", "1", "3"]), {"label": "y"}),
    "csv of NA": ("a.csv", csv(["b", "NA", "b", "c", "a", "c"]), {"label": "y"}),
    "csv of true and false": ("a.csv", csv(["true", "false", "true", "true", "false", "false"]), {"label": "y"}),
    "csv of gaps": ("a.csv", csv([""] * 6), {"label": "y"}),
    "csv of separated labels": ("a.csv", csv(["b;a", "", "c", "a", "b;b", "c;a"]), {"labels": "y", "separator": ";"}),
    "csv of two columns of labels": ("a.csv", csv(["1", "0", "1", "1", "0", "0"]), {"labels": "y,p"}),
    "csv of two columns of targets": ("a.csv", csv([str(value) for value in MEASURED]), {"targets": "y,p"}),
    "csv of dates": ("a.csv", csv([day.isoformat() for day in DAYS]), {"label": "y"}),
    "csv without the label": ("a.csv", csv(WORDS), {"label": "z"}),
    "jsonl of str": ("a.jsonl", lines("y", WORDS), {"label": "y"}),
    "jsonl of int": ("a.jsonl", lines("y", WHOLE), {"label": "y"}),
    "jsonl of bool": ("a.jsonl", lines("y", TRUTHS), {"label": "y"}),
    "jsonl of str and null": ("a.jsonl", lines("y", WORDS_GAP), {"label": "y"}),
    "jsonl of lists": ("a.jsonl", lines("y", SETS), {"labels": "y"}),
    "jsonl of lists as a label": ("a.jsonl", lines("y", SETS), {"label": "y"}),
    "jsonl of str as labels": ("a.jsonl", lines("y", WORDS), {"labels": "y"}),
    "jsonl of int and str": ("a.jsonl", lines("y", [2, "a", 2, 3, 1, 3]), {"label": "y"}),
    "jsonl of float as targets": ("a.jsonl", lines("y", MEASURED), {"targets": "y"}),
    "libsvm of int": ("a.svm", svm(["2", "1", "2", "3", "1", "3"]), {}),
    "libsvm of float": ("a.svm", svm([str(value) for value in MEASURED]), {}),
    "libsvm of float as classes": ("a.svm", svm([str(value) for value in MEASURED]), {"target": "class"}),
    "libsvm of several": ("a.svm", svm(["2,1", "", "3", "1", "2,2", "3,1"]), {"target": "multilabel"}),
    "libsvm of int as numbers": ("a.svm", svm(["2", "1", "2", "3", "1", "3"]), {"target": "continuous"}),
    "libsvm of str": ("a.svm", svm(WORDS), {}),
}
"""Name, text and options of a file."""

NAMES = list("pqrstu")


def frame(values: Any = WORDS, name: str = "y") -> pd.DataFrame:
    """Return a table of pandas with six columns of features and one of targets."""
    return pd.DataFrame(np.eye(6), columns=NAMES).assign(**{name: values})


def table(values: Any = WORDS) -> pa.Table:
    """Return a table of Arrow with six columns of features and one of targets."""
    columns = dict(zip(NAMES, np.eye(6), strict=True))
    return pa.table({**columns, "y": values})


TABLE_FORMS: dict[str, tuple[Callable[[], Any], Any]] = {
    "pandas": (frame, "y"),
    "pandas, whole": (lambda: frame(WHOLE), "y"),
    "pandas, measured": (lambda: frame(MEASURED), "y"),
    "pandas, category": (lambda: frame(pd.Categorical(WORDS)), "y"),
    "pandas, gaps": (lambda: frame(WORDS_GAP), "y"),
    "pandas, lists": (lambda: frame(SETS), "y"),
    "pandas, no such column": (frame, "z"),
    "pandas, other letter case": (frame, "Y"),
    "pandas, a number": (frame, 0),
    "pandas, a list of names": (frame, ["y"]),
    "pandas, called target": (lambda: frame(name="target"), "target"),
    "pandas, called twice": (lambda: pd.concat([frame(), frame()[["y"]]], axis=1), "y"),
    "pandas, its own column": (frame, None),
    "polars": (lambda: pl.from_pandas(frame()), "y"),
    "polars, no such column": (lambda: pl.from_pandas(frame()), "z"),
    "polars LazyFrame": (lambda: pl.from_pandas(frame()).lazy(), "y"),
    "polars LazyFrame, no such column": (lambda: pl.from_pandas(frame()).lazy(), "z"),
    "polars LazyFrame and a list": (lambda: pl.from_pandas(frame()).lazy(), WORDS),
    "Arrow": (table, "y"),
    "Arrow, dictionary": (lambda: table(pa.array(WORDS).dictionary_encode()), "y"),
    "Arrow, lists": (lambda: table(SETS), "y"),
    "Arrow, dates": (lambda: table(DAYS), "y"),
    "Arrow, no such column": (table, "z"),
    "Arrow RecordBatchReader": (lambda: table().to_reader(), "y"),
    "Arrow RecordBatchReader and a list": (lambda: table().to_reader(), WORDS),
    "Dask": (lambda: dask.dataframe.from_pandas(frame(), npartitions=2), "y"),
    "Dask, no such column": (lambda: dask.dataframe.from_pandas(frame(), npartitions=2), "z"),
    "list of dicts": (lambda: frame().to_dict("records"), "y"),
    "list of dicts, no such key": (lambda: frame().to_dict("records"), "z"),
    "ndarray": (lambda: np.eye(6), "y"),
    "csr_matrix": (lambda: sp.csr_matrix(np.eye(6)), "y"),
}
"""Table with a column of targets, and the `y` that is passed with it."""

"""Bad inputs of the service: JSON and Arrow bodies, and the routes that refuse them.

One service runs for each group of requests, over a directory of its own. A batch is posted to /partial_fit with
`check`, which tells how it would be answered. A batch that is refused is then posted without `check`, and must be
refused in the same way. So no batch is learned, and entries do not depend on their order.
"""

import contextlib
import functools
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from tests.gate.forms import ARROW, SETS
from tests.gate.outcomes import Outcome, first_sentence
from tests.support.serving import ARROW as ARROW_STREAM
from tests.support.serving import Served, arrow, in_thread, sparse_arrow, stream

X = np.array([[i % 3 + 0.5, i % 4, (i * i) % 5] for i in range(6)], dtype=float)
ROWS = X.tolist()
Y = ["b", "a", "b", "c", "a", "c"]
RECORDS = [{"age": row[0], "town": "ab"[i % 2]} for i, row in enumerate(ROWS)]
SPARSE = [{"indices": [i % 3], "values": [1.0 + i]} for i in range(6)]
LIMITS = {"max_body_bytes": 200_000, "max_json_bytes": 20_000, "max_labels": 10, "max_features": 100}

Body = tuple[bytes, str]

GROUPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "classes": ({"estimator": "lda"}, {"rows": ROWS, "labels": Y, "ids": list("uvwxyz")}),
    "sets": ({"estimator": "opls"}, {"rows": SPARSE, "labels": SETS, "n_features": 9}),
    "numbers": ({"estimator": "opls"}, {"rows": ROWS, "target": [[0.5, 1], [1, 2], [2, 3], [3, 4.5], [1, 2], [1, 1]]}),
    "names": ({"estimator": "lda"}, {"rows": [dict(zip("pqr", row, strict=True)) for row in ROWS], "labels": Y}),
    "table": (
        {"estimator": "lda", "params": {"feature_map": {"map": "table"}}},
        {"rows": RECORDS, "labels": [1, 0, 1, 1, 0, 0]},
    ),
    "weights": ({"estimator": "pca"}, {"rows": ROWS, "weights": [1.0] * 6}),
    "fresh": ({"estimator": "lda"}, {}),
}
"""Model and first batch of every group. The group "fresh" has learned nothing."""


def packed(value: Any) -> Body:
    """Return a JSON body."""
    return json.dumps(value).encode(), "application/json"


def text(content: str | bytes) -> Body:
    """Return a body that is called JSON."""
    return content.encode() if isinstance(content, str) else content, "application/json"


def batch(**columns: Any) -> Body:
    """Return an Arrow body with these columns."""
    return stream({name: pa.array(values) for name, values in columns.items()}), ARROW_STREAM


def dense(rows: Any = X, **columns: Any) -> Body:
    """Return an Arrow body of dense rows and columns."""
    return arrow(rows, **columns), ARROW_STREAM


def fixed(values: pa.Array, width: int) -> pa.Array:
    """Return lists of a fixed length."""
    return pa.FixedSizeListArray.from_arrays(values, width)


def changed(row: int, column: int, value: Any) -> list[list[Any]]:
    """Return the rows with another value."""
    rows: list[list[Any]] = [list(numbers) for numbers in ROWS]
    rows[row][column] = value
    return rows


def csr(indices: Any, values: Any, **columns: Any) -> Body:
    """Return an Arrow body of sparse rows."""
    return batch(indices=indices, values=values, **columns)


FEATURES = fixed(pa.array(X.ravel()), 3)
GOOD = {"rows": ROWS, "labels": Y}
INDICES = pa.array([[0], [1], [2], [0], [1], [2]], pa.list_(pa.int32()))
VALUES = pa.array([[1.0], [2.0], [1.0], [2.0], [1.0], [2.0]])

JSON_BODIES: dict[str, Callable[[], Body]] = {
    "empty": lambda: text(""),
    "no JSON": lambda: text("{rows"),
    "NaN": lambda: text('{"rows": [[NaN, 1, 2]]}'),
    "Infinity": lambda: text('{"rows": [[Infinity, 1, 2]]}'),
    "half": lambda: text('{"rows": [[1, 2'),
    "single quotes": lambda: text("{'rows': [[1, 2, 3]]}"),
    "trailing comma": lambda: text('{"rows": [[1, 2, 3],]}'),
    "not UTF-8": lambda: text(b'{"rows": ["\xff"]}'),
    "UTF-16": lambda: text('{"rows": [[1, 2, 3]]}'.encode("utf-16")),
    "BOM": lambda: text('\ufeff{"rows": [[1, 2, 3]], "labels": ["a"]}'),
    "lone surrogate": lambda: text('{"rows": [[1, 2, 3]], "labels": ["\\ud800"]}'),
    "deep": lambda: text("[" * 5_000 + "]" * 5_000),
    "list": lambda: packed([[1, 2, 3]]),
    "number": lambda: packed(3),
    "null": lambda: packed(None),
    "no rows key": lambda: packed({"labels": Y}),
    "other key": lambda: packed({"X": ROWS}),
    "unknown key": lambda: packed({**GOOD, "lables": Y}),
    "rows a number": lambda: packed({"rows": 3}),
    "rows an object": lambda: packed({"rows": {"a": 1}}),
    "rows null": lambda: packed({"rows": None}),
    "no rows": lambda: packed({"rows": []}),
    "row a number": lambda: packed({"rows": [1, 2, 3]}),
    "row null": lambda: packed({"rows": [ROWS[0], None]}),
    "row true": lambda: packed({"rows": [True]}),
    "row empty": lambda: packed({"rows": [[], []]}),
    "row an empty object": lambda: packed({"rows": [{}, {}]}),
    "rows of two forms": lambda: packed({"rows": [ROWS[0], {"a": 1}]}),
    "rows of texts and lists": lambda: packed({"rows": ["a text", ROWS[0]]}),
    "texts": lambda: packed({"rows": ["a text", "a text"], "labels": ["a", "b"]}),
    "empty texts": lambda: packed({"rows": ["", ""], "labels": ["a", "b"]}),
    "width 2": lambda: packed({"rows": [row[:2] for row in ROWS], "labels": Y}),
    "width 4": lambda: packed({"rows": [[*row, 1] for row in ROWS], "labels": Y}),
    "width 101": lambda: packed({"rows": [[1.0] * 101], "labels": ["a"]}),
    "rows of other lengths": lambda: packed({"rows": [[1, 2, 3], [1, 2]], "labels": ["a", "b"]}),
    "value a text": lambda: packed({**GOOD, "rows": changed(1, 1, "4")}),
    "value null": lambda: packed({**GOOD, "rows": changed(1, 1, None)}),
    "value true": lambda: packed({**GOOD, "rows": changed(1, 1, True)}),
    "value a list": lambda: packed({**GOOD, "rows": changed(1, 1, [2])}),
    "value 1e101": lambda: packed({**GOOD, "rows": changed(1, 1, 1e101)}),
    "value 1e400": lambda: text('{"rows": [[1e400, 1, 2]], "labels": ["a"]}'),
    "value 10**400": lambda: packed({**GOOD, "rows": changed(1, 1, 10**400)}),
    "value 2**70": lambda: packed({**GOOD, "rows": changed(1, 1, 2**70)}),
    "names": lambda: packed({"rows": [{"x": 1, "y": 2, "z": 3}], "labels": ["a"]}),
    "names, one else": lambda: packed({"rows": [{"p": 1, "q": 2, "R": 3}], "labels": ["a"]}),
    "names, one less": lambda: packed({"rows": [{"p": 1, "q": 2}], "labels": ["a"]}),
    "names, one more": lambda: packed({"rows": [{"p": 1, "q": 2, "r": 3, "s": 4}], "labels": ["a"]}),
    "names, one missing from a row": lambda: packed(
        {"rows": [{"p": 1, "q": 2, "r": 3}, {"p": 1, "q": 2}], "labels": ["a", "b"]}
    ),
    "names, a text": lambda: packed({"rows": [{"p": 1, "q": 2, "r": "x"}], "labels": ["a"]}),
    "names, a list": lambda: packed({"rows": [{"p": 1, "q": 2, "r": [3]}], "labels": ["a"]}),
    "names, an object": lambda: packed({"rows": [{"p": 1, "q": 2, "r": {"s": 3}}], "labels": ["a"]}),
    "names, null": lambda: packed({"rows": [{"p": 1, "q": 2, "r": None}], "labels": ["a"]}),
    "table, a text for a number": lambda: packed({"rows": [{"age": "old", "town": "a"}], "labels": [1]}),
    "table, a number for a text": lambda: packed({"rows": [{"age": 1, "town": 3}], "labels": [1]}),
    "table, no known column": lambda: packed({"rows": [{"size": 1, "city": "a"}], "labels": [1]}),
    "table, a list": lambda: packed({"rows": [{"age": [1], "town": "a"}], "labels": [1]}),
    "table, 1e101": lambda: packed({"rows": [{"age": 1e101, "town": "a"}], "labels": [1]}),
    "table, mixed": lambda: packed({"rows": [{"age": 1, "town": "a"}, {"age": "x", "town": "a"}], "labels": [1, 0]}),
    "sparse": lambda: packed({"rows": SPARSE, "labels": Y}),
    "sparse, no values": lambda: packed({"rows": [{"indices": [1]}], "labels": [["a"]]}),
    "sparse, lengths": lambda: packed({"rows": [{"indices": [1, 2], "values": [1]}], "labels": [["a"]]}),
    "sparse, a text": lambda: packed({"rows": [{"indices": [1], "values": ["a"]}], "labels": [["a"]]}),
    "sparse, null": lambda: packed({"rows": [{"indices": [1], "values": [None]}], "labels": [["a"]]}),
    "sparse, a fraction as index": lambda: packed({"rows": [{"indices": [1.5], "values": [1]}], "labels": [["a"]]}),
    "sparse, true as index": lambda: packed({"rows": [{"indices": [True], "values": [1]}], "labels": [["a"]]}),
    "sparse, a negative index": lambda: packed({"rows": [{"indices": [-1], "values": [1]}], "labels": [["a"]]}),
    "sparse, an index twice": lambda: packed({"rows": [{"indices": [1, 1], "values": [1, 2]}], "labels": [["a"]]}),
    "sparse, a huge index": lambda: packed({"rows": [{"indices": [2**40], "values": [1]}], "labels": [["a"]]}),
    "sparse, past the limit": lambda: packed({"rows": [{"indices": [500], "values": [1]}], "labels": [["a"]]}),
    "sparse, past the width": lambda: packed({"rows": SPARSE, "labels": SETS, "n_features": 2}),
    "sparse, 1e101": lambda: packed({"rows": [{"indices": [1], "values": [1e101]}], "labels": [["a"]]}),
    "n_features a text": lambda: packed({"rows": SPARSE, "labels": SETS, "n_features": "9"}),
    "n_features negative": lambda: packed({"rows": SPARSE, "labels": SETS, "n_features": -1}),
    "n_features of dense rows": lambda: packed({**GOOD, "n_features": 9}),
    "no targets": lambda: packed({"rows": ROWS}),
    "five labels": lambda: packed({"rows": ROWS, "labels": Y[:5]}),
    "labels a text": lambda: packed({"rows": ROWS, "labels": "abcabc"}),
    "labels an object": lambda: packed({"rows": ROWS, "labels": {"a": 1}}),
    "labels int": lambda: packed({"rows": ROWS, "labels": [1, 2, 1, 2, 1, 2]}),
    "labels bool": lambda: packed({"rows": ROWS, "labels": [True, False] * 3}),
    "labels mixed": lambda: packed({"rows": ROWS, "labels": ["a", 1] * 3}),
    "labels float": lambda: packed({"rows": ROWS, "labels": [0.5] * 6}),
    "labels lists": lambda: packed({"rows": ROWS, "labels": SETS}),
    "labels lists of int": lambda: packed({"rows": SPARSE, "labels": [[1]] * 6}),
    "labels lists with null": lambda: packed({"rows": SPARSE, "labels": [[None]] * 6}),
    "labels lists and texts": lambda: packed({"rows": ROWS, "labels": [["a"], "b"] * 3}),
    "labels eleven": lambda: packed({"rows": [ROWS[0]] * 11, "labels": [f"l{i}" for i in range(11)]}),
    "labels long": lambda: packed({"rows": ROWS[:1], "labels": ["x" * 5_000]}),
    "labels and target": lambda: packed({**GOOD, "target": [1.0] * 6}),
    "target": lambda: packed({"rows": ROWS, "target": [0.5] * 6}),
    "target of three": lambda: packed({"rows": ROWS, "target": [[1, 2, 3]] * 6}),
    "target of other lengths": lambda: packed({"rows": ROWS[:2], "target": [[1, 2], [1]]}),
    "target a text": lambda: packed({"rows": ROWS[:1], "target": ["1"]}),
    "target 1e101": lambda: packed({"rows": ROWS[:1], "target": [[1e101, 1]]}),
    "weights": lambda: packed({**GOOD, "weights": [1.0] * 6}),
    "weights negative": lambda: packed({"rows": ROWS, "weights": [-1.0] * 6}),
    "weights a text": lambda: packed({"rows": ROWS, "weights": ["1"] * 6}),
    "weights null": lambda: packed({"rows": ROWS, "weights": [None] * 6}),
    "weights five": lambda: packed({"rows": ROWS, "weights": [1.0] * 5}),
    "weights true": lambda: packed({"rows": ROWS, "weights": [True] * 6}),
    "weights 1e200": lambda: packed({"rows": ROWS, "weights": [1e200] * 6}),
    "weights a number": lambda: packed({"rows": ROWS, "weights": 1}),
    "ids five": lambda: packed({**GOOD, "ids": list("abcde")}),
    "ids mixed": lambda: packed({**GOOD, "ids": ["a", 1, "b", 2, "c", 3]}),
    "ids float": lambda: packed({**GOOD, "ids": [0.5] * 6}),
    "ids null": lambda: packed({**GOOD, "ids": [None] * 6}),
    "ids a text": lambda: packed({**GOOD, "ids": "abcdef"}),
    "ids 2**64": lambda: packed({**GOOD, "ids": [2**64, 1, 2, 3, 4, 5]}),
    "too large": lambda: packed({"rows": [[1.0, 2.0, 3.0]] * 2_000}),
    "another media type": lambda: (b"p,q,r\n1,2,3\n", "text/csv"),
    "Arrow called JSON": lambda: text(arrow(X, Y)),
}
"""JSON bodies."""

SINGLE_LABELS = ("int64", "bool", "float64", "binary", "date32", "null", "struct", "list of string")
"""Forms of Arrow that are tried as a column of single labels."""

ARROW_BODIES: dict[str, Callable[[], Body]] = {
    "empty": lambda: (b"", ARROW_STREAM),
    "text": lambda: (b"rows, please", ARROW_STREAM),
    "JSON called Arrow": lambda: (packed(GOOD)[0], ARROW_STREAM),
    "half a schema": lambda: (arrow(X, Y)[:50], ARROW_STREAM),
    "cut": lambda: (arrow(X, Y)[:-100], ARROW_STREAM),
    "bytes after the end": lambda: (arrow(X, Y) + b"more", ARROW_STREAM),
    "two streams": lambda: (arrow(X, Y) * 2, ARROW_STREAM),
    "the file format": lambda: (arrow_file(), ARROW_STREAM),
    "zeros": lambda: (bytes(200), ARROW_STREAM),
    "no rows": lambda: dense(X[:0], y=[]),
    "no columns": lambda: (stream({}), ARROW_STREAM),
    "width 2": lambda: dense(X[:, :2], y=Y),
    "width 4": lambda: dense(np.hstack([X, X[:, :1]]), y=Y),
    "width 101": lambda: dense(np.ones((6, 101)), y=Y),
    "NaN": lambda: dense(np.where(X == 0.5, np.nan, X), y=Y),
    "inf": lambda: dense(np.where(X == 0.5, np.inf, X), y=Y),
    "1e101": lambda: dense(np.where(X == 0.5, 1e101, X), y=Y),
    "unknown column": lambda: dense(y=Y, colour=Y),
    "no features": lambda: batch(label=Y),
    "features of lists": lambda: batch(features=ROWS, label=Y),
    "features of text": lambda: batch(features=fixed(pa.array(["x"] * 18), 3), label=Y),
    "features of int": lambda: batch(features=fixed(pa.array([1] * 18), 3), label=Y),
    "features of bool": lambda: batch(features=fixed(pa.array([True] * 18), 3), label=Y),
    "features of decimal": lambda: batch(features=fixed(pa.array([1] * 18).cast(pa.decimal128(20, 1)), 3), label=Y),
    "features of width 0": lambda: batch(features=pa.array([[]] * 6, pa.list_(pa.float64(), 0)), label=Y),
    "features with a null row": lambda: batch(features=pa.array([None, *ROWS[1:]], pa.list_(pa.float64(), 3)), label=Y),
    "features with a null": lambda: batch(features=pa.array(changed(1, 1, None), pa.list_(pa.float64(), 3)), label=Y),
    "features a number": lambda: batch(features=[1.0] * 6, label=Y),
    "features twice": lambda: (twice(), ARROW_STREAM),
    "features and indices": lambda: batch(features=FEATURES, indices=INDICES, values=VALUES, label=Y),
    "columns": lambda: batch(x=X[:, 0], y=X[:, 1], z=X[:, 2], label=Y),
    "columns, one else": lambda: batch(p=X[:, 0], q=X[:, 1], R=X[:, 2], label=Y),
    "columns, one less": lambda: batch(p=X[:, 0], q=X[:, 1], label=Y),
    "columns, one more": lambda: batch(p=X[:, 0], q=X[:, 1], r=X[:, 2], s=X[:, 2], label=Y),
    "columns, a text": lambda: batch(p=X[:, 0], q=X[:, 1], r=Y, label=Y),
    "columns, null": lambda: batch(p=X[:, 0], q=X[:, 1], r=[None, *X[1:, 2]], label=Y),
    "columns, a struct": lambda: batch(p=X[:, 0], q=X[:, 1], r=[{"a": 1}] * 6, label=Y),
    "columns, binary": lambda: batch(p=X[:, 0], q=X[:, 1], r=[b"x"] * 6, label=Y),
    "columns, lists": lambda: batch(p=X[:, 0], q=X[:, 1], r=[[1]] * 6, label=Y),
    "table, a text for a number": lambda: batch(age=Y, town=Y, label=[1] * 6),
    "table, a number for a text": lambda: batch(age=X[:, 0], town=X[:, 1], label=[1] * 6),
    "table, a date for a number": lambda: batch(age=pa.array([1] * 6, pa.date32()), town=Y, label=[1] * 6),
    "table, binary": lambda: batch(age=X[:, 0], town=[b"x"] * 6, label=[1] * 6),
    "table, no known column": lambda: batch(size=X[:, 0], city=Y, label=[1] * 6),
    "table, 1e101": lambda: batch(age=[1e101] * 6, town=Y, label=[1] * 6),
    "sparse": lambda: csr(INDICES, VALUES, label=Y),
    "sparse, no values": lambda: batch(indices=INDICES, labels=SETS),
    "sparse, no indices": lambda: batch(values=VALUES, labels=SETS),
    "sparse, lengths": lambda: csr(INDICES, [[1.0, 2.0]] * 6, labels=SETS),
    "sparse, null values": lambda: csr(INDICES, [[None]] * 6, labels=SETS),
    "sparse, a null row": lambda: csr([[0], None, [2], [0], [1], [2]], VALUES, labels=SETS),
    "sparse, texts": lambda: csr(INDICES, [["x"]] * 6, labels=SETS),
    "sparse, float indices": lambda: csr([[0.5]] * 6, VALUES, labels=SETS),
    "sparse, text indices": lambda: csr([["0"]] * 6, VALUES, labels=SETS),
    "sparse, a negative index": lambda: csr([[-1]] * 6, VALUES, labels=SETS),
    "sparse, an index twice": lambda: csr([[1, 1]] * 6, [[1.0, 2.0]] * 6, labels=SETS),
    "sparse, a huge index": lambda: csr([[2**40]] * 6, VALUES, labels=SETS),
    "sparse, past the limit": lambda: csr([[500]] * 6, VALUES, labels=SETS),
    "sparse, NaN": lambda: csr(INDICES, [[np.nan]] * 6, labels=SETS),
    "sparse, not lists": lambda: csr([0] * 6, [1.0] * 6, labels=SETS),
    "no targets": lambda: dense(),
    "label and labels": lambda: dense(label=Y, labels=SETS),
    "label and target": lambda: dense(label=Y, target=X[:, 0]),
    "label twice": lambda: (twice("label"), ARROW_STREAM),
    "labels eleven": lambda: dense(np.ones((11, 3)), y=[f"l{i}" for i in range(11)]),
    "label long": lambda: dense(y=["x" * 5_000] * 6),
    "label lone surrogate": lambda: dense(label=surrogates()),
    **{
        f"label of {name.removeprefix('Arrow ')}": lambda form=form: dense(label=form())
        for name, form in ARROW.items()
        if name.removeprefix("Arrow ")
        in ("int64", "bool", "float64", "binary", "date32", "null", "struct", "list of string")
    },
    **{
        f"labels of {name.removeprefix('Arrow ')}": lambda form=form: sets(form())
        for name, form in ARROW.items()
        if "list" in name or name in ("Arrow string", "Arrow null")
    },
    **{
        f"target of {name.removeprefix('Arrow ')}": lambda form=form: dense(target=form())
        for name, form in ARROW.items()
        if "fixed" in name or name in ("Arrow string", "Arrow bool", "Arrow float64 and inf", "Arrow float64 and null")
    },
    "weight": lambda: dense(y=Y, weight=np.ones(6)),
    "weight negative": lambda: dense(weight=-np.ones(6)),
    "weight NaN": lambda: dense(weight=np.full(6, np.nan)),
    "weight null": lambda: dense(weight=[None, *[1.0] * 5]),
    "weight of text": lambda: dense(weight=["1"] * 6),
    "weight of bool": lambda: dense(weight=[True] * 6),
    "weight of lists": lambda: dense(weight=[[1.0]] * 6),
    "weight 1e200": lambda: dense(weight=[1e200] * 6),
    "id of float": lambda: dense(y=Y, id=X[:, 0]),
    "id null": lambda: dense(y=Y, id=[None, *"abcde"]),
    "id of bool": lambda: dense(y=Y, id=[True] * 6),
    "id of lists": lambda: dense(y=Y, id=[["a"]] * 6),
    "id of binary": lambda: dense(y=Y, id=[b"a"] * 6),
    "feature:p and p": lambda: batch(**{"feature:p": X[:, 0], "p": X[:, 1], "label": Y}),
    "an empty name": lambda: batch(**{"": X[:, 0], "label": Y}),
    "too large": lambda: dense(np.ones((9_000, 3))),
    "another media type": lambda: (arrow(X, Y), "application/octet-stream"),
    "sparse of one row": lambda: (sparse_arrow(sparse_unit()), ARROW_STREAM),
}
"""Arrow bodies."""


def arrow_file() -> bytes:
    """Return rows in Arrow's file format."""
    out = io.BytesIO()
    table = pa.table({"features": FEATURES, "label": Y})
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def twice(name: str = "features") -> bytes:
    """Return a stream with two columns of one name."""
    columns = [FEATURES, pa.array(Y), FEATURES if name == "features" else pa.array(Y)]
    rows = pa.RecordBatch.from_arrays(columns, names=["features", "label", name])
    out = io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_batch(rows)
    return out.getvalue()


def surrogates() -> pa.Array:
    """Return a column of texts that are no UTF-8."""
    offsets = pa.array([0, 3, 4, 5, 6, 7, 8], pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(6, offsets, pa.py_buffer(b"\xed\xa0\x80abcde"))


def sets(column: pa.Array) -> Body:
    """Return sparse rows with a column of labels."""
    return csr(INDICES, VALUES, labels=column)


def sparse_unit() -> Any:
    """Return one sparse row."""
    return sp.csr_matrix(np.eye(3)[:1])


GROUP_OF_WORD = {
    "sparse": "sets",
    "labels": "sets",
    "n_features": "sets",
    "target": "numbers",
    "names": "names",
    "columns": "names",
    "feature:p": "names",
    "table": "table",
    "weight": "weights",
    "weights": "weights",
}
"""Group whose stream fits bodies that begin with a word. Other bodies go to "classes"."""

UNLEARN: dict[str, Body] = {
    "empty": text(""),
    "no JSON": text("{"),
    "no key": packed({}),
    "a list": packed([0]),
    "another key": packed({"rows": [0]}),
    "both keys": packed({"positions": [0], "ids": ["u"]}),
    "no positions": packed({"positions": []}),
    "a negative position": packed({"positions": [-1]}),
    "a position as text": packed({"positions": ["0"]}),
    "a fraction": packed({"positions": [0.5]}),
    "true": packed({"positions": [True]}),
    "null": packed({"positions": None}),
    "a number": packed({"positions": 0}),
    "2**63": packed({"positions": [2**63]}),
    "a position that is not there": packed({"positions": [99]}),
    "an id that is not there": packed({"ids": ["nobody"]}),
    "an id of another type": packed({"ids": [7]}),
    "an id as a list": packed({"ids": [["u"]]}),
    "an id of null": packed({"ids": [None]}),
    "a long id": packed({"ids": ["x" * 2_000]}),
    "ids a text": packed({"ids": "u"}),
    "rows of another media type": (b"positions=0", "application/x-www-form-urlencoded"),
}
"""Bodies of /unlearn."""

QUERIES: dict[str, str] = {
    "no such model": "/transform?model=none",
    "predict, no such model": "/predict?model=none",
    "an unknown query": "/transform?modle=m",
    "check of transform": "/transform?check=1",
    "wait for nothing": "/partial_fit?wait=forever",
    "check twice": "/partial_fit?check&check",
    "an unknown query of learn": "/partial_fit?chek=1",
}
"""Paths that are wrong for a good body."""


def _cases() -> Iterator[tuple[str, tuple[str, str, Callable[[], Body]]]]:
    """Yield every entry, with the group, the path and the body of its request."""
    for media, bodies in (("JSON", JSON_BODIES), ("Arrow", ARROW_BODIES)):
        for name, make in bodies.items():
            word = name.replace(",", " ").split()[0]
            fitting = GROUP_OF_WORD.get(word, "classes")
            for group in dict.fromkeys((fitting, "classes", "fresh")):
                yield f"HTTP {media} | {name} | partial_fit, {group}", (group, "/partial_fit", make)
            for path in ("transform", "predict"):
                if fitting != "weights" or path == "transform":
                    yield f"HTTP {media} | {name} | {path}, {fitting}", (fitting, f"/{path}", make)
    for name, body in UNLEARN.items():
        yield f"HTTP JSON | {name} | unlearn", ("classes", "/unlearn", lambda body=body: body)
    for name, path in QUERIES.items():
        yield f"HTTP JSON | {name} | query", ("classes", path, lambda: packed(GOOD))
    for path in ("transform", "predict"):
        yield f"HTTP JSON | nothing learned | {path}", ("fresh", f"/{path}", lambda: packed(GOOD))


CASES = dict(_cases())
"""Every bad request."""


@contextlib.contextmanager
def served_groups() -> Iterator[Callable[[str], Served]]:
    """Start a service for each group when it is first asked for. Stop all at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        @functools.cache
        def served(group: str) -> Served:
            model, rows = GROUPS[group]
            started = stack.enter_context(in_thread(folder / group, **LIMITS))
            started.http.put("/models/m", json=model).raise_for_status()
            if rows:
                started.http.post("/partial_fit?wait=applied", json=rows).raise_for_status()
            return started

        yield served


def answered(answer: httpx.Response) -> Outcome:
    """Return the status of a response, with the code and the first sentence of a problem."""
    found: Outcome = {"status": answer.status_code}
    if answer.status_code >= 400:
        problem = answer.json()
        found |= {"code": problem["code"], "says": first_sentence(problem["detail"])}
    return found


def request_outcome(entry: str, served: Callable[[str], Served]) -> Outcome:
    """Return the outcome of a request. What an accepted request returned is not stored."""
    group, path, make = CASES[entry]
    content, media = make()
    http = served(group).http
    headers = {"Content-Type": media}
    if path == "/partial_fit":
        checked = answered(http.post("/partial_fit?check=1", content=content, headers=headers))
        if checked["status"] < 400:
            return checked
        found = answered(http.post(path, content=content, headers=headers))
        return found if found == checked else {"checked": checked, "learned": found}
    return answered(http.post(path, content=content, headers=headers))

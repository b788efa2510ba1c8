"""Tables: every form in which their rows come is learned as before, to the bit where numbers are exact."""

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import stream_dr
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import block_from_json, json_from_block
from stream_dr.batch.matrix import read_table
from stream_dr.batch.table import column_values, table_kinds
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.table import map_table_rows, update_statistics
from stream_dr.feature_maps.table_columns import read_column
from stream_dr.statistics.row_hashes import table_row_hashes

ROWS = 24
START = datetime.datetime(2021, 3, 4, 5, 6, 7, 123457)
COLUMNS: dict[str, list[Any]] = {
    "number": [None if i % 7 == 0 else i * i / 8 for i in range(ROWS)],
    "whole": [None if i % 9 == 2 else i % 5 for i in range(ROWS)],
    "big": [2**60 + i % 3 for i in range(ROWS)],
    "flag": [None if i % 5 == 1 else i % 3 == 0 for i in range(ROWS)],
    "day": [None if i % 6 == 2 else START.date() + datetime.timedelta(days=37 * i) for i in range(ROWS)],
    "time": [None if i % 6 == 3 else START + datetime.timedelta(seconds=98765.4321 * i) for i in range(ROWS)],
    "word": [None if i % 8 == 4 else ["rust", "moss", "ash", "sky"][i * i % 4] for i in range(ROWS)],
    "text": [f"once there were {i % 11} bears and {i} cats" for i in range(ROWS)],
    "none": [None] * ROWS,
}
SECONDS = [10**9 + 86_399 * i for i in range(ROWS)]
TABLE = pa.table(
    {
        **COLUMNS,
        "category": pa.DictionaryArray.from_arrays(
            [[0, 3, 2, 1, None][i % 5] for i in range(ROWS)], ["a", None, "c", "a"]
        ),
        "sizes": pa.array([[40, 36, 44][i % 3] for i in range(ROWS)]).dictionary_encode(),
        "vector": pa.array([None if i == 3 else [i % 4, 2.5 * i] for i in range(ROWS)]),
        **{
            unit: pa.array(SECONDS).cast(pa.timestamp("s")).cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")
        },
        "zoned": pa.array(SECONDS).cast(pa.timestamp("s", "Europe/Berlin")),
        "decimal": pa.array([i * 3 for i in range(ROWS)]).cast(pa.decimal128(25, 3)),
        "small": pa.array(range(ROWS), pa.uint8()),
        "large": pa.array([["x", "é"][i % 2] for i in range(ROWS)], pa.large_string()),
    }
)
ARRAY = np.column_stack([np.arange(ROWS) % 5, np.where(np.arange(ROWS) % 4, 0.5, np.nan), 1e17 * np.arange(ROWS)])
DICTS = pa.table(COLUMNS).to_pylist()
JSON = [{k: v if v is None or k in ("flag", "big") else str(v) for k, v in row.items()} for row in DICTS]

FORMS: dict[str, Any] = {
    "Arrow": lambda: TABLE,
    "Arrow in pieces": lambda: pa.concat_tables([TABLE.slice(10), TABLE.slice(0, 10)]),
    "polars": lambda: pl.from_arrow(TABLE),
    "pandas": lambda: TABLE.drop_columns(["big", "none", "vector", "category"]).to_pandas(),
    "pandas of other types": lambda: pd.DataFrame(
        {
            "a": pd.array([1, 2, None, 4] * 6, dtype="Int64"),
            "b": pd.Categorical([3, 1, None, 1] * 6),
            "c": ["k", None] * 12,
        }
    ),
    "dicts": lambda: DICTS,
    "JSON": lambda: block_from_json({"rows": JSON}).X,
    "objects": lambda: np.array([[row["number"], row["word"], row["whole"]] for row in DICTS], dtype=object),
    "array": lambda: ARRAY,
    "lists": lambda: ARRAY.tolist(),
    "texts": lambda: COLUMNS["text"],
    "taken": lambda: Block(read_table(TABLE)).take(np.arange(21, 2, -2)).X,
}

LEARNED = json.loads(Path(__file__).with_name("table_rows.json").read_text(encoding="utf8"))
"""Digest of what is learned from each form, by name."""


def digest(*arrays: np.ndarray) -> str:
    """Return a digest of arrays. Floats are rounded, because a processor may round sines in another way."""
    parts = [np.round(a, 9) + 0.0 if a.dtype.kind == "f" else a for a in map(np.asarray, arrays)]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def learned(form: str) -> dict[str, str]:
    """Return digests of the hashes, the statistics and the mapped rows of a form."""
    rows = read_table(FORMS[form]())
    table = feature_map(stream_dr.table(n_words=8, max_categories=5))
    state = update_statistics(table, None, rows)
    X = map_table_rows(table, state, rows)
    read = [(column.name, read_column(column, rows)) for column in state.columns if column.is_encoded]
    hashes = table_row_hashes(read, None, rows.num_rows)
    columns = [(c.name, c.kind, c.present, c.categories, c.counts.tolist(), c.places.tolist()) for c in state.columns]
    text = json.dumps([columns, [round(c.total, 6) for c in state.columns]])
    return {
        "hashes": digest(hashes),
        "statistics": hashlib.sha256(text.encode()).hexdigest()[:16],
        "rows": digest(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data),
    }


@pytest.mark.parametrize("form", FORMS)
def test_what_is_learned_from_a_form_stays(form: str) -> None:
    assert learned(form) == LEARNED[form]


def test_the_types_of_a_table() -> None:
    rows = read_table(TABLE)
    kinds = table_kinds(rows)
    assert (kinds["number"], kinds["whole"], kinds["flag"]) == ("number", "integer", "boolean")
    assert (kinds["day"], kinds["time"], kinds["word"], kinds["big"]) == ("date", "time", "text", "text")
    assert (kinds["category"], kinds["sizes"], kinds["vector1"], kinds["zoned"]) == (
        "category",
        "category",
        "number",
        "time",
    )
    assert column_values(rows.column("category")).labels == ("a", "c")
    assert column_values(rows.column("sizes")).labels == ("36", "40", "44")
    assert Block(rows).table
    assert not Block(TABLE.to_batches()[0]).table
    assert read_table(rows) is rows


def test_a_text_that_no_row_has_is_not_kept() -> None:
    rows = Block(read_table(TABLE)).take(np.array([2, 5])).X
    for name in ("word", "text", "category"):
        column = rows.column(name)
        assert set(column.dictionary.to_pylist()) == set(column.drop_null().to_pylist())


def test_a_table_comes_back_from_json() -> None:
    rows = read_table(DICTS)
    again = block_from_json(json_from_block(Block(rows)))
    assert json_from_block(again)["rows"] == json_from_block(Block(rows))["rows"]
    assert json_from_block(again)["rows"][1]["day"] == "2021-04-10"
    assert json_from_block(again)["rows"][1]["time"] == "2021-03-05T08:32:12.555557"


def test_a_long_text_of_many_rows_is_not_repeated() -> None:
    """As plain texts, these rows would take six gigabytes."""
    words = pa.array(["w" * 120_000, "unused"])
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000, np.int8)), words)
    table = read_table(pa.table({"town": coded}))
    column = column_values(table.column(0))
    assert (column.kind, column.labels) == ("category", ("w" * 120_000,))
    assert not column.values.any()


@pytest.mark.parametrize("kind", [pa.list_(pa.float64(), 2), pa.list_(pa.float64())])
def test_vectors_that_are_all_missing_make_no_column(kind: pa.DataType) -> None:
    missing = read_table(pa.table({"age": [1.0, 2.0], "v": pa.array([None, None], kind)}))
    assert missing.schema.names == ["age"]
    some = read_table(pa.table({"age": [1.0, 2.0], "v": pa.array([None, [3.0, 4.0]], kind)}))
    assert some.schema.names == ["age", "v0", "v1"]

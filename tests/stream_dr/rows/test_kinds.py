"""What X is: one answer for every form in which rows come, and the same rows learned from each."""

import dask.array as da
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr.rows.block import Block
from stream_dr.rows.kinds import Kind, rows_kind
from stream_dr.rows.number_rows import as_rows
from stream_dr.rows.raw_rows import raw_from_array, table_kinds
from stream_dr.rows.table_rows import raw_rows

X = np.random.default_rng(3).normal(size=(40, 2))
FRAME = pd.DataFrame(X, columns=["a", "b"])
MIXED = FRAME.assign(c=["red", "blue"] * 20)
TABLE = pa.table(list(X.T), ["a", "b"])
SPARSE = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X), columns=["a", "b"])

FORMS = {
    "block": (lambda: Block(X), Kind.BLOCK),
    "block of a table": (lambda: Block(TABLE), Kind.BLOCK),
    "raw rows": (lambda: raw_from_array(X), Kind.RAW),
    "array": (lambda: X, Kind.ARRAY),
    "no dimension": (lambda: np.array(1.0), Kind.ARRAY),
    "no rows": (lambda: np.empty((0, 2)), Kind.ARRAY),
    "lists": (lambda: X.tolist(), Kind.ARRAY),
    "tuples": (lambda: tuple(map(tuple, X.tolist())), Kind.ARRAY),
    "empty list": (list, Kind.ARRAY),
    "texts and numbers": (lambda: ["a", 1.0], Kind.ARRAY),
    "pandas series of numbers": (lambda: FRAME["a"], Kind.ARRAY),
    "one text": (lambda: "rows.csv", Kind.ARRAY),
    "one dict": (lambda: {"a": [1.0]}, Kind.ARRAY),
    "iterator": (lambda: iter([X]), Kind.ARRAY),
    "csr": (lambda: sp.csr_matrix(X), Kind.SPARSE),
    "coo array": (lambda: sp.coo_array(X), Kind.SPARSE),
    "list of texts": (lambda: ["a text", "another"], Kind.TEXTS),
    "array of texts": (lambda: np.array(["a text", "another"]), Kind.TEXTS),
    "dicts": (lambda: FRAME.to_dict("records"), Kind.DICTS),
    "pandas of numbers": (lambda: FRAME, Kind.NUMBERS),
    "sparse pandas": (lambda: SPARSE, Kind.NUMBERS),
    "pandas of texts": (lambda: MIXED, Kind.FRAME),
    "pandas of whole numbers with gaps": (lambda: FRAME.assign(a=pd.array([1] * 40, dtype="Int64")), Kind.FRAME),
    "polars": (lambda: pl.from_arrow(TABLE), Kind.TABLE),
    "Arrow table": (lambda: TABLE, Kind.TABLE),
    "Arrow batch": (lambda: TABLE.combine_chunks().to_batches()[0], Kind.TABLE),
    "Arrow table of one name twice": (lambda: pa.table([[1], [2]], ["a", "a"]), Kind.TABLE),
    "polars series": (lambda: pl.Series(X.tolist()), Kind.COLUMN),
    "pandas series of texts": (lambda: MIXED["c"], Kind.COLUMN),
    "Arrow array": (lambda: pa.array(X.tolist()), Kind.COLUMN),
    "chunked array": (lambda: TABLE["a"], Kind.COLUMN),
    "lazy frame": (lambda: pl.from_arrow(TABLE).lazy(), Kind.STREAM),
    "reader": (lambda: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()), Kind.STREAM),
    "data set": (lambda: ds.dataset(TABLE), Kind.STREAM),
    "scanner": (lambda: ds.dataset(TABLE).scanner(), Kind.STREAM),
    "relation": (lambda: duckdb.from_arrow(TABLE), Kind.STREAM),
    "Dask array": (lambda: da.from_array(X, chunks=(20, 2)), Kind.DASK_ARRAY),
    "Dask frame": (lambda: dd.from_pandas(FRAME, npartitions=2), Kind.DASK_FRAME),
}
OTHER_ROWS = {
    "raw rows", "no dimension", "no rows", "empty list", "texts and numbers", "pandas series of numbers", "one text",
    "one dict", "iterator", "list of texts", "array of texts", "pandas of texts", "pandas of whole numbers with gaps",
    "Arrow table of one name twice", "pandas series of texts", "chunked array",
}  # fmt: skip
"""Forms that do not hold X."""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_of_one_kind(form):
    made, kind = FORMS[form]
    assert rows_kind(made()) is kind


def test_every_kind_has_a_form():
    assert {kind for _, kind in FORMS.values()} == set(Kind)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in OTHER_ROWS])
def test_the_same_rows_are_learned_from_every_form_that_holds_them(form):
    made, _ = FORMS[form]
    pca = stream_dr.PCA().fit(made())
    assert pca.n_samples_seen_ == 40
    np.testing.assert_allclose(pca.components_, stream_dr.PCA().fit(X).components_, atol=1e-12)
    np.testing.assert_allclose(np.asarray(pca.transform(made())), pca.transform(X), atol=1e-12)
    assert pca.partial_fit(made()).n_samples_seen_ == 80


@pytest.mark.parametrize(
    "form", ["pandas of texts", "polars", "Arrow batch", "lazy frame", "reader", "dicts", "array", "raw rows"]
)
def test_a_tables_columns_are_the_same_from_every_form(form):
    made, _ = FORMS[form]
    rows = raw_rows(made(), ("a", "b")) if form == "array" else raw_rows(made())
    names = ["x0", "x1"] if form == "raw rows" else ["a", "b"]
    assert rows.schema.names[:2] == names
    np.testing.assert_array_equal(np.stack([rows.column(name).to_numpy() for name in names], axis=1), X)


def test_a_column_of_texts_is_what_a_list_of_them_is():
    for texts in (["a", "b", "a"], np.array(["a", "b", "a"]), pl.Series(["a", "b", "a"]), pa.array(["a", "b", "a"])):
        rows = raw_rows(texts)
        assert table_kinds(rows) == {"text": "text"}
        assert rows.column("text").dictionary.to_pylist() == ["a", "b"]


def test_raw_rows_are_refused_where_numbers_are_learned():
    with pytest.raises(stream_dr.errors.SchemaMismatch, match="column c is text; features are numbers"):
        as_rows(raw_rows(MIXED))
    with pytest.raises(stream_dr.errors.SchemaMismatch, match="column c is text; features are numbers"):
        stream_dr.PCA().fit(Block(raw_rows(MIXED)))


def test_targets_of_a_block_are_named_by_a_column_too():
    y = MIXED["c"].tolist()
    expected = stream_dr.LDA().fit(X, y).components_
    for rows in (MIXED, pa.Table.from_pandas(MIXED, preserve_index=False), MIXED.to_dict("records")):
        np.testing.assert_allclose(stream_dr.LDA().fit(Block(rows, "c")).components_, expected, atol=1e-9)
    whole = dd.from_pandas(MIXED, npartitions=2)
    np.testing.assert_allclose(stream_dr.LDA().fit(whole, "c").components_, expected, atol=1e-9)

"""What X is opened as: one type for every form in which rows come, and the same rows learned from each."""

from collections.abc import Iterator

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
from stream_dr.batch.block import Block
from stream_dr.batch.matrix import as_rows, read_table
from stream_dr.batch.rows import TableStream, as_block, open_rows
from stream_dr.batch.table import table_from_array, table_kinds

X = np.random.default_rng(3).normal(size=(40, 2))
FRAME = pd.DataFrame(X, columns=["a", "b"])
MIXED = FRAME.assign(c=["red", "blue"] * 20)
TABLE = pa.table(list(X.T), ["a", "b"])
SPARSE = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X), columns=["a", "b"])

FORMS = {
    "raw rows": (lambda: table_from_array(X), pa.RecordBatch),
    "array": (lambda: X, np.ndarray),
    "no dimension": (lambda: np.array(1.0), np.ndarray),
    "no rows": (lambda: np.empty((0, 2)), np.ndarray),
    "lists": (lambda: X.tolist(), list),
    "tuples": (lambda: tuple(map(tuple, X.tolist())), tuple),
    "empty list": (list, list),
    "texts and numbers": (lambda: ["a", 1.0], list),
    "pandas series of numbers": (lambda: FRAME["a"], pd.Series),
    "one text": (lambda: "rows.csv", str),
    "one dict": (lambda: {"a": [1.0]}, dict),
    "iterator": (lambda: iter([X]), Iterator),
    "csr": (lambda: sp.csr_matrix(X), sp.csr_matrix),
    "coo array": (lambda: sp.coo_array(X), sp.coo_array),
    "list of texts": (lambda: ["a text", "another"], list),
    "array of texts": (lambda: np.array(["a text", "another"]), list),
    "dicts": (lambda: FRAME.to_dict("records"), list),
    "pandas of numbers": (lambda: FRAME, pd.DataFrame),
    "sparse pandas": (lambda: SPARSE, pd.DataFrame),
    "pandas of texts": (lambda: MIXED, pd.DataFrame),
    "pandas of whole numbers with gaps": (lambda: FRAME.assign(a=pd.array([1] * 40, dtype="Int64")), pd.DataFrame),
    "polars": (lambda: pl.from_arrow(TABLE), pa.Table),
    "Arrow table": (lambda: TABLE, pa.Table),
    "Arrow batch": (lambda: TABLE.combine_chunks().to_batches()[0], pa.Table),
    "Arrow table of one name twice": (lambda: pa.table([[1], [2]], ["a", "a"]), pa.Table),
    "polars series": (lambda: pl.Series(X.tolist()), pa.Table),
    "pandas series of texts": (lambda: MIXED["c"], pd.DataFrame),
    "Arrow array": (lambda: pa.array(X.tolist()), pa.Table),
    "chunked array": (lambda: TABLE["a"], pa.ChunkedArray),
    "lazy frame": (lambda: pl.from_arrow(TABLE).lazy(), TableStream),
    "reader": (lambda: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()), TableStream),
    "data set": (lambda: ds.dataset(TABLE), TableStream),
    "scanner": (lambda: ds.dataset(TABLE).scanner(), TableStream),
    "relation": (lambda: duckdb.from_arrow(TABLE), TableStream),
    "Dask array": (lambda: da.from_array(X, chunks=(20, 2)), da.Array),
    "Dask frame": (lambda: dd.from_pandas(FRAME, npartitions=2), dd.DataFrame),
}
OTHER_ROWS = {
    "raw rows", "no dimension", "no rows", "empty list", "texts and numbers", "pandas series of numbers", "one text",
    "one dict", "iterator", "list of texts", "array of texts", "pandas of texts", "pandas of whole numbers with gaps",
    "Arrow table of one name twice", "pandas series of texts", "chunked array",
}  # fmt: skip
"""Forms that do not hold X."""


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_opened_as_one_type(form):
    made, opened = FORMS[form]
    rows = open_rows(made())
    assert isinstance(rows, opened)
    assert open_rows(rows) is rows


def test_the_rows_of_a_block_are_opened():
    assert isinstance(as_block(Block(pl.from_arrow(TABLE))).X, pa.Table)


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
    rows = read_table(made(), ("a", "b")) if form == "array" else read_table(made())
    names = ("x0", "x1") if form == "raw rows" else ("a", "b")
    assert tuple(rows.schema.names)[:2] == names
    np.testing.assert_array_equal(np.stack([rows.column(name).to_numpy() for name in names], axis=1), X)


def test_a_column_of_texts_is_what_a_list_of_them_is():
    for texts in (["a", "b", "a"], np.array(["a", "b", "a"]), pl.Series(["a", "b", "a"]), pa.array(["a", "b", "a"])):
        rows = read_table(texts)
        assert table_kinds(rows) == {"text": "text"}
        assert rows.columns[0].dictionary.to_pylist() == ["a", "b"]


def test_dicts_may_have_more_keys_and_keys_that_are_numbers():
    with pytest.raises(stream_dr.errors.NotFinite, match="row 0, column 1"):
        stream_dr.PCA().fit([{"a": 1.0}, {"a": 2.0, "b": 3.0}])
    with pytest.raises(stream_dr.errors.SchemaMismatch, match=r"row 1, column b is 3\.0; the column begins with str"):
        stream_dr.PCA().fit([{"a": 1.0, "b": "x"}, {"a": 2.0, "b": 3.0}])
    assert list(stream_dr.PCA().fit([{1: 2.0, 2: 3.0}, {1: 4.0, 2: 7.0}]).feature_names_in_) == ["1", "2"]
    with pytest.raises(stream_dr.errors.InvalidRows, match="two columns are called '1'"):
        stream_dr.PCA().fit([{1: 2.0, "1": 3.0}] * 3)


def test_columns_of_a_block_are_reordered_by_name():
    fitted = stream_dr.PCA(2).fit(FRAME)
    expected = fitted.transform(FRAME)
    names = tuple(FRAME.columns)[::-1]
    turned = FRAME[list(names)].to_numpy()
    for rows in (turned, sp.csr_matrix(turned)):
        np.testing.assert_allclose(fitted.transform(Block(rows, names=names)), expected)
    with pytest.raises(stream_dr.errors.SchemaMismatch, match="give one name a column"):
        fitted.partial_fit(Block(np.c_[turned, turned], names=names))


def test_raw_rows_are_refused_where_numbers_are_learned():
    with pytest.raises(stream_dr.errors.SchemaMismatch, match="column c is text; features are numbers"):
        as_rows(read_table(MIXED))
    with pytest.raises(stream_dr.errors.SchemaMismatch, match="column c is text; features are numbers"):
        stream_dr.PCA().fit(Block(read_table(MIXED)))


def test_targets_of_a_block_are_named_by_a_column_too():
    y = MIXED["c"].tolist()
    expected = stream_dr.LDA().fit(X, y).components_
    for rows in (MIXED, pa.Table.from_pandas(MIXED, preserve_index=False), MIXED.to_dict("records")):
        np.testing.assert_allclose(stream_dr.LDA().fit(Block(rows, "c")).components_, expected, atol=1e-9)
    whole = dd.from_pandas(MIXED, npartitions=2)
    np.testing.assert_allclose(stream_dr.LDA().fit(whole, "c").components_, expected, atol=1e-9)


def test_the_index_of_a_pandas_frame_is_no_feature():
    frame = MIXED.assign(a=FRAME["a"].astype("Float64")).set_index("c")
    rows, names = as_rows(frame)
    assert names == ("a", "b")
    np.testing.assert_array_equal(rows, X)


def test_a_sparse_column_may_stand_beside_a_dense_one():
    rows, names = as_rows(FRAME.assign(b=pd.arrays.SparseArray(X[:, 1])))
    assert names == ("a", "b")
    np.testing.assert_array_equal(rows, X)


@pytest.mark.parametrize("twice", [MIXED.rename(columns={"a": "c"}), pa.table([X[:, 0], MIXED["c"]], ["c", "c"])])
def test_a_name_of_two_columns_names_no_targets(twice):
    with pytest.raises(stream_dr.errors.InvalidRows, match="two columns are called 'c'"):
        stream_dr.LDA().fit(twice, "c")


@pytest.mark.parametrize("column", [pl.Series([1.0, 2.0]), pa.array([1, 2]), pd.Series([1.0, 2.0]), np.ones(2)])
def test_a_column_of_numbers_is_no_table(column):
    with pytest.raises(stream_dr.errors.InvalidRows, match="Expected 2D array, got 1D array"):
        as_rows(column)
    with pytest.raises(stream_dr.errors.InvalidRows, match="Expected 2D array, got 1D array"):
        read_table(column)


def test_a_column_of_dates_is_no_number_for_pandas_either():
    dates = pd.DataFrame({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    for rows in (dates, pl.from_pandas(dates)):
        with pytest.raises(stream_dr.errors.NotNumeric, match=r"columns 'a' .* hold no numbers"):
            as_rows(rows)

"""Tables of other libraries, and streams of them: the same numbers as from an array, and errors that say what was given."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import stream_dr
from stream_dr.batch.matrix import as_rows, read_table
from stream_dr.errors import (
    EmptyInput,
    InvalidParameter,
    InvalidRows,
    InvalidTargets,
    InvalidWeights,
    NotFinite,
    NotNumeric,
    SchemaMismatch,
)

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 3))
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "up", "down")
NAMES = ("a", "b", "c")
TABLE = pa.table([*X.T, Y], [*NAMES, "y"])
LEARNED = stream_dr.LDA().fit(X, Y)


def relation():
    return duckdb.from_arrow(TABLE)


TABLES = {
    "pandas": TABLE.to_pandas,
    "polars": lambda: pl.from_arrow(TABLE),
    "table": lambda: TABLE,
    "batch": lambda: TABLE.combine_chunks().to_batches()[0],
}
STREAMS = {
    "lazy": lambda: pl.from_arrow(TABLE).lazy(),
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=70)),
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(batch_size=100),
    "duckdb": relation,
}


@pytest.mark.parametrize("kind", [*TABLES, *STREAMS])
def test_every_kind_of_table_is_learned_and_projected_as_an_array_is(kind):
    made = (TABLES | STREAMS)[kind]
    lda = stream_dr.LDA().fit(made(), "y")
    assert lda.feature_names_in_.tolist() == list(NAMES)
    np.testing.assert_allclose(lda.components_, LEARNED.components_, atol=1e-9)
    rows = {"lazy": lambda: made().drop("y"), "duckdb": lambda: duckdb.from_arrow(TABLE.drop_columns(["y"]))}
    given = rows.get(kind, lambda: ds.dataset(TABLE.drop_columns(["y"])))()
    np.testing.assert_allclose(lda.transform(given), LEARNED.transform(X), atol=1e-9)


@pytest.mark.parametrize("kind", STREAMS)
def test_partial_fit_of_a_stream_is_all_or_nothing(kind):
    made = STREAMS[kind]
    lda = stream_dr.LDA().partial_fit(made(), "y")
    before = lda.state_
    bad = pa.table([*X.T, Y], [*NAMES, "y"]).set_column(1, "b", pa.array([*X[:250, 1], *[None] * 50]))
    with pytest.raises(ValueError, match="row"):
        lda.partial_fit(pa.RecordBatchReader.from_batches(bad.schema, bad.to_batches(max_chunksize=100)), "y")
    assert lda.n_samples_seen_ == 300
    assert np.array_equal(lda.state_[0], before[0])
    assert lda.partial_fit(made(), "y").n_samples_seen_ == 600
    assert lda.unlearn(TABLE, "y").n_samples_seen_ == 300


def test_refine_reads_a_data_set_once_a_pass():
    source = (ds.dataset(TABLE), "y")
    lda = stream_dr.LDA(scatter="diagonal").fit(*source).refine(source)
    np.testing.assert_allclose(np.abs(lda.components_), np.abs(LEARNED.components_), rtol=1e-5)
    with pytest.raises(InvalidParameter, match="can be read once"):
        lda.refine((STREAMS["reader"](), "y"))


@pytest.mark.parametrize(
    "vectors",
    [
        lambda: pl.DataFrame({"e": X.tolist()}, schema={"e": pl.Array(pl.Float64, 3)}),
        lambda: pl.DataFrame({"e": X.tolist()})["e"],
        lambda: pd.DataFrame({"e": list(X)}),
        lambda: pd.Series(list(X)),
        lambda: pd.Series(list(X)).to_numpy(),
        lambda: pa.array(X.tolist()),
        lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(X),
        lambda: X.tolist(),
        lambda: list(X),
    ],
)
def test_a_column_of_vectors_is_a_matrix(vectors):
    rows, names = as_rows(vectors())
    np.testing.assert_array_equal(rows, X)
    assert names is None


def test_vectors_beside_numbers_and_dicts_have_names():
    rows, names = as_rows(pl.DataFrame({"size": [1, 2], "e": [[1.0, 2.0], [3.0, 4.0]], "on": [True, False]}))
    np.testing.assert_array_equal(rows, [[1, 1, 2, 1], [2, 3, 4, 0]])
    assert names == ("size", "e0", "e1", "on")
    rows, names = as_rows([{"a": 1, "b": 2.5}, {"b": 1.5, "a": 3}])
    np.testing.assert_array_equal(rows, [[1, 2.5], [3, 1.5]])
    assert names == ("a", "b")
    assert as_rows(pl.DataFrame({"a": [1.0]}, schema={"a": pl.Float32}))[0].dtype == np.float32


def test_vectors_without_numbers_are_no_columns():
    table = pa.table({"e": pa.array([[], []], pa.list_(pa.float64())), "size": [1.0, 2.0]})
    rows = read_table(table)
    assert (rows.schema.names, rows.num_rows) == (["size"], 2)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (lambda: iter([X]), NotNumeric, "type list_iterator.*partial_fit"),
        (lambda: "data.csv", NotNumeric, r"data\.csv.*stream_dr\.fit"),
        (lambda: object(), NotNumeric, "type object; pass an array"),
        (lambda: {"a": [1]}, NotNumeric, "type dict"),
        (lambda: TABLE, NotNumeric, r"columns 'y' \(string\) hold no numbers"),
        (lambda: pl.DataFrame({"v": [[1.0, 2.0], [3.0]]}), InvalidRows, "1 numbers in row 1 and 2 in row 0"),
        (lambda: pa.table({"v": [[1.0], None]}), InvalidRows, "'v' is null in row 1"),
        (lambda: pa.table([[1], [2]], ["a", "a"]), InvalidRows, "two columns are called 'a'"),
    ],
)
def test_what_cannot_be_taken_is_told(given, error, said):
    with pytest.raises(error, match=said):
        stream_dr.PCA().fit(given())


def test_targets_of_a_stream_are_a_column_of_it():
    with pytest.raises(InvalidTargets, match=r"pyarrow\.lib\.RecordBatchReader.*name the column"):
        stream_dr.LDA().fit(STREAMS["reader"](), Y)
    with pytest.raises(SchemaMismatch, match="no column 'z'"):
        stream_dr.LDA().fit(TABLE, "z")
    reader = STREAMS["reader"]()
    stream_dr.LDA().fit(reader, "y")
    with pytest.raises(EmptyInput, match="can be read once"):
        stream_dr.LDA().fit(reader, "y")


def test_a_masked_value_is_a_missing_value():
    values = np.where(np.arange(60).reshape(20, 3) % 7 == 3, -9999.0, X[:20])
    masks = {"some": values == -9999.0, "none": np.ma.nomask, "all false": np.zeros(values.shape, bool)}
    labels = Y[:20]
    for dtype in (np.float64, np.float32, np.int64, object):
        masked = np.ma.masked_array((10 * values).astype(dtype), mask=masks["some"])
        for given in (masked, [*masked]):
            with pytest.raises(NotFinite, match="row 1, column 0 is NaN"):
                stream_dr.PCA().fit(given)
            filled = (10 * values).astype(dtype).astype(float)
            filled[masks["some"]] = np.nan
            learned = stream_dr.LDA(feature_map=stream_dr.table()).fit(given, labels)
            expected = stream_dr.LDA(feature_map=stream_dr.table()).fit(filled, labels)
            np.testing.assert_allclose(learned.transform(given), expected.transform(filled))
    for name in ("none", "all false"):
        masked = np.ma.masked_array(values, mask=masks[name])
        np.testing.assert_array_equal(as_rows(masked)[0], values)
    with pytest.raises(InvalidWeights, match="row 1"):
        stream_dr.LDA().fit(X[:3], Y[:3], sample_weight=np.ma.masked_array([1.0, 2.0, 1.0], mask=[0, 1, 0]))


def test_a_vectors_columns_have_names_of_their_own():
    with pytest.raises(InvalidRows, match="'v0'"):
        stream_dr.PCA().fit(pa.table({"v": [[1.0, 2.0], [3.0, 4.0]], "v0": [1.0, 2.0]}))

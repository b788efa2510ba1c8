"""Arrow columns as a matrix: a frame and a payload of the same columns give the same numbers."""

import numpy as np
import pyarrow as pa
import pytest

from stream_dr.batch.arrow import block_from_arrow
from stream_dr.batch.matrix import as_matrix, as_rows
from stream_dr.errors import InvalidRows

SINGLE = pa.array([0.5, 1.5], pa.float32())
TYPES = {
    "float32": [SINGLE, SINGLE],
    "float64": [SINGLE, pa.array([1.0, 2.0])],
    "float16": [pa.array([1.0, 2.0], pa.float16())],
    "large integers": [pa.array([2**63 - 1, -(2**60) - 1]), pa.array([0, 2**64 - 1], pa.uint64())],
    "bools and decimals": [pa.array([True, False]), pa.array([1, 2], pa.decimal128(5, 2))],
}


@pytest.mark.parametrize("columns", TYPES.values(), ids=TYPES)
def test_frames_and_payloads_have_the_same_numbers(columns):
    table = pa.table(columns, [f"x{i}" for i in range(len(columns))])
    rows, names = as_rows(table)
    block = block_from_arrow(table)
    chunked, chunked_names = as_matrix(pa.concat_tables([table, table]))
    assert rows.dtype == block.X.dtype == chunked.dtype
    assert rows.dtype == (np.float32 if columns == TYPES["float32"] else np.float64)
    assert rows.flags.c_contiguous
    assert names == block.names == chunked_names == tuple(table.column_names)
    assert rows.tolist() == block.X.tolist() == chunked[2:].tolist()
    assert rows[:, 0].tolist() == [float(value) for value in columns[0].to_pylist()]


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2)], ids=str)
def test_vectors_have_the_same_numbers(kind):
    vectors = pa.array([[9, 9], [1, 2], [3, 4]], kind)[1:]
    rows, names = as_rows(vectors)
    block = block_from_arrow(pa.record_batch({"features": vectors}))
    assert rows.dtype == block.X.dtype == (np.float32 if kind.value_type == pa.float32() else np.float64)
    assert rows.tolist() == block.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert names is None is block.names


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float64(), 2)], ids=str)
def test_the_first_null_of_vectors_is_named(kind):
    vectors = pa.array([[9.0, 9.0], [1.0, 2.0], [3.0, None]], kind)[1:]
    with pytest.raises(InvalidRows, match="row 1, column 1 is null"):
        block_from_arrow(pa.record_batch({"features": vectors}))


def test_tables_without_rows_or_columns():
    rows, names = as_matrix(pa.table({"a": pa.array([], pa.float64()), "v": pa.array([], pa.list_(pa.float64(), 2))}))
    assert rows.shape == (0, 3)
    assert names == ("a", "v0", "v1")
    assert as_matrix(pa.table({}))[0].shape == (0, 0)

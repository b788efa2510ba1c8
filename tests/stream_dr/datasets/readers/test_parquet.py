"""Parquet by column."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dr.datasets.readers.columns import ColumnRoles
from stream_dr.datasets.readers.tables import read_parquet
from stream_dr.errors import InvalidRows, MalformedInput, SchemaMismatch, SourceMissing


def write(tmp_path, **columns):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=50)
    return tmp_path / "a.parquet"


def test_roles_and_rows(tmp_path):
    path = write(tmp_path, a=range(120), b=np.linspace(0, 1, 120, dtype=np.float32), y=["u", "v"] * 60, n=[None] * 120)
    blocks = list(read_parquet(path, ColumnRoles(label="y", drop=("n",)), rows_per_block=40))
    assert [b.rows for b in blocks] == [40, 40, 40]
    assert blocks[0].names == ("a", "b")
    np.testing.assert_array_equal(np.vstack([b.X for b in blocks])[:, 0], np.arange(120))
    assert blocks[2].y.targets_by_row()[:2] == ["u", "v"]


def test_a_column_with_a_role_has_one_number_a_row(tmp_path):
    path = write(tmp_path, a=[1.0, 2.0], y=["1", "2"], v=[[1.0, 2.0], [3.0, 4.0]], t=[3, 4], u=[True, False])
    for roles in (ColumnRoles(target=("y",)), ColumnRoles(weight="y")):
        with pytest.raises(MalformedInput, match=r"row 0: columns 'y' \(string\) hold no numbers.*name them as label"):
            list(read_parquet(path, roles))
    for roles in (ColumnRoles(target=("t", "v")), ColumnRoles(weight="v"), ColumnRoles(labels=("u", "v"))):
        with pytest.raises(MalformedInput, match=r"row 0: columns \[.*'v'\] have [23] numbers a row"):
            list(read_parquet(path, roles._replace(drop=("y",))))
    (block,) = read_parquet(path, ColumnRoles(target=("t", "u"), drop=("y",)))
    assert block.y.values.tolist() == [[3.0, 1.0], [4.0, 0.0]]
    assert block.names == ("a", "v0", "v1")
    assert block.X.tolist() == [[1.0, 1.0, 2.0], [2.0, 3.0, 4.0]]


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(MalformedInput, match="row 61: column 'a' is null in row 1 of the batch"):
        list(read_parquet(write(tmp_path, a=[1.0] * 61 + [None] + [1.0] * 9, b=range(71)), rows_per_block=30))
    with pytest.raises(MalformedInput, match=r"row 33.*NaN"):
        list(read_parquet(write(tmp_path, a=[1.0] * 33 + [float("nan")], b=range(34)), rows_per_block=30))
    with pytest.raises(MalformedInput, match=r"'a' \(string\) hold no numbers"):
        list(read_parquet(write(tmp_path, a=["x"], b=[1])))
    with pytest.raises(SchemaMismatch, match="no column 'z'"):
        list(read_parquet(write(tmp_path, a=[1]), ColumnRoles(label="z")))
    with pytest.raises(SourceMissing):
        list(read_parquet(tmp_path / "none.parquet"))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(MalformedInput, match="not a Parquet file"):
        list(read_parquet(tmp_path / "b.parquet"))


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([pa.array([1.0]), pa.array([2.0]), pa.array(["x"])], names=["a", "a", "y"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidRows, match="two columns are called 'a'"):
        list(read_parquet(tmp_path / "a.parquet", ColumnRoles(label="y")))

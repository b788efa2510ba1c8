"""describe: what a table's columns are taken for, told before anything is learned."""

import datetime

import pyarrow as pa
import pytest

from stream_dr import describe_table
from stream_dr.batch.matrix import columns_to_write, table_from_arrow
from stream_dr.batch.table import column_values
from stream_dr.errors import InvalidParameter, InvalidRows, NotFinite, SchemaMismatch
from stream_dr.feature_maps.column_report import describe

ROWS = 60
TABLE = pa.table(
    {
        "passenger_id": pa.array(range(ROWS)),
        "age": pa.array([None if i % 7 == 0 else 20.0 + i for i in range(ROWS)]),
        "sex": ["female" if i % 3 else "male" for i in range(ROWS)],
        "cabin": [None if i % 2 else f"C{i}" for i in range(ROWS)],
        "town": [f"town {i % 40}" for i in range(ROWS)],
        "story": [f"once upon a time there were {i} bears" for i in range(ROWS)],
        "code": [f"k{i}" for i in range(ROWS)],
        "ship": ["Titanic"] * ROWS,
        "born": [datetime.date(1900, 1, 1) + datetime.timedelta(days=31 * i) for i in range(ROWS)],
        "paid": [i % 2 == 0 for i in range(ROWS)],
        "later": pa.nulls(ROWS),
    }
)


def test_every_column_is_told_at_once() -> None:
    report = describe(table_from_arrow(TABLE))
    assert report.rows == ROWS
    assert {c.name: c.taken_for for c in report.columns} == {
        "passenger_id": "id", "age": "number", "sex": "category", "cabin": "id", "town": "category", "story": "text",
        "code": "id", "ship": "constant", "born": "date", "paid": "number", "later": "",
    }  # fmt: skip
    made = {c.name: c.made for c in report.columns}
    assert made["age"] == "number + missing (filled by the mean)"
    assert made["sex"] == "2 one-hot"
    assert made["town"] == "32 one-hot + 8 hashed"
    assert report.used == 6
    assert report.columns[3].missing == ROWS // 2
    assert "ship" in str(report)
    assert report.columns[7].options == ('keep=["ship"]',)


def test_options_are_heard_and_all_problems_told() -> None:
    spec = {"map": "table", "keep": ["code"], "drop": ["sex", "gone"], "as_": {"town": "number"}, "impute": 0}
    report = describe([table_from_arrow(TABLE), table_from_arrow(TABLE)], spec)
    taken = {c.name: c.taken_for for c in report.columns}
    assert taken["code"] == "category"
    assert taken["sex"] == "dropped"
    assert len(report.problems) == 2
    assert "'gone'" in report.problems[0]
    assert "row 0, column town is 'town 0'" in report.problems[1]
    with pytest.raises(InvalidParameter, match="as_"):
        describe(table_from_arrow(TABLE), {"as_": {"town": "colour"}})


def test_columns_come_back_from_arrow_as_they_went() -> None:
    rows = table_from_arrow(TABLE)
    again = table_from_arrow(pa.record_batch(columns_to_write(rows)))
    assert again.equals(rows, check_metadata=True)


def test_times_of_any_unit_and_dictionaries_are_taken() -> None:
    second = datetime.datetime(2024, 2, 29, 12, 0, 0)
    coded = pa.DictionaryArray.from_arrays(pa.array([1, None, 1], pa.int8()), pa.array(["a", "b"]))
    table = pa.table({"coded": coded, **{u: pa.array([second, None, second], pa.timestamp(u)) for u in ("s", "ns")}})
    rows = table_from_arrow(table.slice(1))
    coded, *times = map(column_values, rows.columns)
    assert coded.labels == ("b",)
    assert coded.values.tolist() == [-1, 0]
    assert times[0].values[1] == times[1].values[1] == 19782.5


def test_what_cannot_be_taken_is_named_with_all_columns() -> None:
    table = pa.table({"raw": [b"1"], "fine": [1.0], "parts": [{"a": 1}]})
    with pytest.raises(SchemaMismatch, match=r"column raw is binary, column parts is struct<a: int64>: not taken"):
        table_from_arrow(table)
    with pytest.raises(NotFinite, match="row 0, column a is inf"):
        table_from_arrow(pa.table({"a": [float("inf")], "b": ["x"]}))
    with pytest.raises(InvalidRows, match="two columns are called 'a'"):
        table_from_arrow(pa.table([[1.0], [2.0]], names=["a", "a"]))


def test_a_frame_of_any_library_is_described_by_a_public_name() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = [{"a": 1.5, "b": "x"}, {"a": None, "b": "y"}]
    reports = [
        describe_table(given, drop=["b"])
        for given in (rows, pandas.DataFrame(rows), polars.DataFrame(rows), pa.Table.from_pylist(rows))
    ]
    assert {str(report) for report in reports} == {str(reports[0])}
    assert [c.taken_for for c in reports[0].columns] == ["number", "dropped"]

"""Label columns of tables: whole numbers and texts, missing labels, several labels in one column."""

import csv
import json
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream_dr
from stream_dr.datasets.readers.columns import ColumnRoles, targets_from_batch
from stream_dr.errors import InvalidParameter, MalformedInput

GAPS = ["", "NA", "NaN", "null", "n/a", "nan", "N/A", "NULL", " NA "]


def labels_of(path, **options):
    return [label for block in stream_dr.open_source(path, **options).blocks() for label in block.y.targets_by_row()]


def write_csv(tmp_path, labels, delimiter=","):
    with open(tmp_path / "a.csv", "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([("a", "y"), *((i / 2, label) for i, label in enumerate(labels))])
    return tmp_path / "a.csv"


def write_jsonl(tmp_path, labels):
    lines = [json.dumps({"a": i / 2, "y": label}) for i, label in enumerate(labels)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, ""]))
    return tmp_path / "a.jsonl"


def write_parquet(tmp_path, labels):
    pq.write_table(pa.table({"a": np.arange(len(labels)) / 2, "y": labels}), tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def write_arrow(tmp_path, labels):
    table = pa.table({"a": np.arange(len(labels)) / 2, "y": labels})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return tmp_path / "a.arrow"


def write_sqlite(tmp_path, labels):
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("CREATE TABLE t (a REAL, y TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", [(i / 2, label) for i, label in enumerate(labels)])
    database.close()
    return tmp_path / "a.db"


TYPED = [write_jsonl, write_parquet, write_arrow]


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["1", "0.0", "2.00"], [1, 0, 2]),
        (["-3", "12", "12.0"], [-3, 12, 12]),
        ([" 1", "2 ", "1"], [1, 2, 1]),
        (["9007199254740993", "9223372036854775807.0", "1"], [2**53 + 1, 2**63 - 1, 1]),
        (["007", "7", "0123"], ["007", "7", "0123"]),
        (["+1", "-1", "1"], ["+1", "-1", "1"]),
        (["1.50", "1.5", "1"], ["1.50", "1.5", "1"]),
        (["1e3", "1000", "1"], ["1e3", "1000", "1"]),
        (["true", "false", "True"], ["true", "false", "True"]),
        (["2024-01-02", "2024-01-03", "x"], ["2024-01-02", "2024-01-03", "x"]),
        (["18446744073709551616", "1", "2"], ["18446744073709551616", "1", "2"]),
    ],
)
def test_the_first_rows_of_a_csv_decide_between_whole_numbers_and_text(tmp_path, texts, labels):
    assert labels_of(write_csv(tmp_path, texts), label="y") == labels


def test_whole_numbers_with_a_decimal_comma(tmp_path):
    path = write_csv(tmp_path, ["1,0", "2"], delimiter=";")
    path.write_text(path.read_text().replace("0.5", "0,5").replace("0.0;", "0,0;"))
    assert labels_of(path, label="y", delimiter=";", decimal=",") == [1, 2]


@pytest.mark.parametrize("late", ["007", "+1", "1.5", "x", "1e3", "99999999999999999999"])
def test_a_late_text_among_whole_numbers_is_refused_with_its_line(tmp_path, late):
    """The first rows are those of 1 MiB."""
    path = write_csv(tmp_path, ["1", "0", "", "NA"] * 60_000 + ["2.0", late, "z"])
    with pytest.raises(
        MalformedInput, match=rf"line 240003: '{late.replace('+', '.')}' in column 'y' is no whole number"
    ):
        labels_of(path, label="y")


def test_late_whole_numbers_among_texts_are_texts(tmp_path):
    assert labels_of(write_csv(tmp_path, ["x"] * 240_000 + ["7", "007"]), label="y")[-2:] == ["7", "007"]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("labels", [["1", "0"], ["u", "v"]])
def test_words_for_a_missing_label_in_csv(tmp_path, gap, labels):
    path = write_csv(tmp_path, [labels[0], gap, labels[1]])
    expected = pd.read_csv(path)["y"]
    assert [label is None for label in labels_of(path, label="y")] == [False, True, False]
    if gap.strip() == gap:
        assert expected.isna().tolist() == [False, True, False]


def test_rows_before_the_first_label_decide_nothing(tmp_path):
    labels = labels_of(write_csv(tmp_path, ["NA"] * 240_000 + ["1", "2"]), label="y")
    assert labels[-3:] == [None, 1, 2]


@pytest.mark.parametrize("write", TYPED)
@pytest.mark.parametrize("labels", [["007", "7", None], [1, 2, None], [True, False, None], ["NA", "null", "x"]])
def test_typed_formats_say_what_labels_are(tmp_path, write, labels):
    assert labels_of(write(tmp_path, labels), label="y") == labels


@pytest.mark.parametrize("write", TYPED)
@pytest.mark.parametrize("sets", [[["u", "v"], [], None, ["v"]], [[3, 1], [1], None, []]])
def test_lists_of_labels_in_one_column(tmp_path, write, sets):
    sets = [row and sorted(row) for row in sets]
    assert [row and sorted(row) for row in labels_of(write(tmp_path, sets), labels="y")] == sets


def test_json_lists_in_csv_are_read_as_they_are_written(tmp_path):
    for sets in ([["u", "007"], [], None, ["7"]], [[3, 1], [1], None, []], [None, [], None]):
        path = write_csv(tmp_path, ["" if row is None else json.dumps(row) for row in sets])
        assert labels_of(path, labels="y") == sets


@pytest.mark.parametrize("write", [write_csv, *TYPED, write_sqlite])
def test_labels_with_a_separator_in_one_column(tmp_path, write):
    path = write(tmp_path, ["u|v", "v", "", "007 | 7|"])
    expected = [["u", "v"], ["v"], None, ["007", "7"]]
    assert labels_of(path, labels="y", separator="|") == expected
    dummies = pd.Series(["u|v", "v", "007|7"]).str.get_dummies("|")
    model = stream_dr.OPLS()
    for block in stream_dr.open_source(path, labels="y", separator="|").blocks():
        model.partial_fit(block)
    assert model.classes_.tolist() == list(dummies.columns)


def test_whole_numbers_with_a_separator_in_csv(tmp_path):
    assert labels_of(write_csv(tmp_path, ["1; 2.0", "NA", "3"]), labels="y", separator=";") == [[1, 2], None, [3]]
    path = write_csv(tmp_path, ["1;2"] * 240_000 + ["3;x"])
    with pytest.raises(MalformedInput, match="line 240002: '3;x' in column 'y' is no whole number"):
        labels_of(path, labels="y", separator=";")


@pytest.mark.parametrize("write", [write_csv, *TYPED])
def test_a_column_of_0_and_1_is_an_indicator(tmp_path, write):
    assert labels_of(write(tmp_path, [0, 1, 1]), labels="y") == [[], ["y"], ["y"]]


@pytest.mark.parametrize("kind", [pa.large_list(pa.string()), pa.list_(pa.string(), 1), pa.list_(pa.large_string())])
def test_lists_of_every_arrow_type(tmp_path, kind):
    assert labels_of(write_parquet(tmp_path, pa.array([["u"], ["v"], ["u"]], kind)), labels="y") == [
        ["u"],
        ["v"],
        ["u"],
    ]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_texts_of_every_arrow_type(kind):
    labels = pa.array(["b", "", None, "a"]).cast(kind)
    targets = targets_from_batch(pa.record_batch({"l": labels}), ColumnRoles(label="l"))
    assert targets.targets_by_row() == ["b", None, None, "a"]


@pytest.mark.parametrize("write", TYPED)
def test_lists_that_are_named_as_one_label_are_refused(tmp_path, write):
    with pytest.raises(MalformedInput, match="'y' has several labels in each row; name it with --labels"):
        labels_of(write(tmp_path, [["u"], ["v"]]), label="y")


@pytest.mark.parametrize("write", [write_csv, *TYPED])
def test_texts_that_are_no_lists_are_refused(tmp_path, write):
    with pytest.raises(MalformedInput, match=r"'u\|v' in column 'y' is no JSON list of labels; give --separator"):
        labels_of(write(tmp_path, ["u|v", "v"]), labels="y")


def test_a_separator_needs_one_column(tmp_path):
    path = write_csv(tmp_path, ["u|v"])
    for options in ({"label": "y"}, {"labels": "a,y"}):
        with pytest.raises(InvalidParameter, match="name one column with labels"):
            stream_dr.open_source(path, separator="|", **options)
    with pytest.raises(InvalidParameter, match="name one column with labels"):
        stream_dr.open_source(path, separator="", labels="y")

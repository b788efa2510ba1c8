"""csv by column: roles, types that only later rows show, errors naming file and line."""

import gzip
import lzma
import re
import subprocess
import sys

import numpy as np
import pytest

from stream_dr.datasets.readers.columns import ColumnRoles
from stream_dr.datasets.readers.csv import read_csv
from stream_dr.errors import InvalidTargets, MalformedInput, SchemaMismatch, SourceMissing


def write(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    return path


def test_roles(tmp_path):
    path = write(tmp_path, "id,a,kind,b,w,note\nx1,1,cat,2.5,0.5,hm\nx2,3,dog,4,1,\n")
    (block,) = read_csv(path, ColumnRoles(label="kind", weight="w", id="id", drop=("note",)))
    np.testing.assert_array_equal(block.X, [[1, 2.5], [3, 4]])
    assert block.names == ("a", "b")
    assert block.y.targets_by_row() == ["cat", "dog"]
    assert block.weights.tolist() == [0.5, 1.0]
    assert block.ids == ["x1", "x2"]


def test_indicator_and_continuous_columns(tmp_path):
    path = write(tmp_path, "a;l1;l2\n1;1;0\n2;1;1\n3;0;0\n")
    (block,) = read_csv(path, ColumnRoles(labels=("l1", "l2")), delimiter=";")
    assert block.y.targets_by_row() == [["l1"], ["l1", "l2"], []]
    (block,) = read_csv(path, ColumnRoles(target=("l2",)), delimiter=";")
    assert block.y.targets_by_row() == [[0.0], [1.0], [0.0]]
    with pytest.raises(MalformedInput, match=r"after line 1.*other than 0 and 1"):
        list(read_csv(path, ColumnRoles(labels=("a",)), delimiter=";"))


def test_integers_that_turn_into_fractions_far_down(tmp_path):
    """The types are read from the first 1 MiB."""
    path = write(tmp_path, "a,y\n" + "1,0\n" * 600_000 + "0.5,1\n")
    blocks = list(read_csv(path, ColumnRoles(label="y"), rows_per_block=100_000))
    assert sum(b.rows for b in blocks) == 600_001
    assert max(b.rows for b in blocks) <= 100_000
    assert blocks[-1].X[-1, 0] == 0.5
    assert blocks[-1].y.targets_by_row()[-1] == 1


def test_without_a_header_and_packed(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b"1\t2\tx\n3\t4\ty\n")
    (block,) = read_csv(tmp_path / "a.csv.gz", ColumnRoles(label="f2"), delimiter="\t", header=False)
    assert block.names == ("f0", "f1")
    assert block.y.targets_by_row() == ["x", "y"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("1,2,0\n3,x,1\n", "line 3: 'x' in column 'b'"),
        ("1,2,0\n3,4\n", "line 3: 2 fields where 3"),
        ("1,2,0\n3,,1\n", "line 3: .*'b' has no value"),
        ("1,2,0\n3,nan,1\n", "line 3"),
        ("1,2,0\n\n3,,1\n", "line 4: .*'b' has no value"),
        ("1,inf,0\n3,1,1\n", "line 2: 'inf' in column 'b' is no number"),
    ],
)
def test_a_bad_line_is_named(tmp_path, rows, said):
    with pytest.raises(MalformedInput, match=said):
        list(read_csv(write(tmp_path, "a,b,y\n" + rows), ColumnRoles(label="y")))


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path, "a,y\n1,2\n")
    with pytest.raises(SchemaMismatch, match="no column 'z'"):
        list(read_csv(path, ColumnRoles(label="z")))
    with pytest.raises(SchemaMismatch, match="no column is left"):
        list(read_csv(path, ColumnRoles(label="y", drop=("a",))))
    with pytest.raises(InvalidTargets, match="more than one"):
        list(read_csv(path, ColumnRoles(label="y", target=("a",))))
    with pytest.raises(MalformedInput, match=r"line 1: columns 1 and 2 are both called"):
        list(read_csv(write(tmp_path, "a,a\n1,2\n")))
    with pytest.raises(SourceMissing):
        list(read_csv(tmp_path / "none.csv"))


def test_a_delimiter_in_quotes_is_not_blamed(tmp_path):
    path = write(tmp_path, 'a,y\n1,"x,y"\n2,z\nbad,z\n')
    with pytest.raises(MalformedInput, match="line 4: 'bad' in column 'a'"):
        list(read_csv(path, ColumnRoles(label="y")))


def test_an_empty_label_is_none(tmp_path):
    path = write(tmp_path, "a,y\n1,cat\n2,\n3,dog\n")
    (block,) = read_csv(path, ColumnRoles(label="y"))
    assert block.y.labels == ("cat", "dog")
    assert block.y.present.tolist() == [True, False, True]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_the_first_rows_of_a_long_file_are_those_of_all(tmp_path, encoding):
    """The first rows are those of 1 MiB."""
    lines = [f"{i},ä{i % 7}{'x' * (i % 900)},{i / 8},{'uv'[i % 2]}" for i in range(20_000)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["n,word,x,y", *lines, ""]), encoding=encoding)
    roles = ColumnRoles(label="y", raw=None)
    head, every = (list(read_csv(path, roles, encoding=encoding, head_only=head_only)) for head_only in (True, False))
    assert sum(block.rows for block in every) == 20_000
    assert 0 < sum(block.rows for block in head) < 4_000
    assert head[0].X.column("x").equals(every[0].X.column("x")[: head[0].rows])
    assert head[0].names == every[0].names == ("n", "word", "x")


def test_an_index_without_a_name_is_no_feature_unless_it_is_said(tmp_path):
    path = write(tmp_path, ",a,y\n0,1.5,u\n1,2.5,v\n")
    with pytest.raises(MalformedInput, match=r"line 1: column 1 has no name.*--drop 'Unnamed: 0'"):
        list(read_csv(path, ColumnRoles(label="y")))
    (block,) = read_csv(path, ColumnRoles(label="y", id="Unnamed: 0"))
    assert (block.names, block.ids) == (("a",), [0, 1])
    (block,) = read_csv(path, ColumnRoles(label="y", drop=("Unnamed: 0",)))
    assert block.names == ("a",)


def test_a_quote_within_a_field_is_a_character(tmp_path):
    path = write(tmp_path, 'size,thing\n1,5" pipe\n2,a "large" one\n3,6" pipe\n')
    (block,) = read_csv(path, ColumnRoles(raw=None))
    assert block.X.column("thing").to_pylist() == ['5" pipe', 'a "large" one', '6" pipe']


@pytest.mark.parametrize("drop", [(), ("note",)])
def test_a_quote_that_does_not_end_is_named_though_its_column_is_dropped(tmp_path, drop):
    path = write(tmp_path, "a,note\n" + "1,x\n" * 100 + '2,"y\n' + "3,z\n" * 100)
    with pytest.raises(MalformedInput, match="line 102: a quote begins in this row that does not end"):
        list(read_csv(path, ColumnRoles(drop=drop, raw=None)))


SUSPENDED = """
import sys
from stream_dr.datasets.sources import open_source
blocks = open_source(sys.argv[1]).blocks()
next(blocks)
sys.exit(4)
"""


@pytest.mark.test_all
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.xz", "jsonl"])
def test_python_ends_while_arrow_reads_ahead(tmp_path, suffix):
    line = '{"a": 0.5, "b": 1}\n' if suffix == "jsonl" else "0.5,1\n"
    text = ("" if suffix == "jsonl" else "a,b\n") + line * 400_000
    opened = {"gz": gzip.open, "xz": lzma.open}.get(suffix.rpartition(".")[2], open)
    with opened(tmp_path / f"rows.{suffix}", "wb") as file:
        file.write(text.encode())
    command = [sys.executable, "-c", SUSPENDED, str(tmp_path / f"rows.{suffix}")]
    for _ in range(3):
        child = subprocess.run(command, timeout=60, capture_output=True, text=True)
        assert child.returncode == 4, child.stderr


@pytest.mark.parametrize("at", [0, 30_000])
@pytest.mark.parametrize(
    ("field", "hint"),
    [
        ("1,000", "leave out the comma of thousands, or say --decimal ,"),
        ("1,234,567", "leave out the comma of thousands."),
        ("1.234,5", "leave out the points of thousands and say --decimal ,"),
        ("2,5", "say --decimal ,"),
        ("inf", "no number, it is infinite; leave the row out, or say --missing inf"),
        ("1e400", "at most 1e100 in size; write the column in a larger unit"),
        ("1_000", "no number (finite, at most 1e100 in size); name the column as label or drop it"),
    ],
)
def test_a_number_that_is_none_gets_the_hint_that_fits(tmp_path, field, hint, at):
    path = tmp_path / "x.csv"
    rows = ["2,1\n"] * (at + 20)
    rows[at] = f'"{field}",1\n'
    path.write_text("a,b\n" + "".join(rows))
    with pytest.raises(MalformedInput, match=rf"line {at + 2}: '{re.escape(field)}' in column 'a'.*{re.escape(hint)}"):
        list(read_csv(path, ColumnRoles(raw=False)))


@pytest.mark.parametrize(("sign", "option"), [(";", "';'"), ("\t", r"\t"), ("|", "'|'")])
def test_another_delimiter_is_proposed(tmp_path, sign, option):
    path = tmp_path / "x.csv"
    path.write_text(f"a{sign}b{sign}y\n1{sign}2{sign}u\n")
    with pytest.raises(MalformedInput, match=re.escape(f"say --delimiter {option}")):
        list(read_csv(path, ColumnRoles(label="y")))
    (block,) = read_csv(path, ColumnRoles(label="y"), delimiter=sign)
    assert block.X.tolist() == [[1.0, 2.0]]


def test_words_for_missing_values(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("n,c,y,id\n1,x,u,?\n?,?,v,b\nNA,NA,?,c\n2,x,u,d\n")

    def read(missing):
        (block,) = read_csv(path, ColumnRoles(label="y", id="id", raw=None), missing=missing)
        return block.X.to_pydict(), block.y.targets_by_row(), block.ids

    values, labels, ids = read(("?",))
    assert values == {"n": [1.0, None, None, 2.0], "c": ["x", None, "NA", "x"]}
    assert labels == ["u", "v", None, "u"]
    assert ids == ["?", "b", "c", "d"]
    assert read("?") == read(["?"])
    # An empty word switches the built-in words off.
    assert read(["", "?"])[0]["n"] == ["1", None, "NA", "2"]
    assert read(["?", "NA"])[0]["c"] == ["x", None, None, "x"]
    # Without words, the question mark is a value like any other.
    assert read(())[0]["n"] == ["1", "?", "NA", "2"]

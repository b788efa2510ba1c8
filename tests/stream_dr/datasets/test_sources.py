"""Files as batches: formats by name, the same rows from every format, and bad input told by file, line and column."""

import gzip
import json
import sqlite3
from contextlib import closing

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import stream_dr
from stream_dr.batch.arrow import RESERVED_NAMES
from stream_dr.batch.table import table_kinds
from stream_dr.datasets.sources import infer_format_from_suffix, open_source
from stream_dr.errors import InvalidParameter, MalformedInput, SchemaMismatch, SourceMissing
from stream_dr.shards.dataset import open_dataset
from stream_dr.shards.folder import write_shards

TABLE = pa.table({"a": [0.5, 0.0, 1.0], "b": [0, 2, 1], "y": ["u", "v", "u"]})
LINES = b'{"a":0.5,"b":0,"y":"u"}\n{"a":0,"b":2,"y":"v"}\n{"a":1,"b":1,"y":"u"}\n'


def write(path, name):
    path = path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(write(path.parent, name.removesuffix(".gz")).read_bytes()))
    elif ".jsonl" in name:
        path.write_bytes(LINES)
    elif ".parquet" in name:
        pq.write_table(TABLE, path)
    elif ".feather" in name:
        pyarrow.feather.write_feather(TABLE, path, compression="zstd")
    elif ".arrow" in name:
        with pa.ipc.new_stream(path, TABLE.schema) as stream:
            stream.write_table(TABLE)
    else:
        tab = "\t" if ".tsv" in name else ","
        path.write_text(
            tab.join("aby")
            + "\n"
            + "".join(f"{a}{tab}{b}{tab}{y}\n" for a, b, y in zip(*TABLE.to_pydict().values(), strict=True))
        )
    return path


@pytest.mark.parametrize(
    "name", ["x.csv", "x.CSV.gz", "x.tsv", "x.jsonl", "x.jsonl.gz", "x.parquet", "x.feather", "x.arrow", "x.arrow.gz"]
)
def test_the_same_rows_from_every_format_by_its_name(tmp_path, name):
    path = write(tmp_path, name.replace("CSV", "csv"))
    source = open_source(path.rename(tmp_path / name), label="y")
    for _ in range(2):
        (block,) = source.blocks()
        np.testing.assert_array_equal(block.X, [[0.5, 0], [0, 2], [1, 1]])
        assert (block.names, block.y.targets_by_row(), source.raw) == (("a", "b"), ["u", "v", "u"], False)


def test_a_name_that_says_nothing_and_options_that_are_not(tmp_path):
    assert [infer_format_from_suffix(name) for name in ("a.svm.bz2", "a.zip!b.arff", "a.ndjson.xz")] == [
        "libsvm",
        "arff",
        "jsonl",
    ]
    for call in (lambda: open_source("a.txt"), lambda: open_source([]), lambda: open_source("a.csv", labl="y")):
        with pytest.raises(InvalidParameter):
            call()
    with pytest.raises(SourceMissing):
        open_source(tmp_path / "none.csv")


def test_a_line_may_be_a_row_as_a_shard_has_it(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"indices": [3, 17], "values": [0.5, 1], "label": "a"}\n{"indices": [], "values": [], "label": "b"}\n'
    )
    (block,) = open_source(tmp_path / "a.jsonl").blocks()
    assert (block.sparse, block.X.shape, block.X[0, 17], block.y.labels) == (True, (2, 18), 1.0, ("a", "b"))


def test_words_gaps_and_dates_are_rows_as_the_table_has_them(tmp_path):
    (tmp_path / "a.csv").write_text("n,c,d,y\n1,x,2024-01-01,u\n,y,2024-01-02,v\n3,,,u\n")
    source = open_source(tmp_path / "a.csv", label="y")
    (block,) = source.blocks()
    assert source.raw
    assert block.table
    assert table_kinds(block.X) == {"n": "number", "c": "text", "d": "date"}
    assert [column.is_null().to_pylist() for column in block.X.columns] == [
        [False, True, False],
        *[[False, False, True]] * 2,
    ]
    (block,) = open_source(tmp_path / "a.csv", label="y", kinds=(("n", "category"),)).blocks()
    assert block.X.column("n").dictionary.to_pylist() == ["1", "3"]


def test_integer_ids_stay_integers(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0], "n": [7, 8]}), tmp_path / "a.parquet")
    (block,) = open_source(tmp_path / "a.parquet", id="n").blocks()
    assert block.ids == [7, 8]
    assert stream_dr.Block(block.X, ids=block.ids).take(np.array([1])).ids == [8]


BAD = {
    "latin-1": ("a,é\n1,2\n".encode("latin-1"), "line 1: byte 0xe9 at 3 is no UTF-8.*--encoding"),
    "latin-1 far down": (b"a,b\n" + b"1,x\n" * 30_000 + "1,é\n".encode("latin-1"), "line 30002: byte 0xe9"),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), "line 1: .*--encoding utf-16"),
    "ragged": (b"a,b\n1,2\n1,2,3\n", "line 3: 3 fields where 2"),
    "ragged after a line break in quotes": (b'a,b\n"x\ny",2\n1\n', "line 4: 1 fields where 2"),
    "two columns of one name": (b"a,b,a\n1,2,3\n", "line 1: columns 1 and 3 are both called 'a'"),
    "two columns without a name": (b",a,\n1,2,3\n", "line 1: columns 1 and 3 have no name"),
    "a header of numbers": (b"5.1,3.5,0\n4.9,3.0,1\n", "line 1: .*numbers.*--no-header"),
    "100,000 columns": (b",".join(b"c%d" % i for i in range(100_000)) + b"\n", "line 1: 100000 columns"),
    # The comma comes after the first MiB, from which the types of columns are guessed.
    "decimal commas": (
        b"a;b;c\n" + b"1;2;%a\n" % ("x" * 100) * 11_000 + b"1;2,5;x\n",
        "line 11002: '2,5' in column 'b'.*--decimal",
    ),
    "a fraction after a comma at the start": (b'a,b\n1,"2,5"\n2,3\n', "line 2: '2,5' in column 'b'.*--decimal"),
    "nothing": (b"", "line 1: no row"),
    "a quote that never ends": (b'a,b\n1,"x\n' + b"2,y\n" * 50_000, "line 2: a row begins here.*quote left open"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_csv_is_told_by_file_line_and_column(tmp_path, kind):
    text, said = BAD[kind]
    (tmp_path / "bad.csv").write_bytes(text)
    with pytest.raises(MalformedInput, match=rf"bad\.csv.*{said}"):
        list(open_source(tmp_path / "bad.csv", delimiter=";" if "commas" in kind else ",").blocks())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (b'{"a":1}\n{"a":2\n', "line 2: no JSON"),
        (b'{"a":1}\n[2]\n', "line 2"),
        (b'{"a":1}\n{"a":"x"}\n', "line 2: 'x' in column 'a' is a string"),
    ],
)
def test_a_bad_line_of_json_is_told(tmp_path, lines, said):
    (tmp_path / "bad.jsonl").write_bytes(lines)
    with pytest.raises(MalformedInput, match=rf"bad\.jsonl.*{said}"):
        list(open_source(tmp_path / "bad.jsonl", raw=False).blocks())


def test_encodings_decimal_commas_quotes_and_headers_that_are_said(tmp_path):
    (tmp_path / "a.csv").write_bytes('é;"b\nc"\n1,5;"2,0"\n'.encode("latin-1"))
    (block,) = open_source(tmp_path / "a.csv", delimiter=";", decimal=",", encoding="latin-1").blocks()
    assert (block.names, block.X.tolist()) == (("é", "b\nc"), [[1.5, 2.0]])
    (tmp_path / "b.csv").write_text("0.5,2\n0.1,3\n", encoding="utf-16")
    (block,) = open_source(tmp_path / "b.csv", header=False, encoding="utf-16").blocks()
    assert block.X.tolist() == [[0.5, 2], [0.1, 3]]
    (block,) = open_source(tmp_path / "b.csv", header=True, encoding="utf-16").blocks()
    assert block.names == ("0.5", "2")
    (tmp_path / "c.csv").write_text("0,1,2\n4,5,6\n")  # what pandas calls columns without names
    assert next(open_source(tmp_path / "c.csv").blocks()).names == ("0", "1", "2")


def test_a_file_that_grows_or_vanishes_while_it_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 400_000)
    blocks = open_source(path).blocks()
    next(blocks)
    with open(path, "a") as file:
        file.write("3,4\n")
    with pytest.raises(MalformedInput, match=r"a\.csv was written to while it was read"):
        list(blocks)
    blocks = open_source(path).blocks()
    next(blocks)
    path.unlink()
    with pytest.raises(SourceMissing, match=r"a\.csv"):
        list(blocks)


def test_names_as_lists_tuples_and_texts(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("a,b,u,v\n1,2,0,1\n2,1,1,0\n")
    for option in ("labels", "targets"):
        read = [next(open_source(path, **{option: names}).blocks()) for names in (["u", "v"], ("u", "v"), "u,v")]
        assert [block.names for block in read] == [("a", "b")] * 3
        assert read[0].y.targets_by_row() == read[1].y.targets_by_row() == read[2].y.targets_by_row()
    (block,) = open_source(path, label="u", drop=["v", "b"]).blocks()
    assert block.names == ("a",)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "arrow"])
def test_a_folder_is_its_files(tmp_path, ending):
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(3):
        write(folder, f"x.{ending}").rename(folder / f"part-{number}.{ending}")
    for name in ("_SUCCESS", ".part-0.csv", "README.txt"):
        (folder / name).write_text("nothing")
    source = open_source(folder, label="y", drop="b")
    assert [path.name for path in source.paths] == [f"part-{number}.{ending}" for number in range(3)]
    for block in source.blocks():
        assert (block.names, block.y.targets_by_row()) == (("a",), ["u", "v", "u"])
    learned = stream_dr.fit(stream_dr.LDA(), folder, label="y", drop="b")
    assert (learned.n_samples_seen_, learned.feature_names_in_.tolist()) == (9, ["a"])


def test_label_names_an_array_of_npz(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.ones((3, 2)), y=[9, 9, 9], kind=["u", "v", "u"])
    for option in ("label", "labels"):
        (block,) = open_source(tmp_path / "x.npz", **{option: "kind"}).blocks()
        assert block.y.targets_by_row() == ["u", "v", "u"]


def test_urls_are_not_read():
    for url in ("http://example.org/x.csv", "HTTPS://example.org/x.parquet", "ftp://example.org/x.csv"):
        with pytest.raises(InvalidParameter, match="URLs are not read; download it first"):
            open_source(url)


@pytest.mark.parametrize("name", RESERVED_NAMES)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "arrow", "db", "duckdb"])
def test_a_column_of_a_reserved_name_is_a_feature_if_an_option_says_so(tmp_path, name, suffix):
    table = pa.table({"a": [0.5, 0.0, 1.0], name: [3.0, 2.0, 5.0], "y": ["u", "v", "u"]})
    path = write_table(table, tmp_path / f"x.{suffix}")
    with pytest.raises((SchemaMismatch, MalformedInput), match=f"--as {name}=feature"):
        list(open_source(path, label="y").blocks())
    (block,) = open_source(path, label="y", kinds=((name, "feature"),)).blocks()
    assert (block.names, block.weights, block.ids, block.table) == (("a", name), None, None, False)
    np.testing.assert_array_equal(block.X, [[0.5, 3], [0, 2], [1, 5]])

    write_shards([block], tmp_path / "shards")
    ((_, again),) = open_dataset(tmp_path / "shards").events()
    assert (again.names, again.weights, again.ids) == (("a", name), None, None)
    np.testing.assert_array_equal(again.X, block.X)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl", "duckdb"])
def test_a_list_column_called_features_is_the_rows_beside_columns_with_roles(tmp_path, suffix):
    rows = [[0.5, 1.0], [0.0, 2.0], [1.0, 7.0]]
    table = pa.table({"features": rows, "y": ["u", "v", "u"], "i": [7, 8, 9]})
    path = write_table(table, tmp_path / f"x.{suffix}")
    (block,) = open_source(path, label="y", id="i").blocks()
    assert (block.names, block.ids, block.y.labels) == (None, [7, 8, 9], ("u", "v"))
    np.testing.assert_array_equal(block.X, rows)

    ragged = pa.table({"features": [[0.5, 1.0], [0.0]], "y": ["u", "v"]})
    with pytest.raises(MalformedInput, match=r"row 1: .*'features' has 1 numbers in row 1 and 2 in row 0"):
        list(open_source(write_table(ragged, tmp_path / f"r.{suffix}"), label="y").blocks())


def write_table(table, path):
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, table.to_pylist())))
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    elif path.suffix == ".db":
        with closing(sqlite3.connect(path)) as database:
            table.to_pandas().to_sql("t", database, index=False)
    else:
        with duckdb.connect(path) as database:
            database.register("rows", table)
            database.execute("CREATE TABLE t AS SELECT * FROM rows")
    return path


def test_integers_before_numbers_in_a_table_of_json(tmp_path):
    """A target may have its first fraction after the rows that decide the types."""
    row = '{"a": "a word of some length, so that the first piece ends early", "t": %s}\n'
    (tmp_path / "a.jsonl").write_text(row % 1 * 30_000 + row % 0.5)
    blocks = list(open_source(tmp_path / "a.jsonl", targets="t").blocks())
    assert blocks[-1].y.values[-1, 0] == 0.5

    (tmp_path / "b.jsonl").write_text(row % 1 + row % "null")
    with pytest.raises(MalformedInput, match="line 2: None in column 't' is no number"):
        list(open_source(tmp_path / "b.jsonl", targets="t").blocks())

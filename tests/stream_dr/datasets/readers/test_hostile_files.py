"""Small files that unpack to much: no reader takes more than four times its budget. Short form of benchmarks/fuzz_files."""

import gzip
import lzma

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from benchmarks.fuzz_files import BUDGET, tried, varint
from benchmarks.memory import peak
from stream_dr.budget import SETTING
from stream_dr.datasets.readers.csv import COLUMN_BYTES
from stream_dr.datasets.readers.mulan import read_arff
from stream_dr.datasets.sources import open_source
from stream_dr.errors import LimitExceeded, MalformedInput
from stream_dr.shards.dataset import open_shard

SEED = 31


@pytest.fixture(autouse=True)
def budget(monkeypatch):
    monkeypatch.setenv(SETTING, str(BUDGET))


@pytest.mark.test_all
@pytest.mark.parametrize("number", range(10))
def test_drawn_files(number):
    told = tried(SEED, number)
    assert not told.startswith("harm"), told


@pytest.mark.test_all
@pytest.mark.parametrize("number", range(10, 30))
def test_more_drawn_files(number):
    test_drawn_files(number)


def refused(path, match):
    with pytest.raises((LimitExceeded, MalformedInput), match=match) as caught:
        for _ in open_source(path).blocks():
            pass
    assert SETTING in str(caught.value)


def test_json_lines_of_a_key_each(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"k{i}":1}}\n' for i in range(20_000)))
    refused(tmp_path / "a.jsonl", r"line \d+: \d+ rows so far have \d+ keys; give rows the same ones")


def test_a_line_and_a_row_that_do_not_end(tmp_path):
    with gzip.open(tmp_path / "a.svm.gz", "wb") as file:
        file.write(b"1 1:1" + b" " * 5_000_000)
    refused(tmp_path / "a.svm.gz", "line 1: longer than 2097152 bytes")
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b'"\n",' * 2_000_000)
    refused(tmp_path / "a.csv.gz", "a row begins here of more than 2097152 bytes; is a quote left open")


@pytest.mark.test_all
def test_as_many_csv_columns_as_are_read_and_one_more(tmp_path):
    for columns in (most := BUDGET // COLUMN_BYTES, most + 1):
        header = ",".join(f"c{i}" for i in range(columns))
        (tmp_path / f"{columns}.csv").write_text("\n".join([header, *["1" + "," * (columns - 1)] * 20]))
    size, told = peak(lambda: sum(block.rows for block in open_source(tmp_path / f"{most}.csv").blocks()))
    assert (size < 4 * BUDGET, told) == (True, "")
    refused(tmp_path / f"{most + 1}.csv", f"{most + 1} columns, and at most {most} are read")


@pytest.mark.test_all
def test_an_arff_header_that_does_not_end(tmp_path):
    with gzip.open(tmp_path / "a.arff.gz", "wb") as file:
        file.write(b"@attribute a real\n" * 200_000)
    refused(tmp_path / "a.arff.gz", "the header is longer than 2097152 bytes")


@pytest.mark.test_all
def test_many_arff_labels_of_rows_without_any(tmp_path):
    names = [f"a{i}" for i in range(8_000)]
    lines = [*(f"@attribute {name} {{0,1}}" for name in names), "@attribute x real", "@data", *["{}"] * 1_600]
    (tmp_path / "a.arff").write_text("\n".join(lines))
    size, told = peak(lambda: sum(block.rows for block in read_arff(tmp_path / "a.arff", labels=names)))
    assert (size < 4 * BUDGET, told) == (True, "")


@pytest.mark.parametrize("name", ["dense", "sparse labels", "sparse rows", "words"])
def test_a_matlab_variable_larger_than_the_budget(tmp_path, name):
    X, y = {
        "dense": (np.zeros((10_000, 1_000), np.uint8), np.ones((10_000, 1))),
        "sparse labels": (np.zeros((10_000, 1)), sp.csc_matrix((10_000, 1_000))),
        "sparse rows": (sp.csc_matrix(np.ones((4_000, 500))), np.ones((4_000, 1))),
        "words": (np.zeros((1_000, 1)), np.array(["a" * 10_000] * 1_000, dtype=object)),
    }[name]
    scipy.io.savemat(tmp_path / "a.mat", {"fea": X, "gnd": y}, do_compression=True)
    refused(tmp_path / "a.mat", r"a\.mat: fea, gnd take \d+ bytes; .* or save the rows as text or Parquet")


def test_matlab_s_indices_outside_of_the_shape(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"fea": sp.csc_matrix(np.eye(3)), "gnd": np.ones((3, 1))})
    rows = np.arange(3, dtype="<i4").tobytes()
    wrong = rows.replace(b"\1", b"\xff")
    (tmp_path / "a.mat").write_bytes((tmp_path / "a.mat").read_bytes().replace(rows, wrong))
    with pytest.raises(MalformedInput, match="sparse variable that is damaged"):
        list(open_source(tmp_path / "a.mat").blocks())


@pytest.mark.test_all
def test_a_parquet_footer_that_says_less_than_its_pages(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": ["a" * 200_000_000]}), path, compression="zstd")
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    data = path.read_bytes()
    for size in (column.total_uncompressed_size, pq.ParquetFile(path).metadata.row_group(0).total_byte_size):
        data = data.replace(varint(size), varint(100, len(varint(size))))
    path.write_bytes(data)
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == 100
    refused(path, r"column t of row group 0 unpacks from \d+ bytes to 2\d{8}, and a page of it to 2\d{8}")


def test_xz_with_a_dictionary_larger_than_the_budget(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    for name, text in (("a.csv.xz", b"x,y\n1,2\n" * 9), ("a.svm.xz", b"1 1:1\n" * 9)):
        with lzma.open(tmp_path / name, "wb", filters=filters) as file:
            file.write(text)
        refused(tmp_path / name, f"unpacking may take {BUDGET} bytes")


@pytest.mark.parametrize("zeros", [b"", b"\0" * 8])
def test_xz_streams_one_behind_the_other_are_read(tmp_path, zeros):
    (tmp_path / "a.svm.xz").write_bytes(lzma.compress(b"1 1:1\n") + zeros + lzma.compress(b"2 2:1\n" * 50_000) + zeros)
    assert sum(block.rows for block in open_source(tmp_path / "a.svm.xz").blocks()) == 50_001
    (tmp_path / "b.svm.xz").write_bytes(lzma.compress(b"1 1:1\n" * 50_000)[:-20])
    with pytest.raises(MalformedInput, match="cannot be unpacked"):
        list(open_source(tmp_path / "b.svm.xz").blocks())


def test_a_compressed_batch_of_a_shard(tmp_path):
    table = pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(8_000_000)), 8)})
    with pa.ipc.new_file(
        tmp_path / "a.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as file:
        file.write_table(table)
    size, told = peak(lambda: open_shard(tmp_path / "a.arrow").read(0))
    assert size < 4 * BUDGET
    assert told.startswith("LimitExceeded: ")
    assert "a.arrow: a record batch of" in told
    assert f"unpacks to 64000000; write smaller batches, or set {SETTING} for more." in told

"""Small files that unpack to much: no reader takes more than four times its budget. Short form of benchmarks/fuzz_files."""

import gzip
import lzma

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.fuzz_files import BUDGET, tried
from benchmarks.memory import peak
from stream_dr.budget import SETTING
from stream_dr.datasets.sources import open_source
from stream_dr.errors import LimitExceeded, MalformedInput
from stream_dr.shards.dataset import open_shard

SEED = 31


@pytest.fixture(autouse=True)
def budget(monkeypatch):
    monkeypatch.setenv(SETTING, str(BUDGET))


@pytest.mark.parametrize("number", range(30))
def test_drawn_files(number):
    told = tried(SEED, number)
    assert not told.startswith("harm"), told


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

"""Files of text that do not end, of too many columns or keys, and indices outside of a matrix."""

import gzip
import lzma

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from stream_dr.datasets.readers.mulan import read_arff
from stream_dr.datasets.sources import open_source
from stream_dr.errors import MalformedInput
from tests.support.memory import peak


def refused(path, match):
    with pytest.raises(MalformedInput, match=match):
        for _ in open_source(path).blocks():
            pass


def test_json_lines_of_a_key_each(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"k{i}":1}}\n' for i in range(20_000)))
    refused(tmp_path / "a.jsonl", r"line \d+: \d+ rows so far have \d+ keys; give rows the same ones")


def test_a_line_and_a_row_that_do_not_end(tmp_path):
    with gzip.open(tmp_path / "a.svm.gz", "wb") as file:
        file.write(b"1 1:1" + b" " * 17_000_000)
    refused(tmp_path / "a.svm.gz", "line 1: longer than 16777216 bytes")
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b'"\n",' * 5_000_000)
    refused(tmp_path / "a.csv.gz", "a row begins here of more than 16777216 bytes; is a quote left open")


@pytest.mark.test_all
def test_many_arff_labels_of_rows_without_any(tmp_path):
    names = [f"a{i}" for i in range(8_000)]
    lines = [*(f"@attribute {name} {{0,1}}" for name in names), "@attribute x real", "@data", *["{}"] * 1_600]
    (tmp_path / "a.arff").write_text("\n".join(lines))
    size, told = peak(lambda: sum(block.rows for block in read_arff(tmp_path / "a.arff", labels=names)))
    assert (size < 128 << 20, told) == (True, "")


def test_matlab_s_indices_outside_of_the_shape(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"fea": sp.csc_matrix(np.eye(3)), "gnd": np.ones((3, 1))})
    rows = np.arange(3, dtype="<i4").tobytes()
    wrong = rows.replace(b"\1", b"\xff")
    (tmp_path / "a.mat").write_bytes((tmp_path / "a.mat").read_bytes().replace(rows, wrong))
    with pytest.raises(MalformedInput, match="sparse variable that is damaged"):
        list(open_source(tmp_path / "a.mat").blocks())


def test_xz_streams_one_behind_the_other_are_read(tmp_path):
    (tmp_path / "a.svm.xz").write_bytes(lzma.compress(b"1 1:1\n") + lzma.compress(b"2 2:1\n" * 50_000))
    assert sum(block.rows for block in open_source(tmp_path / "a.svm.xz").blocks()) == 50_001
    (tmp_path / "b.svm.xz").write_bytes(lzma.compress(b"1 1:1\n" * 50_000)[:-20])
    with pytest.raises(MalformedInput, match="cannot be unpacked"):
        list(open_source(tmp_path / "b.svm.xz").blocks())

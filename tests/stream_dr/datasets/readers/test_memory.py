"""Memory does not grow with the file: ten times the rows, the same peak."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dr.datasets.readers.columns import ColumnRoles
from stream_dr.datasets.readers.csv import read_csv
from stream_dr.datasets.readers.libsvm import read_libsvm, read_vw
from stream_dr.datasets.readers.mulan import read_arff
from stream_dr.datasets.readers.rcv1 import read_lyrl2004
from stream_dr.datasets.readers.tables import read_parquet

ROW = " ".join(f"{i}:{i / 997:.6f}" for i in range(1, 400, 7))


def svm(n):
    return "".join(f"{i % 3} {ROW}\n" for i in range(n))


def vw(n):
    return "".join(f"{i % 3} |f {ROW}\n" for i in range(n))


def rcv1(n):
    return "".join(f"{i} {ROW}\n" for i in range(n))


def arff(n):
    head = "@relation r\n" + "".join(f"@attribute a{j} numeric\n" for j in range(40)) + "@attribute y {0,1}\n@data\n"
    return head + "".join(",".join(["0.25"] * 40) + f",{i % 2}\n" for i in range(n))


def table(n):
    return ",".join(f"a{j}" for j in range(40)) + ",y\n" + "".join("0.25," * 40 + f"{i % 2}\n" for i in range(n))


def topics(tmp_path):
    path = tmp_path / "topics"
    path.write_text("CCAT 1 1\nGCAT 2 1\n")
    return path


READERS = {
    "libsvm": (svm, lambda path, tmp: read_libsvm(path)),
    "vw": (vw, lambda path, tmp: read_vw(path)),
    "rcv1": (rcv1, lambda path, tmp: read_lyrl2004(path, topics(tmp))),
    "arff": (arff, lambda path, tmp: read_arff(path, label="y")),
    "csv": (table, lambda path, tmp: read_csv(path, ColumnRoles(label="y"))),
}


def peak(read, path, tmp_path):
    """Largest traced Python and Arrow memory while reading, in bytes."""
    before, arrow = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    rows = 0
    for block in read(path, tmp_path):
        rows += block.rows
        arrow = max(arrow, pa.total_allocated_bytes() - before)
    traced = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return traced + arrow, rows


@pytest.mark.test_all
@pytest.mark.parametrize("format", READERS)
def test_the_peak_does_not_grow(tmp_path, format):
    make, read = READERS[format]
    # Arrow reads 32 pieces of 1 MiB of a csv ahead. The large csv takes 80 MB, and its rows 128 MB.
    few, read_ahead = (40_000, 40 << 20) if format == "csv" else (4_000, 0)
    (tmp_path / "small").write_text(make(few))
    (tmp_path / "large").write_text(make(10 * few))
    small, rows = peak(read, tmp_path / "small", tmp_path)
    large, more = peak(read, tmp_path / "large", tmp_path)
    assert (rows, more) == (few, 10 * few)
    assert large < 1.3 * small + 2_000_000 + read_ahead


def test_the_peak_does_not_grow_with_parquet_either(tmp_path):
    X = np.random.default_rng(0).standard_normal((4_000, 40))
    rows = pa.table({f"a{j}": X[:, j] for j in range(40)})
    for name, groups in (("small", 1), ("large", 10)):
        with pq.ParquetWriter(tmp_path / name, rows.schema) as writer:
            for _ in range(groups):
                writer.write_table(rows)
    small, _ = peak(lambda path, _: read_parquet(path), tmp_path / "small", tmp_path)
    large, n = peak(lambda path, _: read_parquet(path), tmp_path / "large", tmp_path)
    assert n == 40_000
    assert large < 1.3 * small + 2_000_000

"""Small files that unpack to much, against the readers: each takes at most four times the budget for reading, and its error
says which setting allows more.

    python -m benchmarks.fuzz_files [--runs 500] [--seed S] [--resume FILE]

File N of a seed is the same in every run: CSV, JSON lines, libsvm and ARFF, plain or packed by gz, bz2 or xz, Parquet and
Arrow by zstd, lz4 or not, MATLAB's; with long or many lines, rows, columns, keys, texts, lists, nulls or zeros; a Parquet
footer or a MATLAB variable may say that it is less. Each is read by a fork of this process, whose largest size is taken.
Exits 1 where one took more, or failed with an error that is not one of ours.
"""

import argparse
import bz2
import gzip
import lzma
import os
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp

from benchmarks import record
from benchmarks.memory import peak
from stream_dr import errors
from stream_dr.budget import SETTING
from stream_dr.datasets.sources import open_source

BUDGET = 32 << 20
MODULES = 24 << 20
"""Bytes that what is imported at the first use may take."""

Draw = np.random.Generator
_PACKERS: dict[str, Any] = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def _lines(draw: Draw, header: bytes, line: Callable[[int], bytes], ends: bytes = b"") -> list[bytes]:
    """Lines of a drawn length and number, of some 200 MB at most."""
    width = int(draw.choice([1, 100, 10_000, 1_000_000, 20_000_000]))
    row = line(width)
    return [header, *[row] * max(1, min(3_000, int(draw.choice([10, 200_000_000])) // (len(row) + 1))), ends]


def _csv(draw: Draw) -> list[bytes]:
    match int(draw.integers(6)):
        case 0:
            return _lines(draw, b"a,b", lambda n: b"1," + b"x" * n)
        case 1:
            return _lines(draw, b"a,b", lambda n: b"1,2\n" * n)
        case 2:
            columns = int(draw.choice([3_000, 50_000, 300_000]))
            return [b",".join(b"c%d" % i for i in range(columns)), *[b"1" + b"," * (columns - 1)] * 20]
        case 3:
            return [b"," * int(draw.choice([1_000_000, 50_000_000]))]
        case 4:
            return [b'"\n",' * int(draw.choice([1_000, 10_000_000])), b"1"]
        case _:
            return [b"a" * 10_000_000 + b",b", *[b"1,2"] * 100_000]


def _jsonl(draw: Draw) -> list[bytes]:
    n = int(draw.choice([100, 5_000, 60_000]))
    match int(draw.integers(4)):
        case 0:
            return [b'{"k%d":1}' % i for i in range(n)]
        case 1:
            return [b'{"a":{"k%d":1}}' % i for i in range(n)]
        case 2:
            return [b'{"a":' + b"[" * n + b"]" * n + b"}"]
        case _:
            return _lines(draw, b'{"a":1}', lambda width: b'{"a":' + b" " * width + b"1}")


def _svm(draw: Draw) -> list[bytes]:
    return _lines(draw, b"1 1:1", lambda n: b"1" + b" " * n + b"1:1")


def _arff(draw: Draw) -> list[bytes]:
    many = [b"@attribute a%d real" % i for i in range(int(draw.choice([100, 100_000, 1_000_000])))]
    match int(draw.integers(5)):
        case 0:
            return [*many, b"@data", *[b"1" + b",1" * (len(many) - 1)] * max(1, 10_000_000 // len(many))]
        case 1:
            return [*many, b"@data", *[b"{}"] * 100_000, b"{0 1,99 2}"]
        case 2:
            return _lines(draw, b"@attribute a real\n@data", lambda n: b"{" + b"0 1," * n + b"}")
        case 3:
            return [b"@attribute a {" + b"x," * int(draw.choice([10, 10_000_000])) + b"y}", b"@data", b"1"]
        case _:
            return _lines(draw, b"@attribute a real\n@data", lambda n: b"1" + b" " * n)


def _matlab(draw: Draw, path: Path) -> None:
    """A variable of rows, labels, and one that is passed over."""
    rows = int(draw.choice([100, 10_000, 1_000_000]))
    width = int(draw.choice([1, 30, 1_000]))
    labels: Any = np.ones((rows, 1))
    match int(draw.integers(5)):
        case 0:
            X: Any = np.zeros((rows, min(width, 50_000_000 // rows)), draw.choice(["f8", "f4", "u1", "?"]))
        case 1:
            X = sp.csc_matrix((rows, width))
        case 2:
            X = sp.csc_matrix(np.ones((rows, min(width, 10_000_000 // rows)), draw.choice(["f8", "?"])))
        case 3:
            X, labels = np.zeros((rows, 1)), np.array(["a" * (2_000_000 // rows)] * rows, dtype=object)
        case _:
            X, labels = np.zeros((rows, 1)), sp.csc_matrix((rows, 1_000))
    compressed = bool(draw.integers(4))
    scipy.io.savemat(path, {"fea": X, "gnd": labels, "other": np.zeros((1_000, 1_000))}, do_compression=compressed)
    if not compressed and draw.integers(2):
        data = bytearray(path.read_bytes())
        data[160:168] = struct.pack(
            "<ii", *draw.choice([0, 1, 1_000, 1 << 20, (1 << 31) - 1, -1], 2)
        )  # the shape of fea
        path.write_bytes(data)


def _lie(draw: Draw, path: Path) -> None:
    """The footer of a Parquet file says a hundred where it said how many rows or values there are, or their bytes."""
    metadata = pq.ParquetFile(path).metadata
    group = metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    sizes = {c.total_uncompressed_size for c in columns if c.total_uncompressed_size != c.total_compressed_size}
    said = [sizes, {c.num_values for c in columns}, {group.num_rows, metadata.num_rows}][int(draw.integers(3))]
    data = bytearray(path.read_bytes())
    start = len(data) - 8 - metadata.serialized_size
    for number in said:
        data[start:] = data[start:].replace(varint(number), varint(min(number, 100), len(varint(number))))
    path.write_bytes(data)


def varint(number: int, length: int = 1) -> bytes:
    """A whole number as Parquet's footer has it (Thrift's compact protocol), in so many bytes at least."""
    number, out = 2 * number, bytearray()
    while number > 127 or len(out) < length - 1:
        number, seven = divmod(number, 128)
        out.append(seven | 128)
    return bytes([*out, number])


def _table(draw: Draw) -> pa.Table:
    rows = int(draw.choice([1_000, 100_000, 10_000_000]))
    match int(draw.integers(7)):
        case 0:
            return pa.table({"x": np.zeros(rows)})
        case 1:
            return pa.table({"x": pa.nulls(rows), "y": np.zeros(rows)})
        case 2:
            text = "a" * min(1_000_000, 200_000_000 // min(rows, 5_000))
            codes = pa.array(np.zeros(min(rows, 5_000), np.int32))
            return pa.table({"t": pa.DictionaryArray.from_arrays(codes, pa.array([text])).cast(pa.string())})
        case 3:
            return pa.table({"v": pa.array([np.zeros(rows)])})
        case 4:
            return pa.table({f"c{i}": np.zeros(1_000) for i in range(int(draw.choice([10, 5_000])))})
        case 5:
            return pa.table({"t": ["a" * min(900_000_000, 50 * rows)]})
        case _:
            return pa.table({"x": pa.array(np.zeros(rows, bool)), "y": np.zeros(rows)})


def write(folder: Path, seed: int, number: int) -> Path:
    """Write file `number` of a seed."""
    draw = np.random.default_rng((seed, number))
    kind = str(draw.choice(["csv", "jsonl", "svm", "arff", "mat", "parquet", "arrow"]))
    if kind == "mat":
        _matlab(draw, folder / f"{number}.mat")
        return folder / f"{number}.mat"
    if kind in ("parquet", "arrow"):
        path, table = folder / f"{number}.{kind}", _table(draw)
        compression = str(draw.choice(["zstd", "lz4", "none"]))
        if kind == "parquet":
            group = int(draw.choice([1_000, 1 << 30]))
            pq.write_table(
                table, path, compression=compression, row_group_size=group, store_schema=bool(draw.integers(2))
            )
            if draw.integers(2):
                _lie(draw, path)
        else:
            options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
            with pa.ipc.new_file(path, table.schema, options=options) as file:
                file.write_table(table)
        return path
    packing = str(draw.choice(list(_PACKERS)))
    path = folder / f"{number}.{kind}{packing}"
    with _PACKERS[packing](path, "wb") as file:
        for line in {"csv": _csv, "jsonl": _jsonl, "svm": _svm, "arff": _arff}[kind](draw):
            file.write(line + b"\n")
    return path


def read(path: Path, raw: bool) -> None:
    """Read it as `stream-dr learn` does. Raises what it raises, a MemoryError and the like by another name."""
    for block in (
        open_source(path, raw=raw).blocks() if path.suffix in (".parquet", ".arrow") else open_source(path).blocks()
    ):
        assert block.rows >= 0


def tried(seed: int, number: int) -> str:
    """What became of file `number`: "read", the error's name, or "harm: …"."""
    os.environ[SETTING] = str(BUDGET)
    with tempfile.TemporaryDirectory() as folder:
        _, told = peak(lambda: write(Path(folder), seed, number))
        if told:
            return f"harm: it could not be written: {told[:200]}"
        path = next(Path(folder).iterdir())
        size, told = peak(lambda: read(path, bool(number % 2)))
        name = told.partition(":")[0]
        mapped = path.stat().st_size if path.suffix == ".arrow" else 0  # the pages of the file itself
        if size - mapped > 4 * BUDGET + MODULES:
            return f"harm: {path.name} of {path.stat().st_size} bytes took {size} ({told[:100]})"
        if told and not issubclass(getattr(errors, name, Exception), errors.StreamDRError):
            return f"harm: {path.name}: {told[:200]}"
        return name or "read"


def main() -> None:
    """The command line."""
    done = record.Record(record.options(argparse.ArgumentParser(description=__doc__), runs=500))
    while done.done < done.runs:
        counts: Counter[str] = Counter()
        stop = min(done.done + 20, done.runs)
        for number in range(done.done, stop):
            told = tried(done.seed, number)
            counts[told.partition(":")[0]] += 1
            if told.startswith("harm"):
                print(f"file {number}: {told}", flush=True)
        done.add(stop, dict(counts))
    print(done.told())
    sys.exit(1 if done.counts["harm"] else 0)


if __name__ == "__main__":
    main()

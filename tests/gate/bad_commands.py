"""Bad inputs of the command line: files and options that `stream-dr learn` and other commands refuse."""

import contextlib
import io
import re
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io

from stream_dr.cli import main
from tests.gate.outcomes import Outcome, first_sentence

GOOD = "a,b,y\n1,2,u\n3,5,v\n2,1,u\n4,4,v\n"
LINES = '{"a": 1, "b": 2, "y": "u"}\n{"a": 3, "b": 5, "y": "v"}\n'
NUMBERED = "a,y\n" + "".join(f"{i % 7},{i}\n" for i in range(300))
SVM = "1 1:0.5 3:1\n2 2:0.25\n"
ARFF = "@relation r\n@attribute a numeric\n@attribute y {u,v}\n@data\n"


def npz(**arrays: np.ndarray) -> bytes:
    """Return a file of numpy's with these arrays."""
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    """Return a file of numpy's with one array."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def mat(**arrays: np.ndarray) -> bytes:
    """Return a file of MATLAB's with these variables."""
    out = io.BytesIO()
    scipy.io.savemat(out, arrays)
    return out.getvalue()


def parquet(**columns: object) -> bytes:
    """Return a Parquet file with these columns."""
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def arrow(**columns: object) -> bytes:
    """Return an Arrow file with these columns."""
    out = io.BytesIO()
    table = pa.table(columns)
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def sqlite() -> bytes:
    """Return a database with two tables."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table one (a real, y text)")
        connection.execute("create table two (a real, y text)")
        connection.execute("insert into one values ('x', 'u')")
        connection.commit()
        return connection.serialize()


Y = ["--label", "y"]
TARGETS = ["--targets", "y"]
LABELS = ["--labels", "y"]

FILES: dict[str, tuple[str, str | bytes | Callable[[], bytes], list[str]]] = {
    "csv, no such column": ("a.csv", GOOD, ["--label", "z"]),
    "csv, letter case": ("a.csv", GOOD, ["--label", "Y"]),
    "csv, empty": ("a.csv", "", Y),
    "csv, header only": ("a.csv", "a,b,y\n", Y),
    "csv, blank lines only": ("a.csv", "\n\n", Y),
    "csv, a field more": ("a.csv", GOOD + "1,2,u,9\n", Y),
    "csv, a field less": ("a.csv", GOOD + "1,2\n", Y),
    "csv, one name twice": ("a.csv", "a,a,y\n1,2,u\n", Y),
    "csv, no names": ("a.csv", ",,y\n1,2,u\n", Y),
    "csv, a header of numbers": ("a.csv", "1,2,3\n4,5,6\n", []),
    "csv, latin-1": ("a.csv", "a,é\n1,2\n".encode("latin-1"), []),
    "csv, utf-16": ("a.csv", GOOD.encode("utf-16"), Y),
    "csv, NUL": ("a.csv", b"a,b,y\n1,\0,u\n", Y),
    "csv, an open quote": ("a.csv", 'a,b,y\n1,2,"u\n3,4,v\n', Y),
    "csv, semicolons": ("a.csv", GOOD.replace(",", ";"), Y),
    "csv, decimal commas": ("a.csv", 'a,b,y\n"1,5","2,5",u\n"2,5","1,5",v\n', Y),
    "csv, inf": ("a.csv", "a,b,y\n1,inf,u\n2,3,v\n", Y),
    "csv, 1e200": ("a.csv", "a,b,y\n1,1e200,u\n2,3,v\n", Y),
    "csv, 1e400": ("a.csv", "a,b,y\n1,1e400,u\n2,3,v\n", Y),
    "csv, words as features": ("a.csv", "a,b,y\n1,x,u\n2,z,v\n", Y),
    "csv, a gap": ("a.csv", "a,b,y\n1,,u\n2,3,v\n", Y),
    "csv, no column left": ("a.csv", GOOD, [*Y, "--drop", "a,b"]),
    "csv, drops what is not there": ("a.csv", GOOD, [*Y, "--drop", "z"]),
    "csv, drops the label": ("a.csv", GOOD, [*Y, "--drop", "y"]),
    "csv, label and labels": ("a.csv", GOOD, [*Y, "--labels", "a,b"]),
    "csv, label and targets": ("a.csv", GOOD, [*Y, "--targets", "a"]),
    "csv, targets are words": ("a.csv", GOOD, TARGETS),
    "csv, a target is a gap": ("a.csv", "a,y,z\n1,2,1\n2,,1\n", ["--targets", "y,z"]),
    "csv, a target is inf": ("a.csv", "a,y\n1,inf\n2,1\n", TARGETS),
    "csv, labels of words": ("a.csv", GOOD, ["--labels", "y,a"]),
    "csv, labels of 0 and 2": ("a.csv", "a,p,q\n1,0,2\n2,1,1\n", ["--labels", "p,q"]),
    "csv, labels in one column": ("a.csv", GOOD, LABELS),
    "csv, separator without labels": ("a.csv", GOOD, [*Y, "--separator", ";"]),
    "csv, weight is a word": ("a.csv", GOOD, ["--weight", "y"]),
    "csv, weight is negative": ("a.csv", "a,w,y\n1,-1,u\n2,1,v\n", [*Y, "--weight", "w"]),
    "csv, weight is a gap": ("a.csv", "a,w,y\n1,,u\n2,1,v\n", [*Y, "--weight", "w"]),
    "csv, no such weight": ("a.csv", GOOD, [*Y, "--weight", "w"]),
    "csv, no such id": ("a.csv", GOOD, [*Y, "--id", "i"]),
    "csv, an id is a gap": ("a.csv", "a,i,y\n1,,u\n2,x,v\n", [*Y, "--id", "i"]),
    "csv, id and label are one": ("a.csv", GOOD, [*Y, "--id", "y"]),
    "csv, no such --as column": ("a.csv", GOOD, [*Y, "--as", "z=text"]),
    "csv, no such --as kind": ("a.csv", GOOD, [*Y, "--as", "a=word"]),
    "csv, --as without =": ("a.csv", GOOD, [*Y, "--as", "a"]),
    "csv, --as date of numbers": ("a.csv", GOOD, [*Y, "--as", "a=date"]),
    "csv, no such encoding": ("a.csv", GOOD, [*Y, "--encoding", "klingon"]),
    "csv, delimiter of two": ("a.csv", GOOD, [*Y, "--delimiter", "||"]),
    "csv, decimal is the delimiter": ("a.csv", GOOD, [*Y, "--decimal", ","]),
    "csv, impute a word": ("a.csv", GOOD, [*Y, "--impute", "median"]),
    "csv, features of 200,000 columns": ("a.csv", ",".join(f"c{i}" for i in range(200_000)) + "\n", []),
    "csv, not numbers after many lines": ("a.csv", "a,y\n" + f"1,{'u' * 100}\n" * 11_000 + "x,u\n", Y),
    "csv, whole numbers as labels": (
        "a.csv",
        "a,y\n" + "".join(f"{i % 7},{i}\n" for i in range(300)),
        [*Y, "--model", "m=lda"],
    ),
    "csv, not gzip": ("a.csv.gz", GOOD, Y),
    "csv, an option of libsvm": ("a.csv", GOOD, [*Y, "--zero-based"]),
    "csv, an option of arff": ("a.csv", GOOD, [*Y, "--topics", "t.dat"]),
    "csv, read as libsvm": ("a.csv", GOOD, ["--format", "libsvm"]),
    "csv, read as parquet": ("a.csv", GOOD, ["--format", "parquet"]),
    "csv, no such format": ("a.csv", GOOD, ["--format", "excel"]),
    "a name without a format": ("a.dat", GOOD, Y),
    "no such file": ("", "", Y),
    "no such estimator": ("a.csv", GOOD, [*Y, "--model", "m=umap"]),
    "no such parameter": ("a.csv", GOOD, [*Y, "--model", "m=lda:gama=1"]),
    "a parameter out of range": ("a.csv", GOOD, [*Y, "--model", "m=lda:gamma=-1"]),
    "a model without a name": ("a.csv", GOOD, [*Y, "--model", "lda"]),
    "a model of numbers over labels": ("a.csv", GOOD, [*Y, "--model", "m=hsic"]),
    "lda of several labels": ("a.csv", "a,p,q\n1,0,1\n2,1,1\n", ["--labels", "p,q", "--model", "m=lda"]),
    "lda of targets": ("a.csv", "a,y\n1,0.5\n2,1.5\n", [*TARGETS, "--model", "m=lda"]),
    "lda without a label": ("a.csv", "a,b\n1,0.5\n2,1.5\n", ["--model", "m=lda"]),
    "loops of 0": ("a.csv", GOOD, [*Y, "--loops", "0"]),
    "no such option": ("a.csv", GOOD, [*Y, "--lable", "y"]),
    "jsonl, empty": ("a.jsonl", "", Y),
    "jsonl, half a line": ("a.jsonl", LINES + '{"a": 1,\n', Y),
    "jsonl, NaN": ("a.jsonl", LINES + '{"a": NaN, "b": 1, "y": "u"}\n', Y),
    "jsonl, a list": ("a.jsonl", "[1, 2]\n", Y),
    "jsonl, one object": ("a.jsonl", '{"rows": [[1, 2]]}', Y),
    "jsonl, a key less": ("a.jsonl", LINES + '{"a": 1, "y": "u"}\n', Y),
    "jsonl, a key more": ("a.jsonl", LINES + '{"a": 1, "b": 1, "c": 2, "y": "u"}\n', Y),
    "jsonl, a nested value": ("a.jsonl", '{"a": {"b": 1}, "y": "u"}\n', Y),
    "jsonl, a list as a feature": ("a.jsonl", '{"a": [1, 2], "y": "u"}\n', Y),
    "jsonl, another type": ("a.jsonl", LINES + '{"a": "x", "b": 1, "y": "u"}\n', Y),
    "jsonl, labels of other types": ("a.jsonl", LINES + '{"a": 1, "b": 1, "y": 2}\n', Y),
    "jsonl, a key twice": ("a.jsonl", '{"a": 1, "a": 2, "y": "u"}\n', Y),
    "jsonl, sparse, an index twice": ("a.jsonl", '{"indices": [1, 1], "values": [1, 2], "label": "u"}\n', []),
    "jsonl, sparse, lengths": ("a.jsonl", '{"indices": [1], "values": [1, 2], "label": "u"}\n', []),
    "libsvm, empty": ("a.svm", "", []),
    "libsvm, no colon": ("a.svm", SVM + "1 5\n", []),
    "libsvm, index 0": ("a.svm", SVM + "1 0:1\n", []),
    "libsvm, a negative index": ("a.svm", SVM + "1 -1:1\n", []),
    "libsvm, an index twice": ("a.svm", SVM + "1 2:1 2:3\n", []),
    "libsvm, descending indices": ("a.svm", SVM + "1 3:1 2:3\n", []),
    "libsvm, a word as a value": ("a.svm", SVM + "1 2:x\n", []),
    "libsvm, nan": ("a.svm", SVM + "1 2:nan\n", []),
    "libsvm, 1e200": ("a.svm", SVM + "1 2:1e200\n", []),
    "libsvm, a word as a target": ("a.svm", SVM + "u 2:1\n", ["--target", "continuous"]),
    "libsvm, past the width": ("a.svm", SVM, ["--n-features", "2"]),
    "libsvm, width 0": ("a.svm", SVM, ["--n-features", "0"]),
    "libsvm, several labels after one": ("a.svm", SVM + "1,2 2:1\n", ["--target", "class"]),
    "libsvm, no such target": ("a.svm", SVM, ["--target", "classes"]),
    "libsvm, an option of csv": ("a.svm", SVM, ["--label", "y"]),
    "libsvm, a huge index": ("a.svm", SVM + "1 99999999999:1\n", []),
    "vw, no bar": ("a.vw", "1 2:1\n", []),
    "vw, a word as a value": ("a.vw", "1 | 2:x\n", []),
    "vw, names": ("a.vw", "1 | price:2\n", []),
    "vw, empty": ("a.vw", "", []),
    "vw, nan": ("a.vw", "1 | 2:nan\n", []),
    "vw, a negative weight": ("a.vw", "1 -2 | 2:1\n", []),
    "arff, empty": ("a.arff", "", Y),
    "arff, no data": ("a.arff", "@relation r\n@attribute a numeric\n", Y),
    "arff, no rows": ("a.arff", ARFF, Y),
    "arff, no such label": ("a.arff", ARFF + "1,u\n2,v\n", ["--label", "z"]),
    "arff, a value that is not declared": ("a.arff", ARFF + "1,w\n", Y),
    "arff, a field more": ("a.arff", ARFF + "1,u,3\n", Y),
    "arff, a word as a number": ("a.arff", ARFF + "x,u\n", Y),
    "arff, a missing number": ("a.arff", ARFF + "?,u\n1,v\n", Y),
    "arff, no such type": ("a.arff", "@relation r\n@attribute a blob\n@data\n1\n", []),
    "arff, a sparse index past the attributes": ("a.arff", ARFF + "{9 1}\n", Y),
    "parquet, not parquet": ("a.parquet", GOOD, Y),
    "parquet, cut": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=["u", "v"])[:-20], Y),
    "parquet, no such label": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=["u", "v"]), ["--label", "z"]),
    "parquet, NaN": ("a.parquet", lambda: parquet(a=[1.0, float("nan")], y=["u", "v"]), Y),
    "parquet, null": ("a.parquet", lambda: parquet(a=[1.0, None], y=["u", "v"]), Y),
    "parquet, inf": ("a.parquet", lambda: parquet(a=[1.0, float("inf")], y=["u", "v"]), Y),
    "parquet, a struct": ("a.parquet", lambda: parquet(a=[{"b": 1}] * 2, y=["u", "v"]), Y),
    "parquet, binary": ("a.parquet", lambda: parquet(a=[b"x"] * 2, y=["u", "v"]), Y),
    "parquet, lists as the label": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=[["u"], ["v"]]), Y),
    "parquet, a label is a date": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=pa.array([1, 2], pa.date32())), Y),
    "parquet, labels are words": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=["u", "v"]), LABELS),
    "parquet, a null label in a list": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=[["u", None], ["v"]]), LABELS),
    "parquet, targets are words": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=["u", "v"]), TARGETS),
    "parquet, a negative weight": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=[1.0, -1.0]), ["--weight", "y"]),
    "parquet, ids of floats": ("a.parquet", lambda: parquet(a=[1.0, 2.0], y=[0.5, 1.5]), ["--id", "y"]),
    "parquet, no rows": ("a.parquet", lambda: parquet(a=pa.array([], pa.float64()), y=pa.array([], pa.string())), Y),
    "arrow, not arrow": ("a.arrow", GOOD, Y),
    "arrow, cut": ("a.arrow", lambda: arrow(a=[1.0, 2.0], y=["u", "v"])[:100], Y),
    "arrow, no such label": ("a.arrow", lambda: arrow(a=[1.0, 2.0], y=["u", "v"]), ["--label", "z"]),
    "arrow, null": ("a.arrow", lambda: arrow(a=[1.0, None], y=["u", "v"]), Y),
    "arrow, a union": (
        "a.arrow",
        lambda: arrow(a=pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]), y=["u", "v"]),
        Y,
    ),
    "npz, no X": ("a.npz", lambda: npz(Z=np.eye(3)), []),
    "npz, not npz": ("a.npz", GOOD, []),
    "npz, 1-d": ("a.npz", lambda: npz(X=np.ones(3)), []),
    "npz, NaN": ("a.npz", lambda: npz(X=np.full((3, 2), np.nan)), []),
    "npz, texts": ("a.npz", lambda: npz(X=np.full((3, 2), "x")), []),
    "npz, pickled": ("a.npz", lambda: npz(X=np.array([[{}]], dtype=object)), []),
    "npz, two labels for three rows": ("a.npz", lambda: npz(X=np.eye(3), y=np.arange(2)), []),
    "npz, no such label": ("a.npz", lambda: npz(X=np.eye(3)), ["--label", "t"]),
    "npz, complex labels": ("a.npz", lambda: npz(X=np.eye(3), y=np.arange(3) * 1j), []),
    "npz, dates as labels": ("a.npz", lambda: npz(X=np.eye(3), y=np.arange(3).astype("datetime64[D]")), []),
    "npy, 1-d": ("a.npy", lambda: npy(np.ones(3)), []),
    "npy, cut": ("a.npy", lambda: npy(np.eye(9))[:-40], []),
    "npy, not npy": ("a.npy", GOOD, []),
    "npy, no such labels": ("a.npy", lambda: npy(np.eye(3)), ["--labels", "none.npy"]),
    "mat, not mat": ("a.mat", GOOD, []),
    "mat, no such variable": ("a.mat", lambda: mat(fea=np.eye(3)), ["--features", "X"]),
    "mat, no fea": ("a.mat", lambda: mat(X=np.eye(3)), []),
    "mat, NaN": ("a.mat", lambda: mat(fea=np.full((3, 2), np.nan), gnd=np.arange(3)), []),
    "mat, two labels for three rows": ("a.mat", lambda: mat(fea=np.eye(3), gnd=np.arange(2)), []),
    "sqlite, no table named": ("a.sqlite", sqlite, Y),
    "sqlite, a word in a column of numbers": ("a.sqlite!one", sqlite, Y),
    "sqlite, no such table": ("a.sqlite!three", sqlite, Y),
    "sqlite, not a database": ("a.sqlite", GOOD, Y),
    "duckdb, not a database": ("a.duckdb!t", GOOD, Y),
}
"""File, content and options of `stream-dr learn`. A name may end with "!" and the table to read."""

LEARNED = {
    "csv, an open quote",
    "csv, not numbers after many lines",
    "no such file",
    "vw, a negative weight",
}
"""Files that are learned. Other files are checked, which takes less time, unless an option names models or weights."""

USAGE: dict[str, list[str]] = {
    "no command": ["nothing"],
    "learn nothing": ["learn"],
    "check no such file": ["learn", "DIR/none.csv", "--dir", "DIR/d", "--check"],
    "learn without a directory": ["learn", "DIR/a.csv"],
    "transform, no directory": ["transform", "DIR/none", "DIR/a.csv"],
    "inspect, no directory": ["inspect", "DIR/none"],
    "refine, no directory": ["refine", "DIR/none"],
    "convert, no output": ["convert", "DIR/a.csv"],
    "suggest, no such file": ["suggest", "DIR/none.csv"],
    "evaluate, no such file": ["evaluate", "DIR/none.csv"],
}
"""Other bad command lines. "DIR" is a folder with a.csv."""

CASES = {
    **{f"command line | {name} | learn": name for name in FILES},
    **{f"command line | {name} | usage": name for name in USAGE},
}
"""Every bad command line."""


def run(arguments: list[str], folder: str) -> Outcome:
    """Return the exit status of a command, with the code and the first sentence of its error.

    Of wrong usage, only the texts about values are the project's. Others are typer's and are not stored.
    """
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            status = ended.code
    found: Outcome = {"status": status}
    told = re.search(r"^error \((\w+)\): (.*)", err.getvalue(), flags=re.MULTILINE | re.DOTALL)
    if told:
        found |= {"code": told[1], "says": first_sentence(told[2], folder)}
    usage = re.search(r"^Error: (Invalid value for .*)", err.getvalue(), flags=re.MULTILINE)
    if usage:
        found["says"] = first_sentence(usage[1], folder)
    return found


def command_outcome(entry: str) -> Outcome:
    """Return the outcome of a command line."""
    name = CASES[entry]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.csv").write_text(GOOD)
        if entry.endswith("usage"):
            return run([argument.replace("DIR", folder) for argument in USAGE[name]], folder)
        file_name, content, options = FILES[name]
        path = Path(folder) / (file_name.partition("!")[0] or "written.csv")
        data = content() if callable(content) else content
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        source = f"{folder}/{file_name or 'none.csv'}"
        where = ["--dir", f"{folder}/d"]
        if name not in LEARNED and "--model" not in options and "--weight" not in options:
            where.append("--check")
        return run(["learn", source, *options, *where], folder)

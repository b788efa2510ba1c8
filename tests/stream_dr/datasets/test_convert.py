"""Files to shards: every format, the manifest, options that say nothing, and the command."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from stream_dr.datasets.convert import convert
from stream_dr.datasets.sources import FORMATS, Options, open_source
from stream_dr.errors import InvalidParameter, MalformedInput, OutputExists
from stream_dr.shards.dataset import open_dataset


def rows_of(folder):
    dataset = open_dataset(folder)
    blocks = [block for _, block in dataset.events()]
    X = np.vstack([b.X.toarray() if b.sparse else b.X for b in blocks])
    return dataset, X, [label for b in blocks for label in b.y.targets_by_row()]


def made(tmp_path):
    """One small file of each format with the rows [[0.5, 0], [0, 2], [1, 1]] and classes or sets."""
    (tmp_path / "a.svm").write_text("1 1:0.5\n2 2:2\n1 1:1 2:1\n")
    (tmp_path / "a.vw").write_text("1 |f 0:0.5\n2 |f 1:2\n1 |f 0:1 1:1\n")
    (tmp_path / "a.dat").write_text("11 1:0.5\n12 2:2\n13 1:1 2:1\n")
    (tmp_path / "topics").write_text("A 11 1\nB 12 1\nA 13 1\n")
    (tmp_path / "a.arff").write_text(
        "@attribute a numeric\n@attribute b numeric\n@attribute y {1,2}\n@data\n0.5,0,1\n0,2,2\n1,1,1\n"
    )
    (tmp_path / "a.csv").write_text("a,b,y\n0.5,0,1\n0,2,2\n1,1,1\n")
    pq.write_table(pa.table({"a": [0.5, 0, 1], "b": [0.0, 2, 1], "y": [1, 2, 1]}), tmp_path / "a.parquet")
    scipy.io.savemat(tmp_path / "a.mat", {"fea": sp.csc_matrix([[0.5, 0], [0, 2], [1, 1]]), "gnd": [[1], [2], [1]]})
    rows = pa.table({"a": [0.5, 0, 1], "b": [0.0, 2, 1], "y": [1, 2, 1]})
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as file:
        file.write_table(rows)
    np.savez(tmp_path / "a.npz", X=[[0.5, 0], [0, 2], [1, 1]], y=[1, 2, 1])
    np.save(tmp_path / "a.npy", [[0.5, 0], [0, 2], [1, 1]])
    np.save(tmp_path / "y.npy", [1, 2, 1])
    statements = [
        "CREATE TABLE t (a DOUBLE, b DOUBLE, y BIGINT)",
        "INSERT INTO t VALUES (0.5, 0, 1), (0, 2, 2), (1, 1, 1)",
    ]
    with closing(sqlite3.connect(tmp_path / "a.db")) as database, database:
        for statement in statements:
            database.execute(statement)
    if find_spec("duckdb"):
        import duckdb

        with duckdb.connect(tmp_path / "a.duckdb") as database:
            database.execute(";".join(statements))
    (tmp_path / "a.jsonl").write_text("".join(f"{orjson.dumps(row).decode()}\n" for row in rows.to_pylist()))
    return {
        "jsonl": ("a.jsonl", Options(label="y")),
        "arrow": ("a.arrow", Options(label="y")),
        "libsvm": ("a.svm", Options()),
        "vw": ("a.vw", Options()),
        "rcv1": ("a.dat", Options(topics=tmp_path / "topics", n_features=2)),
        "arff": ("a.arff", Options(label="y")),
        "csv": ("a.csv", Options(label="y")),
        "parquet": ("a.parquet", Options(label="y")),
        "mat": ("a.mat", Options()),
        "npz": ("a.npz", Options()),
        "npy": ("a.npy", Options(labels=str(tmp_path / "y.npy"))),
        "sqlite": ("a.db", Options(label="y")),
        "duckdb": ("a.duckdb", Options(label="y")),
    }


@pytest.mark.parametrize("format", FORMATS)
def test_every_format(tmp_path, format):
    if format == "duckdb":
        pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
    name, options = made(tmp_path)[format]
    seen = []
    manifest = convert([tmp_path / name], format, tmp_path / "out", options, rows_per_batch=2, progress=seen.append)
    dataset, X, labels = rows_of(tmp_path / "out")
    np.testing.assert_array_equal(X, [[0.5, 0], [0, 2], [1, 1]])
    assert labels == ([["A"], ["B"], ["A"]] if format == "rcv1" else [1, 2, 1])
    assert dataset.rows == manifest.rows == seen[-1] == 3
    assert dataset.n_features == manifest.width == 2
    assert set(manifest.labels) == ({"A", "B"} if format == "rcv1" else {1, 2})
    assert [shard.batch_rows for shard in dataset.shards] == [(2, 1)]


def test_several_files_one_after_the_other(tmp_path):
    made(tmp_path)
    (tmp_path / "b.svm").write_text("3 9:1\n")
    manifest = convert(
        [tmp_path / "a.svm", tmp_path / "b.svm"], "libsvm", tmp_path / "out", rows_per_shard=2, rows_per_batch=2
    )
    assert (manifest.rows, manifest.width, len(manifest.shards)) == (4, 9, 2)


def test_options_and_formats_that_are_not(tmp_path):
    path = tmp_path / made(tmp_path)["libsvm"][0]
    with pytest.raises(InvalidParameter, match="formats are libsvm"):
        open_source(path, "excel")
    with pytest.raises(InvalidParameter, match="delimiter says nothing about libsvm"):
        open_source(path, "libsvm", delimiter=";")
    with pytest.raises(InvalidParameter, match="topics"):
        open_source(path, "rcv1")


def test_an_error_leaves_no_manifest_and_shards_are_not_overwritten(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n" * 5_000 + "x 1:1\n")
    with pytest.raises(MalformedInput, match="line 5001"):
        convert([tmp_path / "a.svm"], "libsvm", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    made(tmp_path)
    convert([tmp_path / "a.svm"], "libsvm", tmp_path / "out")
    with pytest.raises(OutputExists):
        convert([tmp_path / "a.svm"], "libsvm", tmp_path / "out")


def run(*arguments):
    command = [sys.executable, "-m", "stream_dr.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, check=False)


@pytest.mark.test_all
def test_the_commands(tmp_path):
    made(tmp_path)
    done = run("convert", tmp_path / "a.csv", "--format", "csv", "--label", "y", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "3 rows × 2 features, class targets, 2 labels, 1 shards" in done.stdout
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["rows"] == 3
    bad = run("convert", tmp_path / "a.csv", "--format", "csv", "--label", "z", "--out", tmp_path / "other")
    assert bad.returncode == 1
    assert "schema_mismatch" in bad.stderr
    assert run("convert", tmp_path / "a.csv").returncode == 2
    done = run("generate", "rcv1-like", "--rows", 1_500, "--targets", "top4", "--out", tmp_path / "made")
    assert done.returncode == 0, done.stderr
    assert "1500 rows × 47236 features, class targets, 4 labels" in done.stdout
    again = run("evaluate", tmp_path / "made", "--models", "lda=lda:gamma=1.0", "--probes", "mean", "--json")
    assert again.returncode == 0, again.stderr
    line, _ = json.loads(again.stdout)
    assert line["rows"] == 500
    assert 0.3 < line["accuracy"] <= 1
    assert run("generate", "other", "--out", tmp_path / "x").returncode == 1
    assert Path(tmp_path / "made" / "part-00000.arrow").exists()


def test_a_file_without_rows_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "a.svm").write_text("# nothing\n\n")
    with pytest.raises(MalformedInput, match=r"a\.svm: no row"):
        convert([tmp_path / "a.svm"], "libsvm", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_a_late_error_leaves_no_shards_to_be_taken_for_all(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n" * 2_500 + "1 1:x\n")
    with pytest.raises(MalformedInput, match="line 2501"):
        convert([tmp_path / "a.svm"], "libsvm", tmp_path / "out", rows_per_shard=1_000)
    assert os.listdir(tmp_path / "out") == []

"""Rows are cut into the same batches however they come in; the manifest says what is there, and only then."""

import json
import os

import numpy as np
import pytest
import scipy.sparse as sp

from stream_dr import errors
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets, multilabel_targets
from stream_dr.shards.dataset import ShardWriter, open_dataset
from stream_dr.shards.folder import UNFINISHED, read_manifest

ROWS, WIDTH = 1050, 300
X = sp.random(ROWS, WIDTH, density=0.05, format="csr", random_state=7)
Y = multilabel_targets([[f"t{i % 9}", f"t{i % 7}"][: i % 3] for i in range(ROWS)])


def write(folder, piece=97):
    with ShardWriter(folder, rows_per_shard=400, rows_per_batch=100, n_features=WIDTH) as writer:
        for start in range(0, ROWS, piece):
            rows = np.arange(start, min(start + piece, ROWS))
            writer.write(Block(X[rows], Y.take(rows)))
    return writer.manifest


def test_the_pieces_rows_come_in_do_not_matter(tmp_path):
    digests = []
    for piece in (1, 97, 100, 1050):
        write(tmp_path / str(piece), piece=piece)
        digests.append([shard.sha256 for shard in open_dataset(tmp_path / str(piece)).shards])
    assert all(d == digests[0] for d in digests)


def test_the_manifest_says_what_is_there(tmp_path):
    manifest = write(tmp_path)
    assert read_manifest(tmp_path / "manifest.json") == manifest
    facts = json.loads((tmp_path / "manifest.json").read_text())
    assert (facts["rows"], facts["width"]) == (ROWS, WIDTH)
    assert [e["bytes"] for e in facts["shards"]] == [(tmp_path / e["file"]).stat().st_size for e in facts["shards"]]


def test_labels_keep_their_type_in_the_manifest(tmp_path):
    for name, labels in {"int": [3, 1], "bool": [True, False], "str": ["3", "é"]}.items():
        with ShardWriter(tmp_path / name) as writer:
            writer.write(Block(np.ones((2, 2)), class_targets(labels)))
        dataset = open_dataset(tmp_path / name)
        assert [(v, type(v)) for v in dataset.labels] == [(v, type(v)) for v in labels]
        assert dataset.shards[0].read(0).y.targets_by_row() == labels


def test_a_width_nobody_stated_is_the_widest_row(tmp_path):
    with ShardWriter(tmp_path, rows_per_batch=2) as writer:
        for width in (3, 9, 5):
            writer.write(Block(sp.csr_matrix(np.ones((1, width))), width_stated=False))
    assert open_dataset(tmp_path).n_features == 9
    assert [b.features for _, b in open_dataset(tmp_path).events()] == [9, 9]


def test_other_columns_and_occupied_folders_are_refused(tmp_path):
    writer = ShardWriter(tmp_path)
    writer.write(Block(np.ones((2, 3))))
    with pytest.raises(errors.SchemaMismatch):
        writer.write(Block(np.ones((2, 4))))
    writer.close()
    with pytest.raises(errors.OutputExists):
        ShardWriter(tmp_path)


def test_after_an_error_there_is_no_manifest(tmp_path):
    def fail():
        with ShardWriter(tmp_path, rows_per_batch=10, rows_per_shard=20) as writer:
            writer.write(Block(np.ones((35, 3))))
            raise KeyError("the reader failed")

    with pytest.raises(KeyError):
        fail()
    assert os.listdir(tmp_path) == []


def test_shards_of_a_writer_that_was_killed_are_refused(tmp_path):
    writer = ShardWriter(tmp_path, rows_per_batch=10, rows_per_shard=20)
    writer.write(Block(np.ones((35, 3))))
    with pytest.raises(errors.DamagedFile, match="not whole"):
        open_dataset(tmp_path)
    writer.close()
    assert open_dataset(tmp_path).rows == 35
    assert sorted(os.listdir(tmp_path)) == ["manifest.json", "part-00000.arrow", "part-00001.arrow"]


def test_no_rows_make_an_empty_manifest(tmp_path):
    with ShardWriter(tmp_path):
        pass
    dataset = open_dataset(tmp_path)
    assert (dataset.rows, dataset.shards) == (0, ())


def test_what_a_kill_left_is_written_anew_and_what_another_writes_is_left_alone(tmp_path):
    with ShardWriter(tmp_path, rows_per_shard=5, rows_per_batch=5) as one:
        one.write(Block(np.ones((20, 2))))
        with pytest.raises(errors.OutputExists, match="being written to"):
            ShardWriter(tmp_path)
    assert open_dataset(tmp_path).rows == 20
    (tmp_path / "manifest.json").unlink()
    (tmp_path / UNFINISHED).touch()
    with ShardWriter(tmp_path) as again:
        again.write(Block(np.ones((3, 2))))
    assert open_dataset(tmp_path).rows == 3

"""Shards give back the rows written, uncopied where they can, and are known by their bytes."""

import hashlib
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from stream_dr import errors
from stream_dr.batch.arrow import arrow_from_block
from stream_dr.batch.block import Block
from stream_dr.batch.rows import Source
from stream_dr.batch.targets import multilabel_targets
from stream_dr.shards import dataset as shards
from stream_dr.shards.dataset import ShardWriter, open_dataset, open_shard
from stream_dr.shards.file import file_sha256
from stream_dr.shards.folder import write_manifest

ROWS, WIDTH = 1050, 300
RANDOM = np.random.default_rng(7)
X = sp.random(ROWS, WIDTH, density=0.05, format="csr", random_state=7)
LABELS = [[f"t{j}" for j in RANDOM.integers(0, 9, RANDOM.integers(0, 4))] for _ in range(ROWS)]
Y = multilabel_targets(LABELS)


def write(folder, piece=97, form="ipc", **options):
    settings = {"rows_per_shard": 400, "rows_per_batch": 100, "n_features": WIDTH} | options
    with ShardWriter(folder, **settings) as writer:
        for start in range(0, ROWS, piece):
            rows = np.arange(start, min(start + piece, ROWS))
            writer.write(Block(X[rows], Y.take(rows)))
    return as_parquet(folder, writer.manifest) if form == "parquet" else writer.manifest


def as_parquet(folder, manifest):
    """The shards of a folder as Parquet files, a row group a batch."""
    entries = []
    for entry in manifest.shards:
        path = folder / entry.file
        parquet = path.with_suffix(".parquet")
        batches = pa.ipc.open_file(path)
        with pq.ParquetWriter(parquet, batches.schema, write_page_checksum=True) as writer:
            for n in range(batches.num_record_batches):
                writer.write_batch(batches.get_batch(n))
        path.unlink()
        known = {"bytes": parquet.stat().st_size, "sha256": hashlib.sha256(parquet.read_bytes()).hexdigest()}
        entries.append(entry._replace(file=parquet.name, seal="", **known))
    manifest = manifest._replace(shards=tuple(entries))
    write_manifest(folder, manifest)
    return manifest


@pytest.mark.parametrize("form", ["ipc", "parquet"])
def test_what_was_written_is_read_in_even_batches(tmp_path, form):
    manifest = write(tmp_path, form=form)
    dataset = open_dataset(tmp_path)
    assert isinstance(dataset, Source)
    assert (dataset.rows, dataset.n_features, dataset.target_kind) == (ROWS, WIDTH, "multilabel")
    assert [shard.batch_rows for shard in dataset.shards] == [(100,) * 4, (100,) * 4, (100, 100, 50)]
    assert dataset.labels == Y.labels == manifest.labels
    blocks = [block for _, block in dataset.events()]
    assert (sp.vstack([b.X for b in blocks]) != X).nnz == 0
    assert [set(r) for b in blocks for r in b.y.targets_by_row()] == [set(row) for row in LABELS]
    assert all(b.width_stated and b.features == WIDTH for b in blocks)


def test_ipc_is_mapped_and_not_copied(tmp_path):
    write(tmp_path)
    shard = open_dataset(tmp_path).shards[0]
    shard.read(0)
    before = pa.total_allocated_bytes()
    blocks = [shard.read(n) for n in range(4)]
    assert pa.total_allocated_bytes() == before
    assert not blocks[0].X.data.flags.owndata


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".feather", ".parquet"])
def test_files_of_others_without_a_manifest(tmp_path, suffix):
    table = pa.table({"a": np.arange(10.0), "b": np.arange(10.0), "label": list("ababababab")})
    path = tmp_path / f"some{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path, row_group_size=4)
    else:
        make = pa.ipc.new_stream if suffix == ".arrows" else pa.ipc.new_file
        options = pa.ipc.IpcWriteOptions(compression="zstd" if suffix == ".feather" else None)
        with make(str(path), table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=4)
    for source in (tmp_path, path, path.absolute().as_uri(), [path]):
        dataset = open_dataset(source)
        assert (dataset.rows, dataset.n_features) == (10, None)
        assert dataset.shards[0].batch_rows == (4, 4, 2)
        blocks = [block for _, block in dataset.events()]
        assert np.concatenate([b.X for b in blocks])[:, 0].tolist() == list(range(10))
        assert blocks[0].names == ("a", "b")


def test_a_manifest_or_several_folders_name_a_data_set(tmp_path):
    write(tmp_path / "one")
    write(tmp_path / "two", piece=50, n_features=None)
    both = open_dataset([tmp_path / "one", tmp_path / "two" / "manifest.json"])
    assert (both.rows, both.n_features) == (2 * ROWS, WIDTH)
    assert len(both.shards) == 6


def test_events_begin_and_end_where_asked(tmp_path):
    write(tmp_path)
    dataset = open_dataset(tmp_path)
    assert [n for n, _ in dataset.events(after=3, until=7)] == [4, 5, 6, 7]
    assert [n for n, _ in dataset.events(after=8)] == [9, 10]


def test_a_shard_named_by_its_digest(tmp_path):
    write(tmp_path)
    shard = open_dataset(tmp_path).shards[1]
    again = open_shard(shard.path.absolute().as_uri(), shard.sha256)
    assert (again.batch_rows, again.read(0).features) == (shard.batch_rows, WIDTH)
    with pytest.raises(errors.DamagedShard, match="sha256 0000"):
        open_shard(shard.path, "0" * 64).read(0)
    with pytest.raises(errors.SourceMissing):
        open_shard(tmp_path / "nowhere.arrow")
    with pytest.raises(IndexError, match="batch 4"):
        shard.read(4)


def test_a_shard_that_changes_after_it_was_read_is_noticed(tmp_path):
    write(tmp_path)
    shard = open_dataset(tmp_path).shards[0]
    shard.read(0)
    body = bytearray(shard.path.read_bytes())
    body[len(body) // 2] ^= 1
    other = tmp_path / "other"
    other.write_bytes(body)
    os.replace(other, shard.path)
    with pytest.raises(errors.DamagedShard, match=shard.path.name):
        shard.read(0)


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("change", ["truncated", "foreign", "empty"])
@pytest.mark.parametrize("form", ["ipc", "parquet"])
def test_damaged_shards_are_named_or_left_out(tmp_path, change, with_manifest, form):
    write(tmp_path, form=form)
    path = open_dataset(tmp_path).shards[1].path
    body = path.read_bytes()
    path.write_bytes({"truncated": body[: len(body) // 2], "foreign": b"hello" * 99, "empty": b""}[change])
    if not with_manifest:
        (tmp_path / "manifest.json").unlink()
    with pytest.raises(errors.DamagedShard, match=path.name):
        open_dataset(tmp_path)
    dataset = open_dataset(tmp_path, skip_damaged=True)
    assert dataset.rows == ROWS - 400
    assert len(dataset.skipped) == 1
    assert path.name in dataset.skipped[0]


def test_a_file_of_another_format_is_no_damage_and_is_told_how_to_convert_it(tmp_path):
    (tmp_path / "data.csv").write_text("a,b,y\n1,2,x\n")
    for skip in (False, True):
        with pytest.raises(errors.ForeignFile, match="stream-dr convert"):
            open_dataset(tmp_path / "data.csv", skip_damaged=skip)


def test_where_every_shard_is_damaged_none_is_left_out(tmp_path):
    (tmp_path / "a.arrow").write_bytes(b"hello")
    with pytest.raises(errors.DamagedShard, match=r"a\.arrow"):
        open_dataset(tmp_path, skip_damaged=True)


def test_a_flipped_byte_is_found_by_the_digest(tmp_path):
    write(tmp_path)
    shard = open_dataset(tmp_path).shards[2]
    body = bytearray(shard.path.read_bytes())
    body[len(body) // 2] ^= 1
    shard.path.write_bytes(body)
    with pytest.raises(errors.DamagedShard, match=shard.path.name):
        open_dataset(tmp_path).shards[2].read(0)


def change_manifest(folder, **facts):
    """Write other facts of the first shard into the manifest."""
    path = folder / "manifest.json"
    told = json.loads(path.read_text())
    told["shards"][0].update(facts)
    path.write_text(json.dumps(told))


def test_a_sealed_shard_is_read_without_its_digest_and_verify_takes_it(tmp_path, monkeypatch):
    write(tmp_path)
    taken = []
    monkeypatch.setattr(shards, "file_sha256", lambda *identity: taken.append(identity) or file_sha256(*identity))
    shard = open_dataset(tmp_path).shards[0]
    shard.read(0)
    assert not taken
    shard.verify()
    assert len(taken) == 1


@pytest.mark.parametrize("facts", [{"seal": ""}, {"seal": "0" * 16}, {"seal": "x"}])
def test_a_seal_that_does_not_fit_leaves_it_to_the_digest(tmp_path, facts):
    write(tmp_path)
    change_manifest(tmp_path, **facts)
    assert open_dataset(tmp_path).shards[0].read(0).rows == 100


def test_a_digest_that_was_changed_is_not_covered_by_the_seal(tmp_path):
    write(tmp_path)
    change_manifest(tmp_path, sha256="0" * 64)
    with pytest.raises(errors.DamagedShard, match="sha256 0000"):
        open_dataset(tmp_path).shards[0].read(0)


@pytest.mark.parametrize("batch_rows", [[100] * 3, [100] * 5, [100, 100, 100, 99], [400]])
def test_batches_other_than_the_manifest_says_are_said(tmp_path, batch_rows):
    """Else a replay would leave rows out, or count others than it learned."""
    write(tmp_path)
    change_manifest(tmp_path, batch_rows=batch_rows)
    with pytest.raises(errors.DamagedShard, match="it has 4 batches of 400 rows"):
        open_dataset(tmp_path).shards[0].read(0)


def test_a_digest_that_is_no_digest_is_damage_of_the_manifest(tmp_path):
    write(tmp_path)
    change_manifest(tmp_path, sha256="hello")
    with pytest.raises(errors.DamagedFile, match="manifest"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("form", [".arrow", ".parquet", ".arrows"])
def test_shards_damaged_at_random_are_read_or_refused(tmp_path, form):
    random = np.random.default_rng(3)
    batch = arrow_from_block(Block(X[:50], Y.take(np.arange(50))))
    path = tmp_path / f"good{form}"
    if form == ".parquet":
        pq.write_table(pa.Table.from_batches([batch]), path)
    else:
        with (pa.ipc.new_file if form == ".arrow" else pa.ipc.new_stream)(str(path), batch.schema) as writer:
            writer.write_batch(batch)
    good = path.read_bytes()
    said = []
    for number in range(150):
        body = bytearray(good)
        for _ in range(3):
            body[int(random.integers(len(body)))] ^= int(random.integers(1, 256))
        bad = tmp_path / f"bad{number}{form}"
        bad.write_bytes(body)
        try:
            for _, block in open_dataset(bad).events():
                assert block.X.has_canonical_format
        except errors.StreamDRError as e:
            said.append(bad.name in str(e))
    assert all(said)
    assert len(said) > 10


def test_damage_in_parquet_without_a_manifest_is_found_by_the_pages_checksums(tmp_path):
    write(tmp_path, form="parquet")
    (tmp_path / "manifest.json").unlink()
    path = tmp_path / "part-00000.parquet"
    good, wrong, random = path.read_bytes(), 0, np.random.default_rng(9)
    for at in random.integers(4, len(good) // 2, 40):
        body = bytearray(good)
        body[at] ^= 1 << int(random.integers(8))
        path.write_bytes(body)
        try:
            blocks = [open_dataset(path).shards[0].read(n) for n in range(4)]
        except errors.StreamDRError:
            continue
        wrong += (sp.vstack([b.X for b in blocks]) != X[:400]).nnz > 0
    assert wrong == 0


def test_rows_no_batch_may_have_name_their_file(tmp_path):
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"a": [1.0, np.nan]}), path)
    with pytest.raises(errors.NotFinite, match=r"part\.parquet, batch 0: row 1"):
        open_dataset(path).shards[0].read(0)


def write_file(path, batch, suffix):
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_batches([batch]), path)
        return
    with (pa.ipc.new_file if suffix == ".arrow" else pa.ipc.new_stream)(str(path), batch.schema) as writer:
        writer.write_batch(batch)


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".parquet"])
def test_columns_of_other_types_are_told_with_the_file_and_nothing_is_decoded(tmp_path, suffix):
    path = tmp_path / f"odd{suffix}"
    write_file(path, pa.record_batch({"x": [1.0], "when": pa.array([0], pa.time32("s"))}), suffix)
    with pytest.raises(errors.SchemaMismatch, match=r"odd.*column when is time") as told:
        open_shard(path).read(0)
    assert told.value.details == {"column": "when"}


def test_a_file_whose_footer_tells_of_other_batches_is_damaged(tmp_path):
    """A footer may list one batch a million times, or none."""
    path = tmp_path / "a.arrow"
    write_file(path, arrow_from_block(Block(X[:50], Y.take(np.arange(50)))), ".arrow")
    good = path.read_bytes()
    assert open_shard(path).batch_rows == (50,)
    begin = len(good) - 10 - int.from_bytes(good[-10:-6], "little")
    said = []
    for at in range(begin, len(good) - 10, 4):
        path.write_bytes(good[:at] + (8).to_bytes(4, "little") + good[at + 4 :])
        try:
            assert open_shard(path).read(0).rows == 50
        except errors.StreamDRError as e:
            said.append("a.arrow" in str(e))
    assert len(said) > 20
    assert all(said)


@pytest.mark.parametrize(
    "source",
    [
        "nowhere",
        "nowhere.arrow",
        "nowhere/manifest.json",
        pytest.param("s3://bucket/part.arrow", marks=pytest.mark.test_all),
        ".",
    ],
)
def test_what_is_not_there_is_said(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.SourceMissing):
        open_dataset(source)


def test_a_shard_missing_from_its_manifest_is_said(tmp_path):
    write(tmp_path)
    open_dataset(tmp_path).shards[0].path.unlink()
    with pytest.raises(errors.SourceMissing, match="part-00000"):
        open_dataset(tmp_path)

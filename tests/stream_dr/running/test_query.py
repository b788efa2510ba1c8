"""What a model answers is what its projection gives, in JSON and in Arrow, and what a file of projected rows holds."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from stream_dr import errors
from stream_dr.batch.arrow import read_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.json_rows import block_from_json
from stream_dr.batch.targets import class_targets
from stream_dr.directory.directory import Directory
from stream_dr.models.entry import PublishPolicy
from stream_dr.running.advance import backfill
from stream_dr.running.driver import Driver, RunSettings
from stream_dr.running.predict import predict
from stream_dr.running.projected_file import write_projected
from stream_dr.running.query import project, transform
from stream_dr.shards.dataset import ShardWriter, open_dataset
from stream_dr.threads import new_thread_pool
from tests.support.batches import dense, opened, put, shards, sparse

NAMES = ("a", "b", "c", "d")


def trained(path: Path, *blocks: object, key: str = "class_means") -> Directory:
    directory = opened(path, m=(key, {}))
    put(directory, *blocks)  # type: ignore[arg-type]
    backfill(directory, [directory.model("m")], directory.position)
    with new_thread_pool("work", 1) as work:
        Driver(directory, RunSettings(), work, work).publish_and_snapshot_all(directory.models.values())
    return directory


def test_answers_in_json_and_arrow(tmp_path: Path) -> None:
    rows = dense(9, 5, ids=[f"r{i}" for i in range(5)])
    with trained(tmp_path, dense(0), dense(1)) as directory:
        answer = transform(directory.releases.served(directory.model("m")), rows)
    told = answer.to_json()
    assert list(told) == ["model", "version", "position", "solution", "unseen", "z", "id"]
    assert (told["model"], told["version"], told["position"], told["solution"]) == ("m", 1, 1, "exact")
    np.testing.assert_array_equal(told["z"], answer.z)
    (batch,) = read_arrow(answer.to_arrow())
    assert batch.column("id").to_pylist() == rows.ids
    np.testing.assert_array_equal(np.array(batch.column("z").to_pylist()), answer.z)
    assert batch.schema.metadata[b"version"] == b"1"


def test_predicted_labels_may_be_unsigned_integers(tmp_path: Path) -> None:
    labels = [2**63 + 5, 7]
    with trained(tmp_path, Block(np.eye(2) * 9.0, class_targets(np.array(labels, dtype=np.uint64)))) as directory:
        answer = predict(directory.releases.served(directory.model("m")), Block(np.eye(2) * 9.0))
    assert answer.to_json()["predicted"] == labels
    assert read_arrow(answer.to_arrow())[0].column("label").to_pylist() == labels


def test_columns_by_name_in_any_order(tmp_path: Path) -> None:
    with trained(tmp_path, dense(0, names=NAMES)) as directory:
        model, rows = directory.model("m"), dense(9, 5, names=NAMES)
        turned = rows._replace(X=np.ascontiguousarray(rows.X[:, ::-1]), names=NAMES[::-1])
        np.testing.assert_array_equal(
            transform(directory.releases.served(model), turned).z, transform(directory.releases.served(model), rows).z
        )
        with pytest.raises(errors.SchemaMismatch):
            transform(directory.releases.served(model), rows._replace(names=("a", "b", "c", "x")))


def test_learning_by_name_in_any_order(tmp_path: Path) -> None:
    blocks = [dense(i, names=NAMES) for i in range(3)]
    turned = [blocks[0], *(b._replace(X=np.ascontiguousarray(b.X[:, ::-1]), names=NAMES[::-1]) for b in blocks[1:])]
    with trained(tmp_path / "a", *blocks) as a, trained(tmp_path / "b", *turned) as b:
        np.testing.assert_array_equal(
            a.model("m").published.projection.loadings,  # type: ignore[union-attr]
            b.model("m").published.projection.loadings,  # type: ignore[union-attr]
        )


def test_what_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "a", m=("class_means", {})) as directory, pytest.raises(errors.NotFitted):
        transform(directory.releases.served(directory.model("m")), dense(0))
    with trained(tmp_path / "b", dense(0)) as directory:
        with pytest.raises(errors.WidthMismatch):
            transform(directory.releases.served(directory.model("m")), dense(0, features=3))
        with pytest.raises(errors.NotFinite):
            transform(directory.releases.served(directory.model("m")), dense(0)._replace(X=np.full((2, 4), np.nan)))


@pytest.mark.parametrize(("rows", "layout"), [(dense(0), "dense"), (sparse(0), "sparse")], ids=["dense", "sparse"])
def test_names_are_refused_where_the_stream_has_none(tmp_path: Path, rows: Block, layout: str) -> None:
    with trained(tmp_path, rows, key="opls" if layout == "sparse" else "class_means") as directory:
        says = rf"names \(a, b, c, d …\); .* {layout} rows without names. Send"
        with pytest.raises(errors.SchemaMismatch, match=says):
            transform(directory.releases.served(directory.model("m")), dense(9, names=NAMES))


def test_rows_without_names_are_taken_by_place_on_a_named_stream(tmp_path: Path) -> None:
    with trained(tmp_path, dense(0, names=NAMES)) as directory:
        by_place, by_name = dense(9), dense(9, names=NAMES)
        a, b = (transform(directory.releases.served(directory.model("m")), block).z for block in (by_place, by_name))
    np.testing.assert_array_equal(a, b)


def test_no_rows_are_projected_to_no_rows_in_any_layout(tmp_path: Path) -> None:
    nothing = block_from_json({"rows": []})
    with trained(tmp_path / "dense", dense(0)) as directory:
        model = directory.model("m")
        for block in (nothing, dense(0)._replace(X=np.empty((0, 4)), y=None)):
            answer = transform(directory.releases.served(model), block)
            assert answer.z.shape == (0, model.published.projection.n_components)  # type: ignore[union-attr]
            assert read_arrow(answer.to_arrow())[0].num_rows == 0
        with pytest.raises(errors.WidthMismatch):
            transform(directory.releases.served(model), dense(0)._replace(X=np.empty((0, 3)), y=None))
    with trained(tmp_path / "named", dense(0, names=NAMES)) as directory:
        assert len(transform(directory.releases.served(directory.model("m")), nothing).z) == 0
    with trained(tmp_path / "sparse", sparse(0, 40), key="opls") as directory:
        assert len(transform(directory.releases.served(directory.model("m")), nothing).z) == 0


def test_unseen_entries_are_counted_and_contribute_nothing(tmp_path: Path) -> None:
    with trained(tmp_path, sparse(0, 40), key="opls") as directory:
        model, wide = directory.model("m"), sparse(1, 10, features=200)
        answer = transform(directory.releases.served(model), wide)
        d = directory.schema.features
        assert answer.unseen == np.count_nonzero(wide.X.indices >= d) > 0
        cut = wide._replace(X=wide.X[:, :d])
        np.testing.assert_allclose(answer.z, transform(directory.releases.served(model), cut).z)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("sparse_rows", [False, True])
def test_a_file_of_projected_rows(tmp_path: Path, suffix: str, sparse_rows: bool) -> None:
    folder = shards(tmp_path / "s", blocks=4, sparse_rows=sparse_rows)
    blocks = [block for _, block in open_dataset(folder).events()]
    out = tmp_path / f"out{suffix}"
    with trained(tmp_path / "d", *blocks, key="opls") as directory:
        done: list[int] = []
        assert project(directory, directory.model("m"), open_dataset(folder), out, done.append) == (80, 0)
        z = np.vstack([transform(directory.releases.served(directory.model("m")), b).z for b in blocks])
    found = pq.read_table(out) if suffix == ".parquet" else pa.ipc.open_file(out).read_all()
    assert found.column_names == ["labels" if sparse_rows else "label", *(f"z{i}" for i in range(z.shape[1]))]
    np.testing.assert_array_equal(np.column_stack([found.column(f"z{i}") for i in range(z.shape[1])]), z)
    assert found.column(0).to_pylist() == [row for b in blocks for row in b.y.targets_by_row()]  # type: ignore[union-attr]
    assert done[-1] == 80


def test_another_suffix(tmp_path: Path) -> None:
    folder = shards(tmp_path / "s", blocks=1)
    with trained(tmp_path / "d", dense(0)) as directory, pytest.raises(errors.InvalidParameter, match="parquet"):
        project(directory, directory.model("m"), open_dataset(folder), tmp_path / "x.txt")


@pytest.mark.parametrize("sparse_rows", [False, True])
def test_csv_and_npz_hold_what_parquet_does(tmp_path: Path, sparse_rows: bool) -> None:
    folder = shards(tmp_path / "s", blocks=4, sparse_rows=sparse_rows)
    with trained(tmp_path / "d", *(block for _, block in open_dataset(folder).events()), key="opls") as directory:
        for suffix in ("parquet", "csv", "npz"):
            assert project(directory, directory.model("m"), open_dataset(folder), tmp_path / f"z.{suffix}") == (80, 0)
    expected = pq.read_table(tmp_path / "z.parquet")
    labels, components = expected.column_names[0], expected.column_names[1:]
    wanted = [json.dumps(row, separators=(",", ":")) if sparse_rows else row for row in expected[labels].to_pylist()]

    table = pacsv.read_csv(tmp_path / "z.csv")
    assert table.column_names == expected.column_names
    assert table[labels].to_pylist() == wanted
    assert all(table[name].equals(expected[name]) for name in components)
    with np.load(tmp_path / "z.npz") as arrays:
        assert set(arrays) == {"z", labels}
        assert arrays[labels].tolist() == wanted
        np.testing.assert_array_equal(arrays["z"], np.column_stack([expected[name] for name in components]))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([1.5, None]), [1.5, np.nan]),
        (pa.array([[1.0, 2.0], None]), [[1, 2], [np.nan, np.nan]]),
        (pa.array(["a", None]), ["a", ""]),
        (pa.array([True, None]), [1, np.nan]),
        (pa.array([7, 8]), [7, 8]),
        (pa.nulls(2), ["", ""]),
    ],
)
def test_npz_needs_no_pickle_whatever_stands_beside_the_rows(tmp_path: Path, column: pa.Array, found: list) -> None:
    with open(tmp_path / "z.npz", "wb") as file:
        batch = pa.record_batch({"label": column, "z0": pa.array([0.5, 1.5])})
        assert write_projected(file, ".npz", iter([batch])) == 2
    with np.load(tmp_path / "z.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["label"], found)
        np.testing.assert_array_equal(arrays["z"], [[0.5], [1.5]])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_shards_of_one_source_may_differ_in_what_is_given_beside_the_rows(tmp_path: Path, suffix: str) -> None:
    features = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 4)
    given = {"a": {}, "b": {"label": pa.array([None, "x", "y"])}, "c": {"id": pa.array(["p", "q", "r"])}}
    (tmp_path / "rows").mkdir()
    for name, columns in given.items():
        batch = pa.record_batch({"features": features, **columns})
        with pa.ipc.new_file(tmp_path / "rows" / f"{name}.arrow", batch.schema) as writer:
            writer.write_batch(batch)
    out = tmp_path / f"z.{suffix}"
    with trained(tmp_path / "d", dense(0), dense(1)) as directory:
        assert project(directory, directory.model("m"), open_dataset(tmp_path / "rows"), out) == (9, 0)
    table = pq.read_table(out) if suffix == "parquet" else pa.ipc.open_file(out).read_all()
    assert table.column_names[:3] == ["id", "label", "z0"]
    assert table.column("id").to_pylist() == [None] * 6 + ["p", "q", "r"]
    assert table.column("label").to_pylist() == [None] * 4 + ["x", "y"] + [None] * 3


def test_shards_whose_labels_are_of_two_types_are_refused_by_name(tmp_path: Path) -> None:
    features = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 4)
    (tmp_path / "rows").mkdir()
    for name, labels in (("a", [1, 2, 3]), ("b", ["x", "y", "z"])):
        batch = pa.record_batch({"features": features, "label": pa.array(labels)})
        with pa.ipc.new_file(tmp_path / "rows" / f"{name}.arrow", batch.schema) as writer:
            writer.write_batch(batch)
    with trained(tmp_path / "d", dense(0), dense(1)) as directory, pytest.raises(errors.SchemaMismatch, match="label"):
        project(directory, directory.model("m"), open_dataset(tmp_path / "rows"), tmp_path / "z.parquet")
    assert not (tmp_path / "z.parquet").exists()


def test_why_a_model_with_rows_has_no_projection(tmp_path: Path) -> None:
    rows = [{"indices": [i % 5, 4_999], "values": [1.0 + i, 1.0]} for i in range(60)]
    wide = block_from_json({"rows": rows})
    empty, full = opened(tmp_path / "empty", m=("pca", {})), trained(tmp_path / "d", wide, key="pca")
    with empty, pytest.raises(errors.NotFitted, match="learned no row"):
        transform(empty.releases.served(empty.model("m")), wide)
    with full, pytest.raises(errors.NeedsRefine, match="no projection of its 60 rows"):
        transform(full.releases.served(full.model("m")), wide)
    with ShardWriter(tmp_path / "s") as writer:
        writer.write(wide)
    folder = tmp_path / "s"
    with opened(tmp_path / "d") as directory, pytest.raises(errors.NeedsRefine):
        project(directory, directory.model("m"), open_dataset(folder), tmp_path / "z.parquet")


def test_a_model_that_is_behind_the_log_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {}), late=("class_means", {}), ill=("class_means", {})) as directory:
        put(directory, dense(0), dense(1))
    with opened(tmp_path) as directory:
        model, ill = directory.model("m"), directory.model("ill")
        with pytest.raises(errors.CatchingUp, match="up to position -1 of 1"):
            transform(directory.releases.served(model), dense(2))
        backfill(directory, [model], 1)
        with pytest.raises(errors.CatchingUp, match="not solved yet for its 40 rows"):
            transform(directory.releases.served(model), dense(2))
        for policy, says in (
            (PublishPolicy(rows=None, seconds=None, idle=False), "on demand only"),
            (PublishPolicy(rows=500, seconds=900.0, idle=False), "after 500 rows or after 900 seconds"),
        ):
            model.policy = policy
            with pytest.raises(errors.NotFitted, match=f"{says}.: POST /models/m/publish") as told:
                transform(directory.releases.served(model), dense(2))
            assert not isinstance(told.value, errors.CatchingUp)
        live, _ = directory.add_model("live", "class_means", {}, "now")
        with pytest.raises(errors.NotFitted, match="learned no row"):
            transform(directory.releases.served(live), dense(2))
        put(directory, dense(3))
        with pytest.raises(errors.CatchingUp, match="up to position 1 of 2"):
            transform(directory.releases.served(live), dense(2))
        ill.mark_failed_by_error(0, errors.HistoryGone("gone"))
        with pytest.raises(errors.ModelFailed, match="failed at position 0"):
            transform(directory.releases.served(ill), dense(2))

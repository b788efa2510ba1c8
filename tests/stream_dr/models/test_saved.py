"""A saved estimator begins a model, which goes on from it whatever happens; a model's snapshot is an estimator again."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import stream_dr
from stream_dr import CCIPCA, LDA, LPP, PCA, Block, Directory, errors
from stream_dr.directory.backup import backup
from stream_dr.directory.draft import rows_draft, unlearn_draft
from stream_dr.directory.verify import verify
from stream_dr.models.snapshot import export_model, snapshots_newest_first, write_snapshot_if_needed
from stream_dr.running.advance import backfill
from stream_dr.running.running import Running
from tests.support.batches import SMALL, body
from tests.support.serving import arrow, sparse_arrow

RANDOM = np.random.default_rng(3)
Y = RANDOM.choice(["a", "b", "c"], 80)
X = RANDOM.normal(size=(80, 5)) + 2 * np.eye(5)[np.searchsorted(["a", "b", "c"], Y)]
MORE = RANDOM.normal(size=(40, 5))
MORE_Y = RANDOM.choice(["a", "b", "d"], 40)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Directory]:
    with Directory(tmp_path / "D", limits=SMALL) as directory:
        yield directory


def append(directory: Directory, rows: bytes) -> Any:
    (answer,) = directory.append([rows_draft(rows, "arrow", None, directory.limits)])
    if isinstance(answer, Exception):
        raise answer
    backfill(directory, list(directory.models.values()), directory.position)
    return answer


def again(directory: Directory, copy: Path) -> Directory:
    """The directory as a kill would leave it."""
    shutil.copytree(directory.path, copy, ignore=shutil.ignore_patterns("lock"))
    return Directory(copy, limits=directory.limits)


def projected(directory: Directory, name: str = "m") -> np.ndarray:
    return stream_dr.transform(directory.releases.served(directory.model(name)), Block(X)).z


@pytest.mark.parametrize(
    "estimator", [LDA(gamma=1.0), PCA(feature_map=stream_dr.random_fourier(16)), CCIPCA(), LPP()], ids=str
)
def test_a_model_begins_with_what_was_saved_and_goes_on_from_it(
    directory: Directory, tmp_path: Path, estimator: Any
) -> None:
    estimator.fit(X, Y)
    expected = estimator.transform(X)
    estimator.save(tmp_path / "m.safetensors")
    model, new = directory.add_saved("m", stream_dr.load(tmp_path / "m.safetensors"))
    assert (new, model.rows, model.published_version) == (True, 80, 1)
    np.testing.assert_array_equal(projected(directory), expected)
    with again(directory, tmp_path / "killed") as killed:
        np.testing.assert_array_equal(projected(killed), expected)
        append(killed, arrow(MORE, MORE_Y))
        model = killed.model("m")
        model.publish(model.freeze())
        estimator.partial_fit(MORE, MORE_Y)
        np.testing.assert_array_equal(projected(killed), estimator.transform(X))
        (tmp_path / "export.safetensors").write_bytes(export_model(model))
        write_snapshot_if_needed(model, model.freeze(), killed.path)
        file = snapshots_newest_first(killed.path / "snapshots" / "m.1")[0]
        for source in (tmp_path / "export.safetensors", export_model(model), file):
            back = stream_dr.load(source)
            assert back.get_params() == estimator.get_params()
            np.testing.assert_array_equal(back.transform(X), estimator.transform(X))
            back.partial_fit(X, Y)
            assert back.n_samples_seen_ == 200
        killed.append([unlearn_draft({0: None}, None, b"")])
        backfill(killed, [model], killed.position)
        assert (model.status, model.rows) == ("live", 80)
        left = model.publish(model.freeze()).projection.apply(X)
        np.testing.assert_allclose(np.sort(abs(left)), np.sort(abs(expected)), atol=1e-9)


def test_a_backup_has_what_a_model_began_with(directory: Directory, tmp_path: Path) -> None:
    directory.add_saved("m", LDA().fit(X, Y))
    backup(directory.path, tmp_path / "copy")
    with Directory(tmp_path / "copy", writable=False) as copy:
        np.testing.assert_array_equal(projected(copy), projected(directory))


def test_the_same_file_is_the_same_model_and_no_other(directory: Directory) -> None:
    one, other = LDA().fit(X, Y), LDA().fit(MORE, MORE_Y)
    assert directory.add_saved("m", one)[1]
    assert not directory.add_saved("m", one)[1]
    policy = stream_dr.PublishPolicy(rows=5)
    assert directory.add_model("m", "lda", {}, policy=policy)[0].policy == policy
    for refused in (other, LDA(gamma=2.0).fit(X, Y)):
        with pytest.raises(errors.ModelExists):
            directory.add_saved("m", refused)
    one.partial_fit(MORE, MORE_Y)
    assert directory.model("m").rows == 80
    with pytest.raises(errors.CannotRefine, match="began with a saved estimator"):
        Running(directory).refine("m")


def test_an_empty_stream_takes_labels_and_names(directory: Directory, tmp_path: Path) -> None:
    directory.add_saved("m", LDA().fit(pd.DataFrame(X, columns=list("abcde")), Y))
    with again(directory, tmp_path / "killed") as killed:
        schema = killed.schema
        assert (schema.names, schema.target_kind, sorted(schema.labels)) == (tuple("abcde"), "class", ["a", "b", "c"])
        with pytest.raises(errors.SchemaMismatch):
            append(killed, arrow(MORE, MORE_Y))
        append(killed, body(Block(MORE, names=tuple("edcba"))))
        killed.remove_model("m")
        assert killed.schema.names == tuple("abcde")
    directory.remove_model("m")
    assert (directory.schema.names, directory.schema.labels) == (None, ())


def test_what_does_not_fit_the_stream_is_refused_at_the_door(directory: Directory) -> None:
    narrow = LDA().fit(X[:, :3], Y)
    directory.add_saved("narrow", narrow)
    with pytest.raises(errors.WidthMismatch):
        append(directory, arrow(MORE, MORE_Y))
    with pytest.raises(errors.InvalidTargets, match="labels are int"):
        append(directory, arrow(MORE[:, :3], np.arange(40)))
    directory.remove_model("narrow")
    append(directory, arrow(MORE, MORE_Y))
    named = LDA().fit(pd.DataFrame(X, columns=list("abcde")), Y)
    for wrong, error in (
        (narrow, errors.WidthMismatch),
        (LDA().fit(X, np.arange(80) % 3), errors.InvalidTargets),
        (stream_dr.OPLS().fit(X, X[:, :2]), errors.TargetKindMismatch),
        (stream_dr.KNearest(LDA()), errors.InvalidParameter),
    ):
        with pytest.raises(error):
            directory.add_saved("m", wrong)
    assert not directory.models
    assert directory.add_saved("named", named)[0].rows == 80
    assert directory.add_saved("unfitted", LDA())[0].rows == 0


def test_sparse_rows_go_on_growing(directory: Directory) -> None:
    rows = sp.csr_matrix(np.where(X > 0.5, X, 0.0))
    estimator = LDA(gamma=1.0).partial_fit(Block(rows, width_stated=False), Y)
    model, _ = directory.add_saved("m", estimator)
    append(directory, sparse_arrow(sp.csr_matrix(np.where(MORE > 0.5, MORE, 0.0))[:, :4], MORE_Y))
    append(directory, sparse_arrow(sp.csr_matrix(np.eye(8)), ["a"] * 8))
    assert (model.status, model.rows) == ("live", 128)
    assert directory.add_saved("again", estimator)[1]


def test_a_start_that_is_damaged_fails_its_model_alone_and_is_found(directory: Directory, tmp_path: Path) -> None:
    directory.add_saved("m", LDA().fit(X, Y))
    with again(directory, tmp_path / "killed") as killed:
        killed.close()
        file = killed.path / "snapshots" / "m.1" / "start.saved"
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with Directory(killed.path, limits=directory.limits) as opened:
            assert opened.model("m").status == "failed"
            assert opened.model("m").failure.code == "damaged_file"  # type: ignore[union-attr]
            assert opened.add_model("other", "pca", {})[1]
        assert [f.what for f in verify(killed.path) if f.error] == ["snapshot m.1/start.saved"]


def test_a_file_that_lies_is_damaged(tmp_path: Path) -> None:
    from stream_dr.models.snapshot_file import read_bytes, safetensors_bytes

    LDA().fit(X, Y).save(tmp_path / "m.safetensors")
    arrays, facts = read_bytes((tmp_path / "m.safetensors").read_bytes())
    for name in arrays:
        with pytest.raises(errors.DamagedFile):
            stream_dr.load(safetensors_bytes({n: a for n, a in arrays.items() if n != name}, facts))
    with pytest.raises(errors.ForeignFile):
        stream_dr.load(b"nothing of ours")
    with pytest.raises(errors.ForeignFile, match="holds no estimator"):
        stream_dr.load(safetensors_bytes({}, {"kind": "refine"}))


def test_a_sparse_sample_that_says_it_is_too_wide_is_refused() -> None:
    from stream_dr.models.saved import saved_file_bytes
    from stream_dr.models.snapshot_file import read_bytes, safetensors_bytes

    arrays, facts = read_bytes(
        saved_file_bytes(LPP(n_neighbors=3, reservoir=16).fit(sp.random(30, 4, density=0.5, format="csr")))
    )
    facts["state"]["n_features"] = 2**31 - 1
    with pytest.raises(errors.LimitExceeded, match="2147483647 features"):
        stream_dr.load(safetensors_bytes(arrays, facts))

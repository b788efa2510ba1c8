"""What was begun and not committed is gone at the next start, wherever the process died or the disk was full."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import stream_dr
from stream_dr import LDA, errors, failpoints
from stream_dr.directory.directory import Directory
from stream_dr.directory.verify import verify
from stream_dr.statistics.protocol import pack
from tests.support.batches import SMALL, dense, opened, put
from tests.support.forked import run_forked

X = np.random.default_rng(0).normal(size=(40, 4))
Y = ["ab"[i % 2] for i in range(40)]
SAVED = (
    "models.reserved",
    "snapshot.tmp",
    "snapshot.rename",
    "snapshot.dir_fsync",
    "models.begun",
    "models.before_commit",
)
PUT = (*SAVED, "models.after_commit")


def work(path: Path, what: str) -> None:
    with stream_dr.Directory(path, limits=SMALL) as directory:
        if what == "put":
            directory.add_saved("saved", stream_dr.LDA().fit(X, Y))
        else:
            directory.remove_model("first")


def folders(path: Path) -> list[str]:
    return sorted(folder.name for folder in (path / "snapshots").glob("*"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with opened(tmp_path / "D") as directory:
        put(directory, dense(0))
        directory.add_saved("first", LDA().fit(X, Y))
    return tmp_path / "D"


@pytest.mark.every_run
@pytest.mark.parametrize(("what", "point"), [*(("put", point) for point in PUT), ("delete", "models.removed")])
def test_a_kill_at_any_step_leaves_a_directory_that_starts(directory: Path, what: str, point: str) -> None:
    assert run_forked(f"{point}=kill", work, directory, what) == -9
    there = {"put": {"first", "saved"} if point == "models.after_commit" else {"first"}, "delete": set[str]()}[what]
    with stream_dr.Directory(directory, writable=False) as reader:  # it changes nothing
        assert set(reader.models) == there
    with Directory(directory, limits=SMALL) as again:
        assert set(again.models) == there
        assert folders(directory) == sorted(f"{name}.{model.id}" for name, model in again.models.items())
        assert all(model.status == "live" and model.rows == 40 for model in again.models.values())
        used = {model.id for model in again.models.values()} | {1}
        assert again.add_saved("other", LDA().fit(X, Y))[0].id not in used
    assert [finding for finding in verify(directory) if finding.error is not None] == []


@pytest.mark.parametrize("point", SAVED)
def test_a_full_disk_at_any_step_changes_nothing(directory: Path, point: str) -> None:
    with Directory(directory, limits=SMALL) as there:
        with failpoints.failpoints_armed(f"{point}=enospc"), pytest.raises((errors.InsufficientStorage, OSError)):
            there.add_saved("saved", LDA().fit(X, Y))
        assert set(there.models) == {"first"}
        assert folders(directory) == ["first.1"]
        assert there.add_saved("saved", LDA().fit(X, Y))[1]
    with Directory(directory, limits=SMALL) as again:
        assert set(again.models) == {"first", "saved"}
        assert folders(directory) == ["first.1", f"saved.{again.models['saved'].id}"]


def test_a_saved_estimator_is_refused_where_too_little_is_free(directory: Path) -> None:
    limits = SMALL._replace(min_free_bytes=1 << 60)
    with (
        Directory(directory, limits=limits) as there,
        pytest.raises(errors.InsufficientStorage, match="min_free_bytes"),
    ):
        there.add_saved("saved", LDA().fit(X, Y))
    assert folders(directory) == ["first.1"]


def test_a_saved_estimator_is_refused_where_it_does_not_fit(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = LDA().fit(X, Y)
    arrays, _ = pack(saved.state_)
    size = sum(array.nbytes for array in arrays.values())
    monkeypatch.setattr("stream_dr.disk.free_bytes", lambda path: 10_000 + size - 1)
    with Directory(directory, limits=SMALL._replace(min_free_bytes=10_000)) as there:
        with pytest.raises(errors.InsufficientStorage) as refused:
            there.add_saved("saved", saved)
        assert refused.value.details == {"free_bytes": 10_000 + size - 1, "needed": 10_000 + size}
        assert set(there.models) == {"first"}
    assert folders(directory) == ["first.1"]


def test_snapshots_of_an_unknown_model_are_those_of_a_removed_one(directory: Path) -> None:
    shutil.copytree(directory / "snapshots" / "first.1", directory / "snapshots" / "lost.7")
    with Directory(directory, limits=SMALL) as opened_again:
        assert set(opened_again.models) == {"first"}
    assert folders(directory) == ["first.1"]

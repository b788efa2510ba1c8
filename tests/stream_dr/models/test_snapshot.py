"""Snapshots: going on from one is never having stopped; the newest valid one wins; saved estimators come back."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stream_dr
from stream_dr import errors
from stream_dr.directory.directory import Directory
from stream_dr.estimators import ESTIMATORS
from stream_dr.models.model import Model
from stream_dr.models.snapshot import snapshot_folder, snapshots_newest_first, state_sha256, write_snapshot_if_needed
from stream_dr.projection import linear_part_or_none
from stream_dr.running.advance import ParsedEvent, apply_event_or_rebuild
from tests.support.batches import SMALL, dense, opened, put

KEYS = sorted(ESTIMATORS)


def learn(directory: Directory, model: Model, *seeds: int) -> None:
    """Append and apply blocks."""
    for seed in seeds:
        block = dense(seed)
        (position,) = put(directory, block)
        apply_event_or_rebuild(model, ParsedEvent(position, block), directory)
    assert model.failure is None


def sha(model: Model) -> str:
    return state_sha256(model.accumulator.freeze())


@pytest.mark.parametrize("key", KEYS)
def test_going_on_from_a_snapshot_is_never_having_stopped(key: str, tmp_path: Path) -> None:
    with opened(tmp_path / "a", m=(key, {})) as directory:
        learn(directory, directory.model("m"), 0, 1, 2, 3)
        straight = sha(directory.model("m"))
    with opened(tmp_path / "b", m=(key, {})) as directory:
        learn(directory, directory.model("m"), 0, 1)
        write_snapshot_if_needed(directory.model("m"), directory.model("m").freeze(), directory.path)
    with opened(tmp_path / "b") as directory:
        model = directory.model("m")
        assert (model.position, model.rows, model.status) == (1, 40, "live")
        learn(directory, model, 2, 3)
        assert sha(model) == straight


class AnnouncedLock:
    """A lock that reports that somebody wants it."""

    def __init__(self) -> None:
        self.lock, self.wanted = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        self.wanted.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_a_snapshot_that_waited_for_another_has_what_was_published_meanwhile(tmp_path: Path) -> None:
    with opened(tmp_path, m=("lda", {})) as directory:
        model = directory.model("m")
        learn(directory, model, 0, 1)
        model.publish(model.freeze())
        with ThreadPoolExecutor(1) as pool:
            model.snapshotting = lock = AnnouncedLock()
            with lock.lock:
                begun = pool.submit(write_snapshot_if_needed, model, model.freeze(), directory.path)
                assert lock.wanted.wait(30)
                newest = model.publish(model.freeze())
            begun.result()
        assert model.last_snapshot.version == newest.version
    with opened(tmp_path) as directory:
        assert directory.model("m").published_version == newest.version


def test_the_published_projection_comes_back(tmp_path: Path) -> None:
    with opened(tmp_path, m=("lda", {})) as directory:
        model = directory.model("m")
        learn(directory, model, 0, 1)
        before = model.publish(model.freeze())
        write_snapshot_if_needed(model, model.freeze(), directory.path)
    with opened(tmp_path) as directory:
        after = directory.model("m").published
        assert after is not None
        assert (after.version, after.position, after.rows) == (before.version, before.position, before.rows)
        np.testing.assert_array_equal(after.projection.loadings, before.projection.loadings)  # type: ignore[attr-defined]


def test_a_choice_and_its_spread_come_back(tmp_path: Path) -> None:
    params = {"n_components": "cv", "folds": 4}
    with opened(tmp_path, m=("plsda", params)) as directory:
        model = directory.model("m")
        learn(directory, model, 0, 1, 2)
        before = linear_part_or_none(model.publish(model.freeze()).projection)
        write_snapshot_if_needed(model, model.freeze(), directory.path)
        state, chosen = sha(model), model.describe(2)["chosen"]
    with opened(tmp_path) as directory:
        model = directory.model("m")
        assert (sha(model), model.describe(2)["chosen"]) == (state, chosen)
        assert model.published is not None
        after = linear_part_or_none(model.published.projection)
        for name in ("choice", "spread"):
            for kept, back in zip(getattr(before, name), getattr(after, name), strict=True):
                np.testing.assert_array_equal(kept, back)
        assert model.publish(model.freeze()).projection.spread.folds == 4  # type: ignore[attr-defined]


def taken(directory: Directory, model: Model) -> list[Path]:
    """Four snapshots; those that were kept, newest first."""
    for seed in range(4):
        learn(directory, model, seed)
        write_snapshot_if_needed(model, model.freeze(), directory.path)
    return snapshots_newest_first(snapshot_folder(directory.path, model.name, model.id))


def test_the_last_two_are_kept_named_by_position(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        assert [int(p.stem) for p in taken(directory, directory.model("m"))] == [3, 2]


@pytest.mark.parametrize("damage", ["flip", "truncate", "foreign", "empty"])
def test_a_damaged_newest_falls_back_to_the_older(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        newest = taken(directory, directory.model("m"))[0]
    whole = newest.read_bytes()
    made = {"flip": whole[:-1] + bytes([whole[-1] ^ 1]), "truncate": whole[:-9], "foreign": b"x" * 100, "empty": b""}
    newest.write_bytes(made[damage])
    with opened(tmp_path) as directory:
        assert directory.model("m").position == 2
        assert directory.model("m").status == "catching_up"
    assert "passed over" in caplog.text


def test_no_valid_snapshot_starts_over(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {})) as directory:
        for path in taken(directory, directory.model("m")):
            path.write_bytes(b"")
    with opened(tmp_path) as directory:
        assert (directory.model("m").position, directory.model("m").rows) == (-1, 0)


def test_a_log_that_ends_before_a_snapshot_is_not_written_to(tmp_path: Path) -> None:
    with opened(tmp_path / "a", m=("class_means", {})) as directory:
        newest = taken(directory, directory.model("m"))[0]
    with opened(tmp_path / "b", m=("class_means", {})) as directory:
        put(directory, dense(0))
        folder = snapshot_folder(directory.path, "m", 1)
        folder.mkdir(parents=True)
        (folder / newest.name).write_bytes(newest.read_bytes())
    for _ in range(2):
        with pytest.raises(
            errors.DamagedFile, match=r"ends at position 0, and the event at position 3 was acknowledged"
        ):
            Directory(tmp_path / "b")
    with Directory(tmp_path / "b", writable=False) as directory:
        assert directory.model("m").position == -1
    (folder / newest.name).unlink()
    with opened(tmp_path / "b") as directory:
        assert directory.position == 0


def test_a_snapshot_of_another_spec_is_not_used(tmp_path: Path) -> None:
    with opened(tmp_path, m=("class_means", {}), n=("class_means", {"n_components": 1})) as directory:
        files = taken(directory, directory.model("m"))
        folder = snapshot_folder(directory.path, "n", directory.model("n").id)
        folder.mkdir(parents=True)
        (folder / files[0].name).write_bytes(files[0].read_bytes())
    with opened(tmp_path) as directory:
        assert directory.model("n").position == -1


def test_versions_are_never_used_twice(tmp_path: Path) -> None:
    seen: list[int] = []
    for run in range(3):  # each run ends without a snapshot, as if killed
        with Directory(tmp_path, limits=SMALL) as directory:
            model, _ = directory.add_model("m", "class_means", {})
            learn(directory, model, run)
            seen += [model.publish(model.freeze()).version for _ in range(3)]
    assert seen == sorted(set(seen))


def fitted(key: str, **params: Any) -> Any:
    estimator = ESTIMATORS[key](**params)
    block = dense(0, 60)
    return estimator.partial_fit(block.X, block.y) if estimator.target_kinds else estimator.partial_fit(block.X)


@pytest.mark.parametrize("key", KEYS)
def test_a_saved_estimator_goes_on_bit_equal(key: str, tmp_path: Path) -> None:
    estimator, more = fitted(key), dense(9, 30)
    estimator.save(tmp_path / "e")
    back = stream_dr.load(tmp_path / "e")
    assert back.get_params() == estimator.get_params()
    np.testing.assert_array_equal(back.transform(more.X), estimator.transform(more.X))
    for each in (estimator, back):
        each.partial_fit(more.X, more.y) if each.target_kinds else each.partial_fit(more.X)
    assert state_sha256(back.state_) == state_sha256(estimator.state_)
    np.testing.assert_array_equal(back.transform(more.X), estimator.transform(more.X))


def test_an_unfitted_estimator_and_feature_names(tmp_path: Path) -> None:
    import pandas as pd

    stream_dr.save(stream_dr.LDA(n_components=2), tmp_path / "e")
    back = stream_dr.load(tmp_path / "e")
    assert back.n_components == 2
    assert not back.__sklearn_is_fitted__()
    block = dense(0)
    back.fit(pd.DataFrame(block.X, columns=list("wxyz")), block.y)
    back.save(tmp_path / "e")
    assert list(stream_dr.load(tmp_path / "e").feature_names_in_) == list("wxyz")


def test_what_is_not_a_saved_estimator(tmp_path: Path) -> None:
    with pytest.raises(errors.SourceMissing):
        stream_dr.load(tmp_path / "none")

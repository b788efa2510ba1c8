"""Stored results: a plan that was ended goes on from what was done, and leaves nothing once it has come to its end."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dr.directory.directory import Directory
from stream_dr.distributed import local
from stream_dr.distributed import task_plan as planning
from stream_dr.distributed.distributed_replay import replay_in_parts
from stream_dr.distributed.local import thread_runner
from stream_dr.distributed.part_store import PartStore
from stream_dr.distributed.parts import PartialResult, learn, outline
from stream_dr.errors import DamagedFile
from stream_dr.models.snapshot import state_sha256
from stream_dr.rows.block import Block
from stream_dr.running.replay import ReplaySettings
from stream_dr.shards.dataset import open_dataset
from stream_dr.targets.targets import class_targets, continuous_targets, multilabel_targets
from tests.support.batches import SMALL, dense, shards, sparse


class Ended(Exception):
    """What ends a run."""


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "LEAST_ROWS", 40)
    monkeypatch.setattr(planning, "ROW_BYTES_RATIO", 0)


def run(path: Path, folder: Path, work: Path | None) -> dict[str, tuple[int, str]]:
    with Directory(path, limits=SMALL) as directory:
        for name, key in (("sums", "opls"), ("walk", "ccipca")):
            directory.add_model(name, key, {})
        report = replay_in_parts(
            thread_runner(1),
            directory,
            open_dataset(folder),
            ReplaySettings(),
            store=None if work is None else PartStore(str(work)),
        )
        assert report.rows == 220
        return {n: (m.position, state_sha256(m.accumulator.freeze())) for n, m in directory.models.items()}


@pytest.mark.parametrize("sparse_rows", [False, True])
def test_given_again_only_what_was_unfinished_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse_rows: bool
) -> None:
    folder, work = shards(tmp_path / "s", blocks=11, sparse_rows=sparse_rows), tmp_path / "work"
    wanted = run(tmp_path / "whole", folder, None)
    learned: list[int] = []
    left = 4

    def some(task: Any, *given: Any, **more: Any) -> PartialResult:
        learned.append(len(task.references))
        if len(learned) > left:
            raise Ended
        return learn(task, *given, **more)

    monkeypatch.setattr(local, "learn", some)
    with pytest.raises(Ended):
        run(tmp_path / "d", folder, work)
    assert learned[:5] == [11, 2, 2, 2, 2]  # the recurrence, three tasks, and one that was not ended
    assert len(list(work.iterdir())) == 5  # one of two tasks as well
    learned, left = [], 9
    monkeypatch.setattr(local, "learn", some)
    assert run(tmp_path / "d", folder, work) == wanted
    assert learned == [2, 2, 1]
    assert list(work.iterdir()) == []


def test_what_is_damaged_is_told_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, work = shards(tmp_path / "s", blocks=11), tmp_path / "work"
    with monkeypatch.context() as patched:
        patched.setattr(PartStore, "remove", lambda self, keys: None)
        run(tmp_path / "first", folder, work)
    for file in work.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    files = len(list(work.iterdir()))
    with pytest.raises(DamagedFile, match="is removed; give the command again"):
        run(tmp_path / "d", folder, work)
    assert len(list(work.iterdir())) == files - 1


@pytest.mark.parametrize(
    "block",
    [
        dense(1),
        sparse(2),
        sparse(3, stated=True),
        dense(4, y=None, names=("a", "b", "c", "d"), weights=np.arange(20.0)),
        dense(5, y=class_targets([None] * 20)),
        dense(6, y=class_targets([7, 3, None, 3] * 5)),
        dense(7, y=class_targets([None, True, False, True] * 5)),
        dense(8, y=multilabel_targets([["x", "y"], [], None, ["z", "y"]] * 5)),
        dense(9, y=continuous_targets(np.ones((20, 2)))),
    ],
    ids=lambda block: "",
)
def test_an_outline_comes_back_with_all_labels_and_its_width(tmp_path: Path, block: Block) -> None:
    kept, shown = PartStore(str(tmp_path)), [outline(block)]
    kept.write("k", PartialResult((), tuple(shown)))
    found = kept.read("k", [])
    assert found is not None
    for one, other in zip(shown, found.outlines, strict=True):
        assert (one.features, one.rows, one.names, one.width_stated) == (
            other.features,
            other.rows,
            other.names,
            other.width_stated,
        )
        assert (one.y is None) == (other.y is None)
        if one.y is not None:
            assert (one.y.kind, one.y.labels, one.y.row_labels()) == (
                other.y.kind,
                other.y.labels,
                other.y.row_labels(),
            )

"""Killed at each step of PUT, DELETE, snapshot, retention and backup, a directory starts again with nothing left over."""

from pathlib import Path

import pytest

from stream_dr import errors, failpoints
from tests.support import lives
from tests.support.batches import opened

pytestmark = pytest.mark.every_run

POINTS = [point for points in lives.POINTS.values() for point in points]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_each_step(tmp_path: Path, point: str) -> None:
    status, told = lives.killed(tmp_path / "D", f"{point}=kill")
    assert status == -9
    lives.check(tmp_path / "D", told)


@pytest.mark.parametrize("point", [p for p in POINTS if not p.endswith(("commit", "ed", "noted"))])
def test_a_full_disk_at_each_step(tmp_path: Path, point: str) -> None:
    with opened(tmp_path / "D", m=("class_means", {})) as directory:
        failpoints.arm_failpoints(f"{point}=enospc@1")
        try:
            for number, what in enumerate(lives.STEPS):
                try:
                    lives.step(directory, what, number)
                except (errors.InsufficientStorage, OSError):
                    lives.step(directory, what, number)  # there is room again
        finally:
            failpoints.arm_failpoints("")
        assert not list(tmp_path.rglob("*.tmp*"))
    lives.check(tmp_path / "D", "")


def test_snapshots_that_were_begun_do_not_add_up(tmp_path: Path) -> None:
    for seed in range(3):
        status, _ = lives.killed(tmp_path / "D", "snapshot.rename=kill", ("put", "snapshot"), seed)
        assert status == -9
    assert len(list(tmp_path.rglob("*.safetensors.tmp"))) == 1
    lives.check(tmp_path / "D", "")


def test_what_was_being_written_goes_and_what_is_only_called_so_stays(tmp_path: Path) -> None:
    begun = ["places.json.tmp", "sources/rows.csv/source.json.tmp", "sources/.other.csv.tmp/part-0.parquet"]
    stays = ["sources/mine.tmp/part-0.parquet", "sources/rows.csv/part-0.parquet", "copy.tmp/log/index.sqlite"]
    for name in (*begun, *stays):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"rows")
    with opened(tmp_path):
        pass
    assert [(tmp_path / name).exists() for name in (*begun, *stays)] == [False] * 3 + [True] * 3
    assert not (tmp_path / "sources" / ".other.csv.tmp").exists()

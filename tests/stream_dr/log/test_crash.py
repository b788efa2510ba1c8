"""After a kill, an error or a full disk at any moment, the log holds what was acknowledged and goes on."""

import os
import random
import shutil
import subprocess
from contextlib import nullcontext

import pytest

from benchmarks import log_kill
from stream_dr import errors
from stream_dr.failpoints import FailpointReached, armed
from stream_dr.log import segment
from stream_dr.log.bodies import bodies_path
from stream_dr.log.log import Log
from tests.stream_dr.log.logs import drafts, killed

pytestmark = pytest.mark.usefixtures("placement")


def test_what_an_interrupted_append_left_is_cut(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        path = bodies_path(log._segments[-1].path)
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"of an event that never was" * 1000)
    with Log(folder, writable=False) as reader:
        assert reader.verify().events == 3
    with Log(folder) as log:
        assert path.stat().st_size == size
        assert log.append(drafts(3, 1)) == [3]
        log.verify()


@pytest.mark.parametrize("place", ["log.bodies_write", "log.bodies_sync", "log.before_commit", "log.after_commit"])
def test_an_error_around_the_commit_leaves_no_doubt(folder, place):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        reached = pytest.raises(FailpointReached)
        if segment.SMALL_BYTES > 0 and "bodies" in place:
            reached = nullcontext()
        with armed(f"{place}=raise"), reached:
            log.append(drafts(3, 2))
        after = 4 if place == "log.after_commit" or isinstance(reached, nullcontext) else 2
        assert log.append(drafts(after + 1, 1)) == [after + 1]
        assert [e.position for e in log.read(-1)] == list(range(after + 2))
        assert (log.find_key("k3") is None) == (after == 2) or after + 1 == 3
        log.verify()


def test_a_retry_of_an_append_that_raised_after_its_commit_is_known(folder, monkeypatch):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        append = segment.Segment.append

        def committed(self, events):
            append(self, events)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(segment.Segment, "append", committed)
        with pytest.raises(OSError, match="Input"):
            log.append(drafts(3, 2))
        monkeypatch.undo()
        assert [log.find_key(f"k{i}").position for i in (3, 4)] == [3, 4]
        assert log.append(drafts(5, 1)) == [5]
        log.verify()


def test_an_index_that_fails_after_the_commit_fails_no_append(folder, monkeypatch):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        find = log._index.find

        def breaks(key):
            if key == "k4":
                raise errors.DamagedFile("not what was written")
            return find(key)

        with monkeypatch.context() as patched:
            patched.setattr(log._index, "find", breaks)
            assert log.append(drafts(3, 3)) == [3, 4, 5]
        assert [log.find_key(f"k{i}").position for i in (3, 4, 5)] == [3, 4, 5]
        assert log.append(drafts(6, 1)) == [6]
        log.verify()


def test_a_full_disk_is_said_and_overcome(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        for place, words in (
            ("before_commit", r"\.sqlite"),
            ("bodies_write", r"\.bodies"),
            ("bodies_sync", r"\.bodies"),
        ):
            with armed(f"log.{place}=enospc"), pytest.raises(errors.InsufficientStorage, match=words):
                log.append(drafts(3, 1, size=100_000))
            assert (log.last, log.find_key("k3"), log._segments[-1].totals().events) == (2, None, 3)
        with log._segments[-1]._pool.connection() as connection:
            connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(errors.InsufficientStorage):
            log.append(drafts(3, 2000, size=10))
        assert (log.last, log.find_key("k3")) == (2, None)
        assert log.append(drafts(3, 1)) == [3]
        log.verify()


def test_a_full_disk_for_the_index_fails_no_append(folder, monkeypatch):
    def full(_):
        raise errors.InsufficientStorage("full")

    with Log(folder) as log:
        monkeypatch.setattr("stream_dr.log.key_index._FLUSH", 2)
        log._index._flush_at = 2
        monkeypatch.setattr(log._index, "_write", full)
        assert log.append(drafts(0, 5)) == [0, 1, 2, 3, 4]
        assert log.find_key("k4").position == 4
        monkeypatch.undo()
    with Log(folder) as log:
        assert log.find_key("k4").position == 4


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_a_really_full_disk(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (small / "reserve").write_bytes(bytes(100_000))  # what dropping writes before it gives room
        with Log(small / "log", segment_bytes=500_000) as log:
            for start in range(100):
                try:
                    log.append(drafts(start, 1, size=90_000))
                except errors.InsufficientStorage:
                    break
            last = log.last
            assert 10 < last < 50
            (small / "reserve").unlink()
            assert [e.position for e in log.read(-1, limit=1000)] == list(range(last + 1))
            log.drop_before(last)
            assert log.append(drafts(last + 1, 1, size=90_000)) == [last + 1]
        with Log(small / "log") as log:
            assert log.last == last + 1
            log.verify()
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    ("place", "lasts"),
    [
        ("log.bodies_write=kill@4", {2}),
        ("log.bodies_sync=kill@4", {2}),
        ("log.before_commit=kill@4", {2}),
        ("log.after_commit=kill@4", {3}),
        ("log.roll=kill@2", {9}),
        ("log.drop=kill@2", {44}),
    ],
)
def test_killed_at_every_write_nothing_acknowledged_is_lost(folder, place, lasts):
    code = (
        "import sys; from stream_dr.log.log import Log, draft\n"
        f"from stream_dr.log import segment; segment.SMALL_BYTES = {segment.SMALL_BYTES}\n"
        "log = Log(sys.argv[1], segment_events=10)\n"
        "for p in range(45):\n"
        "    print(log.append([draft('rows', b'%d' % p, 1, key=f'k{p}', schema=str(p))])[-1], flush=True)\n"
        "log.drop_before(35)"
    )
    done = killed(code, place, folder)
    if "bodies" in place and segment.SMALL_BYTES > 0:
        assert done.returncode == 0
        return
    assert done.returncode == -9, done.stderr
    acknowledged = int(done.stdout.split()[-1])
    with Log(folder, segment_events=10) as log:
        assert log.last in lasts
        assert log.last >= acknowledged
        assert [int(e.body) for e in log.read(log.first - 1)] == list(range(log.first, log.last + 1))
        assert [log.find_key(f"k{p}").position for p in range(log.last + 1)] == list(range(log.last + 1))
        assert log.schema_changes() == [str(p) for p in range(log.last + 1)]
        log.verify()
        assert log.append(drafts(log.last + 1, 1)) == [max(lasts) + 1]
    assert not list(folder.glob("*.tmp"))


def test_killed_at_random_moments_nothing_acknowledged_is_lost(folder):
    chance = random.Random(5)
    for seed in range(3):
        acknowledged, last = log_kill.kill_one(str(folder), seed, chance.uniform(0, 0.3))
        print(f"seed {seed}: {acknowledged} acknowledged, {last} in the log")

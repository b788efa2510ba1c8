"""After a kill, an error or a full disk at any moment, the log holds what was acknowledged and goes on."""

import os
import random
import shutil
import subprocess

import pytest

from stream_dr import errors
from stream_dr.failpoints import FailpointReached, failpoints_armed
from stream_dr.log import index
from stream_dr.log.ids import id_hashes
from stream_dr.log.log import Log
from tests.support import log_kills
from tests.support.logs import bodies, drafts, killed


def test_what_an_interrupted_append_left_is_cut(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3, size=100_000))
    (path,) = bodies(folder)
    size = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"of an event that never was" * 1000)
    never = path.with_stem(f"{3:020d}")
    never.write_bytes(b"of another one")
    with Log(folder, writable=False) as reader:
        assert reader.verify().events == 3
    with Log(folder) as log:
        assert path.stat().st_size == size
        assert not never.exists()
        assert log.append(drafts(3, 1)) == [3]
        log.verify()


@pytest.mark.parametrize("place", ["log.bodies_write", "log.bodies_sync", "log.before_commit", "log.after_commit"])
def test_an_error_around_the_commit_leaves_no_doubt(folder, place):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        with failpoints_armed(f"{place}=raise"), pytest.raises(FailpointReached):
            log.append(drafts(3, 2, size=100_000))
        after = 4 if place == "log.after_commit" else 2
        assert log.last == after
        assert log.append(drafts(after + 1, 1)) == [after + 1]
        assert [e.position for e in log.read(-1)] == list(range(after + 2))
        assert (log.find_key("k4") is None) == (after == 2)
        log.verify()


def test_a_retry_of_an_append_that_raised_after_its_commit_is_known(folder, monkeypatch):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        append = index.add_events_to_index

        def committed(*arguments):
            append(*arguments)
            arguments[0].execute("COMMIT")
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(index, "add_events_to_index", committed)
        with pytest.raises(OSError, match="Input"):
            log.append(drafts(3, 2))
        monkeypatch.undo()
        assert [log.find_key(f"k{i}").position for i in (3, 4)] == [3, 4]
        assert log.append(drafts(5, 1)) == [5]
        log.verify()


def test_a_full_disk_is_said_and_overcome(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        for place, words in (
            ("before_commit", r"\.sqlite"),
            ("bodies_write", r"\.bodies"),
            ("bodies_sync", r"\.bodies"),
        ):
            with failpoints_armed(f"log.{place}=enospc"), pytest.raises(errors.InsufficientStorage, match=words):
                log.append(drafts(3, 1, size=100_000))
            assert (log.last, log.find_key("k3"), log.rows_appended) == (2, None, 9)
        assert log.append(drafts(3, 1)) == [3]
        log.verify()


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
        with Log(small / "log", max_file_bytes=500_000) as log:
            for start in range(100):
                try:
                    log.append(drafts(start, 1, size=90_000))
                except errors.InsufficientStorage:
                    break
            last = log.last
            assert 10 < last < 50
            (small / "reserve").unlink()
            assert [e.position for e in log.read(-1, limit=1000)] == list(range(last + 1))
            log.drop_events_before(last)
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
        ("log.drop=kill", {44}),
    ],
)
def test_killed_at_every_write_nothing_acknowledged_is_lost(folder, place, lasts):
    code = (
        "import sys; from stream_dr.log.ids import id_hashes; from stream_dr.log.log import Log\n"
        "from tests.support.logs import draft\n"
        "log = Log(sys.argv[1], max_file_bytes=20)\n"
        "for p in range(45):\n"
        "    event = draft('rows', b'%d' % p, 1, key=f'k{p}', schema=str(p))._replace(ids=id_hashes([p]))\n"
        "    print(log.append([event])[-1], flush=True)\n"
        "log.drop_events_before(35)"
    )
    done = killed(code, place, folder)
    assert done.returncode == -9, done.stderr
    acknowledged = int(done.stdout.split()[-1])
    with Log(folder, max_file_bytes=20) as log:
        assert log.last in lasts
        assert log.last >= acknowledged
        assert [int(e.body) for e in log.read(log.first - 1)] == list(range(log.first, log.last + 1))
        assert [log.find_key(f"k{p}").position for p in range(log.last + 1)] == list(range(log.last + 1))
        assert log.schema_changes() == [str(p) for p in range(log.last + 1)]
        assert [log.positions_with_ids(id_hashes([p])) for p in range(log.first, log.last + 2)] == [
            *([p] for p in range(log.first, log.last + 1)),
            [],
        ]
        log.verify()
        assert log.append(drafts(log.last + 1, 1)) == [max(lasts) + 1]
    assert not list(folder.glob("*.tmp"))


@pytest.mark.test_all
def test_killed_at_random_moments_nothing_acknowledged_is_lost(folder):
    chance = random.Random(5)
    for seed in range(3):
        acknowledged, last = log_kills.kill_one(str(folder), seed, chance.uniform(0, 0.3))
        print(f"seed {seed}: {acknowledged} acknowledged, {last} in the log")

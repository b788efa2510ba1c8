"""Rewritten bodies leave the disk, whoever reads and whenever the process dies; nothing else does."""

import random
import subprocess
import sys
from contextlib import contextmanager

import pytest

from stream_dr.failpoints import FailpointReached, failpoints_armed
from stream_dr.log.bodies import BodyReader
from stream_dr.log.event import xxh64_digest
from stream_dr.log.log import Log
from tests.support.logs import draft, drafts, killed, left_of

READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("BEGIN")
connection.execute("SELECT * FROM events").fetchone()
print("reading", flush=True)
sys.stdin.readline()
"""


@contextmanager
def reading(folder):
    """Another process that reads the log as it is now, until the end of the with-block."""
    command = [sys.executable, "-c", READER, str(folder / "index.sqlite")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout.readline() == b"reading\n"
        yield
        reader.stdin.close()
        assert reader.wait(30) == 0


def secrets(count, size=760):
    """Drafts of bodies that differ from their first bytes on."""
    bodies = [random.Random(p).randbytes(size) for p in range(count)]
    return [draft("rows", body, 5, key=f"k{p}") for p, body in enumerate(bodies)]


def test_a_rewritten_event_keeps_its_key_and_the_old_bytes_are_gone(folder):
    secret = b"the quick brown fox" * 40
    with Log(folder, max_file_bytes=10_000) as log:
        log.append([draft("rows", secret, 5, key="mine")])
        log.append(drafts(1, 15))
        log.append(drafts(16, 1))
        log.rewrite(0, b"", 0)
        event = log.read(-1, limit=1)[0]
        digest = xxh64_digest(secret)
        assert (event.body, event.rows, event.key, event.fingerprint) == (b"", 0, "mine", digest)
        assert (log.find_key("mine").rows, log.rows_appended) == (5, 53)
        assert not left_of(secret, folder)
        log.verify()
    assert Log(folder, writable=False).rows_appended == 53


@pytest.mark.every_run
@pytest.mark.parametrize("size", [300, 5_000, 100_000])
def test_no_byte_is_left_whatever_was_rewritten_and_dropped_before(folder, size):
    chance = random.Random(size)
    given = secrets(60, size)
    with Log(folder, max_file_bytes=10 * size) as log:
        for start in range(0, 60, 4):
            log.append(given[start : start + 4])
            for position in chance.sample(range(log.first, log.last + 1), 2):
                log.rewrite(position, given[position].body[: size // 2][::-1] if position % 2 else b"", 1)
                assert not left_of(given[position].body, folder), position
            log.drop_events_before(log.last - chance.randrange(10, 30))
        log.verify()


@pytest.mark.every_run
@pytest.mark.parametrize("place", ["log.rewrite", "log.rewritten", "log.erased"])
@pytest.mark.parametrize("at", [0, 17], ids=["an old one", "the last one"])
def test_killed_within_a_rewrite_the_old_bytes_are_gone_after_the_next_opening(folder, place, at):
    given = secrets(18)
    with Log(folder, max_file_bytes=10_000) as log:
        for one in given:
            log.append([one])
    code = "import sys; from stream_dr.log.log import Log; Log(sys.argv[1]).rewrite(int(sys.argv[2]), b'left', 2)"
    assert killed(code, f"{place}=kill", folder, at).returncode == -9
    with Log(folder) as log:
        event = log.read(at - 1, limit=1)[0]
        if place == "log.rewrite":
            assert (event.body, event.rows) == (given[at].body, 5)
            log.rewrite(at, b"left", 2)
            event = log.read(at - 1, limit=1)[0]
        assert (event.body, event.rows, event.key) == (b"left", 2, f"k{at}")
        assert not left_of(given[at].body, folder)
        log.append(drafts(18, 3))
        log.verify()


@pytest.mark.every_run
def test_bytes_are_overwritten_while_another_process_reads(folder):
    old, *others = secrets(5, 100_000)
    with Log(folder) as log:
        log.append([old, *others])
        with reading(folder):
            log.rewrite(0, b"new", 1)
            assert not left_of(old.body, folder)
            assert log.append(drafts(5, 1)) == [5]
        log.verify()


@pytest.mark.every_run
def test_a_reader_that_is_overtaken_by_a_rewrite_reads_the_new_body(folder, monkeypatch):
    given = secrets(4)

    def rewrite_before_the_first_read(self, first, start, size):
        monkeypatch.undo()
        log.rewrite(1, b"new", 1)
        return self.read(first, start, size)

    with Log(folder) as log, Log(folder, writable=False) as other:
        log.append(given)
        for reader in (log, other):
            monkeypatch.setattr(BodyReader, "read", rewrite_before_the_first_read)
            assert [e.body for e in reader.read(0)] == [b"new", given[2].body, given[3].body]
            log.rewrite(1, given[1].body, 5)


@pytest.mark.every_run
def test_an_overwriting_that_fails_is_done_by_the_next_rewrite(folder):
    given = secrets(3)
    with Log(folder) as log:
        log.append(given)
        with failpoints_armed("log.erased=raise"), pytest.raises(FailpointReached):
            log.rewrite(0, b"new", 1)
        log.rewrite(1, b"new", 1)
        assert not any(left_of(one.body, folder) for one in given[:2])
        assert [e.body for e in log.read(-1)] == [b"new", b"new", given[2].body]
        log.verify()


def test_a_rewrite_at_the_end_and_a_failed_append_after_it_spoil_nothing(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        log.rewrite(2, b"", 0)
        with failpoints_armed("log.before_commit=raise"), pytest.raises(FailpointReached):
            log.append(drafts(3, 1))
        log.append(drafts(3, 2))
        log.verify()
    with Log(folder) as log:
        assert [e.body for e in log.read(-1)] == [d.body for d in drafts(0, 2)] + [b""] + [d.body for d in drafts(3, 2)]
        log.verify()


def test_a_rewrite_that_fails_changes_nothing(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        for action in ("raise", "enospc"):
            with failpoints_armed(f"log.rewrite={action}"), pytest.raises((FailpointReached, ValueError)):
                log.rewrite(1, b"new", 1)
        assert [e.body for e in log.read(-1)] == [d.body for d in drafts(0, 3)]
        log.rewrite(1, b"new", 1)
        assert log.append(drafts(3, 1)) == [3]
        log.verify()

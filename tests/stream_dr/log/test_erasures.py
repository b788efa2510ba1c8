"""Rewritten bodies leave the disk, whoever reads and whenever the process dies; nothing else does."""

import hashlib
import threading
import time

import pytest

from stream_dr.errors import DamagedFile
from stream_dr.failpoints import FailpointReached, armed
from stream_dr.log import erasures
from stream_dr.log.bodies import bodies_path
from stream_dr.log.log import Log, draft
from stream_dr.log.sqlite_file import one_view
from tests.stream_dr.log.logs import drafts, killed, segments

pytestmark = pytest.mark.usefixtures("placement")


def test_a_rewritten_event_keeps_its_key_and_the_old_bytes_are_gone(folder):
    secret = b"the quick brown fox" * 40
    with Log(folder, segment_bytes=10_000) as log:
        log.append([draft("rows", secret, 5, key="mine")])
        log.append(drafts(1, 15))
        log.append(drafts(16, 1))
        log.rewrite(0, b"", 0)
        event = log.read(-1, limit=1)[0]
        assert (event.body, event.rows, event.key, event.fingerprint) == (
            b"",
            0,
            "mine",
            hashlib.sha256(secret).hexdigest(),
        )
        assert log.find_key("mine").rows == 5
        log.verify()
    assert not left_of(secret, folder)


def left_of(secret, folder):
    return [p.name for p in folder.iterdir() if secret[:12] in p.read_bytes()]


@pytest.mark.parametrize("place", ["log.rewrite", "log.rewritten", "log.erased"])
@pytest.mark.parametrize("at", [0, 17], ids=["sealed", "last segment"])
def test_killed_within_a_rewrite_the_old_bytes_are_gone_after_the_next_opening(folder, place, at):
    secret = b"the quick brown fox" * 40
    with Log(folder, segment_bytes=10_000) as log:
        for p in range(18):
            log.append([draft("rows", secret if p == at else b"%d" % (p % 10) * 760, 5, key=f"k{p}")])
        assert len(segments(folder)) == 2
    code = "import sys; from stream_dr.log.log import Log; Log(sys.argv[1]).rewrite(int(sys.argv[2]), b'left', 2)"
    assert killed(code, f"{place}=kill", folder, at).returncode == -9
    with Log(folder) as log:
        event = log.read(at - 1, limit=1)[0]
        if place == "log.rewrite":
            assert (event.body, event.rows) == (secret, 5)
            log.rewrite(at, b"left", 2)
            event = log.read(at - 1, limit=1)[0]
        assert (event.body, event.rows, event.key) == (b"left", 2, f"k{at}")
        assert not left_of(secret, folder)
        log.append(drafts(18, 3))
        log.verify()


def test_a_body_is_not_overwritten_under_a_reader(folder):
    with Log(folder) as log:
        log.append(drafts(7, 2))
        old = log.read(-1, limit=1)[0]
        with log._segments[-1]._pool.connection() as connection, one_view(connection):
            row = connection.execute("SELECT start FROM events WHERE position=0").fetchone()
            writer = threading.Thread(target=log.rewrite, args=(0, b"new", 1))
            writer.start()
            time.sleep(0.3)
            if row[0] is not None:
                assert bodies_path(log._segments[-1].path).read_bytes()[row[0] :].startswith(old.body)
        writer.join()
        log.erase()
        assert log.read(-1, limit=1)[0].body == b"new"
        assert not left_of(old.body, folder)
        log.verify()


def test_a_reader_that_does_not_end_holds_up_no_append_for_long(folder):
    with Log(folder) as log:
        log.append(drafts(0, 40))
        with log._segments[-1]._pool.connection() as connection, one_view(connection):
            connection.execute("SELECT start FROM events WHERE position=0").fetchone()
            for position in range(30):
                log.rewrite(position, b"new", 1, erase=False)
            begun = time.monotonic()
            log.erase()
            log.append(drafts(40, 1))
            assert time.monotonic() - begun < 5
            assert left_of(bytes([3]) * 12, folder)
        log.erase()
        assert not left_of(bytes([3]) * 12, folder)


def test_an_erasure_that_a_reader_prevents_is_made_up_for(folder, monkeypatch):
    with Log(folder) as log:
        log.append(drafts(1, 2))
        monkeypatch.setattr(erasures, "_emptied", lambda connection: False)
        log.rewrite(0, b"new", 1)
        assert left_of(bytes([1]) * 12, folder)
    monkeypatch.undo()
    with Log(folder) as log:
        assert log.read(-1, limit=1)[0].body == b"new"
        assert not left_of(bytes([1]) * 12, folder)
        log.verify()


def test_a_rewrite_at_the_end_and_a_failed_append_after_it_spoil_nothing(folder):
    with Log(folder) as log:
        log.append(drafts(0, 3))
        log.rewrite(2, b"", 0)
        with armed("log.before_commit=raise"), pytest.raises(FailpointReached):
            log.append(drafts(3, 1))
        log.append(drafts(3, 2))
        log.verify()
    with Log(folder) as log:
        assert [e.body for e in log.read(-1)] == [d.body for d in drafts(0, 2)] + [b""] + [d.body for d in drafts(3, 2)]
        log.verify()


def test_a_reader_of_what_a_kill_left_half_written_says_who_ends_it(folder):
    with Log(folder, segment_events=2) as log:
        for p in range(4):
            log.append([draft("rows", b"%d" % p * 3_000_000, 5)])
        log.rewrite(0, b"1" * 3_000_000, 5)
    code = "import sys; from stream_dr.log.log import Log; Log(sys.argv[1]).rewrite(0, b'x' * 3000000, 2)"
    assert killed(code, "log.rewrite=kill", folder).returncode == -9
    if not list(folder.glob("*.sqlite-journal")):
        pytest.skip("nothing was written before the kill")
    with pytest.raises(DamagedFile, match="next opened for writing"):
        Log(folder, writable=False).read(-1)
    with Log(folder) as log:
        assert len(log.read(-1)) == 4
        log.verify()
    assert len(Log(folder, writable=False).read(-1)) == 4

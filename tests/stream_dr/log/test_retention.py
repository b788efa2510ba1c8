"""Old events leave the disk while others append: in short transactions, with their space, whatever dies meanwhile."""

import threading
import time

import pytest

from stream_dr.log.log import Log
from tests.support.logs import bodies, draft, drafts, killed

EVENTS, SIZE = 16_000, 4_000
ALLOWED = {"wal": 8 << 20, "file": EVENTS * SIZE // 4, "waited": 0.2}
"""What dropping nine in ten of them may cost: bytes of WAL, bytes of the file afterwards, and the part of its time that one
append waits.

Dropped in one transaction they cost 16 MiB of WAL, and an append waits half of the time.
"""


def large(folder):
    log = Log(folder)
    for start in range(0, EVENTS, 1000):
        log.append([draft("reference", b"%d" % p * (SIZE // 5), 3) for p in range(start, start + 1000)])
    return log


def watched(log, drop):
    """What it cost to call `drop` while others append."""
    ended = threading.Event()

    def dropping():
        drop()
        ended.set()

    path, found = log.path / "index.sqlite", {"wal": 0, "file": 0, "waited": 0.0}
    thread = threading.Thread(target=dropping)
    started = time.monotonic()
    thread.start()
    while not ended.is_set():
        begun = time.monotonic()
        log.append([draft("rows", b"meanwhile", 1)])
        found["waited"] = max(found["waited"], time.monotonic() - begun)
        found["wal"] = max(found["wal"], path.with_name("index.sqlite-wal").stat().st_size)
    thread.join()
    found["waited"] /= time.monotonic() - started
    found["file"] = path.stat().st_size
    return found


@pytest.mark.every_run
def test_dropping_much_holds_nobody_up_and_gives_the_space_back(folder):
    with large(folder) as log:
        before = (folder / "index.sqlite").stat().st_size
        found = watched(log, lambda: log.drop_events_before(EVENTS * 9 // 10))
        print(found)
        assert before > EVENTS * SIZE
        assert found["wal"] < ALLOWED["wal"]
        assert found["file"] < ALLOWED["file"]
        assert found["waited"] < ALLOWED["waited"]
        assert log.rows_appended == 3 * EVENTS + log.last + 1 - EVENTS
        log.verify()


@pytest.mark.every_run
@pytest.mark.parametrize("times", [1, 2, 5])
def test_killed_while_dropping_the_rest_is_whole_and_dropped_later(folder, times):
    code = (
        "import sys; from stream_dr.log.log import Log; from tests.support.logs import draft\n"
        "log = Log(sys.argv[1], max_file_bytes=300_000)\n"
        "for p in range(400):\n"
        "    log.append([draft('rows', b'%3d' % p * (30_000 if p % 4 == 0 else 300), 1, key=f'k{p}', schema=str(p))])\n"
        "log.drop_events_before(350)"
    )
    assert killed(code, f"log.drop=kill@{times}", folder).returncode == -9
    with Log(folder, max_file_bytes=300_000) as log:
        assert log.first == 64 * (times - 1)
        assert [int(e.body[:3]) for e in log.read(log.first - 1, limit=1000)] == list(range(log.first, 400))
        log.verify()
        assert log.drop_events_before(350) == 350 - 64 * (times - 1)
        assert log.first == 350
        assert len(bodies(folder)) < 10
        assert (log.rows_appended, log.find_key("k3").position, len(log.schema_changes())) == (400, 3, 400)
        log.verify()


def test_a_log_that_is_closed_drops_no_more(folder):
    with Log(folder) as log:
        log.append(drafts(0, 500))
        log.hide_events_before(400)
    assert log.drop_events_before(400) == 0
    with Log(folder) as log:
        assert log.first == 0

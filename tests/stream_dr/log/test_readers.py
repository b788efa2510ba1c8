"""Readers, of other threads and other processes, see whole groups while the log is written."""

import gc
import os
import subprocess
import sys
import threading

import pytest

from stream_dr import errors
from stream_dr.log.log import Log
from stream_dr.log.sqlite_file import JOURNAL_BYTES
from tests.support.logs import drafts, filled
from tests.support.waiting import wait_until


def test_readers_in_other_threads_see_only_whole_groups(folder):
    failed = []

    def follow(log, end):
        after = -1
        try:
            while after < end:
                events = log.read(after, limit=7)
                assert [e.position for e in events] == list(range(after + 1, after + 1 + len(events)))
                after += len(events)
                wait_until(lambda: after >= end or log.last > after)  # noqa: B023
        except BaseException as e:
            failed.append(e)

    with Log(folder, max_file_bytes=40_000) as log:
        threads = [threading.Thread(target=follow, args=(log, 399)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for start in range(0, 400, 10):
            log.append(drafts(start, 10))
        for thread in threads:
            thread.join()
        assert not failed


def test_appends_from_several_threads_have_positions_of_their_own(folder):
    positions = []
    with Log(folder, max_file_bytes=40_000) as log:

        def add():
            for p in range(30):
                positions.extend(log.append(drafts(p, 2)))

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(positions) == list(range(240))
        assert log.verify().events == 240


def test_a_reader_does_not_hold_the_wal(folder):
    with Log(folder) as log:
        for start in range(0, 400, 4):
            log.append(drafts(start, 4, size=100_000))
            log.read(max(-1, log.last - 50), limit=10)
        assert (folder / "index.sqlite-wal").stat().st_size < 2 * JOURNAL_BYTES


def test_a_read_only_log_follows_the_writer(folder):
    with pytest.raises(errors.DirectoryMissing):
        Log(folder, writable=False)
    with filled(folder) as log, Log(folder, writable=False) as reader:
        assert (reader.last, reader.first, reader.rows_appended) == (49, 0, 150)
        log.append(drafts(50, 10))
        assert (reader.last, reader.rows_appended) == (59, 180)
        log.drop_events_before(30)
        assert reader.first == 30
        assert [e.position for e in reader.read(44, limit=1000)] == list(range(45, 60))
        assert reader.find_key("k45").position == 45
        assert reader.schema_changes() == []


@pytest.mark.test_all
def test_a_reader_in_another_process_follows_a_writer_that_rolls_and_drops(folder):
    code = (
        "import sys; from stream_dr.log.log import Log\n"
        "from stream_dr.errors import HistoryGone\n"
        "log, after = Log(sys.argv[1], writable=False), -1\n"
        "print('ready', flush=True)\n"
        "while after < 599:\n"
        "    try:\n"
        "        found = log.read(after, limit=7)\n"
        "    except HistoryGone:\n"
        "        after = log.first - 1\n"
        "        continue\n"
        "    for e in found:\n"
        "        assert e.position == after + 1 and e.body == bytes([e.position % 256]) * 1000, e.position\n"
        "        after = e.position\n"
    )
    with Log(folder, max_file_bytes=40_000) as log:
        log.append(drafts(0, 3))
        with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE) as reader:
            reader.stdout.readline()
            for start in range(3, 600, 3):
                log.append(drafts(start, 3))
                log.drop_events_before(log.last - 150)
            assert reader.wait(60) == 0


def test_a_read_only_log_changes_no_file(folder):
    filled(folder).close()
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with Log(folder, writable=False) as reader:
        assert reader.verify().events == 50
    assert {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith(("-shm", "-wal"))} == before


def descriptors():
    gc.collect()  # what other tests have left is no part of the count
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.test_all
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="this system does not list a process's descriptors")
@pytest.mark.parametrize("writable", [True, False])
def test_however_long_the_log_is_few_files_stay_open(folder, writable):
    before = descriptors()
    with filled(folder, 200) as log:
        assert descriptors() - before < 12
    with Log(folder, writable=writable) as log:
        assert log.position_before_newest(100) > 0
        assert log.read_events_of_kind("unlearn", 200) == log.read_undamaged_events("unlearn") == []
        assert [len(log.read(at, limit=5)) for at in range(-1, 195, 5)] == [5] * 40
        log.verify()
        assert descriptors() - before < 12
    assert descriptors() <= before

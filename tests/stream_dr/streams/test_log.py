"""The log gives back what was appended, in order, after any crash; it says what is wrong with a file and which one."""

import hashlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import log_kill
from stream_dr import errors
from stream_dr.streams import erasures, segment
from stream_dr.streams.bodies import BEGIN, bodies_path
from stream_dr.streams.failpoints import FailpointReached, armed
from stream_dr.streams.log import EventDraft, Log, draft
from stream_dr.streams.sqlite_file import JOURNAL_BYTES, one_view


@pytest.fixture(autouse=True, scope="module", params=["in rows", "in a file"])
def _bodies(request):
    """Everything twice: bodies in their rows, and in the file beside."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in a file":
            patch.setattr(segment, "SMALL_BYTES", -1)
        yield


def drafts(start, count, size=1000):
    return [draft("rows", bytes([p % 256]) * size, 3, key=f"k{p}") for p in range(start, start + count)]


def segments(folder):
    return sorted(p for p in folder.iterdir() if p.name[0] == "0" and p.suffix == ".sqlite")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "log"


def filled(folder, count=50, **options):
    log = Log(folder, **{"segment_bytes": 10_000, **options})
    for start in range(0, count, 5):
        log.append(drafts(start, 5))
    return log


def test_an_empty_log(folder):
    with Log(folder) as log:
        assert (log.last, log.first, log.rows) == (-1, 0, 0)
        assert log.read(-1) == []
        assert log.find_key("k") is None
        assert log.schema_changes() == []
        assert log.append([]) == []
        assert log.verify().events == 0


def test_what_is_appended_is_read_in_order(folder):
    with filled(folder) as log:
        events = log.read(-1, limit=1000)
        assert [e.position for e in events] == list(range(50))
        assert [e.body for e in events] == [d.body for d in drafts(0, 50)]
        assert (log.last, log.rows) == (49, 150)
        assert len(segments(folder)) == 5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(-1, 60), st.none() | st.integers(-1, 60), st.integers(1, 60), st.integers(1, 60_000))
def test_a_read_is_a_prefix_of_what_was_asked_for(shared, after, until, limit, max_bytes):
    events = shared.read(after, until, limit, max_bytes)
    end = min(49 if until is None else until, 49)
    wanted = list(range(after + 1, end + 1))[:limit]
    got = [e.position for e in events]
    assert got == wanted[: len(got)]
    enough = sum(len(e.body) for e in events) >= max_bytes
    assert got == wanted or enough
    assert len(got) <= max(1, -(-max_bytes // 1000))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("shared") / "log") as log:
        yield log


def test_all_fields_come_back(folder):
    given = EventDraft("reference", "key", "ab" * 32, 7, b"\x00\xffbody", '{"labels": ["é"]}')
    with Log(folder) as log:
        log.append([given])
        (event,) = log.read(-1)
        assert tuple(event)[1:7] == tuple(given)[:6]
        assert event.checksum == hashlib.sha256(given.body).hexdigest()
        log.verify()


def test_it_goes_on_after_being_opened_again(folder):
    filled(folder, 23 * 5).close()
    with Log(folder, segment_bytes=10_000) as log:
        assert (log.last, log.rows) == (114, 345)
        assert log.append(drafts(115, 2)) == [115, 116]
        assert [e.position for e in log.read(90, limit=100)] == list(range(91, 117))
        log.verify()


def test_keys_are_found_before_and_after_opening_again(folder):
    with filled(folder) as log:
        assert log.find_key("k7") == (7, hashlib.sha256(b"\x07" * 1000).hexdigest(), 3)
        assert log.find_key("nobody") is None
    (folder / "index.sqlite").unlink()
    with Log(folder) as log:
        assert log.find_key("k49").position == 49


def test_only_the_last_keys_are_remembered(folder):
    with filled(folder, keys=10) as log:
        log.append(drafts(50, 1))
    with Log(folder, keys=10) as log:
        assert log.find_key("k40") is None
        assert [log.find_key(f"k{p}").position for p in range(41, 51)] == list(range(41, 51))


def test_a_key_forgotten_may_be_used_again(folder):
    with filled(folder, keys=10):
        pass
    with Log(folder, keys=10) as log:
        log.append(drafts(3, 1))
        assert log.find_key("k3").position == 50


def test_schema_changes_outlive_their_events(folder):
    with filled(folder) as log:
        log.append([draft("rows", b"x", 1, schema='{"n": 1}')])
        for start in range(51, 91, 5):
            log.append(drafts(start, 5))
        log.append([draft("rows", b"y", 1, schema='{"n": 2}')])
        assert log.drop_before(log.last) > 0
        assert log.first > 50
        assert log.schema_changes() == ['{"n": 1}', '{"n": 2}']
    with Log(folder) as log:
        assert log.schema_changes() == ['{"n": 1}', '{"n": 2}']


def test_whole_segments_are_dropped_and_never_one_too_many(folder):
    with filled(folder) as log:
        assert log.drop_before(0) == 0
        assert log.drop_before(19) == 1
        assert (log.first, len(segments(folder))) == (10, 4)
        assert [e.position for e in log.read(9, limit=1000)] == list(range(10, 50))
        with pytest.raises(errors.HistoryGone, match=r"0 … 9 were dropped; the log begins at 10"):
            log.read(-1)
        assert log.drop_before(10**9) == 3
        assert (log.first, log.last, log.rows) == (40, 49, 150)
        assert log.find_key("k3").position == 3
    with Log(folder) as log:
        assert (log.first, log.last, log.rows) == (40, 49, 150)
        assert log.find_key("k3").position == 3
        assert log.append(drafts(50, 1)) == [50]


def test_unlearn_events_are_found_and_count_no_rows(folder):
    with filled(folder) as log:
        log.append([draft("unlearn", b'{"positions": [3]}', 99)])
        log.append(drafts(51, 1))
        assert [e.position for e in log.read_kind("unlearn", 51)] == [50]
        assert log.read_kind("unlearn", 50) == []
        assert log.rows == 153
    with Log(folder) as log:
        assert log.rows == 153


def test_a_rewritten_event_keeps_its_key_and_the_old_bytes_are_gone(folder):
    secret = b"the quick brown fox" * 40
    with Log(folder, segment_bytes=10_000) as log:
        log.append([draft("rows", secret, 5, key="mine")])
        log.append(drafts(1, 15))
        log.append(drafts(16, 1))
        log.rewrite(0, b"", 0)
        event = log.read(-1, limit=1)[0]
        assert (event.body, event.rows, event.key, event.sha256) == (b"", 0, "mine", hashlib.sha256(secret).hexdigest())
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
    code = "import sys; from stream_dr.streams.log import Log; Log(sys.argv[1]).rewrite(int(sys.argv[2]), b'left', 2)"
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
        assert log.read(-1, limit=1)[0].body == b"new"
        assert not left_of(old.body, folder)
        log.verify()


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
        monkeypatch.setattr("stream_dr.streams.key_index._FLUSH", 2)
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
        with Log(small / "log", segment_bytes=500_000) as log:
            for start in range(100):
                try:
                    log.append(drafts(start, 1, size=90_000))
                except errors.InsufficientStorage:
                    break
            last = log.last
            assert 10 < last < 50
            assert [e.position for e in log.read(-1, limit=1000)] == list(range(last + 1))
            log.drop_before(last)
            assert log.append(drafts(last + 1, 1, size=90_000)) == [last + 1]
        with Log(small / "log") as log:
            assert log.last == last + 1
            log.verify()
    finally:
        subprocess.run(["umount", small], check=True)


def killed(code, place, *arguments):
    """A Python process with a failpoint armed, ended."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "STREAM_DR_FAILPOINTS": place},
        capture_output=True,
        text=True,
        check=False,
    )


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
        "import sys; from stream_dr.streams.log import Log, draft\n"
        f"from stream_dr.streams import segment; segment.SMALL_BYTES = {segment.SMALL_BYTES}\n"
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


def test_readers_in_other_threads_see_only_whole_groups(folder):
    failed = []

    def follow(log, end):
        after = -1
        try:
            while after < end:
                events = log.read(after, limit=7)
                assert [e.position for e in events] == list(range(after + 1, after + 1 + len(events)))
                after += len(events)
                time.sleep(0.002)
        except BaseException as e:
            failed.append(e)

    with Log(folder, segment_events=40) as log:
        threads = [threading.Thread(target=follow, args=(log, 399)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for start in range(0, 400, 10):
            log.append(drafts(start, 10))
        for thread in threads:
            thread.join()
        assert not failed
        log.append(drafts(400, 40))
        assert [p.name for p in folder.glob("0*-wal")] == [log._segments[-1].journal.name]


def test_appends_from_several_threads_have_positions_of_their_own(folder):
    positions = []
    with Log(folder, segment_events=40) as log:

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
        assert log._segments[-1].journal.stat().st_size < 2 * JOURNAL_BYTES


def test_a_read_only_log_follows_the_writer(folder):
    with pytest.raises(errors.DirectoryMissing):
        Log(folder, writable=False)
    with filled(folder) as log, Log(folder, writable=False) as reader:
        assert (reader.last, reader.first, reader.rows) == (49, 0, 150)
        log.append(drafts(50, 10))
        assert (reader.last, reader.rows) == (59, 180)
        log.drop_before(30)
        assert reader.first == 30
        assert [e.position for e in reader.read(44, limit=1000)] == list(range(45, 60))
        assert reader.find_key("k45").position == 45
        assert reader.schema_changes() == []


def test_a_reader_in_another_process_follows_a_writer_that_rolls_and_drops(folder):
    code = (
        "import sys; from stream_dr.streams.log import Log\n"
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
    with Log(folder, segment_events=40) as log:
        log.append(drafts(0, 3))
        with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE) as reader:
            reader.stdout.readline()
            for start in range(3, 600, 3):
                log.append(drafts(start, 3))
                log.drop_before(log.last - 150)
            assert reader.wait(60) == 0


def test_a_read_only_log_changes_no_file(folder):
    filled(folder).close()
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with Log(folder, writable=False) as reader:
        assert reader.verify().events == 50
    assert {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith(("-shm", "-wal"))} == before


def flip(path, at):
    body = bytearray(path.read_bytes())
    body[at] ^= 0x55
    path.write_bytes(body)


def test_a_flipped_byte_in_a_body_is_found_by_verify(folder):
    filled(folder).close()
    path = segments(folder)[2]
    held = next(p for p in (path, bodies_path(path)) if b"\x16" * 900 in p.read_bytes())
    flip(held, held.read_bytes().index(b"\x16" * 900) + 400)
    with Log(folder) as log, pytest.raises(errors.DamagedFile, match=f"{path.name}.*event 22"):
        log.verify()


@pytest.mark.parametrize("change", ["truncated", "page", "empty"])
def test_a_damaged_file_is_named(folder, change):
    filled(folder).close()
    path = segments(folder)[2]
    size = path.stat().st_size
    if change == "page":
        body = bytearray(path.read_bytes())
        body[4096:] = os.urandom(size - 4096)
        path.write_bytes(body)
    else:
        os.truncate(path, size // 2 if change == "truncated" else 0)
    with Log(folder) as log:
        with pytest.raises(errors.DamagedFile, match=path.name):
            log.verify()
        with pytest.raises(errors.DamagedFile, match=path.name):
            log.read(15, limit=1000)
        assert [e.position for e in log.read(29, limit=1000)] == list(range(30, 50))


@pytest.mark.parametrize("at", [2, 4], ids=["sealed", "last segment"])
@pytest.mark.parametrize("change", ["truncated", "missing", "another's", "not ours"])
def test_damaged_bodies_are_named(folder, change, at):
    filled(folder).close()
    path = bodies_path(segments(folder)[at])
    error = errors.ForeignFile if change in ("another's", "not ours") else errors.DamagedFile
    if change == "truncated":
        os.truncate(path, path.stat().st_size - 1 if segment.SMALL_BYTES < 0 else BEGIN - 1)
    elif change == "missing":
        path.unlink()
    else:
        path.write_bytes(bodies_path(segments(folder)[1]).read_bytes() if change == "another's" else b"a letter" * 99)
    with Log(folder, writable=False) as reader, pytest.raises(error, match=path.name):
        reader.verify()
    if at == 4:
        with pytest.raises(error, match=path.name):
            Log(folder)
        return
    with Log(folder) as log:
        if segment.SMALL_BYTES < 0:
            with pytest.raises(error, match=path.name):
                log.read(15, limit=1000)
        assert [e.position for e in log.read(29, limit=1000)] == list(range(30, 50))


def test_a_missing_segment_is_noticed(folder):
    filled(folder).close()
    segments(folder)[2].unlink()
    with Log(folder) as log:
        with pytest.raises(errors.DamagedFile, match="position 20 is missing"):
            log.read(15, limit=1000)
        with pytest.raises(errors.DamagedFile, match="position 20 is missing"):
            log.verify()


def test_a_missing_position_is_noticed(folder):
    filled(folder).close()
    with sqlite3.connect(segments(folder)[1]) as connection:
        connection.execute("DELETE FROM events WHERE position = 14")
    connection.close()
    with Log(folder) as log:
        for look in (log.verify, lambda: log.read(9, limit=100)):
            with pytest.raises(errors.DamagedFile, match="position 14 is missing"):
                look()


def test_a_lost_index_is_missed_only_when_events_were_dropped(folder):
    with filled(folder) as log:
        log.drop_before(20)
    (folder / "index.sqlite").unlink()
    with pytest.raises(errors.DamagedFile, match=r"index\.sqlite"):
        Log(folder)


def test_what_is_readable_of_a_kind_is_read(folder):
    with Log(folder) as log:
        log.append([draft("reference", b"%d" % p, 1, key=f"k{p}") for p in range(5)])
    with sqlite3.connect(segments(folder)[0]) as connection:
        connection.execute("UPDATE events SET rows=7 WHERE position=3")
    connection.close()
    with Log(folder) as log:
        with pytest.raises(errors.DamagedFile, match="header of event 3"):
            log.read_kind("reference", 5)
        assert [e.body for e in log.read_readable("reference")] == [b"0", b"1", b"2", b"4"]
        assert log.read_readable("unlearn") == []


def test_holding_is_where_the_last_rows_begin(folder):
    with filled(folder) as log:
        assert [log.holding(rows) for rows in (0, 1, 30, 31, 60, 150, 151, 10**9)] == [40, 40, 40, 30, 30, 0, 0, 0]
        log.drop_before(20)
        assert log.holding(10**9) == 20

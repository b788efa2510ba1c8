"""What is wrong with a file of the log is said, and with which one; the rest stays readable."""

import os
import random
import shutil
import sqlite3
from contextlib import closing, suppress

import pytest

from stream_dr import errors
from stream_dr.log.bodies import BEGIN
from stream_dr.log.head import HeadFile
from stream_dr.log.log import Log
from tests.support.logs import bodies, draft, filled


def flip(path, at):
    body = bytearray(path.read_bytes())
    body[at] ^= 0x55
    path.write_bytes(body)


def test_a_flipped_byte_in_a_body_is_found_by_verify(folder):
    filled(folder).close()
    held = next(p for p in folder.iterdir() if b"\x16" * 900 in p.read_bytes())
    flip(held, held.read_bytes().index(b"\x16" * 900) + 400)
    with Log(folder) as log, pytest.raises(errors.DamagedFile, match=f"{held.name}.*event 22"):
        log.verify()


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_body_is_verified_by_its_digest(folder, rewritten):
    body = b"\x16" * 1000
    with Log(folder) as log:
        log.append([draft("rows", body[::2] if rewritten else body, 3)])
        if rewritten:
            log.rewrite(0, body, 3)
        assert log.verify().events == 1
    held = next(p for p in folder.iterdir() if body in p.read_bytes())
    flip(held, held.read_bytes().index(body) + 400)
    with Log(folder) as log, pytest.raises(errors.DamagedFile, match="event 0"):
        log.verify()


@pytest.mark.parametrize("change", ["truncated", "pages", "a length", "empty"])
def test_a_damaged_index_is_named(folder, change):
    filled(folder).close()
    path = folder / "index.sqlite"
    size = path.stat().st_size
    if change in ("pages", "a length"):  # the second leaves a string that SQLite says is too big
        begin, seed = (8192, 0) if change == "pages" else (9070, 5091)
        path.write_bytes(path.read_bytes()[:begin] + random.Random(seed).randbytes(size - begin))
    else:
        os.truncate(path, size // 2 if change == "truncated" else 0)
    for writable in (True, False):
        with pytest.raises(errors.DamagedFile, match=path.name), Log(folder, writable) as log:
            log.verify()
    with pytest.raises(errors.DamagedFile, match=path.name), Log(folder, writable=False) as log:
        log.read(-1, limit=1000)


@pytest.mark.parametrize("at", [2, 4], ids=["an older one", "the last one"])
@pytest.mark.parametrize("change", ["truncated", "missing", "another's", "not ours"])
def test_damaged_bodies_are_named(folder, change, at):
    filled(folder).close()
    path = bodies(folder)[at]
    error = errors.ForeignFile if change in ("another's", "not ours") else errors.DamagedFile
    if change == "truncated":
        os.truncate(path, path.stat().st_size - 1 if at == 4 else BEGIN - 1)
    elif change == "missing":
        path.unlink()
    else:
        path.write_bytes(bodies(folder)[1].read_bytes() if change == "another's" else b"a letter" * 99)
    with Log(folder, writable=False) as reader, pytest.raises(error, match=path.name):
        reader.verify()
    with pytest.raises(error, match=path.name):
        Log(folder)
    with Log(folder, writable=False) as log:
        with pytest.raises(error, match=path.name):
            log.read(10 * at - 1, limit=1000)
        assert [e.position for e in log.read(-1, until=10 * at - 1, limit=1000)] == list(range(10 * at))


def left_by_a_kill(folder, copy):
    """The files of a log as a kill leaves them."""
    with Log(folder) as log:
        for p in range(3):
            log.append([draft("rows", bytes([p]) * 300, 3, key=f"k{p}")])
        shutil.copytree(folder, copy)
    return copy


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "index gone"])
def test_a_log_that_lost_its_end_is_no_shorter_log(folder, tmp_path, damage):
    """SQLite takes a damaged WAL for one that a crash cut short, and says nothing."""
    copy = left_by_a_kill(folder, tmp_path / "copy")
    path = copy / "index.sqlite"
    wal = path.with_name(path.name + "-wal")
    if damage == "flipped":
        flip(wal, 100)
    elif damage == "cut":
        os.truncate(wal, wal.stat().st_size // 2)
    else:
        (wal if damage == "gone" else path).unlink()
    before = [p.read_bytes() for p in bodies(copy)]
    for _ in range(3):
        with pytest.raises(errors.DamagedFile, match="position 2 was acknowledged: the log has lost its end"):
            Log(copy)
        assert [p.read_bytes() for p in bodies(copy)] == before
    with pytest.raises(errors.DamagedFile, match="has lost its end"), Log(copy, writable=False) as reader:
        reader.verify()
    (copy / "head").unlink()
    if damage == "index gone":
        with pytest.raises(errors.DamagedFile, match="is missing"):
            Log(copy)
        bodies(copy)[0].unlink()
    with Log(copy) as log:
        end = log.append([draft("rows", b"new", 1, key="k2")])[0]
        assert end < 3
        assert log.find_key("k2").position == end
        log.verify()


@pytest.mark.parametrize("head", ["as it was", "gone", "cut", "of before", "garbled"])
def test_a_log_that_a_kill_left_opens_whatever_became_of_the_note_of_its_end(folder, tmp_path, head):
    copy = left_by_a_kill(folder, tmp_path / "copy")
    note = copy / "head"
    whole = note.read_bytes()
    if head == "gone":
        note.unlink()
    elif head == "cut":
        note.write_bytes(whole[:5])
    elif head == "of before":
        HeadFile(copy, writable=True).try_write_acknowledged(1)
    elif head == "garbled":
        note.write_bytes(bytes(reversed(whole)))
    with Log(copy) as log:
        assert log.last == 2
        log.append([draft("rows", b"new", 1)])
    assert HeadFile(copy, writable=True).read_acknowledged_position() == 3


def test_a_missing_position_is_noticed(folder):
    filled(folder).close()
    with sqlite3.connect(folder / "index.sqlite") as connection:
        connection.execute("DELETE FROM events WHERE position = 14")
    connection.close()
    with Log(folder) as log:
        for look in (log.verify, lambda: log.read(9, limit=100), lambda: log.read(13, 14)):
            with pytest.raises(errors.DamagedFile, match="position 14 is missing"):
                look()


def test_what_is_readable_of_a_kind_is_read(folder):
    with Log(folder) as log:
        log.append([draft("reference", b"%d" % p, 1, key=f"k{p}") for p in range(5)])
    with sqlite3.connect(folder / "index.sqlite") as connection:
        connection.execute("UPDATE events SET rows=7 WHERE position=3")
    connection.close()
    with Log(folder) as log:
        with pytest.raises(errors.DamagedFile, match="entry of 3"):
            log.read_events_of_kind("reference", 5)
        assert [e.body for e in log.read_undamaged_events("reference")] == [b"0", b"1", b"2", b"4"]
        assert log.read_undamaged_events("unlearn") == []


@pytest.mark.every_run
def test_no_key_is_taken_for_new_where_512_bytes_of_the_index_are_zeros(folder):
    keys = [f"key {p}" for p in range(150)]
    with Log(folder) as log:
        for key in random.Random(2).sample(keys, len(keys)):
            log.append([draft("rows", b"x", 1, key=key)])
    path = folder / "index.sqlite"
    whole, found = path.read_bytes(), 0
    for at in range(0, len(whole), 512):
        path.write_bytes(whole[:at] + bytes(512) + whole[at + 512 :])
        with suppress(errors.StreamDRError), Log(folder, writable=False) as log:
            for key in keys:
                try:
                    assert log.find_key(key) is not None, (at, key)
                except errors.DamagedFile:
                    found += 1
    assert found > 150


def small(positions):
    return [draft("unlearn", b"", 1, key=f"key-{p}") for p in positions]


@pytest.mark.parametrize("torn", [True, False])
def test_an_index_copied_at_two_moments_is_named_when_it_is_opened(folder, tmp_path, torn):
    """What `cp -r` takes of a log that is written to: SQLite believes a WAL that its file is too old for."""
    copy = tmp_path / "copy"
    with Log(folder) as log:
        log.append(small(range(5_000)))
        shutil.copytree(folder, copy)
        for begin in range(5_000, 7_000, 10):
            log.append(small(range(begin, begin + 10)))
        for file in folder.iterdir():
            if not torn or file.name != "index.sqlite":
                shutil.copy(file, copy)
    if not torn:
        with Log(copy) as opened:
            assert opened.append(small([7_000])) == [7_000]
        return
    for _ in range(2):
        with pytest.raises(errors.DamagedFile, match=r"index\.sqlite"):
            Log(copy)


@pytest.mark.parametrize("table", ["keys", "schemas"])
def test_what_a_copy_lacks_is_named_when_it_is_opened(folder, tmp_path, table):
    with Log(folder) as log:
        log.append([draft("rows", b"x", 1, key=f"k{p}", schema=f'"{p}"') for p in range(9)])
    shutil.copytree(folder, tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy" / "index.sqlite")) as index, index:
        index.execute(f"DELETE FROM {table} WHERE position = 5")
    with pytest.raises(errors.DamagedFile, match=r"is missing"):
        Log(tmp_path / "copy")


def test_a_folder_in_the_place_of_a_file_is_named(folder):
    filled(folder).close()
    for path in (bodies(folder)[0], folder / "index.sqlite"):
        content = path.read_bytes()
        path.unlink()
        path.mkdir()
        for writable in (True, False):
            with pytest.raises(errors.DamagedFile, match=path.name), Log(folder, writable) as log:
                log.verify()
        path.rmdir()
        path.write_bytes(content)


@pytest.mark.parametrize("writable", [True, False])
def test_a_folder_in_the_place_of_what_sqlite_keeps_beside_its_file_is_named(folder, writable):
    filled(folder).close()
    (folder / "index.sqlite-wal").mkdir()
    with pytest.raises(errors.DamagedFile, match="sqlite-wal is no file"), Log(folder, writable) as log:
        log.verify()
    (folder / "index.sqlite-wal").rmdir()
    (folder / "index.sqlite-shm").mkdir()
    with pytest.raises(errors.DamagedFile, match="sqlite-shm is no file"), Log(folder) as log:
        log.append([draft("rows", b"x", 1)])


def test_a_damaged_number_of_a_key_stops_no_append_and_is_told_by_verify(folder):
    filled(folder).close()
    with closing(sqlite3.connect(folder / "index.sqlite")) as index, index:
        index.execute("UPDATE keys SET number = 'x' WHERE key = 'k7'")
    with Log(folder) as log:
        (position,) = log.append([draft("rows", b"x", 1, key="new")])
        assert log.find_key("new").position == position
        with pytest.raises(errors.DamagedFile, match="'k7'"):
            log.verify()

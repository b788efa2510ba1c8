"""The index of keys finds the last of them by count, outlives its process, and loses nothing it has not told."""

import sqlite3
import time
from contextlib import closing

import pytest

from stream_dr.errors import DamagedFile, InsufficientStorage
from stream_dr.log import key_index
from stream_dr.log.key_index import KeyIndex, Known


def fill(index, count, start=0):
    for p in range(start, start + count):
        index.add(p, f"k{p}", "ab" * 32, p % 5, f"s{p}" if p % 10 == 0 else None)


def test_keys_and_schemas_are_found_in_memory_and_on_disk(tmp_path):
    index = KeyIndex(tmp_path, writable=True)
    fill(index, 30)
    for _ in range(2):
        assert index.find("k7") == Known(7, "ab" * 32, 2)
        assert index.find("k30") is None
        assert index.schemas() == ["s0", "s10", "s20"]
        assert index.known == 29
        index.close()
        index = KeyIndex(tmp_path, writable=True)
    index.close()


def test_a_key_keeps_its_first_event(tmp_path):
    index = KeyIndex(tmp_path, writable=True)
    index.add(0, "k", "aa", 1, None)
    index.add(1, "k", "bb", 1, None)
    index.flush()
    index.add(2, "k", "cc", 1, None)
    index.flush()
    assert index.find("k").position == 0
    index.close()


def test_what_was_not_flushed_is_not_claimed(tmp_path, monkeypatch):
    monkeypatch.setattr(key_index, "_FLUSH", 10)
    index = KeyIndex(tmp_path, writable=True)
    fill(index, 8)
    reader = KeyIndex(tmp_path, writable=False)
    assert reader.known == -1
    reader.close()
    fill(index, 100, start=8)
    reader = KeyIndex(tmp_path, writable=False)
    assert 90 < reader.known < 108
    assert reader.find(f"k{reader.known}").position == reader.known
    reader.add(200, "late", "aa", 1, "s200")
    assert reader.find("late").position == 200
    assert reader.schemas()[-1] == "s200"
    reader.close()
    index.close()


def test_the_last_keys_by_count_remain_and_all_schemas(tmp_path):
    index = KeyIndex(tmp_path, writable=True, keys=7)
    fill(index, 50)
    index.flush(durable=True)
    assert [p for p in range(50) if index.find(f"k{p}")] == list(range(43, 50))
    assert index.schemas() == ["s0", "s10", "s20", "s30", "s40"]
    index.close()


def test_references_remain_however_many_keys_come_after_them(tmp_path):
    index = KeyIndex(tmp_path, writable=True, keys=7)
    for p in range(50):
        index.add(p, f"reference:abc:{p}:1" if p < 20 else f"k{p}", "aa", 1, None)
        index.flush()
    assert all(index.find(f"reference:abc:{p}:1").position == p for p in range(20))
    assert [p for p in range(20, 50) if index.find(f"k{p}")] == list(range(43, 50))
    index.close()


def test_a_failed_flush_keeps_everything_for_the_next(tmp_path, monkeypatch):
    index = KeyIndex(tmp_path, writable=True)
    fill(index, 20)

    def full(_):
        raise InsufficientStorage("full")

    with monkeypatch.context() as patch:
        patch.setattr(index, "_write", full)
        index.try_flush()
        with pytest.raises(InsufficientStorage):
            index.flush()
    assert index.find("k3").position == 3
    index.close()
    reader = KeyIndex(tmp_path, writable=False)
    assert reader.known == 19
    reader.close()


def test_a_damaged_index_is_named(tmp_path):
    index = KeyIndex(tmp_path, writable=True)
    fill(index, 2000)
    index.close()
    path = tmp_path / "index.sqlite"
    body = bytearray(path.read_bytes())
    body[4096:] = b"\x5a" * (len(body) - 4096)
    path.write_bytes(body)
    with pytest.raises(DamagedFile, match=r"index\.sqlite"):
        KeyIndex(tmp_path, writable=True)


def test_a_reader_that_stands_still_holds_no_durable_flush_up(tmp_path):
    index = KeyIndex(tmp_path, writable=True)
    fill(index, 10)
    index.flush()
    with closing(sqlite3.connect(index.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM keys").fetchall()
        fill(index, 10, start=10)
        begun = time.monotonic()
        index.flush(durable=True)
        assert time.monotonic() - begun < 10
        assert index.find("k15") == Known(15, "ab" * 32, 0)
        assert reader.execute("SELECT count(*) FROM keys").fetchall() == [(10,)]
    index.close()

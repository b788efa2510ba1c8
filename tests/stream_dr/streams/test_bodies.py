"""The bodies file: whole writes in any number of parts, what is not ours told apart, nothing left of what failed."""

import errno
import os

import pytest

from stream_dr import errors
from stream_dr.streams import bodies as module
from stream_dr.streams.bodies import BEGIN, Bodies, Reader, bodies_path
from stream_dr.streams.failpoints import FailpointReached, armed


@pytest.fixture
def index(tmp_path):
    path = tmp_path / "00.sqlite"
    path.write_bytes(b"")
    return path


@pytest.mark.parametrize("most", [1, 7, 1000, 10**9])
@pytest.mark.parametrize("count", [1, 5, 2500])
def test_a_write_in_any_number_of_parts_is_whole(index, monkeypatch, most, count):
    whole = os.pwritev

    def partly(file, buffers, at):
        buffers = list(buffers)
        assert len(buffers) <= 1024
        return whole(file, [b"".join(buffers)[:most]], at)

    monkeypatch.setattr(os, "pwritev", partly)
    given = [bytes([i % 256]) * (i % 4) for i in range(min(count, 5 * most))]
    bodies = Bodies.create(index)
    bodies.write(given, BEGIN)
    bodies.write([b"end"], BEGIN + sum(map(len, given)))
    assert bodies.path.read_bytes()[BEGIN:] == b"".join([*given, b"end"])


def test_a_read_in_parts_is_whole(index, monkeypatch):
    bodies = Bodies.create(index)
    bodies.write([b"0123456789"], BEGIN)
    bodies.check()
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: whole(file, min(size, BEGIN if at == 0 else 3), at))
    with Reader(bodies) as reader:
        assert reader.read(BEGIN, 10) == b"0123456789"
        assert reader.read(BEGIN + 4, 2) == b"45"
        assert reader.read(BEGIN, 0) == b""
        with pytest.raises(errors.DamagedFile, match=r"00\.bodies.*ends after 42 bytes; 43"):
            reader.read(BEGIN + 1, 10)


@pytest.mark.parametrize("place", ["log.bodies_write", "log.bodies_sync"])
@pytest.mark.parametrize(("action", "error"), [("raise", FailpointReached), ("enospc", errors.InsufficientStorage)])
def test_a_write_that_fails_leaves_the_file_as_it_was(index, place, action, error):
    bodies = Bodies.create(index)
    bodies.write([b"first"], BEGIN)
    with armed(f"{place}={action}"), pytest.raises(error):
        bodies.write([b"second", b"third"], BEGIN + 5)
    assert bodies.path.read_bytes()[BEGIN:] == b"first"
    bodies.write([b"again"], BEGIN + 5)
    assert bodies.path.read_bytes()[BEGIN:] == b"firstagain"


def test_a_disk_that_refuses_a_write_is_told_and_leaves_the_file_as_it_was(index, monkeypatch):
    bodies = Bodies.create(index)

    def refuse(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(errors.InsufficientStorage, match=r"00\.bodies could not be written \(.*Input/output error\)"):
        bodies.write([b"first"], BEGIN)
    assert bodies.path.stat().st_size == BEGIN


def test_a_disk_that_fills_up_within_a_write_is_given_its_room_back(index, monkeypatch):
    whole = os.pwritev

    def half(file, buffers, at):
        if at > BEGIN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(file, [bytes(buffers[0])[:3]], at)

    bodies = Bodies.create(index)
    monkeypatch.setattr(os, "pwritev", half)
    with pytest.raises(errors.InsufficientStorage, match=r"00\.bodies"):
        bodies.write([b"0123456789"], BEGIN)
    assert bodies.path.stat().st_size == BEGIN


def test_what_is_past_the_end_is_cut_and_what_is_short_is_said(index):
    bodies = Bodies.create(index)
    bodies.write([b"0123456789"], BEGIN)
    bodies.cut(BEGIN + 4)
    assert bodies.path.read_bytes()[BEGIN:] == b"0123"
    bodies.cut(BEGIN + 4)
    with pytest.raises(errors.DamagedFile, match=r"00\.bodies"):
        bodies.cut(BEGIN + 5)


def test_erased_ranges_are_zeros_and_nothing_else_is(index, monkeypatch):
    monkeypatch.setattr(module, "_ZEROS", 3)
    bodies = Bodies.create(index)
    bodies.write([b"0123456789"], BEGIN)
    bodies.erase([(BEGIN + 1, 4), (BEGIN + 8, 1), (BEGIN + 9, 0)])
    assert bodies.path.read_bytes()[BEGIN:] == b"0" + bytes(4) + b"567" + bytes(1) + b"9"


def test_foreign_damaged_missing_and_dropped_are_told_apart(index, tmp_path):
    bodies = Bodies.create(index)
    other = Bodies.create(tmp_path / "01.sqlite")
    good = bodies.path.read_bytes()
    for content, error, words in (
        (other.path.read_bytes(), errors.ForeignFile, "another segment"),
        (b"this is a letter, not a file of bodies", errors.ForeignFile, "not written by stream_dr"),
        (good[:20], errors.DamagedFile, "ends after 20 bytes"),
        (b"", errors.DamagedFile, "ends after 0 bytes"),
    ):
        bodies.path.write_bytes(content)
        for use in (bodies.check, lambda: bodies.write([b"x"], BEGIN), lambda: Reader(bodies).read(BEGIN, 0)):
            with pytest.raises(error, match=f"00.bodies.*{words}"):
                use()
        assert bodies.path.read_bytes() == content
    bodies.path.unlink()
    with pytest.raises(errors.DamagedFile, match=r"00\.bodies.*missing"):
        bodies.check()
    index.unlink()
    with pytest.raises(errors.HistoryGone, match=r"00\.bodies"):
        bodies.check()
    assert bodies_path(index) == bodies.path

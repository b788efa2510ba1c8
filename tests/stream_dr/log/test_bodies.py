"""The bodies file: whole writes in any number of parts, what is not ours told apart, nothing left of what failed."""

import errno
import os

import pytest

from stream_dr import errors
from stream_dr.failpoints import FailpointReached, armed
from stream_dr.log import bodies as module
from stream_dr.log.bodies import BEGIN, Bodies, Reader, bodies_path
from stream_dr.log.direct import BLOCK


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
    starts = bodies.write(given, BEGIN)
    end = starts[-1] + len(given[-1])
    starts += bodies.write([b"end"], end)
    with Reader(bodies) as reader:
        pieces = [*given, b"end"]
        assert [reader.read(at, len(piece)) for at, piece in zip(starts, pieces, strict=True)] == pieces
    assert starts[: len(given)] == [BLOCK + sum(map(len, given[:i])) for i in range(len(given))]
    assert starts[-1] == (end + BLOCK - 1) // BLOCK * BLOCK


def test_a_read_in_parts_is_whole(index, monkeypatch):
    bodies = Bodies.create(index)
    (at,) = bodies.write([b"0123456789"], BEGIN)
    bodies.check()
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: whole(file, min(size, 3 if at else BEGIN), at))
    with Reader(bodies) as reader:
        assert reader.read(at, 10) == b"0123456789"
        assert reader.read(at + 4, 2) == b"45"
        assert reader.read(at, 0) == b""
        with pytest.raises(errors.DamagedFile, match=rf"00\.bodies.*ends after {at + 10} bytes; {at + 11}"):
            reader.read(at + 1, 10)


@pytest.mark.parametrize("place", ["log.bodies_write", "log.bodies_sync"])
@pytest.mark.parametrize(("action", "error"), [("raise", FailpointReached), ("enospc", errors.InsufficientStorage)])
def test_a_write_that_fails_leaves_the_file_as_it_was(index, place, action, error):
    bodies = Bodies.create(index)
    (first,) = bodies.write([b"first"], BEGIN)
    before = bodies.path.read_bytes()
    with armed(f"{place}={action}"), pytest.raises(error):
        bodies.write([b"second", b"third"], first + 5)
    assert bodies.path.read_bytes() == before
    (again,) = bodies.write([b"again"], first + 5)
    with Reader(bodies) as reader:
        assert reader.read(first, 5) + reader.read(again, 5) == b"firstagain"


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
        if at > BLOCK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole(file, [bytes(buffers[0])[:3]], at)

    bodies = Bodies.create(index)
    monkeypatch.setattr(os, "pwritev", half)
    with pytest.raises(errors.InsufficientStorage, match=r"00\.bodies"):
        bodies.write([b"0123456789"], BEGIN)
    assert bodies.path.stat().st_size == BEGIN


def test_what_is_past_the_end_is_cut_and_what_is_short_is_said(index):
    bodies = Bodies.create(index)
    (at,) = bodies.write([b"0123456789"], BEGIN)
    bodies.cut(at + 4)
    assert bodies.path.read_bytes()[at:] == b"0123"
    bodies.cut(at + 4)
    with pytest.raises(errors.DamagedFile, match=r"00\.bodies"):
        bodies.cut(at + 5)


def test_erased_ranges_are_zeros_and_nothing_else_is(index, monkeypatch):
    monkeypatch.setattr(module, "_ZEROS", 3)
    bodies = Bodies.create(index)
    (at,) = bodies.write([b"0123456789"], BEGIN)
    bodies.erase([(at + 1, 4), (at + 8, 1), (at + 9, 0)])
    assert bodies.path.read_bytes()[at:] == b"0" + bytes(4) + b"567" + bytes(1) + b"9"


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


def test_a_descriptor_is_kept_for_writing_until_it_is_not_wanted(index, monkeypatch):
    monkeypatch.setattr("stream_dr.log.bodies.LOOK", -1.0)
    bodies = Bodies.create(index)
    (first,) = bodies.write([b"first"], BEGIN)
    bodies.rest()
    good = bodies.path.read_bytes()
    bodies.path.write_bytes(b"this is a letter, not a file of bodies")
    with pytest.raises(errors.ForeignFile):
        bodies.write([b"x"], first + 5)
    bodies.path.write_bytes(good)
    bodies.write([b"second"], first + 5)
    with armed("log.bodies_sync=raise"), pytest.raises(FailpointReached):
        bodies.write([b"third"], first + 5)
    bodies.write([b"third"], first + 5)
    other = index.with_name("other")
    other.write_bytes(good)
    other.replace(bodies.path)
    (at,) = bodies.write([b"fourth"], first + 5)  # into the file that is there now
    with Reader(bodies) as reader:
        assert reader.read(at, 6) == b"fourth"
    bodies.path.unlink()
    with pytest.raises(errors.DamagedFile, match="missing"):
        bodies.write([b"fifth"], first + 5)

"""Writes past the cache put every byte where it belongs, and go through the cache where they must."""

import errno
import fcntl
import mmap
import os

import numpy as np
import pytest

from stream_dr.log import direct
from stream_dr.log.direct import BLOCK, IN_PLACE, STAGE, WORTH


def random_bytes(size, seed=0):
    return np.random.default_rng(seed).bytes(size)


def aligned(content):
    """The bytes in memory that begins at a page."""
    memory = memoryview(mmap.mmap(-1, max(1, len(content))))[: len(content)]
    memory[:] = content
    return memory.toreadonly()


@pytest.fixture
def file(tmp_path):
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@pytest.fixture
def past(file):
    opened = direct.open_past(file)
    if opened < 0:
        pytest.skip("this file system takes no such write")
    yield opened
    os.close(opened)


def written(file, pieces, end, past=None):
    """Write pieces behind `end`; where they begin."""
    starts = direct.offsets([len(piece) for piece in pieces], end)
    own = direct.open_past(file) if past is None else past
    try:
        direct.write(file, own, pieces, starts)
    finally:
        if past is None and own >= 0:
            os.close(own)
    return starts


def check(file, before, pieces, starts):
    """The file holds what was before, the pieces at their places, and zeros everywhere else."""
    content = os.pread(file, os.fstat(file).st_size, 0)
    expected = bytearray(len(content))
    expected[: len(before)] = before
    for piece, start in zip(pieces, starts, strict=True):
        expected[start : start + len(piece)] = piece
    assert content == expected


SIZES = {
    "nothing": [],
    "empty": [0],
    "small": [5, 0, 700],
    "at the bound": [WORTH],
    "whole blocks": [BLOCK * 100],
    "odd": [WORTH + 1, 3, 920_271, 0, 17],
    "small before large": [17, 0, 3, 920_271, IN_PLACE, IN_PLACE - 1, IN_PLACE + 1],
    "many": [70_001] * 200,
    "many small": [3_001] * 3_000,
    "as large as the stage": [STAGE - BLOCK, 1, STAGE - BLOCK + 1, STAGE, STAGE + BLOCK + 1, 300_000],
}


@pytest.mark.parametrize("place", [bytes, aligned], ids=["anywhere", "aligned"])
@pytest.mark.parametrize("end", [0, 32, BLOCK - 1, BLOCK, 3 * BLOCK + 4_000])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_every_byte_is_where_it_belongs(file, sizes, end, place):
    before = random_bytes(end, seed=1)
    os.pwrite(file, before, 0)
    pieces = [place(random_bytes(size, seed=i)) for i, size in enumerate(sizes)]
    starts = written(file, pieces, end)
    check(file, before, pieces, starts)
    last = starts[-1] + sizes[-1] if sizes else end
    check(file, before, [*pieces, b"end"], starts + written(file, [b"end"], last))


def test_a_mixture_of_places_is_written_as_any_other(file):
    sizes = [IN_PLACE, 5, 920_000, 920_000, IN_PLACE + 1, STAGE + 5, 200_000]
    pieces = [(aligned if i % 2 else bytes)(random_bytes(size, seed=i)) for i, size in enumerate(sizes)]
    check(file, b"", pieces, written(file, pieces, 0))


def test_what_is_large_begins_at_a_block_and_what_is_small_behind_what_is_before():
    assert direct.offsets([10, 20, IN_PLACE, 30, IN_PLACE - 1, IN_PLACE], 33) == [
        BLOCK,
        BLOCK + 10,
        2 * BLOCK,
        2 * BLOCK + IN_PLACE,
        2 * BLOCK + IN_PLACE + 30,
        4 * BLOCK + 2 * IN_PLACE - BLOCK,
    ]


def test_the_bytes_between_are_zeros_though_the_stage_held_others(file):
    written(file, [random_bytes(WORTH + 1)], 0)
    pieces = [random_bytes(WORTH + 5, seed=2), random_bytes(IN_PLACE + 7, seed=3)]
    os.ftruncate(file, 0)
    check(file, b"", pieces, written(file, pieces, 0))


def test_writes_one_behind_the_other_leave_each_other_alone(file):
    pieces, starts, end = [], [], 0
    for number in range(12):
        pieces.append(random_bytes(WORTH + 1_237 * number, seed=number))
        starts += written(file, pieces[-1:], end)
        end = starts[-1] + len(pieces[-1])
        os.fdatasync(file)
        check(file, b"", pieces, starts)


@pytest.mark.parametrize("place", [bytes, aligned])
@pytest.mark.parametrize("most", [BLOCK, 10 * BLOCK, 100_000, 1])
def test_a_write_in_parts_is_whole(file, monkeypatch, most, place):
    whole, calls = os.pwritev, []

    def partly(file, buffers, at):
        calls.append(at)
        return whole(file, [b"".join(buffers)[: most if len(calls) < 50 else None]], at)

    monkeypatch.setattr(os, "pwritev", partly)
    pieces = [place(random_bytes(WORTH + 999)), random_bytes(99)]
    check(file, b"", pieces, written(file, pieces, 100))


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
@pytest.mark.parametrize("where", ["open", "write"])
def test_a_file_system_that_takes_no_such_write_gets_a_plain_one(file, past, monkeypatch, where, code):
    whole = os.pwritev

    def no_open(*_):
        raise OSError(code, "no")

    def no_write(to, buffers, at):
        if to == past:
            raise OSError(code, "no")
        return whole(to, buffers, at)

    pieces = [aligned(random_bytes(WORTH + 999)), random_bytes(STAGE)]
    starts = direct.offsets([len(piece) for piece in pieces], 100)
    with monkeypatch.context() as patched:
        if where == "open":
            patched.setattr(os, "open", no_open)
            past = direct.open_past(file)
            assert past == -1
        else:
            patched.setattr(os, "pwritev", no_write)
        assert not direct.write(file, past, pieces, starts)
    check(file, b"", pieces, starts)


def test_other_errors_are_raised(file, past, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        written(file, [random_bytes(2 * WORTH)], 0, past)
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="full"):
        direct.open_past(file)


@pytest.mark.parametrize("place", [bytes, aligned])
def test_all_goes_past_the_cache_and_from_its_place_where_that_is_aligned(file, past, monkeypatch, place):
    calls, whole = [], os.pwritev

    def watched(to, buffers, at):
        calls.append((to, at, [len(buffer) for buffer in buffers]))
        return whole(to, buffers, at)

    monkeypatch.setattr(os, "pwritev", watched)
    pieces = [place(random_bytes(WORTH + 5)), place(random_bytes(500_000))]
    starts = written(file, pieces, 1_000, past)
    if place is bytes:
        assert calls == [(past, BLOCK, [starts[1] - BLOCK + 500_000 // BLOCK * BLOCK + BLOCK])]
    else:
        assert calls == [(past, BLOCK, [WORTH, BLOCK, 500_000 // BLOCK * BLOCK, BLOCK])]


def test_what_went_past_the_cache_is_durable_and_what_did_not_is_not(file, past):
    assert fcntl.fcntl(past, fcntl.F_GETFL) & os.O_DSYNC
    assert not fcntl.fcntl(file, fcntl.F_GETFL) & (os.O_DSYNC | os.O_DIRECT)
    assert os.fstat(past).st_ino == os.fstat(file).st_ino
    large, small = [random_bytes(2 * WORTH)], [random_bytes(100)]
    assert direct.write(file, past, large, [0])
    assert not direct.write(file, past, small, [2 * WORTH])
    assert not direct.write(file, -1, large, [3 * WORTH])
    assert direct.write(file, past, [], [])

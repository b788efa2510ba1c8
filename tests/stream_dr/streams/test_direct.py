"""Writes past the cache leave the same file, byte by byte, and go through the cache where they must."""

import errno
import fcntl
import os

import numpy as np
import pytest

from stream_dr.streams import direct
from stream_dr.streams.direct import BLOCK, STAGE, WORTH


def random_bytes(size, seed=0):
    return np.random.default_rng(seed).bytes(size)


@pytest.fixture
def file(tmp_path):
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


def content(file):
    return os.pread(file, os.fstat(file).st_size, 0)


SIZES = {
    "nothing": [],
    "small": [5, 0, 700],
    "at the bound": [WORTH],
    "whole blocks": [BLOCK * 100],
    "odd": [WORTH + 1, 3, 920_271, 0, 17],
    "many": [70_001] * 200,
    "as large as the stage": [STAGE - BLOCK, 1, STAGE - BLOCK + 1, STAGE, STAGE + BLOCK + 1, 300_000],
}


@pytest.mark.parametrize("start", [0, 32, BLOCK - 1, BLOCK, 3 * BLOCK + 4_000])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_file_is_what_a_plain_write_makes(file, sizes, start):
    before = random_bytes(start, seed=1)
    os.pwrite(file, before, 0)
    pieces = [random_bytes(size, seed=i) for i, size in enumerate(sizes)]
    direct.write(file, pieces, start)
    assert content(file) == before + b"".join(pieces)
    direct.write(file, [b"end"], os.fstat(file).st_size)
    assert content(file) == before + b"".join(pieces) + b"end"


def test_writes_one_behind_the_other_keep_each_others_blocks(file):
    whole, at = b"", 0
    for number in range(12):
        piece = random_bytes(WORTH + 1_237 * number, seed=number)
        direct.write(file, [piece], at)
        os.fdatasync(file)
        whole, at = whole + piece, at + len(piece)
        assert os.pread(file, at, 0) == whole


@pytest.mark.parametrize("most", [BLOCK, 10 * BLOCK, 100_000, 1])
def test_a_write_in_parts_is_whole(file, monkeypatch, most):
    whole, calls = os.pwritev, []

    def partly(file, buffers, at):
        calls.append(at)
        return whole(file, [b"".join(buffers)[: most if len(calls) < 50 else None]], at)

    monkeypatch.setattr(os, "pwritev", partly)
    piece = random_bytes(WORTH + 999)
    direct.write(file, [piece], 100)
    assert content(file)[100:] == piece


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
@pytest.mark.parametrize("where", ["flag", "write"])
def test_a_file_system_that_takes_no_such_write_gets_a_plain_one(file, monkeypatch, where, code):
    set_flags, whole = fcntl.fcntl, os.pwritev

    def no_flag(file, command, *value):
        if where == "flag" and command == fcntl.F_SETFL and value[0] & os.O_DIRECT:
            raise OSError(code, "no")
        return set_flags(file, command, *value)

    def no_write(file, buffers, at):
        if where == "write" and set_flags(file, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(code, "no")
        return whole(file, buffers, at)

    monkeypatch.setattr(fcntl, "fcntl", no_flag)
    monkeypatch.setattr(os, "pwritev", no_write)
    piece = random_bytes(WORTH + 999)
    direct.write(file, [piece], 100)
    assert content(file)[100:] == piece


def test_other_errors_are_raised_and_the_file_is_as_others_opened_it(file, monkeypatch):
    before = fcntl.fcntl(file, fcntl.F_GETFL)

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        direct.write(file, [random_bytes(2 * WORTH)], 0)
    assert fcntl.fcntl(file, fcntl.F_GETFL) == before


def test_whole_blocks_go_past_the_cache(file, monkeypatch):
    past, whole = [], os.pwritev

    def watched(file, buffers, at):
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_DIRECT:
            past.append((at, sum(map(len, buffers))))
        return whole(file, buffers, at)

    monkeypatch.setattr(os, "pwritev", watched)
    direct.write(file, [random_bytes(WORTH), random_bytes(500_000)], 1_000)
    end = 1_000 + WORTH + 500_000
    assert sum(size for _, size in past) == end // BLOCK * BLOCK - BLOCK or not past
    if not past:
        pytest.skip("this file system takes no such write")
    assert past[0][0] == BLOCK

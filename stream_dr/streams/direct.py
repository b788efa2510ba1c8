"""direct: large writes that go to the disk past the system's cache.

What is written once and hardly read again need not be copied into the cache's pages first, and the pages need not be found,
marked, written back and let go. The whole blocks of a write go from memory of our own, begun where the disk wants it, by
O_DIRECT; the parts of a block before and after them go through the cache. The file is the same, byte by byte.

Cost: one copy into a stage of 8 MB a thread, 0.1 ms a megabyte, instead of 0.3 to 0.7 in the system (`python
benchmarks/log_append.py`, and with --cached). Whoever needs the bytes to be durable syncs the file, as after any write.

Why this way: nothing but this file knows of it: no layout, no padding, no other way to read. Where the file system takes no
such write (or Python knows none), the cache is used as before.
"""

import errno
import fcntl
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from stream_dr.streams.event import Body

BLOCK = 4096
"""Writes past the cache begin and end at multiples of this."""

STAGE = 8 << 20
"""Bytes that are written at once."""

WORTH = 256 << 10
"""Fewer bytes go through the cache."""

_AT_ONCE = 1024  # IOV_MAX: buffers a pwritev takes
_FLAG = getattr(os, "O_DIRECT", 0)
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)


class _Stage(threading.local):
    """Page-aligned memory, one a thread."""

    def __init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, STAGE))


_stage = _Stage()


def write(file: int, pieces: Sequence[Body], start: int) -> None:
    """Write pieces one after another from offset `start` on, past the cache where that is worth it.

    file: a descriptor, which nobody else uses meanwhile. Raises OSError.
    """
    for run in _runs(pieces):
        size = sum(map(len, run))
        if WORTH <= size <= STAGE - BLOCK and _FLAG:
            _write_staged(file, run, start)
        else:
            write_cached(file, run, start)
        start += size


def write_cached(file: int, pieces: Sequence[Any], start: int) -> None:
    """Write all, through the cache, whatever part of it each call takes."""
    left = deque(memoryview(piece) for piece in pieces if len(piece))
    while left:
        written = os.pwritev(file, list(islice(left, _AT_ONCE)), start)
        start += written
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if written:
            left[0] = left[0][written:]


def _runs(pieces: Sequence[Body]) -> Iterator[list[Body]]:
    """The pieces in order, in runs that fit into the stage; one that does not is a run by itself."""
    run: list[Body] = []
    size = 0
    for piece in pieces:
        if run and size + len(piece) > STAGE - BLOCK:
            yield run
            run, size = [], 0
        run.append(piece)
        size += len(piece)
    if run:
        yield run


def _write_staged(file: int, pieces: Sequence[Body], start: int) -> None:
    stage, begin = _stage.view, start % BLOCK  # what goes to a block's begin lies at one
    end = begin
    for piece in pieces:
        stage[end : end + len(piece)] = piece
        end += len(piece)
    first, last = -(-begin // BLOCK) * BLOCK, end // BLOCK * BLOCK
    base = start - begin
    done = first + _write_past(file, stage[first:last], base + first)
    write_cached(file, [stage[begin:first]], start)
    write_cached(file, [stage[done:end]], base + done)


def _write_past(file: int, blocks: memoryview, start: int) -> int:
    """Write whole blocks past the cache; how many bytes of them were."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    done = 0
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _FLAG)
        while done < len(blocks) and done % BLOCK == 0:  # a write that ends within a block is ended through the cache
            done += os.pwritev(file, [blocks[done:]], start + done)
    except OSError as e:
        if e.errno not in _REFUSED:
            raise
    finally:
        fcntl.fcntl(file, fcntl.F_SETFL, flags)
    return done

"""direct: large writes that go to the disk past the system's cache.

What is written once and hardly read again need not be copied into the cache's pages first, and the pages need not be found,
marked, written back and let go. A write begins at a multiple of BLOCK in the file and is filled up with zeros to the next
one, so nothing of it shares a block with what was there before. A piece that lies at a multiple of BLOCK in memory, too,
goes to the disk from where it is, but for its last bytes; those and all other pieces are put together in a stage first.

Cost: a stage of 8 MB a thread; where pieces go through it, one copy, 0.1 ms a megabyte. The system took 0.3 to 0.7 ms a
megabyte for its cache (`python benchmarks/log_append.py`, and with --cached). A write that went past the cache is durable
when it returns: written and synced in one call. After any other the file is synced by whoever needs that.

Why this way: nothing but this file knows of it: the offsets are the caller's, and a plain read finds the pieces at them. A
block that is written in part, through the cache, is read from the disk first and kept it waiting: durable batches of
1 MB came in a tenth slower. Where the file system takes no such write (or Python knows none), the cache is used.
"""

import errno
import mmap
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any

import numpy as np

from stream_dr.log.event import Body

BLOCK = 4096
"""Writes past the cache begin and end at multiples of this."""

STAGE = 8 << 20
"""Bytes that are put together before they are written."""

WORTH = 256 << 10
"""Fewer bytes go through the cache."""

IN_PLACE = 64 << 10
"""Fewer bytes of one piece are put into the stage, wherever they lie."""

_AT_ONCE = 1024  # IOV_MAX: buffers a pwritev takes
_FLAG = getattr(os, "O_DIRECT", 0)
_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT)  # the last one: no /proc
_ZEROS = bytes(BLOCK)


class _Stage(threading.local):
    """Page-aligned memory, one a thread."""

    def __init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, STAGE))


_stage = _Stage()


@contextmanager
def _no_refusal() -> Iterator[None]:
    """Pass over the error of a file system that takes no write past the cache."""
    try:
        yield
    except OSError as e:
        if e.errno not in _REFUSED:
            raise


def offsets(sizes: Sequence[int], end: int) -> list[int]:
    """Where to put pieces of so many bytes behind the offset `end`: the first at a block's begin, as all that may go from
    where they lie; the others one behind the other."""
    starts: list[int] = []
    for size in sizes:
        starts.append(_rounded(end) if not starts or size >= IN_PLACE else end)
        end = starts[-1] + size
    return starts


def open_past(file: int) -> int:
    """A descriptor of the file that `file` is one of, for writes past the cache that are durable on return; −1 where there
    are no such writes. Raises OSError."""
    if _FLAG:
        with _no_refusal():
            return os.open(f"/proc/self/fd/{file}", os.O_WRONLY | os.O_CLOEXEC | os.O_DSYNC | _FLAG)
    return -1


def write(file: int, past: int, pieces: Sequence[Body], starts: Sequence[int]) -> bool:
    """Write pieces to their `offsets`, zeros between them, past the cache where that is worth it.

    file, past: descriptors of one file, the second one of `open_past`. Returns whether all of it is durable. Raises OSError.
    """
    if not pieces:
        return True
    end = starts[-1] + len(pieces[-1])
    parts = _filled(pieces, starts)
    if past < 0 or end - starts[0] < WORTH:
        write_cached(file, parts, starts[0])
        return False
    whole = _Past(file, past, starts[0])
    for part in (*parts, _ZEROS[: _rounded(end) - end]):
        whole.put(part)
    whole.flush()
    return whole.durable


def write_cached(file: int, pieces: Sequence[Any], start: int) -> None:
    """Write all, one behind the other, through the cache, whatever part of it each call takes."""
    left = deque(memoryview(piece) for piece in pieces if len(piece))
    while left:
        start += _write_some(file, left, start)


class _Past:
    """What is to be written past the cache, collected in whole blocks: from offset `start` to `end`, which are a block's
    begin in the file, as is the begin of what is in the stage. durable: nothing went through the cache."""

    def __init__(self, file: int, past: int, start: int) -> None:
        self.file, self.past, self.start, self.end, self.durable = file, past, start, start, True
        self.blocks: deque[memoryview] = deque()
        self.begin = self.filled = 0  # of what is in the stage and not among the blocks

    def put(self, piece: Body) -> None:
        """Add bytes."""
        view = memoryview(piece)
        whole = len(view) // BLOCK * BLOCK
        if len(view) >= IN_PLACE and self.end % BLOCK == 0 and _address(view) % BLOCK == 0:
            self._close()
            self.blocks.append(view[:whole])
            self.end += whole
            view = view[whole:]
        while len(view):
            if self.filled == STAGE:
                self.flush()
            part = view[: STAGE - self.filled]
            _stage.view[self.filled : self.filled + len(part)] = part
            self.filled += len(part)
            self.end += len(part)
            view = view[len(part) :]

    def flush(self) -> None:
        """Write what was added; its end is a block's."""
        self._close()
        start = self.start
        with _no_refusal():
            while self.blocks and start % BLOCK == 0:  # a write that ended within a block is ended through the cache
                start += _write_some(self.past, self.blocks, start)
        if self.blocks:
            write_cached(self.file, self.blocks, start)
            self.blocks.clear()
            self.durable = False
        self.start, self.begin, self.filled = self.end, 0, 0

    def _close(self) -> None:
        """Count what is in the stage among the blocks."""
        if self.filled > self.begin:
            self.blocks.append(_stage.view[self.begin : self.filled])
            self.begin = self.filled


def _write_some(file: int, left: deque[memoryview], start: int) -> int:
    """Write as many bytes as one call takes; how many, which are left no more."""
    written = done = os.pwritev(file, list(islice(left, _AT_ONCE)), start)
    while left and done >= len(left[0]):
        done -= len(left.popleft())
    if done:
        left[0] = left[0][done:]
    return written


def _filled(pieces: Sequence[Body], starts: Sequence[int]) -> list[Body]:
    """The pieces with zeros between them."""
    ends = [start + len(piece) for piece, start in zip(pieces, starts, strict=True)]
    gaps = [0, *(start - end for end, (_, start) in zip(ends, pairwise(starts), strict=False))]
    return [part for gap, piece in zip(gaps, pieces, strict=True) for part in (_ZEROS[:gap], piece)]


def _address(view: memoryview) -> int:
    """Where bytes lie in memory."""
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def _rounded(offset: int) -> int:
    return -(-offset // BLOCK) * BLOCK

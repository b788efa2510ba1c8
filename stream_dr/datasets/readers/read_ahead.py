"""ReadAhead: a file that Arrow reads in a thread of its own, which is done before Python ends.

Why this way: a Python that ends while another thread calls it, or frees what it was handed, is aborted or waits for ever.
Arrow has no call that waits for the thread of its reader; so what the thread holds of the file is counted.
"""

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, Self

import pyarrow as pa

PATIENCE = 10.0
"""Seconds to wait for a read that is under way when no more is wanted: a file system may not answer."""


class ReadAhead:
    """Arrow's reader of a file, left at the end of a with statement, or of Python.

    quotes: how many were read. ended: whether the file was read to its end. schema: of the batches.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.quotes, self.ended, self._left = file, 0, False, False
        self._reader: pa.RecordBatchReader | None = None
        self._held, self._dropped = 0, threading.Condition()
        self.schema = pa.schema([])

    def __enter__(self) -> Self:
        atexit.register(self._leave)
        return self

    def __exit__(self, *error: object) -> None:
        self._leave()
        atexit.unregister(self._leave)

    def open(self, make: Callable[[Any], pa.RecordBatchReader], begin: int | None = None) -> None:
        """Begin to read the file, or so many bytes of its begin, with the reader that `make` makes. Raises what it does."""
        source = self._handle if begin is None else partial(self._begin, begin)
        self._reader = make(source())  # no variable: an error's frames would hold it
        self.schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises what Arrow does."""
        while self._reader is not None:
            try:
                yield self._reader.read_next_batch()
            except StopIteration:
                return

    def read(self, size: int) -> memoryview:
        """The next bytes, for Arrow's thread."""
        data = b"" if self._left else self._file.read(size)
        self.quotes += data.count(b'"')
        self.ended = self.ended or not (data or self._left)
        piece = memoryview(data)
        self._hold(piece)
        return piece

    def _handle(self) -> "_Handle":
        handle = _Handle(self)
        self._hold(handle)
        return handle

    def _begin(self, size: int) -> pa.BufferReader:
        piece = self.read(size)
        self.ended = len(piece) < size
        return pa.BufferReader(piece)

    def _hold(self, held: object) -> None:
        """Count it until it is freed."""
        with self._dropped:
            self._held += 1
        weakref.finalize(held, self._drop).atexit = False

    def _drop(self) -> None:
        with self._dropped:
            self._held -= 1
            self._dropped.notify_all()

    def _leave(self) -> None:
        """Have Arrow's thread read no further, and wait until it holds nothing."""
        self._left, self._reader = True, None
        with self._dropped:
            self._dropped.wait_for(lambda: not self._held, PATIENCE)


class _Handle:
    """The file as Arrow's thread has it: freed with Arrow's reader."""

    closed = False

    def __init__(self, reader: ReadAhead) -> None:
        self._reader = reader

    def read(self, size: int) -> memoryview:
        """The next bytes."""
        return self._reader.read(size)

"""flatbuffer: reads the tables that Arrow's metadata is made of, and nothing outside the bytes they are in.

Cost: about 1 µs a number. Every read outside the buffer is a struct.error.
"""

import struct
from collections.abc import Iterator

import numpy as np


class Table:
    """A table: where its fields are. Fields go by their place in the schema language's table, from 0."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._vtable = at - struct.unpack_from("<i", buffer, at)[0]
        if self._vtable < 0:
            raise struct.error("a table points before its buffer")
        self._size = struct.unpack_from("<H", buffer, self._vtable)[0]

    @classmethod
    def root(cls, buffer: memoryview) -> "Table":
        """The table that a buffer is of."""
        return cls(buffer, struct.unpack_from("<I", buffer, 0)[0])

    def number(self, field: int, code: str) -> int:
        """A number of struct's format `code`; 0 where it is left out."""
        at = self._field(field)
        return int(struct.unpack_from(code, self._buffer, at)[0]) if at else 0

    def table(self, field: int) -> "Table | None":
        """A table, or None."""
        at = self._field(field)
        return Table(self._buffer, self._follow(at)) if at else None

    def tables(self, field: int) -> Iterator["Table"]:
        """A vector of tables, one by one: several may be the same one."""
        at, count = self._vector(field)
        for place in range(at, at + 4 * count, 4):
            yield Table(self._buffer, self._follow(place))

    def text(self, field: int) -> memoryview:
        """The bytes of a string."""
        at, count = self._vector(field)
        return self._buffer[at : at + count]

    def structs(self, field: int, words: int) -> np.ndarray:
        """A vector of structs of so many int64 (count, words); smaller numbers share a word."""
        at, count = self._vector(field)
        if at + 8 * words * count > len(self._buffer):
            raise struct.error("a vector is longer than its buffer")
        return np.frombuffer(self._buffer, "<i8", words * count, at if count else 0).reshape(count, words)

    def _field(self, field: int) -> int:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return 0
        offset = struct.unpack_from("<H", self._buffer, self._vtable + entry)[0]
        return self._at + offset if offset else 0

    def _follow(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self._buffer, at)[0])

    def _vector(self, field: int) -> tuple[int, int]:
        """Where a vector's first element is, and how many it has."""
        at = self._field(field)
        if not at:
            return 0, 0
        at = self._follow(at)
        return at + 4, int(struct.unpack_from("<I", self._buffer, at)[0])

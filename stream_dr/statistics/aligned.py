"""aligned: arrays that begin at a cache line, and large arrays at a huge page.

A row of text has features all over a state of megabytes. They lie on more memory pages than the
processor can cache the addresses of. Huge pages help, and NumPy asks for them (Linux, from 4 MB
on). But the system provides one only for 2 MB of memory that begin at a multiple of 2 MB, so an
array of 6 MB gets one or two of three. An array that begins at such an address gets all of them,
and a recurrence learns faster (`python benchmarks/recurrences.py beside`).

The cost is two huge pages of addresses in addition to the array. Memory itself is provided when it
is first written to, 2 MB at a time for large arrays.
"""

import numpy as np

LINE_BYTES = 64
"""Bytes of a cache line."""

HUGE_BYTES = 2 << 20
"""Bytes of a huge page of memory."""

_LARGE = 2 * HUGE_BYTES
"""Smallest number of bytes of an array that begins at a huge page."""


def aligned_zeros(rows: int, columns: int) -> np.ndarray:
    """Return zeros (rows, columns) float64, C-ordered, that begin at a cache line.

    Arrays of at least 4 MB begin at a huge page (a multiple of 2 MB).
    """
    size = rows * columns
    step, spare = (HUGE_BYTES, 2) if 8 * size >= _LARGE else (LINE_BYTES, 1)
    room = np.zeros(size + spare * step // 8)
    first = -room.ctypes.data % step // 8
    return room[first : first + size].reshape(rows, columns)

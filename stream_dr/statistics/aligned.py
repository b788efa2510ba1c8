"""aligned: arrays that begin at a cache line, and large arrays at a huge page.

The nonzeros of a text row are spread over megabytes of an array. This is more memory pages than
the processor can remember addresses of. Huge pages of 2 MB help, and NumPy asks Linux for them
from 4 MB on. But Linux provides a huge page only for 2 MB that begin at a multiple of 2 MB. So an
ordinary array of 6 MB gets one or two huge pages, and an array that begins at a multiple of 2 MB
gets three. Learning is then faster (`python benchmarks/recurrences.py beside`).

Each large array reserves two huge pages of addresses more than it needs. They use no memory,
because the system provides memory only when an address is first written to.
"""

import numpy as np

LINE_BYTES = 64
"""Bytes of a cache line."""

HUGE_BYTES = 2 << 20
"""Bytes of a huge page."""

_LARGE = 2 * HUGE_BYTES
"""Smallest number of bytes of an array that begins at a huge page."""


def aligned_zeros(rows: int, columns: int) -> np.ndarray:
    """Return zeros (rows, columns) float64 whose memory begins at a cache line.

    The array is C-ordered. An array of at least 4 MB begins at a multiple of 2 MB, a huge page.
    """
    size = rows * columns
    step, spare = (HUGE_BYTES, 2) if 8 * size >= _LARGE else (LINE_BYTES, 1)
    room = np.zeros(size + spare * step // 8)
    first = -room.ctypes.data % step // 8
    return room[first : first + size].reshape(rows, columns)

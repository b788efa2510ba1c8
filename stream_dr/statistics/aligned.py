"""Arrays that begin at a cache line or huge page.

Large arrays begin at a huge page. Learning a row of text changes values all over an array of many
megabytes. The values lie in more memory pages than the processor can keep addresses of in its
cache. Huge pages (of 2 MB) make learning faster, because there are fewer of them
(`python benchmarks/recurrences.py beside`).

NumPy asks Linux for huge pages for arrays of 4 MB or more. Linux provides a huge page only for
2 MB that begin at a multiple of 2 MB. So an ordinary array of 6 MB gets one or two huge pages, and
an array that begins at a multiple of 2 MB gets three.

Each large array reserves two huge pages of addresses more than it needs. They use no memory,
because the system provides memory only when an address is first written to.
"""

import numpy as np

LINE_BYTES = 64
"""Bytes of a cache line."""

HUGE_BYTES = 2 << 20
"""Bytes of a huge page."""

_LARGE = 2 * HUGE_BYTES
"""Size in bytes from which on an array begins at a huge page."""


def aligned_zeros(n_rows: int, n_columns: int) -> np.ndarray:
    """Return an array of zeros, aligned to a cache line.

    The array is (n_rows, n_columns) float64 and C-ordered. An array of at least 4 MB begins at a
    multiple of 2 MB, which is the size of a huge page.
    """
    size = n_rows * n_columns
    step, spare = (HUGE_BYTES, 2) if 8 * size >= _LARGE else (LINE_BYTES, 1)
    room = np.zeros(size + spare * step // 8)
    first = -room.ctypes.data % step // 8
    return room[first : first + size].reshape(n_rows, n_columns)

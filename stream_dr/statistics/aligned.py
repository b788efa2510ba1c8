"""aligned: arrays that begin at a cache line, large ones at a huge page.

A row of text touches features all over a state of megabytes, on more pages than the processor
remembers the places of. NumPy asks for huge pages (Linux, from 4 MB on), but the system gives one
only for 2 MB that begin at a multiple of 2 MB. So an array of 6 MB gets one or two of three. An
array that begins at such an address gets all, and a recurrence learns faster (`python
benchmarks/recurrences.py beside`).

The cost is addresses for two huge pages more than the array has. Memory is taken as it is touched,
2 MB at a time for large arrays.
"""

import numpy as np

LINE_BYTES = 64
HUGE_BYTES = 2 << 20

_LARGE = 2 * HUGE_BYTES


def aligned_zeros(rows: int, columns: int) -> np.ndarray:
    """Return zeros (rows, columns) float64, C-ordered, that begin at a cache line.

    They begin at a huge page if they fill several.
    """
    size = rows * columns
    step, spare = (HUGE_BYTES, 2) if 8 * size >= _LARGE else (LINE_BYTES, 1)
    room = np.zeros(size + spare * step // 8)
    first = -room.ctypes.data % step // 8
    return room[first : first + size].reshape(rows, columns)

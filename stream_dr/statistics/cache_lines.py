"""Arrays placed in memory, and elements loaded early, for the cache.

An array begins at a cache line. Large arrays begin at a huge page. Learning a row of text changes
values all over an array of many megabytes. The values lie in more memory pages than the processor
can keep addresses of in its cache. Huge pages (of 2 MB) make learning faster, because there are
fewer of them (`python benchmarks/recurrences.py beside`).

NumPy asks Linux for huge pages for arrays of 4 MB or more. Linux provides a huge page only for
2 MB that begin at a multiple of 2 MB. So an ordinary array of 6 MB gets one or two huge pages, and
an array that begins at a multiple of 2 MB gets three.

Each large array reserves two huge pages of addresses more than it needs. They use no memory,
because the system provides memory only when an address is first written to.

Waiting for a value that is not in the second-level cache takes longer than the arithmetic with the
value. So a value is requested some steps before it is used. numba has no function for such a
request, but LLVM has an instruction. The request is only a hint to the processor, so even an
invalid address causes no error.
"""

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_dr.compiled import compiled

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


AHEAD = np.uint64(32)
"""Number of nonzeros between the request for an element and its use.

A loop over the nonzeros of sparse rows requests an element of an array this many steps before it
needs the element.
"""


def _prefetch_line(typing_context: object, address: types.Type) -> tuple[object, Callable[..., ir.Constant]]:
    """Return the signature and code generator of a numba intrinsic.

    numba compiles a call of the intrinsic to LLVM's prefetch instruction, which loads the cache
    line at an address. The instruction's arguments tell the processor that the line will be
    written to, and used again soon.
    """

    def emit_prefetch(
        context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]
    ) -> ir.Constant:
        byte = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        write = flag(1)
        soon = flag(3)
        data = flag(1)
        builder.call(hint, [builder.inttoptr(arguments[0], byte), write, soon, data])
        return flag(0)

    return types.int32(types.uint64), emit_prefetch


_hint: Callable[..., object] = intrinsic(_prefetch_line)


@compiled(forceinline=True)
def prefetch(array: np.ndarray, row: int, column: int) -> None:
    """Load the cache line of array[row, column] into the cache.

    The line is loaded for writing.

    array: (rows, columns), C-ordered.
    row, column: np.uint64.
    """
    place = row * np.uint64(array.strides[0]) + column * np.uint64(array.itemsize)
    _hint(np.uint64(array.ctypes.data) + place)

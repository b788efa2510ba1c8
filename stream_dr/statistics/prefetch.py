"""prefetch: load an array's element into the cache before it is needed.

A sparse row has features all over a state of megabytes. Waiting for one that is not in the
second-level cache takes longer than all of the arithmetic for a nonzero. numba has no instruction
for prefetching, but LLVM has. The instruction is a hint, so no address can cause an error.
"""

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_dr.compiled import compiled

AHEAD = np.uint64(32)
"""Number of nonzeros between the prefetch of an element and its use.

Loops may use a number of their own.
"""


def _prefetch_line(typing_context: object, address: types.Type) -> tuple[object, Callable[..., ir.Constant]]:
    """Return the type signature of the hint, and the function that generates it.

    The hint loads the cache line at an address, for writing and for use again soon.
    """

    def generate(
        context: object, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]
    ) -> ir.Constant:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        write, soon, data = flag(1), flag(3), flag(1)
        builder.call(hint, [builder.inttoptr(arguments[0], byte), write, soon, data])
        return flag(0)

    return types.int32(types.uint64), generate


_hint: Callable[..., object] = intrinsic(_prefetch_line)


@compiled(inline="always")
def prefetch(array: np.ndarray, row: int, column: int) -> None:
    """Load the cache line of array[row, column], which will be written to.

    array: (rows, columns), C-ordered.
    row, column: np.uint64.
    """
    place = row * np.uint64(array.strides[0]) + column * np.uint64(array.itemsize)
    _hint(np.uint64(array.ctypes.data) + place)

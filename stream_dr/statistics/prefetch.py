"""prefetch: ask the processor for a number of an array before it is needed.

A sparse row touches features all over a state of megabytes, and a miss of the second-level cache takes longer than all of
the arithmetic for a nonzero.

Why this way: numba has no word for it, but LLVM has; it is a hint, so no address can be wrong.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from stream_dr.compiled import compiled

AHEAD = np.uint64(32)
"""Nonzeros between asking and using, where the loop does not say itself."""


def _told(typing_context: Any, address: Any) -> Any:
    """How LLVM is told: the line at the address will be written to, and used again."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        write, soon, data = flag(1), flag(3), flag(1)
        builder.call(hint, [builder.inttoptr(arguments[0], byte), write, soon, data])
        return flag(0)

    return types.int32(types.uint64), generate


_hint: Any = intrinsic(_told)


@compiled(inline="always")
def prefetch(array: np.ndarray, row: int, column: int) -> None:
    """array (rows, columns), C-ordered, at [row, column], both np.uint64, into the cache, to be written to."""
    place = row * np.uint64(array.strides[0]) + column * np.uint64(array.itemsize)
    _hint(np.uint64(array.ctypes.data) + place)

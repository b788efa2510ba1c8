"""prefetch: ask the processor for a row of an array before it is needed.

A sparse row touches features all over a state of megabytes, and a miss of the second-level cache takes longer than all of
the arithmetic for a nonzero. Asking ahead halved the time of learning sparse rows (python benchmarks/ingest.py --only lda).

How far ahead: where a nonzero takes a few nanoseconds, because a record is one cache line, sixteen of them pass sooner than
memory answers. With 64 rows were learned a third faster where other threads had filled the caches meanwhile, and as fast
where not. Of records of several lines, 64 at once come in each other's way: a third slower.

Why this way: numba has no word for it, but LLVM has; it is a hint, so no address can be wrong.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

NEAR, FAR = 16, 64
"""Nonzeros between asking and using: for records of several cache lines, and of one."""


def _prefetch(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """How LLVM is told."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        down, right = cgutils.unpack_tuple(builder, held.strides)
        offset = builder.add(builder.mul(arguments[1], down), builder.mul(arguments[2], right))
        address = builder.add(builder.ptrtoint(held.data, offset.type), offset)
        byte = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        write, soon, data = (ir.Constant(flag, value) for value in (1, 3, 1))
        builder.call(hint, [builder.inttoptr(address, byte), write, soon, data])
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64), generate


prefetch: Any = intrinsic(_prefetch)
"""prefetch(array, row, column): array (rows, columns) at [row, column], unsigned, into the cache, to be written to."""

"""Reads of many bytes at once for the loops that numba compiles. The loops make sure that the buffer has the bytes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from rmqtx.readers.log.record_layout import VALUE_END

#: Bytes that are examined at once.
LANES = 64
_VALUE_END = VALUE_END


def _loaded(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """Return the value of an LLVM type at a place in an array of bytes; the place need not be aligned."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    value = builder.load(builder.bitcast(builder.gep(array.data, [arguments[1]]), kind.as_pointer()))
    value.align = 1
    return value


@intrinsic
def word(_: Any, data: Any, place: Any) -> Any:
    """Return the eight bytes at a place as a number, the first byte lowest. Needs: eight bytes."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _loaded(context, builder, signature, arguments, ir.IntType(64))

    return types.uint64(data, place), make


@intrinsic
def separators(_: Any, data: Any, place: Any) -> Any:
    """Return a bit for each of LANES bytes, the first one lowest: whether it is at most VALUE_END."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(8), LANES)
        values = _loaded(context, builder, signature, arguments, lanes)
        found = builder.icmp_unsigned("<=", values, ir.Constant(lanes, [_VALUE_END] * LANES))
        return builder.bitcast(found, ir.IntType(LANES))

    return types.uint64(data, place), make


@intrinsic
def lowest_bit(_: Any, mask: Any) -> Any:
    """Return the number of the lowest bit that is set. Needs: one that is."""

    def make(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(mask), make

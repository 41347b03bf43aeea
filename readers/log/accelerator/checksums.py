"""CRC-32 of bodies, compiled by numba (extra `fast`), by the carry-less multiplication of the processor.

Calls of `zlib.crc32` take half a microsecond for a body of some hundred bytes, this loop a tenth of it. A processor
without the instruction is left to the reference path, `crcs` in `readers/model/columns.py`.
Source: Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction (Intel, 2009).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from rmqtx.readers.model.columns import Bytes, Int64s, crcs

_POLYNOMIAL = 0xEDB88320
#: Bytes that one step takes.
_STEP = 16
#: Remainders of powers of x, bits reversed: they move 16 bytes, 8 bytes and 4 bytes to the end.
_FOLD_LOW, _FOLD_HIGH, _FOLD_LAST = 0x1751997D0, 0x0CCAA009E, 0x163CD6124
#: The quotient of x**64 by the polynomial, and the polynomial, bits reversed.
_QUOTIENT, _DIVISOR = 0x1F7011641, 0x1DB710641
_PAIR, _WORD = ir.VectorType(ir.IntType(64), 2), ir.IntType(64)

_data = types.Array(types.uint8, 1, "C", readonly=True)
_int64s = types.int64[::1]


@intrinsic
def _folded(_: Any, data: Any, place: Any, steps: Any, state: Any) -> Any:
    """Return the CRC of the bytes of some steps, at least one, not inverted. `state`: that of the bytes before."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        multiply = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_PAIR, [_PAIR, _PAIR, ir.IntType(8)]), "llvm.x86.pclmulqdq"
        )

        def loaded(place: Any) -> Any:
            value = builder.load(builder.bitcast(builder.gep(array.data, [place]), _PAIR.as_pointer()))
            value.align = 1
            return value

        def product(value: Any, factors: tuple[int, int], chosen: int) -> Any:
            halves = ir.Constant(ir.IntType(8), chosen)
            return builder.call(multiply, [value, ir.Constant(_PAIR, list(factors)), halves])

        def word(value: Any, number: int) -> Any:
            return builder.extract_element(value, ir.Constant(ir.IntType(32), number))

        def pair(low: Any) -> Any:
            return builder.insert_element(ir.Constant(_PAIR, [0, 0]), low, ir.Constant(ir.IntType(32), 0))

        begin, count = arguments[1], arguments[2]
        kept = cgutils.alloca_once_value(builder, builder.xor(loaded(begin), pair(arguments[3])))
        with cgutils.for_range_slice(builder, ir.Constant(_WORD, 1), count, ir.Constant(_WORD, 1)) as (index, _):
            before = builder.load(kept)
            after = loaded(builder.add(begin, builder.mul(index, ir.Constant(_WORD, _STEP))))
            folds = _FOLD_LOW, _FOLD_HIGH
            moved = builder.xor(product(before, folds, 0x00), product(before, folds, 0x11))
            builder.store(builder.xor(moved, after), kept)
        value, low_half = builder.load(kept), ir.Constant(_WORD, 0xFFFFFFFF)
        first = builder.xor(product(value, (0, _FOLD_HIGH), 0x10), pair(word(value, 1)))
        low, high = word(first, 0), word(first, 1)
        rest = builder.or_(builder.lshr(low, ir.Constant(_WORD, 32)), builder.shl(high, ir.Constant(_WORD, 32)))
        second = builder.xor(word(product(pair(builder.and_(low, low_half)), (_FOLD_LAST, 0), 0x00), 0), rest)
        quotient = word(product(pair(builder.and_(second, low_half)), (_QUOTIENT, 0), 0x00), 0)
        last = word(product(pair(builder.and_(quotient, low_half)), (_DIVISOR, 0), 0x00), 0)
        return builder.lshr(builder.xor(second, last), ir.Constant(_WORD, 32))

    return types.uint64(data, place, steps, state), make


def _table() -> npt.NDArray[np.uint32]:
    """Return what each last byte of a CRC does to the rest."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ np.where(values & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return values


_TABLE = _table()
_ALL, _BYTE, _BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFF), np.uint64(8)


def _loop(data: Any, starts: Any, lengths: Any, table: Any, found: Any) -> None:
    for row in range(len(starts)):
        place, size = starts[row], lengths[row]
        end, steps = place + size, size // _STEP
        crc = _ALL
        if steps > 0:
            crc = _folded(data, place, steps, crc)
            place += steps * _STEP
        while place < end:
            crc = np.uint64(table[np.uintp((crc ^ np.uint64(data[np.uintp(place)])) & _BYTE)]) ^ (crc >> _BITS)
            place += 1
        found[row] = np.int64(crc ^ _ALL)


def is_supported() -> bool:
    """Whether numba compiles for a processor with the instruction; to compile the loop for another one fails."""
    triple, _, features = cpu_target.target_context.codegen().magic_tuple()
    return str(triple).startswith("x86_64") and "+pclmul" in str(features).split(",")


_checksums = (
    njit(types.void(_data, _int64s, _int64s, types.uint32[::1], _int64s), cache=True)(_loop) if is_supported() else None
)


def checksums(data: Bytes, starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the CRC-32 of parts of the data; the same as `crcs(...)`."""
    if _checksums is None:
        return crcs(data, starts, lengths)
    found = np.empty(len(starts), np.int64)
    _checksums(data, starts, lengths, _TABLE, found)
    return found

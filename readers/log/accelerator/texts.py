"""Texts of records as Arrow columns, compiled by numba (extra `fast`): copied, as views, or as numbers of the texts.

The reference path in `readers/model/columns.py` returns the same values. The loops read eight bytes at once; a column
with a text too near to the end of the buffer is left to the reference path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from rmqtx.readers.log.record_layout import VALUE_END
from rmqtx.readers.model.columns import Bools, Bytes, Int64s, coded, strings, views

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


_DIFFERENT_MAX = 2048
_MIXER, _ALL, _HALF, _NONE = (np.uint64(value) for value in (0x9E3779B97F4A7C15, (1 << 64) - 1, (1 << 32) - 1, 0))
_INLINE_BYTES_MAX = 12

_data = types.Array(types.uint8, 1, "C", readonly=True)
_int64s, _bools = types.int64[::1], types.boolean[::1]


@njit(types.boolean(_data, _int64s, _int64s, _bools, types.int32[::1], types.uint8[::1]), cache=True)
def _gather(data: Any, starts: Any, lengths: Any, present: Any, offsets: Any, text: Any) -> Any:
    place = np.int64(0)
    seen = np.uint8(0)
    for row in range(len(starts)):
        offsets[row] = place
        if present[row]:
            start = starts[row]
            for step in range(lengths[row]):
                value = data[np.uintp(start + step)]
                seen |= value
                text[np.uintp(place + step)] = value
            place += lengths[row]
    offsets[len(starts)] = place
    return seen < 128


def texts(data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s, present: Bools | None = None) -> pa.Array:
    """Return byte strings as text, null if not present; the same as `strings(views(...))`."""
    count = len(starts)
    if present is None:
        present = np.ones(count, np.bool_)
    elif not present.any():
        return pa.nulls(count, pa.string())
    offsets, text = np.empty(count + 1, np.int32), np.empty(int(lengths.sum()), np.uint8)
    if not _gather(data, starts, lengths, present, offsets, text):
        return strings(views(data, buffer, starts, lengths, present))
    return pa.Array.from_buffers(pa.string(), count, [_bitmap(present), pa.py_buffer(offsets), pa.py_buffer(text)])


def _bitmap(present: Bools) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


@njit(types.boolean(_data, _int64s, _int64s, _bools, types.uint64[:, ::1]), cache=True)
def _views(data: Any, starts: Any, lengths: Any, present: Any, table: Any) -> Any:
    for row in range(len(starts)):
        place, size = starts[row], lengths[row]
        if not present[row]:
            table[row, 0] = table[row, 1] = 0
            continue
        if place + 16 > len(data):
            return False
        first = word(data, place)
        head, rest = first & _HALF, first >> np.uint64(32) | word(data, place + 8) << np.uint64(32)
        if size > _INLINE_BYTES_MAX:
            rest = np.uint64(place) << np.uint64(32)  # of buffer 0
        elif size > 4:
            rest &= _ALL >> np.uint64(8 * (12 - size))
        else:
            head, rest = head & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)), _NONE
        table[row, 0], table[row, 1] = np.uint64(size) | head << np.uint64(32), rest
    return True


def text_views(
    data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s, present: Bools | None = None
) -> pa.Array:
    """Return byte strings as a binary-view column, null if not present; the same as `views(...)`."""
    table = np.empty((len(starts), 2), np.uint64)
    known = np.ones(len(starts), np.bool_) if present is None else present
    if not _views(data, starts, lengths, known, table):
        return views(data, buffer, starts, lengths, present)
    return pa.Array.from_buffers(pa.binary_view(), len(starts), [_bitmap(known), pa.py_buffer(table), buffer])


@njit(types.int64(_data, _int64s, _int64s, _bools, _int64s, _int64s, _int64s, types.int32[::1]), cache=True)
def _codes(
    data: Any, starts: Any, lengths: Any, present: Any, places: Any, sizes: Any, table: Any, codes: Any
) -> Any:
    count = code = np.int64(0)
    slots = np.uint64(len(table) - 1)
    for row in range(len(starts)):
        if not present[row]:
            codes[row] = 0
            continue
        place, size = starts[row], lengths[row]
        if place + size + 8 > len(data):
            return np.int64(-1)
        unused = np.uint64(64 - 8 * (size & 7))  # bits of the last word
        slot = slots + np.uint64(1)  # first compared with the text of the row before, then with those of the table
        while True:
            if code < count and sizes[np.uintp(code)] == size:
                other, step = places[np.uintp(code)], np.int64(0)
                while step + 8 <= size and word(data, place + step) == word(data, other + step):
                    step += 8
                rest = word(data, place + step) ^ word(data, other + step)
                if step == size or (step + 8 > size and rest << unused == 0):
                    break
            if slot > slots:
                mixed = word(data, place) << (unused if size < 8 else _NONE)
                mixed ^= word(data, place + max(size - 8, 0)) * _MIXER if size > 8 else _NONE
                slot = ((mixed ^ mixed >> np.uint64(29)) * _MIXER >> np.uint64(32)) & slots
            else:
                slot = (slot + np.uint64(1)) & slots
            code = table[np.uintp(slot)]
            if code < 0:
                if count == len(places):
                    return np.int64(-1)
                places[count], sizes[count], table[np.uintp(slot)] = place, size, count
                code = count
                count += 1
                break
        codes[row] = code
    return count


def codes(data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s, present: Bools | None = None) -> pa.Array:
    """Return byte strings as a dictionary column, null if not present; the same as `coded(...)`."""
    count = len(starts)
    known = np.ones(count, np.bool_) if present is None else present
    places, sizes = np.empty(_DIFFERENT_MAX, np.int64), np.empty(_DIFFERENT_MAX, np.int64)
    table, numbers = np.full(2 * _DIFFERENT_MAX, -1, np.int64), np.empty(count, np.int32)
    different = _codes(data, starts, lengths, known, places, sizes, table, numbers)
    if different < 0:
        return coded(data, buffer, starts, lengths, present)
    values = views(data, buffer, places[:different], sizes[:different]).cast(pa.binary())
    indices = pa.Array.from_buffers(pa.int32(), count, [_bitmap(known), pa.py_buffer(numbers)])
    return pa.DictionaryArray.from_arrays(indices, values)

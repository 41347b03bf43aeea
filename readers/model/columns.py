"""Arrow columns from positions in a buffer: views without copies, text of any bytes, host addresses, hex ids."""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

#: Bytes after the last record of a buffer that may be read: short values are read as whole words, and the shortest
#: record may have the IPv6 flag, with which its header would end 21 bytes after the record.
SLACK_BYTES = 32
_INLINE_BYTES_MAX = 12
_INT64 = pa.int64()
_ASCII_LAST = 127
_OFFSET_MAX = np.iinfo(np.int32).max
#: By number of bytes, the mask that keeps them in a word.
_KEPT = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
#: Length of the longest table of truths, a byte each.
_TABLE_MAX = 16 << 20


def no_numbers() -> Int64s:
    """No numbers."""
    return np.empty(0, np.int64)


def int64s(column: pa.ChunkedArray | pa.Array, missing: int = -1) -> Int64s:
    """A column as native integers; `missing` stands for null."""
    numbers = column if column.type == _INT64 else column.cast(_INT64)
    values: Int64s = np.asarray(pc.fill_null(numbers, missing) if numbers.null_count else numbers)  # else a copy
    return values


def coalesced(columns: Iterable[pa.Array]) -> pa.Array:
    """Return the first known value of each row; columns after the one that leaves no null are not made."""
    found: pa.Array | None = None
    for column in columns:
        found = column if found is None else pc.coalesce(found, column)
        if not found.null_count:
            break
    return found


def are_among(values: Int64s, chosen: Int64s) -> Bools:
    """Return which values are among the chosen ones; sooner than `np.isin` for values that are nearly in order."""
    if not len(chosen):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(chosen)
    found: Bools = ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values
    return found


class IntegerSet:
    """A set of integers, to look up many others at once; if they lie close together, in a table."""

    def __init__(self, values: Int64s) -> None:
        """`values`: in any order; they may be repeated."""
        self._sorted = np.sort(values)
        self._low = int(self._sorted[0]) if len(values) else 0
        self._table: Bools | None = None
        if len(values) and int(self._sorted[-1]) - self._low < _TABLE_MAX:
            self._table = np.zeros(int(self._sorted[-1]) - self._low + 1, np.bool_)
            self._table[values - self._low] = True

    def has(self, values: Int64s) -> Bools:
        """Return which values are in the set."""
        if self._table is None:
            return are_among(values, self._sorted)
        places = values - self._low
        inside = (places >= 0) & (places < len(self._table))
        found: Bools = self._table[np.where(inside, places, 0)] & inside
        return found


def integers_at(data: Bytes, positions: Int64s, code: str) -> npt.NDArray[Any]:
    """The big-endian integers of numpy type `code` at byte positions, in native order.

    Raises: IndexError if a position leaves less than the integer's width.
    """
    kind = np.dtype(code)
    view = np.ndarray((max(0, len(data) - kind.itemsize + 1),), kind, data, 0, (1,))
    return view[positions].astype(kind.newbyteorder("="))


def crcs(data: bytes | memoryview, starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the CRC-32 of byte strings in a buffer."""
    crc = zlib.crc32
    ends = starts + lengths
    # A copy of a short string takes less time than a view of it.
    return np.array([crc(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], np.int64)


def views(data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s, valid: Bools | None = None) -> pa.Array:
    """Return byte strings in a buffer as an Arrow binary-view column; only strings up to 12 bytes are copied.

    Shape:  one value per start; null if `valid` is false.
    Needs:  SLACK_BYTES after every start in `data`, and `data` shorter than 2 GiB.
    """
    words = np.ndarray((max(len(data) - 7, 0),), "<u8", data, 0, (1,))
    first = words[starts]
    table = np.empty((len(starts), 2), np.uint64)
    heads, rests = first & np.uint64(0xFFFFFFFF), starts.astype(np.uint64) << np.uint64(32)
    short = (lengths <= _INLINE_BYTES_MAX).nonzero()[0]
    if len(short):
        sizes = lengths[short]
        heads[short] &= _KEPT[np.minimum(sizes, 4)]
        rests[short] = (first[short] >> np.uint64(32) | words[starts[short] + 8] << np.uint64(32)) & _KEPT[
            np.maximum(sizes - 4, 0)
        ]
    table[:, 0], table[:, 1] = lengths.astype(np.uint64) | heads << np.uint64(32), rests
    bitmap = None
    if valid is not None and not valid.all():
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary_view(), len(starts), [bitmap, pa.py_buffer(table), buffer])


def even_texts(data: Bytes, starts: Int64s, lengths: Int64s) -> pa.Array | None:
    """Return byte strings of one length as text; None if their lengths differ or one is not ASCII."""
    if not len(starts) or (lengths != lengths[0]).any():
        return None
    width = int(lengths[0])
    raw = np.ndarray((len(data) - width + 1, width), np.uint8, data, 0, (1, 1))[starts]
    if not width or raw.max() > _ASCII_LAST or raw.size > _OFFSET_MAX:
        return None
    offsets = np.arange(len(starts) + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def coded(data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s, valid: Bools | None = None) -> pa.Array:
    """Return byte strings in a buffer as an Arrow dictionary column; see `views`. For strings that are often equal."""
    if valid is None and len(starts) and (lengths == (width := int(lengths[0]))).all():
        raw = np.ndarray((len(data) - width + 1, width), np.uint8, data, 0, (1, 1))[starts]
        if (raw == raw[0]).all():
            same = pa.array([raw[0].tobytes()], pa.binary())
            return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(starts), np.int32)), same)
    return views(data, buffer, starts, lengths, valid).cast(pa.binary()).dictionary_encode()


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def rows_where(table: _Rows, chosen: pa.Array | pa.ChunkedArray) -> _Rows:
    """Return the chosen rows; the table itself if all are chosen, since a copy of everything takes memory."""
    return table if pc.all(chosen, min_count=0, skip_nulls=False).as_py() else table.filter(chosen)


def rows_in_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows sorted by some columns, ascending; the table itself if they are in order already."""
    order = pc.sort_indices(table.select(keys), sort_keys=[(key, "ascending") for key in keys])
    places = np.asarray(order)
    return table if (places[1:] > places[:-1]).all() else table.take(order)


def strings(column: pa.Array) -> pa.Array:
    """Return the bytes as text. Bytes that are not UTF-8 are shown as backslash escapes, never dropped."""
    plain = column.cast(pa.binary()) if column.type == pa.binary_view() else column
    try:
        return plain.cast(pa.string())
    except pa.ArrowInvalid:
        values = [None if v is None else v.decode("utf-8", "backslashreplace") for v in plain.to_pylist()]
        return pa.array(values, pa.string())


def integers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimal text as integers; null if the text is not a number or does not fit."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    digits = 9 if kind == pa.int32() else 18
    if _are_digits(column, digits):
        return column.cast(kind)
    good = pc.match_substring_regex(column, rf"^-?[0-9]{{1,{digits}}}$")
    return pc.if_else(good, column, pa.scalar(None, column.type)).cast(kind)


def _are_digits(column: pa.Array, digits_max: int) -> bool:
    """Whether all texts of a column consist of digits only, as most numbers do."""
    lengths = pc.min_max(pc.binary_length(column))
    if lengths["min"].as_py() < 1 or lengths["max"].as_py() > digits_max:
        return False
    begin, end = np.frombuffer(column.buffers()[1], np.int32)[[column.offset, column.offset + len(column)]].tolist()
    text = np.frombuffer(column.buffers()[2], np.uint8)[begin:end]
    return bool(text.min() >= ord("0") and text.max() <= ord("9"))


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls."""
    return pa.nulls(count, kind)


_HEX = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint8).reshape(256, 2)


def hexadecimal(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes as upper-case hexadecimal text."""
    count, width = rows.shape
    text = _HEX[rows].reshape(-1)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(2 * width)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _host_text(raw: bytes) -> str:
    address = ipaddress.ip_address(raw[:-4])
    port = int.from_bytes(raw[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def scatter(count: int, parts: Sequence[tuple[Bools, Callable[[Int64s], pa.Array]]]) -> pa.Array:
    """Return one text column made of parts that each cover some rows: (mask, rows → values)."""
    full = [(mask, make) for mask, make in parts if mask.any()]
    if len(full) == 1 and full[0][0].all():
        return full[0][1](np.arange(count))
    order = np.concatenate([np.flatnonzero(mask) for mask, _ in full]) if full else np.empty(0, np.int64)
    values = pa.concat_arrays([pa.array([], pa.string()), *(make(np.flatnonzero(mask)) for mask, make in full)])
    places = np.full(count, -1, np.int64)
    places[order] = np.arange(len(order))
    return values.take(pa.array(places, mask=places < 0))


def hosts(data: Bytes, positions: Int64s, is_v6: Bools) -> pa.Array:
    """Return host fields (address and port) as text; a log has few different hosts, so each is formatted once."""

    def part(width: int) -> Callable[[Int64s], pa.Array]:
        def make(rows: Int64s) -> pa.Array:
            raw = np.ndarray((len(data) - width + 1, width), np.uint8, data, 0, (1, 1))[positions[rows]]
            keys = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(rows), [None, pa.py_buffer(np.ascontiguousarray(raw))]
            ).dictionary_encode()
            texts = pa.array([_host_text(value) for value in keys.dictionary.to_pylist()], pa.string())
            return texts.take(keys.indices)

        return make

    return scatter(len(positions), [(~is_v6, part(8)), (is_v6, part(20))])


def message_ids(data: Bytes, host_positions: Int64s, is_v6: Bools, offsets: Int64s) -> pa.Array:
    """Offset message ids: store host, port and commit-log offset in upper-case hexadecimal.

    Source: common/message/MessageDecoder.java createMessageId; docs/formats/wire.md#message-ids.
    """
    tails = np.ascontiguousarray(offsets.astype(">i8")).view(np.uint8).reshape(-1, 8)

    def part(width: int) -> Callable[[Int64s], pa.Array]:
        def make(rows: Int64s) -> pa.Array:
            raw = np.ndarray((len(data) - width + 1, width), np.uint8, data, 0, (1, 1))[host_positions[rows]]
            return hexadecimal(np.concatenate([raw, tails[rows]], axis=1))

        return make

    return scatter(len(offsets), [(~is_v6, part(8)), (is_v6, part(20))])


def lists_of(names: Sequence[str], chosen: Sequence[Bools], count: int, kind: pa.DataType) -> pa.Array:
    """Return a list for each of `count` rows: the names whose mask has the row, in their order.

    `chosen`: a mask for each name; most have few rows. `kind`: the type of the lists.
    """
    rows = [np.flatnonzero(mask) for mask in chosen]
    owners = np.concatenate([np.empty(0, np.int64), *rows])
    numbers = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=count))]).astype(np.int32)
    values = pa.array(names, pa.string()).take(pa.array(numbers[np.argsort(owners, kind="stable")]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)

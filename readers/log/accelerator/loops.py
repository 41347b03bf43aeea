"""The inner loops of a scan, compiled by numba (extra `fast`): chain of records, places of properties, CRCs of bodies.

The columns of records are in `columns.py` and `texts.py`. The loops return exactly the results of the reference path
(`segment_scan.walk` with `Block.sound`, `PropertyAreas.locate`), also for damaged bytes: a test compares both. No byte
outside the buffer is read, whatever the lengths in the data are. Importing this module loads the compiled code from
numba's cache, or compiles it once.

The CRC of a body takes eight bytes a step, by tables: a call of `zlib.crc32` for each body of some hundred bytes takes
longer than the bytes themselves.
Source: Kounavis and Berry, A Systematic Approach to Building High Performance, Software-based, CRC Generators
(Intel, 2005).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import register_jitable

from rmqtx.readers.log.accelerator.columns import Fields, by_length, fields, i16, i32, i64, may_hold_mark
from rmqtx.readers.log.accelerator.texts import LANES, codes, lowest_bit, separators, text_views, texts, word
from rmqtx.readers.log.record_layout import (
    AT,
    BORN_V6,
    IPV6_EXTRA_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    NAME_END,
    RECORD,
    RECORD_BYTES_MIN,
    STORE_V6,
    VALUE_END,
)
from rmqtx.readers.model.columns import Bools, Bytes, Int64s, crcs
from rmqtx.readers.model.identities import UInt64s

_POLYNOMIAL = 0xEDB88320
#: Bytes that one step takes.
_STEP = 8
#: Mean length from which zlib is faster, with its calls.
_LONG_BYTES = 512
_ALL, _BYTE, _BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFF), np.uint64(8)
__all__ = ["Fields", "checksums", "codes", "fields", "locate", "may_hold_mark", "text_views", "texts", "walk"]

_HEAD_BYTES = AT["commit_log_offset"] + 8
_SYS_FLAG, _OFFSET, _BODY_LENGTH = AT["sys_flag"], AT["commit_log_offset"], AT["body_length_bytes"]
_HEADER_BYTES, _RECORD_MIN, _EXTRA = RECORD.size_bytes, RECORD_BYTES_MIN, IPV6_EXTRA_BYTES
_V1, _V2, _BORN, _STORE, _NAME_END, _VALUE_END = MAGIC_V1, MAGIC_V2, BORN_V6, STORE_V6, NAME_END, VALUE_END

_data = types.Array(types.uint8, 1, "C", readonly=True)
_int64s = types.int64[::1]


def _tables() -> npt.NDArray[np.uint32]:
    """Return, by the number of bytes that follow in a step, what each byte adds to the CRC after it."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = (values >> np.uint32(1)) ^ np.where(values & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables = [values]
    for _ in range(_STEP - 1):
        tables.append(values[tables[-1] & 0xFF] ^ (tables[-1] >> np.uint32(8)))
    return np.stack(tables)


_TABLES = _tables()


def _loop(data: Any, starts: Any, lengths: Any, tables: Any, found: Any) -> None:
    for row in range(len(starts)):
        place = starts[row]
        end = place + lengths[row]
        crc = _ALL
        while place + _STEP <= end:
            value = word(data, place) ^ crc
            crc = np.uint64(0)
            for following in range(_STEP - 1, -1, -1):
                crc ^= np.uint64(tables[following, np.uintp(value & _BYTE)])
                value >>= _BITS
            place += _STEP
        while place < end:
            crc = np.uint64(tables[0, np.uintp((crc ^ np.uint64(data[np.uintp(place)])) & _BYTE)]) ^ (crc >> _BITS)
            place += 1
        found[row] = np.int64(crc ^ _ALL)


_checksums = njit(
    types.void(
        types.Array(types.uint8, 1, "C", readonly=True), types.int64[::1], types.int64[::1], types.uint32[:, ::1],
        types.int64[::1],
    ),
    cache=True,
)(_loop)


def checksums(data: Bytes, starts: Int64s, lengths: Int64s) -> Int64s:
    """Return the CRC-32 of parts of the data; the same as `crcs(...)`, also for parts that are not in the data."""
    begin, end = min(lengths.min(initial=0), starts.min(initial=0)), (starts + lengths).max(initial=0)
    if begin < 0 or end > len(data) or lengths.sum() > _LONG_BYTES * len(lengths):
        return crcs(data.data, starts, lengths)
    found = np.empty(len(starts), np.int64)
    _checksums(data, starts, lengths, _TABLES, found)
    return found


@register_jitable
def _is_sound(data: Any, start: int, length: int) -> Any:
    """Whether a record's length is the sum of its parts."""
    end = start + length
    flag = i32(data, start + _SYS_FLAG)
    shift = np.int64(0)
    if flag & _BORN:
        shift += _EXTRA
    if flag & _STORE:
        shift += _EXTRA
    body = start + _HEADER_BYTES + shift
    if body > end - 3:
        return False
    body_length = i32(data, start + _BODY_LENGTH + shift)
    place = body + body_length
    if body_length < 0 or place > end - 3:
        return False
    if data[start + 7] == _V2 & 0xFF:
        topic_length = i16(data, place)
        place += 2
    else:
        topic_length = np.int64(data[place])
        if topic_length > 127:
            return False
        place += 1
    place += topic_length
    if topic_length < 0 or place > end - 2:
        return False
    properties_length = i16(data, place)
    if topic_length + properties_length == 0:
        return False
    return properties_length >= 0 and place + 2 + properties_length == end


@njit(
    types.Tuple((types.int64, types.int64))(
        _data, types.int64, types.int64, types.int64, _int64s, types.boolean[::1]
    ),
    cache=True,
)
def _walk(data: Any, base_offset: int, position: int, limit: int, starts: Any, sound: Any) -> Any:
    count = 0
    end = min(limit, len(data)) - _HEAD_BYTES
    while position <= end and count < len(starts):
        length = i32(data, position)
        magic = i32(data, position + 4) & 0xFFFFFFFF
        if magic != _V1 and magic != _V2:
            break
        place = position + _OFFSET
        if i64(data, place) != base_offset + position or length < _RECORD_MIN or position + length > limit:
            break
        starts[count] = position
        sound[count] = _is_sound(data, position, length)
        count += 1
        position += length
    return count, position


def walk(data: bytes, base_offset: int, position: int, limit: int) -> tuple[Int64s, Bools, int]:
    """Return the starts of consecutive records, which of them are sound, and where the chain ended."""
    room = max(0, limit - position) // RECORD_BYTES_MIN + 1
    starts, sound = np.empty(room, np.int64), np.empty(room, np.bool_)
    count, stop = _walk(np.frombuffer(data, np.uint8), base_offset, position, limit, starts, sound)
    return starts[:count].copy(), sound[:count].copy(), int(stop)


@njit(
    types.void(
        _data, _int64s, _int64s, types.uint64[:, :, ::1], _int64s, _int64s,
        types.int64[:, ::1], types.int64[:, ::1], types.boolean[:, ::1], types.boolean[::1],
    ),
    cache=True,
)
def _locate(
    data: Any, starts: Any, lengths: Any, words: Any, first_of_length: Any, next_of_length: Any,
    value_starts: Any, value_lengths: Any, present: Any, wrong: Any,
) -> None:
    # One function: numba counts references to the arrays for each call of another one. Unsigned indices save a test.
    for row in range(len(starts)):
        place = piece = starts[row]
        end, split = place + lengths[row], np.int64(-1)
        while place <= end:
            mask = separators(data, place)
            if end < place + LANES:
                mask &= (np.uint64(1) << np.uint64(end - place)) - np.uint64(1)
                mask |= np.uint64(1) << np.uint64(end - place)
            while mask:
                found = place + lowest_bit(mask)
                mask &= mask - np.uint64(1)
                if found < end and data[np.uintp(found)] != _VALUE_END:
                    if data[np.uintp(found)] == _NAME_END:
                        if split < 0:
                            split = found
                        else:
                            wrong[np.uintp(row)] = True
                    continue
                size = split - piece
                if found > piece and (size <= 0 or found == split + 1):
                    wrong[np.uintp(row)] = True
                kind = np.int64(-1)
                if split >= 0 and found > split + 1 and size < len(first_of_length):
                    kind = first_of_length[np.uintp(size)]
                while kind >= 0:
                    name, part = np.uintp(kind), np.uintp(0)
                    while part * 8 < size and (
                        word(data, piece + part * 8) & words[name, part, np.uintp(1)] == words[name, part, np.uintp(0)]
                    ):
                        part += np.uintp(1)
                    if part * 8 >= size:
                        value_starts[name, np.uintp(row)] = split + 1
                        value_lengths[name, np.uintp(row)] = found - split - 1
                        present[name, np.uintp(row)] = True
                        break
                    kind = next_of_length[name]
                piece, split = found + 1, np.int64(-1)
            place += LANES


def locate(
    data: Any, starts: Int64s, lengths: Int64s, names: tuple[str, ...]
) -> tuple[dict[str, tuple[Int64s, Int64s, Bools]], Bools]:
    """Return start, length and presence of several properties' values in the data, per record, in one pass.

    Also return which records have a piece that is not a property.
    """
    encoded = [name.encode() for name in names]
    _, _, first_of_length, next_of_length = by_length(encoded)
    shape = (len(names), len(starts))
    value_starts, value_lengths = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    present, wrong = np.zeros(shape, np.bool_), np.zeros(len(starts), np.bool_)
    if int((starts + lengths).max(initial=0)) + LANES > len(data):
        data = np.append(data, np.zeros(LANES, np.uint8))
        data.flags.writeable = False
    _locate(
        data, starts, lengths, _words_of(encoded), first_of_length, next_of_length,
        value_starts, value_lengths, present, wrong,
    )
    return {name: (value_starts[i], value_lengths[i], present[i]) for i, name in enumerate(names)}, wrong


def _words_of(names: list[bytes]) -> UInt64s:
    """Return each name as words of eight bytes, with the mask of the bytes of the name in each word."""
    size = -(-max(map(len, names)) // 8) * 8
    words = [b"".join(name.ljust(size, b"\0") for name in names)]
    words.append(b"".join((b"\xff" * len(name)).ljust(size, b"\0") for name in names))
    return np.stack([np.frombuffer(text, "<u8").reshape(len(names), -1) for text in words], axis=2)

"""Columns of sound records, compiled by numba (extra `fast`): header fields and known topics, in one pass.

The reference path in `readers/log/record_block.py` and `readers/model/columns.py` returns the same values. The records
must be sound: their lengths were compared with the end of each record, so no byte outside the buffer is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import register_jitable

from rmqtx.readers.log.record_layout import (
    AT,
    BORN_V6,
    FILLER,
    FILLER_MARK,
    IPV6_EXTRA_BYTES,
    MAGIC_V2,
    RECORD,
    STORE_V6,
)
from rmqtx.readers.model.columns import Bools, Bytes, Int32s, Int64s
from rmqtx.readers.store.store import TRANSACTION_TOPICS, WAITING_TOPICS

#: The topics that are recognised; others are compared where they are asked for.
_TOPICS = (*TRANSACTION_TOPICS, *WAITING_TOPICS, FILLER)
#: The header fields of 4 and of 8 bytes that a scan reads of every record, and the places of its parts.
_INTS = (
    "length_bytes", "queue_id", "sys_flag", "reconsume_times", "body_length_bytes", "body_crc", "born_port",
    "store_port",
)
_LONGS = ("queue_offset", "born_time_ms", "store_time_ms", "prepared_transaction_offset", "commit_log_offset")
_PLACES = ("body_starts", "topic_starts", "topic_lengths", "properties_starts", "properties_lengths")

_LENGTH, _QUEUE, _SYS_FLAG, _RECONSUMED, _BODY_LENGTH, _BODY_CRC, _BORN_PORT, _STORE_PORT = (
    AT[name] for name in _INTS
)
_QUEUE_OFFSET, _BORN_TIME, _STORE_TIME, _PREPARED_OFFSET, _OWN_OFFSET = (AT[name] for name in _LONGS)
_HEADER_BYTES, _EXTRA, _BORN, _STORE, _V2 = RECORD.size_bytes, IPV6_EXTRA_BYTES, BORN_V6, STORE_V6, MAGIC_V2 & 0xFF
_MARK_BYTES = len(FILLER_MARK)
_MARK_0, _MARK_1, _MARK_2, _MARK_3 = (np.uint8(value) for value in FILLER_MARK[:4])

_data = types.Array(types.uint8, 1, "C", readonly=True)
_int64s = types.int64[::1]


@register_jitable
def i32(data: Any, place: Any) -> Any:
    """Return four bytes as a signed number."""
    p = np.uintp(place)
    value = (
        (np.uint32(data[p]) << np.uint32(24)) | (np.uint32(data[p + np.uintp(1)]) << np.uint32(16))
        | (np.uint32(data[p + np.uintp(2)]) << np.uint32(8)) | np.uint32(data[p + np.uintp(3)])
    )
    return np.int64(np.int32(value))


@register_jitable
def i64(data: Any, place: Any) -> Any:
    """Return eight bytes as a signed number."""
    return (i32(data, place) << np.int64(32)) | (i32(data, place + 4) & np.int64(0xFFFFFFFF))


@register_jitable
def i16(data: Any, place: Any) -> Any:
    """Return two bytes as a signed number."""
    p = np.uintp(place)
    return np.int64(np.int16((np.uint16(data[p]) << np.uint16(8)) | np.uint16(data[p + np.uintp(1)])))


@njit(
    types.void(
        _data, _int64s, types.int32[:, ::1], types.int64[:, ::1], types.int64[:, ::1], types.int8[::1],
        _data, _int64s, _int64s, _int64s,
    ),
    cache=True,
)
def _fields(
    data: Any, starts: Any, ints: Any, longs: Any, places: Any, topics: Any,
    names: Any, name_starts: Any, first_of_length: Any, next_of_length: Any,
) -> None:
    for row in range(len(starts)):
        start = starts[row]
        flag = i32(data, start + _SYS_FLAG)
        born = np.int64(_EXTRA if flag & _BORN else 0)
        shift = born + np.int64(_EXTRA if flag & _STORE else 0)
        body_length = i32(data, start + _BODY_LENGTH + shift)
        ints[0, row] = i32(data, start + _LENGTH)
        ints[1, row] = i32(data, start + _QUEUE)
        ints[2, row] = flag
        ints[3, row] = i32(data, start + _RECONSUMED + shift)
        ints[4, row] = body_length
        ints[5, row] = i32(data, start + _BODY_CRC)
        ints[6, row] = i32(data, start + _BORN_PORT + born)
        ints[7, row] = i32(data, start + _STORE_PORT + shift)
        longs[0, row] = i64(data, start + _QUEUE_OFFSET)
        longs[1, row] = i64(data, start + _BORN_TIME)
        longs[2, row] = i64(data, start + _STORE_TIME + born)
        longs[3, row] = i64(data, start + _PREPARED_OFFSET + shift)
        longs[4, row] = i64(data, start + _OWN_OFFSET)
        body = start + _HEADER_BYTES + shift
        place = body + body_length
        if data[np.uintp(start + 7)] == _V2:
            size = i16(data, place)
            place += 2
        else:
            size = np.int64(data[np.uintp(place)])
            place += 1
        places[0, row] = body
        places[1, row] = place
        places[2, row] = size
        places[3, row] = place + size + 2
        places[4, row] = i16(data, place + size)
        kind = first_of_length[size] if size < len(first_of_length) else np.int64(-1)
        while kind >= 0:
            step = np.int64(0)
            while step < size and data[np.uintp(place + step)] == names[np.uintp(name_starts[kind] + step)]:
                step += 1
            if step == size:
                break
            kind = next_of_length[kind]
        topics[row] = kind


def by_length(names: list[bytes]) -> tuple[Bytes, Int64s, Int64s, Int64s]:
    """Return names as one text, their starts, and chains of the names of each length: the first, and the next ones."""
    sizes = np.array([len(name) for name in names], np.int64)
    first_of_length = np.full(int(sizes.max(initial=0)) + 1, -1, np.int64)
    next_of_length = np.full(len(names), -1, np.int64)
    for number, size in enumerate(sizes.tolist()):
        next_of_length[number], first_of_length[size] = first_of_length[size], number
    return np.frombuffer(b"".join(names), np.uint8), np.cumsum(sizes) - sizes, first_of_length, next_of_length


_TOPICS_BY_LENGTH = by_length([topic.encode() for topic in _TOPICS])
_TOPIC_NUMBERS = {topic: number for number, topic in enumerate(_TOPICS)}


@dataclass(frozen=True, slots=True)
class Fields:
    """Columns of the records of one window.

    Shape: `columns` by name: header fields as native integers, and the places of the parts of each record in the
           window; `topics` is the number of each record's topic among those that are recognised, or -1.
    """

    columns: dict[str, Int32s | Int64s]
    topics: np.ndarray[tuple[int], np.dtype[np.int8]]

    def topic_is(self, name: str) -> Bools | None:
        """Return which records have a topic; None if the topic is not one that is recognised."""
        number = _TOPIC_NUMBERS.get(name)
        if number is None:
            return None
        found: Bools = self.topics == number
        return found

    def take(self, rows: Int64s | Bools) -> Fields:
        """Return the columns of some of the records."""
        return Fields({name: column[rows] for name, column in self.columns.items()}, self.topics[rows])


def fields(data: Bytes, starts: Int64s) -> Fields:
    """Return the columns of sound records."""
    count = len(starts)
    ints, longs = np.empty((len(_INTS), count), np.int32), np.empty((len(_LONGS), count), np.int64)
    places, topics = np.empty((len(_PLACES), count), np.int64), np.empty(count, np.int8)
    _fields(data, starts, ints, longs, places, topics, *_TOPICS_BY_LENGTH)
    columns: dict[str, Int32s | Int64s] = dict(zip(_INTS, ints, strict=True))
    columns |= zip((*_LONGS, *_PLACES), (*longs, *places), strict=True)
    return Fields(columns, topics)


@njit(types.uint8(_data, types.int64), cache=True)
def _least_difference(data: Any, count: int) -> Any:
    # One minimum over all places, without an early end: so the processor compares many bytes at once.
    first, second, third, fourth = data[:count], data[1 : count + 1], data[2 : count + 2], data[3 : count + 3]
    least = np.uint8(255)
    for place in range(count):
        difference = np.uint8(
            np.uint8(first[place] ^ _MARK_0) | np.uint8(second[place] ^ _MARK_1)
            | np.uint8(third[place] ^ _MARK_2) | np.uint8(fourth[place] ^ _MARK_3)
        )
        least = min(least, difference)
    return least


def may_hold_mark(data: bytes) -> bool:
    """Return False if FILLER_MARK is not in the data; True if it may be."""
    places = len(data) - _MARK_BYTES + 1
    return places > 0 and not _least_difference(np.frombuffer(data, np.uint8), places)



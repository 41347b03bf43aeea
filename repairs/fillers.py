"""What a salvaged log has where records were lost: records that every broker walks over, and that deliver nothing.

A hole would end the log for a broker (FORMATS 2.10). Most of a hole is filled with rollback records: brokers from 4.3
enter them into no queue and no index. Where the numbers of the lost records are known, and a number without a record
would mislead the broker (`needs_record`), a record that bears the number stands in.

Readers know both by `RMQTX_FILLER`, and take them for the damage that they stand for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from readers.properties import CHECK_TIMES, REAL_QUEUE_ID, REAL_TOPIC, TAGS
from readers.record_layout import BLANK, FILLER, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, NAME_END, RECORD, ROLLBACK, VALUE_END
from readers.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC

BLANK_BYTES = BLANK.size_bytes
#: Brokers read a record as a whole when they recover: not more than the largest message that they take by default.
FILLER_BYTES_MAX = 4 << 20
#: More checks than any broker makes: it gives up on such a half at once, without asking anybody.
_CHECKS = str((1 << 31) - 1)
_TOPIC_V1_BYTES_MAX = 127
_PROPERTIES_BYTES_MAX = 32_767


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What fillers take from the record before them, or else after them.

    Units: ms. `store_address`, `store_port`: the broker's, an IPv4 address.
    """

    store_time_ms: int
    store_address: bytes = b"\x7f\0\0\1"
    store_port: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """The number of a record that is lost, in its queue."""

    topic: bytes
    queue_id: int
    queue_offset: int

    @property
    def is_own_topic(self) -> bool:
        """Whether the broker's own check reads the queue."""
        return self.topic in (HALF_TOPIC.encode(), OP_TOPIC.encode())


def _record(
    offset: int, near: Surroundings, topic: bytes, *, body: bytes, properties: bytes,
    sys_flag: int = 0, queue_id: int = 0, queue_offset: int = 0,
) -> bytes:
    is_v2 = len(topic) > _TOPIC_V1_BYTES_MAX
    tail = len(topic).to_bytes(2 if is_v2 else 1, "big") + topic + len(properties).to_bytes(2, "big") + properties
    head = RECORD.pack(
        length_bytes=RECORD.size_bytes + len(body) + len(tail),
        magic=_signed(MAGIC_V2 if is_v2 else MAGIC_V1),
        body_crc=zlib.crc32(body) & 0x7FFFFFFF if body else 0,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=offset,
        sys_flag=sys_flag,
        born_time_ms=near.store_time_ms,
        born_address=near.store_address,
        born_port=near.store_port,
        store_time_ms=near.store_time_ms,
        store_address=near.store_address,
        store_port=near.store_port,
        body_length_bytes=len(body),
    )
    return head + body + tail


def _signed(value: int) -> int:
    return value - (1 << 32)


def _properties(pairs: dict[str, str]) -> bytes:
    return b"".join(
        name.encode() + bytes([NAME_END]) + value.encode() + bytes([VALUE_END]) for name, value in pairs.items()
    )


#: The shortest filler.
FILLER_BYTES_MIN = len(_record(0, Surroundings(0), FILLER.encode(), body=b"", properties=b""))


def filler(offset: int, length_bytes: int, near: Surroundings) -> bytes:
    """A record of a length that brokers walk over and nobody gets.

    Units: commit-log offset; `length_bytes` at least FILLER_BYTES_MIN.
    """
    body = bytes(length_bytes - FILLER_BYTES_MIN)
    return _record(offset, near, FILLER.encode(), body=body, properties=b"", sys_flag=ROLLBACK)


def blank(length_bytes: int) -> bytes:
    """The head of a blank record, that ends a segment's data."""
    return BLANK.pack(length_bytes=length_bytes, magic=_signed(MAGIC_BLANK))


def stand_in(offset: int, lost: Lost, near: Surroundings, padding_bytes: int = 0) -> bytes:
    """A record with a lost one's number: an op that ends no half, a half that is given up at once, else an empty one.

    An op of the number −1 is less than any half and counts as done in every version; without a number some stop there.
    """
    body, pairs = b"", {FILLER: "x" * (1 + padding_bytes)}
    if lost.topic == OP_TOPIC.encode():
        body, pairs = b"-1", {TAGS: "d", **pairs}
    elif lost.topic == HALF_TOPIC.encode():
        pairs = {REAL_TOPIC: DISCARD_TOPIC, REAL_QUEUE_ID: "0", CHECK_TIMES: _CHECKS, **pairs}
    return _record(
        offset, near, lost.topic, body=body, properties=_properties(pairs),
        queue_id=lost.queue_id, queue_offset=lost.queue_offset,
    )


def filled(begin: int, end: int, wanted: list[Lost], near: Surroundings) -> Iterator[tuple[int, bytes, Lost | None]]:
    """Records that fill a hole of the log exactly: stand-ins for as many of `wanted` as it has room for, then fillers.

    Shape: (commit-log offset, record, the number it bears). The hole is at least FILLER_BYTES_MIN long.
    Order: commit-log offset ascending; numbers in the order given.
    """
    chosen: list[Lost] = []
    room = end - begin
    for lost in wanted:
        length = len(stand_in(0, lost, near))
        if length > room:
            break
        chosen.append(lost)
        room -= length
    for number, lost in enumerate(chosen):
        is_last = number + 1 == len(chosen)
        padding = room if is_last and room < FILLER_BYTES_MIN else 0
        record = stand_in(begin, lost, near, padding)
        yield begin, record, lost
        begin += len(record)
    while begin < end:
        left = end - begin
        length = left if left <= FILLER_BYTES_MAX else min(FILLER_BYTES_MAX, left - FILLER_BYTES_MIN)
        yield begin, filler(begin, length, near), None
        begin += length


def with_time(near: Surroundings, store_time_ms: int) -> Surroundings:
    """The same at another time."""
    return replace(near, store_time_ms=store_time_ms)

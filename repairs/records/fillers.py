"""Records that a salvaged log has in place of lost ones: every broker reads past them, and they deliver nothing.

A hole would end the log for a broker (docs/formats/record.md#validation). Most of a hole is filled with ROLLBACK
records, which brokers from 4.3 dispatch to no queue and no index. Where the queue offsets of the lost records are
known, and a queue offset without a record would mislead the broker (`Lost.is_own_topic`), a placeholder record has it.

Readers recognise both by `RMQTX_FILLER`, and count them as damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqtx.readers.log.properties import CHECK_TIMES, REAL_QUEUE_ID, REAL_TOPIC, TAGS
from rmqtx.readers.log.record_layout import BLANK, FILLER, NAME_END, ROLLBACK, VALUE_END
from rmqtx.readers.queues.slot_files import topic_text
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqtx.repairs.records.record_writer import RecordDraft, WritingRules

BLANK_BYTES = BLANK.size_bytes
#: Brokers read whole records in recovery: a filler is not longer than the largest message that they accept by default.
FILLER_BYTES_MAX = 4 << 20
#: More checks than any broker makes: it discards a half with this count at once, without asking a producer.
_CHECKS = str((1 << 31) - 1)
#: A form of records that readers of every version accept.
_RULES = WritingRules(
    ops_are_lists=True, finals_name_destination=True, properties_are_closed=True, has_property_crc=False,
    writes_discard_copy=True,
)
#: A push consumer (4.9.7) fails on a message without a body, pulls it again, and never gets past it.
_BODY = b" "


@dataclass(frozen=True, slots=True)
class FillerModel:
    """Values that fillers take from the record before them, or else after them.

    Units: ms. `store_address`, `store_port`: the broker's IPv4 address and port.
    """

    store_time_ms: int
    store_address: bytes = b"\x7f\0\0\1"
    store_port: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """The queue and queue offset of a lost record."""

    topic: bytes
    queue_id: int
    queue_offset: int

    @property
    def is_own_topic(self) -> bool:
        """Whether the broker's check reads the queue."""
        return self.topic in (HALF_TOPIC.encode(), OP_TOPIC.encode())


def _record(
    offset: int, near: FillerModel, place: Lost, *, body: bytes, properties: bytes, sys_flag: int = 0
) -> bytes:
    host = near.store_address + near.store_port.to_bytes(4, "big")
    draft = RecordDraft(
        topic=topic_text(place.topic), queue_id=place.queue_id, body=body, properties=properties, sys_flag=sys_flag,
        born_time_ms=near.store_time_ms, born_host=host, store_host=host,
    )
    return draft.record(
        _RULES, queue_offset=place.queue_offset, commit_log_offset=offset, store_time_ms=near.store_time_ms
    )


def _properties(pairs: dict[str, str]) -> bytes:
    return b"".join(
        name.encode() + bytes([NAME_END]) + value.encode() + bytes([VALUE_END]) for name, value in pairs.items()
    )


#: A filler is in no queue.
_NO_PLACE = Lost(FILLER.encode(), 0, 0)
#: The shortest filler.
FILLER_BYTES_MIN = len(_record(0, FillerModel(0), _NO_PLACE, body=b"", properties=b""))


def filler(offset: int, length_bytes: int, near: FillerModel) -> bytes:
    """Return a record of a given length that brokers read past and no consumer gets.

    Units: commit-log offset; `length_bytes` at least FILLER_BYTES_MIN.
    """
    body = bytes(length_bytes - FILLER_BYTES_MIN)
    return _record(offset, near, _NO_PLACE, body=body, properties=b"", sys_flag=ROLLBACK)


def placeholder(offset: int, lost: Lost, near: FillerModel, padding_bytes: int = 0) -> bytes:
    """Return a record with a lost queue offset: an op that settles no half, a half that is discarded at once, or empty.

    The op has the number -1, which is below any half and counts as done in every version; some versions stop at an op
    without a number.
    """
    body, pairs = _BODY, {FILLER: "x" * (1 + padding_bytes)}
    if lost.topic == OP_TOPIC.encode():
        body, pairs = b"-1", {TAGS: "d", **pairs}
    elif lost.topic == HALF_TOPIC.encode():
        pairs = {REAL_TOPIC: DISCARD_TOPIC, REAL_QUEUE_ID: "0", CHECK_TIMES: _CHECKS, **pairs}
    return _record(offset, near, lost, body=body, properties=_properties(pairs))


def filled(begin: int, end: int, wanted: list[Lost], near: FillerModel) -> Iterator[tuple[int, bytes, Lost | None]]:
    """Yield records that fill a hole of the log exactly: placeholders for as many of `wanted` as fit, then fillers.

    Shape: (commit-log offset, record, the lost record that it replaces). The hole has at least FILLER_BYTES_MIN.
    Order: commit-log offset ascending; lost records in the order given.
    """
    chosen: list[Lost] = []
    room = end - begin
    for lost in wanted:
        length = len(placeholder(0, lost, near))
        if length > room:
            break
        chosen.append(lost)
        room -= length
    for number, lost in enumerate(chosen):
        is_last = number + 1 == len(chosen)
        padding = room if is_last and room < FILLER_BYTES_MIN else 0
        record = placeholder(begin, lost, near, padding)
        yield begin, record, lost
        begin += len(record)
    while begin < end:
        left = end - begin
        length = left if left <= FILLER_BYTES_MAX else min(FILLER_BYTES_MAX, left - FILLER_BYTES_MIN)
        yield begin, filler(begin, length, near), None
        begin += length

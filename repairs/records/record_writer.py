"""Records of the commit log as brokers write them: COMMIT record, op, discard copy, new half copy, blank.

Each record is made from the record it derives from and keeps its bytes: brokers decode and encode a message, and its
properties keep their order, because both times they pass through the same hash table. Differences between versions are
in `WritingRules`. Everything here was compared, byte for byte, with records of brokers 4.3.0 to 5.5.0
(tests/repairs/test_record_writer.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rmqtx.readers.log.compression import inflate
from rmqtx.readers.log.properties import CHECK_TIMES, REAL_QUEUE_ID, REAL_TOPIC
from rmqtx.readers.log.record_layout import (
    AT,
    BLANK,
    BORN_V6,
    COMMIT,
    IPV6_EXTRA_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NAME_END,
    PROPERTIES_BYTES_MAX,
    RECORD,
    ROLLBACK,
    STORE_V6,
    TRANSACTION_MASK,
    VALUE_END,
    number_at,
    parts_of,
    signed,
)
from rmqtx.readers.model.errors import BadRequest, FormatError
from rmqtx.readers.model.releases import (
    DESTINATION_LEFT_OUT,
    DISCARD_COPY,
    LAST_END_LEFT_OUT,
    OP_LISTS,
    PREPARED_NOT_CHECKED,
    Change,
    Version,
    dotted,
)
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC

PROPERTY_CRC = b"__CRC32#"
#: Name, end of name, ten digits, end of value.
PROPERTY_CRC_BYTES = len(PROPERTY_CRC) + 1 + 10 + 1
_TOPIC_BYTES_MAX_V1 = 127
_OP_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"
_IPV4_HOST_BYTES = 8

@dataclass(frozen=True, slots=True)
class WritingRules:
    """Differences in the records of broker versions.

    Shape: `ops_are_lists`: each number of an op is followed by a comma (5.1.0+). `finals_name_destination`: a COMMIT
           record has REAL_TOPIC and REAL_QID (before 5.4.0). `properties_are_closed`: the last property has its end
           mark too (not from 4.9.1 to 5.1.4). `has_property_crc`: each record ends with a CRC of itself
           (enabledAppendPropCRC, 5.2.0+). `writes_discard_copy`: discarded halves are copied to the discard topic
           (4.5.2+).
    """

    ops_are_lists: bool
    finals_name_destination: bool
    properties_are_closed: bool
    has_property_crc: bool
    writes_discard_copy: bool


def writing_rules(settings: BrokerSettings, *, has_property_crc: bool) -> WritingRules:
    """Return the rules for the broker of a store.

    `has_property_crc`: whether its records end with a CRC of themselves, which is configured and visible in records.
    Raises: BadRequest if its version is not known exactly enough.
    """
    low, high = settings.version_low, settings.version_high

    def does(change: Change) -> bool:
        border = change.border_between(low, high)
        known = change.between(low, high)
        if known is None and border is not None:
            raise BadRequest(
                f"the version of the store's broker is unknown ({settings.version}), and brokers write other records "
                f"from {dotted(border)} on", advice="add --broker-version",
            )
        return known is True

    return WritingRules(
        ops_are_lists=does(OP_LISTS),
        finals_name_destination=not does(DESTINATION_LEFT_OUT),
        properties_are_closed=not does(LAST_END_LEFT_OUT),
        has_property_crc=has_property_crc,
        writes_discard_copy=does(DISCARD_COPY),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDraft:
    """A record before it has its offsets.

    Shape: the fields of RECORD by their names. Hosts: address and port as stored, 8 bytes, or 20 for IPv6.
           `properties`: the area as stored, without the CRC of the whole record. `queue_offset`: given only if it is
           not a place in a queue, as in ROLLBACK records (before 4.3).
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_time_ms: int
    born_host: bytes
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    queue_offset: int | None = None

    def length_bytes(self, rules: WritingRules) -> int:
        """Length of its record."""
        return len(self.record(rules, queue_offset=0, commit_log_offset=0, store_time_ms=0))

    def record(self, rules: WritingRules, *, queue_offset: int, commit_log_offset: int, store_time_ms: int) -> bytes:
        """Return the record's bytes for its offsets.

        Raises: FormatError if its properties are too long for a record.
        Source: store/CommitLog.java (AppendMessageCallback), docs/formats/record.md#record,
                docs/formats/record.md#properties, docs/formats/record.md#append.
        """
        topic = self.topic.encode("utf-8", "surrogateescape")  # a lost record's may be damaged
        properties = _closed(self.properties, is_closed=rules.properties_are_closed)
        if rules.has_property_crc:
            properties = _closed(properties, is_closed=True) + bytes(PROPERTY_CRC_BYTES)
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise FormatError(f"properties of {len(properties)} bytes do not fit into a record")
        is_long = len(topic) > _TOPIC_BYTES_MAX_V1
        hosts = (_v6(self.born_host, BORN_V6), _v6(self.store_host, STORE_V6))
        tail = b"".join(
            (
                self.body, len(topic).to_bytes(2 if is_long else 1, "big"), topic,
                len(properties).to_bytes(2, "big"), properties,
            )
        )
        length = RECORD.size_bytes + sum(IPV6_EXTRA_BYTES for bit in hosts if bit) + len(tail)
        head = RECORD.pack(
            length_bytes=length, magic=signed(MAGIC_V2 if is_long else MAGIC_V1), body_crc=body_crc(self.body),
            queue_id=self.queue_id, flag=self.flag, queue_offset=queue_offset, commit_log_offset=commit_log_offset,
            sys_flag=self.sys_flag & ~(BORN_V6 | STORE_V6) | sum(hosts), born_time_ms=self.born_time_ms,
            store_time_ms=store_time_ms, reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset, body_length_bytes=len(self.body),
        )
        record = b"".join(
            (
                head[: AT["born_address"]], self.born_host, head[AT["store_time_ms"] : AT["store_address"]],
                self.store_host, head[AT["reconsume_times"] :], tail,
            )
        )
        return _with_property_crc(record) if rules.has_property_crc else record


def draft_of(record: bytes) -> RecordDraft:
    """Return the draft of a sound record.

    Shape: properties without the CRC of the whole record.
    Raises: FormatError if the CRC of the body is wrong: a copy of the record would hide the damage.
    """
    fields = RECORD.unpack(record)
    parts = parts_of(record)
    body = record[parts.body]
    if body_crc(body) != fields["body_crc"] & 0x7FFFFFFF:
        raise FormatError(f"the CRC of the body at commit-log offset {fields['commit_log_offset']} is wrong")
    return RecordDraft(
        topic=record[parts.topic].decode(), queue_id=fields["queue_id"], body=body,
        properties=_without(record[parts.properties], PROPERTY_CRC), born_time_ms=fields["born_time_ms"],
        born_host=record[parts.born_host], store_host=record[parts.store_host], flag=fields["flag"],
        sys_flag=fields["sys_flag"], reconsume_times=number_at(record, "reconsume_times"),
        prepared_transaction_offset=number_at(record, "prepared_transaction_offset"),
    )


def has_readable_body(record: bytes) -> bool:
    """Whether consumers can read the body of a record: its CRC is right, and it can be decompressed if compressed."""
    try:
        draft = draft_of(record)
    except (FormatError, UnicodeDecodeError):
        return False
    return inflate(draft.body, draft.sys_flag) is not None


#: Why a half message cannot be committed, by a running broker either: it has no destination.
NO_DESTINATION = "it has no real topic or no real queue (REAL_TOPIC, REAL_QID)"


def final_of(half: bytes, rules: WritingRules) -> RecordDraft:
    """Return the COMMIT record of a half copy.

    Raises: FormatError if the half copy has no destination, or its body is damaged.
    Source: broker/processor/EndTransactionProcessor.java endMessageTransaction; docs/formats/half_and_op.md#final.
    """
    draft = draft_of(half)
    properties = property_values(draft.properties)
    topic, queue_id = properties.get(REAL_TOPIC.encode()), properties.get(REAL_QUEUE_ID.encode(), b"")
    if not topic or not queue_id.isdigit():
        raise FormatError(NO_DESTINATION)
    area = draft.properties
    if not rules.finals_name_destination:
        area = _without(_without(area, REAL_TOPIC.encode()), REAL_QUEUE_ID.encode())
    return replace(
        draft, topic=topic.decode(), queue_id=int(queue_id), properties=area,
        sys_flag=draft.sys_flag & ~TRANSACTION_MASK | COMMIT,
        prepared_transaction_offset=number_at(half, "commit_log_offset"),
    )


def op_of(numbers: list[int], rules: WritingRules, *, queue_id: int, broker_host: bytes, now_ms: int) -> RecordDraft:
    """Return the op message that settles half copies of a queue by their queue offsets.

    `broker_host`: the broker's address in the form of records. Before 5.1.0 an op has one number.
    Source: broker/transaction/queue/TransactionalMessageBridge.java makeOpMessageInner; docs/formats/half_and_op.md#op.
    """
    if not rules.ops_are_lists and len(numbers) != 1:
        raise ValueError(f"{len(numbers)} numbers in one op of a version with one number per op")
    body = "".join(f"{number}," for number in numbers) if rules.ops_are_lists else str(numbers[0])
    return RecordDraft(
        topic=OP_TOPIC, queue_id=queue_id, body=body.encode(), properties=_OP_PROPERTIES, born_time_ms=now_ms,
        born_host=broker_host, store_host=broker_host,
    )


def discard_copy_of(half: bytes) -> RecordDraft:
    """Return the copy in the discard topic of a discarded half copy.

    Raises: FormatError if its body is damaged.
    Source: broker/transaction/queue/DefaultTransactionalMessageCheckListener.java; docs/formats/half_and_op.md#discard.
    """
    return replace(draft_of(half), topic=DISCARD_TOPIC, queue_id=0, prepared_transaction_offset=0)


def half_copy_of(record: bytes) -> RecordDraft:
    """Return the half copy that a resume makes from a discard copy or a half copy, with a check count of 0.

    The body stays as stored; brokers before 5.3.2 decompress it here and leave the flag set, so that no consumer can
    read it.
    Raises: FormatError if its body is damaged.
    Source: broker/processor/AdminBrokerProcessor.java resumeCheckHalfMessage; docs/formats/half_and_op.md#resume.
    """
    draft = draft_of(record)
    properties = _with(draft.properties, CHECK_TIMES.encode(), b"0")
    return replace(draft, topic=HALF_TOPIC, queue_id=0, properties=properties, prepared_transaction_offset=0)


def blank_head(left_bytes: int) -> bytes:
    """Return the bytes of the blank record that closes a full file of the log; the bytes after it have no meaning.

    Source: store/CommitLog.java doAppend END_OF_FILE; docs/formats/record.md#blank.
    """
    return BLANK.pack(length_bytes=left_bytes, magic=signed(MAGIC_BLANK))


def body_crc(body: bytes) -> int:
    """Return the CRC that a broker stores for a body."""
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0


# -- properties -------------------------------------------------------------------------------------------------------


def property_values(area: bytes) -> Mapping[bytes, bytes]:
    """Return the properties in an area as brokers read them: the last value of a name counts."""
    return dict(_split(piece) for piece in _pieces(area))


def _pieces(area: bytes) -> Iterator[bytes]:
    end = bytes([VALUE_END])
    return (piece for piece in area.split(end) if all(_split(piece)))


def _split(piece: bytes) -> tuple[bytes, bytes]:
    name, _, value = piece.partition(bytes([NAME_END]))
    return name, value


def _without(area: bytes, name: bytes) -> bytes:
    """An area without one property; all other bytes stay."""
    end = bytes([VALUE_END])
    return end.join(piece for piece in area.split(end) if _split(piece)[0] != name)


def _with(area: bytes, name: bytes, value: bytes) -> bytes:
    """An area with one property set; a new property is appended."""
    end, new = bytes([VALUE_END]), name + bytes([NAME_END]) + value
    pieces = area.split(end)
    if name in property_values(area):
        return end.join(new if _split(piece)[0] == name else piece for piece in pieces)
    return end.join([*(piece for piece in pieces if piece), new]) + (end if area.endswith(end) else b"")


def _closed(area: bytes, *, is_closed: bool) -> bytes:
    """An area with the last end mark, or without it."""
    end = bytes([VALUE_END])
    if not area or area.endswith(end) == is_closed:
        return area
    return area + end if is_closed else area.removesuffix(end)


def _with_property_crc(record: bytes) -> bytes:
    """A record with the CRC of all bytes before it in its last property: decimal, the lowest digit first.

    Source: common/message/MessageDecoder.java createCrc32; docs/formats/record.md#property-crc.
    """
    rest = record[:-PROPERTY_CRC_BYTES]
    digits = str(zlib.crc32(rest) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()
    return rest + PROPERTY_CRC + bytes([NAME_END]) + digits + bytes([VALUE_END])


def _v6(host: bytes, bit: int) -> int:
    return bit if len(host) > _IPV4_HOST_BYTES else 0


# COMMIT and ROLLBACK records of prepared records, as brokers 3.0 to 4.2 write them.
#
# Both keep the prepared record's properties byte for byte: the broker stores the text that it read. A delay level
# stays in them too without an effect, because the broker removes it from the properties that it interprets. Compared
# with every record that brokers 3.1.4, 3.2.6 and 4.2.0 left in the corpus (tests/repairs/test_prepared_ends.py).
#
# A broker 4.3 or later that opens such a store has no code for either record: a commit fails with
# NumberFormatException, because the prepared record has no REAL_QID. So the same records are written for it, with
# properties closed as in its own records: it dispatches a COMMIT record to its queue and ignores a ROLLBACK record,
# of whatever origin (docs/formats/consume_queues.md#dispatch, docs/formats/prepared_records.md#end).


def commit_record_of(prepared: bytes) -> RecordDraft:
    """Return the COMMIT record of a prepared record: a copy in the same topic and queue.

    Raises: FormatError if its body is damaged.
    Source: broker/processor/EndTransactionProcessor.java endMessageTransaction (3.1.4 to 4.2.0);
            docs/formats/state_table.md#records, docs/formats/prepared_records.md#end.
    """
    return _end_of(prepared, COMMIT)


def rollback_record_of(prepared: bytes, version: Version) -> RecordDraft:
    """Return the ROLLBACK record of a prepared record: a copy without a body, in no queue.

    `version`: of the broker. Before 3.2 its queue offset is the slot number in the state table, later 0.
    Raises: FormatError if its body is damaged.
    Source: broker/processor/EndTransactionProcessor.java (3.1.4 to 4.2.0); store/CommitLog.java doAppend.
    """
    number = number_at(prepared, "queue_offset") if not PREPARED_NOT_CHECKED.holds(version) else 0
    return replace(_end_of(prepared, ROLLBACK), body=b"", queue_offset=number)


def _end_of(prepared: bytes, kind: int) -> RecordDraft:
    draft = draft_of(prepared)
    return replace(
        draft, sys_flag=draft.sys_flag & ~TRANSACTION_MASK | kind,
        prepared_transaction_offset=number_at(prepared, "commit_log_offset"),
    )

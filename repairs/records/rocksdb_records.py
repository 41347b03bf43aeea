"""Records of transactions in RocksDB as brokers 5.4.0 and later write them: op, COMMIT record, another half.

The broker adds them to its table at its start: its recovery after a crash dispatches every record after the table's
last half (docs/formats/rocksdb_transactions.md#dispatch). Compared, byte for byte, with records of 5.4.0 and 5.5.0
(tests/repairs/test_rocksdb_records.py).
"""

from __future__ import annotations

from dataclasses import replace

from rmqtx.readers.log.op_messages import TRANS_OFFSET
from rmqtx.readers.log.properties import CHECK_TIMES, REAL_TOPIC, TAGS, TRANSACTION_ID, UNIQ_KEY
from rmqtx.readers.log.record_layout import NAME_END, VALUE_END, number_at
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.model.java_hashes import java_hash
from rmqtx.readers.old_tables.beside_log import ROCKSDB
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
from rmqtx.repairs.records.record_writer import (
    RecordDraft,
    WritingRules,
    draft_of,
    final_of,
    half_copy_of,
    property_values,
)
from rmqtx.verdicts.model.transaction import Transaction

_OP_BODY = b"\0"
_HASH_PLACES = 128


def rocksdb_op_of(half: bytes, *, unique_key: str, broker_host: bytes, now_ms: int) -> RecordDraft:
    """Return the op message that settles a half.

    `unique_key`: that of the op; `broker_host`: the broker's address in the form of records.
    Raises: FormatError if the half lacks a part of its key in the table.
    Source: broker/transaction/rocksdb/TransactionalMessageRocksDBService.java;
            docs/formats/rocksdb_transactions.md#records.
    """
    words = property_values(draft_of(half).properties)
    topic, identity = (words.get(name.encode()) for name in (REAL_TOPIC, TRANSACTION_ID))
    if not topic or not identity:
        raise FormatError("it has no real topic or no transaction id (REAL_TOPIC, __transactionId__)")
    offset = number_at(half, "commit_log_offset")
    # In the order of the broker's hash table.
    properties = (
        (REAL_TOPIC, topic), (TRANSACTION_ID, identity), (UNIQ_KEY, unique_key.encode()),
        (TRANS_OFFSET, str(offset).encode()), ("WAIT", b"false"), (TAGS, b"d"),
    )
    area = b"".join(name.encode() + bytes([NAME_END]) + value + bytes([VALUE_END]) for name, value in properties)
    return RecordDraft(
        topic=ROCKSDB_OP_TOPIC, queue_id=0, body=_OP_BODY, properties=area, born_time_ms=now_ms,
        born_host=broker_host, store_host=broker_host,
    )


def rocksdb_final_of(half: bytes, rules: WritingRules, checks_count: int | None) -> RecordDraft:
    """Return the COMMIT record of a half. `checks_count`: the count in the table; None if it has no key of the half.

    Raises: FormatError.
    """
    draft = final_of(half, rules)
    if checks_count is None:
        return draft
    return replace(draft, properties=_with_checks(draft.properties, checks_count))


def rocksdb_half_of(record: bytes) -> RecordDraft:
    """Return the half that a resume makes from another half, with its own offset and so its own key.

    Raises: FormatError if its body is damaged.
    """
    area = _with_checks(draft_of(record).properties, 0)
    return replace(half_copy_of(record), topic=ROCKSDB_HALF_TOPIC, properties=area)


def _with_checks(area: bytes, checks_count: int) -> bytes:
    """An area of properties with a count of checks, at its place in the order of the broker's hash table.

    Source: common/message/MessageDecoder.java string2messageProperties (a HashMap of 128 places).
    """
    end, mark, name = bytes([VALUE_END]), bytes([NAME_END]), CHECK_TIMES.encode()
    pieces = [piece for piece in area.split(end) if piece and not piece.startswith(name + mark)]
    places = [_place(piece.partition(mark)[0]) for piece in pieces]
    before = next((row for row, place in enumerate(places) if place > _place(name)), len(pieces))
    return end.join([*pieces[:before], name + mark + b"%d" % checks_count, *pieces[before:]]) + end


def _place(name: bytes) -> int:
    number = java_hash(name) & 0xFFFFFFFF
    return (number ^ number >> 16) & (_HASH_PLACES - 1)


def checks_in_table(row: Transaction, commit_log_offset: int) -> int | None:
    """Return the number of checks of a half in the broker's table; None if it has no key of it or was not read."""
    entries = [entry for entry in row.state_entries if entry.kind == ROCKSDB]
    found = [entry.value for entry in entries if entry.key.startswith(f"{commit_log_offset}@")]
    return int(found[0]) if found and found[0] and found[0].isdigit() else None

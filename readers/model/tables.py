"""The Arrow schemas that every package speaks: one module constant per question, units last, unknown is null.

Every row says where it comes from (`store`, and `file`, `position_bytes`, `length_bytes` where it is one place).
The sentence and unit of each column travel in its field metadata; `rmqtx explain` and the man pages print them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def column(name: str, kind: pa.DataType, meaning: str, *, values: Iterable[str] = (), words: str = "") -> pa.Field:
    """A field that carries its own sentence.

    `values`: all that it can hold, where that is a closed list. `words`: the name of that list among
    `rmqtx_cli.options.closed_values.LISTS`, where the module that has it is one that tables cannot know.
    """
    closed = {"values": ",".join(values)} if values else {"words": words} if words else {}
    return pa.field(name, kind, metadata={"meaning": meaning, **closed})


_STORE = column("store", pa.string(), "root directory of the store the row was read from")
_PLACE = [
    _STORE,
    column("file", pa.string(), "file the row was read from"),
    column("position_bytes", pa.int64(), "position of its first byte inside that file"),
    column("length_bytes", pa.int32(), "bytes it occupies there"),
]
_COMMIT_LOG_OFFSET = column("commit_log_offset", pa.int64(), "global byte position of the record in the commit log")
_QUEUE_ID = column("queue_id", pa.int32(), "queue number")
_QUEUE_OFFSET = column("queue_offset", pa.int64(), "ordinal of the entry in its consume queue")
_STORE_TIME = column("store_time_ms", pa.int64(), "broker clock when the record was appended")
_TRANSACTION_ID = column("transaction_id", pa.string(), "property UNIQ_KEY, the client's message id")
_PRODUCER_GROUP = column("producer_group", pa.string(), "property PGROUP, the group that is asked back")

PROPERTIES = pa.map_(pa.string(), pa.string())

RECORDS = pa.schema(
    [
        *_PLACE,
        _COMMIT_LOG_OFFSET,
        column("format_version", pa.int8(), "1 or 2, from the magic code; 2 has a two-byte topic length"),
        column("topic", pa.string(), "topic of the record as stored"),
        _QUEUE_ID,
        _QUEUE_OFFSET,
        column("transaction_id", pa.string(), "property UNIQ_KEY"),
        column("keys", pa.string(), "property KEYS, business keys separated by spaces"),
        column("tags", pa.string(), "property TAGS"),
        column("born_time_ms", pa.int64(), "producer clock when the message was made"),
        _STORE_TIME,
        column("born_host", pa.string(), "producer address"),
        column("store_host", pa.string(), "broker address"),
        column("message_id", pa.string(), "offset message id: store host and commit-log offset in hexadecimal"),
        column("flag", pa.int32(), "user flag, opaque to the broker"),
        column("sys_flag", pa.int32(), "system flag bits"),
        column(
            "transaction_type", pa.string(), "none, prepared, commit or rollback, from the system flag",
            values=("none", "prepared", "commit", "rollback"),
        ),
        column("reconsume_times", pa.int32(), "deliveries that failed before this copy"),
        column("prepared_transaction_offset", pa.int64(), "commit record: commit-log offset of the copy it names"),
        column("producer_group", pa.string(), "property PGROUP"),
        column("real_topic", pa.string(), "property REAL_TOPIC, where a half message will go"),
        column("real_queue_id", pa.string(), "property REAL_QID"),
        column("checks", pa.string(), "property TRANSACTION_CHECK_TIMES as stored"),
        column("body_length_bytes", pa.int32(), "stored body length"),
        column("body_crc", pa.int64(), "stored CRC-32 of the body, top bit cleared"),
        column("body_crc_matches", pa.bool_(), "whether the stored CRC is right; null unless it was computed"),
        column("properties", PROPERTIES, "all properties"),
        column("body", pa.binary(), "the body, decompressed where that was asked; null unless asked for"),
    ]
)

QUEUE_SLOTS = pa.schema(
    [
        *_PLACE,
        column("topic", pa.string(), "topic, from the directory or the key"),
        column("queue_id", pa.int32(), "queue number, from the directory or the key"),
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        column("record_length_bytes", pa.int32(), "length of the record it points at"),
        column("tags_code", pa.int64(), "hash of the tag, or the due time in delayed topics"),
        column(
            "kind", pa.string(), "simple, batch, pre-blank, or rocksdb",
            values=("simple", "batch", "pre-blank", "rocksdb"),
        ),
        column("batch_store_time_ms", pa.int64(), "store time, in batch queues of the batch; null in simple ones"),
        column("batch_size", pa.int16(), "batch queue: messages in the batch"),
        column("extension_address", pa.int64(), "address in the extension file, where the slot has one"),
    ]
)

#: One half copy, put-back or original, as its transaction's words. Copies in the discard topic have the same columns.
HALVES = pa.schema(
    [
        *_PLACE,
        column("topic", pa.string(), "half topic, discard topic of a discard copy, or a prepared record's own topic"),
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("born_time_ms", pa.int64(), "producer clock when the message was made"),
        column("message_id", pa.string(), "offset message id of this copy"),
        _TRANSACTION_ID,
        _PRODUCER_GROUP,
        column("real_topic", pa.string(), "where a commit delivers to: REAL_TOPIC, or a prepared record's own topic"),
        column("real_queue_id", pa.int32(), "property REAL_QID, or a prepared record's own queue"),
        column("keys", pa.string(), "property KEYS"),
        column("checks_count", pa.int32(), "property TRANSACTION_CHECK_TIMES; null on a copy that was never checked"),
        column("immunity_seconds", pa.int64(), "property CHECK_IMMUNITY_TIME_IN_SECONDS"),
        column("prepared_queue_offset", pa.int64(), "property TRAN_PREPARED_QUEUE_OFFSET of an immunity put-back"),
        column("has_transaction_property", pa.bool_(), "whether __transactionId__ is there (brokers from 5.1.0)"),
        column("sys_flag", pa.int32(), "system flag bits"),
        column("body_length_bytes", pa.int32(), "stored body length"),
        column("body_is_readable", pa.bool_(), "false where the flag says compressed and the body is no such stream"),
    ]
)

OPS = pa.schema(
    [
        *_PLACE,
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("tags", pa.string(), "property TAGS; the check loop reads ops tagged d"),
        column(
            "body_form", pa.string(),
            "single (one number, to 5.0.0), list (from 5.1.0), offset (of a transaction in RocksDB), or unreadable",
            values=("single", "list", "offset", "unreadable"),
        ),
        column("half_queue_offsets", pa.list_(pa.int64()), "queue offsets of the half copies that it marks as ended"),
        column(
            "half_commit_log_offset", pa.int64(),
            "commit-log offset of the half that it ends, property TRANS_OFFSET; null but for transactions in RocksDB",
        ),
    ]
)

#: A record whose system flag says COMMIT.
FINALS = pa.schema(
    [
        *_PLACE,
        column("topic", pa.string(), "topic it was written to"),
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("born_time_ms", pa.int64(), "producer clock when the message was made"),
        column("prepared_transaction_offset", pa.int64(), "commit-log offset of the copy that was committed"),
        column("prepared_message_id", pa.string(), "offset message id of that copy"),
        _TRANSACTION_ID,
        _PRODUCER_GROUP,
        column("keys", pa.string(), "property KEYS"),
    ]
)

#: One half queue offset of one op message; or what ends one half by its commit-log offset: the op message of a
#: transaction in RocksDB, the ROLLBACK record of a design before 4.3.
MARKS = pa.schema(
    [
        _STORE,
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("half_queue_offset", pa.int64(), "the half queue offset that the op names"),
        column("repetition", pa.int32(), "0 for the first time that the op names it, 1 for the second"),
        column("half_commit_log_offset", pa.int64(), "the half that it names by commit-log offset; null for numbers"),
    ]
)


def _evidence(*fields: pa.Field) -> pa.DataType:
    return pa.list_(pa.struct([_STORE, *fields]))


HALF_COPY = _evidence(
    _QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET, _STORE_TIME,
    column("checks_count", pa.int32(), "checks this copy had behind it when it was written"),
)
OP_MARK = _evidence(
    _QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET,
    column("half_queue_offset", pa.int64(), "the half queue offset that the op names; null where it names an offset"),
    _STORE_TIME,
)
FINAL_RECORD = _evidence(
    column("topic", pa.string(), "topic it was written to"), _QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET, _STORE_TIME,
)
DISCARD_COPY = _evidence(_QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET, _STORE_TIME)
STATE_ENTRY = _evidence(
    column(
        "kind", pa.string(), "statetable, redolog, database or rocksdb",
        values=("statetable", "redolog", "database", "rocksdb"),
    ),
    column("key", pa.string(), "key in that table"),
    column("value", pa.string(), "value in that table"),
    column("position_bytes", pa.int64(), "position in that file"),
)

#: What tables beside the log say of half copies: one row is one entry of such a table.
STATE_ENTRIES = pa.schema(
    [
        _STORE,
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the half that the entry is of"),
        *list(STATE_ENTRY.value_type)[1:],
    ]
)

TRANSACTIONS = pa.schema(
    [
        _STORE,
        column("transaction_id", pa.string(), "UNIQ_KEY, else the offset message id of the first copy; never null"),
        column("state", pa.string(), "PENDING, COMMITTED, ROLLED_BACK, DISCARDED, LOST or UNDECIDABLE", words="states"),
        column("flags", pa.list_(pa.string()), "what is odd about it", words="flags"),
        column("reason", pa.string(), "why the state is what it is"),
        column("advice", pa.string(), "commit, rollback, close, discard, resume, wait or none", words="advice"),
        _PRODUCER_GROUP,
        column("topic", pa.string(), "the real topic"),
        column("queue_id", pa.int32(), "the real queue number"),
        column("keys", pa.string(), "business keys"),
        column("born_time_ms", pa.int64(), "producer clock when the message was made"),
        column("half_store_time_ms", pa.int64(), "broker clock at the first half copy"),
        column("decided_time_ms", pa.int64(), "broker clock at the record that decided it; null while undecided"),
        column("checks_count", pa.int32(), "most checks that any copy has behind it; null where none are counted"),
        column("half_copies", HALF_COPY, "every half copy, or prepared record, in log order"),
        column("op_marks", OP_MARK, "every op number, or ROLLBACK record, that names one of its copies"),
        column("final_records", FINAL_RECORD, "every COMMIT record of it"),
        column("discard_copies", DISCARD_COPY, "its copies in the discard topic"),
        column("state_entries", STATE_ENTRY, "what tables beside the log say; empty for half/op topics"),
        column(
            "discard_at_ms", pa.int64(),
            "when the broker will have given up on it, if nothing happens before; null where it never does, or where "
            "that is not foretold (rmqtx show says why)",
        ),
        column(
            "deliveries_count", pa.int64(),
            "how often it was put where consumers read: its COMMIT records; null where it is UNDECIDABLE, or where one "
            "may be in a part of the log that is missing or gone",
        ),
        column("reason_code", pa.string(), "the reason as a stable word", words="reasons"),
    ]
)

#: What live brokers say of their transactions.
_PRODUCER_ALIVE = column(
    "producer_alive", pa.bool_(),
    "whether a producer of the group is connected to the broker, to answer its checks; null where it is not known",
)
_ADDED_LATER = TRANSACTIONS.get_field_index("discard_at_ms")
LIVE_TRANSACTIONS = TRANSACTIONS.insert(_ADDED_LATER, _PRODUCER_ALIVE)

FINDINGS = pa.schema(
    [
        _STORE,
        column("code", pa.string(), "stable name of the kind of finding", words="findings"),
        column("severity", pa.string(), "error, warning or note", values=("error", "warning", "note")),
        column("file", pa.string(), "file it concerns"),
        column("position_bytes", pa.int64(), "first byte concerned, inside the file"),
        column("length_bytes", pa.int64(), "bytes concerned"),
        column("commit_log_offset", pa.int64(), "the same place as a commit-log offset, where there is one"),
        column("expected", pa.string(), "what should have been there"),
        column("actual", pa.string(), "what was found"),
        column("meaning", pa.string(), "what it means for transactions"),
        column("advice", pa.string(), "what to do next"),
    ]
)

CURSORS = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "file the cursor was read from"),
        column("topic", pa.string(), "topic"),
        column("group", pa.string(), "consumer group"),
        column("queue_id", pa.int32(), "queue number"),
        column("next_queue_offset", pa.int64(), "queue offset of the next entry the group will read"),
    ]
)

INDEX_ENTRIES = pa.schema(
    [
        *_PLACE,
        column("entry_number", pa.int32(), "number of the entry in its file, from 1"),
        column("key_hash", pa.int32(), "absolute Java hash of topic#key"),
        _COMMIT_LOG_OFFSET,
        column("store_time_ms", pa.int64(), "store time rebuilt from the entry, to the second"),
        column("previous_entry_number", pa.int32(), "older entry of the same slot; 0 ends the chain"),
    ]
)

CHECKPOINT = pa.schema(
    [
        *_PLACE,
        column("field", pa.string(), "name of the value"),
        column("value", pa.int64(), "the value"),
        column("time_ms", pa.int64(), "the same where the value is a time"),
        column("meaning", pa.string(), "what the broker means by it"),
        column("since", pa.string(), "broker version that introduced it"),
    ]
)

#: A slot of the state table of 3.0 and 3.1.
STATE_TABLE = pa.schema(
    [
        *_PLACE,
        column("slot_number", pa.int64(), "number of the slot; a prepared record carries it as its queue offset"),
        column("commit_log_offset", pa.int64(), "commit-log offset of the prepared record"),
        column("record_length_bytes", pa.int32(), "length of that record"),
        column("store_time_ms", pa.int64(), "broker clock when it was appended, in whole seconds"),
        column("producer_group_hash", pa.int32(), "Java hash of the producer group, by which producers are asked"),
        column(
            "state", pa.string(), "PREPARED while the broker asks, COMMIT or ROLLBACK by the first decision",
            values=("PREPARED", "COMMIT", "ROLLBACK"),
        ),
    ]
)

#: An entry of the redo log of 3.0 and 3.1.
REDO_LOG = pa.schema(
    [
        *_PLACE,
        column("entry_number", pa.int64(), "number of the entry"),
        _COMMIT_LOG_OFFSET,
        column("record_length_bytes", pa.int32(), "length of the record"),
        column("tags_code", pa.int64(), "-1 for a prepared record, else the offset of the one that was ended"),
        column("kind", pa.string(), "PREPARED, or END for a COMMIT or ROLLBACK record", values=("PREPARED", "END")),
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the prepared record that it is about"),
    ]
)

SEGMENTS = pa.schema(
    [
        _STORE,
        column("kind", pa.string(), "commitlog, consumequeue, consumequeue_ext, batchconsumequeue or index"),
        column("topic", pa.string(), "topic, for queues"),
        column("queue_id", pa.int32(), "queue number, for queues"),
        column("file", pa.string(), "the file"),
        column("base_offset", pa.int64(), "offset of its first byte in its own log, from its name"),
        column("size_bytes", pa.int64(), "length when the snapshot was taken"),
    ]
)

#: What became of a file's bytes: decoded + filler + damaged + unread = size.
COVERAGE = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "the file"),
        column("size_bytes", pa.int64(), "its length when the snapshot was taken"),
        column("decoded_bytes", pa.int64(), "bytes of sound structures"),
        column("filler_bytes", pa.int64(), "blank records, preallocated space, unused entries"),
        column("damaged_bytes", pa.int64(), "bytes that no layout explains"),
        column("unread_bytes", pa.int64(), "bytes left out because a bound was asked for"),
    ]
)

#: An entry of the family `trans` of `rocksdbstore` (5.4.0+): a half that the broker has before it.
ROCKSDB_TRANSACTIONS = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "directory of the database"),
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the half"),
        column("topic", pa.string(), "the real topic; null where the broker cannot read the key, and skips it"),
        column("transaction_id", pa.string(), "property __transactionId__; null where the broker cannot read the key"),
        column("checks_count", pa.int32(), "checks sent, as of the last flush of the database"),
        column("record_length_bytes", pa.int32(), "length of the half"),
        column("key", pa.string(), "the key, its first eight bytes as a number"),
    ]
)

#: An entry of a DLedger commit log (4.5.0+): the frame of one record.
DLEDGER_ENTRIES = pa.schema(
    [
        *_PLACE,
        _COMMIT_LOG_OFFSET,
        column("entry_index", pa.int64(), "number of the entry, from 0"),
        column("term", pa.int64(), "election term in which it was appended"),
        column("topic", pa.string(), "topic of the record in it"),
        column("body_length_bytes", pa.int32(), "length of the record in it"),
        column("body_crc_matches", pa.bool_(), "whether the entry's CRC is that of the record; null where it has none"),
    ]
)

#: An epoch of a replica under a controller (5.0.0+).
EPOCHS = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "file the row was read from"),
        column("epoch", pa.int64(), "number of the epoch: one master's reign"),
        column("begin_offset", pa.int64(), "commit-log offset of its first byte"),
        column("end_offset", pa.int64(), "commit-log offset past its last byte; null of the last epoch"),
    ]
)

#: Every table by the name that commands, Spark and the documentation use.
ALL_TABLES: dict[str, pa.Schema] = {
    "records": RECORDS,
    "queue_slots": QUEUE_SLOTS,
    "halves": HALVES,
    "ops": OPS,
    "transactions": TRANSACTIONS,
    "findings": FINDINGS,
    "cursors": CURSORS,
    "index_entries": INDEX_ENTRIES,
    "checkpoint": CHECKPOINT,
    "segments": SEGMENTS,
    "coverage": COVERAGE,
}

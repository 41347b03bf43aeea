"""The Arrow schemas that all packages exchange: one constant a table, units in column names, null for unknown.

Every row names its origin: `store`, and for a row from one place `file`, `position_bytes`, `length_bytes`.
The sentence that describes a column is kept in its field metadata; `rmqtx explain` and the man pages print it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.model.findings import Finding


def column(name: str, kind: pa.DataType, meaning: str, *, values: Iterable[str] = (), words: str = "") -> pa.Field:
    """Return a field with its description in the metadata.

    `values`: every value of the column, if the list is closed. `words`: the name of the list in
    `rmqtx_cli.options.columns.LISTS`, if the list stands in a module that this one must not import.
    """
    closed = {"values": ",".join(values)} if values else {"words": words} if words else {}
    return pa.field(name, kind, metadata={"meaning": meaning, **closed})


_STORE = column("store", pa.string(), "root directory of the store the row was read from")
_PLACE = [
    _STORE,
    column("file", pa.string(), "file the row was read from"),
    column("position_bytes", pa.int64(), "position of its first byte in the file"),
    column("length_bytes", pa.int32(), "its length in the file"),
]
_COMMIT_LOG_OFFSET = column("commit_log_offset", pa.int64(), "byte offset of the record in the commit log")
_QUEUE_ID = column("queue_id", pa.int32(), "queue number")
_QUEUE_OFFSET = column("queue_offset", pa.int64(), "number of the record in its consume queue")
_STORE_TIME = column("store_time_ms", pa.int64(), "broker clock when the record was appended")
_TRANSACTION_ID = column("transaction_id", pa.string(), "property UNIQ_KEY, the client's message id")
_PRODUCER_GROUP = column("producer_group", pa.string(), "property PGROUP, the group that the check asks")

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
        column("born_time_ms", pa.int64(), "producer clock when the message was created"),
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
        column("reconsume_times", pa.int32(), "failed deliveries before this copy"),
        column(
            "prepared_transaction_offset", pa.int64(),
            "COMMIT record: commit-log offset of the half copy that it commits",
        ),
        column("producer_group", pa.string(), "property PGROUP"),
        column("real_topic", pa.string(), "property REAL_TOPIC, the topic that a commit delivers the half message to"),
        column("real_queue_id", pa.string(), "property REAL_QID"),
        column("checks", pa.string(), "property TRANSACTION_CHECK_TIMES as stored"),
        column("body_length_bytes", pa.int32(), "stored body length"),
        column("body_crc", pa.int64(), "stored CRC-32 of the body, top bit cleared"),
        column("body_crc_matches", pa.bool_(), "whether the stored CRC matches the body; null if it was not computed"),
        column("properties", PROPERTIES, "all properties"),
        column("body", pa.binary(), "the body, decompressed on request; null unless requested"),
    ]
)

QUEUE_SLOTS = pa.schema(
    [
        *_PLACE,
        column("topic", pa.string(), "topic, from the directory or the key"),
        column("queue_id", pa.int32(), "queue number, from the directory or the key"),
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        column("record_length_bytes", pa.int32(), "length of the record that the entry points to"),
        column("tags_code", pa.int64(), "hash of the tag, or the due time in a delayed topic"),
        column(
            "kind", pa.string(), "simple, batch, pre-blank, or rocksdb",
            values=("simple", "batch", "pre-blank", "rocksdb"),
        ),
        column("batch_store_time_ms", pa.int64(), "batch queue: store time of the batch; null in a simple queue"),
        column("batch_size", pa.int16(), "batch queue: messages in the batch"),
        column("extension_address", pa.int64(), "address in the extension file; null if the entry has none"),
    ]
)

#: One half copy, the original or one that was put back. Copies in the discard topic have the same columns.
HALVES = pa.schema(
    [
        *_PLACE,
        column(
            "topic", pa.string(), "half topic; of a discard copy the discard topic; of a prepared record its own topic",
        ),
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("born_time_ms", pa.int64(), "producer clock when the message was created"),
        column("message_id", pa.string(), "offset message id of this copy"),
        _TRANSACTION_ID,
        _PRODUCER_GROUP,
        column(
            "real_topic", pa.string(), "topic that a commit delivers to: REAL_TOPIC, or a prepared record's own topic",
        ),
        column(
            "real_queue_id", pa.int32(), "queue that a commit delivers to: REAL_QID, or a prepared record's own queue",
        ),
        column("keys", pa.string(), "property KEYS"),
        column("checks_count", pa.int32(), "property TRANSACTION_CHECK_TIMES; null for a copy that was never checked"),
        column("immunity_seconds", pa.int64(), "property CHECK_IMMUNITY_TIME_IN_SECONDS"),
        column(
            "prepared_queue_offset", pa.int64(),
            "property TRAN_PREPARED_QUEUE_OFFSET of a copy put back during its immunity",
        ),
        column(
            "has_transaction_property", pa.bool_(),
            "whether the copy has the property __transactionId__ (brokers from 5.1.0)",
        ),
        column("sys_flag", pa.int32(), "system flag bits"),
        column("body_length_bytes", pa.int32(), "stored body length"),
        column(
            "body_is_readable", pa.bool_(),
            "false if the flag marks the body as compressed and it cannot be decompressed",
        ),
    ]
)

OPS = pa.schema(
    [
        *_PLACE,
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("tags", pa.string(), "property TAGS; the check reads op messages tagged d"),
        column(
            "body_form", pa.string(),
            "single (one number, to 5.0.0), list (from 5.1.0), offset (of a transaction in RocksDB), or unreadable",
            values=("single", "list", "offset", "unreadable"),
        ),
        column(
            "half_queue_offsets", pa.list_(pa.int64()),
            "queue offsets of the half copies that the op message marks as settled",
        ),
        column(
            "half_commit_log_offset", pa.int64(),
            "transactions in RocksDB: commit-log offset of the settled half message, property TRANS_OFFSET; else null",
        ),
    ]
)

#: A record whose system flag is COMMIT.
FINALS = pa.schema(
    [
        *_PLACE,
        column("topic", pa.string(), "topic of the COMMIT record"),
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("born_time_ms", pa.int64(), "producer clock when the message was created"),
        column("prepared_transaction_offset", pa.int64(), "commit-log offset of the committed half copy"),
        column("prepared_message_id", pa.string(), "offset message id of the committed half copy"),
        _TRANSACTION_ID,
        _PRODUCER_GROUP,
        column("keys", pa.string(), "property KEYS"),
    ]
)

#: One half queue offset of one op message; or a record that settles one half message by its commit-log offset: the op
#: message of a transaction in RocksDB, the ROLLBACK record of a design before 4.3.
MARKS = pa.schema(
    [
        _STORE,
        _QUEUE_ID,
        _QUEUE_OFFSET,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("half_queue_offset", pa.int64(), "the half queue offset that the op message lists"),
        column("repetition", pa.int32(), "0 for the first time that the op message lists it, 1 for the second"),
        column(
            "half_commit_log_offset", pa.int64(),
            "commit-log offset of the settled half message; null if the op message lists queue offsets",
        ),
    ]
)


def _evidence(*fields: pa.Field) -> pa.DataType:
    return pa.list_(pa.struct([_STORE, *fields]))


HALF_COPY = _evidence(
    _QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET, _STORE_TIME,
    column("checks_count", pa.int32(), "checks made before this copy was written"),
)
OP_MARK = _evidence(
    _QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET,
    column(
        "half_queue_offset", pa.int64(),
        "the half queue offset that the op message lists; null if it has a commit-log offset",
    ),
    _STORE_TIME,
)
FINAL_RECORD = _evidence(
    column("topic", pa.string(), "topic of the COMMIT record"), _QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET,
    _STORE_TIME,
    column(
        "prepared_transaction_offset", pa.int64(),
        "commit-log offset of the copy that the decision names; null if the record does not show it",
    ),
)
DISCARD_COPY = _evidence(_QUEUE_ID, _QUEUE_OFFSET, _COMMIT_LOG_OFFSET, _STORE_TIME)
STATE_ENTRY = _evidence(
    column(
        "kind", pa.string(), "statetable, redolog, database or rocksdb",
        values=("statetable", "redolog", "database", "rocksdb"),
    ),
    column("key", pa.string(), "key in the table"),
    column("value", pa.string(), "value in the table"),
    column("position_bytes", pa.int64(), "position in the table's file"),
)

#: Entries of the state table, redo log, database or RocksDB table that refer to half copies: one row an entry.
STATE_ENTRIES = pa.schema(
    [
        _STORE,
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the half message that the entry refers to"),
        *list(STATE_ENTRY.value_type)[1:],
    ]
)

TRANSACTIONS = pa.schema(
    [
        _STORE,
        column(
            "transaction_id", pa.string(),
            "UNIQ_KEY, or the offset message id of the first copy if there is no UNIQ_KEY; never null",
        ),
        column("state", pa.string(), "PENDING, COMMITTED, ROLLED_BACK, DISCARDED, LOST or UNDECIDABLE", words="states"),
        column("flags", pa.list_(pa.string()), "what is unusual about the transaction", words="flags"),
        column("reason", pa.string(), "why the transaction has this state"),
        column("advice", pa.string(), "close, decide, resume, wait or none", words="advice"),
        _PRODUCER_GROUP,
        column("topic", pa.string(), "the real topic, which a commit delivers to"),
        column("queue_id", pa.int32(), "the real queue number"),
        column("keys", pa.string(), "business keys"),
        column("born_time_ms", pa.int64(), "producer clock when the message was created"),
        column("half_store_time_ms", pa.int64(), "broker clock at the first half copy"),
        column(
            "decided_time_ms", pa.int64(),
            "broker clock at the record that decided or discarded it; null while it is open",
        ),
        column("checks_count", pa.int32(), "checks made, the highest count of any copy; null if none are counted"),
        column("half_copies", HALF_COPY, "every half copy, or prepared record, in log order"),
        column("op_marks", OP_MARK, "every op mark, or ROLLBACK record, that settles one of its copies"),
        column("final_records", FINAL_RECORD, "every COMMIT record of the transaction"),
        column("discard_copies", DISCARD_COPY, "copies of the transaction in the discard topic"),
        column("state_entries", STATE_ENTRY, "entries of tables beside the log; empty in the half and op topic design"),
        column(
            "discard_at_ms", pa.int64(),
            "time at which the broker discards the transaction if no decision arrives first; null if the broker never "
            "discards it, or if the time cannot be predicted (rmqtx show gives the reason)",
        ),
        column(
            "deliveries_count", pa.int64(),
            "how often the message was delivered: the number of COMMIT records; null if the state is UNDECIDABLE, or "
            "if a part of the log that is missing or expired may hold another COMMIT record",
        ),
        column("reason_code", pa.string(), "the reason as a stable code", words="reasons"),
        column(
            "causes", pa.list_(pa.string()),
            "why the transaction is unusual: the words of the causes that explain it, then, with a ? at the end, of "
            "those that only could; empty if none fits. Without causes of whole producer groups, which rmqtx diagnose "
            "finds; null for a past time (rmqtx explain WORD)",
            words="causes_found",
        ),
        column(
            "next_event", pa.string(),
            "what the next start and the check of the broker do next with an open transaction: a producer is asked "
            "(asked), a copy is put back without asking (put_back), it is discarded because of its age (expired) "
            "or its checks (discarded), dropped from RocksDB (dropped), never read (skipped), not reached because the "
            "check stops before it (stopped), cut off by the next start (cut); none: nothing; null for a past time, "
            "and in rows of rmqtx follow",
            values=(
                "asked", "put_back", "expired", "discarded", "dropped", "skipped", "stopped", "cut", "unknown", "none",
            ),
        ),
        column(
            "next_event_at_ms", pa.int64(),
            "when the next event happens; of a stopped broker, if it starts now; null without one, or if its time is "
            "not known",
        ),
        column(
            "answer_effect", pa.string(),
            "what the answer COMMIT of a producer that is asked does: deliver or deliver_again; null if none is asked",
            values=("deliver", "deliver_again"),
        ),
    ]
)

#: What happens next, which depends on the moment of reading: null for a past time, and left out of tables that grow.
FUTURE_COLUMNS = ("discard_at_ms", "next_event", "next_event_at_ms", "answer_effect")

#: What a change of a verdict is: the first verdict, another state, another part of the verdict, or no verdict.
CHANGE_NEW, CHANGE_STATE, CHANGE_DETAILS, CHANGE_GONE = "new", "state", "details", "gone"
#: A stream: each row is a verdict that is new or has changed, with all its evidence.
VERDICT_CHANGES = pa.schema(
    [
        column("sequence", pa.int64(), "number of the change in its stream, without gaps"),
        column("changed_at_ms", pa.int64(), "reader's clock when the verdict was found"),
        column(
            "change", pa.string(),
            "new: the first verdict on the transaction; state: another state; details: the same state with other "
            "flags, advice, causes or evidence; gone: a new audit no longer finds the transaction, because its files "
            "expired",
            values=(CHANGE_NEW, CHANGE_STATE, CHANGE_DETAILS, CHANGE_GONE),
        ),
        column("state_before", pa.string(), "the state before the change; null for a new transaction", words="states"),
        *(field for field in TRANSACTIONS if field.name not in FUTURE_COLUMNS),
    ]
)

#: What a broker asks about the transactions of a group: a producer, a proxy in place of its clients, or nothing.
PRODUCER, PROXY, NOBODY = "producer", "proxy", "nobody"
#: Columns that only live brokers can fill.
_PRODUCER_ALIVE = column(
    "producer_alive", pa.bool_(),
    "whether a producer of the group is connected to the broker and can answer its checks; null if unknown, as behind "
    "a proxy",
)
_ASKED_THROUGH = column(
    "asked_through", pa.string(),
    "where the broker sends the checks of the group: to a producer that is connected, to a proxy in place of the "
    "clients behind it, or nowhere; null if unknown",
    values=(PRODUCER, PROXY, NOBODY),
)
_ADDED_LATER = TRANSACTIONS.get_field_index("discard_at_ms")
LIVE_TRANSACTIONS = TRANSACTIONS.insert(_ADDED_LATER, _PRODUCER_ALIVE).append(_ASKED_THROUGH)

FINDINGS = pa.schema(
    [
        _STORE,
        column("code", pa.string(), "stable name of the kind of finding", words="findings"),
        column("severity", pa.string(), "error, warning or note", values=tuple(Severity)),
        column("file", pa.string(), "file that the finding is about"),
        column("position_bytes", pa.int64(), "position of the first affected byte in the file"),
        column("length_bytes", pa.int64(), "number of affected bytes"),
        column("commit_log_offset", pa.int64(), "commit-log offset of the first affected byte; null if there is none"),
        column("expected", pa.string(), "the expected value or state"),
        column("actual", pa.string(), "what was found"),
        column("meaning", pa.string(), "what follows for transactions"),
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
        column("next_queue_offset", pa.int64(), "queue offset of the next slot that the group will read"),
    ]
)

INDEX_ENTRIES = pa.schema(
    [
        *_PLACE,
        column("entry_number", pa.int32(), "number of the entry in its file, from 1"),
        column("key_hash", pa.int32(), "absolute Java hash of topic#key"),
        _COMMIT_LOG_OFFSET,
        column("store_time_ms", pa.int64(), "store time of the record, computed from the entry, in whole seconds"),
        column(
            "previous_entry_number", pa.int32(), "number of the next older entry in the same slot; 0 ends the chain",
        ),
    ]
)

CHECKPOINT = pa.schema(
    [
        *_PLACE,
        column("field", pa.string(), "name of the value"),
        column("value", pa.int64(), "the value"),
        column("time_ms", pa.int64(), "the value if it is a time; else null"),
        column("meaning", pa.string(), "what the value is"),
        column("since", pa.string(), "first broker version that writes it"),
    ]
)

#: A slot of the state table of 3.0 and 3.1.
STATE_TABLE = pa.schema(
    [
        *_PLACE,
        column(
            "slot_number", pa.int64(),
            "number of the slot; the prepared record has the same number as its queue offset",
        ),
        column("commit_log_offset", pa.int64(), "commit-log offset of the prepared record"),
        column("record_length_bytes", pa.int32(), "length of the prepared record"),
        column("store_time_ms", pa.int64(), "broker clock when the prepared record was appended, in whole seconds"),
        column(
            "producer_group_hash", pa.int32(),
            "Java hash of the producer group; the broker's check finds producers by this hash",
        ),
        column(
            "state", pa.string(),
            "PREPARED while the broker asks the producer, then the first decision: COMMIT or ROLLBACK",
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
        column(
            "tags_code", pa.int64(),
            "-1 for a prepared record, else the commit-log offset of the prepared record that was decided",
        ),
        column("kind", pa.string(), "PREPARED, or END for a COMMIT or ROLLBACK record", values=("PREPARED", "END")),
        column(
            "half_commit_log_offset", pa.int64(), "commit-log offset of the prepared record that the entry refers to",
        ),
    ]
)

SEGMENTS = pa.schema(
    [
        _STORE,
        column("kind", pa.string(), "commitlog, consumequeue, consumequeue_ext, batchconsumequeue or index"),
        column("topic", pa.string(), "topic, for queues"),
        column("queue_id", pa.int32(), "queue number, for queues"),
        column("file", pa.string(), "the file"),
        column("base_offset", pa.int64(), "offset of its first byte in its own log, taken from the file name"),
        column("size_bytes", pa.int64(), "length when the snapshot was taken"),
    ]
)

#: How the bytes of a file were read: decoded + filler + damaged + unread = size.
COVERAGE = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "the file"),
        column("size_bytes", pa.int64(), "length when the snapshot was taken"),
        column("decoded_bytes", pa.int64(), "bytes of intact structures"),
        column("filler_bytes", pa.int64(), "bytes of blank records, preallocated space and unused entries"),
        column("damaged_bytes", pa.int64(), "bytes that match no layout"),
        column("unread_bytes", pa.int64(), "bytes outside the requested bounds"),
    ]
)

#: An entry of the column family `trans` of `rocksdbstore` (5.4.0+): a half message that the broker's check will reach.
ROCKSDB_TRANSACTIONS = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "directory of the database"),
        column("half_commit_log_offset", pa.int64(), "commit-log offset of the half message"),
        column("topic", pa.string(), "the real topic; null if the broker cannot read the key and skips the entry"),
        column("transaction_id", pa.string(), "property __transactionId__; null if the broker cannot read the key"),
        column("checks_count", pa.int32(), "checks sent until the last flush of the database"),
        column("record_length_bytes", pa.int32(), "length of the half message"),
        column("key", pa.string(), "the key, with its first eight bytes as a number"),
    ]
)

#: An entry of a DLedger commit log (4.5.0+): the frame of one record.
DLEDGER_ENTRIES = pa.schema(
    [
        *_PLACE,
        _COMMIT_LOG_OFFSET,
        column("entry_index", pa.int64(), "number of the entry, from 0"),
        column("term", pa.int64(), "election term in which the entry was appended"),
        column("topic", pa.string(), "topic of the record in the entry"),
        column("body_length_bytes", pa.int32(), "length of the record in the entry"),
        column(
            "body_crc_matches", pa.bool_(), "whether the entry's CRC matches the record; null if the entry has no CRC",
        ),
    ]
)

#: A line of a message trace (client 4.9.0+): what a producer wrote about one of its transactions.
TRACES = pa.schema(
    [
        *_PLACE,
        _COMMIT_LOG_OFFSET,
        _STORE_TIME,
        column("line_number", pa.int32(), "number of the line in its record, from 0"),
        column(
            "kind", pa.string(), "sent (the half message was sent), or decided (the producer decided, or answered a "
            "check; written before the request is sent)", values=("sent", "decided"),
        ),
        column("time_ms", pa.int64(), "producer clock at the event"),
        column("transaction_id", pa.string(), "property UNIQ_KEY of the message"),
        _PRODUCER_GROUP,
        column("topic", pa.string(), "the real topic"),
        column("keys", pa.string(), "business keys"),
        column("tags", pa.string(), "property TAGS"),
        column(
            "decision", pa.string(), "what the producer decided: COMMIT, ROLLBACK or UNKNOWN; null for sent",
            values=("COMMIT", "ROLLBACK", "UNKNOWN"),
        ),
        column("is_check_answer", pa.bool_(), "whether it is the answer to a check, not the first decision"),
        column("broker", pa.string(), "address of the broker that the producer used"),
        column("born_host", pa.string(), "address from which the trace was sent; the line itself has none"),
        column("message_id", pa.string(), "offset message id of the half message; null for decided"),
        column("is_success", pa.bool_(), "whether the half message was stored; null for decided"),
        column("cost_ms", pa.int32(), "how long sending took"),
        column("body_length_bytes", pa.int32(), "length of the body before compression"),
    ]
)

#: An epoch of a replica under a controller (5.0.0+).
EPOCHS = pa.schema(
    [
        _STORE,
        column("file", pa.string(), "file the row was read from"),
        column("epoch", pa.int64(), "number of the epoch: the time during which one replica was master"),
        column("begin_offset", pa.int64(), "commit-log offset of its first byte"),
        column("end_offset", pa.int64(), "commit-log offset past its last byte; null for the last epoch"),
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
    "traces": TRACES,
}


def findings_table(findings: list[Finding]) -> pa.Table:
    """Return the rows of FINDINGS, in the given order."""
    rows = [
        {
            "store": f.store,
            "code": f.code,
            "severity": f.kind.severity,
            "file": f.file,
            "position_bytes": f.position_bytes,
            "length_bytes": f.length_bytes,
            "commit_log_offset": f.commit_log_offset,
            "expected": f.expected,
            "actual": f.actual,
            "meaning": f.meaning or f.kind.meaning,
            "advice": f.advice or f.kind.advice or None,
        }
        for f in findings
    ]
    return pa.Table.from_pylist(rows, schema=FINDINGS)

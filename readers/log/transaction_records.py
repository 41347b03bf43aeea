"""Find half copies, op messages, COMMIT records (finals) and discard copies in blocks of records.

The half copies of other designs are prepared records (before 4.3) and half messages of transactions in RocksDB.

A half message is an ordinary record of the half topic; the check appends a copy of it; an op message lists queue
offsets of half copies that are settled; a final is the COMMIT record in the real topic; a copy in the discard topic
shows that the broker discarded the half message. (TransactionalMessageBridge, TransactionalMessageServiceImpl;
docs/formats/half_and_op.md#topics.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log import compression
from rmqtx.readers.log.commit_log import record_columns, scan_segments
from rmqtx.readers.log.op_messages import op_findings, ops_of, rocksdb_marks, rollback_marks
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback, prepared_names
from rmqtx.readers.log.properties import (
    CHECK_TIMES,
    HALF_MARK,
    IMMUNITY,
    KEYS,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, COMPRESSED, CRC_MASK, PREPARED, TRANSACTION_MASK
from rmqtx.readers.model.columns import Bools, Int64s, integers
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import WHOLE, Bounds, Coverage, Reading
from rmqtx.readers.model.tables import FINALS, HALVES, OPS
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANSACTION_TOPICS,
    WAITING_TOPICS,
    Store,
)

_Column = Callable[[Block], pa.Array]
#: Columns of HALVES and FINALS that are not columns of RECORDS.
_HALF_COLUMNS: dict[str, _Column] = {
    "real_topic": lambda block: real_topics(block),
    "real_queue_id": lambda block: integers(
        _own_where_prepared(block, REAL_QUEUE_ID, lambda rows: pa.array(rows.header("queue_id")).cast(pa.string())),
        pa.int32(),
    ),
    "checks_count": lambda block: integers(block.properties.text(CHECK_TIMES), pa.int32()),
    "immunity_seconds": lambda block: integers(block.properties.text(IMMUNITY), pa.int64()),
    "prepared_queue_offset": lambda block: integers(block.properties.text(PREPARED_QUEUE_OFFSET), pa.int64()),
    "has_transaction_property": lambda block: pa.array(block.properties.locate(TRANSACTION_ID)[2]),
    "is_indexed": lambda block: _are_indexed(block),
    "body_is_readable": lambda block: pa.array(_bodies_are_readable(block)),
    "fingerprint": lambda block: _lone(block, _fingerprints),
    "lone_message_id": lambda block: _lone(block, Block.message_ids),
    "named_commit_log_offset": lambda block: _named_by_commits(block),
    "store_host_number": lambda block: pa.array(block.store_host_numbers()),
    "prepared_message_id": lambda block: block.message_ids_of(_prepared_offsets(block)),
    "lone_prepared_id": lambda block: _lone(block, lambda rows: rows.message_ids_of(_prepared_offsets(rows))),
}
#: No named place, or not a COMMIT or ROLLBACK record.
NO_PLACE = -1


def _prepared_offsets(block: Block) -> Int64s:
    return block.header("prepared_transaction_offset")


def _named_by_commits(block: Block) -> pa.Array:
    """Return the offset that the COMMIT record of a diverted half message names; null for any other half message."""
    named = named_offsets(block)
    return pa.array(named, mask=named == NO_PLACE)


def _lone(block: Block, make: Callable[[Block], pa.Array]) -> pa.Array:
    """Return a column for the few records without UNIQ_KEY; null for the others."""
    rows = (~block.properties.locate(UNIQ_KEY)[2]).nonzero()[0]
    if not len(rows):
        return pa.nulls(len(block), pa.string())
    places = np.full(len(block), -1, np.int64)
    places[rows] = np.arange(len(rows))
    return make(block.take(rows)).take(pa.array(places, mask=places < 0))


def real_topics(block: Block) -> pa.Array:
    """Return the topic that a commit of each half copy delivers to."""
    return _own_where_prepared(block, REAL_TOPIC, Block.topic_texts)


def _own_where_prepared(block: Block, name: str, own: Callable[[Block], pa.Array]) -> pa.Array:
    """Return a property; for a prepared record, which is in its real topic and queue, its header field."""
    values = block.properties.text(name)
    prepared = is_prepared(block)
    return pc.if_else(pa.array(prepared), own(block), values) if prepared.any() else values


def _are_indexed(block: Block) -> pa.Array:
    """Whether the broker adds a half message to its RocksDB table, and so checks it; null for other designs."""
    rows = block.topic_is(ROCKSDB_HALF_TOPIC)
    if not rows.any():
        return pa.nulls(len(block), pa.bool_())
    has = block.properties.locate(TRANSACTION_ID)[2] & block.properties.locate(REAL_TOPIC)[2]
    return pa.array(has, mask=~rows)


def _fingerprints(alone: Block) -> pa.Array:
    """Return an identity that is equal for all copies of a message without UNIQ_KEY and its COMMIT record.

    A copy that was put back has the body, the born time and host, and the properties of the message. A prepared record
    has no copies: the record and its decision are identified by its place.
    """
    return pc.coalesce(prepared_names(alone), _shared_words(alone))


def _shared_words(alone: Block) -> pa.Array:
    return pc.binary_join_element_wise(
        pa.array(alone.header("born_time_ms")).cast(pa.string()), alone.born_hosts(),
        pa.array(_inflated_crcs(alone)).cast(pa.string()),
        *(alone.properties.text(name) for name in (PRODUCER_GROUP, KEYS)),
        " ", null_handling="replace", null_replacement="",
    )


def _inflated_crcs(block: Block) -> Int64s:
    """Return the CRC of each body, of a compressed one that of its contents, which copies have before 4.6.0.

    Source: common/UtilAll.java crc32; docs/formats/half_and_op.md#inflated-copy.
    """
    crcs = block.header("body_crc").astype(np.int64)
    for row in np.flatnonzero(block.sys_flag & COMPRESSED).tolist():
        start, length = int(block.body_starts[row]), int(block.body_lengths[row])
        inflated = compression.inflate(block.data[start : start + length].tobytes(), int(block.sys_flag[row]))
        crcs[row] = crcs[row] if inflated is None else zlib.crc32(inflated) & CRC_MASK
    return crcs


def _rows(block: Block, store: str, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a witness table: the given columns, and columns of the record for the rest."""
    of_record = [name for name in schema.names if name not in _HALF_COLUMNS]
    columns = dict(zip(of_record, record_columns(block, store, of_record), strict=True))
    arrays = [columns[name] if name in columns else _HALF_COLUMNS[name](block) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _judged(schema: pa.Schema, names: tuple[str, ...], *more: pa.Field) -> pa.Schema:
    return pa.schema([*(schema.field(name) for name in names), pa.field("fingerprint", pa.string()), *more])


#: The columns of HALVES and FINALS that verdicts need, and the identity of records without UNIQ_KEY.
JUDGED_HALVES = _judged(
    HALVES,
    (
        "store", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms", "born_time_ms",
        "transaction_id", "producer_group", "real_topic", "real_queue_id", "keys", "checks_count", "immunity_seconds",
        "prepared_queue_offset", "body_is_readable",
    ),
    pa.field("lone_message_id", pa.string()),
    pa.field("named_commit_log_offset", pa.int64()),
    pa.field("store_host_number", pa.int64()),
    pa.field("is_indexed", pa.bool_()),
)
JUDGED_FINALS = _judged(
    FINALS,
    (
        "store", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms", "born_time_ms",
        "prepared_transaction_offset", "transaction_id", "producer_group", "keys",
    ),
    pa.field("lone_prepared_id", pa.string()),
)


def halves_of(block: Block, store: str, schema: pa.Schema = HALVES) -> pa.RecordBatch:
    """Return the records of a block, which are half or discard copies, as rows of HALVES."""
    return _rows(block, store, schema)


def _bodies_are_readable(block: Block) -> Bools:
    """Return false for a body with the flag for compression that does not begin like a compressed stream.

    Brokers before 4.6.0 put half messages back decompressed under the old flag
    (docs/formats/half_and_op.md#inflated-copy).
    """
    readable = np.ones(len(block), np.bool_)
    for row in np.flatnonzero(block.sys_flag & COMPRESSED).tolist():
        start, length = int(block.body_starts[row]), int(block.body_lengths[row])
        head = block.data[start : start + min(4, length)].tobytes()
        readable[row] = compression.is_stream(head, int(block.sys_flag[row]))
    return readable


def finals_of(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are COMMIT records, as rows of JUDGED_FINALS."""
    return _rows(block, store, JUDGED_FINALS)


def is_final(block: Block) -> Bools:
    """Return which records are COMMIT records that reach, or will reach, a real topic; redeliveries are not.

    A message that a consumer sent back keeps the flag, but names no copy. The COMMIT record of a diverted half message
    goes to the half topic again (docs/formats/half_and_op.md#delayed-half): no consumer receives it.
    The header has no CRC, so no single field decides: a record that names a copy and has the properties of a final is a
    final with any flag (designs before 4.3 have no REAL_TOPIC); without a named copy the flag is not enough.
    """
    finals = np.zeros(len(block), np.bool_)
    rows, _, own = _candidates(block)
    finals[rows[own]] = True
    return finals


def are_damaged_finals(block: Block) -> Bools:
    """Return which records have the flag of a final, name no copy, and contradict themselves in header or properties.

    If the half is the first record of the log, its COMMIT record has prepared offset 0, which otherwise stands for no
    reference: only its flag makes it a final, so one damaged byte of its topic or of its deliveries would make it a
    message of no transaction.
    """
    found: Bools = (block.sys_flag & TRANSACTION_MASK == COMMIT) & (block.body_lengths > 0)
    if not found.any():
        return found
    found &= block.header("prepared_transaction_offset") == 0
    rows = np.flatnonzero(found)
    if not len(rows):
        return found
    alone = block.take(rows)
    later = np.zeros(len(alone), np.bool_)  # properties of 4.3 and later
    for name in (REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_ID):
        later |= alone.properties.locate(name)[2]
    found[rows] = (alone.properties.locate(PRODUCER_GROUP)[2] & later) | alone.properties.malformed()
    found[rows] &= alone.data[alone.topic_starts] != ord("%")  # %RETRY%, %DLQ%
    for topic in (*TRANSACTION_TOPICS, *WAITING_TOPICS):
        found[rows] &= ~alone.topic_is(topic)
    return found & ~is_final(block) if found.any() else found


def _finals_in(block: Block) -> Block:
    """Return the records that `is_final` selects; if all candidates are, their block with its looked-up properties."""
    _, candidates, own = _candidates(block)
    return candidates if own.all() else candidates.take(own)


def _candidates(block: Block) -> tuple[Int64s, Block, Bools]:
    """Return the records that have the flag of a final or name a copy: their rows, a block, and which are finals."""
    kinds = block.sys_flag & TRANSACTION_MASK
    flagged = kinds == COMMIT
    names_copy = block.header("prepared_transaction_offset") != 0
    rows = (flagged | names_copy).nonzero()[0]
    candidates = block.take(rows)
    if not len(rows):
        return rows, candidates, np.zeros(0, np.bool_)
    flagged, names_copy = flagged[rows], names_copy[rows]
    has_body = candidates.body_lengths > 0
    is_first = candidates.header("reconsume_times") == 0
    own = ~is_delayed_half(candidates)
    for topic in TRANSACTION_TOPICS:
        own &= ~candidates.topic_is(topic)
    doubtful = np.flatnonzero(own & ~(flagged & names_copy & is_first & has_body))
    if len(doubtful):
        alone = candidates.take(doubtful)
        words = (PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_ID, HALF_MARK)
        has = {name: alone.properties.locate(name)[2] for name in words}
        # Before 4.3 finals and ROLLBACK records have TRAN_MSG; a ROLLBACK record has no body.
        is_old = has[HALF_MARK] & ~has[REAL_TOPIC] & ~has[TRANSACTION_ID]
        is_old_final = is_old & has_body[doubtful] & (kinds[rows][doubtful] != PREPARED)
        is_sent_back = alone.data[alone.topic_starts] == ord("%")  # %RETRY%, %DLQ%
        for topic in WAITING_TOPICS:
            is_sent_back |= alone.topic_is(topic) & ~is_first[doubtful]
        own[doubtful] = has[PRODUCER_GROUP] & np.where(
            names_copy[doubtful],
            ~is_sent_back
            & ((flagged[doubtful] & ~is_old) | has[REAL_TOPIC] | has[TRANSACTION_ID] | is_old_final),
            is_first[doubtful],
        )
    own &= ~_is_elsewhere(candidates, own, names_copy)
    return rows, candidates, own


def _is_elsewhere(block: Block, rows: Bools, names_copy: Bools) -> Bools:
    """Return which COMMIT records are not in the topic of their properties, because their topic is damaged.

    A delayed final is in its REAL_TOPIC after its delay; otherwise the record is a discard copy. A record that names a
    copy goes to the half topic again if that is its REAL_TOPIC (the COMMIT record of a diverted half message); else it
    is a final in any topic, because a discard copy names no copy.
    Source: EndTransactionProcessor.endMessageTransaction, ScheduleMessageService.messageTimeup.
    """
    found = np.zeros(len(block), np.bool_)
    _, lengths, has = block.properties.locate(REAL_TOPIC)
    may_be_half = np.isin(lengths, [len(topic) for topic in HALF_TOPICS])
    chosen = np.flatnonzero(rows & has & (may_be_half | ~names_copy) & (block.data[block.topic_starts] != ord("%")))
    if not len(chosen):
        return found
    alone = block.take(chosen)
    is_waiting = alone.topic_is(WAITING_TOPICS[0]) | alone.topic_is(WAITING_TOPICS[1])
    chosen, alone = chosen[~is_waiting], alone.take(~is_waiting)
    if len(alone):
        real_topics = alone.properties.text(REAL_TOPIC)
        differs = np.asarray(pc.fill_null(pc.not_equal(real_topics, alone.topic_texts()), False))
        is_half = np.asarray(pc.is_in(real_topics, value_set=pa.array(HALF_TOPICS)))
        found[chosen] = differs & (is_half | ~names_copy[chosen])
    return found


def witnesses_of(block: Block, store: str) -> dict[str, pa.RecordBatch]:
    """Return the witnesses among the records of a block by kind; only kinds that occur.

    Shape: halves JUDGED_HALVES, ops OPS, finals JUDGED_FINALS, discards JUDGED_HALVES, offset_marks OFFSET_MARKS.
    """
    found: dict[str, pa.RecordBatch] = {}
    is_half = are_halves(block) | is_delayed_half(block)
    if is_half.any():
        found["halves"] = halves_of(block.take(is_half), store, JUDGED_HALVES)
    is_op = block.topic_is(OP_TOPIC)
    if is_op.any():
        found["ops"] = ops_of(block.take(is_op), store)
    finals = _finals_in(block)
    if len(finals):
        found["finals"] = finals_of(finals, store)
    is_discard = block.topic_is(DISCARD_TOPIC)
    if is_discard.any():
        found["discards"] = halves_of(block.take(is_discard), store, JUDGED_HALVES)
    marks = [
        make(block.take(rows), store)
        for rows, make in ((is_rollback(block), rollback_marks), (block.topic_is(ROCKSDB_OP_TOPIC), rocksdb_marks))
        if rows.any()
    ]
    if marks:
        found["offset_marks"] = marks[0] if len(marks) == 1 else pa.concat_batches(marks)
    return found


def are_halves(block: Block) -> Bools:
    """Return which records are half copies of any design: records of a half topic, and prepared records."""
    return block.topic_is(HALF_TOPIC) | block.topic_is(ROCKSDB_HALF_TOPIC) | is_prepared(block)


def are_ops(block: Block) -> Bools:
    """Return which records are op messages, of the half topic or of transactions in RocksDB."""
    return block.topic_is(OP_TOPIC) | block.topic_is(ROCKSDB_OP_TOPIC)


def is_delayed_half(block: Block) -> Bools:
    """Return which records are half messages that a delay or timer property diverted from the half topic.

    Their REAL_TOPIC is the half topic: the true topic is lost (docs/formats/half_and_op.md#delayed-half).
    """
    waiting = np.zeros(len(block), np.bool_)
    for topic in WAITING_TOPICS:
        waiting |= block.topic_is(topic)
    rows = np.flatnonzero(waiting)
    if len(rows):
        real_topics = block.take(rows).properties.text(REAL_TOPIC)
        half_topics = pa.array(HALF_TOPICS)
        waiting[rows] = np.asarray(pc.is_in(real_topics, value_set=half_topics))
    return waiting


def scan_halves(store: Store, bounds: Bounds = WHOLE) -> Reading:
    """Return every half copy of the log, or of a range of commit-log offsets or store times, as rows of HALVES.

    Prepared records of designs before 4.3 and half messages of transactions in RocksDB are half copies too.
    Order: commit-log offset ascending.
    """
    return _scan(store, are_halves, halves_of, HALVES, bounds)


def scan_ops(store: Store, bounds: Bounds = WHOLE) -> Reading:
    """Return every op message of the log, or of a range of commit-log offsets or store times, as rows of OPS.

    Order:  commit-log offset ascending.
    Damage: an unreadable body is a finding and still a row.
    """
    return _scan(store, are_ops, ops_of, OPS, bounds)


def _scan(
    store: Store, are_chosen: Callable[[Block], Bools], make: Callable[[Block, str], pa.RecordBatch],
    schema: pa.Schema, bounds: Bounds,
) -> Reading:
    findings: list[Finding] = list(store.findings)
    coverage: list[Coverage] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for block in scan_segments(
            store, findings, coverage, from_offset=bounds.from_offset, to_offset=bounds.to_offset
        ):
            chosen = block.take(are_chosen(block)).within(bounds.from_time_ms, bounds.to_time_ms)
            if len(chosen):
                rows = make(chosen, store.root)
                if schema is OPS:
                    findings.extend(op_findings(rows, store.root))
                yield rows

    return Reading(schema, batches(), findings, coverage)


def named_offsets(block: Block) -> Int64s:
    """Return the commit-log offset that each record names; NO_PLACE if it names none.

    The offset 0 in a record usually stands for no name. Only a COMMIT record in the half topic with 0 names the log's
    first record: a half message that was diverted by a delay or a timer, whose COMMIT record is written to the half
    topic (seen on 5.3.0). If the check puts this COMMIT record back, the copy has the same flag and a count of checks,
    and names nothing.
    """
    named: Int64s = block.header("prepared_transaction_offset").astype(np.int64)
    rows = np.flatnonzero(named == 0)
    if not len(rows):
        return named
    named = named.copy()
    named[rows] = NO_PLACE
    rows = rows[block.sys_flag[rows] & TRANSACTION_MASK == COMMIT]
    if len(rows):
        alone = block.take(rows)
        named[rows[alone.topic_is(HALF_TOPIC) & ~alone.properties.locate(CHECK_TIMES)[2]]] = 0
    return named

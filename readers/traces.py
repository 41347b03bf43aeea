"""The lines of a message trace: what a Java producer wrote about a transaction when it sent it and when it decided it.

A trace record has a text body: fields end with byte 01, lines with byte 02, in the order of events; lines of several
transactions are mixed. A producer writes the line of a decision before it sends END_TRANSACTION, so the line is there
even if the request never arrived; that it is missing shows nothing (docs/formats/traces.md).

Their rows are read from the records of the trace topic.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from rmqtx.readers.log.commit_log import record_columns, scan_segments
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.reading import WHOLE, Bounds, Coverage, Note, NoteKind, Reading
from rmqtx.readers.model.tables import TRACES
from rmqtx.readers.store.store import TRACE_TOPIC, Store

FIELD_END, LINE_END = "\x01", "\x02"
#: The text that a client writes for a property that the message lacks.
_ABSENT = "null"
#: The message type of a half message in a line `Pub`.
_HALF = "1"

#: The fields of a line that reports a sent message, in order. Older clients end with `message_type` and
#: `is_success`; later `client_host` may follow.
#: Source: client/trace/TraceDataEncoder.java encoderFromContextBean, decoderFromTraceDataString.
SENT_FIELDS = (
    "line", "time_ms", "region", "producer_group", "topic", "transaction_id", "tags", "keys", "broker",
    "body_length_bytes", "cost_ms", "message_type", "message_id", "is_success",
)
#: The fields of a line that reports a decision (4.9.0+).
DECIDED_FIELDS = (
    "line", "time_ms", "region", "producer_group", "topic", "transaction_id", "tags", "keys", "broker", "message_type",
    "transaction_id_again", "decision", "is_check_answer",
)
#: Lines about consumers, and about timers that were recalled.
_OTHER_LINES = frozenset({"SubBefore", "SubAfter", "Recall"})
#: Where lines of both kinds have the id.
_ID_PLACE = SENT_FIELDS.index("transaction_id")
#: No clock has this time; differences of such times have 64 bits.
_TIME_MS_END = 1 << 62
_WITHOUT_MESSAGE_ID = len(SENT_FIELDS) - 1
#: Columns of the record.
_OF_RECORD = ["store", "file", "position_bytes", "length_bytes", "commit_log_offset", "store_time_ms", "born_host"]
_OF_LINE = [name for name in TRACES.names if name not in (*_OF_RECORD, "line_number")]
_NUMBERS_SHOWN = 10


class TraceKind(StrEnum):
    """What a line of a trace reports."""

    SENT = "sent"
    DECIDED = "decided"


class Decision(StrEnum):
    """What a producer decided, or answered to a check."""

    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    UNKNOWN = "UNKNOWN"


_DECISIONS = {
    "COMMIT_MESSAGE": Decision.COMMIT, "ROLLBACK_MESSAGE": Decision.ROLLBACK, "UNKNOW": Decision.UNKNOWN,
}
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One line about a transaction.

    Units: `time_ms` on the producer's clock. `number`: of the line in its record, from 0. `message_id` (the offset
    message id of the half message), `cost_ms` and `is_success` only of `SENT`; `decision` and `is_check_answer`
    only of `DECIDED`.
    """

    number: int
    kind: TraceKind
    time_ms: int
    producer_group: str | None
    topic: str | None
    transaction_id: str | None
    tags: str | None
    keys: str | None
    broker: str | None
    body_length_bytes: int | None = None
    cost_ms: int | None = None
    message_id: str | None = None
    is_success: bool | None = None
    decision: Decision | None = None
    is_check_answer: bool | None = None


def trace_lines(body: str, wanted: Collection[str] | None = None) -> tuple[list[TraceLine], list[int]]:
    """Return the lines about transactions, and the numbers of lines of these kinds that cannot be read.

    Lines about other messages and of consumers are left out. `wanted`: only lines with these transaction ids, and those
    that have none; a record has the lines of many transactions.
    Order: of the body.
    """
    found: list[TraceLine] = []
    unreadable: list[int] = []
    for number, text in _numbered(body):
        if wanted is not None:
            begin = text.split(FIELD_END, _ID_PLACE + 1)
            if len(begin) > _ID_PLACE and begin[_ID_PLACE] not in wanted:
                continue
        fields = text.split(FIELD_END)
        if fields and not fields[-1]:
            fields.pop()  # each field ends with the separator
        try:
            line = _line(number, fields)
        except (ValueError, KeyError):
            unreadable.append(number)
            continue
        if line is not None:
            found.append(line)
    return found, unreadable


def _numbered(body: str) -> Iterator[tuple[int, str]]:
    return ((number, text) for number, text in enumerate(body.split(LINE_END)) if text)


def _line(number: int, fields: list[str]) -> TraceLine | None:
    """Return a line; None for one about something else. Raises: ValueError, KeyError."""
    if fields[0] == "Pub":
        return _sent(number, fields)
    if fields[0] == "EndTransaction":
        return _decided(number, fields)
    if fields[0] not in _OTHER_LINES:
        raise ValueError("a line of another kind")
    return None


def _sent(number: int, fields: list[str]) -> TraceLine | None:
    if len(fields) == _WITHOUT_MESSAGE_ID:
        fields = [*fields[:-1], _ABSENT, fields[-1]]
    if len(fields) < len(SENT_FIELDS):
        raise ValueError("too few fields")
    values = dict(zip(SENT_FIELDS, fields, strict=False))
    if values["message_type"] != _HALF:
        return None
    return TraceLine(
        number, TraceKind.SENT, _time_ms(values["time_ms"]), *_shared(values), _integer(values["body_length_bytes"]),
        _integer(values["cost_ms"]), _text(values["message_id"]), _TRUTHS[values["is_success"]],
    )


def _decided(number: int, fields: list[str]) -> TraceLine:
    if len(fields) < len(DECIDED_FIELDS):
        raise ValueError("too few fields")
    values = dict(zip(DECIDED_FIELDS, fields, strict=False))
    return TraceLine(
        number, TraceKind.DECIDED, _time_ms(values["time_ms"]), *_shared(values),
        decision=_DECISIONS[values["decision"]], is_check_answer=_TRUTHS[values["is_check_answer"]],
    )


_Words = tuple[str | None, str | None, str | None, str | None, str | None, str | None]


def _shared(values: dict[str, str]) -> _Words:
    group, topic, identity, tags, keys, broker = (
        _text(values[name]) for name in ("producer_group", "topic", "transaction_id", "tags", "keys", "broker")
    )
    return group, topic, identity, tags, keys, broker


def _text(value: str) -> str | None:
    return None if value in ("", _ABSENT) else value


def _time_ms(value: str) -> int:
    number = int(value)
    if not 0 <= number < _TIME_MS_END:
        raise ValueError("beyond all clocks")
    return number


def _integer(value: str) -> int:
    number = int(value)
    if not -(2**31) <= number < 2**31:
        raise ValueError("beyond 32 bits")
    return number


def scan_traces(store: Store, topic: str = TRACE_TOPIC, bounds: Bounds = WHOLE) -> Reading:
    """Return each line about a transaction in the records of a trace topic, as rows of TRACES.

    Order:  commit-log offset ascending, then the order of the lines.
    Damage: trace-unreadable, for a body or lines that cannot be read; the other lines are rows.
    """
    findings: list[Finding] = list(store.findings)
    coverage: list[Coverage] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for block in scan_segments(
            store, findings, coverage, from_offset=bounds.from_offset, to_offset=bounds.to_offset
        ):
            chosen = block.take(block.topic_is(topic)).within(bounds.from_time_ms, bounds.to_time_ms)
            if len(chosen):
                yield traces_of(chosen, store.root, findings)

    reading = Reading(TRACES, batches(), findings, coverage)
    if not store.has_rocksdb_queues and topic not in store.topics():
        why = f"{store.root} has no topic {topic}: no producer wrote a trace there"
        reading.notes.append(Note(NoteKind.WHY, why))
    return reading


@dataclass(slots=True)
class TraceLedger:
    """The last decisions in the traces of some stores, as a `rmqtx.readers.ledger.ledger.Ledger`.

    They are what producers decided, not what their databases did.
    Shape: `findings`: complete after the batches.
    """

    stores: Sequence[Store]
    name: str = "the message traces"
    schema: pa.Schema = TRACES
    findings: list[Finding] = field(default_factory=list)

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the last decision of each transaction, of whichever store. Damage: that of `scan_traces`."""
        readings = [scan_traces(store, store.trace_topic) for store in self.stores]
        every = Reading(TRACES, itertools.chain.from_iterable(readings))
        yield from (batch.select(columns) for batch in last_decisions(every))
        self.findings.extend(finding for reading in readings for finding in reading.findings)


def last_decisions(reading: Reading) -> Reading:
    """Return the last decision of each transaction in a reading of TRACES, by its producer's clock.

    Units:  memory grows with the number of transactions: one row for each.
    Order:  commit-log offset, then line.
    Damage: that of the reading.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        last: dict[str, dict[str, object]] = {}
        for batch in reading:
            for row in batch.to_pylist():
                identity = row["transaction_id"]
                is_decided = row["kind"] == TraceKind.DECIDED and identity is not None
                if is_decided and (identity not in last or last[identity]["time_ms"] <= row["time_ms"]):
                    last[identity] = row
        rows = sorted(last.values(), key=lambda row: (row["commit_log_offset"], row["line_number"]))
        yield from pa.Table.from_pylist(rows, TRACES).to_batches()

    return Reading(TRACES, batches(), reading.findings, reading.coverage, reading.notes)


def traces_of(
    block: Block, store: str, findings: list[Finding], wanted: Collection[str] | None = None
) -> pa.RecordBatch:
    """Return the lines about transactions in the records of a block, which are of a trace topic.

    `findings`: gets one for each record with something that cannot be read. `wanted`: as in `trace_lines`.
    """
    records = dict(zip(_OF_RECORD, record_columns(block, store, _OF_RECORD), strict=True))
    bodies = record_columns(block, store, ["body"], decompress=True)[0]
    owners: list[int] = []
    lines: list[TraceLine] = []
    for row, body in enumerate(bodies):
        data = body.as_py()
        if data is None:
            findings.append(_finding(records, row, "a body that cannot be decompressed"))
            continue
        found, unreadable = trace_lines(as_text(data), wanted)
        owners.extend([row] * len(found))
        lines.extend(found)
        if unreadable:
            shown = ", ".join(str(number) for number in unreadable[:_NUMBERS_SHOWN])
            more = ", …" if len(unreadable) > _NUMBERS_SHOWN else ""
            findings.append(_finding(records, row, f"line {shown}{more} with other fields"))
    arrays = {name: values.take(pa.array(owners, pa.int64())) for name, values in records.items()}
    arrays["line_number"] = pa.array([line.number for line in lines], pa.int32())
    for name in _OF_LINE:
        arrays[name] = pa.array([getattr(line, name) for line in lines], TRACES.field(name).type)
    return pa.RecordBatch.from_arrays([arrays[name] for name in TRACES.names], schema=TRACES)


def _finding(records: dict[str, pa.Array], row: int, actual: str) -> Finding:
    store, file, position, length, offset = (records[name][row].as_py() for name in _OF_RECORD[:5])
    return Finding(
        store, "trace-unreadable", file, position, length, commit_log_offset=offset,
        expected="lines of a message trace", actual=actual,
    )

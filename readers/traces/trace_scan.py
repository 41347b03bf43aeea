"""The rows of message traces, read from the records of the trace topic."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from rmqtx.readers.log.commit_log import record_columns, scan_segments
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.reading import WHOLE, Bounds, Coverage, Note, NoteKind, Reading
from rmqtx.readers.model.tables import TRACES
from rmqtx.readers.store.store import TRACE_TOPIC, Store
from rmqtx.readers.traces.trace_lines import TraceKind, TraceLine, trace_lines

#: Columns of the record.
_OF_RECORD = ["store", "file", "position_bytes", "length_bytes", "commit_log_offset", "store_time_ms", "born_host"]
_OF_LINE = [name for name in TRACES.names if name not in (*_OF_RECORD, "line_number")]
_NUMBERS_SHOWN = 10


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

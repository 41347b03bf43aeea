"""All events of a case in one order: records, lines of broker logs, message traces and receipts of some transactions.

The columns `message`, `datetime` and `timestamp_desc` are those that timeline tools (Timesketch, Plaso) require.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx.readers.model.units import time_text
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.verdicts.audit.logged_events import Event
from rmqtx.verdicts.audit.timeline import TimelineSource, timeline

#: The columns of TRANSACTIONS that events are made of.
CASE_COLUMNS = (
    "store", "transaction_id", "state", "topic", "keys", "born_time_ms", "half_copies", "op_marks", "final_records",
    "discard_copies",
)
CASE_EVENTS = pa.schema([
    column("datetime", pa.string(), "when, in UTC (ISO 8601)"),
    column("timestamp_desc", pa.string(), "which clock the time is of, and of what"),
    column("message", pa.string(), "what happened, in one line"),
    column("event_time_ms", pa.int64(), "the same time as `datetime`"),
    column("event", pa.string(), "its kind in one word, as in the timeline of rmqtx show; of receipts the act"),
    column("transaction_id", pa.string(), "the transaction"),
    column("keys", pa.string(), "business keys"),
    column("store", pa.string(), "store of the record, or what an act was done to"),
    column("topic", pa.string(), "topic of the record"),
    column("queue_id", pa.int32(), "queue number"),
    column("queue_offset", pa.int64(), "ordinal of the record in its queue"),
    column("commit_log_offset", pa.int64(), "place of the record"),
    column("message_id", pa.string(), "its offset message id"),
    column("log_file", pa.string(), "file of a line of a broker's log"),
    column("log_line", pa.int64(), "number of that line"),
    column("receipt_id", pa.string(), "receipt of an act"),
])
_PRODUCERS_CLOCK = {"born": "producer clock", "decided": "message trace", "answered": "message trace"}
_Row = dict[str, Any]


def case_events(
    rows: Sequence[Mapping[str, Any]], places: Sequence[TimelineSource],
    logged: Sequence[Sequence[Event] | None], receipts: Iterable[Receipt],
) -> pa.Table:
    """Return the events of some transactions: rows of TRANSACTIONS, each with the lines of logs about it.

    Shape: CASE_EVENTS. Events without a time are left out.
    Order: time; of one time records before lines of logs before receipts, in the order of the log.
    """
    events: list[tuple[int, int, int, _Row]] = []
    for row, lines in zip(rows, logged, strict=True):
        events.extend(
            (one["event_time_ms"], 0 if one["log_file"] is None else 1, one["commit_log_offset"] or 0, one)
            for one in _of_transaction(row, places, lines)
        )
    ids = {row["transaction_id"] for row in rows}
    for receipt in receipts:
        if receipt.transaction_id in ids:
            events.extend((one["event_time_ms"], 2, 0, one) for one in _of_receipt(receipt))
    events.sort(key=lambda one: one[:3])
    return pa.Table.from_pylist([event for *_, event in events], CASE_EVENTS)


def _of_transaction(
    row: Mapping[str, Any], places: Sequence[TimelineSource], lines: Sequence[Event] | None
) -> Iterator[_Row]:
    for one in timeline(row, places, [] if lines is None else lines).to_pylist():
        if one["time_ms"] is None:
            continue
        event, detail = one["event"], one["detail"]
        is_line = one.get("log_file") is not None
        text = " ".join(part for part in (detail, one.get("log_text")) if part)
        yield {
            **{name: one.get(name) for name in CASE_EVENTS.names if name in one},
            **_moment(one["time_ms"], "line of a log" if is_line else _PRODUCERS_CLOCK.get(event, "store time")),
            "message": f"{event}: {text}", "transaction_id": row["transaction_id"], "keys": row["keys"],
        }


def _of_receipt(receipt: Receipt) -> Iterator[_Row]:
    by = f"{receipt.action} by {receipt.who}"
    steps = [(receipt.begun_time_ms, "receipt begun", f"{by}{'' if receipt.reason is None else f': {receipt.reason}'}")]
    for one in receipt.requests:
        if one.sent_time_ms is not None:
            steps.append((one.sent_time_ms, "request sent", f"{by}: {one.request} sent"))
        if one.answered_time_ms is not None:
            steps.append((one.answered_time_ms, "response received", f"{by}: response {one.response_code}"))
    if receipt.ended_time_ms is not None:
        steps.append((receipt.ended_time_ms, "receipt ended", f"{by}: outcome {receipt.outcome}"))
    for time_ms, what, message in steps:
        yield {
            **_moment(time_ms, what), "message": message, "event": str(receipt.action), "store": receipt.store,
            "transaction_id": receipt.transaction_id, "keys": receipt.keys, "topic": receipt.topic,
            "receipt_id": receipt.receipt_id, "log_file": None, "commit_log_offset": None,
        }


def _moment(time_ms: int, what: str) -> _Row:
    return {"event_time_ms": time_ms, "datetime": time_text(time_ms).replace("Z", "+00:00"), "timestamp_desc": what}

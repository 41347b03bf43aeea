"""One transaction's life in order, and which consumer groups have read past its final."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from readers.cursors import CheckCursors, check_cursors, read_cursors
from readers.record_at import block_at
from readers.record_block import Block
from readers.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, Store

TIMELINE = pa.schema(
    [
        pa.field("time_ms", pa.int64()),
        pa.field("event", pa.string()),
        pa.field("store", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("queue_offset", pa.int64()),
        pa.field("commit_log_offset", pa.int64()),
        pa.field("message_id", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
CONSUMERS = pa.schema(
    [
        pa.field("store", pa.string()),
        pa.field("group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue_id", pa.int32()),
        pa.field("final_queue_offset", pa.int64()),
        pa.field("next_queue_offset", pa.int64()),
        pa.field("is_past", pa.bool_()),
    ]
)


class RecordName(NamedTuple):
    """What a record is called: its offset message id, and its topic."""

    message_id: str
    topic: str


def record_names(block: Block) -> dict[int, RecordName]:
    """Those of the records of a block, by commit-log offset."""
    names = zip(block.message_ids().to_pylist(), block.topic_texts().to_pylist(), strict=True)
    return {
        offset: RecordName(*name) for offset, name in zip(block.commit_log_offsets.tolist(), names, strict=True)
    }


class Surroundings(Protocol):
    """What stands around a transaction's witnesses in the store, or at the broker, that they are from."""

    @property
    def root(self) -> str:
        """What stands in the column `store`."""

    def records(self, offsets: Iterable[int]) -> dict[int, RecordName]:
        """What records at some commit-log offsets are called; those that cannot be read are left out."""

    def cursors(self) -> list[dict[str, Any]]:
        """Where consumer groups stand: group, topic, queue_id, next_queue_offset."""

    def check_cursors(self) -> CheckCursors:
        """Where the transaction check stands."""


@dataclass(frozen=True, slots=True)
class StoreSurroundings:
    """Those of a store."""

    store: Store

    @property
    def root(self) -> str:
        """The store's root."""
        return self.store.root

    def records(self, offsets: Iterable[int]) -> dict[int, RecordName]:
        """Read from its log."""
        log = self.store.log()
        try:
            blocks = [block_at(log, offset) for offset in offsets]
        finally:
            log.close()
        return {
            offset: name for block in blocks if block is not None for offset, name in record_names(block).items()
        }

    def cursors(self) -> list[dict[str, Any]]:
        """Read from config/consumerOffset.json."""
        rows: list[dict[str, Any]] = read_cursors(self.store).table().to_pylist()
        return rows

    def check_cursors(self) -> CheckCursors:
        """Read from the same file."""
        return check_cursors(self.store)


def timeline(transaction: dict[str, Any], places: Sequence[Surroundings]) -> pa.Table:
    """What happened to a transaction (a row of TRANSACTIONS as a dictionary), one row an event.

    Shape: TIMELINE. The first copy is `sent`; a copy with more checks than the one before is a `check` (the broker put
           it back and asked), one with a restarted count a `resumed`, any other a `put back`. A prepared record is
           `prepared`, and a ROLLBACK record a `rollback`.
    Order: time, then place in the log.
    """
    events: list[dict[str, Any]] = []
    born = transaction["born_time_ms"]
    if born is not None:
        events.append({"time_ms": born, "event": "born", "detail": "producer clock"})
    first_discard = min((copy["store_time_ms"] for copy in transaction["discard_copies"]), default=None)
    before = 0
    for number, copy in enumerate(transaction["half_copies"]):
        is_late = first_discard is not None and copy["store_time_ms"] > first_discard
        event, detail = _copy_event(number, before, copy["checks_count"], is_late=is_late)
        events.append(_event(copy, event, HALF_TOPIC, detail))
        before = copy["checks_count"]
    for mark in transaction["op_marks"]:
        number = mark["half_queue_offset"]
        named = "the half message" if number is None else f"half queue offset {number}"
        events.append(_event(mark, "op", OP_TOPIC, f"ends {named}"))
    for number, final in enumerate(transaction["final_records"], 1):
        detail = "COMMIT record: consumers can read it" if number == 1 else f"COMMIT record number {number}"
        events.append(_event(final, "commit", final["topic"], detail))
    for copy in transaction["discard_copies"]:
        events.append(_event(copy, "discard", DISCARD_TOPIC, "the broker gave up on it"))
    _add_names(events, places)
    events.sort(key=lambda event: (event["time_ms"], event.get("commit_log_offset") or -1))
    return pa.Table.from_pylist(events, schema=TIMELINE)


def _copy_event(number: int, before: int, checks: int, *, is_late: bool) -> tuple[str, str]:
    if number == 0:
        return "sent", f"first copy left in the log, {checks} checks before it" if checks else "half message stored"
    if checks == 0 and is_late:
        return "resumed", "put back after the discard, with no checks behind it"
    if checks > before:
        return "check", f"check {checks}: put back and asked"
    return "put back", "copied to the end of the half queue"


def _event(entry: dict[str, Any], event: str, topic: str, detail: str) -> dict[str, Any]:
    return {
        "time_ms": entry["store_time_ms"],
        "event": event,
        "store": entry["store"],
        "topic": topic,
        "queue_id": entry["queue_id"],
        "queue_offset": entry["queue_offset"],
        "commit_log_offset": entry["commit_log_offset"],
        "detail": detail,
    }


def _add_names(events: list[dict[str, Any]], places: Sequence[Surroundings]) -> None:
    """The message id of each record, and where it is of another design than the half topic, what it is there."""
    for place in places:
        here = [event for event in events if event.get("store") == place.root and "commit_log_offset" in event]
        names = place.records(event["commit_log_offset"] for event in here)
        first = next((event["commit_log_offset"] for event in here if event["topic"] == HALF_TOPIC), None)
        for event in here:
            name = names.get(event["commit_log_offset"])
            if name is None:
                continue
            event["message_id"] = name.message_id
            if event["topic"] in (HALF_TOPIC, OP_TOPIC) and name.topic != event["topic"]:
                event |= _of_other_design(event, name.topic, is_first=event["commit_log_offset"] == first)


def _of_other_design(event: dict[str, Any], topic: str, *, is_first: bool) -> dict[str, Any]:
    """What a half copy or a mark is in the design that its topic tells."""
    if topic in (ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC):
        again = {"event": "resumed", "detail": "put into RocksDB again, with no checks behind it"}
        is_again = topic == ROCKSDB_HALF_TOPIC and not is_first
        return {"topic": topic, **(again if is_again else {})}
    if event["topic"] == OP_TOPIC:
        return {"topic": topic, "event": "rollback", "detail": "ROLLBACK record: nothing is delivered by it"}
    number = event["queue_offset"]
    return {"topic": topic, "event": "prepared", "detail": f"prepared record, number {number} in its broker's table"
            if number else "prepared record stored"}


def consumers_past(transaction: dict[str, Any], places: Sequence[Surroundings]) -> pa.Table:
    """For each final and each consumer group of its topic: whether the group's cursor is past it.

    A message that was committed is not thereby consumed: a group whose next queue offset is not past the final has
    not confirmed it.
    Shape: CONSUMERS.
    Order: final, then group.
    """
    rows: list[dict[str, Any]] = []
    for place in places if transaction["final_records"] else ():
        cursors = place.cursors()
        for final in transaction["final_records"]:
            if final["store"] != place.root:
                continue
            for cursor in cursors:
                if cursor["topic"] == final["topic"] and cursor["queue_id"] == final["queue_id"]:
                    rows.append(
                        {
                            "store": place.root,
                            "group": cursor["group"],
                            "topic": final["topic"],
                            "queue_id": final["queue_id"],
                            "final_queue_offset": final["queue_offset"],
                            "next_queue_offset": cursor["next_queue_offset"],
                            "is_past": cursor["next_queue_offset"] > final["queue_offset"],
                        }
                    )
    return pa.Table.from_pylist(rows, schema=CONSUMERS)

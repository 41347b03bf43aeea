"""The events of one transaction in order, and which consumer groups have read past its final."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rmqtx.readers.cursors import CheckCursors, check_cursors, read_cursors
from rmqtx.readers.log.properties import CHECK_TIMES, IMMUNITY, PRODUCER_CLIENT_ID
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.model.columns import integers
from rmqtx.readers.model.identities import OFFSET_DIGITS
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, Store
from rmqtx.verdicts.audit.logged_events import Event, traced_events
from rmqtx.verdicts.check.check_rules import age_may_equal, is_younger
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model.marked_copies import FileCopies, MarkedCopies
from rmqtx.verdicts.model.trace_evidence import Traces, trace_evidence
from rmqtx.verdicts.model.verdict_words import EVIDENCE
from rmqtx.verdicts.model.witnesses import originals

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
_LOG_FIELDS = {"log_kind": pa.string(), "log_file": pa.string(), "log_line": pa.int64(), "log_text": pa.string()}
#: With lines of the broker's logs.
LOGGED_TIMELINE = pa.schema([*TIMELINE, *(pa.field(name, kind) for name, kind in _LOG_FIELDS.items())])
_SAME_RECORD = "the same record, in another copy of the log"
_ROUND = "its commit, written to the half topic because a delay had diverted the half (no consumer reads it there)"
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
    """The names of a record: its offset message id and its topic; for a half copy also why it was written.

    Shape: `is_resumed`: a resume set its checks back to 0. `is_immune`: written during the immunity time, without a
           question to the producer. `is_commit`: the commit of a diverted half message. `born_host`: the address that
           sent its message; `client_id`: the producer's, if a property has it.
    """

    message_id: str
    topic: str
    is_resumed: bool = False
    is_immune: bool = False
    is_commit: bool = False
    born_host: str = ""
    client_id: str | None = None


def record_names(block: Block, settings: BrokerSettings) -> dict[int, RecordName]:
    """Return the names of the records of a block of a broker with these settings, by commit-log offset."""
    age_ms = block.header("store_time_ms") - block.header("born_time_ms")
    immunity = np.asarray(integers(block.properties.text(IMMUNITY), pa.int64()).fill_null(0))
    names = zip(
        block.message_ids().to_pylist(), block.topic_texts().to_pylist(),
        (checks == "0" for checks in block.properties.text(CHECK_TIMES).to_pylist()),
        ((immunity > 0) & is_younger(age_ms, immunity * 1000, age_may_equal(settings))).tolist(),
        (block.sys_flag & TRANSACTION_MASK == COMMIT).tolist(), block.born_hosts().to_pylist(),
        block.properties.text(PRODUCER_CLIENT_ID).to_pylist(), strict=True,
    )
    return {
        offset: RecordName(*name) for offset, name in zip(block.commit_log_offsets.tolist(), names, strict=True)
    }


@dataclass(frozen=True, slots=True)
class GroupCursor:
    """The cursor of a consumer group in a queue."""

    topic: str
    group: str
    queue_id: int
    next_queue_offset: int


class TimelineSource(Protocol):
    """The store or live broker of a transaction's witnesses, as a source of record names and cursors."""

    @property
    def root(self) -> str:
        """The value of the column `store`."""

    def records(self, offsets: Iterable[int]) -> dict[int, RecordName]:
        """Return the names of records at some commit-log offsets; unreadable ones are skipped."""

    def cursors(self) -> list[GroupCursor]:
        """Return the cursors of consumer groups."""

    def check_cursors(self) -> CheckCursors:
        """Return the cursors of the transaction check."""

    @property
    def traces(self) -> Traces | None:
        """The message traces of its producers; None if it has none."""

    @property
    def copies(self) -> MarkedCopies:
        """The copies that rmqtx redelivered."""

    def stopped_time_ms(self) -> int | None:
        """Return when its broker stopped, as far as its files show; None if it runs."""


@dataclass(slots=True)
class StoreTimelineSource:
    """The files of a store as a source. `settings`: those of its broker."""

    store: Store
    settings: BrokerSettings
    traces: Traces | None = field(init=False)

    def __post_init__(self) -> None:
        self.traces = trace_evidence(self.store)

    @property
    def root(self) -> str:
        """The store's root."""
        return self.store.root

    @property
    def copies(self) -> MarkedCopies:
        """In its files."""
        return FileCopies(self.store)

    def records(self, offsets: Iterable[int]) -> dict[int, RecordName]:
        """Read from its log."""
        with self.store.log() as log:
            blocks = [block_at(log, offset) for offset in offsets]
        return {
            offset: name
            for block in blocks if block is not None for offset, name in record_names(block, self.settings).items()
        }

    def cursors(self) -> list[GroupCursor]:
        """Read from config/consumerOffset.json."""
        rows = read_cursors(self.store).table().to_pylist()
        return [GroupCursor(row["topic"], row["group"], row["queue_id"], row["next_queue_offset"]) for row in rows]

    def check_cursors(self) -> CheckCursors:
        """Read from the same file."""
        return check_cursors(self.store)

    def stopped_time_ms(self) -> int | None:
        """By its checkpoint and its last records."""
        return None if self.store.broker_runs else known_until_ms(self.store)


def timeline(
    transaction: Mapping[str, Any], places: Sequence[TimelineSource], logged: Sequence[Event] | None = None
) -> pa.Table:
    """Return the events of a transaction (a row of TRANSACTIONS as a dictionary), one row per event.

    `logged`: events of its brokers' logs, see logged_events.py; None if no logs were read.

    Shape: TIMELINE, or LOGGED_TIMELINE. The first copy is `sent`; a copy with checks is a `check` (the broker put it
           back and asked the producer), for any count of other copies: if the check began again at an older cursor,
           there are parallel chains. A copy by a resume is `resumed`, any other `put back`. A prepared record is
           `prepared`, and a ROLLBACK record a `rollback`. What the producer decided first, by its message
           trace, is `decided`, and its answer to a check `answered`. A copy that rmqtx sent of what is over is
           `redelivered`.
    Order: time, then place in the log.
    """
    events: list[Event] = []
    born, names = transaction["born_time_ms"], _record_names(transaction, places)
    if born is not None:
        events.append({"time_ms": born, "event": "born", "detail": f"producer clock{_sender(transaction, names)}"})
    events.extend(_copy_events(transaction["half_copies"], names))
    for mark, original in _with_originals(transaction["op_marks"]):
        number = mark["half_queue_offset"]
        named = "the half message" if number is None else f"half queue offset {number}"
        events.append(_event(mark, "op", OP_TOPIC, f"ends {named}" if original is None else _SAME_RECORD))
    number = 0
    for final, original in _with_originals(transaction["final_records"]):
        number += original is None
        named = _committed_record(transaction, final)
        number_text, effect = ("", ": consumers can read it") if number == 1 else (f" number {number}", "")
        detail = f"COMMIT record{number_text}{named}{effect}"
        events.append(_event(final, "commit", final["topic"], detail if original is None else _SAME_RECORD))
    for copy, original in _with_originals(transaction["discard_copies"]):
        detail = "in the discard topic, by the broker or rmqtx discard" if original is None else _SAME_RECORD
        events.append(_event(copy, "discard", DISCARD_TOPIC, detail))
    _add_names(events, names)
    events.extend(_redelivered(transaction, places))
    events.extend(_traced(transaction, places))
    events.extend(logged or ())
    events.sort(key=_place)
    return pa.Table.from_pylist(events, schema=TIMELINE if logged is None else LOGGED_TIMELINE)


def _committed_record(transaction: Mapping[str, Any], final: Mapping[str, Any]) -> str:
    """Return what a COMMIT record names if it is not the newest half copy before it; "" if it is, or is not known."""
    named = final["prepared_transaction_offset"]
    copies, discards, finals = (
        [one for one in transaction[kind] if one["store"] == final["store"]]
        for kind in ("half_copies", "discard_copies", "final_records")
    )
    earlier = [one for one in copies if one["commit_log_offset"] < final["commit_log_offset"]]
    if named is None or not earlier or named == earlier[-1]["commit_log_offset"]:
        return ""
    numbers = [one["queue_offset"] for one in copies if one["commit_log_offset"] == named]
    kinds = {"the discard copy": discards, "another COMMIT record": finals}
    words = [f"half queue offset {number}" for number in numbers] + [
        word for word, some in kinds.items() if named in [one["commit_log_offset"] for one in some]
    ]
    return f" that names {(words or [f'commit-log offset {named}'])[0]}"


def _redelivered(transaction: Mapping[str, Any], places: Sequence[TimelineSource]) -> Iterator[Event]:
    """Return the copies that rmqtx redeliver sent of a transaction, in any of the places, as events."""
    identity, topic = transaction["transaction_id"], transaction["topic"]
    if topic is None:
        return
    for place in places:
        for copy in place.copies.of({identity: topic}).get(identity, []):
            made_from = copy.origin.partition(":")[0]
            detail = f"rmqtx redeliver sent a copy of {made_from} to {topic} queue {copy.record.queue_id}"
            event = _event(asdict(copy.record), "redelivered", topic, detail)
            event["message_id"] = copy.message_id
            yield event


def _traced(transaction: Mapping[str, Any], places: Sequence[TimelineSource]) -> list[Event]:
    """Return what producers wrote about a transaction into the message traces of any of the places, as events."""
    identity, copies = transaction["transaction_id"], transaction["half_copies"]
    roots = {copy["store"] for copy in copies}
    first = min((copy["commit_log_offset"] for copy in copies), default=0)
    rows: dict[str, list[dict[str, Any]]] = {}
    for traces in (place.traces for place in places):
        if traces is not None:
            found = traces.rows([identity], first if roots == {traces.root} else 0)
            rows.setdefault(traces.topic, []).extend(found.get(identity, []))
    return [event for topic, lines in rows.items() for event in traced_events(lines, topic)]


def _with_originals(
    entries: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Return entries of evidence, each with the one of the same record in the copy of the log that comes first."""
    return zip(entries, originals(entries), strict=True)


def _place(event: Event) -> tuple[bool, int, int]:
    """Order by time; a line of a log, whose time has whole seconds, comes after the records of its second."""
    time_ms = event["time_ms"] or 0
    rest = 999 if "log_file" in event and time_ms % 1000 == 0 else 0
    return event["time_ms"] is None, time_ms + rest, event.get("log_line") or event.get("commit_log_offset") or -1


def _record_names(
    transaction: Mapping[str, Any], places: Sequence[TimelineSource]
) -> dict[tuple[str, int], RecordName]:
    """Return the names of a transaction's records, by store and commit-log offset."""
    entries = [entry for kind in EVIDENCE for entry in transaction[kind]]
    return {
        (place.root, offset): name
        for place in places
        for offset, name in place.records(
            [entry["commit_log_offset"] for entry in entries if entry["store"] == place.root]
        ).items()
    }


def _sender(transaction: Mapping[str, Any], names: dict[tuple[str, int], RecordName]) -> str:
    """Return the address that sent the message, and the producer's client id, by the first of its records."""
    for entry in [*transaction["half_copies"], *transaction["final_records"]]:
        name = names.get((entry["store"], entry["commit_log_offset"]))
        if name is not None and name.born_host:
            return f"; sent from {name.born_host}{'' if name.client_id is None else f', client {name.client_id}'}"
    return ""


def _copy_events(
    copies: Sequence[Mapping[str, Any]], names: dict[tuple[str, int], RecordName]
) -> Iterator[Event]:
    """Return an event for each half copy. Order: that of the copies."""
    highest = number = 0
    hosts: set[str] = set()
    events: dict[tuple[str, int], str] = {}
    for copy, original in _with_originals(copies):
        if original is not None:
            yield _event(copy, events[original["store"], original["commit_log_offset"]], HALF_TOPIC, _SAME_RECORD)
            continue
        name = names.get((copy["store"], copy["commit_log_offset"]), RecordName("", HALF_TOPIC))
        checks = copy["checks_count"]
        host = name.message_id[:-OFFSET_DIGITS]
        is_handed_on = bool(hosts) and host not in hosts and checks <= highest
        event, detail = _copy_event(number, checks, highest, name, is_handed_on=is_handed_on)
        yield _event(copy, event, HALF_TOPIC, detail)
        events[copy["store"], copy["commit_log_offset"]] = event
        number += 1
        highest = 0 if event == "resumed" else max(highest, checks)
        hosts.add(host)


def _copy_event(number: int, checks: int, highest: int, name: RecordName, *, is_handed_on: bool) -> tuple[str, str]:
    """Return event and detail of a half copy; `highest`: the highest count of checks of the copies before it."""
    if number == 0:
        if name.is_commit:
            return "sent", _ROUND
        return "sent", f"first copy left in the log, {checks} checks before it" if checks else "half message stored"
    if name.is_resumed:
        return "resumed", "put back by a resume, number of checks set to 0"
    if is_handed_on:
        return "put back", "passed on by another broker (a slave acting as master)"
    if not checks:
        return "put back", _ROUND if name.is_commit else "written to the half queue again, as after a delay"
    if name.is_immune:
        return "put back", f"check {checks}: put back without asking, the immunity time was not over"
    return "check", f"check {checks}: put back and producer asked{', from an older copy' if checks <= highest else ''}"


def _event(entry: Mapping[str, Any], event: str, topic: str, detail: str) -> Event:
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


def _add_names(events: list[Event], names: dict[tuple[str, int], RecordName]) -> None:
    """Add the message id of each record, and adapt events of other designs than the half topic."""
    firsts: dict[str, int] = {}
    for event in events:
        offset = event.get("commit_log_offset")
        if offset is None:
            continue
        store = event["store"]
        if event["topic"] == HALF_TOPIC:
            firsts.setdefault(store, offset)
        name = names.get((store, offset))
        if name is None:
            continue
        event["message_id"] = name.message_id
        if event["topic"] in (HALF_TOPIC, OP_TOPIC) and name.topic != event["topic"]:
            event |= _of_other_design(event, name.topic, is_first=offset == firsts.get(store))


def _of_other_design(event: Event, topic: str, *, is_first: bool) -> Event:
    """Return what a half copy or a mark is in the design of its topic."""
    if topic in (ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC):
        if topic == ROCKSDB_HALF_TOPIC and not is_first:
            return {"topic": topic, "event": "resumed", "detail": "put into RocksDB again, number of checks set to 0"}
        return {"topic": topic}
    if event["topic"] == OP_TOPIC:
        return {"topic": topic, "event": "rollback", "detail": "ROLLBACK record: nothing is delivered"}
    number = event["queue_offset"]
    return {"topic": topic, "event": "prepared", "detail": f"prepared record, number {number} in its broker's table"
            if number else "prepared record stored"}


def consumers_past(transaction: Mapping[str, Any], places: Sequence[TimelineSource]) -> pa.Table:
    """Return for each final and each consumer group of its topic whether the group's cursor is past the final.

    A committed message is not necessarily consumed: a group with a cursor that is not past the final has not confirmed
    it.
    Shape: CONSUMERS.
    Order: final, then group.
    """
    rows: list[dict[str, object]] = []
    for place in places if transaction["final_records"] else ():
        cursors = place.cursors()
        for final in transaction["final_records"]:
            if final["store"] != place.root:
                continue
            for cursor in cursors:
                if cursor.topic == final["topic"] and cursor.queue_id == final["queue_id"]:
                    rows.append(
                        {
                            "store": place.root,
                            "group": cursor.group,
                            "topic": final["topic"],
                            "queue_id": final["queue_id"],
                            "final_queue_offset": final["queue_offset"],
                            "next_queue_offset": cursor.next_queue_offset,
                            "is_past": cursor.next_queue_offset > final["queue_offset"],
                        }
                    )
    return pa.Table.from_pylist(rows, schema=CONSUMERS)

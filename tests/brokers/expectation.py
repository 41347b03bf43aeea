"""The rows that an audit of a store must have, derived from the truth of its run.

All evidence comes from the broker and the clients: messages that a consumer received; records that the broker returned
from a copy of the store (`after_record`: half copies, ops, finals, discard copies, with their places); decisions and
checks that the producer reported; and, for open transactions, what the same broker checked or put back when it was
started on the copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.brokers.old_expectation import before_half_topics, old_rows
from tests.brokers.rig import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from tests.brokers.rocks_expectation import is_in_rocksdb, rocksdb_row
from tests.brokers.rocks_stage import ROCKSDB_HALF_TOPIC

Event = dict[str, Any]
Row = dict[str, Any]
TRANSACTION_BITS, COMMIT_BITS = 0xC, 0x8
CONSUMERS = ("warehouse", "after")
"""The groups that receive each message once; others refuse some, and receive them again from their retry topic."""


class Truth:
    """The lines of a truth file, by kind."""

    def __init__(self, lines: Iterable[Event]) -> None:
        self.lines = list(lines)
        self.kinds: dict[str, list[Event]] = {}
        for line in self.lines:
            self.kinds.setdefault(line["event"], []).append(line)
        records = self.of("after_record")
        self.halves = [record for record in records if record["topic"] == HALF_TOPIC]
        self.half_places = {record["commit_log_offset"]: record["queue_offset"] for record in self.halves}
        self.discard_copies = [record for record in records if record["topic"] == DISCARD_TOPIC]
        self.ops = [record for record in records if record["topic"] == OP_TOPIC and record["queue_id"] == 0]
        self.finals = [
            record
            for record in records
            if record["system_flag"] & TRANSACTION_BITS == COMMIT_BITS
            and record["topic"] not in (HALF_TOPIC, DISCARD_TOPIC, ROCKSDB_HALF_TOPIC)
        ]
        """A commit of a delayed half writes a COMMIT record to the half topic, which no consumer gets: not a final."""
        self.misdirected_rollbacks = {
            line["queue_offset"]
            for line in self.of("decision")
            if line["what"] == "ROLLBACK_MESSAGE" and line["commit_log_offset"] not in self.half_places
        }
        """Queue offsets in rollbacks that named a record outside the half topic: they write only an op."""
        cursors = [line["queue_offset"] for line in self.of("after_cursor") if line["topic"] == HALF_TOPIC]
        self.half_cursor: int | None = cursors[-1] if cursors else None
        passed = [line["queue_offset"] for line in self.of("after_cursor") if line["topic"] == OP_TOPIC]
        self.passed_numbers = {
            number for op in self.ops if passed and op["queue_offset"] < (passed[-1] or 0) for number in numbers(op)
        }
        """Numbers in ops before the op cursor of the second run: its check no longer reads these ops."""
        starts = [line["check_max"] for line in self.of("started") if "check_max" in line]
        self.check_max: int | None = starts[-1] if starts else None
        """What the broker that stopped had; the second run has no maximum. None: the truth is older than this field."""
        self.log_end: int = self.of("log_end")[-1]["commit_log_offset"]
        self.op_counts = Counter(number for op in self.ops for number in numbers(op))
        self.op_numbers = set(self.op_counts)

    def is_own(self, delivered: Event) -> bool:
        """Whether this broker delivered a message, where its clients had another broker too."""
        hosts = {line["store_host"] for line in self.of("after_delivered")} if self.of("acting") else ()
        return not hosts or delivered["store_host"] in hosts

    def half_logs(self, copy_numbers: set[int]) -> list[int]:
        """The commit-log offsets of half copies."""
        return [log for log, queue in self.half_places.items() if queue in copy_numbers]

    def of(self, kind: str) -> list[Event]:
        """The lines of one kind."""
        return self.kinds.get(kind, [])


@dataclass(frozen=True)
class Marks:
    """The transaction's half queue offsets that ops name, by the decision on each copy."""

    rollback: set[int]
    commit: set[int]
    misdirected: set[int]
    """Named by an op, although no decision named that copy: the number of a record outside the half topic."""


def verdict(event: Event) -> str:
    """COMMIT_MESSAGE or ROLLBACK_MESSAGE, of a decision or an answer to a check."""
    return str(event.get("what") or event.get("answer"))


def numbers(op: Event) -> list[int]:
    """The half queue offsets that an op record names."""
    return [int(part) for part in (op["body_text"] or "").split(",") if part]


def belongs(event: Event, sent: Event) -> bool:
    """Whether a line belongs to a sent transaction."""
    if sent["transaction_id"] is not None:
        return bool(event.get("transaction_id") == sent["transaction_id"])
    return bool(event.get("case") == sent["case"])


def place(record: Event) -> Row:
    """The place of a record."""
    return {name: record[name] for name in ("queue_id", "queue_offset", "commit_log_offset")}


def expected_rows(lines: Iterable[Event]) -> list[Row]:
    """One row for each transaction whose half the broker acknowledged, in the order of their halves."""
    earlier, lines = before_half_topics(lines)
    if earlier:
        return old_rows(earlier, lines) + (expected_rows(lines) if lines else [])
    truth = Truth(lines)
    sent = [event for event in truth.of("sent") if event["kind"] == "transaction"]
    return [
        (rocksdb_row if is_in_rocksdb(event, truth) else expected_row)(event, truth)
        for event in sorted(sent, key=lambda event: int(event["commit_log_offset"]))
    ]


def states(row: Row) -> set[str]:
    """The states that a row allows: one, or several that the truth permits (`why` has the reason)."""
    return set(row["state"]) if isinstance(row["state"], list) else {row["state"]}


def expected_row(sent: Event, truth: Truth) -> Row:
    """The expected row of one transaction, with its evidence."""

    def mine(events: Iterable[Event]) -> list[Event]:
        return [event for event in events if belongs(event, sent)]

    halves = mine(truth.halves)
    finals = mine(truth.finals)
    discard_copies = mine(truth.discard_copies)
    logged = mine(truth.of("discard_logged"))
    checks = mine(truth.of("check"))
    copy_numbers = {copy["queue_offset"] for copy in halves}
    answers = [check for check in checks if check["answer"] in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE")]
    places = truth.half_places
    decisions = [event for event in mine(truth.of("decision")) + answers if event["commit_log_offset"] in places]
    marked = copy_numbers & truth.op_numbers
    marks = Marks(
        rollback=marked & {event["queue_offset"] for event in decisions if verdict(event) == "ROLLBACK_MESSAGE"},
        commit=marked & {event["queue_offset"] for event in decisions if verdict(event) == "COMMIT_MESSAGE"},
        misdirected=marked - {event["queue_offset"] for event in decisions},
    )
    delivered = {
        (event["topic"], event["queue_id"], event["queue_offset"])
        for event in mine(truth.of("delivered")) + mine(truth.of("after_delivered"))
        if event["commit_log_offset"] < truth.log_end and event["consumer_group"] in CONSUMERS
        and truth.is_own(event)
    }
    asked = mine(truth.of("after_check"))
    put_back = mine(truth.of("after_put_back"))
    delayed = not halves or any(copy["properties"].get("REAL_TOPIC") == HALF_TOPIC for copy in halves)
    """Whether the half was delayed, or dropped while it was delayed: its REAL_TOPIC is then the half topic."""
    first = halves[0] if halves else sent
    newest = max(copy_numbers, default=None)
    stuck = (
        truth.half_cursor is not None and newest is not None and newest >= truth.half_cursor and newest not in marked
    )
    still_open = bool(asked or put_back or stuck)
    # If a check stops before a half, it is unknown whether it would ask, although the op cursor has passed its op.
    is_unreached = newest in truth.passed_numbers and newest is not None and newest >= (truth.half_cursor or 0)
    state, flags = judge(finals, marks, still_open, discard_copies, logged, truth)
    resumes = [event for event in truth.of("resumed") if event["case"] == sent["case"] and event["code"] == 0]
    last_copy = max(halves, key=lambda copy: int(copy["queue_offset"]), default=sent)
    checks_count = int(last_copy.get("properties", {}).get("TRANSACTION_CHECK_TIMES", 0))
    if truth.check_max is not None and checks_count >= truth.check_max:
        # A slow machine gives it one check more before the stop: the next round discards it without asking.
        flags -= {"open_after_decision"}
    if state == "PENDING" and discard_copies and not delayed:
        flags.add("resumed" if resumes else "checked_again_after_restart")
    if finals and any(truth.op_counts[number] > 1 for number in marks.commit & marks.rollback):
        flags.add("conflict")
    if delayed:
        flags.add("delayed_half")
    places_of_discards = [record["commit_log_offset"] for record in discard_copies]
    unsure: Row = {}
    if state == "PENDING" and places_of_discards and max(places_of_discards) > max(truth.half_logs(copy_numbers)):
        unsure = {
            "state": ["DISCARDED", "PENDING"],
            "flags_at_least": [],
            "why": "given up on, and no newer half copy, but the half cursor was set back before its copies",
        }
    if state in ("DISCARDED", "LOST") and marks.misdirected & truth.misdirected_rollbacks:
        unsure = {
            "state": [state, "ROLLED_BACK", "UNDECIDABLE"],
            "flags_at_least": [],
            "why": "an op has this half's number because a ROLLBACK named another record; the store does not show that",
        }
    return {
        "transaction_id": sent["transaction_id"]
        or (halves[0]["transaction_id"] if halves else None)
        or sent["offset_message_id"],
        "plan": sent["plan"],
        "case": sent["case"],
        "state": state,
        "open": None if is_unreached and not still_open else still_open,
        "asked_after_restart": bool(asked),
        "flags_at_least": sorted(flags),
        "producer_group": sent["producer_group"],
        "topic": None if delayed else sent["topic"],
        "queue_id": None if delayed else sent["queue_id"],
        "keys": sent["keys"],
        "half_queue_offset": first["queue_offset"],
        "half_commit_log_offset": first["commit_log_offset"],
        "deliveries_count": len(delivered),
        "checks_seen": len(checks),
        "discard_seen": bool(discard_copies or logged),
        "newest_half_queue_offset": newest,
        "half_copies": [
            place(copy) | {"checks_count": int(copy["properties"].get("TRANSACTION_CHECK_TIMES", 0))} for copy in halves
        ],
        "op_marks": [
            place(op) | {"half_queue_offset": number}
            for op in truth.ops
            for number in sorted(number for number in numbers(op) if number in copy_numbers)
        ],
        "final_records": [{"topic": record["topic"]} | place(record) for record in finals],
        "discard_copies": [place(record) for record in discard_copies],
    } | unsure


def judge(
    finals: list[Event], marks: Marks, still_open: bool, discard_copies: list[Event], logged: list[Event], truth: Truth
) -> tuple[str, set[str]]:
    """State and certain flags, in the order of judgement: committed, rolled back, still open, discarded, lost."""
    flags: set[str] = set()
    if finals:
        first = min(record["commit_log_offset"] for record in finals)
        if len(finals) > 1:
            flags.add("duplicate_commit")
        if still_open:
            flags.add("open_after_decision" if marks.rollback or marks.commit else "commit_without_op")
        earlier = {number for op in truth.ops if op["commit_log_offset"] < first for number in numbers(op)}
        if marks.rollback & earlier:
            flags.add("commit_after_rollback")
        if discard_copies:
            after = first > max(record["commit_log_offset"] for record in discard_copies)
            flags.add("commit_after_discard" if after else "discarded_though_decided")
        return "COMMITTED", flags
    if marks.rollback:
        if still_open:
            flags.add("open_after_decision")
        decided = min(op["commit_log_offset"] for op in truth.ops if set(numbers(op)) & marks.rollback)
        if any(record["commit_log_offset"] > decided for record in discard_copies):
            flags.add("discarded_though_decided")
        return "ROLLED_BACK", flags
    if still_open:
        return "PENDING", flags
    if discard_copies:
        return "DISCARDED", flags
    if logged:
        return "DISCARDED", flags | {"without_copy"}
    if marks.misdirected:
        flags.add("masked")
    return "LOST", flags

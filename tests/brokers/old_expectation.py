"""The rows that an audit of a store without half topics must have, derived from the truth of its run.

The evidence: the handle that the producer received for its prepared record; messages that consumers received; records
that the broker returned by offset from a copy (`after_record`); the checks of the copy's producers, and the deliveries
after their answers (`after_check`, `after_delivered` after the end of the log).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.brokers.maven import is_old, release

Event = dict[str, Any]
Row = dict[str, Any]
TRANSACTION_BITS, PREPARED_BITS, COMMIT_BITS, ROLLBACK_BITS = 0xC, 0x4, 0x8, 0xC
STATE_TABLE, PREPARED_RECORDS = "state_table", "prepared_records"
CONSUMERS = ("warehouse", "after")


def design(version: str) -> str:
    """The design of an old version: how it stores transactions."""
    return STATE_TABLE if release(version) < (3, 2) else PREPARED_RECORDS


def before_half_topics(lines: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """The lines of old versions, and those of a version with half topics that used the same directory after them."""
    every = list(lines)
    first = next((line["version"] for line in every if line["event"] == "started"), None)
    if first is None or not is_old(first):
        return [], every
    for number, line in enumerate(every):
        if line["event"] == "upgraded" and not is_old(line["version"]):
            return every[:number], every[number + 1 :]
    return every, []


class OldTruth:
    """The lines of a truth file of an old store, by kind."""

    def __init__(self, lines: Iterable[Event], later: Iterable[Event] = ()) -> None:
        self.lines = list(lines)
        self.log_end: int = self.of("log_end")[-1]["commit_log_offset"]
        self.last_version: str = self.of("started")[-1]["version"]
        self.stop: str = self.of("stopped")[-1]["how"]
        after = [line for line in later if line["event"] == "after_record"]
        found = {line["commit_log_offset"]: line for line in [*self.of("after_record"), *after]}
        self.records = [found[offset] for offset in sorted(found)]
        self.later = list(later)

    def of(self, kind: str) -> list[Event]:
        """The lines of one kind."""
        return [line for line in self.lines if line["event"] == kind]

    def named(self, offset: int, bits: int) -> list[Event]:
        """The records of one type that name a prepared record."""
        return [
            record
            for record in self.records
            if record["prepared_transaction_offset"] == offset and record["system_flag"] & TRANSACTION_BITS == bits
        ]


def old_rows(lines: Iterable[Event], later: Iterable[Event] = ()) -> list[Row]:
    """One row for each transaction whose prepared record the broker acknowledged, in the order of those."""
    truth = OldTruth(lines, later)
    versions = {id(event): version for event, version in versions_of_sent(truth.lines)}
    sent = [event for event in truth.of("sent") if event["kind"] == "transaction"]
    return [
        old_row(event, truth, versions[id(event)])
        for event in sorted(sent, key=lambda one: int(one["commit_log_offset"]))
    ]


def versions_of_sent(lines: Iterable[Event]) -> Iterable[tuple[Event, str]]:
    """Each `sent` line with the version of the broker that stored the message."""
    version = ""
    for line in lines:
        if line["event"] == "started":
            version = line["version"]
        elif line["event"] == "sent":
            yield line, version


def place(record: Mapping[str, Any]) -> Row:
    """The place of a record."""
    return {name: record[name] for name in ("queue_id", "queue_offset", "commit_log_offset")}


def old_row(sent: Event, truth: OldTruth, version: str) -> Row:
    """The expected row of one transaction, with its evidence."""
    offset = int(sent["commit_log_offset"])
    prepared = [record for record in truth.records if record["commit_log_offset"] == offset]
    finals, rollbacks = truth.named(offset, COMMIT_BITS), truth.named(offset, ROLLBACK_BITS)
    delivered = {
        (event["topic"], event["queue_id"], event["queue_offset"])
        for event in truth.of("delivered") + truth.of("after_delivered")
        if event["prepared_transaction_offset"] == offset
        and event["system_flag"] & TRANSACTION_BITS == COMMIT_BITS
        and event["commit_log_offset"] < truth.log_end
        and event["consumer_group"] in CONSUMERS
    }
    checks = [check for check in truth.of("check") if check["commit_log_offset"] == offset]
    asked = [check for check in truth.of("after_check") if check["commit_log_offset"] == offset]
    answered = any(
        event["prepared_transaction_offset"] == offset and event["commit_log_offset"] >= truth.log_end
        for event in truth.of("after_delivered")
    )
    state = "COMMITTED" if finals else "ROLLED_BACK" if rollbacks else "PENDING"
    return {
        "transaction_id": sent["transaction_id"] or sent["offset_message_id"],
        "offset_message_id": sent["offset_message_id"],
        "design": design(version),
        "plan": sent["plan"],
        "case": sent["case"],
        "state": state,
        "open": bool(asked),
        "asked_after_restart": bool(asked),
        "answered_after_restart": answered if asked else None,
        "flags_at_least": sorted(flags(state, finals, rollbacks, bool(asked), answered, truth, version)),
        "producer_group": sent["producer_group"],
        "topic": sent["topic"],
        "queue_id": sent["queue_id"],
        "keys": sent["keys"],
        "half_queue_offset": sent["queue_offset"],
        "half_commit_log_offset": offset,
        "deliveries_count": len(delivered),
        "checks_seen": len(checks),
        "discard_seen": False,
        "newest_half_queue_offset": sent["queue_offset"],
        "half_copies": [place(record) | {"checks_count": 0} for record in prepared],
        "op_marks": [
            place(record) | {"half_queue_offset": None, "half_commit_log_offset": offset} for record in rollbacks
        ],
        "final_records": [{"topic": record["topic"]} | place(record) for record in finals],
        "discard_copies": [],
    }


def flags(
    state: str, finals: list[Event], rollbacks: list[Event], asked: bool, answered: bool, truth: OldTruth, version: str
) -> set[str]:
    """The flags that follow from the truth. Whether 3.1 will check, and accept the answer, is only certain after a
    clean stop: after a crash it rebuilds its table with new numbers.
    """
    found: set[str] = set()
    if len(finals) > 1:
        found.add("duplicate_commit")
    if finals and rollbacks:
        found.add("conflict")
    table_counts = design(version) == design(truth.last_version) == STATE_TABLE and truth.stop == "clean"
    if state == "PENDING" and table_counts and not answered:
        found.add("unanswerable" if asked else "never_asked")
    return found

"""What must be found of a transaction whose half is in the RocksDB half topic, worked out from the truth of its run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tests.brokers.rocks_stage import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC

if TYPE_CHECKING:
    from tests.brokers.expectation import Event, Row, Truth


def is_in_rocksdb(sent: Event, truth: Truth) -> bool:
    """Did the broker put the half of what was sent into the RocksDB half topic?"""
    return any(
        record["topic"] == ROCKSDB_HALF_TOPIC and record["commit_log_offset"] == sent["commit_log_offset"]
        for record in truth.of("after_record")
    )


def rocksdb_row(sent: Event, truth: Truth) -> Row:
    """What must be said of one transaction, and by which witnesses."""
    from tests.brokers.expectation import CONSUMERS, belongs, place, verdict

    def mine(events: Iterable[Event]) -> list[Event]:
        return [event for event in events if belongs(event, sent)]

    records = truth.of("after_record")
    halves = mine(record for record in records if record["topic"] == ROCKSDB_HALF_TOPIC)
    places = {half["commit_log_offset"] for half in halves}
    ops = [
        record
        for record in records
        if record["topic"] == ROCKSDB_OP_TOPIC and int(record["properties"]["TRANS_OFFSET"]) in places
    ]
    finals = mine(truth.finals)
    checks = mine(truth.of("check"))
    logged = mine(truth.of("discard_logged"))
    decisions = mine(truth.of("decision")) + [check for check in checks if verdict(check).endswith("_MESSAGE")]
    asked = mine(truth.of("after_check"))
    delivered = {
        (event["topic"], event["queue_id"], event["queue_offset"])
        for event in mine(truth.of("delivered")) + mine(truth.of("after_delivered"))
        if event["commit_log_offset"] < truth.log_end and event["consumer_group"] in CONSUMERS
    }
    resumed = [event for event in truth.of("resumed") if event["case"] == sent["case"] and event["code"] == 0]
    is_open = bool(asked) or (not ops and not logged and is_immune(halves[-1], truth))
    state, flags = judged(finals, ops, is_open, logged, decisions, bool(resumed))
    return {
        "transaction_id": sent["transaction_id"] or halves[0]["transaction_id"] or sent["offset_message_id"],
        "plan": sent["plan"],
        "case": sent["case"],
        "state": state,
        "open": is_open,
        "asked_after_restart": bool(asked),
        "flags_at_least": sorted(flags),
        "producer_group": sent["producer_group"],
        "topic": sent["topic"],
        "queue_id": sent["queue_id"],
        "keys": sent["keys"],
        "half_queue_offset": halves[0]["queue_offset"],
        "half_commit_log_offset": halves[0]["commit_log_offset"],
        "deliveries_count": len(delivered),
        "checks_seen": len(checks),
        "discard_seen": bool(logged),
        "newest_half_queue_offset": halves[-1]["queue_offset"],
        "half_copies": [place(half) | {"checks_count": number(half.get("properties", {}))} for half in halves],
        "op_marks": [
            place(op) | {"half_queue_offset": None, "half_commit_log_offset": int(op["properties"]["TRANS_OFFSET"])}
            for op in ops
        ],
        "final_records": [{"topic": record["topic"]} | place(record) for record in finals],
        "discard_copies": [],
    }


def number(properties: Mapping[str, str]) -> int:
    """How often a record says that it was checked."""
    return int(properties.get("TRANSACTION_CHECK_TIMES", 0))


def is_immune(half: Event, truth: Truth) -> bool:
    """Does the broker not ask yet? Unlike the half topic's, such a half leaves no trace when it is passed over."""
    seconds = int(half["properties"].get("CHECK_IMMUNITY_TIME_IN_SECONDS", 0))
    end_ms: int = truth.of("after_cursor")[-1]["time_ms"]
    return bool(half["born_time_ms"] + seconds * 1000 > end_ms)


def judged(
    finals: list[Event],
    ops: list[Event],
    is_open: bool,
    logged: list[Event],
    decisions: list[Event],
    resumed: bool,
) -> tuple[str, set[str]]:
    """State and certain flags: committed, rolled back, asked again by the broker, dropped by it, never known to it."""
    flags: set[str] = set()
    if finals:
        if len(finals) > 1:
            flags.add("duplicate_commit")
        if is_open:
            flags.add("open_after_decision" if ops else "commit_without_op")
        verdicts = {str(event.get("what") or event.get("answer")) for event in decisions}
        if {"COMMIT_MESSAGE", "ROLLBACK_MESSAGE"} <= verdicts and len(ops) > len(finals):
            flags.add("conflict")
        first = min(record["commit_log_offset"] for record in finals)
        if any(op["commit_log_offset"] < first for op in ops):
            flags.add("commit_after_rollback")
        return "COMMITTED", flags
    if ops:
        assert any(event.get("what", event.get("answer")) == "ROLLBACK_MESSAGE" for event in decisions), ops
        return "ROLLED_BACK", {"open_after_decision"} if is_open else flags
    if is_open:
        return "PENDING", {"resumed"} if resumed else flags
    if logged:
        return "DISCARDED", {"without_copy"}
    return "LOST", flags

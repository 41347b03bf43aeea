"""Lines of logs as events of a transaction: which belong to it, and how many are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqtx.readers.broker_logs.log_lines import reading_of
from rmqtx.verdicts.audit.logged_events import Event, LoggedEvents
from tests.broker_logs import forge

NOW = 1_700_000_000_000
FAILED = "PutBackToHalfQueueReturnResult write failed, topic: T, queueId: 0, msgId: 7F00000100005348{:016X}"


def row(identity: str, offset: int, group: str = "g", state: str = "DISCARDED") -> dict[str, Any]:
    copies = [
        {"store": "s", "commit_log_offset": offset + n, "store_time_ms": NOW + n * 10_000, "checks_count": n}
        for n in range(3)
    ]
    return {
        "transaction_id": identity, "producer_group": group, "state": state, "half_copies": copies, "op_marks": [],
        "final_records": [], "discard_copies": [],
    }


def events(rows: list[dict[str, Any]], lines: list[str], folder: Path) -> list[list[Event]]:
    kept = LoggedEvents(rows, "s")
    for _ in kept.watching(reading_of(forge.written(folder, lines)).lines()):
        pass
    return [kept.of(number) for number in range(len(rows))]


def test_a_line_belongs_to_what_it_names(tmp_path: Path) -> None:
    lines = [forge.line(NOW, FAILED.format(offset)) for offset in (100, 102, 200, 300)]
    first, second = events([row("A", 100), row("B", 200)], lines, tmp_path)
    assert [event["log_line"] for event in first] == [1, 2]
    assert [event["commit_log_offset"] for event in second] == [200]


def test_a_group_is_named_at_the_time_of_a_check(tmp_path: Path) -> None:
    times = (NOW - 60_000, NOW + 9_000, NOW + 10_000, NOW + 10_500, NOW + 14_000, NOW + 18_000, NOW + 3_600_000)
    lines = [forge.no_producer(time_ms, "g") for time_ms in times] + [forge.no_producer(NOW + 10_000, "h")]
    (found,) = events([row("A", 100)], lines, tmp_path)
    assert [event["log_line"] for event in found] == [3, 5]


def test_repeated_lines_are_counted(tmp_path: Path) -> None:
    lines = [forge.line(NOW + n // 100 * 1000, FAILED.format(100)) for n in range(5_000)]
    (found,) = events([row("A", 100)], lines, tmp_path)
    assert [event["log_line"] for event in found] == [*range(1, 1000, 100), 5000]
    assert "(the last of 4990 more)" in found[-1]["detail"]


def test_the_broker_within_the_time_of_the_transaction(tmp_path: Path) -> None:
    started = "The broker[a, 127.0.0.1:1] boot success. serializeType=JSON"
    lines = [forge.line(NOW + ms, started) for ms in (-3_600_000, 5_000, 3_600_000)]
    forge.written(tmp_path, lines, "broker.log")
    closed, is_open = events([row("A", 100), row("B", 200, state="PENDING")], [], tmp_path)
    assert [event["log_line"] for event in closed] == [2]
    assert [event["log_line"] for event in is_open] == [2, 3]

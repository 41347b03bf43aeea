"""Causes that a broker's logs decide: forged logs of histories that real brokers and clients reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.broker_logs.log_lines import reading_of
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.model.log_evidence import LogGathering
from rmqtx.verdicts.model.store_evidence import BROKER_LOG
from tests.broker_logs import forge
from tests.brokers import corpus
from tests.forge.stores import opened
from tests.verdicts.causes.diagnosed import strengths, version_of

NAME = "common-5.3.3"
UNKNOWN = "answered-unknown"
MINUTE_MS = 60_000
NO_PRODUCER, ANSWERED = "producer-not-connected", "producer-answered-unknown"


def rows_of(name: str) -> list[dict[str, Any]]:
    store = opened(name)
    rows: list[dict[str, Any]] = audit(
        [store], lambda _: broker_settings(store), columns=NEEDED_COLUMNS
    ).table().to_pylist()
    return rows


def undecided(name: str) -> list[dict[str, Any]]:
    """Transactions without any decision that the check asked about."""
    return [
        row for row in rows_of(name)
        if row["state"] in ("DISCARDED", "PENDING") and not row["op_marks"] and not row["final_records"]
        and any(copy["checks_count"] for copy in row["half_copies"])
    ]


def last_asked(row: dict[str, Any]) -> dict[str, Any] | None:
    newest = row["half_copies"][-1]
    return newest if newest["checks_count"] else None


def diagnosed(
    name: str, place: Path | None, zone: str | None = None, conf: dict[str, str] | None = None
) -> dict[str, dict[str, int]]:
    return strengths(diagnosis(name, place, zone, conf).table().to_pylist())


def diagnosis(
    name: str, place: Path | None, zone: str | None = None, conf: dict[str, str] | None = None
) -> Diagnosis:
    store = opened(name)
    settings = broker_settings(store, conf=conf, version=version_of(name))
    logs = None
    if place is not None:
        reading, gathering = reading_of(place, zone), LogGathering()
        for _ in gathering.watching(reading.lines()):
            pass
        logs = gathering.evidence(reading)
    reading_of_store = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    batches = list(reading_of_store)
    facts = reading_of_store.evidence[store.root]
    if logs is not None:
        facts = replace(facts, logs=logs, read=facts.read | {BROKER_LOG})
    found = Diagnosis({store.root: facts})
    for batch in batches:
        found.add(batch)
    return found


def covering(lines: Iterable[str]) -> list[str]:
    """Lines between two rounds, a minute before the first record and a minute after the last one."""
    times = [copy["store_time_ms"] for row in rows_of(NAME) for copy in row["half_copies"]]
    return [forge.round_begins(min(times) - MINUTE_MS), *lines, forge.round_begins(max(times) + MINUTE_MS)]


def nobody(row: dict[str, Any]) -> list[str]:
    return [
        forge.no_producer(copy["store_time_ms"], row["producer_group"])
        for copy in row["half_copies"] if copy["checks_count"]
    ]


def test_without_logs_both_could_explain() -> None:
    found = diagnosed(NAME, None)
    asked = [row for row in undecided(NAME) if row["state"] == "DISCARDED" and last_asked(row)]
    assert asked
    assert found[NO_PRODUCER] == found[ANSWERED] == {"could_explain": len(asked)}
    rows = diagnosis(NAME, None).table().to_pylist()
    assert all("--broker-logs DIR" in row["would_decide"] for row in rows if row["cause"] in (NO_PRODUCER, ANSWERED))


def test_checks_without_a_producer_explain(tmp_path: Path) -> None:
    rows = undecided(NAME)
    found = diagnosed(NAME, forge.written(tmp_path, covering(line for row in rows for line in nobody(row))))
    assert found[NO_PRODUCER] == {"explains": sum(last_asked(row) is not None for row in rows)}
    assert ANSWERED not in found


def test_the_answers_that_the_clients_reported_explain(tmp_path: Path) -> None:
    """The history: which copy was asked about, and what the producer answered."""
    asked = [event for event in corpus.truth(NAME) if event["event"] == "check" and event["answer"] == "UNKNOW"]
    lines = [
        forge.answered_unknown(one["time_ms"], "shop", one["queue_offset"], one["commit_log_offset"]) for one in asked
    ]
    found = diagnosed(NAME, forge.written(tmp_path, covering(lines)))
    places = {one["commit_log_offset"] for one in asked}
    expected = sum((last_asked(row) or {}).get("commit_log_offset") in places for row in undecided(NAME))
    assert expected
    assert found[ANSWERED] == {"explains": expected}
    assert NO_PRODUCER not in found


def _connected_meanwhile(row: dict[str, Any]) -> list[str]:
    return [
        *nobody(row),
        *(
            forge.line(copy["store_time_ms"], f"new producer connected, group: {row['producer_group']} channel: "
                       "ClientChannelInfo [x]")
            for copy in row["half_copies"] if copy["checks_count"]
        ),
    ]


def _answered_after_all(row: dict[str, Any]) -> list[str]:
    copy = row["half_copies"][-1]
    return [*nobody(row), forge.answered_unknown(copy["store_time_ms"], "shop", 1, copy["commit_log_offset"]).replace(
        "it's pending status", "the producer commit the message").replace(", but", ",")]


def _of_another_group(row: dict[str, Any]) -> list[str]:
    return [line.replace(f"groupId={row['producer_group']}", "groupId=another") for line in nobody(row)]


def _an_hour_later(row: dict[str, Any]) -> list[str]:
    return [forge.no_producer(copy["store_time_ms"] + 60 * MINUTE_MS, row["producer_group"]) for copy in
            row["half_copies"]]


@pytest.mark.parametrize("lines", [_connected_meanwhile, _answered_after_all, _of_another_group, _an_hour_later])
def test_what_does_not_prove_a_missing_producer(lines: Callable[[dict[str, Any]], list[str]], tmp_path: Path) -> None:
    names = {"broker.log": [], "transaction.log": []}  # type: dict[str, list[str]]
    for line in covering(line for row in undecided(NAME) for line in lines(row)):
        names["broker.log" if "new producer connected" in line else "transaction.log"].append(line)
    for name, some in names.items():
        forge.written(tmp_path, some, name)
    assert NO_PRODUCER not in diagnosed(NAME, tmp_path)


def test_logs_of_another_time_leave_it_open(tmp_path: Path) -> None:
    lines = [line for row in undecided(NAME) for line in nobody(row)]
    day = 1440 * MINUTE_MS
    before = min(row["half_store_time_ms"] for row in undecided(NAME)) - day
    early = forge.written(tmp_path / "early", [forge.round_begins(before), forge.no_producer(before, "shop")])
    without = diagnosed(NAME, None)[NO_PRODUCER]
    assert diagnosed(NAME, early)[NO_PRODUCER] == without
    assert diagnosed(NAME, forge.written(tmp_path / "zone", covering(lines)), "-05:00")[NO_PRODUCER] == without


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("put-back-failed", "PutBackToHalfQueueReturnResult write failed, topic: T, queueId: 0, msgId: "
         "7F00000100005348{offset:016X}"),
        ("refused-after-immunity", "Message commit fail [producer end]. currentTimeMillis - bornTime > "
         "checkImmunityTime, msgId=7F,commitLogOffset={offset}, wait check"),
        ("pool-hides-half", "selectMappedBuffer request pos invalid, request pos: {offset}, size: 4, fileFromOffset: "
         "0"),
    ],
)
def test_a_line_that_names_a_copy_explains_its_transaction(word: str, message: str, tmp_path: Path) -> None:
    chosen = rows_of(NAME)[5:8]
    lines = [
        forge.line(row["half_store_time_ms"], message.format(offset=row["half_copies"][0]["commit_log_offset"] + more))
        for row in chosen for more in (0, 1)
    ]
    forge.written(tmp_path, lines, "store.log" if word == "pool-hides-half" else "transaction.log")
    assert diagnosed(NAME, tmp_path, conf={"transientStorePoolEnable": "true"})[word]["explains"] == len(chosen)
    assert word not in diagnosed(NAME, forge.written(tmp_path / "none", [forge.no_producer(0, "g")]))


def test_only_copies_of_the_round_that_failed(tmp_path: Path) -> None:
    name = "common-4.4.0"
    copies = sorted(
        (copy["store_time_ms"], row["transaction_id"])
        for row in rows_of(name) for copy in row["half_copies"] if copy["checks_count"]
    )
    first_ms = copies[0][0]
    failed = "Check error\njava.util.concurrent.RejectedExecutionException: Task x rejected from y\n\tat z\n"
    lines = [
        forge.round_begins(first_ms - 1000), forge.line(first_ms + 2000, failed.rstrip("\n")),
        forge.round_begins(first_ms + 3000), forge.round_begins(copies[-1][0] + MINUTE_MS),
    ]
    expected = {one for time_ms, one in copies if time_ms // 1000 <= (first_ms + 2000) // 1000}
    found = diagnosed(name, forge.written(tmp_path, lines))
    assert found["check-pool-rejected"] == {"explains": len(expected)}
    assert 0 < len(expected) < len({one for _, one in copies})
    assert "round-ended-by-exception" not in found
    other = [line.replace("RejectedExecutionException", "NullPointerException") for line in lines]
    found = diagnosed(name, forge.written(tmp_path / "other", other))
    assert found["round-ended-by-exception"] == {"explains": len(expected)}
    assert "check-pool-rejected" not in found

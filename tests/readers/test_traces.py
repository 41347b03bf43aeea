"""Message traces: the lines of real producers, other lines, and lines that no client writes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.tables import TRACES
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import TRACE_TOPIC, open_store
from rmqtx.readers.traces import Decision, TraceKind, last_decisions, scan_traces, trace_lines
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from tests.field import field_stores, right
from tests.forge import damage

#: Each store with the topic that its producers wrote to.
STORES = {
    "trace-checks-4.9.7": TRACE_TOPIC, "trace-custom-topic-5.5.0": "AuditTrace", "trace-dropped-5.3.3": TRACE_TOPIC,
}
SENT = ("Pub", "17", "DefaultRegion", "g", "orders", "ID1", "null", "k1 k2", "10.0.0.1:10911", "5", "3", "1", "0A",
        "true")
DECIDED = (
    "EndTransaction", "18", "DefaultRegion", "g", "orders", "ID1", "t", "null", "10.0.0.1:10911", "2", "ID1",
    "COMMIT_MESSAGE", "false",
)


def body(*lines: tuple[str, ...]) -> str:
    return "".join("\x01".join(line) + "\x02" for line in lines)


def decisions(rows: list[dict[str, Any]]) -> dict[str, list[tuple[str, bool]]]:
    """The decisions of each transaction, in the order of the producer's clock."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for row in sorted(rows, key=lambda row: row["time_ms"]):
        if row["kind"] == "decided":
            found.setdefault(row["transaction_id"], []).append((row["decision"], row["is_check_answer"]))
    return found


@pytest.mark.parametrize("name", STORES)
def test_every_decision_that_a_client_reported(name: str, tmp_path: Path) -> None:
    reading = scan_traces(open_store(field_stores(name, tmp_path) / "store"), STORES[name])
    rows = reading.table().to_pylist()
    assert reading.findings == []
    found = decisions(rows)
    sent = {row["transaction_id"] for row in rows if row["kind"] == "sent"}
    for transaction_id, one in right(name)["transactions"].items():
        assert transaction_id in sent
        assert found[transaction_id] == [(decision, is_answer) for decision, is_answer in one["said"]]


def test_the_timeline_has_what_the_producer_decided_although_no_request_arrived(tmp_path: Path) -> None:
    store = open_store(field_stores("trace-dropped-5.3.3", tmp_path) / "store")
    place = StoreTimelineSource(store, broker_settings(store))
    expected = right("trace-dropped-5.3.3")["transactions"]
    committed = 0
    for row in audit([store], broker_settings).table().to_pylist():
        if row["transaction_id"] not in expected or row["state"] != "DISCARDED":
            continue
        events = [event for event in timeline(row, [place]).to_pylist() if event["topic"] == TRACE_TOPIC]
        said = [(event["detail"].partition(",")[0], event["event"] == "answered") for event in events]
        assert said == [(decision, is_answer) for decision, is_answer in expected[row["transaction_id"]]["said"]]
        committed += said[0][0] == "COMMIT"
    assert committed == 4


def test_lines_of_both_kinds() -> None:
    (sent, decided), unreadable = trace_lines(body(SENT, DECIDED))
    assert not unreadable
    assert (sent.kind, sent.transaction_id, sent.tags, sent.keys, sent.message_id, sent.is_success) == (
        TraceKind.SENT, "ID1", None, "k1 k2", "0A", True,
    )
    assert (decided.number, decided.decision, decided.is_check_answer) == (1, Decision.COMMIT, False)
    assert decided.keys is None


def test_only_lines_of_some_transactions_and_those_without_an_id() -> None:
    other = tuple("ID2" if field == "ID1" else field for field in DECIDED)
    found, unreadable = trace_lines(body(SENT, other, other[:12], DECIDED, ("EndTransaction", "1")), {"ID1"})
    assert ([one.number for one in found], unreadable) == ([0, 3], [4])


def test_a_line_of_an_older_client_has_no_message_id() -> None:
    (line,), unreadable = trace_lines(body((*SENT[:12], "false")))
    assert (line.message_id, line.is_success, unreadable) == (None, False, [])


@pytest.mark.parametrize("line", [("SubBefore", "1"), ("SubAfter",), ("Recall", "x"), (*SENT[:11], "0", *SENT[12:])])
def test_lines_about_something_else_are_left_out(line: tuple[str, ...]) -> None:
    assert trace_lines(body(line)) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        SENT[:11], DECIDED[:12], ("EndTransactionx", *DECIDED[1:]), ("\x00",),
        ("Pub", "soon", *SENT[2:]), (*DECIDED[:11], "PERHAPS", "true"),
        (*DECIDED[:12], "maybe"), (*SENT[:9], str(2**31), *SENT[10:]),
        ("Pub", str(2**62), *SENT[2:]), (DECIDED[0], "9" * 40, *DECIDED[2:]), (DECIDED[0], "-1", *DECIDED[2:]),
    ],
)
def test_lines_that_cannot_be_read_are_counted_and_hide_no_other(line: tuple[str, ...]) -> None:
    found, unreadable = trace_lines(body(SENT, line, DECIDED))
    assert ([one.number for one in found], unreadable) == ([0, 2], [1])


def test_any_text(tmp_path: Path) -> None:
    """Forged and torn bodies give rows or a count, never an exception."""
    chance = random.Random(36)
    whole = body(SENT, DECIDED, SENT)
    for _ in range(3000):
        text = list(whole)
        for _ in range(chance.randint(1, 6)):
            text[chance.randrange(len(text))] = chance.choice("\x01\x02\x00\u202e9-,true\ud800")
        found, unreadable = trace_lines("".join(text)[: chance.randint(0, len(text))])
        assert len(found) + len(unreadable) <= len(whole)


def test_rows_have_the_columns_of_the_table(tmp_path: Path) -> None:
    reading = scan_traces(open_store(field_stores("trace-checks-4.9.7", tmp_path) / "store"))
    assert reading.table().schema.equals(TRACES)


def test_a_torn_line_is_a_finding_and_the_others_are_rows(tmp_path: Path) -> None:
    root = field_stores("trace-checks-4.9.7", tmp_path) / "store"
    before = scan_traces(open_store(root)).table().num_rows
    (log,) = (root / "commitlog").iterdir()
    data = log.read_bytes()
    damage.write_bytes(log, data.index(b"EndTransaction\x01") + len("EndTransaction"), b"x")
    reading = scan_traces(open_store(root))
    assert reading.table().num_rows == before - 1
    assert [finding.code for finding in reading.findings] == ["trace-unreadable"]
    damage.write_bytes(log, 0, data)
    damage.write_bytes(log, data.index(b"COMMIT_MESSAGE\x01"), b"x")
    reading = scan_traces(open_store(root))
    assert reading.table().num_rows == before - 1
    (finding,) = reading.findings
    assert (finding.code, finding.kind.severity) == ("trace-unreadable", "warning")


@pytest.mark.parametrize("name", STORES)
def test_the_last_decision_of_each_transaction(name: str, tmp_path: Path) -> None:
    reading = last_decisions(scan_traces(open_store(field_stores(name, tmp_path) / "store"), STORES[name]))
    rows = reading.table().to_pylist()
    assert len({row["transaction_id"] for row in rows}) == len(rows)
    assert [row["commit_log_offset"] for row in rows] == sorted(row["commit_log_offset"] for row in rows)
    assert reading.coverage
    found = {row["transaction_id"]: row["decision"] for row in rows}
    for transaction_id, one in right(name)["transactions"].items():
        assert found[transaction_id] == one["said"][-1][0]

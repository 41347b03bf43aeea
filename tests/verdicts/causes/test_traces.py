"""Message traces as evidence: where they are searched for, in which store, and what of them cannot be read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import TRACE_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from rmqtx.verdicts.causes.diagnosing import diagnosed_each
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.model.store_evidence import FILES, TRACE, StoreEvidence
from rmqtx.verdicts.model.trace_evidence import trace_evidence
from tests.forge.logs import Forge
from tests.forge.records import Message

Row = dict[str, Any]
ID = "C000020236324E0E2F2A88FBABAA0003"


def line(decision: str, identity: str = ID, time_ms: int = 0, *, is_answer: bool = False) -> str:
    fields = ("EndTransaction", str(time_ms), "R", "shop", "orders", identity, "null", "null", "127.0.0.1:10911", "2",
              identity, decision, str(is_answer).lower())
    return "\x01".join(fields) + "\x01\x02"


def traced(forge: Forge, *lines: str, topic: str = TRACE_TOPIC) -> int:
    return forge.append(Message(topic=topic, body="".join(lines).encode()))


def discarded(forge: Forge) -> None:
    """A transaction that was discarded after two checks."""
    half = forge.half(ID)
    forge.half(ID, checks=1)
    last = forge.half(ID, checks=2)
    assert half < last
    forge.discard(last)


def torn(root: Path) -> tuple[Store, int]:
    """A store with a discarded transaction and a trace of it, of which one line cannot be read, and its place."""
    forge = Forge(root)
    discarded(forge)
    place = traced(forge, line("COMMIT_MESSAGE"), line("PERHAPS"))
    return open_store(forge.write()), place


def strengths(*stores: Store) -> tuple[dict[str, str], list[Finding]]:
    reading = audit(list(stores), lambda store: broker_settings(store, version="5.3.3"))
    rows = reading.table()
    (causes,) = diagnosed_each(rows, reading.evidence)
    return {one["cause"]: one["strength"] for one in causes}, reading.findings


def test_the_trace_may_be_in_the_store_of_another_broker(tmp_path: Path) -> None:
    one, other = Forge(tmp_path / "one"), Forge(tmp_path / "other", begin_offset=1 << 20)
    discarded(one)
    traced(other, line("COMMIT_MESSAGE", "ANOTHER"), line("COMMIT_MESSAGE"))
    stores = [open_store(forge.write()) for forge in (one, other)]
    assert "decision-lost-on-the-way" not in strengths(stores[0])[0]
    found, findings = strengths(*stores)
    assert (found["decision-lost-on-the-way"], findings) == ("explains", [])
    (row,) = audit(stores, broker_settings).table().to_pylist()
    places = [StoreTimelineSource(store, broker_settings(store)) for store in stores]
    events = timeline(row, places).to_pylist()
    assert [(event["store"], event["topic"]) for event in events if event["event"] == "decided"] == [
        (stores[1].root, TRACE_TOPIC)
    ]


@pytest.mark.parametrize("is_given", [False, True])
def test_another_topic_is_read_if_it_is_given(is_given: bool, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    discarded(forge)
    traced(forge, line("COMMIT_MESSAGE"), topic="AuditTrace")
    store = open_store(forge.write())
    if is_given:
        store = replace(store, trace_topic="AuditTrace")
    found, _ = strengths(store)
    assert found.get("decision-lost-on-the-way") == ("explains" if is_given else None)
    place = StoreTimelineSource(store, broker_settings(store))
    (row,) = audit([store], broker_settings).table().to_pylist()
    topics = [event["topic"] for event in timeline(row, [place]).to_pylist() if event["event"] == "decided"]
    assert topics == (["AuditTrace"] if is_given else [])


def test_a_line_that_cannot_be_read_is_a_finding_of_the_audit(tmp_path: Path) -> None:
    store, place = torn(tmp_path / "store")
    found, findings = strengths(store)
    assert found["decision-lost-on-the-way"] == "explains"
    assert [(one.code, one.commit_log_offset) for one in findings] == [("trace-unreadable", place)]


@pytest.mark.parametrize("seed", range(3))
def test_forged_and_torn_traces_change_no_state_and_raise_nothing(seed: int, tmp_path: Path) -> None:
    """Any client may write to the topic: lines of other producers, any time and text, bodies that are cut or mixed."""
    chance = random.Random(seed)
    forge, plain = Forge(tmp_path / "forged", segment_bytes=1 << 16), Forge(tmp_path / "plain", segment_bytes=1 << 16)
    for one in (forge, plain):
        discarded(one)
        one.op(half := one.half("T1"))
        one.half("T1", checks=1)
        assert half
    whole = "".join(
        line(decision, identity, time_ms, is_answer=is_answer)
        for decision in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW") for identity in (ID, "T1", "", "null")
        for time_ms in (0, 1 << 61, forge.now_ms) for is_answer in (False, True)
    )
    for _ in range(20):
        body = bytearray(whole.encode())
        for _ in range(chance.randint(0, 40)):
            body[chance.randrange(len(body))] = chance.choice(b"\x00\x01\x02\xff9-,\x80\xed")
        begin = chance.randrange(len(body))
        forge.append(Message(topic=TRACE_TOPIC, body=bytes(body[begin : begin + chance.randrange(3_000)])))
    states = []
    for one in (forge, plain):
        store = open_store(one.write())
        reading = audit([store], lambda store: broker_settings(store, version="5.3.3"))
        rows = reading.table()
        diagnosed_each(rows, reading.evidence)
        places = [StoreTimelineSource(store, broker_settings(store))]
        for row in rows.to_pylist():
            timeline(row, places)
        states.append(rows.select(["transaction_id", "state", "flags", "reason_code", "advice"]).to_pylist())
        assert {finding.code for finding in reading.findings} <= {"trace-unreadable"}
    assert states[0] == states[1]


def test_a_store_without_the_topic_has_no_traces(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    discarded(forge)
    assert trace_evidence(open_store(forge.write())) is None


# --- what a trace decides between causes ------------------------------------------------------------------------------

SENT_MS, STORED_MS = 1_000, 501_000
"""The broker's clock is 500 s ahead of the producer's; sending took up to 4 ms."""


@dataclass
class Lines:
    """The lines of one transaction as traces of the store `s`."""

    lines: list[Row]
    root: str = "s"
    topic: str = TRACE_TOPIC
    exist: bool = True
    until_offset: None = None
    findings: list[Finding] = field(default_factory=list)

    def rows(self, _ids: Sequence[str], _from_offset: int = 0) -> dict[str, list[Row]]:
        return {ID: self.lines} if self.lines else {}


def sent() -> Row:
    return {"kind": "sent", "time_ms": SENT_MS, "cost_ms": 4, "commit_log_offset": 600, "line_number": 0}


def said(decision: str, at_ms: int, *, is_answer: bool = False) -> Row:
    """A decision at a time after the half message was sent."""
    return {
        "kind": "decided", "time_ms": SENT_MS + at_ms, "decision": decision, "is_check_answer": is_answer, "store": "s",
        "commit_log_offset": 700 + at_ms, "line_number": 1, "born_host": "127.0.0.1:9",
    }


def copy(at_ms: int, checks: int = 0) -> Row:
    return {"store": "s", "queue_id": 0, "queue_offset": checks, "commit_log_offset": 500 + at_ms,
            "store_time_ms": STORED_MS + at_ms, "checks_count": checks}


def op(at_ms: int, half: int) -> Row:
    return copy(at_ms) | {"half_queue_offset": half}


def judged(state: str, **columns: Any) -> Row:
    row = dict.fromkeys(NEEDED_COLUMNS) | {
        "store": "s", "transaction_id": ID, "state": state, "flags": [], "reason_code": "x", "producer_group": "g",
        "topic": "orders", "born_time_ms": SENT_MS, "half_store_time_ms": STORED_MS, "half_copies": [copy(0)],
        "op_marks": [], "final_records": [], "discard_copies": [],
    }
    return row | columns


def found_in(row: Row, *lines: Row, version: tuple[int, int, int] = (5, 3, 3), **facts: Any) -> dict[str, str]:
    traces, read = Lines(list(lines)), frozenset({FILES, TRACE})
    evidence = {"s": StoreEvidence(version, version, traces=traces, read=read, **facts)}
    table = pa.Table.from_pylist([row], pa.schema([TRANSACTIONS.field(name) for name in NEEDED_COLUMNS]))
    (causes,) = diagnosed_each(table, evidence)
    return {one["cause"]: one["strength"] for one in causes}


EITHER = {"decision-names-old-copy": "could_explain", "op-written-late": "could_explain"}
#: Rolled back by an op message on the original, written 300 ms after the check had put a copy back.
ROLLED_BACK = judged(
    "ROLLED_BACK", half_copies=[copy(0), copy(3_000, 1)], op_marks=[op(3_300, 0)], flags=["open_after_decision"]
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), EITHER),
        ((sent(), said("ROLLBACK", 2_500)), {"op-written-late": "explains"}),
        ((sent(), said("ROLLBACK", 3_100)), {"decision-names-old-copy": "explains"}),
        ((sent(), said("ROLLBACK", 3_001)), EITHER),
        ((said("ROLLBACK", 2_500),), {"op-written-late": "explains"}),
        ((said("ROLLBACK", 3_100),), EITHER),
        ((sent(), said("ROLLBACK", 9_000)), EITHER),
        ((sent(), said("ROLLBACK", 2_500), said("ROLLBACK", 3_200, is_answer=True)),
         EITHER),
    ],
    ids=["no trace", "before", "after", "within the time of sending", "before, half not traced",
         "after, half not traced", "after the op message", "twice"],
)
def test_a_trace_shows_whether_a_rollback_was_late(lines: tuple[Row, ...], expected: dict[str, str]) -> None:
    found = found_in(ROLLED_BACK, *lines)
    assert {word: found[word] for word in ("decision-names-old-copy", "op-written-late") if word in found} == expected


COMMITS = [copy(100) | {"topic": "orders"}, copy(900) | {"topic": "orders"}]
TWICE = judged(
    "COMMITTED", flags=["duplicate_commit"], final_records=COMMITS, op_marks=[op(110, -1), op(910, -1)],
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), {"rocksdb-asks-again": "could_explain", "decided-twice": "could_explain"}),
        ((sent(), said("COMMIT", 100), said("COMMIT", 900, is_answer=True)), {"rocksdb-asks-again": "explains"}),
        ((sent(), said("COMMIT", 100)), {"rocksdb-asks-again": "could_explain", "decided-twice": "could_explain"}),
    ],
)
def test_a_trace_shows_that_a_second_decision_was_an_answer(lines: tuple[Row, ...], expected: dict[str, str]) -> None:
    found = found_in(TWICE, *lines, version=(5, 5, 0))
    assert {word: found[word] for word in ("rocksdb-asks-again", "decided-twice") if word in found} == expected


@pytest.mark.parametrize(("answers", "strength"), [(0, "could_explain"), (1, "could_explain"), (2, "explains")])
def test_a_trace_shows_that_there_was_no_decision(answers: int, strength: str) -> None:
    row = judged(
        "DISCARDED", half_copies=[copy(0), copy(1_000, 1), copy(2_000, 2)], discard_copies=[copy(3_000)],
        flags=["may_be_decided"],
    )
    lines = [said("UNKNOWN", 1_000 * number, is_answer=True) for number in range(1, answers + 1)]
    assert found_in(row, sent(), *lines)["no-decision-in-time"] == strength


@pytest.mark.parametrize(
    ("lines", "strength"),
    [
        ((), "could_explain"),
        ((said("COMMIT", 5), said("COMMIT", 3_010, is_answer=True)), "explains"),
        ((said("UNKNOWN", 5), said("COMMIT", 3_010, is_answer=True)), None),
    ],
)
def test_a_trace_shows_what_a_proxy_did_not_pass_on(lines: tuple[Row, ...], strength: str | None) -> None:
    row = judged(
        "COMMITTED", half_copies=[copy(0), copy(3_000, 1)], op_marks=[op(3_100, 1)],
        final_records=[copy(3_050) | {"topic": "orders"}],
    )
    assert found_in(row, *lines, proxy_keeps_ms=15_000).get("proxy-loses-remoting-decision") == strength


@pytest.mark.parametrize(
    ("lines", "strength"),
    [
        ((sent(), said("COMMIT", 2_990)), None),
        ((sent(), said("COMMIT", 3_002)), "could_explain"),
        ((sent(), said("COMMIT", 3_100)), "explains"),
        ((said("COMMIT", 3_100),), "could_explain"),
        ((sent(), said("COMMIT", 100), said("COMMIT", 3_100, is_answer=True)), None),
        ((sent(), said("UNKNOWN", 100), said("COMMIT", 3_100, is_answer=True)), "explains"),
        ((sent(), said("UNKNOWN", 3_100, is_answer=True)), None),
    ],
)
def test_a_decision_after_the_discard(lines: tuple[Row, ...], strength: str | None) -> None:
    row = judged("DISCARDED", half_copies=[copy(0), copy(1_000, 1)], discard_copies=[copy(3_000)])
    assert found_in(row, *lines).get("answered-late") == strength


@pytest.mark.parametrize(
    ("state", "decisions", "strength"),
    [
        ("ROLLED_BACK", ("COMMIT",), "explains"), ("ROLLED_BACK", ("COMMIT", "UNKNOWN"), "explains"),
        ("ROLLED_BACK", ("COMMIT", "ROLLBACK"), None), ("ROLLED_BACK", ("UNKNOWN",), None), ("ROLLED_BACK", (), None),
        ("COMMITTED", ("ROLLBACK",), "explains"), ("COMMITTED", ("COMMIT",), None), ("COMMITTED", ("UNKNOWN",), None),
    ],
)
def test_the_broker_recorded_another_outcome(state: str, decisions: tuple[str, ...], strength: str | None) -> None:
    finals = [copy(3_050) | {"topic": "orders"}] if state == "COMMITTED" else []
    row = judged(state, half_copies=[copy(0), copy(3_000, 1)], op_marks=[op(3_100, 1)], final_records=finals)
    lines = [said(one, number, is_answer=number > 0) for number, one in enumerate(decisions)]
    assert found_in(row, sent(), *lines).get("answered-otherwise") == strength

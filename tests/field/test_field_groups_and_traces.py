"""Stores whose clients reported what they sent: several applications in one producer group, and message traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.index.index import HEADER
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import TRACE_TOPIC, open_store
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.causes.groups import group_causes
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from rmqtx.verdicts.model import trace_evidence
from rmqtx.verdicts.model.group_habits import SENDERS_MAX, Members, Sent
from rmqtx.verdicts.model.store_evidence import FILES, TRACE, StoreEvidence
from tests.conftest import MOMENT
from tests.field import field_stores, right
from tests.field.test_field_causes import causes
from tests.forge import damage
from tests.verdicts.causes.diagnosed import strengths

Row = dict[str, Any]
OWN, SHARED, UNKNOWN = "group-own-5.3.3", "group-shared-5.3.3", "group-shared-unknow-4.9.7"
TRACES = ("trace-checks-4.9.7", "trace-custom-topic-5.5.0", "trace-dropped-5.3.3")
WORD = "group-shared-by-applications"
#: A transaction without a decision that was checked as often as the broker checks, transactionCheckMax=3.
CHECKS_MAX = 3


@pytest.fixture(autouse=True)
def _a_minute_after_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MOMENT, lambda store: known_until_ms(store) + 60_000)


def rows_of(name: str, to: Path) -> dict[str, Row]:
    store = open_store(field_stores(name, to) / "store")
    reading = audit([store], broker_settings)
    rows = reading.table().to_pylist()
    assert [finding.code for finding in reading.findings if finding.kind.severity == "error"] == []
    open_ones = {row["transaction_id"] for row in rows if row["state"] == "PENDING"}
    listed = pending([store], broker_settings).table().to_pylist()
    assert {row["transaction_id"] for row in listed if row["state"] == "PENDING"} == open_ones
    return {row["transaction_id"]: row for row in rows}


def delivered_at(row: Row) -> list[int]:
    return [final["commit_log_offset"] for final in row["final_records"]]


@pytest.mark.parametrize("name", [OWN, SHARED, UNKNOWN])
def test_transactions_of_two_applications_have_the_states_that_they_reported(name: str, tmp_path: Path) -> None:
    rows, expected = rows_of(name, tmp_path), right(name)["transactions"]
    assert set(rows) == set(expected)
    for transaction_id, one in expected.items():
        row = rows[transaction_id]
        assert row["topic"] == one["topic"]
        assert delivered_at(row) == one["delivered"]
        states = {"PENDING", "DISCARDED"} if one["state"] == "OPEN_OR_DISCARDED" else {one["state"]}
        assert row["state"] in states
    open_ones = [row for row in rows.values() if row["state"] in ("PENDING", "DISCARDED")]
    assert len(open_ones) == sum(one["state"] == "OPEN_OR_DISCARDED" for one in expected.values())


def test_transactions_of_a_group_with_random_ids(tmp_path: Path) -> None:
    states = [row["state"] for row in rows_of("shared-group", tmp_path).values()]
    assert {word: states.count(word) for word in set(states)} == right("shared-group")["states"]


@pytest.mark.parametrize("name", TRACES)
def test_only_what_reached_the_broker_decides_however_clients_and_their_traces_report_it(
    name: str, tmp_path: Path
) -> None:
    """A proxy dropped some decisions on their way; the client, and the trace topic in the same log, have them."""
    rows = rows_of(name, tmp_path)
    for transaction_id, one in right(name)["transactions"].items():
        row = rows.pop(transaction_id)
        assert row["topic"] == one["topic"]
        assert delivered_at(row) == one["delivered"]
        if one["arrived"]:
            assert row["state"] == {"COMMIT": "COMMITTED", "ROLLBACK": "ROLLED_BACK"}[one["arrived"][0]]
        else:
            assert one["answers"] == CHECKS_MAX
            assert row["state"] == "DISCARDED"
    assert {row["keys"] for row in rows.values()} <= {"KEY_warm"}


# --- the cause ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "has_logs", "strength"),
    [
        ("shared-group", False, "could_explain"), (SHARED, False, "could_explain"), (SHARED, True, "explains"),
        (UNKNOWN, False, "could_explain"), (UNKNOWN, True, "explains"), (OWN, False, None), (OWN, True, None),
    ],
)
def test_a_group_of_several_applications(name: str, has_logs: bool, strength: str | None, tmp_path: Path) -> None:
    root = field_stores(name, tmp_path) / "store"
    found = causes(root, logs=Path(__file__).with_name(name) / "logs" if has_logs else None)
    expected = right(name)
    count = expected.get("transactions")
    if not isinstance(count, int):
        count = sum(one["is_wrong_application_asked"] for one in expected["transactions"].values())
    assert found.get(WORD) == (None if strength is None else {strength: count})


@pytest.mark.parametrize("split_bytes", [None, 1 << 13])
def test_audit_names_the_group(split_bytes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if split_bytes is not None:
        monkeypatch.setattr(local_audit, "ONE_PROCESS_BYTES_MAX", 0)
        monkeypatch.setattr(local_audit, "PARTITION_BYTES", split_bytes)
    store = open_store(field_stores(SHARED, tmp_path) / "store")
    reading = audit([store], broker_settings, processes=1)
    for _ in reading:
        pass
    assert group_causes(reading.habits) == [(store.root, WORD, "shop_tx", 4)]


def row_of(transaction: str, topic: str, state: str, time_ms: int, checks: int = 0) -> Row:
    """A judged transaction with one copy for each check, decided by an op message on the last one."""
    copies = [
        {"store": "s", "queue_id": 0, "queue_offset": time_ms + check, "commit_log_offset": time_ms * 10 + check,
         "store_time_ms": time_ms, "checks_count": check}
        for check in range(checks + 1)
    ]
    mark = {"store": "s", "queue_id": 0, "queue_offset": 0, "commit_log_offset": time_ms * 10 + 9,
            "half_queue_offset": copies[-1]["queue_offset"], "store_time_ms": time_ms}
    row: Row = dict.fromkeys(NEEDED_COLUMNS) | {
        "store": "s", "transaction_id": transaction, "topic": topic, "state": state, "flags": [], "reason_code": "x",
        "producer_group": "g", "born_time_ms": time_ms, "half_store_time_ms": time_ms, "half_copies": copies,
        "op_marks": [mark], "final_records": [], "discard_copies": [],
    }
    return row


def process(number: int, count: int) -> list[str]:
    """Ids of a Java client; a number from 100 on stands for a host with an IPv6 address."""
    address = "C0A80001" if number < 100 else "FD" + "0" * 29 + "2"
    return [f"{address}{number:04X}4E0E2F2A{place:012X}" for place in range(count)]


def found_in(rows: list[Row]) -> dict[str, dict[str, int]]:
    schema = pa.schema([TRANSACTIONS.field(name) for name in NEEDED_COLUMNS])
    diagnosis = Diagnosis({"s": StoreEvidence(version_low=(5, 3, 3), version_high=(5, 3, 3))})
    for row in rows:  # in batches of one: what belongs together shows after the last one
        diagnosis.add(pa.RecordBatch.from_pylist([row], schema))
    return strengths(diagnosis.table().to_pylist())


def of_processes(topics: dict[int, tuple[str, ...]], begins: dict[int, int] | None = None) -> list[Row]:
    """Four transactions of each process, the last one rolled back at a check."""
    rows = []
    for number, names in topics.items():
        for place, transaction in enumerate(process(number, 4)):
            time_ms = 1000 + (begins or {}).get(number, 0) + place * 10 + number
            state, checks = ("ROLLED_BACK", 1) if place == 3 else ("COMMITTED", 0)
            rows.append(row_of(transaction, names[place % len(names)], state, time_ms, checks))
    return rows


def test_two_processes_with_topics_of_their_own_are_two_applications() -> None:
    assert found_in(of_processes({1: ("A",), 2: ("B",)}))[WORD] == {"could_explain": 2}
    assert found_in(of_processes({101: ("A",), 102: ("B",)}))[WORD] == {"could_explain": 2}
    assert found_in(of_processes({1: ("A",), 2: ("B",), 103: ("C", "D")}))[WORD] == {"could_explain": 3}


def test_processes_of_one_application_are_one() -> None:
    """Two instances that send to one topic, and one of which sends to a second one too."""
    assert WORD not in found_in(of_processes({1: ("A",), 2: ("A",)}))
    assert WORD not in found_in(of_processes({1: ("A", "B"), 2: ("B",), 3: ("A",)}))


def test_an_application_that_was_started_again_with_another_topic_is_one() -> None:
    assert WORD not in found_in(of_processes({1: ("A",), 2: ("B",)}, {2: 10_000}))
    assert WORD in found_in(of_processes({1: ("A",), 2: ("B",)}, {2: 20}))


def random_ids() -> list[Row]:
    """Commits at once and rollbacks at checks on two topics, with ids that begin with no common digits."""
    kinds = [(topic, state, checks) for topic in "AB" for state, checks in (("COMMITTED", 0), ("ROLLED_BACK", 1))]
    return [
        row_of(f"{place:032X}"[::-1], *kinds[place % 4][:2], 1000 + place, kinds[place % 4][2]) for place in range(16)
    ]


def test_ids_that_name_no_process_leave_the_pattern_of_decisions() -> None:
    rows = random_ids()
    assert found_in(rows)[WORD] == {"could_explain": 8}
    for decided in ("ROLLED_BACK", "COMMITTED"):
        other = row_of("F" * 32, "A", decided, 5000, 0 if decided == "ROLLED_BACK" else 1)
        assert WORD not in found_in([*rows, other])
    assert WORD not in found_in([row | {"topic": "A"} for row in rows])


def test_more_processes_than_are_kept_are_none() -> None:
    members = Members()
    for number in range(SENDERS_MAX + 1):
        members.add_sent(f"{number:020}", f"topic {number % 2}", Sent(5, 0, 100))
    assert not members.applications()
    assert members.are_senders_unknown
    assert not members.senders


def test_show_names_the_sender(tmp_path: Path) -> None:
    store = field_stores("shared-group", tmp_path) / "store"
    place = StoreTimelineSource(open_store(store), broker_settings(open_store(store)))
    reading = audit([open_store(store)], broker_settings)
    senders = {
        next(event["detail"] for event in timeline(row, [place]).to_pylist() if event["event"] == "born"): row["topic"]
        for row in reading.table().to_pylist()
    }
    assert all(detail.startswith("producer clock; sent from 127.0.0.1:") for detail in senders)
    assert {topic for detail, topic in senders.items() if detail.endswith(", client app-a@1")} == {"TopicA"}
    assert {topic for detail, topic in senders.items() if "client" not in detail} == {"TopicB"}


# --- what traces show -----------------------------------------------------------------------------------------------


def test_traces_show_which_decisions_were_lost(tmp_path: Path) -> None:
    """By what the client reported: its last decision was COMMIT (4, sent four times), ROLLBACK (2) or UNKNOWN."""
    root = field_stores("trace-dropped-5.3.3", tmp_path) / "store"
    said = [
        one["said"][-1][0] for one in right("trace-dropped-5.3.3")["transactions"].values() if not one["arrived"]
    ]
    found = causes(root)
    lost = found["decision-lost-on-the-way"]
    assert lost["explains"] >= said.count("COMMIT")
    assert lost["explains"] + lost.get("could_explain", 0) == said.count("COMMIT") + said.count("ROLLBACK")
    assert found["producer-answered-unknown"] == {"explains": said.count("UNKNOWN")}
    assert "producer-not-connected" not in found


@pytest.mark.parametrize("lost", ["index", "index and queues", "the entries of a file", "its header"])
def test_a_trace_that_the_index_does_not_find_is_found_by_a_scan(lost: str, tmp_path: Path) -> None:
    root = field_stores("trace-dropped-5.3.3", tmp_path) / "store"
    expected = causes(root)
    (index,) = (root / "index").iterdir()
    if lost == "the entries of a file":
        damage.truncate(index, 4096)
    elif lost == "its header":
        damage.zero_bytes(index, HEADER.offsets["next_entry_number"], 4)
    else:
        damage.drop(root / "index")
    if "queues" in lost:
        damage.drop(root / "consumequeue" / TRACE_TOPIC)
    assert causes(root) == expected
    assert expected["decision-lost-on-the-way"]["explains"]


def test_a_trace_that_is_not_searched_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the index, in a log that is too long to be scanned for it: what could be shown only could be."""
    monkeypatch.setattr(trace_evidence, "_SCANNED_BYTES_MAX", 30_000)
    root = field_stores("trace-dropped-5.3.3", tmp_path) / "store"
    reading = audit([open_store(root)], broker_settings)
    assert reading.table().num_rows
    assert "traces-unread" not in {finding.code for finding in reading.findings}
    damage.drop(root / "index")
    for found in (audit([open_store(root)], broker_settings), pending([open_store(root)], broker_settings, scan=True)):
        for _ in found:
            pass
        assert [finding.code for finding in found.findings] == ["traces-unread"]
        assert found.findings[0].is_error
    assert set(causes(root)["producer-answered-unknown"]) == {"could_explain"}


@pytest.mark.parametrize("name", ["trace-checks-4.9.7", "trace-custom-topic-5.5.0"])
def test_no_decision_was_lost_where_all_arrived(name: str, tmp_path: Path) -> None:
    assert "decision-lost-on-the-way" not in causes(field_stores(name, tmp_path) / "store")


@pytest.mark.parametrize("decision", ["COMMIT", "ROLLBACK"])
def test_a_decision_that_may_still_be_under_way_is_no_proof(decision: str, tmp_path: Path) -> None:
    """A pending transaction that the check did not put back since: the request may not have been carried out yet."""
    lines = [{
        "kind": "decided", "time_ms": 50, "decision": decision, "is_check_answer": False, "store": "s",
        "commit_log_offset": 10_000, "line_number": 0, "born_host": "127.0.0.1:1",
    }]
    row = row_of("T", "orders", "PENDING", 40) | {"op_marks": []}

    class Traces:
        root = "s"

        def rows(self, _ids: list[str], _from_offset: int) -> dict[str, Any]:
            return {"T": lines}

    facts = {"s": StoreEvidence((5, 3, 3), (5, 3, 3), traces=Traces(), read=frozenset({FILES, TRACE}))}  # type: ignore[arg-type]
    columns = {name: TRANSACTIONS.field(name) for name in NEEDED_COLUMNS}

    def strength(offset: int) -> dict[str, int] | None:
        copies = [dict(copy) for copy in row["half_copies"]]
        again = copies[0] | {"commit_log_offset": offset, "queue_offset": 99, "checks_count": 1}
        table = pa.Table.from_pylist([row | {"half_copies": [*copies, again]}], pa.schema(list(columns.values())))
        diagnosis = Diagnosis(facts)
        diagnosis.add(table.combine_chunks().to_batches()[0])
        return strengths(diagnosis.table().to_pylist()).get("decision-lost-on-the-way")

    assert strength(9_000) == {"could_explain": 1}
    assert strength(11_000) == ({"explains": 1} if decision == "COMMIT" else {"could_explain": 1})

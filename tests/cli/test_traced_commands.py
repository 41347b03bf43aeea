"""Commands that take what producers wrote into message traces: as a ledger, for plans, in lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqtx.readers.model.exit_status import USAGE
from rmqtx.readers.store.store import TRACE_TOPIC
from tests.cli.conftest import Run
from tests.field import field_stores, right
from tests.forge import damage
from tests.forge.logs import Forge
from tests.verdicts.causes.test_traces import line, traced

NAME = "trace-dropped-5.3.3"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return field_stores(NAME, tmp_path) / "store"


def said(decision: str) -> set[str]:
    """The transactions whose decisions were all swallowed, and whose producer reported this one at last."""
    transactions: dict[str, Any] = right(NAME)["transactions"]
    return {name for name, one in transactions.items() if not one["arrived"] and one["said"][-1][0] == decision}


def test_reconcile_with_the_trace_advises_what_producers_decided(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    result = rmqtx("reconcile", str(store), "--trace", "--all", "--format", "jsonl", "--plan", str(plan))
    assert result.status == 0
    rows = result.rows
    words = {"COMMIT": "done", "ROLLBACK": "not_done", "UNKNOWN": "unknown"}
    expected = {name: words[one["said"][-1][0]] for name, one in right(NAME)["transactions"].items()}
    assert expected.items() <= {row["transaction_id"]: row["ledger_word"] for row in rows}.items()
    assert {row["transaction_id"] for row in rows if row["advice"] == "commit"} == said("COMMIT")
    assert all(row["outcome"] in ("act", "agrees", "open") for row in rows)
    assert plan.exists()


def test_a_trace_that_cannot_be_read_leaves_the_comparison_incomplete(rmqtx: Run, store: Path) -> None:
    (log,) = (store / "commitlog").iterdir()
    damage.write_bytes(log, log.read_bytes().index(b"COMMIT_MESSAGE\x01"), b"x")
    result = rmqtx("reconcile", str(store), "--trace")
    assert (result.status, "trace-unreadable" in result.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "--ledger", "x.csv"], "--ledger does not go with --trace"),
        (["--trace", "--missing-is-not-done"], "a missing line shows nothing"),
        (["--trace", "--engine", "spark"], "--trace is read without Spark"),
        (["--ledger", "x.csv", "--match", "keys = a", "--done", "b = c"], "--not-done is required"),
        ([], "--ledger is required"),
    ],
)
def test_what_is_no_ledger(words: list[str], message: str, rmqtx: Run, store: Path) -> None:
    result = rmqtx("reconcile", str(store), *words)
    assert result.status == 2
    assert message in result.err


@pytest.mark.parametrize("action", ["commit", "rollback"])
def test_a_plan_of_what_producers_decided(action: str, rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    names = [f"T{number}" for number in range(4)]
    halves = [forge.half(name) for name in names]
    lines = [("T0", "COMMIT_MESSAGE"), ("T1", "ROLLBACK_MESSAGE"), ("T2", "UNKNOW"), ("T3", "UNKNOW")]
    traced(forge, *(line(decision, name, number) for number, (name, decision) in enumerate(lines)))
    traced(forge, line("COMMIT_MESSAGE", "T3", 9, is_answer=True))
    root = forge.write()
    assert len(halves) == len(names)
    plan = tmp_path / "plan.json"
    words = ["--broker-version", "4.9.7", "--reason", "test", "-o", str(plan)]
    result = rmqtx("plan", action, "--from-trace", "--store", str(root), *words)
    assert result.status == 0, result.err
    shown = rmqtx("plan", "show", str(plan), "--format", "jsonl")
    found = {json.loads(row)["transaction_id"] for row in shown.out.splitlines()}
    assert found == ({"T0", "T3"} if action == "commit" else {"T1"})


def test_a_plan_from_a_trace_takes_no_ids(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    words = ["--from-trace", "--store", str(store), "--reason", "test", "-o", str(tmp_path / "plan.json")]
    for more in (["commit", "T0"], ["discard"]):
        result = rmqtx("plan", *more, *words)
        assert (result.status, "--from-trace selects pending transactions" in result.err) == (2, True)


def test_traces_are_exported(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    assert rmqtx("export", "traces", str(store), "--to", str(tmp_path / "out")).status == 0
    topics = {one.name for one in (tmp_path / "out").iterdir() if one.name.startswith("topic=")}
    assert topics == {f"topic={one['topic']}" for one in right(NAME)["transactions"].values()} | {"topic=PayOrder"}
    refused = rmqtx("export", "halves", str(store), "--to", str(tmp_path / "halves"), "--trace-topic", TRACE_TOPIC)
    assert refused.status == 2


@pytest.mark.parametrize("is_traced", [True, False])
def test_check_counts_decisions_that_were_lost(is_traced: bool, rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    for name in ("T0", "T1"):
        forge.half(name)
    if is_traced:
        traced(forge, line("COMMIT_MESSAGE", "T0"), line("UNKNOW", "T1"))
    for name in ("T0", "T1"):
        forge.half(name, checks=1)
    file = tmp_path / "rmqtx.prom"
    rmqtx("check", str(forge.write(half_cursor=2)), "--broker-version", "4.9.7", "--textfile", str(file))
    found = [one for one in file.read_text().splitlines() if one.startswith("rmqtx_decisions_lost_transactions{")]
    assert [one.rpartition(" ")[2] for one in found] == (["1"] if is_traced else [])
    assert ("rmqtx_decisions_lost_transactions" in file.read_text()) is is_traced


@pytest.mark.parametrize("command", [
    ["check", "--textfile", "PROM"], ["audit"], ["table", "--into", "TABLE"],
    ["follow", "--until-idle", "--checkpoint", "FILE"], ["pending"],
])
@pytest.mark.parametrize("is_named", [True, False])
def test_traces_of_another_topic_are_read_where_it_is_named(
    command: list[str], is_named: bool, rmqtx: Run, tmp_path: Path
) -> None:
    forge = Forge(tmp_path / "store")
    forge.half("T0")
    traced(forge, line("COMMIT_MESSAGE", "T0"), topic="AuditTrace")
    forge.half("T0", checks=1)
    words = [str(tmp_path / word) if word.isupper() else word for word in command]
    words += ["--trace-topic", "AuditTrace"] if is_named else []
    if "check" not in command and "--into" not in command:
        words += ["--format", "jsonl"]
    root = str(forge.write(half_cursor=1))
    result = rmqtx(words[0], root, *words[1:], "--broker-version", "4.9.7")
    if "check" in command:
        file = (tmp_path / "PROM").read_text()
        assert ("rmqtx_decisions_lost_transactions{" in file) is is_named
        return
    assert result.status == 0, result.err
    files = (tmp_path / "TABLE").rglob("*.parquet")
    in_table = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    (row,) = in_table or [json.loads(one) for one in result.out.splitlines()]
    assert ("decision-lost-on-the-way" in row["causes"]) is is_named


def test_stores_without_traces_are_no_ledger(rmqtx: Run, common: Path) -> None:
    result = rmqtx("reconcile", common, "--trace")
    assert result.status == USAGE
    assert "no decision in message traces" in result.err

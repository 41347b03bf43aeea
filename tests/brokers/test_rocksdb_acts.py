"""A real broker with transactions in RocksDB, acted on live and while it is stopped: what it delivers, what it asks.

`RMQTX_ROCKSDB_VERSIONS` names the versions (default: a short one on 5.5.0; `make test-brokers` runs all).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import maven
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Ran, Tool
from tests.brokers.rocks_stage import DROPPED, TRANSACTIONS_IN_ROCKSDB
from tests.brokers.transaction import Transaction

VERSIONS = os.environ.get("RMQTX_ROCKSDB_VERSIONS", "5.5.0").split()
IS_SHORT = "RMQTX_ROCKSDB_VERSIONS" not in os.environ
WHY_NOT = maven.why_not()

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

REFUSED = 12
#: Decisions show soon, so that little is waited for.
QUICK = {
    **TRANSACTIONS_IN_ROCKSDB, "waitTimeMillsInTransactionQueue": "200", "transactionOpBatchInterval": "100",
    "transactionCheckInterval": "300",
}
ASKED_WITHIN_SECONDS = 40


def outcome(ran: Ran) -> str:
    """The outcome of the only receipt."""
    assert len(ran.rows) == 1, str(ran)
    return str(ran.rows[0]["outcome"])


def state(tool: Tool, one: Transaction) -> tuple[str, str]:
    """State of one transaction and the code of its reason, as `show` gives them."""
    ran = tool.run("show", one.id, "--format", "jsonl")
    rows = [row for row in ran.rows if "state" in row]
    assert len(rows) == 1, str(ran)
    return rows[0]["state"], rows[0]["reason_code"]


def dropped(stage: Stage) -> set[str]:
    """The transactions that the broker says it has forgotten; it writes nothing of it into the store."""
    log = stage.rig.home / "logs" / "rocketmqlogs" / "transaction.log"
    return {found.group(3) for found in DROPPED.finditer(log.read_text(errors="replace"))}


def at_once(tool: Tool, *acts: tuple[str, Transaction]) -> list[Ran]:
    """Acts on several transactions by processes that run side by side."""
    begun = [tool.start(action, one.id, "--yes", "--format", "jsonl") for action, one in acts]
    return [tool.end(process) for process in begun]


def refused_by(ran: Ran, guard: str) -> None:
    """That a guard refused."""
    assert ran.status == REFUSED, str(ran)
    assert f"{guard}: " in ran.stderr, str(ran)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_commit_and_a_rollback_are_proved(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, QUICK) as stage:
        committed, rolled = stage.orphans("short", 2)
        tool = stage.tool()
        for action, one in (("commit", committed), ("rollback", rolled)):
            assert outcome(tool.act(action, one.id)) == "proved"
        refused_by(tool.act("commit", committed.id), "already-delivered")
        stage.until_consumed()
        assert (stage.delivered(committed), stage.delivered(rolled)) == (1, 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.skipif(IS_SHORT, reason="takes too long for every day: make test-brokers")
def test_acts_on_a_live_broker(version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, QUICK) as stage:
        committed, rolled, discarded, late, again = stage.orphans("act", 5)
        tool = stage.tool()
        rows = tool.run("pending", "--format", "jsonl").rows
        assert {row["transaction_id"]: row["state"] for row in rows} == {
            one.id: "PENDING" for one in (committed, rolled, discarded, late, again)
        }
        for action, one in (("commit", committed), ("rollback", rolled), ("discard", discarded)):
            assert outcome(tool.act(action, one.id)) == "proved"
        refused = at_once(tool, ("commit", committed), ("commit", rolled), ("resume", late))
        for ran, guard in zip(refused, ("already-delivered", "already-decided", "still-open"), strict=True):
            refused_by(ran, guard)
        stage.config(transactionCheckMax="1", transactionTimeOut="1000")
        stage.until("what is left is dropped", lambda: dropped(stage) >= {late.id, again.id}, ASKED_WITHIN_SECONDS)
        assert state(tool, late) == ("UNDECIDABLE", "rocksdb_table_unread")
        refused_by(tool.act("resume", again.id), "rocksdb-transactions")
        assert outcome(tool.act("commit", late.id)) == "proved"
        made = tool.act("resume", again.id, "--override", "rocksdb-transactions", "--reason", "it was dropped")
        assert outcome(made) == "accepted"
        row = next(row for row in tool.run("audit", "--format", "jsonl").rows if row["transaction_id"] == again.id)
        assert len(row["half_copies"]) == 2
        assert row["state"] in ("PENDING", "UNDECIDABLE")  # the new one too is dropped soon
        assert outcome(tool.act("commit", again.id)) == "proved"
        stage.until_consumed()
        delivered = {one.case: stage.delivered(one) for one in (committed, rolled, discarded, late, again)}
        assert delivered == {committed.case: 1, rolled.case: 0, discarded.case: 0, late.case: 1, again.case: 1}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.skipif(IS_SHORT, reason="takes too long for every day: make test-brokers")
@pytest.mark.parametrize("how", ["clean", "kill"])
def test_acts_on_the_files_of_a_stopped_broker(how: str, version: str, tmp_path: Path) -> None:
    with Stage(version, tmp_path, QUICK) as stage:
        shop = stage.shop()
        committed, rolled, discarded, waiting = shop.begin_all("offline", 4)
        shop.kill()
        if how == "kill":  # one in the middle of their first writing leaves an empty file, and all is refused for it
            cursors = stage.rig.store / "config" / "consumerOffset.json"
            stage.until("cursors are written", lambda: cursors.exists() and cursors.stat().st_size > 0, 60)
        stage.halt("clean" if how == "clean" else "kill")
        tool = stage.tool()
        for action, one in (("commit", committed), ("rollback", rolled), ("discard", discarded)):
            ran = tool.run(
                action, one.id, "--store", str(stage.rig.store), "--in-place", "--undo",
                str(tmp_path / f"{action}.undo"), "--broker-version", version, "--yes", "--format", "jsonl", live=False,
            )
            assert outcome(ran) == "proved", str(ran)
        stage.boot()
        stage.shop(group=shop.group).fill(1)  # one that has sent nothing yet is not asked (5.5.0)
        stage.until_consumed()
        with stage.checks():
            stage.until("the one that is left is asked for", lambda: bool(waiting.checks), ASKED_WITHIN_SECONDS)
            time.sleep(2.5)
        ended = (committed, rolled, discarded)
        assert {one.case: len(one.checks) for one in ended} == {one.case: 0 for one in ended}
        assert {one.case: stage.delivered(one) for one in (*ended, waiting)} == {
            committed.case: 1, rolled.case: 0, discarded.case: 0, waiting.case: 0
        }
        stage.halt("clean")
        store = open_store(stage.rig.store)
        reading = audit([store], lambda one: broker_settings(one, version=version))
        states = {row["transaction_id"]: row for row in reading.table().to_pylist()}
        assert [states[one.id]["state"] for one in ended] == ["COMMITTED", "ROLLED_BACK", "ROLLED_BACK"]
        if not any(finding.code == "database-unread" for finding in reading.findings):
            keys = [len([e for e in states[one.id]["state_entries"] if e["kind"] == "rocksdb"]) for one in ended]
            assert keys == [0, 0, 0]
            assert states[waiting.id]["state"] == "PENDING"

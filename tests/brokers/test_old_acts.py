"""Forced decisions on prepared records, live and on files, by real brokers before 4.3: each commit arrives once.

`RMQTX_OLD_BROKER_VERSIONS` names the versions; without it none is run, because each takes more than a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqtx.readers.old_tables.state_table import STATES, state_slots
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from tests.brokers import corpus, maven
from tests.brokers.forcing.test_copies import of_corpus
from tests.brokers.old_rig import COMMIT, OldRig, old_rig
from tests.brokers.rig import Agent, Event, Rig
from tests.brokers.watching import until
from tests.repairs.acting import act, medium_of, rows_of
from tests.repairs.test_old_acts import prepared_rows

VERSIONS = os.environ.get("RMQTX_OLD_BROKER_VERSIONS", "").split()
STOPS = ("clean", "killed")
LATER_VERSIONS = ("4.3.0", "4.9.7")
WHY_NOT = maven.why_not()

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]
#: Stores whose rolled back, discarded, hidden and dropped transactions are copied.
COPIED = ("common-5.3.3", "common-4.4.0", "masked-5.1.4", "rocksdb-5.5.0", "prepared-4.2.0")
CASES = ("live_commit", "live_rollback", "file_commit", "file_rollback", "file_discard", "open")


class Shop:
    """A broker, its clients, and what they saw."""

    def __init__(self, rig: OldRig, state: Path) -> None:
        self.rig = rig
        self.events: list[Event] = []
        self.sent: dict[str, Event] = {}
        self.environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        self.agent: Agent

    def clients(self, *, with_producer: bool) -> None:
        self.agent = self.rig.agent(on_event=self.events.append)
        self.rig.wait_broker(self.agent)
        self.rig.create_topic(self.agent, "orders", queues=2)
        self.agent.do("consumer", group="warehouse", topics="orders")
        if with_producer:
            self.agent.do("producer", group="shop", topic="orders")

    def send(self, case: str) -> None:
        self.agent.do(
            "send", kind="transaction", group="shop", topic="orders", case=case, plan=case, keys=f"K-{case}",
            body="aGVsbG8=",
        )
        self.sent[case] = next(one for one in self.events if one["event"] == "sent" and one["case"] == case)

    def deliveries(self, case: str) -> int:
        """Each record counts once: after a crash a consumer receives again what it had not acknowledged."""
        got = [one for one in self.events if one["event"] == "delivered" and one["case"] == case]
        return len({one["commit_log_offset"] for one in got})

    def rmqtx(self, *words: object) -> subprocess.CompletedProcess[str]:
        program = "from rmqtx_cli.main import run; run()"
        return subprocess.run(
            [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False,
            env=self.environment, timeout=60,
        )


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_forced_commit_arrives_exactly_once(version: str, stop: str, tmp_path: Path) -> None:
    with old_rig(version, tmp_path / "rig") as rig:
        rig.start()
        shop = Shop(rig, tmp_path / "state")
        shop.clients(with_producer=True)
        for case in CASES:
            shop.send(case)
        refused = shop.rmqtx("commit", "K-live_commit", "-n", rig.name_server, "--yes", "--dry-run")
        assert refused.returncode == 12, refused.stderr
        assert "producer-connected" in refused.stderr
        shop.agent.kill()
        shop.clients(with_producer=False)
        act_live(shop, version)
        rig.stop("broker", signal.SIGTERM if stop == "clean" else signal.SIGKILL)
        shop.agent.kill()
        act_on_files(shop, version, tmp_path)
        rig.start_broker()
        shop.clients(with_producer=False)
        until("delivered", lambda: shop.deliveries("file_commit") == 1)
        # the producer can still decide the open transaction, whatever was done to other slots of the state table
        assert rig.end(shop.agent, COMMIT, shop.sent["open"])["code"] == 0
        until("delivered", lambda: shop.deliveries("open") == 1)
        time.sleep(1.0)
        wanted = {"live_commit": 1, "live_rollback": int(redelivers(version)), "file_commit": 1, "open": 1}
        assert {case: shop.deliveries(case) for case in CASES} == dict.fromkeys(CASES, 0) | wanted
        shop.agent.kill()
        rig.stop("broker")
        if version.startswith("3.1"):
            # after a kill the broker rebuilds the table from open records, and refuses former slot numbers
            remade = ["PREPARED"]
            kept = ["COMMIT", "ROLLBACK", "COMMIT", "ROLLBACK", "ROLLBACK", "COMMIT"]
            assert states_of(rig.store) == (kept if stop == "clean" else remade)


@pytest.mark.skipif(not VERSIONS, reason="make test-brokers runs it")
@pytest.mark.parametrize("version", LATER_VERSIONS)
def test_a_later_broker_delivers_what_was_committed_on_its_files(version: str, tmp_path: Path) -> None:
    """A later broker continues a store of 4.2.0, whose prepared records it cannot decide itself."""
    name = f"upgraded-4.2.0-{version}"
    root = corpus.unpack(name, tmp_path)
    pending = prepared_rows(rows_of(root, version))
    orders = dict(zip(pending, (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.COMMIT, ActKind.DISCARD), strict=False))
    medium = medium_of(root, version, Destination(undo_file=tmp_path / "undo"))
    receipts = act(medium, Journal(tmp_path / "state" / "receipts.jsonl"), orders)
    assert {receipt.outcome for receipt in receipts} == {"proved"}
    cases = {row["transaction_id"]: row for row in corpus.expected(name)}
    events: list[Event] = []
    with Rig(version, tmp_path, corpus.recipe(name)["broker_conf"]) as rig:
        rig.start_names()
        rig.start_broker()
        agent = rig.agent(on_event=events.append)
        rig.wait_broker(agent)
        agent.do("consumer", group="after", topics="orders,payments")
        committed = [cases[one]["case"] for one, action in orders.items() if action == ActKind.COMMIT]

        def count(case: str) -> int:
            return sum(event["event"] == "delivered" and event["case"] == case for event in events)

        until("delivered", lambda: all(count(case) for case in committed))
        time.sleep(2.0)
        ended = [cases[one]["case"] for one, action in orders.items() if action != ActKind.COMMIT]
        assert [count(case) for case in committed] == [1] * len(committed)
        assert [count(case) for case in ended] == [0] * len(ended)


def redelivers(version: str) -> bool:
    """Whether rmqtx has a broker commit what it has as rolled back: not the designs with a state table."""
    return not version.startswith("3.1")


def act_live(shop: Shop, version: str) -> None:
    where = ("-n", shop.rig.name_server, "--yes")
    listed = shop.rmqtx("pending", *where[:2])
    assert "prepared" in listed.stderr, listed.stderr
    shown = shop.rmqtx("show", "K-live_commit", *where[:2])
    assert "PENDING" in shown.stdout, shown.stderr
    for action in (ActKind.COMMIT, ActKind.ROLLBACK):
        done = shop.rmqtx(action, f"K-live_{action}", *where)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "proved" in done.stdout
    until("delivered", lambda: shop.deliveries("live_commit") == 1)
    again = shop.rmqtx("commit", "K-live_commit", *where)
    assert again.returncode == 12, again.stderr
    assert "already-delivered" in again.stderr
    again = shop.rmqtx("commit", "K-live_rollback", *where)
    assert "already-decided" in again.stderr
    redeliver = ("redeliver", "K-live_rollback", *where, "--reason", "paid")
    done = shop.rmqtx(*redeliver)
    if not redelivers(version):
        assert done.returncode == 12, done.stderr
        assert "prepared-record" in done.stderr
        return
    assert done.returncode == 0, done.stdout + done.stderr
    assert "proved" in done.stdout
    until("delivered", lambda: shop.deliveries("live_rollback") == 1)
    again = shop.rmqtx(*redeliver)
    assert again.returncode == 12, again.stderr
    assert "already-delivered" in again.stderr


def act_on_files(shop: Shop, version: str, place: Path) -> None:
    for number, action in enumerate((ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD)):
        done = shop.rmqtx(
            action, f"K-file_{action}", "--store", shop.rig.store, "--in-place", "--undo", place / f"undo-{number}",
            "--broker-version", version, "--yes",
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "proved" in done.stdout


def states_of(store: Path) -> list[str]:
    """States of the state table's slots."""
    slots = state_slots(open_store(store), [])
    assert slots is not None
    return [STATES[state] for state in slots.states.tolist()]


@pytest.mark.parametrize("version", [version for version in VERSIONS if redelivers(version)])
def test_copies_arrive_once_at_a_broker_without_half_topics(version: str, tmp_path: Path) -> None:
    """Of stores of later releases too; 3.2.6 has no index by UNIQ_KEY, so its queues are read."""
    crcs: dict[str, int] = {}
    with old_rig(version, tmp_path / "rig") as rig:
        rig.start()
        shop, other = Shop(rig, tmp_path / "state"), Shop(rig, tmp_path / "other")
        shop.clients(with_producer=False)
        rig.create_topic(shop.agent, "orders", queues=4)
        for name in COPIED:
            dead = of_corpus(name, tmp_path / name)
            words = (
                "redeliver", *dead.over, "--store", dead.root, "--broker-version", dead.version, "-n", rig.name_server,
                "--reason", "paid", "--yes",
            )
            done = shop.rmqtx(*words)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.count("proved") == len(dead.over), done.stdout
            again = other.rmqtx(*words)
            assert again.returncode == 12, again.stdout + again.stderr
            assert again.stderr.count("refused by already-delivered") == len(dead.over), again.stderr
            crcs |= dead.over

        def arrived() -> dict[str, list[int]]:
            got = {one["commit_log_offset"]: one for one in shop.events if one["event"] == "delivered"}
            return {name: [one["body_crc32"] for one in got.values() if one["transaction_id"] == name] for name in crcs}

        until("delivered", lambda: all(arrived().values()))
        time.sleep(2.0)
        assert arrived() == {name: [crc] for name, crc in crcs.items()}

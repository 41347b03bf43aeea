"""Copies of messages in the files of a broker that no longer starts, sent to a real broker of another cluster.

The official consumer counts, and compares bodies and properties with what the producer sent.
"""

from __future__ import annotations

import base64
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.record_values import message_of
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.named_copies import reader_of
from tests.brokers import corpus
from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.stage import TOPIC, Stage
from tests.brokers.forcing.test_redeliver import over, redelivered, refused
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB
from tests.field import field_stores, right
from tests.repairs.acting import rows_of

#: Stores of dead brokers, of three designs.
STORES = ("common-5.3.3", "rocksdb-5.5.0", "prepared-4.2.0")
OVER = ("ROLLED_BACK", "DISCARDED", "LOST")
#: Brokers that get copies, with their settings.
TARGETS: dict[str, tuple[str, dict[str, str]]] = {version: (version, {}) for version in VERSIONS}
if "5.5.0" in VERSIONS:
    TARGETS["5.5.0-rocksdb"] = ("5.5.0", dict(TRANSACTIONS_IN_ROCKSDB))


def deliveries(stage: Stage, name: str) -> list[dict[str, object]]:
    """The records that the consumer received of a transaction; one record that it receives again counts once."""
    found = {
        one["commit_log_offset"]: one for one in stage.truth
        if one["event"] == "delivered" and one["topic"] == TOPIC and one["transaction_id"] == name
    }
    return list(found.values())


def body_crc(root: Path, row: dict[str, Any]) -> int:
    """The CRC of the body that the producer sent, from the first half copy in the files."""
    record = reader_of({str(root): open_store(root).log()})(str(root), row["half_copies"][0]["commit_log_offset"])
    assert record is not None
    return zlib.crc32(base64.b64decode(message_of(record.raw)["body_base64"]))


def test_copies_arrive_once_with_all_that_consumers_need(stage: Stage, tmp_path: Path) -> None:
    for store in STORES:
        root = corpus.unpack(store, tmp_path / store)
        version = str(corpus.recipe(store)["version"])
        rows = {
            name: row for name, row in rows_of(root, version).items()
            if row["topic"] == TOPIC and "open_after_decision" not in row["flags"]
        }
        over = [name for name, row in rows.items() if row["state"] in OVER][:10]
        pending = next((name for name, row in rows.items() if row["state"] == "PENDING"), None)
        committed = next(name for name, row in rows.items() if row["state"] == "COMMITTED")
        assert over, store
        truth = {row["transaction_id"]: row for row in corpus.expected(store)}
        words = ("--store", str(root), "--broker-version", version)
        tool = stage.tool()
        refused(redelivered(tool, committed, *words), "already-delivered")
        if pending is not None:
            refused(redelivered(tool, pending, *words), "still-open")
        ran = redelivered(tool, *over, *words)
        assert ran.status == 0, str(ran)
        assert [row["outcome"] for row in ran.rows] == ["proved"] * len(over), str(ran)
        assert {row["store"] for row in ran.rows} == {stage.broker.root}
        for again in (tool, stage.tool()):
            refused(redelivered(again, *over, *words), "already-delivered")
        stage.until_consumed()
        for name in over:
            found = deliveries(stage, name)
            assert len(found) == 1, (store, name, found)
            assert found[0]["body_crc32"] == body_crc(root, rows[name]), (store, name)
            assert found[0]["keys"] == truth[name]["keys"], (store, name)
        assert deliveries(stage, committed) == []


def test_what_the_broker_can_deliver_itself_is_not_copied(stage: Stage) -> None:
    """The store of a running broker; and after a copy was sent, no act delivers the half message too."""
    shop = stage.shop("r-copied")
    (one,) = shop.begin_all("r-copied", 1, first="ROLLBACK")
    (other,) = stage.orphans("r-copied-pending")
    shop.kill()
    stage.until_gone("r-copied")
    stage.discard([other])
    words = ("--store", str(stage.rig.store))
    tool = stage.tool()
    refused(redelivered(tool, one.id, *words), "decidable-there")
    ran = redelivered(tool, one.id, other.id, *words, "--override", "decidable-there")
    assert {row["outcome"] for row in ran.rows} == {"proved"}, str(ran)
    refused(redelivered(stage.tool(), one.id, other.id), "already-delivered")
    listed = tool.run("audit", str(stage.rig.store), "--where", "flags = redelivered", "--format", "jsonl", live=False)
    found = {row["transaction_id"]: (row["state"], row["advice"]) for row in listed.rows}
    assert found == {one.id: ("ROLLED_BACK", "none"), other.id: ("DISCARDED", "none")}, str(listed)
    for shown in (tool.run("show", one.id), tool.run("show", one.id, *words, live=False)):
        assert " redelivered " in shown.stdout, str(shown)
        assert "rmqtx redeliver sent a copy of" in shown.stdout, str(shown)
    assert "already-delivered" in stage.tool().act("commit", other.id, "--reason", "test").stderr
    assert "already-delivered" in stage.tool().act("resume", other.id, "--reason", "test").stderr
    stage.until_consumed()
    assert [len(deliveries(stage, transaction.id)) for transaction in (one, other)] == [1, 1]


def test_pending_ones_of_a_dead_broker_are_checked_by_another(stage: Stage, tmp_path: Path) -> None:
    """As new half messages: the other cluster asks a producer of the group, and its answer delivers each once."""
    root = corpus.unpack("common-5.3.3", tmp_path / "dead")
    rows = {name: row for name, row in rows_of(root, "5.3.3").items() if row["topic"] == TOPIC}
    immune = {row["transaction_id"] for row in corpus.expected("common-5.3.3") if row["plan"] == "pending_immune"}
    pending = [name for name, row in rows.items() if row["state"] == "PENDING" and name not in immune][:10]
    rolled_back = next(name for name, row in rows.items() if row["state"] == "ROLLED_BACK")
    words = ("--store", str(root), "--broker-version", "5.3.3", "--as-half")
    tool = stage.tool()
    refused(redelivered(tool, rolled_back, *words), "already-decided")
    ran = redelivered(tool, *pending, *words)
    assert ran.status == 0, str(ran)
    for again in (tool, stage.tool()):
        assert "already" in refused(redelivered(again, *pending, *words), "still-open")
    refused(redelivered(stage.tool(), *pending, *words[:-1]), "still-open")
    groups = {str(rows[name]["producer_group"]) for name in pending}
    back = stage.shop(groups.pop(), strangers="COMMIT")
    for number, group in enumerate(groups):
        back.begin("r-back", number, first="ROLLBACK", group=back.join(group, strangers="COMMIT"))
    back.begin("r-back", len(groups), first="ROLLBACK")
    back.until_decided()
    with stage.checks():
        stage.until("all delivered", lambda: all(deliveries(stage, name) for name in pending), 120)
        time.sleep(3)
    back.kill()
    stage.until_consumed()
    assert {name: len(deliveries(stage, name)) for name in pending} == dict.fromkeys(pending, 1)
    for name in pending:
        (found,) = deliveries(stage, name)
        assert found["body_crc32"] == body_crc(root, rows[name])


def test_a_trace_of_a_rollback_refuses_and_a_missing_topic_ends_the_run(stage: Stage, tmp_path: Path) -> None:
    """The producers' message trace is in the files; this cluster does not have their topics."""
    name = "trace-dropped-5.3.3"
    words = ("--store", str(field_stores(name, tmp_path) / "store"), "--broker-version", "5.3.3")
    said = {
        transaction: {word for word, _ in one["said"]} for transaction, one in right(name)["transactions"].items()
        if not one["delivered"] and not one["arrived"]
    }
    rolled_back = next(transaction for transaction, decisions in said.items() if "ROLLBACK" in decisions)
    committed = [transaction for transaction, decisions in said.items() if decisions == {"COMMIT"}][:2]
    tool = stage.tool()
    sentence = refused(redelivered(tool, rolled_back, *words), "traced-rollback")
    assert "ROLLBACK" in sentence
    ran = redelivered(tool, *committed, *words)
    assert [row["outcome"] for row in ran.rows] == ["refused_by_broker", "not_sent"], str(ran)
    assert ran.rows[0]["requests"][0]["response_code"] == 17
    assert ran.status != 0


@dataclass(frozen=True)
class DeadStore:
    """Files of a dead broker. `over`: what is copied, with the body that its producer sent as a CRC."""

    root: Path
    version: str
    over: dict[str, int]


#: Stores of the corpus with what no broker delivers: rolled back, discarded with and without a discard copy, dropped by
#: RocksDB, hidden by the op message of another one; and the designs that no later broker commits.
OF_STATES = (
    "common-4.4.0", "common-5.3.3", "masked-5.1.4", "masked-4.4.0", "rocksdb-5.5.0", "rocksdb-killed-5.5.0",
    "prepared-4.2.0",
)

#: Clients of 3.2.6 give no UNIQ_KEY, by which a second copy would be found.
WITHOUT_IDS = "prepared-killed-3.2.6"


def of_corpus(name: str, out: Path) -> DeadStore:
    """A store of the corpus, with one transaction of each state and plan."""
    root, version = corpus.unpack(name, out), str(corpus.recipe(name)["version"])
    plans = {row["transaction_id"]: row["plan"] for row in corpus.expected(name)}
    chosen: dict[tuple[str, str], str] = {}
    rows = rows_of(root, version)
    for identity, row in rows.items():
        is_over = row["state"] in OVER and "open_after_decision" not in row["flags"]
        if row["topic"] == TOPIC and is_over and plans[identity] != "bare":  # without UNIQ_KEY
            chosen.setdefault((row["state"], plans[identity]), identity)
    assert chosen, name
    return DeadStore(root, version, {identity: body_crc(root, rows[identity]) for identity in chosen.values()})


def of_broker(version: str, out: Path) -> DeadStore:
    """A store just written: rolled back, also compressed and after checks; discarded by checks, and by age."""
    with Stage(version, out, quick(version)) as stage:
        ones = over(stage)
        stage.halt("clean")
        crcs = {one.id: stage.body_crcs[one.case] for one in ones.values()}
        return DeadStore(stage.rig.store, version, crcs)


@pytest.fixture(scope="module")
def dead_stores(tmp_path_factory: pytest.TempPathFactory) -> list[DeadStore]:
    """One store just written, and those of the corpus."""
    out = tmp_path_factory.mktemp("dead")
    return [of_broker("5.3.3", out / "written-5.3.3"), *(of_corpus(name, out / name) for name in OF_STATES)]


@pytest.mark.slow
@pytest.mark.parametrize("to", TARGETS)
def test_each_state_arrives_once_as_a_copy(to: str, dead_stores: list[DeadStore], tmp_path: Path) -> None:
    """Into every release that has clients here, also where its halves are in RocksDB."""
    version, conf = TARGETS[to]
    with Stage(version, tmp_path / "target", quick(version) | conf) as stage:
        tool, other = stage.tool(), stage.tool()  # the other has a journal of its own, as another machine
        for one in dead_stores:
            words = ("--store", str(one.root), "--broker-version", one.version)
            ran = redelivered(tool, *one.over, *words)
            assert [row["outcome"] for row in ran.rows] == ["proved"] * len(one.over), (str(one.root), str(ran))
            refused(redelivered(other, *one.over, *words), "already-delivered")
        old = of_corpus(WITHOUT_IDS, tmp_path / "old")
        refused(redelivered(tool, *old.over, "--store", str(old.root), "--broker-version", "3.2.6"), "cannot-be-sent")
        stage.until_consumed()
        for one in dead_stores:
            found = {name: [record["body_crc32"] for record in deliveries(stage, name)] for name in one.over}
            assert found == {name: [crc] for name, crc in one.over.items()}, one.root
            stage.logged(f"{one.root.parent.name}: {len(found)} copies, once each")

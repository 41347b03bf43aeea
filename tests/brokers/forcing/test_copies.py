"""Copies of messages in the files of a broker that no longer starts, sent to a real broker of another cluster.

The official consumer counts, and compares bodies and properties with what the producer sent.
"""

from __future__ import annotations

import base64
import time
import zlib
from pathlib import Path
from typing import Any

from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.named_copies import reader_of
from rmqtx.repairs.receipts.saved_messages import message_of
from tests.brokers import corpus
from tests.brokers.forcing.stage import TOPIC, Stage
from tests.brokers.forcing.test_redeliver import redelivered, refused
from tests.field import field_stores, right
from tests.repairs.acting import rows_of

#: Stores of dead brokers, of three designs.
STORES = ("common-5.3.3", "rocksdb-5.5.0", "prepared-4.2.0")
OVER = ("ROLLED_BACK", "DISCARDED", "LOST")


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

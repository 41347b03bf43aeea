"""Guards that need a broker of their own, another version, or a log from which records have expired."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.repairs.acts.claims import claimed
from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.outcomes import COMPRESSIBLE, RESUME_KEEPS_COMPRESSED_SINCE
from tests.brokers.forcing.stage import PATIENCE_SECONDS, Stage
from tests.brokers.forcing.tool import Ran
from tests.brokers.rig import HALF_TOPIC, Rig
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB
from tests.brokers.transaction import Transaction

pytestmark = pytest.mark.slow
REFUSED, REFUSED_BY_BROKER = 12, 15
DELETE_EXPIRED_COMMIT_LOG = 329


def refused_by(ran: Ran, guard: str) -> str:
    """The sentence of the guard that refused."""
    sentence = next((line for line in ran.stderr.splitlines() if f"{guard}: " in line), "")
    assert ran.status == REFUSED, str(ran)
    assert sentence, str(ran)
    assert " - " in sentence, sentence
    assert [row["outcome"] for row in ran.rows] == ["refused_by_guard"], str(ran)
    assert ran.rows[0]["requests"] == []
    return sentence


def outcome(ran: Ran) -> str:
    """The outcome of the only receipt."""
    assert len(ran.rows) == 1, str(ran)
    return str(ran.rows[0]["outcome"])


def override(guard: str) -> tuple[str, ...]:
    """The options that let one guard pass."""
    return ("--override", guard, "--reason", "a test of the override")


def test_another_rmqtx(stage: Stage) -> None:
    """Two machines: the second one is refused, whatever it wants, until the first has ended."""
    (one,) = stage.orphans("guard-rival")
    group = str(one.known["producer_group"])
    tool = stage.tool()
    with claimed(stage.broker, [group], "rmqtx@elsewhere@1@feed"):
        sentence = refused_by(tool.act("commit", one.id), "another-rmqtx")
        assert f"acts on group {group}" in sentence
        assert outcome(tool.act("commit", one.id, *override("another-rmqtx"))) == "proved"
    (other,) = stage.orphans("guard-rival-gone")
    with claimed(stage.broker, [str(other.known["producer_group"])], "rmqtx@elsewhere@2@feed"):
        pass
    assert outcome(tool.act("commit", other.id)) == "proved", "a claim that was given up keeps nobody away"
    stage.until_consumed()
    assert (stage.delivered(one), stage.delivered(other)) == (1, 1)


def test_slave(stage: Stage, tmp_path: Path) -> None:
    """A slave is refused by the guard, and by the broker itself where the guard is overridden.

    From 5.0.0 on a slave is not read either, unless it is configured so; 4.9.7 lets anyone read.
    """
    roles = {"brokerRole": "SLAVE", "brokerId": "1"}
    (one,) = stage.orphans("guard-slave")
    conf = dict(stage.rig.conf) | roles | {"namesrvAddr": stage.rig.name_server}
    with Rig(stage.script.version, tmp_path, conf) as slave:
        slave.start_broker()
        tool = stage.tool()
        end = time.monotonic() + PATIENCE_SECONDS
        copy = replace(stage.broker, address=slave.address)
        while copy.max_offset(HALF_TOPIC) <= one.original[0]:
            assert time.monotonic() < end, "the slave copies nothing"
            time.sleep(1)
        if stage.rig.release >= (5,):
            shut = tool.run("show", one.id, "--broker", slave.address, live=False)
            assert shut.status == REFUSED_BY_BROKER, str(shut)
            assert "slaveReadEnable" in shut.stderr
            slave.set_config(stage.agent, slaveReadEnable="true")
        while True:  # until its index has the half
            shown = tool.run("show", one.id, "--broker", slave.address, live=False)
            if shown.status in (0, 3):
                break
            assert time.monotonic() < end, str(shown)
            time.sleep(1)
        words = ("commit", one.id, "--broker", slave.address, "--yes", "--format", "jsonl")
        sentence = refused_by(tool.run(*words, live=False), "slave")
        assert "select its master" in sentence
        ran = tool.run(*words, *override("slave"), live=False)
        assert ran.status == REFUSED_BY_BROKER, str(ran)
        assert outcome(ran) == "refused_by_broker"
        assert [request["response_code"] for request in ran.rows[0]["requests"]] == [11]
    stage.until_consumed()
    assert stage.delivered(one) == 0


def test_resume_too_old(stage: Stage) -> None:
    """What is older than fileReservedTime is discarded again at once, as the override shows."""
    shop = stage.shop("g-too-old")
    one = shop.begin_all("guard-too-old", 1)[0]
    shop.kill()
    stage.until_gone(shop.group)
    stage.discard([one])
    discards = len(one.discards)
    stage.config(fileReservedTime="0", deleteWhen="00" if time.localtime().tm_hour != 0 else "12")
    try:
        tool = stage.tool()
        sentence = refused_by(tool.act("resume", one.id), "resume-too-old")
        assert "fileReservedTime (0 h)" in sentence
        assert outcome(tool.act("resume", one.id, *override("resume-too-old"))) == "accepted"
        stage.until_discarded([one], discards + 1)
    finally:
        stage.config(fileReservedTime="48")


@pytest.mark.skipif(
    not any(version.split(".") < ["5", "3", "2"] for version in VERSIONS), reason="versions from 5.3.2 on do it right"
)
def test_resume_compressed(stage: Stage) -> None:
    """Before 5.3.2 a compressed body that is resumed is never delivered."""
    if stage.rig.release >= RESUME_KEEPS_COMPRESSED_SINCE:
        pytest.skip(f"{stage.script.version} does it right")
    shop = stage.shop("g-compressed")
    one = shop.begin_all("guard-compressed", 1, body=COMPRESSIBLE)[0]
    shop.kill()
    stage.until_gone(shop.group)
    stage.discard([one])
    tool = stage.tool()
    sentence = refused_by(tool.act("resume", one.id), "resume-compressed")
    assert f"rmqtx commit {one.id}" in sentence
    assert outcome(tool.act("resume", one.id, *override("resume-compressed"))) == "accepted"
    back = stage.shop("g-compressed", strangers="COMMIT")
    back.begin_all("guard-compressed-back", 1, first="ROLLBACK")
    with stage.checks():
        time.sleep(5)
    back.kill()
    stage.until_consumed()
    assert stage.delivered(one) == 0, "the override risks what it says"


def expire(stage: Stage, transactions: list[Transaction], *, are_open: bool = True) -> None:
    """Have the broker discard them by age, if they are open, and delete the log files that hold their half copies."""
    shop = stage.shop("g-fill")
    shop.fill(640)
    hour = time.localtime().tm_hour
    stage.config(fileReservedTime="0", deleteWhen=f"{(hour + 12) % 24:02}")
    try:
        if are_open:
            stage.until_discarded(transactions)  # what is deleted before the check comes is never discarded
        stage.config(deleteWhen=f"{hour:02}")
        end = time.monotonic() + 90
        while stage.copies_counts(transactions).total():
            assert time.monotonic() < end, "the broker deletes nothing"
            with contextlib.suppress(RuntimeError):
                stage.rig.request(stage.agent, DELETE_EXPIRED_COMMIT_LOG)
            time.sleep(1)
    finally:
        stage.config(fileReservedTime="48")
    shop.kill()


def test_half_copies_are_gone(stage: Stage) -> None:
    """Only a discard copy is left, and what decided it may have expired too; a commit makes a new half copy by 323."""
    shop = stage.shop("g-expired")
    ones = shop.begin_all("guard-expired", 2)
    shop.kill()
    stage.until_gone(shop.group)
    expire(stage, ones)
    committed, rolled_back = ones
    tool = stage.tool()
    sentence = refused_by(tool.act("rollback", rolled_back.id), "not-a-half")
    assert "only its discard copy is left" in sentence
    sentence = refused_by(tool.act("commit", committed.id), "evidence-incomplete")
    assert "the log begins later" in sentence
    ran = tool.act("commit", committed.id, *override("evidence-incomplete"))
    assert outcome(ran) == "proved", str(ran)
    assert [request["request"] for request in ran.rows[0]["requests"]][:2] == [
        "RESUME_CHECK_HALF_MESSAGE", "END_TRANSACTION",
    ]
    words = (*override("not-a-half"), "--override", "evidence-incomplete")
    passed = tool.act("rollback", rolled_back.id, *words)
    assert [request["request"] for request in passed.rows[0]["requests"]][:1] == ["END_TRANSACTION"], str(passed)
    stage.until_consumed()
    assert (stage.delivered(committed), stage.delivered(rolled_back)) == (1, 0)


def test_without_an_index(stage: Stage) -> None:
    """A broker that indexes nothing: what was committed is found all the same, and what was not is delivered once."""
    stage.config(messageIndexEnable="false")
    try:
        shop = stage.shop("g-index")
        committed = shop.begin("guard-index-committed", 0, first="COMMIT")
        undecided = shop.begin("guard-index-undecided", 0)
        shop.until_decided()
        # The client tells the broker without waiting for an answer: killed too early, it has told nothing.
        stage.until_delivered([committed])
        shop.kill()
        stage.until_gone(shop.group)
        ran = stage.tool().act("commit", committed.id, undecided.id)
        told = {row["transaction_id"]: row["outcome"] for row in ran.rows}
        assert told.keys() == {committed.id, undecided.id}, str(ran)
        assert told[committed.id] == "refused_by_guard", str(ran)
    finally:
        stage.config(messageIndexEnable="true")
    stage.until_consumed()
    assert stage.delivered(committed) == 1
    assert stage.delivered(undecided) == (told[undecided.id] == "proved"), str(ran)


@pytest.mark.skipif("4.4.0" not in VERSIONS, reason="needs 4.4.0 in RMQTX_BROKER_VERSIONS")
def test_resume_unanswered(tmp_path: Path) -> None:
    """4.3.0 to 4.5.1 never answer a resume."""
    with Stage("4.4.0", tmp_path, quick("4.4.0")) as stage:
        (one,) = stage.orphans("guard-unanswered")
        stage.config(transactionCheckMax="1")
        with stage.checks():
            time.sleep(6)
        tool = stage.tool()
        sentence = refused_by(tool.act("resume", one.id), "resume-unanswered")
        assert "can be decided instead" in sentence
        ran = tool.act("resume", one.id, *override("resume-unanswered"), "--timeout", "2s")
        assert ran.status == 18, str(ran)
        assert outcome(ran) == "unknown"
        assert len(stage.rig.pull(stage.agent, HALF_TOPIC)) >= 1


@pytest.mark.skipif("5.5.0" not in VERSIONS, reason="needs 5.5.0 in RMQTX_BROKER_VERSIONS")
def test_rocksdb_transactions(tmp_path: Path) -> None:
    """What a table that nobody is shown may still have open gets no second half."""
    with Stage("5.5.0", tmp_path, quick("5.5.0") | dict(TRANSACTIONS_IN_ROCKSDB)) as stage:
        (one,) = stage.orphans("guard-rocksdb")
        stage.config(transactionCheckMax="1", transactionTimeOut="1000")
        time.sleep(6)
        tool = stage.tool()
        assert "rmqtx commit" in refused_by(tool.act("resume", one.id), "rocksdb-transactions")
        assert outcome(tool.act("resume", one.id, *override("rocksdb-transactions"))) == "accepted"
        stage.until_consumed()
        assert stage.delivered(one) == 0

"""Redeliveries of what no check reads: hidden by another op message, dropped by RocksDB, too old, its file deleted.

The official consumer counts.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.test_guards_slow import expire
from tests.brokers.forcing.test_redeliver import redelivered, refused, until_recorded
from tests.brokers.rig import COMMIT
from tests.brokers.rocks_stage import DROPPED, TRANSACTIONS_IN_ROCKSDB
from tests.brokers.transaction import Transaction

COUNT = 10
#: In these versions a decision that names a COMMIT record hides the half message with its number.
HIDING = [version for version in VERSIONS if "4.9" <= version < "5.5"]


def delivered_once(stage: Stage, ones: list[Transaction], *words: str, act: str = "redeliver") -> None:
    """Redeliver all; a second time, and from another machine, is refused."""
    names, tool = [one.id for one in ones], stage.tool()
    ran = tool.act(act, *names, *words, "--reason", "the shop has it as paid")
    assert [row["outcome"] for row in ran.rows] == ["proved"] * len(ones), str(ran)
    for again in (tool, stage.tool()):
        refused(redelivered(again, *names, *words), "already-delivered")
    stage.until_consumed()
    assert [stage.delivered(one) for one in ones] == [1] * len(ones)
    for one in ones:
        assert {event["body_crc32"] for event in one.deliveries} == {stage.body_crcs[one.case]}, one.case
    stage.logged(f"{ones[0].plan}: {len(ones)} delivered once each")


@pytest.mark.slow
@pytest.mark.parametrize("version", HIDING)
def test_hidden_ones_are_delivered_by_their_half_message(version: str, tmp_path: Path) -> None:
    """COMMITs by hand that name COMMIT records write op messages with the numbers of other half messages."""
    with Stage(version, tmp_path, quick(version)) as stage:
        ones = stage.orphans("r-hidden", COUNT)
        shop = stage.shop("r-hiding")
        hiding = shop.begin_all("r-hiding", 4 * COUNT + 8, first="COMMIT")
        stage.until_delivered(hiding)
        shop.kill()
        stage.until_gone("r-hiding")
        numbers = {one.original[0] for one in ones}
        places = {
            final["queue_offset"]: (one, final["commit_log_offset"])
            for one in hiding for final in one.deliveries if final["queue_id"] == 0
        }
        assert numbers <= places.keys()
        for number in sorted(numbers):
            one, offset = places[number]
            stage.end(one, COMMIT, (number, offset))
        until_recorded(stage, sorted(numbers))
        assert stage.asked_again(ones) == []
        delivered_once(stage, ones)


@pytest.mark.slow
@pytest.mark.skipif("5.5.0" not in VERSIONS, reason="needs 5.5.0 in RMQTX_BROKER_VERSIONS")
def test_those_that_rocksdb_dropped(tmp_path: Path) -> None:
    """A live broker does not show its table, so they are PENDING there, and `commit` delivers them."""
    with Stage("5.5.0", tmp_path, quick("5.5.0") | dict(TRANSACTIONS_IN_ROCKSDB)) as stage:
        ones = stage.orphans("r-dropped", COUNT)
        log = stage.rig.home / "logs" / "rocketmqlogs" / "transaction.log"
        stage.config(transactionCheckMax="1")
        with stage.checks():
            stage.until("all dropped", lambda: {one.id for one in ones} <= {
                found.group(3) for found in DROPPED.finditer(log.read_text(errors="replace") if log.exists() else "")
            }, 120)
        stage.config(transactionCheckMax="100000")
        assert "rmqtx commit" in refused(redelivered(stage.tool(), *(one.id for one in ones)), "still-open")
        delivered_once(stage, ones, act="commit")


@pytest.mark.slow
@pytest.mark.skipif("4.4.0" not in VERSIONS, reason="needs 4.4.0 in RMQTX_BROKER_VERSIONS")
def test_those_that_the_check_passed_over(tmp_path: Path) -> None:
    """4.4.0 leaves what is older than fileReservedTime alone, without a copy in a discard topic."""
    with Stage("4.4.0", tmp_path, quick("4.4.0")) as stage:
        ones = stage.orphans("r-too-old", COUNT)
        stage.config(fileReservedTime="0", deleteWhen="00" if time.localtime().tm_hour else "12")
        with stage.checks():
            time.sleep(6)
        stage.config(fileReservedTime="48")
        assert stage.asked_again(ones) == []
        delivered_once(stage, ones)


@pytest.mark.slow
def test_those_whose_file_was_deleted(stage: Stage, tmp_path: Path) -> None:
    """No COMMIT can name them; a copy is sent from files that were taken before."""
    shop = stage.shop("r-deleted")
    ones = shop.begin_all("r-deleted", COUNT, first="ROLLBACK")
    until_recorded(stage, [one.original[0] for one in ones])
    shop.kill()
    stage.until_gone("r-deleted")
    taken = tmp_path / "store"
    shutil.copytree(stage.rig.store, taken)
    (taken / "abort").unlink(missing_ok=True)
    expire(stage, ones, are_open=False)
    ran = redelivered(stage.tool(), *(one.id for one in ones))
    assert ran.status != 0, str(ran)
    assert {row["outcome"] for row in ran.rows} <= {"refused_by_guard"}, str(ran)
    delivered_once(stage, ones, "--store", str(taken), "--broker-version", stage.script.version)

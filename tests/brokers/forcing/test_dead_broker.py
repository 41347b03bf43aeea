"""The transactions of a broker that no longer starts, brought to another cluster: each once, and as it was sent.

The broker is stopped, a foreign file is put into its log, and it refuses to start. What was over is sent as copies;
what was pending as new half messages, which the new broker checks. The official consumer counts.
"""

from __future__ import annotations

import shutil
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.log_tail import log_end
from tests.brokers.forcing.conftest import VERSIONS, quick
from tests.brokers.forcing.outcomes import COMPRESSIBLE
from tests.brokers.forcing.stage import QUEUES, TOPIC, Stage
from tests.brokers.forcing.test_copies import deliveries
from tests.brokers.forcing.test_redeliver import redelivered, refused, until_recorded
from tests.brokers.transaction import Transaction, order
from tests.forge.damage import foreign_file, truncate

DEAD = "5.3.3"
ROLLED_BACK, DISCARDED, PENDING = 35, 15, 20
OF_PENDING = "f-dead-pending"
DROPPED = {"TRAN_MSG", "REAL_TOPIC", "REAL_QID", "PGROUP", "__transactionId__", "TRANSACTION_CHECK_TIMES"}
AT_MOST = 20
"""Of one command."""


@dataclass
class Sent:
    """What a producer sent of a transaction."""

    one: Transaction
    body: bytes
    wanted: dict[str, object]

    @property
    def properties(self) -> dict[str, str]:
        """The user properties."""
        return {name[2:]: str(value) for name, value in self.wanted.items() if name.startswith("p.")}


@dataclass
class Dead:
    """The files of a broker that refuses to start, and what its producers sent."""

    store: Path
    over: list[Sent] = field(default_factory=list)
    pending: list[Sent] = field(default_factory=list)


def wanted_of(rng: Random, number: int) -> dict[str, object]:
    """Properties as shops have them: of other scripts, long, with signs."""
    return {
        "keys": f"order-{number} invoice-{rng.randrange(10**6)}", "tags": rng.choice(("paid", "created", "shipped")),
        "flag": number, "p.shop": rng.choice(("Zürich", "東京", "a=b;c|d", "tab-free 😀")),
        "p.trace": "x" * rng.randrange(1, 300), "p.number": str(number),
    }


def body_of(rng: Random, number: int) -> bytes:
    """An order; some as large as clients compress, some of any bytes, one of a single byte."""
    if number == 0:
        return b"\0"
    return (order(rng, f"dead-{number}"), rng.randbytes(700), COMPRESSIBLE + str(number).encode())[number % 3]


def written(out: Path) -> Dead:
    """Let a broker write the transactions, stop it, spoil its log, and see that it refuses to start."""
    with Stage(DEAD, out, quick(DEAD)) as stage:
        shop = stage.shop("f-dead")

        def begun(plan: str, count: int, **more: object) -> list[Sent]:
            found = []
            for number in range(count):
                body, wanted = body_of(stage.rng, number), wanted_of(stage.rng, number)
                found.append(Sent(shop.begin(plan, number, body=body, **wanted, **more), body, wanted))
            return found

        dead = Dead(stage.rig.store, begun("rolled-back", ROLLED_BACK, first="ROLLBACK"))
        discarded = begun("discarded", DISCARDED)
        shop.until_decided()
        until_recorded(stage, [sent.one.original[0] for sent in dead.over])
        stage.discard([sent.one for sent in discarded])
        dead.over += discarded
        shop.join(OF_PENDING)
        dead.pending = begun("pending", PENDING, group=OF_PENDING)
        shop.until_decided()
        shop.kill()
        stage.until_gone(OF_PENDING)
        stage.halt("clean")  # after a kill, `op-in-memory` refuses what is not decided
        foreign_file(dead.store / "commitlog")
        with pytest.raises(RuntimeError, match="ended with"):
            stage.rig.start_broker()
        stage.rig.stop("broker")  # closes its log
        return dead


def served(stage: Stage) -> dict[str, dict[str, str]]:
    """The properties of each record of the topic, by transaction, as the official client decodes them."""
    records = [record for queue in range(QUEUES) for record in stage.rig.pull(stage.agent, TOPIC, queue)]
    return {record["transaction_id"]: record["properties"] for record in records}


def compare(stage: Stage, all_sent: list[Sent], *names: str) -> None:
    """Each arrived once, as its producer sent it; `names`: of what the consumer received, besides the body."""
    properties = served(stage)
    for sent in all_sent:
        found = deliveries(stage, sent.one.id)
        assert len(found) == 1, (sent.one.case, found)
        assert found[0]["body_crc32"] == zlib.crc32(sent.body), sent.one.case
        assert {name: found[0][name] for name in names} == {name: sent.wanted[name] for name in names}, sent.one.case
        mine = properties[sent.one.id]
        assert {name: mine.get(name) for name in sent.properties} == sent.properties, sent.one.case
        assert mine["case"] == sent.one.case


@pytest.mark.slow
def test_all_of_a_dead_broker_arrive_in_another_cluster(tmp_path: Path) -> None:
    dead = written(tmp_path / "dead")
    words = ("--store", str(dead.store), "--broker-version", DEAD)
    over, pending = ([sent.one.id for sent in some] for some in (dead.over, dead.pending))
    version = VERSIONS[-1]
    with Stage(version, tmp_path / "new", quick(version)) as stage:
        tool, other = stage.tool(), stage.tool()
        for some in (over[begin : begin + AT_MOST] for begin in range(0, len(over), AT_MOST)):
            ran = redelivered(tool, *some, *words)
            assert [row["outcome"] for row in ran.rows] == ["proved"] * len(some), str(ran)
            refused(redelivered(other, *some, *words), "already-delivered")
        halves = redelivered(tool, *pending, *words, "--as-half")
        assert halves.status == 0, str(halves)
        refused(redelivered(other, *pending, *words, "--as-half"), "still-open")
        stage.until_consumed()
        compare(stage, dead.over, "keys", "tags", "flag")
        assert not {name for mine in served(stage).values() for name in mine} & DROPPED
        assert [deliveries(stage, name) for name in pending] == [[]] * len(pending)
        back = stage.shop(OF_PENDING, strangers="COMMIT")
        back.begin("back", 0, first="ROLLBACK")
        back.until_decided()
        with stage.checks():
            stage.until("all delivered", lambda: all(deliveries(stage, name) for name in pending), 120)
            time.sleep(3)
        back.kill()
        stage.until_consumed()
        compare(stage, [*dead.over, *dead.pending], "keys", "tags")  # brokers lose the flag when they put a half back


@pytest.mark.slow
def test_copies_from_the_files_of_a_killed_broker(tmp_path: Path) -> None:
    """What a kill leaves unknown refuses no redelivery; a log that lost its end does."""
    with Stage(DEAD, tmp_path / "dead", quick(DEAD)) as stage:
        shop = stage.shop("f-killed")
        ones = [shop.begin("rolled-back", number, first="ROLLBACK") for number in range(4)]
        discarded = [shop.begin("discarded", number) for number in range(4)]
        shop.until_decided()
        until_recorded(stage, [one.original[0] for one in ones])
        stage.discard(discarded)
        time.sleep(4.5)
        stage.halt("kill")
        cut = tmp_path / "cut"
        shutil.copytree(stage.rig.store, cut)
        foreign_file(stage.rig.store / "commitlog")
        crcs = {one.id: stage.body_crcs[one.case] for one in (*ones, *discarded)}
    end = log_end(open_store(cut))
    truncate(cut / "commitlog" / Path(end.segment.file).name, end.position_bytes)  # what came after is unknown
    words = ("--broker-version", DEAD, "--store")
    with Stage(VERSIONS[-1], tmp_path / "new", quick(VERSIONS[-1])) as target:
        tool, other = target.tool(), target.tool()
        refused(redelivered(tool, *crcs, *words, str(cut)), "evidence-incomplete")
        ran = redelivered(tool, *crcs, *words, str(tmp_path / "dead" / "store"))
        assert [row["outcome"] for row in ran.rows] == ["proved"] * len(crcs), str(ran)
        assert "may have rolled it back just before the kill" in ran.stderr
        refused(redelivered(other, *crcs, *words, str(tmp_path / "dead" / "store")), "already-delivered")
        target.until_consumed()
        found = {name: [record["body_crc32"] for record in deliveries(target, name)] for name in crcs}
        assert found == {name: [crc] for name, crc in crcs.items()}

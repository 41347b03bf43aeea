"""Stores that were acted on without a broker, opened by a real one of their version: what it delivers, what it asks.

`RMQTX_BROKER_VERSIONS` names the versions (default: one; `make test-brokers` runs all), `RMQTX_OFFLINE_STORES` the
kinds of stores: `common`, one file, changed as a copy; `killed`, many small files, and a broker that did not stop
cleanly, and `multipath`, both changed in place with new files of the log.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from readers.store import open_store
from repairs.deeds import Conduct
from repairs.destinations import Destination
from repairs.journal import Journal
from repairs.log_tail import log_end
from rmqtx_cli.main import status_of
from tests.brokers import corpus, maven
from tests.brokers.rig import DISCARD_TOPIC, HALF_TOPIC, Agent, Event, Rig
from tests.repairs.test_file_medium import act, medium_of

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
KINDS = os.environ.get("RMQTX_OFFLINE_STORES", "common" if len(VERSIONS) == 1 else "common killed multipath").split()
WHY_NOT = maven.why_not()
NAMES = [name for kind in KINDS for version in VERSIONS if (name := f"{kind}-{version}") in corpus.corpus_names()]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

#: The check asks everything that is open and gives nothing up, however old the store is.
CALM = {
    "transactionCheckMax": "100000", "transactionTimeOut": "1000", "transactionCheckInterval": "1000",
    "fileReservedTime": "100000",
}  # fmt: skip
WAIT_SECONDS = 4


def orders_for(rows: list[corpus.Row]) -> dict[str, str]:
    """What is done to which transaction: each action at least once where the store has one that it fits."""
    known = [row for row in rows if row["plan"] != "without_id"]
    plain = [row for row in known if row["state"] == "PENDING" and not set(row["flags_at_least"])]
    given_up = [row for row in known if row["state"] == "DISCARDED"]
    names = [row["transaction_id"] for row in plain]
    half = len(names) // 2
    orders = dict.fromkeys(names[:half], "commit") | dict(zip(names[half:], ("rollback", "discard"), strict=False))
    orders |= dict(zip((row["transaction_id"] for row in given_up), ("commit", "resume"), strict=False))
    decided = [row["transaction_id"] for row in known if row["state"] == "COMMITTED" and row["open"]]
    return orders | dict.fromkeys(decided[:1], "close")


class Seen:
    """What clients of the broker saw."""

    def __init__(self, cases: dict[str, str]) -> None:
        self._cases = cases
        self.delivered: Counter[str] = Counter()
        self.checks: set[str] = set()

    def case(self, event: Event) -> str:
        """Which transaction it is of: some have no property that says so, others no id."""
        return str(event["case"] or self._cases.get(event["transaction_id"]))

    def take(self, event: Event) -> None:
        if event["event"] == "delivered" and event["topic"] != DISCARD_TOPIC:
            self.delivered[self.case(event)] += 1
        elif event["event"] == "check":
            self.checks.add(self.case(event))

    def until_quiet(self) -> None:
        begin = last = time.monotonic()
        before: Any = None
        while time.monotonic() < begin + WAIT_SECONDS or time.monotonic() < last + 2:
            now = (sum(self.delivered.values()), len(self.checks))
            if now != before:
                before, last = now, time.monotonic()
            time.sleep(0.2)


@pytest.mark.parametrize("name", NAMES)
def test_a_broker_delivers_what_was_committed_while_it_was_down(name: str, tmp_path: Path) -> None:
    made = corpus.recipe(name)
    rows, version = corpus.expected(name), made["version"]
    store = tmp_path / "rig" / "store"
    if name.startswith("common"):
        (tmp_path / "rig").mkdir()
        source, destination = corpus.unpack(name, tmp_path / "source"), Destination(copy=store)
    else:
        source, destination = corpus.unpack(name, tmp_path / "rig"), Destination(undo_file=tmp_path / "undo")
    orders = orders_for(rows)
    receipts = act(
        medium_of(source, version, destination, made["broker_conf"]), Journal(tmp_path / "receipts.jsonl"), orders,
        Conduct(overrides=("immunity",)),
    )
    assert {receipt.outcome for receipt in receipts} <= {"proved", "accepted"}, [one.notes for one in receipts]
    end = log_end(open_store(store)).offset
    cases = {row["transaction_id"]: row["case"] for row in rows}

    def done(*actions: str) -> set[str]:
        return {cases[one] for one, action in orders.items() if action in actions}

    seen = Seen(cases)
    with Rig(version, tmp_path / "rig", {**made["broker_conf"], **CALM}) as rig:
        rig.start_names()
        rig.start_broker()
        agent = rig.agent("client.log", seen.take)
        rig.wait_broker(agent)
        for group in made["groups"]:
            agent.do("producer", group=group, topic=next(iter(made["topics"])))
        agent.do("consumer", group="fresh", topics=",".join(made["topics"]))
        seen.until_quiet()
        put_back = {seen.case(one) for one in rig.pull(agent, HALF_TOPIC) if one["commit_log_offset"] >= end}
        for one in done("resume"):
            commit(rig, agent, seen, one)
        seen.until_quiet()
        agent.kill()
        rig.stop("broker")
    wanted = Counter({row["case"]: len(row["final_records"]) for row in rows if row["final_records"]})
    wanted.update(done("commit", "resume"))
    known = {row["case"] for row in rows}
    assert {one: seen.delivered[one] for one in known if seen.delivered[one]} == dict(wanted)
    ended, resumed = done("commit", "rollback", "discard", "close"), done("resume")
    open_before = {row["case"] for row in rows if row["open"]}
    # A copy is put back for each check, also where a 5.x producer that has sent nothing yet is not asked.
    assert (put_back | seen.checks) & ended == set()
    assert resumed <= put_back
    assert put_back & known == (open_before | resumed) - ended
    print(f"{name}: {Counter(orders.values())}; {sum(wanted.values())} deliveries, {len(put_back)} asked")
    assert complaints(store, tmp_path) == []


def commit(rig: Rig, agent: Agent, seen: Seen, case: str) -> None:
    """What the producer of a resumed transaction says, naming its newest half copy."""
    copies = [one for one in rig.pull(agent, HALF_TOPIC) if seen.case(one) == case]
    rig.request(
        agent, 37, producerGroup="shop", tranStateTableOffset=copies[-1]["queue_offset"],
        commitLogOffset=copies[-1]["commit_log_offset"], commitOrRollback=8, fromTransactionCheck="true",
        msgId=copies[-1]["transaction_id"], transactionId=copies[-1]["transaction_id"],
    )


def complaints(root: Path, tmp_path: Path) -> list[str]:
    """What is wrong with the store that the broker left, by `rmqtx verify`; notes do not count."""
    output = tmp_path / "findings.json"
    status_of(["verify", str(root), "-o", str(output)])
    return [row["code"] for row in json.loads(output.read_text()) if row["severity"] != "note"]

"""Cursors that were set without a broker, and poison halves that were settled: what a real broker does then.

Only where `RMQTX_BROKER_VERSIONS` is set, as by `make test-brokers`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx_cli.main import status_of
from tests.brokers import corpus, maven
from tests.brokers.rig import HALF_TOPIC, Agent, Rig
from tests.brokers.watching import CALM, Seen, booted, finding_codes
from tests.repairs.acting import act, medium_of

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "").split()
WHY_NOT = maven.why_not() or (None if VERSIONS else "RMQTX_BROKER_VERSIONS is not set")
#: 4.5.0 is played beside the other two.
POISONED = [version for version in ("4.3.0", "4.4.0", "4.5.0") if {"4.3.0", "4.4.0", "4.5.0"} & set(VERSIONS)]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def cursor_set(store: Path, to: Path, version: str, *options: object) -> list[dict[str, str]]:
    """Have the cursors set in a copy; gives the transactions that the broker treats otherwise."""
    output = to.with_name("effects.json")
    status = status_of(
        [
            "cursor", "set", *map(str, options), "--store", str(store), "--to", str(to), "--broker-version", version,
            "--yes", "--reason", "a test", "-o", str(output),
        ]
    )
    assert status == 0
    rows: list[dict[str, str]] = json.loads(output.read_text())
    return rows


class Boot:
    """A broker that ran on a store: what it put back and asked, what was consumed, where its check came to."""

    def __init__(self, directory: Path, version: str, name: str) -> None:
        """The store is in `directory`."""
        made, rows = corpus.recipe(name), corpus.expected(name)
        self.seen = Seen({row["transaction_id"]: row["case"] for row in rows})
        with Rig(version, directory, {**made["broker_conf"], **CALM}) as rig:
            rig.start_names()
            with booted(rig, self.seen.take) as agent:
                before = self._end(rig, agent)
                self.seen.meet_clients(agent, made)
                put_back = [one for one in rig.pull(agent, HALF_TOPIC) if one["queue_offset"] > before]
                self.half_cursor = rig.cursor(agent, HALF_TOPIC) or 0
        self.put_back = {self.seen.case(one) for one in put_back}

    @staticmethod
    def _end(rig: Rig, agent: Agent) -> int:
        return max(int(one["queue_offset"]) for one in rig.pull(agent, HALF_TOPIC))


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTX_STATE_DIR", str(tmp_path / "state"))


def poison_place(store: Path, tmp_path: Path, version: str) -> list[int]:
    """Where `verify` says that the check stops; empty once it does not."""
    output = tmp_path / "findings.json"
    status_of(["verify", str(store), "--broker-version", version, "-o", str(output)])
    found = [row["actual"] for row in json.loads(output.read_text()) if row["code"] == "check-stopped"]
    return [int(text.split("half queue offset ")[1].split()[0].strip(",")) for text in found]


@pytest.mark.parametrize("version", POISONED)
def test_a_check_that_steps_over_poison_halves_goes_on(version: str, tmp_path: Path) -> None:
    name = f"poison-{version}"
    root, place = corpus.unpack(name, tmp_path / "source"), 0
    poisons = sum(row["plan"] == "poison" for row in corpus.expected(name))
    for number in range(poisons):
        (poison,) = poison_place(root, tmp_path, version)
        (tmp_path / str(number)).mkdir()
        target = tmp_path / str(number) / "store"
        rows = cursor_set(root, target, version, "--half", poison + 1, "--override", "abandoned")
        assert [row["kind"] for row in rows].count("abandoned") == 1
        root, place = target, poison + 1
    assert poison_place(root, tmp_path, version) == []
    booted = Boot(root.parent, version, name)
    # Decided ones that came behind it too: the stopped check had read their ops, and left them behind.
    plans = ("poison_before", "poison_after", "poison_later", "poison_later_commit", "poison_later_rollback")
    waiting = {row["case"] for row in corpus.expected(name) if row["plan"] in plans}
    assert waiting <= booted.put_back
    assert not {one for one in booted.put_back if one.startswith("poison.")}
    assert booted.half_cursor > place
    print(f"BOOTED | {version} | poison | copy | cursor set over {poisons} halves | half cursor {booted.half_cursor} |")
    assert finding_codes(root, tmp_path) == []


@pytest.mark.parametrize("version", POISONED)
def test_a_check_goes_on_when_its_poison_halves_are_settled(version: str, tmp_path: Path) -> None:
    name = f"poison-{version}"
    made, rows = corpus.recipe(name), corpus.expected(name)
    source, store = corpus.unpack(name, tmp_path / "source"), tmp_path / "rig" / "store"
    store.parent.mkdir()
    poisons = {row["transaction_id"]: row["case"] for row in rows if row["case"].startswith("poison.")}
    orders = {identity: (ActKind.COMMIT, ActKind.ROLLBACK)[number % 2] for number, identity in enumerate(poisons)}
    receipts = act(
        medium_of(source, version, Destination(copy=store), made["broker_conf"]), Journal(tmp_path / "r.jsonl"), orders
    )
    assert {receipt.outcome for receipt in receipts} == {"proved"}
    assert poison_place(store, tmp_path, version) == []
    booted = Boot(store.parent, version, name)
    delivered = {case: booted.seen.delivered[case] for case in poisons.values()}
    assert delivered == {poisons[identity]: int(what == ActKind.COMMIT) for identity, what in orders.items()}
    assert not set(poisons.values()) & (booted.put_back | booted.seen.checks)
    assert {row["case"] for row in rows if row["plan"] in ("poison_before", "poison_after")} <= booted.put_back
    print(f"BOOTED | {version} | poison | copy | {len(poisons)} poison halves settled | "
          f"half cursor {booted.half_cursor} |")
    assert finding_codes(store, tmp_path) == []


@pytest.mark.parametrize("name", [*(f"common-{version}" for version in VERSIONS), "lmq-5.3.2"])
def test_after_a_cursor_goes_back_the_predicted_ones_are_checked_again(name: str, tmp_path: Path) -> None:
    """With the op cursor: those that were put back before they were decided, for only their last copy has an op.

    With enableLmq the cursors are in another file, which the broker reads too.
    """
    version = str(corpus.recipe(name)["version"])
    source, store = corpus.unpack(name, tmp_path / "source"), tmp_path / "rig" / "store"
    store.parent.mkdir()
    override = ("--override", "asked-again")
    without_ops = cursor_set(source, tmp_path / "unused", version, "--half", 0, *override)
    effects = cursor_set(source, store, version, "--half", 0, "--op", 0, *override)
    cases = {row["transaction_id"]: row["case"] for row in corpus.expected(name)}
    again = {cases[row["transaction_id"]] for row in effects}
    assert 0 < len(again) < len(without_ops)
    booted = Boot(store.parent, version, name)
    open_before = {row["case"] for row in corpus.expected(name) if row["open"]}
    assert booted.put_back & set(cases.values()) == open_before | again
    kind = name.rpartition("-")[0]
    print(f"BOOTED | {version} | {kind} | copy | cursor set --half 0 --op 0 | {len(again)} asked again |")
    # Brokers before 4.6.0 spoil compressed halves as they put them back, decided ones too.
    spoils = tuple(map(int, version.split("."))) < (4, 6, 0)
    # Whether one of them was put back before the stop is a matter of chance.
    assert finding_codes(store, tmp_path) in ([[], ["check-stopped"]] if spoils else [[]])

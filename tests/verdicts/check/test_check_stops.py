"""Messages at which the broker's check ends in every round: found in real stores, in broken ones, and past them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.check.check_rules import Stop
from rmqtx.verdicts.check.check_stops import check_stops, remedies, stop_findings
from rmqtx.verdicts.model.verdict_inputs import CheckStop
from rmqtx.verdicts.simulation.simulation import Simulated
from rmqtx.verdicts.simulation.simulation_setup import SimulatedConfiguration, simulated_checks
from tests.brokers.corpus import corpus_names, expected, recipe
from tests.conftest import READ_AT_MS
from tests.forge.stores import copy_of, unpacked


def stops(store: Store, version: str | None = None) -> list[Finding]:
    return list(stop_findings(store, check_stops(store, broker_settings(store, version=version))))


def poisons(name: str) -> set[str]:
    return {row["transaction_id"] for row in expected(name) if row["case"].startswith("poison.")}


@pytest.mark.parametrize("name", ["poison-4.3.0", "poison-4.4.0", "poison-4.5.0"])
def test_the_half_at_which_real_brokers_stopped(name: str) -> None:
    store = open_store(unpacked(name))
    (found,) = stops(store, name.split("-")[1])
    assert found.code == "check-stopped"
    assert found.actual is not None
    assert found.advice is not None
    assert any(f"transaction {one}" in found.actual and f" {one} --store" in found.advice for one in poisons(name))
    assert stops(store, "4.9.7") == []  # it passes over what it cannot read


def test_the_sound_half_at_which_a_real_broker_stopped() -> None:
    name = "noroom-5.5.0"
    (stop,) = check_stops(
        open_store(unpacked(name)), broker_settings(open_store(unpacked(name)), version="5.5.0"), now_ms=READ_AT_MS
    )
    (full,) = [row for row in expected(name) if row["plan"] == "no_room_for_properties"]
    assert stop.lacks_room
    assert stop.queue_offset == full["half_queue_offset"]
    assert not any(row["checks_seen"] for row in expected(name) if row["plan"] == "behind_no_room")


def test_one_version_is_supposed_in_all_answers() -> None:
    root = unpacked("poison-4.5.0")
    rows = audit([open_store(root)], broker_settings).table()
    waiting = rows.filter(pc.equal(rows["state"], "PENDING"))
    assert waiting.num_rows == 30
    assert waiting["discard_at_ms"].null_count == 30
    store = open_store(root)
    as_is = SimulatedConfiguration("as is", broker_settings(store))
    (check,), _, notes = simulated_checks(store, [as_is], check_cursors(store), store.taken_time_ms)
    assert isinstance(check, Simulated)
    assert next(check.rounds()).stop is Stop.ABORTED
    assert any("the rules of 4.5.2 are assumed, by which its check is stopped" in note for note in notes)


def test_no_other_store_has_one() -> None:
    for name in corpus_names():
        if not name.startswith(("poison", "noroom")):
            made = recipe(name)
            assert stops(open_store(unpacked(name)), str(made.get("upgrade", made["version"]))) == [], name


@pytest.mark.parametrize(("version", "is_stopped"), [("4.3.0", True), ("4.9.4", True), ("4.9.7", False), (None, True)])
def test_a_half_whose_record_is_gone(tmp_path: Path, version: str | None, is_stopped: bool) -> None:
    name = "common-4.3.0" if version == "4.3.0" else "common-4.9.7"
    root = copy_of(name, tmp_path)
    waiting = [row for row in expected(name) if row["state"] == "PENDING"]
    copy = max(waiting[0]["half_copies"], key=lambda one: int(one["queue_offset"]))
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(copy["commit_log_offset"])
        file.write(bytes(40))
    found = stops(open_store(root), version)
    assert bool(found) == is_stopped
    for one in found:
        assert one.actual is not None
        assert f"half queue offset {copy['queue_offset']}, of an unknown transaction" in one.actual
        assert f"cursor set --half {copy['queue_offset'] + 1} --store {root}" in (one.advice or "")
    if version is None:
        assert "a broker of 4." in (found[0].actual or "")


def test_the_commands_that_settle_a_stopped_check_come_in_the_order_that_loses_least() -> None:
    """Decide, else skip; a transaction that is on the screen already is not shown again."""
    stop = CheckStop("store", 0, 7, False, 9, "broker 4.5.0 cannot read it", transaction_id="T1")
    show, decide, skip = remedies(stop, "--store store", " store --to DIR")
    assert show == ("rmqtx show T1 --store store", "half 7 is a copy of this transaction")
    assert decide[0] == "rmqtx commit T1 store --to DIR --broker-version X.Y.Z --reason TEXT"
    assert decide[1].startswith("or rollback, or discard")
    assert skip[0] == "rmqtx cursor set --half 8 store --to DIR --override abandoned --reason TEXT"
    other = remedies(stop, "--store store", " store --to DIR", shown=["T2"])
    assert other[0][1] == "half 7 is a copy of this transaction, not of the one shown"
    assert remedies(stop, "--store store", " store --to DIR", shown=["T1"]) == [decide, skip]
    assert remedies(stop, "-n HOST:PORT", None, shown=["T1"]) == [
        ("rmqtx commit T1 -n HOST:PORT --reason TEXT", decide[1]),
    ]


def test_unknown_cursors_say_nothing(tmp_path: Path) -> None:
    root = copy_of("poison-4.3.0", tmp_path)
    for file in (root / "config").glob("consumerOffset.json*"):
        file.unlink()
    assert stops(open_store(root), "4.3.0") == []
    assert (root / "consumequeue" / HALF_TOPIC).is_dir()


def test_a_stop_in_a_store_whose_commit_log_is_deleted(tmp_path: Path) -> None:
    root = copy_of("cursoredited-4.4.0", tmp_path)
    queue = root / "consumequeue" / OP_TOPIC / "0" / f"{0:020}"
    with queue.open("ab") as file:
        file.write(b"\x19" * 40)  # the queue seems to go on up to here, so the slot at the check's cursor is damaged
    for segment in (root / "commitlog").iterdir():
        segment.unlink()
    (found,) = stops(open_store(root), "4.4.0")
    assert found.commit_log_offset is None
    assert "op queue offset" in (found.actual or "")
    reading = audit([open_store(root)], broker_settings)
    assert reading.table().num_rows == 0
    assert "log-missing" in [one.code for one in reading.findings]

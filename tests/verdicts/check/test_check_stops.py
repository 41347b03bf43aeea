"""Messages at which the broker's check ends in every round: found in real stores, in broken ones, and past them."""

from __future__ import annotations

from pathlib import Path

import pytest

from readers.model.findings import Finding
from readers.store.broker_settings import broker_settings
from readers.store.store import HALF_TOPIC, Store, open_store
from tests.brokers.corpus import corpus_names, expected, recipe
from tests.forge.stores import copy_of, unpacked
from verdicts.check.check_stops import stop_findings


def stops(store: Store, version: str | None = None) -> list[Finding]:
    return list(stop_findings(store, broker_settings(store, version=version)))


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


def test_no_other_store_has_one() -> None:
    for name in corpus_names():
        if not name.startswith("poison"):
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


def test_unknown_cursors_say_nothing(tmp_path: Path) -> None:
    root = copy_of("poison-4.3.0", tmp_path)
    for file in (root / "config").glob("consumerOffset.json*"):
        file.unlink()
    assert stops(open_store(root), "4.3.0") == []
    assert (root / "consumequeue" / HALF_TOPIC).is_dir()

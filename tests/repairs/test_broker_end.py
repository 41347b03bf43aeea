"""Records that rmqtx wrote after a broker stopped do not count as running time of the broker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.rebuild.rebuild import PARTS, rebuild
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.repairs.salvage.salvage import salvage
from rmqtx.verdicts.evidence.store_facts import known_until_ms, store_facts
from tests.forge.stores import copy_of
from tests.repairs.acting import act, medium_of, rows_of

VERSIONS = ("5.3.3", "5.5.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_rmqtx_make_no_broker_run_longer(version: str, tmp_path: Path, journal: Journal) -> None:
    source = copy_of(f"common-{version}", tmp_path / "source")
    before = rows_of(source, version)
    chosen = next(name for name, row in before.items() if row["state"] == "PENDING" and not row["flags"])
    copy = tmp_path / "copy"
    act(medium_of(source, version, Destination(copy=copy)), journal, {chosen: ActKind.COMMIT})
    store = open_store(copy)
    assert not store.was_killed
    rebuild(PARTS, store, tmp_path / "rebuilt", store_sizes(store))
    salvage([copy], tmp_path / "salvaged", store_sizes(store), config=copy / "config", old_store=store)
    again = open_store(tmp_path / "salvaged")
    rebuild(PARTS, again, tmp_path / "rebuilt-salvaged", store_sizes(again))
    ended_ms = known_until_ms(open_store(source))
    for name in ("copy", "rebuilt", "salvaged", "rebuilt-salvaged"):
        assert known_until_ms(open_store(tmp_path / name)) <= ended_ms, name
        flags = {one: set(row["flags"]) for one, row in rows_of(tmp_path / name, version).items()}
        for one, row in before.items():
            if row["state"] == "PENDING" and one != chosen:
                assert flags[one] & {"stalled", "never_checked"} <= set(row["flags"]), (name, one)


def test_while_rmqtx_has_the_lock_no_broker_runs(tmp_path: Path) -> None:
    stopped = open_store(copy_of("common-5.3.3", tmp_path))
    ended_ms = store_facts(stopped, broker_settings).view().reference_time_ms
    for holder, expected in ((-1, ended_ms), (4711, stopped.taken_time_ms)):
        store = replace(stopped, used_by_process=holder)
        assert store_facts(store, broker_settings).view().reference_time_ms == expected

"""What was open at a past time: cursors have no history, but a copy that the check wrote later says that it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import rest_is_slow


def rows_at(store: Store, at_ms: int | None) -> dict[str, dict[str, Any]]:
    reading = audit([store], lambda one: broker_settings(one), at_ms=at_ms)
    return {row["transaction_id"]: row for row in reading.table().to_pylist()}


@pytest.mark.parametrize("name", ["common-5.3.3", "common-4.9.7", "common-5.1.4", "busystop-5.1.4"])
def test_what_is_open_today_was_open_since_it_was_sent(name: str, tmp_path: Path) -> None:
    store = open_store(copy_of(name, tmp_path))
    today = rows_at(store, None)
    times = sorted(copy["store_time_ms"] for row in today.values() for copy in row["half_copies"])
    compared = 0
    for at_ms in (times[len(times) // 3], times[len(times) // 2], times[-len(times) // 5]):
        then = rows_at(store, at_ms)
        for transaction_id, row in today.items():
            if row["half_store_time_ms"] > at_ms:
                assert transaction_id not in then, "it was not there"
            elif row["state"] == "PENDING" and not row["discard_copies"]:
                assert then[transaction_id]["state"] == "PENDING", then[transaction_id]["reason"]
                compared += 1
            elif any(copy["store_time_ms"] > at_ms for copy in row["discard_copies"]):
                before = [copy for copy in row["discard_copies"] if copy["store_time_ms"] <= at_ms]
                if not before and not row["op_marks"]:
                    assert then[transaction_id]["state"] == "PENDING", "it was given up later"
                    compared += 1
    assert compared
    assert all("wrote another copy" not in row["reason"] for row in today.values())


def test_immunity_ends_while_the_broker_is_stopped(tmp_path: Path) -> None:
    """The broker that starts now measures it by its own clock: an hour of a half that is a day old is over."""
    store = open_store(copy_of("common-5.3.3", tmp_path))
    now = rows_at(store, None)
    immune = [one for one, row in now.items() if "pending_immune" in (row["keys"] or "")]
    assert len(immune) == 2
    stopped_ms = max(copy["store_time_ms"] for row in now.values() for copy in row["half_copies"])
    then = rows_at(store, stopped_ms)
    later = rows_at(store, stopped_ms + 3_700_000)
    for one in immune:
        assert now[one]["state"] == then[one]["state"] == "PENDING"
        assert ("immune" in then[one]["flags"], "immune" in later[one]["flags"]) == (True, False)
        assert "immune" not in now[one]["flags"]
        assert "stalled" not in now[one]["flags"], "it was not overdue when the broker stopped"


@pytest.mark.usefixtures("at_the_real_moment")
def test_one_clock_measures_what_the_next_broker_measures(tmp_path: Path) -> None:
    """fileReservedTime ends while the broker is stopped; that no check came is held against it only while it ran."""
    store = open_store(copy_of("common-5.3.3", tmp_path))
    reserved_ms = 72 * 3_600_000
    first_ms = min(row["born_time_ms"] for row in rows_at(store, None).values() if row["state"] == "PENDING")

    def flagged(flag: str, after_ms: int) -> int:
        later = replace(store, taken_time_ms=first_ms + after_ms)
        rows = audit([later], lambda one: broker_settings(one)).table().to_pylist()
        return sum(flag in row["flags"] for row in rows)

    for flag in ("stalled", "never_checked"):
        assert flagged(flag, 3_600_000) == flagged(flag, reserved_ms) == 0, "no check ran since it stopped"
    assert flagged("expires_soon", reserved_ms - 7 * 3_600_000) == 0
    assert flagged("expires_soon", reserved_ms - 5 * 3_600_000) == 16


def doubted(store: Store, name: str, at_ms: int | None) -> set[str]:
    """Transactions of which a reading says that they may have been rolled back, with ops that were lost by a kill."""
    rows = audit([store], settings_of(name), at_ms=at_ms).table().to_pylist()
    found = {row["transaction_id"] for row in rows if "may_be_decided" in row["flags"]}
    assert {row["transaction_id"] for row in rows if "it may have been rolled back" in row["reason"]} == found
    return found


@pytest.mark.parametrize("name", ["parallel-5.3.3", "dledger-killed-5.1.4", "rocksdb-queues-killed-5.5.0"])
def test_a_kill_loses_no_ops_of_long_before(name: str) -> None:
    """Of what was open long before the kill, each row said that its rollback may have been lost.

    These brokers write ops after 0.5 s: what was decided before that is in the log.
    """
    store = opened(name)
    held_ms = settings_of(name)(store).transaction_op_batch_interval_ms
    assert held_ms == 500
    end_ms = known_until_ms(store)
    rows = rows_at(store, None).values()
    times = {copy["store_time_ms"] for row in rows for copy in row["half_copies"]}
    earlier = sorted(time_ms for time_ms in times if time_ms < end_ms - held_ms)
    states: set[str] = set()
    for at_ms in [*earlier[:: max(len(earlier) // 6, 1)], end_ms - held_ms - 1]:
        states |= {row["state"] for row in rows_at(store, at_ms).values()}
        assert not doubted(store, name, at_ms), f"{end_ms - at_ms} ms before the end"
    assert states & {"PENDING", "DISCARDED"}
    assert doubted(store, name, end_ms - held_ms) <= doubted(store, name, end_ms) <= doubted(store, name, None)
    assert doubted(store, name, end_ms - held_ms)


@pytest.mark.parametrize(
    "name", rest_is_slow(["killed-5.1.4", "opslost-5.3.3", "killed-5.3.3", "killed-5.5.0"], quick=1)
)
def test_what_was_committed_later_had_not_been_rolled_back(name: str) -> None:
    """These brokers kept ops for 60 s, longer than they ran: what has no decision in the log may have been decided."""
    store = opened(name)
    last = rows_at(store, None)
    times = sorted({copy["store_time_ms"] for row in last.values() for copy in row["half_copies"]})
    doubts = committed = 0
    for at_ms in times[:: max(len(times) // 6, 1)]:
        then = {one for one, row in rows_at(store, at_ms).items() if row["state"] == "PENDING"}
        later = {one for one in then if last[one]["state"] == "COMMITTED"}
        found = doubted(store, name, at_ms)
        assert not found & later, "the log has its COMMIT record"
        doubts += len(found)
        committed += len(later)
    assert doubts
    assert committed

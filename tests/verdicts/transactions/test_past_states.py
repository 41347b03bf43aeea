"""What was open at a past time: cursors have no history, but a copy that the check wrote later says that it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from readers.store.broker_settings import broker_settings
from readers.store.store import Store, open_store
from tests.brokers import corpus
from verdicts.audit.local_audit import audit


def rows_at(store: Store, at_ms: int | None) -> dict[str, dict[str, Any]]:
    reading = audit([store], lambda one: broker_settings(one), at_ms=at_ms)
    return {row["transaction_id"]: row for row in reading.table().to_pylist()}


@pytest.mark.parametrize("name", ["common-5.3.3", "common-4.9.7", "common-5.1.4", "busystop-5.1.4"])
def test_what_is_open_today_was_open_since_it_was_sent(name: str, tmp_path: Path) -> None:
    store = open_store(corpus.unpack(name, tmp_path))
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
    store = open_store(corpus.unpack("common-5.3.3", tmp_path))
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
    store = open_store(corpus.unpack("common-5.3.3", tmp_path))
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

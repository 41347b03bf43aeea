"""What a stopped check still asks for, and what never: held against what the same broker asked when it ran again."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.check.check_stops import BUNDLED_STOPS_FILE, check_stops, stops_as_json
from rmqtx.verdicts.check.stored_records import _java_numbers
from tests.brokers.corpus import expected
from tests.forge.stores import copy_of, opened, settings_of, unpacked
from tests.verdicts.truth import audited

Row = dict[str, Any]
POISONED = ("poison-4.3.0", "poison-4.4.0", "poison-4.5.0")


def asked(name: str) -> set[str]:
    """Those that the broker asked for when it was started again."""
    return {row["transaction_id"] for row in expected(name) if row["asked_after_restart"]}


@pytest.mark.parametrize("name", POISONED)
def test_the_advice_says_whom_the_broker_asks(name: str) -> None:
    rows = audited(name)
    waiting = {row["transaction_id"] for row in rows if row["advice"] == "wait"}
    closing = {
        row["transaction_id"] for row in rows if row["advice"] == "close" and "never_asked" not in row["flags"]
    }
    never = {row["transaction_id"] for row in rows if "never_asked" in row["flags"]}
    assert waiting | closing == asked(name)
    assert waiting
    assert closing
    assert never
    assert never & asked(name) == set()
    assert {row["advice"] for row in rows if row["state"] in ("DISCARDED", "LOST")} <= {"decide"}
    for row in rows:
        assert ("stopped at half" in row["reason"]) == ("never_asked" in row["flags"])


def test_at_least_ten_rows_of_each_advice() -> None:
    rows = [row for name in POISONED for row in audited(name)]
    counted = Counter(
        (row["advice"], row["transaction_id"] in {one for name in POISONED for one in asked(name)}) for row in rows
    )
    assert counted["wait", True] >= 10
    assert counted["close", True] >= 10
    assert counted["decide", False] >= 10
    assert counted["wait", False] == counted["decide", True] == 0


@pytest.mark.parametrize("name", POISONED)
def test_pending_and_show_say_the_same_as_an_audit(name: str) -> None:
    reading = pending([opened(name)], settings_of(name))
    rows = reading.table().to_pylist()
    known = {row["transaction_id"]: row for row in audited(name)}
    assert rows == [known[row["transaction_id"]] for row in rows]
    (stop,) = reading.check_stops
    one = next(row for row in rows if "never_asked" in row["flags"])
    shown = show([opened(name)], settings_of(name), one["transaction_id"])
    assert shown.table().to_pylist() == [one]
    assert shown.check_stops == [stop]


def test_a_broker_that_passes_over_it_asks_for_all(tmp_path: Path) -> None:
    store = opened("poison-4.5.0")
    reading = pending([store], lambda one: broker_settings(one, version="4.9.7"))
    rows = reading.table().to_pylist()
    assert reading.check_stops == []
    assert {row["advice"] for row in rows if row["state"] == "PENDING"} == {"wait"}


def test_a_time_that_is_over_has_no_stopped_check() -> None:
    name = "poison-4.5.0"
    last = max(row["half_store_time_ms"] for row in audited(name))
    reading = pending([opened(name)], settings_of(name), at_ms=last)
    assert not any("never_asked" in row["flags"] for row in reading.table().to_pylist())
    assert reading.check_stops == []


def test_what_had_all_its_checks_is_given_up_and_not_asked() -> None:
    """The broker that runs next may make fewer checks: then the copies that had them are spent."""
    store, conf = opened("common-4.9.7"), {"transactionCheckMax": "1"}
    reading = pending([store], lambda one: broker_settings(one, conf=conf, version="4.9.7"))
    rows = [row for row in reading.table().to_pylist() if row["state"] == "PENDING"]
    spent = [row for row in rows if "discards it without asking" in row["reason"]]
    assert {row["advice"] for row in spent} == {"decide"}
    assert {row["advice"] for row in rows if row not in spent} == {"wait"}
    assert [row["checks_count"] for row in spent] == [row["checks_count"] for row in rows if row["checks_count"] >= 1]
    assert spent


@pytest.mark.parametrize(("up_ms", "stands"), [(30_000, False), (3_600_000, True)])
def test_the_cursor_of_a_running_broker_stands_still(tmp_path: Path, up_ms: int, stands: bool) -> None:
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    store = open_store(root)
    started_s = (store.taken_time_ms - up_ms) / 1_000
    os.utime(root / "lock", (started_s, started_s))  # a broker writes it as it starts
    running = replace(store, used_by_process=1)
    found = check_stops(running, settings_of(name)(store))
    assert bool(found) == stands
    for stop in found:
        assert "does not move on" in stop.why
        assert stop.transaction_id
    assert check_stops(store, settings_of(name)(store)) == []  # what starts next goes on from there


def test_without_cursors_nothing_is_claimed(tmp_path: Path) -> None:
    root = copy_of("poison-4.5.0", tmp_path)
    for file in (root / "config").glob("consumerOffset.json*"):
        file.unlink()
    reading = pending([open_store(root)], settings_of("poison-4.5.0"))
    assert reading.check_stops == []
    assert (unpacked("poison-4.5.0") / "consumequeue" / HALF_TOPIC).is_dir()


@pytest.mark.parametrize("words", ["[]", "{}", '{"checkStops": 7}', '{"checkStops": [{"queue_id": 1}]}', "no JSON"])
def test_a_file_that_only_looks_like_a_bundles_says_nothing(words: str, tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    (root / "config" / BUNDLED_STOPS_FILE).write_text(words)
    store = open_store(root)
    assert check_stops(store, settings_of("common-4.9.7")(store)) == []


def test_a_bundle_says_where_the_check_of_its_store_is_stopped(tmp_path: Path) -> None:
    name = "poison-4.5.0"
    store = opened(name)
    (stop,) = check_stops(store, settings_of(name)(store))
    root = copy_of("common-4.9.7", tmp_path)
    (root / "config" / BUNDLED_STOPS_FILE).write_text(json.dumps(stops_as_json([stop])))
    (found,) = check_stops(open_store(root), settings_of(name)(store))
    assert found == replace(stop, store=found.store, transaction_id=None, commit_log_offset=None, version=None)


@pytest.mark.parametrize(
    ("body", "as_list", "as_number"),
    [
        (b"7", (7,), (7,)), (b"+7,-3", (7, -3), (-1,)), (b"7,", (7, -1), (-1,)), (b"", (-1,), (-1,)),
        (b"1x", (-1,), (-1,)),
    ],
    ids=str,
)
def test_an_op_body_is_read_as_a_list_by_the_releases_that_write_lists(
    body: bytes, as_list: tuple[int, ...], as_number: tuple[int, ...]
) -> None:
    """Else the simulated check of an old broker passes half messages that the broker asks about."""
    assert _java_numbers(body, check_rules((5, 3, 3))) == as_list
    assert _java_numbers(body, check_rules((4, 9, 7))) == as_number

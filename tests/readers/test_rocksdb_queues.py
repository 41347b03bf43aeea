"""Consume queues and cursors in RocksDB: they hold what the commit log says, and verdicts do without them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.cursors import check_cursors, read_cursors
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.rocksdb.rocksdb import open_database
from rmqtx.readers.rocksdb.rocksdb_queue_scan import scan_all_slots, scan_rocksdb_slots
from rmqtx.readers.rocksdb.rocksdb_queues import QueueDatabase
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx_cli.pages.stores_table import store_row
from tests.brokers import corpus
from tests.forge.stores import contents, copy_of, opened, unpacked
from tests.verdicts.truth import require_judged_as_any_store

pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")

NAMES = corpus.corpus_names("rocksdb_queues")
WITH_QUEUES = [name for name in NAMES if "configs" not in name]
CLEAN = [name for name in WITH_QUEUES if "killed" not in name]
WITH_FILES = [name for name in NAMES if "combined" in name or "separate" in name]
WITH_CURSORS = [name for name in NAMES if name not in WITH_FILES]


def claims(name: str) -> set[tuple[Any, ...]]:
    """Where each record says that its slot is."""
    rows = scan_records(opened(name)).table().to_pylist()
    fields = ("topic", "queue_id", "queue_offset", "commit_log_offset", "length_bytes", "store_time_ms")
    return {tuple(row[field] for field in fields) for row in rows}


def slots(name: str) -> list[tuple[Any, ...]]:
    rows = scan_rocksdb_slots(opened(name)).table().to_pylist()
    fields = ("topic", "queue_id", "queue_offset", "commit_log_offset", "record_length_bytes", "batch_store_time_ms")
    return [tuple(row[field] for field in fields) for row in rows]


@pytest.mark.parametrize("name", CLEAN)
def test_slots_are_the_records_of_the_log(name: str) -> None:
    found = slots(name)
    assert len(set(found)) == len(found)
    assert set(found) == claims(name)
    assert scan_rocksdb_slots(opened(name)).notes == []


@pytest.mark.parametrize("name", CLEAN)
def test_the_ends_are_those_of_the_slots_and_the_checkpoint_that_of_the_log(name: str) -> None:
    store = opened(name)
    (directory,) = store.queue_databases
    found = slots(name)
    with open_database(store, directory) as database:
        queues = QueueDatabase(store, database)
        ends = queues.ends()
        for queue, end in ends.items():
            mine = sorted(slot[2:4] for slot in found if slot[:2] == queue)
            assert end.last == (mine[-1] if mine else None)
            assert end.first in (None, (0, 0), *mine[:1])  # asked for while the queue was empty, it is 0 for ever
        assert {slot[:2] for slot in found} <= set(ends)
        end_of_log = next(line for line in corpus.truth(name) if line["event"] == "log_end")
        assert queues.taken_in_offset() == end_of_log["commit_log_offset"]
        assert queues.findings == []


@pytest.mark.parametrize("name", CLEAN[:1])
def test_bounds_and_filters_give_a_part(name: str) -> None:
    store = opened(name)
    every = scan_rocksdb_slots(store).table().to_pylist()
    part = scan_rocksdb_slots(store, topic=HALF_TOPIC, queue_id=0, from_queue_offset=3, to_queue_offset=9).table()
    wanted = [row for row in every if row["topic"] == HALF_TOPIC and 3 <= row["queue_offset"] < 9]
    assert part.to_pylist() == wanted
    assert len(wanted) == 6
    of_topic = scan_rocksdb_slots(store, topic="orders").table().to_pylist()
    assert of_topic == [row for row in every if row["topic"] == "orders"]
    assert scan_rocksdb_slots(store, queue_id=1).table().to_pylist() == [row for row in every if row["queue_id"] == 1]


@pytest.mark.parametrize("name", WITH_FILES)
def test_slots_that_are_kept_in_both_ways_are_alike(name: str) -> None:
    rows = scan_all_slots(opened(name)).table().to_pylist()
    fields = ("topic", "queue_id", "queue_offset", "commit_log_offset", "record_length_bytes", "tags_code")
    by_kind = {
        kind: {tuple(row[field] for field in fields) for row in rows if row["kind"] == kind}
        for kind in ("simple", "rocksdb")
    }
    assert by_kind["simple"] == by_kind["rocksdb"]
    assert by_kind["simple"]


@pytest.mark.parametrize("name", [name for name in NAMES if "killed" in name])
def test_after_a_kill_what_was_not_flushed_is_said_to_be_missing(name: str) -> None:
    assert set(slots(name)) < claims(name)
    reading = scan_rocksdb_slots(opened(name))
    assert reading.table().num_rows < len(claims(name))
    assert "did not stop cleanly" in reading.notes[0].text


@pytest.mark.parametrize("name", WITH_CURSORS)
def test_the_check_cursors_are_known(name: str) -> None:
    """The broker was asked for them over the wire when it ran again on a copy, and they only grow."""
    cursors = check_cursors(opened(name))
    assert cursors.findings == []
    asked = {line["topic"]: line["queue_offset"] for line in corpus.truth(name) if line["event"] == "after_cursor"}
    for topic, found in ((HALF_TOPIC, cursors.half), (OP_TOPIC, cursors.op)):
        assert found is not None
        assert 0 <= found.get(0, 0) <= asked[topic]
    if corpus.recipe(name)["stop"] == "clean":
        assert cursors.half


@pytest.mark.parametrize("name", [name for name in WITH_CURSORS if corpus.recipe(name)["stop"] == "clean"])
def test_consumers_cursors_are_what_they_got(name: str) -> None:
    """Clients commit every five seconds, so the last ones may be missing."""
    rows = read_cursors(opened(name)).table().to_pylist()
    cursors = {(row["topic"], row["queue_id"]): row["next_queue_offset"] for row in rows if row["group"] == "warehouse"}
    got: dict[tuple[str, int], int] = {}
    for line in corpus.truth(name):
        if line["event"] == "delivered" and line["consumer_group"] == "warehouse":
            place = (line["topic"], line["queue_id"])
            got[place] = max(got.get(place, 0), line["queue_offset"] + 1)
    assert {place: number for place, number in cursors.items() if place in got and number == got[place]}
    assert [place for place, number in cursors.items() if number > got.get(place, 0)] == []


@pytest.mark.parametrize(("counter", "half"), [(0, None), (9, 3)])
def test_cursors_in_a_file_too_are_taken_if_their_version_is_higher(
    counter: int, half: int | None, tmp_path: Path
) -> None:
    name = "rocksdb-queues-5.5.0"
    root = copy_of(name, tmp_path)
    text = f'{{"dataVersion":{{"counter":{counter}}},"offsetTable":{{"{HALF_TOPIC}@CID_RMQ_SYS_TRANS":{{0:3}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(text)
    cursors = check_cursors(open_store(root))
    assert cursors.half == ({0: half} if half is not None else check_cursors(opened(name)).half)
    assert [finding.code for finding in cursors.findings] == ["cursors-twice"]


@pytest.mark.parametrize("name", [name for name in CLEAN if name not in WITH_FILES])
def test_stores_tells_the_ends_of_the_check_s_queues(name: str) -> None:
    row, findings = store_row(opened(name), broker_settings(opened(name)))
    assert [finding.code for finding in findings] == []
    claimed = claims(name)
    numbers = [claim[2] for claim in claimed if claim[0] == HALF_TOPIC]
    assert (row.half_min_offset, row.half_max_offset) == (min(numbers), max(numbers) + 1)
    assert row.queues_count == len({claim[:2] for claim in claimed})
    assert "RocksDB consume queues" in row.generation


@pytest.mark.parametrize("name", NAMES)
def test_transactions_are_judged_as_in_any_store(name: str) -> None:
    require_judged_as_any_store(name)


@pytest.mark.parametrize("name", NAMES[:1])
def test_reading_changes_nothing(name: str) -> None:
    before = contents(unpacked(name))
    list(scan_all_slots(opened(name)))
    list(read_cursors(opened(name)))
    assert contents(unpacked(name)) == before


def test_without_the_library_cursors_are_unknown_and_one_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened("rocksdb-queues-5.5.0")
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    cursors = check_cursors(store)
    assert cursors.half is None
    for findings in (cursors.findings, scan_rocksdb_slots(store).findings):
        assert all("pip install 'rmqtx[rocksdb]'" in finding.line() for finding in findings)
    reading = scan_rocksdb_slots(store)
    assert list(reading) == []
    assert [finding.code for finding in reading.findings] == ["database-unread"]


def test_a_store_without_a_database_has_no_such_slots(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    reading = scan_rocksdb_slots(open_store(tmp_path))
    assert list(reading) == []
    assert (reading.findings, reading.notes) == ([], [])

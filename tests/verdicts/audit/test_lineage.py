"""The lineage of a check-back: every record of a transaction is in its timeline by its three names, and each finds it.

In half topics a check changes queue offset, commit-log offset and message id of a half; in the other designs there is
one record, and what a resume puts into RocksDB is a second one.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import rows_named, show
from rmqtx.verdicts.audit.message_ids import stores_of_message_id
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, timeline
from tests.brokers import corpus
from tests.forge.stores import opened, settings_of
from tests.representatives import in_two_ways, rest_is_slow

NAMES = [
    *(name for design in ("state_table", "prepared_records", "rocksdb") for name in corpus.corpus_names(design)),
    "common-4.9.7", "fifteen-5.3.3", "dledger-5.1.4", "rocksdb-queues-5.5.0",
]
#: One of each kind: looking each transaction up takes longer.
LOOKED_UP = [
    "statetable-recovered-3.1.4", "prepared-3.2.6", "prepared-4.2.0", "upgraded-4.2.0-4.9.7", "common-4.9.7",
    "rocksdb-5.5.0", "rocksdb-both-5.5.0", "dledger-5.1.4",
]
#: What a half copy is called in a timeline.
COPIES = ("sent", "prepared", "check", "put back", "resumed")


def _names(copy: dict[str, Any]) -> tuple[int, int]:
    return copy["queue_offset"], copy["commit_log_offset"]


@pytest.mark.parametrize("name", in_two_ways(NAMES))
def test_every_record_is_in_the_chain_and_names_its_transaction(name: str) -> None:
    store = opened(name)
    settings = settings_of(name)
    table, places = audit([store], settings).table(), [StoreTimelineSource(store, settings(store))]
    truth = {row["transaction_id"]: row for row in corpus.expected(name)}
    rows = table.to_pylist()
    assert {row["transaction_id"] for row in rows} == set(truth)
    for row in rows:
        events = timeline(row, places).to_pylist()
        copies = [event for event in events if event["event"] in COPIES]
        wanted = [_names(copy) for copy in truth[row["transaction_id"]]["half_copies"]]
        assert sorted(map(_names, copies)) == sorted(wanted)
        for event in events[1:]:
            if event["commit_log_offset"] is None:
                continue
            assert event["message_id"].endswith(f"{event['commit_log_offset']:016X}"), event
            if event["event"] == "op" and "half queue offset" in event["detail"]:
                continue  # an op of half topics may end several
            mine = stores_of_message_id([store], event["message_id"])
            assert mine == {store.root}
            found = rows_named(table, event["message_id"], mine)["transaction_id"].to_pylist()
            assert found == [row["transaction_id"]], event


def test_a_timeline_shows_which_copies_the_producer_was_asked_about() -> None:
    """Of a producer whose clock is ahead, about each copy; of one that requested an immunity time, about none."""
    name = "ahead-5.3.3"
    store = opened(name)
    events = [
        event for row in audit([store], settings_of(name)).table().to_pylist()
        for event in timeline(row, [StoreTimelineSource(store, settings_of(name)(store))]).to_pylist()
    ]
    asked = {event["commit_log_offset"] for event in events if event["event"] == "check"}
    assert asked == {event["commit_log_offset"] for event in corpus.truth(name) if event["event"] == "check"}
    assert sum("immunity time" in (event["detail"] or "") for event in events) == 20


def test_a_timeline_shows_what_a_commit_record_names() -> None:
    """The newest half copy is named by most COMMIT records: only another record is worth a word."""
    details: dict[str, list[str]] = {}
    for name in ("masked-5.3.3", "killed-5.3.3"):
        store = opened(name)
        plans = {row["transaction_id"]: row["plan"] for row in corpus.expected(name)}
        for row in audit([store], settings_of(name)).table().to_pylist():
            for event in timeline(row, [StoreTimelineSource(store, settings_of(name)(store))]).to_pylist():
                if event["event"] == "commit":
                    details.setdefault(plans[row["transaction_id"]], []).append(event["detail"])
    assert details["decision_names_discard"] == ["COMMIT record that names the discard copy: consumers can read it"]
    assert details["commit_names_final"] == [
        "COMMIT record: consumers can read it", "COMMIT record number 2 that names another COMMIT record",
    ] * 2
    assert {line.partition(" queue offset")[0] for line in details["late_commit"]} == {"COMMIT record that names half"}
    assert set(details["commit"]) == {"COMMIT record: consumers can read it"}


@pytest.mark.parametrize("name", rest_is_slow(LOOKED_UP, quick=4))
def test_show_takes_the_original_and_the_newest_id(name: str) -> None:
    """The richest transaction of each state, looked up afresh by its id, its oldest and its newest record."""
    store, settings = opened(name), settings_of(name)
    richest: dict[str, dict[str, Any]] = {}
    for row in audit([store], settings).table().to_pylist():
        if len(_records(row)) > len(_records(richest.get(row["state"], {}))):
            richest[row["state"]] = row
    assert richest
    for row in richest.values():
        names = StoreTimelineSource(store, settings(store)).records({min(_records(row)), max(_records(row))})
        for identity in {row["transaction_id"], *(found.message_id for found in names.values())}:
            assert show([store], settings, identity).table().to_pylist() == [row], identity


def _records(row: dict[str, Any]) -> list[int]:
    """Places of the records that are of one transaction alone."""
    entries = [entry for kind in ("half_copies", "final_records", "discard_copies") for entry in row.get(kind, [])]
    entries += [mark for mark in row.get("op_marks", []) if mark["half_queue_offset"] is None]
    return [entry["commit_log_offset"] for entry in entries]

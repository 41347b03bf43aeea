"""`rmqtx show` finds a transaction by the places of its records, and by every handle that a command prints."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.identities import AT, FINAL, HALF, OP, NamedPlace, keys_of_cell, named_place
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.field import field_stores
from tests.forge.stores import unpacked
from tests.remoting.fake import FakeServer
from tests.remoting.store_broker import StoreBroker
from tests.representatives import rest_is_slow

NAMES = (
    "common-5.3.3", "common-4.9.7", "fifteen-5.3.3", "delayed-5.5.0", "killed-4.3.0", "discards-4.9.7", "common-5.5.0",
)
_OF_EACH_KIND = 3
_PRINTED = (
    ("pending",), ("audit",), ("decode", "half"), ("decode", "op"), ("simulate",), ("diagnose",),
)


def ids(rmqtx: Run, name: str, *more: object) -> list[str]:
    result = rmqtx("show", name, *more, "--format", "json")
    assert result.status in (0, 3), (name, result.err)
    return sorted(row["transaction_id"] for row in json.loads(result.out))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("half:342", NamedPlace(HALF, 342)),
        ("broker-a/half:342", NamedPlace(HALF, 342, "broker-a")),
        ("/data/store/at:5", NamedPlace(AT, 5, "/data/store")),
        ("final:327446", NamedPlace(FINAL, 327446)),
        ("offset=342 commitLogOffset=327446", NamedPlace(AT, 327446, None, 342, is_line=True)),
        ("half:", None),
        ("half:99999999999999999999", None),
        ("half:9223372036854775808", None),
        ("HALF:1", None),
        ("ORDER-4711", None),
        (
            "MessageExt [brokerName=broker-a, queueId=0, queueOffset=8, sysFlag=0, commitLogOffset=2759, x",
            NamedPlace(AT, 2759, "broker-a", 8, is_line=True),
        ),
        ("Half offset 8 has been committed/rolled back", NamedPlace(HALF, 8, is_line=True)),
        ("half queue offset 8 is at or after the check cursor 0", NamedPlace(HALF, 8, is_line=True)),
        ("no COMMIT record; op queue offset 3", NamedPlace(OP, 3, is_line=True)),
        ("COMMIT record at commit-log offset 3775", NamedPlace(AT, 3775, is_line=True)),
        ("queue offset 8", None),
        ('"half_queue_offset":8,"x":1', NamedPlace(HALF, 8, is_line=True)),
    ],
)
def test_a_text_names_a_place(text: str, place: NamedPlace | None) -> None:
    assert named_place(text) == place


def test_a_cell_has_several_keys() -> None:
    assert list(keys_of_cell("order-21020 customer-giulia")) == ["order-21020", "customer-giulia"]
    assert not keys_of_cell("order-21020")
    assert not keys_of_cell("offset=1 commitLogOffset=2")


@pytest.mark.parametrize("name", rest_is_slow(NAMES, quick=3))
def test_each_record_of_a_transaction_is_a_place_of_it(rmqtx: Run, name: str) -> None:
    root = unpacked(name)
    rows = json.loads(rmqtx("audit", root, "--format", "json").out)
    places: dict[str, set[str]] = defaultdict(set)
    kinds = (("half_copies", "at"), ("final_records", "final"), ("op_marks", "at"), ("discard_copies", "at"))
    for row in rows:
        for column, kind in kinds:
            for entry in row[column]:
                places[f"{kind}:{entry['commit_log_offset']}"].add(row["transaction_id"])
                if column == "op_marks" and entry["half_queue_offset"] is not None:
                    places[f"op:{entry['queue_offset']}"].add(row["transaction_id"])
    for kind in ("at", "op", "final"):
        some = sorted(place for place in places if place.startswith(kind))
        for place in some[:: max(1, len(some) // _OF_EACH_KIND)]:
            assert set(ids(rmqtx, place, root)) == places[place], place
    inside = next(place for place in places if place.startswith("at:"))
    byte = int(inside[3:]) + 20
    assert set(ids(rmqtx, f"at:{byte}", root)) == places[inside]


def handles(rows: list[dict[str, Any]], command: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The handles in rows as a command prints them, each with its kind."""
    for row in rows:
        for name in ("transaction_id", "keys", "message_id"):
            if row.get(name) and command != ("decode", "op"):
                yield name, row[name]
        if row.get("half_queue_offset") is not None:
            yield "half", f"half:{row['half_queue_offset']}"
        for entry in row.get("half_copies", ()):
            yield "at", f"at:{entry['commit_log_offset']}"
        if command == ("decode", "half") and row["topic"].endswith("TRANS_HALF_TOPIC"):
            yield "half", f"half:{row['queue_offset']}"
            yield "at", f"at:{row['commit_log_offset']}"
        if command == ("decode", "op") and row["half_queue_offsets"]:
            yield "op", f"op:{row['queue_offset']}"


@pytest.mark.parametrize("name", rest_is_slow(NAMES, quick=2))
def test_every_handle_that_a_command_prints_is_accepted(rmqtx: Run, name: str) -> None:
    root = unpacked(name)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for command in _PRINTED:
        rows = json.loads(rmqtx(*command, root, "--format", "json").out or "[]")
        for kind, handle in handles(rows, command):
            key = (" ".join(command), kind)
            seen[key] += 1
            if seen[key] == 7 or (seen[key] == 1 and kind != "transaction_id"):
                assert ids(rmqtx, handle, root), (key, handle)
    assert {kind for _, kind in seen} >= {"transaction_id", "keys", "half", "at"}


def test_a_number_of_several_half_messages_gives_all_of_them(rmqtx: Run, tmp_path: Path) -> None:
    root = field_stores("two-halves-one-number", tmp_path) / "store"
    shown = rmqtx("show", "half:8", root)
    assert "48076954072D7AE175ADBF3082B335EC" in shown.out
    assert "8B5DC344512906E32F076157A01F7C22" in shown.out
    assert "2 half messages have half queue offset 8" in shown.err
    assert "the slot leads to commit-log offset 3103" in shown.err
    root = field_stores("queue-restarted", tmp_path) / "store"
    rows = json.loads(rmqtx("show", "half:3", root, "--format", "json").out)
    assert [row["half_copies"][0]["commit_log_offset"] for row in rows] == [1035, 5608]
    assert "lists half queue offsets 0, 1, 2" in rmqtx("show", "op:0", root).err


def test_queues_in_rocksdb_and_transactions_in_rocksdb_have_places_too(rmqtx: Run) -> None:
    both = unpacked("rocksdb-both-5.5.0")
    shown = rmqtx("show", "half:0", both)
    assert "in 2 queues: RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC" in shown.err
    assert "began again" not in shown.err
    queues = unpacked("rocksdb-queues-5.5.0")
    [row, *_] = json.loads(rmqtx("pending", queues, "--format", "json").out)
    assert row["transaction_id"] in ids(rmqtx, f"half:{row['half_copies'][-1]['queue_offset']}", queues)
    result = rmqtx("show", "half:9999", queues)
    assert result.status == 16
    assert "are in RocksDB, and no half message of the log has that number" in result.err


def test_a_put_back_copy_shows_its_transaction(rmqtx: Run, fifteen: Path) -> None:
    [row] = json.loads(rmqtx("audit", fifteen, "--format", "json").out)
    copy = row["half_copies"][4]
    shown = rmqtx("show", f"half:{copy['queue_offset']}", fifteen)
    assert shown.status == 0
    assert f"is copy 5 of {len(row['half_copies'])} of {row['transaction_id']}, put back by check 4" in shown.err


def test_a_place_that_does_not_exist_is_not_found_and_the_range_is_named(rmqtx: Run, common: Path) -> None:
    for place, words in (
        ("half:99999", "queue offsets 0 to "), ("op:99999", "of RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        ("at:99999999999", "have bytes 0 to "), ("elsewhere/half:1", "no store of"),
    ):
        result = rmqtx("show", place, common)
        assert (result.status, result.out) == (16, ""), place
        assert words in result.err


def test_a_store_is_named_in_front(rmqtx: Run, fifteen: Path, common: Path) -> None:
    both = ids(rmqtx, "half:0", fifteen, common)
    [own] = ids(rmqtx, f"{fifteen}/half:0", fifteen, common)
    assert len(both) == 2
    assert own in both
    [row] = json.loads(rmqtx("audit", fifteen, "--format", "json").out)
    assert own == row["transaction_id"]


def test_a_key_that_looks_like_a_place_is_found_too(rmqtx: Run, fifteen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqtx.readers.model import identities

    [row] = json.loads(rmqtx("audit", fifteen, "--format", "json").out)
    real = identities.keys_of
    monkeypatch.setattr(identities, "keys_of", lambda keys: [*real(keys), "half:99999"])
    shown = rmqtx("show", "half:99999", fifteen)
    assert shown.status == 0
    assert f"half:99999 is an id or a key of {row['transaction_id']}; no transaction is at half queue" in shown.err


def test_acts_do_not_take_places(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    [row, *_] = json.loads(rmqtx("pending", common, "--format", "json").out)
    number = row["half_copies"][0]["queue_offset"]
    to = ("--to", tmp_path / "to", "--yes", "--broker-version", "5.3.3")
    result = rmqtx("commit", f"half:{number}", "--store", common, *to)
    assert result.status == 16, result.err


@pytest.mark.parametrize("name", ["prepared-3.2.6", "statetable-3.1.4"])
def test_stores_from_before_the_half_queue_have_places_of_the_log(rmqtx: Run, name: str) -> None:
    root = unpacked(name)
    [row, *_] = json.loads(rmqtx("audit", root, "--format", "json").out)
    offset = row["half_copies"][0]["commit_log_offset"]
    assert row["transaction_id"] in ids(rmqtx, f"at:{offset}", root)
    result = rmqtx("show", "half:0", root)
    assert result.status == 16
    assert "brokers before 4.3 have none: use at:" in result.err


def test_all_keys_of_a_cell_find_the_transaction(rmqtx: Run, common: Path) -> None:
    rows = [row for row in json.loads(rmqtx("audit", common, "--format", "json").out) if " " in (row["keys"] or "")]
    if not rows:
        pytest.skip("no transaction with several keys")
    assert rows[0]["transaction_id"] in ids(rmqtx, rows[0]["keys"], common)


@contextmanager
def served(name: str) -> Iterator[str]:
    """The address of a broker that serves a store of the corpus."""
    from rmqtx.readers.store.broker_settings import broker_settings
    from rmqtx.readers.store.store import open_store

    store, recipe = open_store(unpacked(name)), corpus.recipe(name)
    settings = broker_settings(store, conf=recipe["broker_conf"], version=recipe["version"])
    with FakeServer(StoreBroker(store, settings, recipe["version"])) as server:
        yield server.address


def test_live_places_are_those_of_the_files(rmqtx: Run) -> None:
    root = unpacked("fifteen-5.3.3")
    [row] = json.loads(rmqtx("audit", root, "--format", "json").out)
    copy = row["half_copies"][3]
    with served("fifteen-5.3.3") as address:
        live = ("--broker", address)
        for place in (f"half:{copy['queue_offset']}", f"at:{copy['commit_log_offset']}"):
            assert ids(rmqtx, place, *live) == [row["transaction_id"]]
        result = rmqtx("show", "half:9999", *live)
        assert result.status == 16
        assert "has queue offsets 0 to " in result.err


def test_live_op_messages_and_commit_records_give_their_transactions(rmqtx: Run) -> None:
    root = unpacked("common-5.3.3")
    rows = json.loads(rmqtx("audit", root, "--format", "json").out)
    row = next(row for row in rows if row["final_records"] and row["op_marks"])
    mark, final, half = row["op_marks"][0], row["final_records"][0], row["half_copies"][0]
    with served("common-5.3.3") as address:
        live = ("--broker", address)
        by_op = ids(rmqtx, f"op:{mark['queue_offset']}", *live)
        assert by_op == ids(rmqtx, f"op:{mark['queue_offset']}", root)
        assert ids(rmqtx, f"at:{mark['commit_log_offset']}", *live) == by_op
        assert ids(rmqtx, f"final:{final['commit_log_offset']}", *live) == [row["transaction_id"]]
        line = f"Restored in queueOffset={half['queue_offset'] + 1}, commitLogOffset={half['commit_log_offset']}"
        shown = rmqtx("show", line, *live)
        assert row["transaction_id"] in shown.out
        assert f"the line has queue offset {half['queue_offset'] + 1}" in shown.err
        for place in (f"final:{half['commit_log_offset']}", "elsewhere/half:0", f"at:{half['commit_log_offset'] + 1}"):
            assert rmqtx("show", place, *live).status == 16
        assert ids(rmqtx, f"{address}/half:{half['queue_offset']}", *live) == [row["transaction_id"]]

"""Prepared records, ROLLBACK records and transactions in RocksDB as no broker of the corpus left them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.log.record_layout import COMMIT, PREPARED, ROLLBACK
from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import STATE_ENTRIES
from rmqtx.readers.old_tables import beside_tables
from rmqtx.readers.old_tables.beside_log import DATABASE, LAST_OFFSET_KEY, ROCKSDB
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit import local_audit
from rmqtx.verdicts.audit.lookups import pending, show
from rmqtx.verdicts.evidence import indexed_lookup
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import one_of_each_design

Row = dict[str, Any]
#: Forged records are years old.
YOUNG = {"fileReservedTime": "1000000"}
OLD = [*corpus.corpus_names(design="state_table"), *corpus.corpus_names(design="prepared_records")]


class Old(Forge):
    """Writes records as brokers before 4.3 did; without an id, as those before 4.0."""

    def prepared(self, name: str | None = None, body: bytes = b"body") -> int:
        """A prepared record."""
        ids = () if name is None else (("UNIQ_KEY", name),)
        properties = (("KEYS", "K"), ("TRAN_MSG", "true"), ("PGROUP", "shop"), *ids)
        return self.append(Message(body=body, properties=properties, sys_flag=PREPARED))

    def ended(self, prepared: int, kind: int) -> int:
        """The COMMIT or ROLLBACK record of it."""
        record = self._halves[prepared]
        body = record.body if kind == COMMIT else b""
        return self.append(replace(record, body=body, sys_flag=kind, prepared_transaction_offset=prepared))


class InRocksdb(Forge):
    """Writes transactions as brokers do that keep them in RocksDB."""

    def put(self, name: str, *, checks: int | None = None, real_topic: str = "orders", indexed: bool = True) -> int:
        """A half."""
        properties = [("REAL_TOPIC", real_topic), ("TRAN_MSG", "true"), ("UNIQ_KEY", name), ("PGROUP", "shop"),
                      ("REAL_QID", "1"), ("CLUSTER", "c")]
        properties += [("__transactionId__", name)] if indexed else []
        properties += [("TRANSACTION_CHECK_TIMES", str(checks))] if checks is not None else []
        return self.append(Message(topic=ROCKSDB_HALF_TOPIC, body=name.encode(), properties=tuple(properties)))

    def ended(self, half: int) -> int:
        """The op message of a half."""
        words = dict(self._halves[half].properties)
        return self.append(
            Message(
                topic=ROCKSDB_OP_TOPIC, body=b"\0",
                properties=(("TAGS", "d"), ("__transactionId__", words["UNIQ_KEY"]), ("TRANS_OFFSET", str(half)),
                            ("REAL_TOPIC", words["REAL_TOPIC"])),
            )
        )


def verdicts(store: Store, version: str, conf: dict[str, str] | None = None, **options: Any) -> dict[str, Row]:
    reading = local_audit.audit([store], lambda one: broker_settings(one, conf=conf, version=version), **options)
    rows: list[Row] = reading.table().to_pylist()
    assert len({row["transaction_id"] for row in rows}) == len(rows)
    return {row["transaction_id"]: row for row in rows}


def message_id(offset: int) -> str:
    return f"0A00000100002A9F{offset:016X}"


@pytest.mark.parametrize("name", [None, "FD0000000000000000000000000000000000000000000001"])
def test_what_ended_is_told_after_its_prepared_record_expired(name: str | None, tmp_path: Path) -> None:
    forge = Old(tmp_path / "store", segment_bytes=1024)
    names = [name and f"{name[:-2]}{number:02d}" for number in range(4)]
    places = [forge.prepared(one) for one in names]
    while len(forge._data) < 2048:
        forge.append(Message(body=bytes(300)))
    forge.ended(places[0], ROLLBACK)
    forge.ended(places[1], COMMIT)
    forge.ended(places[2], ROLLBACK)
    forge.ended(places[2], COMMIT)
    forge.ended(places[3], COMMIT)
    forge.ended(places[3], COMMIT)
    root = forge.write(half_cursor=None, op_cursor=None)
    damage.drop(damage.log_files(root)[0])
    rows = verdicts(open_store(root), "4.2.0" if name else "3.2.6")
    assert len(rows) == 4
    told = [rows[one or message_id(place)] for one, place in zip(names, places, strict=True)]
    assert [row["state"] for row in told] == ["ROLLED_BACK", "COMMITTED", "COMMITTED", "COMMITTED"]
    assert [len(row["op_marks"]) for row in told] == [1, 0, 1, 0]
    assert "its half message is no longer in the log" in told[0]["reason"]
    assert "conflict" in told[2]["flags"]
    assert "duplicate_commit" in told[3]["flags"]
    for row in told:
        assert (row["half_copies"], row["producer_group"], row["topic"]) == ([], "shop", "orders")
        assert row["decided_time_ms"] is not None


def test_twins_without_id_are_told_apart_by_their_places(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store")
    first, second, third = (forge.prepared() for _ in range(3))
    forge.ended(first, COMMIT)
    forge.ended(second, ROLLBACK)
    rows = verdicts(open_store(forge.write(half_cursor=None, op_cursor=None)), "3.2.6")
    states = {identity: row["state"] for identity, row in rows.items()}
    assert first == 0
    assert states == {
        message_id(first): "COMMITTED", message_id(second): "ROLLED_BACK", message_id(third): "PENDING"
    }
    assert rows[message_id(third)]["advice"] == "decide"


def test_a_flag_alone_makes_no_prepared_record(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store")
    forge.append(Message(sys_flag=PREPARED))
    forge.append(Message(sys_flag=ROLLBACK))
    half = forge.half("T1")
    forge.append(replace(forge._halves[half], sys_flag=PREPARED))
    assert list(verdicts(open_store(forge.write()), "4.9.7")) == ["T1"]


def test_a_store_of_4_2_that_4_9_continued_is_scanned_for_what_hangs(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store")
    old = forge.prepared("OLD1")
    forge.half("NEW1")
    store = open_store(forge.write())
    reading = pending([store], lambda one: broker_settings(one, conf=YOUNG, version="4.9.7"))
    found = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    assert set(found) == {"OLD1", "NEW1"}
    assert found["OLD1"]["half_copies"][0]["commit_log_offset"] == old
    assert "refuse a commit" in found["OLD1"]["reason"]
    assert (found["OLD1"]["advice"], found["NEW1"]["advice"]) == ("decide", "wait")
    table = show([store], lambda one: broker_settings(one, version="4.9.7"), message_id(old)).table()
    assert table["transaction_id"].to_pylist() == ["OLD1"]


def test_a_table_is_told_of_the_records_that_it_names_and_missed_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Old(tmp_path / "store")
    first, second = forge.prepared("T1"), forge.prepared("T2")
    forge.ended(first, COMMIT)
    root = forge.write(half_cursor=None, op_cursor=None)

    def rows_of(store: Store, findings: list[Finding]) -> pa.Table:
        del findings
        rows = [{"store": store.root, "half_commit_log_offset": place, "kind": DATABASE, "key": str(place),
                 "value": "shop"} for place in (second, 99_999)]
        return pa.Table.from_pylist(rows, schema=STATE_ENTRIES)

    monkeypatch.setattr(beside_tables, "OF_PREPARED", ((DATABASE, rows_of),))
    rows = verdicts(open_store(root), "3.2.6")
    assert [entry["key"] for entry in rows["T2"]["state_entries"]] == [str(second)]
    assert rows["T1"]["state_entries"] == []
    assert [rows[name]["state"] for name in ("T1", "T2")] == ["COMMITTED", "PENDING"]

    def broken(store: Store, findings: list[Finding]) -> pa.Table:
        raise UnreadableFile("the server does not answer", file=store.root)

    monkeypatch.setattr(beside_tables, "OF_PREPARED", ((DATABASE, broken),))
    reading = local_audit.audit([open_store(root)], lambda one: broker_settings(one, version="3.2.6"))
    assert reading.table()["state"].to_pylist() == ["COMMITTED", "PENDING"]
    assert ["the server does not answer" in str(found.actual) for found in reading.findings] == [True]


def table_of(keys: dict[int, int], last: int) -> Any:
    """A RocksDB table with these halves and their checks."""
    def entries(store: Store, findings: list[Finding]) -> pa.Table:
        del findings
        rows: list[tuple[Any, ...]] = [(store.root, place, ROCKSDB, f"{place}@orders", str(checks), None)
                                       for place, checks in keys.items()]
        rows.append((store.root, None, ROCKSDB, LAST_OFFSET_KEY, str(last), None))
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, STATE_ENTRIES, strict=True)]
        return pa.table(arrays, schema=STATE_ENTRIES)
    return entries


def test_transactions_in_rocksdb_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forge = InRocksdb(tmp_path / "store", segment_bytes=8192)
    done, rolled, closed_late, asked, dropped = (forge.put(f"T{number}") for number in range(5))
    never, strange = forge.put("T5", indexed=False), forge.put("T6", real_topic="or@ders")
    resumed = forge.put("T4", checks=0)
    newer = forge.put("T7")
    forge.commit(done)
    forge.ended(done)
    forge.ended(rolled)
    forge.commit(closed_late)
    root = forge.write(half_cursor=None, op_cursor=None)
    keys = {closed_late: 2, asked: 3, strange: 0, resumed: 1}
    monkeypatch.setattr(beside_tables, "rocksdb_state_entries", table_of(keys, resumed))
    rows = verdicts(open_store(root), "5.5.0")
    assert [rows[f"T{number}"]["state"] for number in range(8)] == [
        "COMMITTED", "ROLLED_BACK", "COMMITTED", "PENDING", "PENDING", "LOST", "PENDING", "PENDING"
    ]
    assert (rows["T2"]["flags"], rows["T2"]["advice"]) == (["commit_without_op"], "close")
    assert rows["T3"]["checks_count"] == 3
    assert [entry["value"] for entry in rows["T3"]["state_entries"]] == ["3"]
    assert rows["T4"]["flags"] == ["resumed"]
    assert "__transactionId__" in rows["T5"]["reason"]
    assert rows["T6"]["flags"] == ["poison"]
    assert f"ends at half {resumed}" in rows["T7"]["reason"]
    assert {never, dropped, newer} & set(keys) == set()
    # The same table, complete up to the last half: what it does not have was dropped.
    monkeypatch.setattr(beside_tables, "rocksdb_state_entries", table_of({asked: 16}, newer))
    rows = verdicts(open_store(root), "5.5.0")
    assert [rows[f"T{number}"]["state"] for number in (2, 4, 6, 7)] == [
        "COMMITTED", "DISCARDED", "DISCARDED", "DISCARDED"
    ]
    assert rows["T2"]["advice"] == "none"
    assert rows["T7"]["flags"] == ["without_copy"]
    assert rows["T7"]["advice"] == "resume"
    # A slave drops what it cannot ask for: that says nothing of its master.
    rows = verdicts(open_store(root), "5.5.0", {"brokerRole": "SLAVE"})
    assert [rows[f"T{number}"]["state"] for number in (2, 3, 4)] == ["COMMITTED", "PENDING", "UNDECIDABLE"]
    assert "of this slave" in rows["T4"]["reason"]
    # A killed broker puts the half at the table's end in again when it starts.
    (root / "abort").write_bytes(b"1")
    assert verdicts(open_store(root), "5.5.0")["T7"]["state"] == "PENDING"
    # Of a past time only what the table still has is known to have been open.
    rows = verdicts(open_store(root), "5.5.0", at_ms=known_until_ms(open_store(root)))
    assert (rows["T3"]["state"], rows["T4"]["state"]) == ("PENDING", "UNDECIDABLE")
    assert "RocksDB table of that time could decide it" in rows["T4"]["reason"]


def test_of_several_halves_in_rocksdb_the_most_open_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = InRocksdb(tmp_path / "store", segment_bytes=16_384)
    first = [forge.put(f"T{number}") for number in range(7)]
    for number in (0, 2, 3):
        forge.ended(first[number])
    forge.commit(first[4])
    forge.ended(first[4])
    second = [forge.put(f"T{number}", checks=0) for number in range(7)]
    for number in (1, 5):
        forge.ended(second[number])
    forge.commit(second[3])
    forge.ended(second[3])
    last = forge.put("T7")
    root = forge.write(half_cursor=None, op_cursor=None)
    keys = {second[0]: 2, second[4]: 0, first[5]: 1, last: 0}
    monkeypatch.setattr(beside_tables, "rocksdb_state_entries", table_of(keys, last))
    rows = verdicts(open_store(root), "5.5.0")
    assert {name: row["state"] for name, row in rows.items()} == {
        "T0": "PENDING", "T1": "ROLLED_BACK", "T2": "ROLLED_BACK", "T3": "COMMITTED", "T4": "COMMITTED",
        "T5": "PENDING", "T6": "DISCARDED", "T7": "PENDING",
    }
    for name, place in (("T0", second[0]), ("T5", first[5])):
        assert f"half message at commit-log offset {place} is in the RocksDB table" in rows[name]["reason"]
        assert rows[name]["reason"].endswith("another of its half messages was rolled back")
    assert "open_after_decision" in rows["T4"]["flags"]
    assert [rows[name]["advice"] for name in ("T0", "T3", "T4", "T6")] == ["wait", "none", "close", "resume"]
    # Without the table, what an op does not end may be open or dropped: a decision on another half tells nothing.
    monkeypatch.setattr(beside_tables, "rocksdb_state_entries", lambda *_: None)
    rows = verdicts(open_store(root), "5.5.0")
    assert [rows[f"T{number}"]["state"] for number in range(8)] == [
        *("UNDECIDABLE",) * 3, "COMMITTED", "COMMITTED", *("UNDECIDABLE",) * 3
    ]
    assert (rows["T4"]["advice"], rows["T0"]["advice"]) == ("close", "none")
    assert "only the RocksDB table shows whether it will be checked again" in rows["T4"]["reason"]


def test_without_the_rocksdb_table_files_prove_nothing_to_be_open(tmp_path: Path) -> None:
    forge = InRocksdb(tmp_path / "store", segment_bytes=8192)
    forge.put("OLD1")
    forge.now_ms += 3_600_000
    forge.put("NEW1")
    done = forge.put("DONE")
    forge.commit(done)
    forge.ended(done)
    store = open_store(forge.write(half_cursor=None, op_cursor=None))
    for conf in (None, {"transactionCheckMax": "3", "transactionCheckInterval": "1000"}):
        rows = verdicts(store, "5.5.0", conf)  # each start is one more pass, and may have had other settings
        assert {name: row["state"] for name, row in rows.items()} == {
            "OLD1": "UNDECIDABLE", "NEW1": "UNDECIDABLE", "DONE": "COMMITTED",
        }
        assert "RocksDB table" in rows["NEW1"]["reason"]


@pytest.mark.parametrize("name", one_of_each_design(OLD))
def test_partitions_in_files_give_what_memory_gives(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of(name, tmp_path)
    file = damage.log_files(root)[0]
    for number, (position, _) in enumerate(damage.records_in(file)[3::11]):
        damage.flip_byte(file, position + (3, 6, 30, 26, 39, 79, 15, 86)[number % 8], 0x11)
    stores = [opened(name), open_store(root)]
    wanted = [in_any_order(local_audit.audit([store], settings_of(name))) for store in stores]
    monkeypatch.setattr(local_audit, "ONE_PROCESS_BYTES_MAX", 0)
    monkeypatch.setattr(local_audit, "SPLIT_BYTES", 7_001)
    monkeypatch.setattr(local_audit, "PARTITION_BYTES", 20_000)
    assert [in_any_order(local_audit.audit([store], settings_of(name), processes=1)) for store in stores] == wanted


def in_any_order(reading: Any) -> list[str]:
    rows = sorted(str(row) for row in reading.table().to_pylist())
    return [*rows, *sorted(finding.line() for finding in reading.findings)]


def test_a_damaged_rollback_record_leaves_its_transaction_unknown_and_no_other(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store", segment_bytes=8192)
    names = [f"FD{number:030d}" for number in range(3)]
    places = [forge.prepared(name) for name in names]
    ended = forge.ended(places[1], ROLLBACK)
    forge.ended(places[2], COMMIT)
    forge.append(Message())
    root = forge.write(half_cursor=None, op_cursor=None)
    wanted = ["PENDING", "ROLLED_BACK", "COMMITTED"]
    assert [verdicts(open_store(root), "4.2.0")[name]["state"] for name in names] == wanted
    damage.flip_byte(damage.log_files(root)[0], ended + 5)  # the magic code
    rows = verdicts(open_store(root), "4.2.0")
    assert [rows[name]["state"] for name in names] == ["PENDING", "UNDECIDABLE", "COMMITTED"]
    assert "damaged bytes" in rows[names[1]]["reason"]


def test_a_damaged_prepared_record_is_still_that(tmp_path: Path) -> None:
    forge = Old(tmp_path / "store", segment_bytes=8192)
    names = [f"FD{number:030d}" for number in range(3)]
    places = [forge.prepared(name) for name in names]
    forge.ended(places[1], ROLLBACK)
    forge.append(Message())
    root = forge.write(half_cursor=None, op_cursor=None)
    damage.flip_byte(damage.log_files(root)[0], places[0] + 5)
    rows = verdicts(open_store(root), "4.2.0")
    assert [rows[name]["state"] for name in names] == ["UNDECIDABLE", "ROLLED_BACK", "PENDING"]
    assert [len(rows[name]["half_copies"]) for name in names] == [1, 1, 1]


@pytest.mark.parametrize("cluster", [True, False])
def test_who_wrote_the_first_record_says_whether_older_ones_are_looked_for(
    cluster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lookup, "_BEFORE_HALVES_BYTES_MAX", 200)
    forge = Forge(tmp_path / "store")
    words = (("CLUSTER", "c"),) if cluster else ()
    for _ in range(4):
        forge.append(Message(properties=(("UNIQ_KEY", "A"), *words)))
    forge.half("NEW1")
    store = open_store(forge.write())
    reading = pending([store], lambda one: broker_settings(one, version="4.9.7"))
    assert reading.table()["transaction_id"].to_pylist() == ["NEW1"]
    assert any("older than the half topic" in note.text for note in reading.notes) != cluster

"""Bundles read as the stores that they are cut out of, and hold nothing else."""

from __future__ import annotations

import collections
import functools
import json
import lzma
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.record_layout import AT, MAGIC_V1, RECORD, signed
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction, UnwritableFile
from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.readers.old_tables.redo_log import redo_entries
from rmqtx.readers.old_tables.state_table import state_slots
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, LEFT_OUT_TOPIC, OP_TOPIC, is_bundle, open_store
from rmqtx.repairs.bundles.bundle import BUNDLED, BundleSource, make_bundle
from rmqtx.repairs.bundles.findings import add_findings
from rmqtx.repairs.bundles.redaction import Redactor, redaction_key
from rmqtx.repairs.bundles.selection import Selection
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import show
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.brokers.corpus import corpus_names
from tests.forge import damage
from tests.forge.logs import Forge
from tests.forge.records import Message
from tests.forge.stores import copy_of, unpacked
from tests.representatives import in_two_ways, rest_is_slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "orders-5.3.3.tar.xz"

Row = dict[str, Any]
KEY = b"a key that is none of the bundle"
WITNESSES = ("half_copies", "op_marks", "final_records", "discard_copies")
#: All but those with transactions in RocksDB, whose table no bundle has.
#: Without what a broker of 3.1 makes anew after a crash, out of the whole redo log: see
#: `test_tables_of_3_1_have_what_the_verdict_needs_and_no_more`.
OTHERS = [
    name for design in ("state_table", "prepared_records", "dledger", "controller", "rocksdb_queues")
    for name in corpus_names(design) if name != "statetable-killed-3.1.4"
]


#: Reasons that name a slot which the next start of the broker gives.
RENUMBERED = ("prepared_refused_after_start", "prepared_refused", "prepared_asked_after_start")


def source(root: Path) -> BundleSource:
    return BundleSource(open_store(root))


def rows_of(one: BundleSource) -> list[Row]:
    return list(audit([one.store], one.settings_of).table().to_pylist())


@functools.cache
def original_of(name: str) -> tuple[BundleSource, list[Row]]:
    """A store of the corpus, and the rows of its audit, once for all bundles of it."""
    one = source(unpacked(name))
    return one, rows_of(one)


def some_of_each_state(rows: Iterable[Row]) -> list[str]:
    found: dict[Any, str] = {}
    for row in rows:
        found.setdefault((row["state"], tuple(row["flags"])), row["transaction_id"])
    return list(found.values())


def placed(row: Row) -> Row:
    """A row without its store and without names; and without its deadline, which what is left out has a part in."""
    names = {"store", "transaction_id", "producer_group", "topic", "keys", *FUTURE_COLUMNS}
    return {
        column: [{key: part for key, part in entry.items() if key not in names} for entry in value]
        if column in (*WITNESSES, "state_entries") else value
        for column, value in row.items() if column not in names
    }


def by_place(rows: Iterable[Row]) -> dict[Any, Row]:
    return {(row["born_time_ms"], tuple(sorted(offsets(row)))): placed(row) for row in rows}


def offsets(row: Row) -> list[int]:
    return [entry["commit_log_offset"] for name in WITNESSES for entry in row[name]]


def test_the_last_op_message_comes_along_where_causes_depend_on_it(tmp_path: Path) -> None:
    """Ops that a killed broker lost are proven by a COMMIT record after the last op message, which is of others."""
    one = source(copy_of("killed-5.3.3", tmp_path))
    rows = [row for row in rows_of(one) if "ops-lost-in-memory" in row["causes"]]
    assert rows
    made = make_bundle(one, [rows[0]["transaction_id"]], (), tmp_path / "b", is_archive=False)
    assert made.differences == []
    (row,) = rows_of(BundleSource(open_store(tmp_path / "b" / "store")))
    assert row["causes"] == rows[0]["causes"]


@pytest.mark.parametrize("is_redacted", [False, True])
def test_transactions_in_rocksdb_come_without_their_table_in_one_line(is_redacted: bool, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
    one = source(copy_of("rocksdb-5.5.0", tmp_path))
    chosen: dict[str, Row] = {}
    for row in rows_of(one):
        chosen.setdefault(row["state"], row)
    made = make_bundle(
        one, [row["transaction_id"] for row in chosen.values()], (), tmp_path / "b", is_archive=False,
        key=KEY if is_redacted else None,
    )
    assert [line for line in made.differences if not line.startswith("rocksdbstore is left out")] == []
    assert "2 of the chosen transactions are judged by the log alone; 1 " in made.differences[0]
    assert made.differences[0].endswith(" in the store, UNDECIDABLE in the bundle")
    assert not (tmp_path / "b" / "store" / "rocksdbstore" / "CURRENT").exists()
    found = {row["state"] for row in rows_of(BundleSource(open_store(tmp_path / "b" / "store")))}
    assert found == {"COMMITTED", "ROLLED_BACK", "PENDING", "UNDECIDABLE"}  # PENDING: its immunity time is not over


@pytest.mark.parametrize("name", rest_is_slow(corpus_names("state_table"), quick=1))
@pytest.mark.parametrize("key", [None, KEY])
def test_tables_of_3_1_have_what_the_verdict_needs_and_no_more(name: str, key: bytes | None, tmp_path: Path) -> None:
    """Each transaction alone: what the table says of it decides what its flags and its reason are."""
    original, rows = original_of(name)
    chosen: dict[tuple[object, ...], Row] = {}
    for row in rows:
        chosen.setdefault((row["state"], *row["flags"], row["advice"]), row)
    for number, row in enumerate(chosen.values()):
        place = tmp_path / f"b{number}"
        made = make_bundle(original, [row["transaction_id"]], (), place, is_archive=False, key=key)
        is_remade = original.store.aborted and row["reason_code"] in RENUMBERED
        assert [line for line in made.differences if not line.startswith("transaction/redolog contains only")] == []
        assert is_remade or made.differences == []
        reader = reader_of(place)
        (found,) = rows_of(reader)
        entries = [{k: v for k, v in entry.items() if k != "store"} for entry in row["state_entries"]]
        assert [{k: v for k, v in entry.items() if k != "store"} for entry in found["state_entries"]] == entries
        assert found["state"] == row["state"]
        assert is_remade or (found["flags"], found["reason"]) == (row["flags"], row["reason"])
        slots, redo = state_slots(reader.store, []), redo_entries(reader.store, [])
        assert redo is not None
        assert (0 if slots is None else len(slots)) + len(redo) == len(entries)
        assert (slots is None) == (state_slots(original.store, []) is None)
        findings = run_job(Verify(FULL), plan_splits([reader.store])).table().to_pylist()
        assert not {row["code"] for row in findings} & {"table-entry-invalid", "table-gap", "log-missing"}


def reader_of(bundle: Path) -> BundleSource:
    """A bundle as its manifest says that it is to be read."""
    conf = bundle / "broker.conf"
    lines = conf.read_text(encoding="utf-8").splitlines() if conf.exists() else []
    return BundleSource(open_store(bundle / "store"), dict(line.split("=", 1) for line in lines if line))


@pytest.mark.parametrize("name", in_two_ways([*corpus_names(), *OTHERS]))
def test_each_state_of_each_store_reads_the_same(name: str, tmp_path: Path) -> None:
    original, rows = original_of(name)
    chosen = some_of_each_state(rows)
    made = make_bundle(original, chosen, (), tmp_path / "bundle", is_archive=False, key=KEY)
    assert made.differences == []
    told = {row["transaction_id"] for row in made.transactions.to_pylist()}
    assert set(chosen) <= told
    reader = reader_of(tmp_path / "bundle")
    assert by_place(rows_of(reader)) == by_place(row for row in rows if row["transaction_id"] in told)
    called = {row["transaction_id"]: row["bundle_transaction_id"] for row in made.transactions.to_pylist()}
    one = show([reader.store], reader.settings_of, called[chosen[0]]).table().to_pylist()
    assert placed(one[0]) == placed(next(row for row in rows if row["transaction_id"] == chosen[0]))


@pytest.mark.parametrize(
    "name",
    rest_is_slow(["common-5.3.3", "dledger-4.9.7", "codecs-5.5.0", "common-4.3.0", "propcrc-5.3.3", "cqext-5.3.3"]),
)
@pytest.mark.parametrize("key", [None, KEY])
def test_verify_finds_no_more_wrong_with_a_bundle_than_with_its_store(
    name: str, key: bytes | None, tmp_path: Path
) -> None:
    original, rows = original_of(name)
    make_bundle(original, some_of_each_state(rows), (), tmp_path / "b", is_archive=False, key=key)
    found = [
        {row["code"] for row in run_job(Verify(FULL), plan_splits([store])).table().to_pylist()}
        for store in (open_store(tmp_path / "b" / "store"), original.store)
    ]
    assert found[0] <= found[1]


def unpacked_bytes(archive: Path, to: Path) -> bytes:
    """Every byte of an archive, and its files' bytes and names as they unpack."""
    with tarfile.open(archive) as tar:
        tar.extractall(to, filter="data")
    files = [path for path in sorted(to.rglob("*")) if path.is_file()]
    parts = [path.read_bytes() + str(path.relative_to(to)).encode() for path in files]
    return b"\n".join([lzma.decompress(archive.read_bytes()), *parts])


def words_of(record: Row) -> set[bytes]:
    """What a business put into a record; words that no chance puts together again."""
    properties = dict(record["properties"])
    named = [record["transaction_id"], record["keys"], record["message_id"], properties.get("__transactionId__")]
    words = {word.encode() for word in named if word}
    return words | {record["body"]} if len(record["body"]) >= 8 and record["topic"] != OP_TOPIC else words


@pytest.mark.parametrize("name", ["common-5.3.3", "masked-4.9.7", "common-4.3.0"])
def test_nothing_of_another_transaction_is_in_a_bundle(name: str, tmp_path: Path) -> None:
    original, rows = original_of(name)
    made = make_bundle(original, [rows[0]["transaction_id"]], (), tmp_path / "b.tar.xz", is_archive=True)
    told = {row["transaction_id"] for row in made.transactions.to_pylist()}
    kept = {offset for row in rows if row["transaction_id"] in told for offset in offsets(row)}
    everything = unpacked_bytes(tmp_path / "b.tar.xz", tmp_path / "unpacked")
    records = scan_records(original.store, with_body=True).table().to_pylist()
    own = {word for record in records if record["commit_log_offset"] in kept for word in words_of(record)}
    others = {word for record in records if record["commit_log_offset"] not in kept for word in words_of(record)} - own
    assert len(others) > 10
    assert not [word for word in others if word in everything]
    assert [word for word in own if word in everything], "the search itself finds what is there"


@pytest.mark.parametrize("name", ["common-5.3.3", "ipv6-5.1.4", "codecs-5.3.3", "common-4.4.0"])
def test_no_name_and_no_body_is_in_a_redacted_bundle(name: str, tmp_path: Path) -> None:
    original, rows = original_of(name)
    chosen = some_of_each_state(rows)
    make_bundle(original, chosen, (), tmp_path / "b.tar.xz", is_archive=True, key=KEY)
    everything = unpacked_bytes(tmp_path / "b.tar.xz", tmp_path / "unpacked")
    system = {HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, LEFT_OUT_TOPIC}
    for record in scan_records(original.store, with_body=True).table().to_pylist():
        properties = dict(record["properties"])
        words = words_of(record) | {
            word.encode() for word in (record["topic"], record["producer_group"], record["real_topic"])
            if word and word not in system and not word.startswith(("rmq_sys", "RMQ_SYS", "SCHEDULE_TOPIC"))
        }
        words |= {value.encode() for field, value in properties.items() if field in ("TAGS", "KEYS") and value != "d"}
        assert not [word for word in words if len(word) > 3 and word in everything]
    assert KEY not in everything
    assert str(original.store.root).encode() not in everything


def test_the_same_is_packed_the_same(tmp_path: Path) -> None:
    original, rows = original_of("common-5.1.4")
    chosen = some_of_each_state(rows)[:3]
    for name, key in (("one", KEY), ("two", KEY), ("three", KEY[::-1])):
        (tmp_path / name).mkdir()
        make_bundle(original, chosen, (), tmp_path / name / "b.tar.xz", is_archive=True, key=key)
    one, two, three = ((tmp_path / name / "b.tar.xz").read_bytes() for name in ("one", "two", "three"))
    assert one == two
    assert one != three
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["b.tar.xz"], "nothing else is left behind"


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar")
def test_tar_unpacks_the_holes(tmp_path: Path) -> None:
    original, rows = original_of("multipath-5.3.3")
    chosen = some_of_each_state(rows)
    make_bundle(original, chosen, (), tmp_path / "b.tar.xz", is_archive=True)
    make_bundle(original, chosen, (), tmp_path / "c", is_archive=False)
    with lzma.open(tmp_path / "b.tar.xz") as packed:
        subprocess.run(["tar", "-C", str(tmp_path), "-xf", "-"], input=packed.read(), check=True)
    for path in sorted((tmp_path / "c").rglob("*")):
        copy = tmp_path / "b" / path.relative_to(tmp_path / "c")
        assert copy.is_dir() if path.is_dir() else copy.read_bytes() == path.read_bytes()


def test_what_the_manifest_says_of_files_is_true(tmp_path: Path) -> None:
    original, rows = original_of("common-5.3.3")
    chosen = some_of_each_state(rows)[:2]
    make_bundle(original, chosen, (), tmp_path / "b", is_archive=False)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text(encoding="ascii"))
    found = {str(path.relative_to(tmp_path / "b")) for path in (tmp_path / "b").rglob("*") if path.is_file()}
    assert {file["path"] for file in manifest["files"]} | {"manifest.json"} == found
    assert [row["transaction_id"] for row in manifest["transactions"]] == chosen
    assert manifest["rows_are_those_of_the_store"] is True
    for file in manifest["files"]:
        data = (tmp_path / "b" / file["path"]).read_bytes()
        assert len(data) == file["size_bytes"]
        held = np.zeros(len(data), np.bool_)
        for position, length in file["extents"]:
            held[position : position + length] = True
        assert not np.frombuffer(data, np.uint8)[~held].any(), "holes are zeros"


# --- targets and keys -------------------------------------------------------------------------------------------------


def test_what_exists_is_never_written_over(tmp_path: Path) -> None:
    original, rows = original_of("fifteen-5.3.3")
    identity = rows[0]["transaction_id"]
    (tmp_path / "b.tar.xz").write_bytes(b"mine")
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, is_archive in (("b.tar.xz", True), ("b", False), ("link", False)):
        with pytest.raises(UnwritableFile, match="already exists"):
            make_bundle(original, [identity], (), tmp_path / name, is_archive=is_archive)
    assert (tmp_path / "b.tar.xz").read_bytes() == b"mine"
    assert list((tmp_path / "b").iterdir()) == []
    with pytest.raises(BadRequest, match="not a valid name for a bundle"):
        make_bundle(original, [identity], (), tmp_path / "b.zip", is_archive=True)
    with pytest.raises(NoSuchTransaction):
        make_bundle(original, ["nothing"], (), tmp_path / "new", is_archive=False)
    assert {path.name for path in tmp_path.iterdir()} == {"b.tar.xz", "b", "link"}


def test_a_key_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    first = redaction_key(tmp_path / "key")
    assert redaction_key(tmp_path / "key") == first
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert redaction_key(None) != redaction_key(None)
    (tmp_path / "short").write_bytes(b"secret\n")
    with pytest.raises(BadRequest, match="does not contain a key"):
        redaction_key(tmp_path / "short")


# --- names and bodies -------------------------------------------------------------------------------------------------


def test_pseudonyms_are_stable_different_and_as_long() -> None:
    redactor, again = Redactor(KEY), Redactor(KEY)
    names = [f"{number}".encode() for number in range(300)] + [b"orders", b"%RETRY%shop", "größe".encode(), b"\xff\xfe"]
    given = [redactor.name(name) for name in names]
    assert [len(name) for name in given] == [len(name) for name in names]
    assert len(set(given)) == len(names)
    assert [again.name(name) for name in names] == given
    assert redactor.name(b"%RETRY%shop") == b"%RETRY%" + redactor.name(b"shop")
    assert redactor.name(HALF_TOPIC.encode()) == HALF_TOPIC.encode()
    assert redactor.words(b"K-1 K-2") == redactor.name(b"K-1") + b" " + redactor.name(b"K-2")
    assert Redactor(KEY[::-1]).name(b"orders") != redactor.name(b"orders")


def test_more_names_than_pseudonyms_are_refused() -> None:
    redactor = Redactor(KEY)
    for value in range(26):
        redactor.name(bytes([200 + value]))
    with pytest.raises(BadRequest, match="not enough pseudonyms"):
        redactor.name(b"\xff")


HOSTILE = ["../../escaped", ".", "a/b", "\x1b[31mred", "x" * 120, "tab\tand\nline", "‮gnp.exe", "%", "%RETRY%"]


@pytest.mark.parametrize("topic", HOSTILE)
@pytest.mark.parametrize("key", [None, KEY])
def test_hostile_names_stay_inside_and_read_the_same(topic: str, key: bytes | None, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "made")
    half = forge.half("COMMITTED-" + topic[:20], topic=topic, group=topic)
    forge.op(half)
    forge.commit(half)
    forge._slots = collections.defaultdict(list, {
        name: slots for name, slots in forge._slots.items() if name[0] in (HALF_TOPIC, OP_TOPIC)
    })
    original = source(forge.write(half_cursor=1, op_cursor=1))
    made = make_bundle(
        original, [rows_of(original)[0]["transaction_id"]], (), tmp_path / "b", is_archive=False, key=key
    )
    assert made.differences == []
    assert {path.name for path in tmp_path.iterdir()} == {"made", "b"}
    assert not (tmp_path / "escaped").exists()


def test_a_body_larger_than_a_window_and_a_gap_of_many(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "made", segment_bytes=64 << 20)
    forge.append(Message(topic="other", body=b"other " * 3_000_000))
    half = forge.append(
        Message(topic=HALF_TOPIC, body=bytes(range(256)) * 50_000,
                properties=(("REAL_TOPIC", "orders"), ("UNIQ_KEY", "LARGE"), ("PGROUP", "shop"), ("REAL_QID", "1")))
    )
    forge.op(half)
    original = source(forge.write(half_cursor=1, op_cursor=1))
    for key in (None, KEY):
        made = make_bundle(original, ["LARGE"], (), tmp_path / f"{key is None}.tar.xz", is_archive=True, key=key)
        assert made.differences == []
        assert made.size_bytes < 1 << 20
    records = scan_records(open_store(forge.root)).table().num_rows
    make_bundle(original, ["LARGE"], (), tmp_path / "b", is_archive=False)
    topics = scan_records(open_store(tmp_path / "b" / "store")).table()["topic"].to_pylist()
    assert topics.count(LEFT_OUT_TOPIC) > 1
    assert len([topic for topic in topics if topic != LEFT_OUT_TOPIC]) == records - 1


# --- findings and damage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY])
def test_findings_show_in_their_bundle(key: bytes | None, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "made")
    file = damage.log_files(root)[0]
    records = damage.records_in(file)
    damage.zero_bytes(file, records[3][0], records[3][1])
    damage.flip_byte(file, records[9][0] + 100)
    original = source(root)
    codes = ["record-body-crc", "record-damaged"]
    found = run_job(Verify(), plan_splits([original.store])).table().to_pylist()
    assert {*codes} <= {row["code"] for row in found}
    made = make_bundle(original, (), codes, tmp_path / "b", is_archive=False, key=key)
    assert made.differences == []
    assert made.findings_count >= 2
    assert made.transactions.schema == BUNDLED
    copied = run_job(Verify(), plan_splits([open_store(tmp_path / "b" / "store")])).table().to_pylist()
    places = {(row["code"], row["position_bytes"], row["length_bytes"]) for row in found if row["code"] in codes}
    assert places <= {(row["code"], row["position_bytes"], row["length_bytes"]) for row in copied}


def test_a_finding_of_two_records_brings_both(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "made")
    file = damage.log_files(root)[0]
    (front, _), (place, _) = damage.records_in(file)[4:6]
    before = int.from_bytes(file.read_bytes()[place + AT["store_time_ms"] :][:8], "big")
    damage.write_bytes(file, place + AT["store_time_ms"], (before - 3_600_000).to_bytes(8, "big"))
    selection = Selection(open_store(root))
    add_findings(selection, ["store-time-backwards"])
    assert selection.records.keys() == {front, place}


def test_a_finding_of_a_cursor_brings_its_queue(tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path / "made")
    file = root / "config" / "consumerOffset.json"
    value = json.loads(re.sub(r"(?<=[{,])\s*(\d+)\s*:", r'"\1":', file.read_text()))
    value["offsetTable"]["orders@a group in queue 7 of x"] = {"0": 1 << 40}
    file.write_text(json.dumps(value))
    selection = Selection(open_store(root))
    add_findings(selection, ["group-cursor-beyond-end"])
    assert selection.cursors == {("orders", "a group in queue 7 of x", 0)}
    assert ("orders", 0) in selection.slots
    assert selection.files == []


def test_findings_that_no_bundle_shows_are_refused(tmp_path: Path) -> None:
    original = source(unpacked("fifteen-5.3.3"))
    with pytest.raises(BadRequest, match="no finding nonsense"):
        make_bundle(original, (), ["nonsense"], tmp_path / "b", is_archive=False)
    with pytest.raises(BadRequest, match="concerns the index"):
        make_bundle(original, (), ["index-missing"], tmp_path / "b", is_archive=False)
    with pytest.raises(NoSuchTransaction, match="does not find slot-mismatch"):
        make_bundle(original, (), ["slot-mismatch"], tmp_path / "b", is_archive=False)


def test_what_damage_makes_undecidable_stays_so(tmp_path: Path) -> None:
    root = copy_of("busystop-5.3.3", tmp_path / "made")
    op = [row for row in scan_records(open_store(root)).table().to_pylist() if row["topic"] == OP_TOPIC][-1]
    damage.zero_bytes(Path(op["file"]), op["position_bytes"], op["length_bytes"])
    original = source(root)
    rows = rows_of(original)
    undecidable = [row["transaction_id"] for row in rows if row["state"] == "UNDECIDABLE"]
    assert undecidable
    made = make_bundle(original, undecidable, (), tmp_path / "b", is_archive=False)
    assert made.differences == []
    reader = reader_of(tmp_path / "b")
    told = {row["transaction_id"]: row["reason"] for row in rows_of(reader)}
    assert told == {row["transaction_id"]: row["reason"] for row in rows if row["transaction_id"] in undecidable}


def test_a_difference_is_said_and_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, rows = original_of("killed-5.3.3")
    pending = next(row["transaction_id"] for row in rows if row["state"] == "PENDING")
    monkeypatch.setattr("rmqtx.repairs.bundles.config_files._cursors", lambda *_: None)
    made = make_bundle(original, [pending], (), tmp_path / "b", is_archive=False)
    assert any("state is UNDECIDABLE in the bundle and PENDING in the store" in line for line in made.differences)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text(encoding="ascii"))
    assert manifest["rows_are_those_of_the_store"] is False
    assert manifest["differences"] == made.differences


def test_of_damaged_bytes_only_a_proven_header_stays() -> None:
    """A name and an account number stood in the first bytes of a damaged span, and came through."""
    redactor = Redactor(KEY)
    text = b"Erika Mustermann DE89370400440532013000 1234"
    assert redactor.loose_bytes(text, offset=4096) == b"x" * len(text)
    header = RECORD.pack(
        length_bytes=200, magic=signed(MAGIC_V1), body_crc=7, queue_id=3, queue_offset=9, commit_log_offset=4096
    )
    kept = redactor.loose_bytes(header + text, offset=4096)
    assert kept[:8] == header[:8]
    assert kept[12:16] + kept[20:36] == header[12:16] + header[20:36]
    assert text[:4] not in kept
    assert kept[8:12] == b"\0\0\0x", "the CRC of a short body gives it away"
    covered = text[:28] + (4096).to_bytes(8, "big") + text
    assert redactor.loose_bytes(covered, offset=4096) == b"x" * 28 + (4096).to_bytes(8, "big") + b"x" * len(text)
    assert redactor.loose_bytes(header, offset=8192)[:4] == b"\0\0\0x"


def test_bundles_are_their_owner_s_alone(tmp_path: Path) -> None:
    one, rows = original_of("fifteen-5.3.3")
    name = rows[0]["transaction_id"]
    for target, is_archive in ((tmp_path / "b", False), (tmp_path / "b.tar.xz", True)):
        make_bundle(one, [name], [], target, is_archive=is_archive)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "b").rglob("*") if path.is_file()} == {0o600}
    assert (tmp_path / "b.tar.xz").stat().st_mode & 0o777 == 0o600


def test_a_bundle_without_a_record_of_the_first_log_file_is_one(tmp_path: Path) -> None:
    """Its first log file is only a blank, and what was left out begins in the second."""
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path, filter="data")
    original = source(tmp_path / "store")
    late = [
        row for row in rows_of(original)
        if row["half_copies"] and row["half_copies"][0]["commit_log_offset"] > 316_000
    ]
    made = make_bundle(original, [late[0]["transaction_id"]], (), tmp_path / "bundle", is_archive=False)
    assert made.differences == []
    store = open_store(tmp_path / "bundle" / "store")
    assert is_bundle(store)
    findings = run_job(Verify(FULL), plan_splits([store])).table().to_pylist()
    assert {row["code"] for row in findings if row["severity"] != "note"} == set()

"""Records whose properties end in zeros: a broker's recovery keeps them, and each counts as far as it can be read."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.log.transaction_records import are_halves, are_ops, is_final
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import DISCARD_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.verify.verify import FULL
from tests.field import field_stores, right
from tests.forge import damage
from tests.forge.damage import log_files, write_bytes
from tests.forge.stores import copy_of, opened, settings_of
from tests.verdicts import truth
from tests.verdicts.verifying import findings as verified

Row = dict[str, Any]
FIELD = ("torn-props-clean", "torn-props-half-2-bytes", "torn-props-middle")
KILLED = "killed-4.9.7"


def audited(root: Path, name: str | None = None) -> tuple[list[Row], list[Finding]]:
    reading = audit([open_store(root)], broker_settings if name is None else settings_of(name))
    return reading.table().to_pylist(), reading.findings


def by_place(rows: list[Row]) -> dict[int, Row]:
    return {row["half_copies"][0]["commit_log_offset"]: row for row in rows if row["half_copies"]}


def about(found: list[Finding], offset: int) -> set[str]:
    return {finding.code for finding in found if finding.commit_log_offset == offset}


def tear(root: Path, offset: int, count: int | None = None) -> None:
    """Zero the last property bytes of a record; all of them without a count."""
    store = open_store(root)
    log = store.log()
    block = block_at(log, offset)
    assert block is not None
    segment = log.segment_at(offset)
    assert segment is not None
    log.close()
    length = int(block.properties_lengths[0])
    size = length if count is None else min(count, length)
    damage.zero_bytes(Path(segment.file), offset - segment.base_offset + int(block.lengths[0]) - size, size)


def offsets_of(name: str, kind: str) -> list[int]:
    """Where the records of a kind are in a store of the corpus."""
    chosen: dict[str, Callable[[Block], Bools]] = {
        "half": are_halves, "op": are_ops, "final": is_final, "discard": lambda block: block.topic_is(DISCARD_TOPIC),
    }
    blocks = [block for split in plan_splits([opened(name)]) for block in split.scan()]
    return [offset for block in blocks for offset in block.commit_log_offsets[chosen[kind](block)].tolist()]


@pytest.mark.parametrize("name", FIELD)
def test_what_a_broker_of_4_9_7_did(name: str, tmp_path: Path) -> None:
    wanted = right(name)
    root = field_stores(name, tmp_path) / "store"
    rows, found = audited(root)
    log_end = wanted.get("log_end")
    if log_end is not None:
        blocks = [block for split in plan_splits([open_store(root)]) for block in split.scan()]
        assert int(blocks[-1].commit_log_offsets[-1] + blocks[-1].lengths[-1]) == log_end
    for place, text in wanted["by_log_offset"].items():
        row = by_place(rows)[int(place)]
        assert row["state"] == "PENDING", row["reason"]
        if "keys k" in text:
            assert (row["keys"], row["producer_group"], row["topic"]) == ("k298778489", "shop", "Orders")
        if "unknown" in text:
            assert (row["producer_group"], row["topic"]) == (None, None)
    assert not {finding.code for finding in found} & {"record-damaged", "tail-torn", "check-stopped", "log-missing"}
    assert "record-properties" in {row["code"] for row in verified(root)}
    waiting = pending([open_store(root)], broker_settings).table().to_pylist()
    listed = {row["half_copies"][0]["commit_log_offset"] for row in waiting}
    assert set(map(int, wanted["by_log_offset"])) <= listed


@pytest.mark.parametrize("name", FIELD)
def test_a_record_can_be_appended_behind_it(name: str, tmp_path: Path) -> None:
    """The start cuts nothing off, so neither refuses an append."""
    root = field_stores(name, tmp_path) / "store"
    assert not {row["code"] for row in verified(root)} & {"start-cuts-log"}


@pytest.mark.parametrize("kind", ["half", "final", "discard"])
@pytest.mark.parametrize("count", [1, 30])
def test_a_torn_end_changes_no_state(kind: str, count: int, tmp_path: Path) -> None:
    offset = offsets_of(KILLED, kind)[3]
    root = copy_of(KILLED, tmp_path)
    before, _ = audited(root, KILLED)
    tear(root, offset, count)
    after, found = audited(root, KILLED)
    assert [(row["transaction_id"], row["state"]) for row in after] == [
        (row["transaction_id"], row["state"]) for row in before
    ]
    assert "record-properties" in about(found, offset)


@pytest.mark.parametrize("kind", ["half", "final", "discard"])
def test_without_properties_no_state_is_wrong(kind: str, tmp_path: Path) -> None:
    offset = offsets_of(KILLED, kind)[5]
    root = copy_of(KILLED, tmp_path)
    before = {row["transaction_id"]: row["state"] for row in audited(root, KILLED)[0]}
    tear(root, offset)
    rows, found = audited(root, KILLED)
    after = {row["transaction_id"]: row["state"] for row in rows}
    changed = {after[name] for name, state in before.items() if after.get(name, state) != state}
    assert changed <= {"UNDECIDABLE"}
    gone = before.keys() - after.keys()  # its only half copy has no id now: its message id takes the place
    assert not gone or (kind == "half" and offset in by_place(rows))
    if kind == "final":
        assert after == before
    assert "record-properties" in about(found, offset)


def test_an_op_without_its_tag_settles_nothing_that_the_check_still_reaches(tmp_path: Path) -> None:
    """5.3.3 passes over it: the rolled back half messages are checked again; what the check has passed was settled."""
    root = field_stores("torn-props-half-2-bytes", tmp_path) / "store"
    before = {row["transaction_id"]: row["state"] for row in audited(root)[0]}
    tear(root, 1895, 1)  # of the rollback of the half message at 254
    rows, found = audited(root)
    changed = {row["transaction_id"] for row in rows if row["state"] != before[row["transaction_id"]]}
    assert changed == {by_place(rows)[254]["transaction_id"]}
    assert by_place(rows)[254]["state"] == "PENDING"
    assert {"op-without-effect", "record-properties"} <= about(found, 1895)
    assert "half queue offsets 1" in str([one.actual for one in found if one.code == "op-without-effect"])


def test_an_op_that_lost_its_tag_later_had_its_effect(tmp_path: Path) -> None:
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    before = {row["transaction_id"]: row["state"] for row in audited(root, name)[0]}
    offset = offsets_of(name, "op")[0]
    tear(root, offset, 1)
    rows, found = audited(root, name)
    assert {row["transaction_id"]: row["state"] for row in rows} == before
    assert {"op-without-effect", "record-properties"} <= about(found, offset)


@pytest.mark.parametrize(
    ("text", "code"), [(b",", "op-without-effect"), (b"9", "op-beyond-end"), (b"x", "op-unreadable")]
)
def test_an_op_that_names_nothing_is_found_by_every_command(text: bytes, code: str, tmp_path: Path) -> None:
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    offset = offsets_of(name, "op")[-1]
    store = open_store(root)
    block = block_at(store.log(), offset)
    assert block is not None
    body = text * int(block.body_lengths[0])
    if code == "op-beyond-end":
        body = body[:-1] + b","
    file = Path(store.commit_log[0].file)
    damage.write_bytes(file, offset + int(block.body_starts[0] - block.starts[0]), body)
    damage.write_bytes(file, offset + AT["body_crc"], (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big"))
    _, found = audited(root, name)
    assert code in about(found, offset)
    waiting = pending([open_store(root)], settings_of(name))
    waiting.table()
    assert code in {finding.code for finding in waiting.findings}
    assert code in {row["code"] for row in verified(root)}
    assert {finding.kind.severity for finding in found if finding.code == code} == {"error"}


def test_a_half_message_with_no_properties_at_all_is_open(tmp_path: Path) -> None:
    """The length of the properties is 0, and the length of the record is the sum of its parts."""
    root = field_stores("torn-props-half-2-bytes", tmp_path) / "store"
    file = Path(open_store(root).commit_log[0].file)
    data = bytearray(file.read_bytes())
    at, length = 2030, int.from_bytes(data[2030:2034], "big")
    sizes_at = at + length - 2 - 134
    data[at : at + 4] = (length - 134).to_bytes(4, "big")
    data[sizes_at : at + length] = bytes(2 + 134)
    file.write_bytes(data)
    rows, found = audited(root)
    assert by_place(rows)[at]["state"] == "PENDING"
    assert {"half-unreadable", "record-properties"} <= about(found, at)
    assert "record-properties" in {row["code"] for row in verified(root)}


@pytest.mark.parametrize(("word", "code"), [(b"k298778489", None), (b"BBADFEC0373BF9FC", "half-unreadable")])
def test_properties_that_are_not_text_are_a_record(word: bytes, code: str | None, tmp_path: Path) -> None:
    root = field_stores("torn-props-half-2-bytes", tmp_path) / "store"
    file = Path(open_store(root).commit_log[0].file)
    damage.write_bytes(file, file.read_bytes().index(word) + 3, b"\xff\xfe\xc3")
    rows, found = audited(root)
    assert by_place(rows)[2030]["state"] == "PENDING"
    assert about(found, 2030) == {"record-properties"} | ({code} if code else set())


@pytest.mark.parametrize(("column", "first", "value"), [
    ("producer_group", b"R\x01rmqtx", b"\x01shipped"), ("topic", b"REAL_TOPIC", b"\x01orders"),
])
def test_a_name_that_is_overwritten_is_found(column: str, first: bytes, value: bytes, tmp_path: Path) -> None:
    """The half message had no group or topic, with status 0 and no finding."""
    root = copy_of(name := "busystop-4.9.7", tmp_path)
    (file,) = log_files(root)
    begin = (data := file.read_bytes()).index(first)
    write_bytes(file, begin, b"\xff" * (data.index(value, begin) - begin))
    rows, found = audited(root, name)
    assert by_place(rows)[0][column] is None
    assert about(found, 0) == {"half-unreadable"}
    assert "half-unreadable" in {row["code"] for row in verified(root, FULL)}


@pytest.mark.parametrize("name", ["prepared-4.2.0", "statetable-3.1.4"])
def test_a_prepared_record_without_its_group_does_not_vanish(name: str, tmp_path: Path) -> None:
    """Zeros in place of all its properties but a part of the first: its id is only its place."""
    root = copy_of(name, tmp_path)
    before = truth.audited(name)
    (row, *_) = [one for one in before if one["state"] == "COMMITTED" and one["keys"]]
    place = row["half_copies"][0]["commit_log_offset"]
    (file,) = [one for one in log_files(root) if int(one.name) <= place < int(one.name) + one.stat().st_size]
    at = place - int(file.name)
    data = file.read_bytes()
    end = at + int.from_bytes(data[at : at + 4], "big")
    begin = data.index(b"KEYS\x01", at, end) + 8
    write_bytes(file, begin, bytes(end - begin))
    rows = {one["transaction_id"]: one for one in audit([open_store(root)], settings_of(name)).table().to_pylist()}
    assert rows.keys() == {one["transaction_id"] for one in before}
    assert rows[row["transaction_id"]]["state"] in ("COMMITTED", "UNDECIDABLE")

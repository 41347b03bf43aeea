"""`pending`, `show` and look-ups by derived files on damaged logs: they say what an audit says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqtx.readers.index.index import ENTRY, entries_at, open_index_file
from rmqtx.readers.index.index import HEADER as INDEX_HEADER
from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.model.errors import EvidenceMissing
from rmqtx.readers.model.reading import NoteKind, Reading
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import Scan, lookup, pending, show
from rmqtx.verdicts.claims.log_agreement import broken_join
from rmqtx.verdicts.model.predicted import open_rows
from tests.forge.damage import SLOT_BYTES, flip_byte, log_files, queue_files, records_in, write_bytes
from tests.forge.stores import WITH_SEVERAL_SEGMENTS, copy_of, opened, settings_of
from tests.histories.damages import DAMAGES as CURSOR_DAMAGES
from tests.representatives import rest_is_slow
from tests.verdicts.truth import judged

Damage = Callable[[bytes], bytes]


def _used(data: bytes) -> int:
    return len(data.rstrip(b"\0"))


DAMAGES: dict[str, Damage] = {
    "zeros": lambda data: bytes(len(data)),
    "0xff": lambda data: b"\xff" * len(data),
    "inverted": lambda data: bytes(255 - byte for byte in data),
    "nine bytes later": lambda data: (bytes(9) + data)[: len(data)],
    "zeros from the middle": lambda data: data[: _used(data) // 2] + bytes(len(data) - _used(data) // 2),
    "a hole": lambda data: data[: _used(data) // 3] + bytes(_used(data) // 3) + data[2 * (_used(data) // 3) :],
    "zeros to the middle": lambda data: bytes(_used(data) // 2) + data[_used(data) // 2 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "place"),
    rest_is_slow([
        ("common-4.9.7", 0), ("killed-5.3.3", 4), ("upgraded-4.2.0-4.3.0", 0), ("killed-5.3.3", -2),
        ("multipath-5.5.0", 1),
    ], quick=1, slow=1),
)
def test_whole_files(tmp_path: Path, name: str, place: int, damage: str) -> None:
    """Many of these were answered with status 0 and others than the true transactions, or PENDING for UNDECIDABLE."""
    root = copy_of(name, tmp_path)
    file = [path for path in log_files(root) if path.read_bytes().strip(b"\0")][place]
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    whole = audit([open_store(root)], settings_of(name))
    rows = whole.table()
    states = dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True))
    hanging = pending([open_store(root)], settings_of(name))
    assert hanging.table().to_pylist() == open_rows(rows).to_pylist()
    assert errors(hanging)
    for row in judged(name).to_pylist()[::8]:
        identity = row["transaction_id"]
        try:
            [shown] = show([open_store(root)], settings_of(name), identity).table().to_pylist()
        except EvidenceMissing:
            assert identity not in states
        else:
            assert shown["state"] == states[identity]
    looked = lookup([open_store(root)], settings_of(name), ["UNKNOWN", *list(states)[::8]]).table()
    assert looked["state"].to_pylist() == [states[name] for name in looked["transaction_id"].to_pylist()]


def errors(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings if finding.kind.severity == "error"]


def test_a_record_that_the_index_knows_by_another_key(tmp_path: Path) -> None:
    """One byte of the UNIQ_KEY of a COMMIT record: by the index it named no transaction, and that was ROLLED_BACK."""
    name = "busystop-4.9.7"
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist() if row["final_records"])
    final = row["final_records"][0]["commit_log_offset"]
    file = log_files(root)[0]
    at = file.read_bytes().index(row["transaction_id"].encode(), final)
    flip_byte(file, at + 3, 1)
    scanned = show([open_store(root)], settings_of(name), row["transaction_id"], scan=Scan())
    by_scan = scanned.table()["state"].to_pylist()
    reading = show([open_store(root)], settings_of(name), row["transaction_id"])
    assert reading.table()["state"].to_pylist() == by_scan
    assert any("not have the key that it has in the index" in note.text for note in reading.notes)


def test_undamaged_logs_join() -> None:
    for name in WITH_SEVERAL_SEGMENTS:
        assert broken_join(opened(name)) is None


@pytest.mark.parametrize(
    "name", ["busystop-4.9.7", "killed-5.3.3", "multipath-5.5.0", "delayed-5.1.4", "propcrc-5.3.3"]
)
def test_undamaged_logs_need_no_scan(name: str) -> None:
    reading = pending([opened(name)], settings_of(name))
    assert not errors(reading)
    assert not [note for note in reading.notes if note.kind is NoteKind.WHY]


def test_a_half_copy_with_another_number_than_its_slot(tmp_path: Path) -> None:
    """A half copy's own number, changed in one byte: an op of another half seemed to end it."""
    name = "busystop-4.9.7"
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist() if row["half_copies"])
    flip_byte(log_files(root)[0], row["half_copies"][0]["commit_log_offset"] + AT["queue_offset"] + 7, 1)
    require_a_scan_where_it_is_asked_for(root, name, row["transaction_id"])


def test_an_op_slot_before_the_first_that_is_read(tmp_path: Path) -> None:
    """The first slot of the op queue is rubbish: the reading began behind it, and its op ended nothing."""
    name = "cursoredited-5.1.4"
    root = copy_of(name, tmp_path)
    [file, *_] = sorted((root / "consumequeue" / OP_TOPIC / "0").iterdir())
    flip_byte(file, 0, 0x80)
    require_a_scan_where_it_is_asked_for(root, name, None)


def test_an_op_slot_that_seems_older_than_what_is_read(tmp_path: Path) -> None:
    """The place in the first slot of the op queue is zero: the reading began behind it, and six were PENDING."""
    name = "cursoredited-5.5.0"
    root = copy_of(name, tmp_path)
    [file, *_] = sorted((root / "consumequeue" / OP_TOPIC / "0").iterdir())
    file.write_bytes(bytes(8) + file.read_bytes()[8:])
    require_a_scan_where_it_is_asked_for(root, name, None)
    hanging = pending([open_store(root)], settings_of(name))
    states = hanging.table()["state"].to_pylist()
    truth = open_rows(judged(name))["state"].to_pylist()
    assert states == truth or errors(hanging)
    assert any("does not point to its record" in note.text for note in hanging.notes)


def test_an_op_queue_that_ends_before_the_cursor_of_the_check(tmp_path: Path) -> None:
    """The files of the op queue are missing: two rolled back transactions were PENDING, with status 0."""
    name = "common-5.3.3"
    root = copy_of(name, tmp_path)
    shutil.rmtree(root / "consumequeue" / OP_TOPIC)
    hanging = pending([open_store(root)], settings_of(name))
    found, rows = hanging.table(), open_rows(judged(name))
    states, true_states = (
        dict(zip(table["transaction_id"].to_pylist(), table["state"].to_pylist(), strict=True))
        for table in (found, rows)
    )
    assert states == true_states
    assert any("op cursor 8 lies beyond the op queue's end 0" in note.text for note in hanging.notes)


def test_a_half_copy_that_contradicts_its_property_crc(tmp_path: Path) -> None:
    """One byte of a group: the copy was of another transaction with the same id, which was LOST with status 0."""
    name = "propcrc-5.3.3"
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist() if row["discard_copies"])
    file = log_files(root)[0]
    at = file.read_bytes().index(b"PGROUP\x01", row["half_copies"][-1]["commit_log_offset"])
    flip_byte(file, at + len(b"PGROUP\x01"), 1)
    whole = audit([open_store(root)], settings_of(name))
    states = [one["state"] for one in whole.table().to_pylist() if one["transaction_id"] == row["transaction_id"]]
    assert set(states) == {"UNDECIDABLE"}
    assert "record-property-crc" in errors(whole)
    require_a_scan_where_it_is_asked_for(root, name, row["transaction_id"])


def test_an_op_message_that_cannot_be_read(tmp_path: Path) -> None:
    """What it ended was PENDING for `pending` and `show`, and UNDECIDABLE for an audit."""
    name = "cursorback-4.3.0"
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist()
               if row["state"] == "ROLLED_BACK" and len(row["op_marks"]) == 1)
    flip_byte(log_files(root)[0], row["op_marks"][0]["commit_log_offset"] + AT["body_crc"], 1)
    require_a_scan_where_it_is_asked_for(root, name, row["transaction_id"])
    [shown] = show([open_store(root)], settings_of(name), row["transaction_id"]).table()["state"].to_pylist()
    assert shown == "UNDECIDABLE"


def test_a_first_half_slot_that_leads_to_the_log_s_begin(tmp_path: Path) -> None:
    """Half messages seemed as old as the log, so that no prepared record was looked for, and eight were pending."""
    name = "upgraded-4.2.0-4.3.0"
    root = copy_of(name, tmp_path)
    [file, *_] = sorted((root / "consumequeue" / HALF_TOPIC / "0").iterdir())
    data = file.read_bytes()
    file.write_bytes(bytes(8) + data[8:])
    require_a_scan_where_it_is_asked_for(root, name, None)


def test_a_commit_record_that_seems_prepared(tmp_path: Path) -> None:
    """By the index it was one more half copy, of another design, and the transaction was ROLLED_BACK."""
    name = "busystop-4.3.0"
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist()
               if row["final_records"] and not row["half_copies"][0]["commit_log_offset"])
    flip_byte(log_files(root)[0], row["final_records"][0]["commit_log_offset"] + AT["sys_flag"] + 3, 0x0F)
    require_a_scan_where_it_is_asked_for(root, name, row["transaction_id"])


def test_an_index_entry_with_another_hash(tmp_path: Path) -> None:
    """One bit of a hash in a small index: the COMMIT record was not found, and its transaction was ROLLED_BACK."""
    name = "cursoredited-5.1.4"
    root = copy_of(name, tmp_path)
    [file] = (root / "index").iterdir()
    index = open_index_file(open_store(root).index_files[0])
    with index.segment.open() as opened_file:
        entries = entries_at(opened_file, index, np.arange(1, index.entries_count + 1))
    rows = judged(name).to_pylist()
    finals = {record["commit_log_offset"] for row in rows for record in row["final_records"] if row["op_marks"]}
    hurt = [number for number, entry in enumerate(entries.tolist(), 1)
            if entry[1] in finals and not entry[3] and number not in entries["previous_entry_number"]]
    assert hurt
    for number in hurt:
        flip_byte(file, index.entry_position(number), 0x40)
        hanging = pending([open_store(root)], settings_of(name)).table()
        assert hanging.to_pylist() == open_rows(audit([open_store(root)], settings_of(name)).table()).to_pylist()
        flip_byte(file, index.entry_position(number), 0x40)


@pytest.mark.parametrize("name", ["delayed-4.3.0", "delayed-4.4.0"])
def test_an_index_chain_that_ends_before_a_delayed_half_message(tmp_path: Path, name: str) -> None:
    """Its transaction seemed 5 s younger, so `check` named another oldest one, with status 0."""
    root = copy_of(name, tmp_path)
    [segment, *_] = open_store(root).index_files
    index = open_index_file(segment)
    with segment.open() as opened_file:
        entries = entries_at(opened_file, index, np.arange(1, index.entries_count + 1))
    columns = ["transaction_id", "half_store_time_ms"]
    truth = open_rows(judged(name)).select(columns)
    places = {
        place for place, hash_ in zip(entries["commit_log_offset"].tolist(), entries["key_hash"].tolist(), strict=True)
        if hash_ in set(entries["key_hash"][-20:].tolist())
    }
    hurt = [number for number, entry in enumerate(entries.tolist(), 1) if entry[1] in places and entry[3]]
    assert len(hurt) > 3
    file = Path(segment.file)
    for number in hurt:
        data = file.read_bytes()
        position = index.entry_position(number) + ENTRY.offsets["previous_entry_number"]
        write_bytes(file, position, bytes(4))
        assert pending([open_store(root)], settings_of(name)).table().select(columns) == truth, number
        file.write_bytes(data)


def test_an_index_that_seems_to_begin_later(tmp_path: Path) -> None:
    """The begin in its header: a delayed half message before it was not found, and its transaction seemed younger."""
    name = "delayed-4.4.0"
    root = copy_of(name, tmp_path)
    [file, *_] = sorted((root / "index").iterdir())
    flip_byte(file, INDEX_HEADER.offsets["begin_offset"] + 7, 0x3C)
    require_a_scan_where_it_is_asked_for(root, name, None)
    truth = open_rows(judged(name))
    columns = ["transaction_id", "half_store_time_ms"]
    assert pending([open_store(root)], settings_of(name)).table().select(columns) == truth.select(columns)


def _cursor_beyond_the_end(root: Path) -> None:
    file = root / "config" / "consumerOffset.json"
    text = re.sub(rf'("{HALF_TOPIC}@[^"]*":\{{0:)\d+', r"\g<1>9999", file.read_text())
    assert text != file.read_text()
    file.write_text(text)


@pytest.mark.parametrize("name", ["busystop-5.1.4", "poison-4.4.0", "killed-4.9.7"])
def test_a_cursor_beyond_the_end_decides_nothing(tmp_path: Path, name: str) -> None:
    """All that it seemed to have passed was LOST, and the broker resets it and asks for all of them."""
    root = copy_of(name, tmp_path)
    before = judged(name)
    _cursor_beyond_the_end(root)
    reading = audit([open_store(root)], settings_of(name))
    states = reading.table()["state"].to_pylist()
    assert "cursor-beyond-end" in errors(reading)
    assert "LOST" not in states
    assert {"PENDING", "UNDECIDABLE"} & set(states) == {"UNDECIDABLE"}
    assert states.count("COMMITTED") == before["state"].to_pylist().count("COMMITTED")


def test_a_cursor_beyond_the_end_is_no_premise_of_show(tmp_path: Path) -> None:
    name = "busystop-4.9.7"
    root = copy_of(name, tmp_path)
    [row, *_] = judged(name).to_pylist()
    _cursor_beyond_the_end(root)
    reading = show([open_store(root)], settings_of(name), row["transaction_id"])
    reading.table()
    assert "cursor-beyond-end" in errors(reading)


@pytest.mark.parametrize("number", [0x2F, 0xEA])
@pytest.mark.parametrize(("name", "is_discarded"), [("busystop-4.9.7", False), ("cursoredited-5.5.0", True)])
def test_a_half_copy_of_another_queue(tmp_path: Path, name: str, is_discarded: bool, number: int) -> None:
    """A queue_id that the half topic has not: no op ended the copy, and the row was PENDING or DISCARDED."""
    root = copy_of(name, tmp_path)
    row = next(
        row for row in judged(name).to_pylist()
        if row["state"] == "ROLLED_BACK" and bool(row["discard_copies"]) == is_discarded
    )
    flip_byte(log_files(root)[0], row["half_copies"][0]["commit_log_offset"] + AT["queue_id"], number)
    for scan in (False, True):
        shown = show([open_store(root)], settings_of(name), row["transaction_id"], scan=Scan.asked(None, scan=scan))
        assert shown.table()["state"].to_pylist() == ["UNDECIDABLE"]
        assert errors(shown)


@pytest.mark.parametrize(("number", "code"), [(0x2F, "slot-mismatch"), (0xEA, "record-header")])  # the second is < 0
def test_a_half_copy_of_another_queue_in_rocksdb(tmp_path: Path, number: int, code: str) -> None:
    """There no slot is held against it: a COMMITTED one seemed to be before the check, and nothing was said."""
    name = "rocksdb-single-5.5.0"
    root = copy_of(name, tmp_path)
    [*_, row] = (
        row for row in judged(name).to_pylist()
        if row["state"] == "COMMITTED" and row["half_copies"]
    )
    flip_byte(log_files(root)[0], row["half_copies"][0]["commit_log_offset"] + AT["queue_id"], number)
    for reading in (pending([open_store(root)], settings_of(name)), audit([open_store(root)], settings_of(name))):
        reading.table()
        assert code in errors(reading)


def test_the_last_op_slot_cannot_be(tmp_path: Path) -> None:
    """A record length of 0 in the last slot: the queue seemed to end before it, and its op ended nothing."""
    name = "cursorback-4.3.0"
    root = copy_of(name, tmp_path)
    [file, *_] = sorted((root / "consumequeue" / OP_TOPIC / "0").iterdir())
    data = file.read_bytes()
    begin = (_used(data) - 1) // 20 * 20 + 8
    file.write_bytes(data[:begin] + bytes(4) + data[begin + 4 :])  # record_length_bytes
    require_a_scan_where_it_is_asked_for(root, name, None)
    truth = open_rows(judged(name))
    hanging = pending([open_store(root)], settings_of(name))
    assert hanging.table()["state"].to_pylist() == truth["state"].to_pylist()
    assert any("slots after" in note.text for note in hanging.notes)


@pytest.mark.parametrize("kind", ["half_copies", "discard_copies"])
def test_a_group_that_goes_on_into_the_next_property(tmp_path: Path, kind: str) -> None:
    """The end of the group of one copy, changed in one bit: it seemed to be of another transaction with the same id."""
    name = "fifteen-4.9.7"
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist() if row["discard_copies"])
    file = log_files(root)[0]
    at = file.read_bytes().index(b"PGROUP\x01", row[kind][-1]["commit_log_offset"])
    flip_byte(file, file.read_bytes().index(b"\x02", at), 1)
    for scan in (False, True):
        shown = show([open_store(root)], settings_of(name), row["transaction_id"], scan=Scan.asked(None, scan=scan))
        assert set(shown.table()["state"].to_pylist()) == {"UNDECIDABLE"}
        assert "half-unreadable" in errors(shown)


def require_a_scan_where_it_is_asked_for(root: Path, name: str, identity: str | None) -> None:
    """That the fast path gives what the scan gives."""
    hanging = pending([open_store(root)], settings_of(name)).table().to_pylist()
    assert hanging == open_rows(audit([open_store(root)], settings_of(name)).table()).to_pylist()
    if identity is not None:
        by_scan, shown = (
            show([open_store(root)], settings_of(name), identity, scan=Scan.asked(None, scan=scan))
            .table()["state"].to_pylist()
            for scan in (True, False)
        )
        assert shown == by_scan


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
@pytest.mark.parametrize("name", rest_is_slow(["killed-5.3.3", "killed-4.9.7", "killed-5.1.4", "killed-5.5.0"], 1))
def test_a_queue_that_lost_its_newest_slots_in_a_kill(name: str, topic: str, tmp_path: Path) -> None:
    """The next start enters them again; the index ends behind their records, and only the log has their places."""
    root = copy_of(name, tmp_path)
    file = queue_files(root, topic)[-1]
    data = file.read_bytes()
    end = len(data.rstrip(b"\0")) // 20 * 20
    file.write_bytes(data[: end - 60] + bytes(len(data) - end + 60))
    rows = audit([open_store(root)], settings_of(name)).table()
    assert pending([open_store(root)], settings_of(name)).table().to_pylist() == open_rows(rows).to_pylist()
    assert len(open_rows(rows)) == len(open_rows(judged(name)))


def test_log_that_is_cut_before_the_half_cursor(tmp_path: Path) -> None:
    """With no open copy, the log that the next start reads was not read: it cuts the half queue before the cursor of
    the check, which then begins again and asks about decided transactions.
    """
    name = "masked-4.4.0"
    root = copy_of(name, tmp_path)
    file = log_files(root)[0]
    position, _ = records_in(file)[20]
    flip_byte(file, position + AT["body_length_bytes"] + 6)
    open_ones = open_rows(audit([open_store(root)], settings_of(name)).table())
    hanging = pending([open_store(root)], settings_of(name))
    assert hanging.table().to_pylist() == open_ones.to_pylist()
    assert errors(hanging)
    assert open_ones.num_rows


def _double(file: Path) -> None:
    """The file of a queue, once more under the name of the next one."""
    shutil.copyfile(file, file.with_name(f"{int(file.name) + file.stat().st_size:020d}"))


def _double_without_room(file: Path) -> None:
    """The same behind a full file, so that no slot without a record is between them."""
    data = file.read_bytes()
    used = data[: len(data.rstrip(b"\0")) // SLOT_BYTES * SLOT_BYTES]
    file.write_bytes(used)
    file.with_name(f"{len(used):020d}").write_bytes(used)


@pytest.mark.parametrize("damage", [_double, _double_without_room])
@pytest.mark.parametrize("name", rest_is_slow(["cursoredited-5.1.4", "killed-5.5.0", "busystop-4.9.7"], 2))
def test_slots_that_lead_to_earlier_half_messages(name: str, damage: Callable[[Path], None], tmp_path: Path) -> None:
    """By these slots, records are lost and the check reads copies again: `show` read only the slots of its own copies,
    and had a state, no flag or no event, with status 0.
    """
    root = copy_of(name, tmp_path)
    damage(queue_files(root, HALF_TOPIC)[-1])
    columns = ["transaction_id", "state", "flags", "reason_code", "advice", "next_event", "reason"]
    rows = audit([open_store(root)], settings_of(name)).table().select(columns).to_pylist()
    doubts = [row["reason"] for row in rows if row["reason_code"] == "log_missing"]
    assert all("where the record has another queue offset" in doubt for doubt in doubts)
    doubtful = [row for row in rows if row["flags"] or row["state"] == "UNDECIDABLE"]
    for row in [*rows[:2], *doubtful[:2], *doubtful[-2:]]:
        shown = show([open_store(root)], settings_of(name), row["transaction_id"])
        assert shown.table().select(columns).to_pylist() == [row]
        assert errors(shown)


@pytest.mark.parametrize("field", ["queue_id", "queue_offset"])
@pytest.mark.parametrize("name", ["cursoredited-5.1.4", "killed-5.3.3"])
def test_a_discard_copy_with_another_number_than_its_slot(name: str, field: str, tmp_path: Path) -> None:
    """By its slot, a record of the discard topic is lost: `show` and `pending` read the copy by the index alone, and
    had DISCARDED with status 0.
    """
    root = copy_of(name, tmp_path)
    row = next(row for row in judged(name).to_pylist() if row["discard_copies"])
    place = row["discard_copies"][0]["commit_log_offset"]
    file = max(one for one in log_files(root) if int(one.name) <= place)
    flip_byte(file, place - int(file.name) + AT[field] + 3, 0x55)
    columns = ["transaction_id", "state", "flags", "reason_code", "advice", "next_event"]
    rows = audit([open_store(root)], settings_of(name)).table()
    shown = show([open_store(root)], settings_of(name), row["transaction_id"])
    found = shown.table().select(columns).to_pylist()
    assert found == [one for one in rows.select(columns).to_pylist() if one["transaction_id"] == row["transaction_id"]]
    assert errors(shown)
    assert pending([open_store(root)], settings_of(name)).table().to_pylist() == open_rows(rows).to_pylist()


@pytest.mark.parametrize(("kind", "place_in_record"), [
    ("final_records", AT["reconsume_times"]), ("final_records", AT["prepared_transaction_offset"]),
    ("final_records", AT["born_time_ms"] + 7),
])
def test_a_later_record_of_another_transaction_contradicts_its_property_crc(
    kind: str, place_in_record: int, tmp_path: Path
) -> None:
    """It may be the COMMIT record of each transaction before it: `show` read only the records under the id, and had
    ROLLED_BACK with status 0.
    """
    name = "propcrc-5.3.3"
    root = copy_of(name, tmp_path)
    last = max((row[kind][-1]["commit_log_offset"], row["transaction_id"])
               for row in judged(name).to_pylist() if row[kind] and row["half_copies"])
    flip_byte(log_files(root)[0], last[0] + place_in_record, 0x80)
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    doubtful = [row for row in rows if row["state"] == "UNDECIDABLE" and row["transaction_id"] != last[1]]
    assert doubtful
    for row in doubtful:
        shown = show([open_store(root)], settings_of(name), row["transaction_id"])
        assert shown.table()["state"].to_pylist() == ["UNDECIDABLE"]
        assert errors(shown)


@pytest.mark.parametrize("name", ["busystop-4.9.7", "common-5.3.3", "killed-4.3.0"])
def test_a_killed_broker_that_lost_its_whole_half_queue(name: str, tmp_path: Path) -> None:
    """Histories 1353311: the next start writes the slots again, and `pending` listed nothing, with status 0."""
    root = copy_of(name, tmp_path)
    (root / "abort").touch()
    for file in queue_files(root, HALF_TOPIC):
        file.write_bytes(bytes(file.stat().st_size))
    CURSOR_DAMAGES["half cursor set"](root, 0.0)
    rows = open_rows(audit([open_store(root)], settings_of(name)).table()).to_pylist()
    assert len(rows) > 4
    assert pending([open_store(root)], settings_of(name)).table().to_pylist() == rows

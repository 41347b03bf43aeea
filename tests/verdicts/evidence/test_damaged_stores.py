"""Stores damaged by name: what is found, what it means, and that nothing is invented or lost beside it."""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.errors import NotAStore, UnreadableFile
from rmqtx.readers.model.findings import KINDS, Finding
from rmqtx.readers.model.reading import Coverage, Reading
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import Scan, pending, show
from tests.forge import damage
from tests.forge.comparing import cited, parts_of, recorded
from tests.forge.damage import log_files, queue_files, records_in
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import rest_is_slow

Row = dict[str, Any]
STORE = "killed-5.1.4"
"""Nine files of 16 KiB: a file, its gap and its neighbours are small."""
CLEAN = "common-4.9.7"
"""Stopped cleanly: nothing in it is undecidable."""


@functools.cache
def undamaged(name: str) -> tuple[pa.Table, list[int]]:
    """The verdicts on an undamaged store, and where its records are."""
    records = scan_records(opened(name)).table()["commit_log_offset"].to_pylist()
    return audit([opened(name)], settings_of(name)).table(), records


class Damaged:
    """A copy of a store after a damage, and the undamaged store's verdicts."""

    def __init__(self, name: str, root: Path, wound: Callable[[Path], object]) -> None:
        table, self.whole = undamaged(name)
        self.before = by_id(table.to_pylist())
        wound(root)
        self.name, self.root = name, root
        self.store = open_store(root)
        reading = audit([self.store], settings_of(name))
        self.after = by_id(reading.table().to_pylist())
        self.findings, self.coverage = reading.findings, reading.coverage
        self.records = [row["commit_log_offset"] for row in scan_records(self.store).table().to_pylist()]

    def codes(self) -> set[str]:
        """The codes of what was found."""
        return {finding.code for finding in self.findings}

    def one(self, code: str) -> Finding:
        """The one finding of a code."""
        (finding,) = [finding for finding in self.findings if finding.code == code]
        return finding

    def require_soundness(self) -> None:
        """No state is another than before, but UNDECIDABLE with its reason; only what cites lost bytes is gone."""
        lost = set(self.whole) - set(self.records)
        for identity, row in self.before.items():
            now = self.after.get(identity)
            if now is None:
                marks = {mark["commit_log_offset"] for mark in row["op_marks"]}  # numbers alone give no name
                assert cited(row) - marks <= lost, f"{identity} is gone"
            elif now["state"] == "UNDECIDABLE":
                assert re.search(r"\d|cursor|begins later", now["reason"]), now["reason"]
            else:
                assert now["state"] == row["state"], f"{identity}: {row['state']} -> {now['state']}: {now['reason']}"
                assert now["deliveries_count"] in (None, row["deliveries_count"]), f"{identity}: {now['reason']}"
        for identity in self.after.keys() - self.before.keys():
            assert self.after[identity]["state"] == "UNDECIDABLE", self.after[identity]
        for finding in self.findings:
            assert finding.code in KINDS
            assert finding.line()

    def require_accounting(self) -> None:
        """Every byte is decoded, filler or damaged."""
        sizes = {segment.file: segment.size_bytes for segment in self.store.commit_log}
        assert {part.file: part.size_bytes for part in self.coverage} == sizes
        assert [part.unread_bytes for part in self.coverage] == [0] * len(sizes)


def by_id(rows: list[Row]) -> dict[str, Row]:
    assert len({row["transaction_id"] for row in rows}) == len(rows)
    return {row["transaction_id"]: row for row in rows}


def states(rows: dict[str, Row]) -> dict[str, str]:
    return {identity: row["state"] for identity, row in rows.items()}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_of(STORE, tmp_path)


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return copy_of(CLEAN, tmp_path)


# ---- the commit log


@pytest.mark.parametrize("number", rest_is_slow([0, 7, 3], quick=1))
@pytest.mark.parametrize("page", [0, 1, 3])
def test_a_page_of_zeros(copy: Path, number: int, page: int) -> None:
    file = log_files(copy)[number]
    begin, end = page * damage.PAGE_BYTES, (page + 1) * damage.PAGE_BYTES
    touched = {int(file.name) + place for place, length in records_in(file) if place < end and place + length > begin}
    found = Damaged(STORE, copy, lambda root: damage.zero_bytes(log_files(root)[number], begin, end - begin))
    found.require_soundness()
    found.require_accounting()
    gone = set(found.whole) - set(found.records)
    torn = {finding.commit_log_offset for finding in found.findings if finding.code == "record-properties"}
    assert gone | torn == touched  # the first record may lack only the end of its properties
    assert torn <= {min(touched)}
    pieces = [finding for finding in found.findings if finding.code == "record-damaged"]
    assert {finding.file for finding in pieces} == {str(file)}
    places = [(finding.position_bytes or 0, finding.length_bytes or 0) for finding in pieces]
    assert [place + length for place, length in places[:-1]] == [place for place, _ in places[1:]]
    assert places[0][0] == min(offset - int(file.name) for offset in gone)


@pytest.mark.parametrize("number", [1, 4, 7])
def test_a_file_in_the_middle_is_gone(copy: Path, number: int) -> None:
    gone = log_files(copy)[number]
    found = Damaged(STORE, copy, lambda _: damage.drop(gone))
    found.require_soundness()
    found.require_accounting()
    finding = found.one("segment-gap")
    assert finding.commit_log_offset == int(gone.name)
    assert finding.length_bytes == 16384
    assert str(int(gone.name)) in str(finding.expected)
    assert any(str(int(gone.name)) in row["reason"] for row in found.after.values())
    assert set(found.whole) - set(found.records) == {
        offset for offset in found.whole if int(gone.name) <= offset < int(gone.name) + 16384
    }


def test_the_first_files_are_gone(copy: Path) -> None:
    """As retention removes them: the log begins later, and what it no longer can say is undecidable."""
    found = Damaged(STORE, copy, lambda root: [damage.drop(file) for file in log_files(root)[:4]])
    found.require_soundness()
    found.require_accounting()
    assert found.store.log_begin_offset == 4 * 16384
    assert "segment-gap" not in found.codes()
    reasons = {row["reason"] for row in found.after.values() if row["state"] == "UNDECIDABLE"}
    assert all("begins later" in reason for reason in reasons)


def test_the_last_files_are_gone(copy: Path) -> None:
    found = Damaged(STORE, copy, lambda root: [damage.drop(file) for file in log_files(root)[6:]])
    found.require_soundness()
    found.require_accounting()
    finding = found.one("log-missing")
    assert finding.commit_log_offset == 6 * 16384
    assert "consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0 refers to" in str(finding.expected)


@pytest.mark.parametrize("left", [0, 1, 3, 4, 8, 35, 36, 80, 100])
def test_a_torn_tail(clean: Path, left: int) -> None:
    found = Damaged(CLEAN, clean, lambda root: damage.torn_tail(root, left))
    found.require_soundness()
    found.require_accounting()
    assert set(found.whole) - set(found.records) == {found.whole[-1]}
    assert "record-damaged" not in found.codes()
    assert ("tail-torn" in found.codes()) == (left >= 3)  # the first two bytes of a length are zeros anyway


@pytest.mark.parametrize("size", [0, 1, 100, 5000, 16383])
def test_a_file_is_shorter_than_its_name_allows(copy: Path, size: int) -> None:
    file = log_files(copy)[2]
    found = Damaged(STORE, copy, lambda _: damage.truncate(file, size))
    found.require_soundness()
    found.require_accounting()
    assert found.one("segment-size").file == str(file)
    gap = found.one("segment-gap")
    assert (gap.commit_log_offset, gap.length_bytes) == (int(file.name) + size, 16384 - size)


def test_a_file_is_longer_than_its_name_allows(copy: Path) -> None:
    file = log_files(copy)[2]
    found = Damaged(STORE, copy, lambda _: damage.lengthen(file, bytes(100) + b"\xda\xa3\x20\xa7" * 50))
    found.require_soundness()
    assert found.one("segment-overlap").file == str(file)
    assert found.one("segment-overlap").position_bytes == 16384
    assert found.whole == found.records
    assert without_roots(found.after, found.root) == without_roots(found.before, Path(opened(STORE).root))


def without_roots(rows: dict[str, Row], root: Path) -> dict[str, Row]:
    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace(str(root), "ROOT")
        if isinstance(value, list):
            return [plain(entry) for entry in value]
        return {name: plain(entry) for name, entry in value.items()} if isinstance(value, dict) else value

    return {identity: plain(recorded(row)) for identity, row in rows.items()}


def test_two_files_are_exchanged(copy: Path) -> None:
    one, other = log_files(copy)[1], log_files(copy)[5]
    found = Damaged(STORE, copy, lambda _: damage.swap(one, other))
    found.require_soundness()
    found.require_accounting()
    files = {finding.file for finding in found.findings if finding.code == "record-damaged"}
    assert files == {str(one), str(other)}


def test_a_name_that_begins_elsewhere(copy: Path) -> None:
    file = log_files(copy)[3]
    found = Damaged(STORE, copy, lambda _: file.rename(file.with_name(f"{3 * 16384 + 8:020d}")))
    found.require_soundness()
    found.require_accounting()
    assert {"segment-gap", "record-damaged"} <= found.codes()


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000000.bak", ".nfs0001", "0000000000000000000x"])
def test_a_stray_file(copy: Path, name: str) -> None:
    found = Damaged(STORE, copy, lambda root: damage.foreign_file(root / "commitlog", name))
    assert found.one("stray-file").file == str(copy / "commitlog" / name)
    assert without_roots(found.after, found.root) == without_roots(found.before, Path(opened(STORE).root))


def test_garbage_behind_the_end_of_the_log(clean: Path) -> None:
    file, position, length = damage.last_record(clean)
    found = Damaged(CLEAN, clean, lambda _: damage.write_bytes(file, position + length, b"\xff" * 1000))
    assert found.whole == found.records
    assert found.codes() & {"record-damaged", "tail-foreign"}
    found.require_accounting()
    found.require_soundness()


def test_a_file_that_cannot_be_read(copy: Path) -> None:
    file = log_files(copy)[4]
    file.unlink()
    file.symlink_to(copy)  # a directory where a file should be
    found = Damaged(STORE, copy, lambda _: None)
    found.require_soundness()
    assert found.codes() & {"stray-file", "unreadable-file", "segment-gap"}


# ---- beside the log


def test_no_cursors(clean: Path) -> None:
    found = Damaged(CLEAN, clean, lambda root: [damage.drop(f) for f in root.glob("config/consumerOffset.json*")])
    found.require_soundness()
    assert found.one("config-missing").file is not None
    for identity, row in found.before.items():
        now = found.after[identity]
        if now["state"] != row["state"]:
            assert row["state"] in ("PENDING", "DISCARDED", "LOST")
            assert "cursor is unknown" in now["reason"]
        assert now["state"] != "PENDING"


def test_cursors_from_the_backup(clean: Path) -> None:
    found = Damaged(CLEAN, clean, lambda root: damage.truncate(root / "config" / "consumerOffset.json", 0))
    assert "config-backup" in found.codes()
    assert {"UNDECIDABLE"} & set(states(found.after).values()) == set()


def test_no_half_queue(clean: Path) -> None:
    """4.9.7 makes the queue again behind fillers; its first round passes them and the eight slots after them (seen)."""
    found = Damaged(CLEAN, clean, lambda root: damage.drop(root / "consumequeue" / HALF_TOPIC))
    before, after = states(found.before), states(found.after)
    open_ones = {identity for identity, state in before.items() if state == "PENDING"}
    assert {identity for identity in before if after[identity] != before[identity]} == open_ones
    assert {after[identity] for identity in open_ones} == {"LOST", "DISCARDED"}
    assert found.one("queue-missing").file == str(clean / "consumequeue" / HALF_TOPIC / "0")
    reading = pending([found.store], settings_of(CLEAN))
    rows = reading.table().to_pylist()
    assert rows == [
        one for one in found.after.values() if one["state"] == "PENDING" or one["advice"] in ("close", "wait")
    ]
    assert any("the log is scanned" in note.text for note in reading.notes)


@pytest.mark.parametrize("part", ["index", f"consumequeue/{OP_TOPIC}", "consumequeue", "checkpoint"])
def test_a_derived_part_is_gone(clean: Path, part: str) -> None:
    found = Damaged(CLEAN, clean, lambda root: damage.drop(root / part))
    assert states(found.after) == states(found.before)
    rows = pending([found.store], settings_of(CLEAN)).table().to_pylist()
    assert rows == [
        one for one in found.after.values() if one["state"] == "PENDING" or one["advice"] in ("close", "wait")
    ]


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
@pytest.mark.parametrize("byte", rest_is_slow([2, 7, 11, 6, 9, 15]))
@pytest.mark.parametrize("slot", [0, 20, 40])
def test_a_flipped_slot_is_not_believed(clean: Path, topic: str, byte: int, slot: int) -> None:
    """Queues are derived: the log is intact, so is every verdict."""
    file = queue_files(clean, topic)[0]
    found = Damaged(CLEAN, clean, lambda _: damage.flip_byte(file, slot * 20 + byte, 0x15))
    assert without_roots(found.after, found.root) == without_roots(found.before, Path(opened(CLEAN).root))


def test_queues_of_another_log(clean: Path) -> None:
    half, op = queue_files(clean, HALF_TOPIC)[0], queue_files(clean, OP_TOPIC)[0]
    found = Damaged(CLEAN, clean, lambda _: damage.swap(half, op))
    assert states(found.after) == states(found.before)
    assert "slot-mismatch" in found.codes()
    reading = pending([found.store], settings_of(CLEAN))
    assert [row["transaction_id"] for row in reading.table().to_pylist()] == [
        row["transaction_id"] for row in found.after.values()
        if row["state"] == "PENDING" or row["advice"] in ("close", "wait")
    ]


@pytest.mark.slow
def test_a_flipped_index_is_no_reason_to_lose_a_transaction(clean: Path) -> None:
    """Its header, the slots and the entries: what the index no longer knows is found by a scan."""
    (file,) = sorted(clean.glob("index/*"))
    chance = random.Random(5)
    written = len(file.read_bytes().rstrip(b"\0"))
    wanted = pending([open_store(clean)], settings_of(CLEAN), scan=True).table().to_pylist()
    for position in [*range(0, 40, 3), *(chance.randrange(4040, written) for _ in range(60))]:
        mask = 1 << chance.randrange(8)
        damage.flip_byte(file, position, mask)
        assert pending([open_store(clean)], settings_of(CLEAN)).table().to_pylist() == wanted, (position, mask)
        damage.flip_byte(file, position, mask)


def what_is_recorded(reading: Reading) -> list[dict[str, Any]]:
    """The rows without what happens next: the check does read the slot."""
    return [recorded(row) for row in reading.table().to_pylist()]


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
@pytest.mark.parametrize("seed", rest_is_slow([6, 7, 8], quick=1))
def test_a_flipped_slot_is_no_reason_to_lose_a_transaction(clean: Path, topic: str, seed: int) -> None:
    (file,) = queue_files(clean, topic)
    chance = random.Random(seed)
    written = len(file.read_bytes().rstrip(b"\0"))
    wanted = what_is_recorded(pending([open_store(clean)], settings_of(CLEAN), scan=True))
    for position in [chance.randrange(written * 2 // 3, written) for _ in range(14)]:
        mask = 1 << chance.randrange(8)
        damage.flip_byte(file, position, mask)
        found = pending([open_store(clean)], settings_of(CLEAN))
        rows = what_is_recorded(found)
        if any(one.code == "start-skips" for one in found.findings):
            # A slot that leads behind the log: the next start cuts the queue there, and the half messages are LOST.
            assert rows == what_is_recorded(pending([open_store(clean)], settings_of(CLEAN), scan=True))
        else:
            assert rows == wanted, (position, mask)
        damage.flip_byte(file, position, mask)


# ---- no store at all


def test_what_is_no_store_says_why(tmp_path: Path, clean: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    damage.foreign_file(tmp_path / "other", "readme.md")
    for path, words in (
        (tmp_path / "nothing", "does not exist"),
        (tmp_path / "empty", "empty"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "other", "no commitlog/"),
        (clean / "commitlog", "give the store's root"),
        (tmp_path, "did you mean"),
    ):
        with pytest.raises(NotAStore, match=words):
            open_store(path)


def test_a_directory_of_directories_names_only_stores(tmp_path: Path, clean: Path) -> None:
    """A directory `dledger-a` without `data` contains no log; stores are also found one directory further down."""
    shutil.copytree(clean, tmp_path / "named" / "dledger-a" / "store")
    with pytest.raises(NotAStore, match=re.escape(f"did you mean {tmp_path}/named/dledger-a/store?")):
        open_store(tmp_path / "named")
    for part in ("consumequeue", f"consumequeue/{HALF_TOPIC}/0", "config"):
        with pytest.raises(NotAStore, match=f"a part of a store; give the store's root: {clean}$"):
            open_store(clean / part)
    for host in ("hostA", "hostB"):
        shutil.copytree(clean, tmp_path / "hosts" / host / "store")
    with pytest.raises(NotAStore, match="it contains 2 stores: hostA/store, hostB/store"):
        open_store(tmp_path / "hosts")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_root(clean: Path) -> None:
    clean.chmod(0)
    try:
        with pytest.raises(UnreadableFile):
            open_store(clean)
    finally:
        clean.chmod(0o755)


def test_a_store_without_a_log_is_read_and_has_nothing(clean: Path) -> None:
    shutil.rmtree(clean / "commitlog")
    store = open_store(clean)
    assert scan_records(store).table().num_rows == 0
    assert audit([store], settings_of(CLEAN)).table().num_rows == 0


def test_every_file_of_a_log_is_gone(tmp_path: Path) -> None:
    root = copy_of("multipath-5.1.4", tmp_path)
    for segment in open_store(root).commit_log:
        Path(segment.file).unlink()
    reading = audit([open_store(root)], settings_of("multipath-5.1.4"))
    assert reading.table().num_rows == 0
    assert "log-missing" in {finding.code for finding in reading.findings}


def test_show_of_a_damaged_transaction_names_the_bytes(copy: Path) -> None:
    file = log_files(copy)[3]
    position, _ = records_in(file)[5]
    found = Damaged(STORE, copy, lambda _: damage.flip_byte(file, position + 30))
    undecidable = [row for row in found.after.values() if row["state"] == "UNDECIDABLE"]
    for row in undecidable:
        (shown,) = show([found.store], settings_of(STORE), row["transaction_id"], scan=Scan()).table().to_pylist()
        assert str(int(file.name) + position) in shown["reason"]


def test_coverage_is_complete_for_any_size(tmp_path: Path) -> None:
    root = copy_of(CLEAN, tmp_path)
    file = log_files(root)[0]
    for size in (262_143, 200_001, 191_490, 191_489, 191_488, 100_000, 91, 90, 36, 8, 7, 1, 0):
        damage.truncate(file, size)
        reading = scan_records(open_store(root))
        list(reading)
        coverage: list[Coverage] = reading.coverage
        assert [part.unread_bytes for part in coverage] == [0] * len(coverage)
        assert sum(part.size_bytes for part in coverage) == size


def test_a_half_of_rocksdb_whose_properties_are_rubbish(tmp_path: Path) -> None:
    """It has neither an id nor a topic, and stands among the others all the same."""
    root = copy_of("rocksdb-5.4.0", tmp_path)
    (file,) = log_files(root)
    data = file.read_bytes()
    place, length = next(
        (place, length) for place, length in records_in(file)
        if ROCKSDB_HALF_TOPIC.encode() in data[place : place + length]
    )
    part = parts_of(data[place : place + length])["properties"]
    damage.write_bytes(file, place + part.start, b"\xfe" * len(part))
    rows = audit([open_store(root)], settings_of("rocksdb-5.4.0")).table().to_pylist()
    halves = {copy["commit_log_offset"] for row in rows for copy in row["half_copies"]}
    assert place in halves


def test_a_first_slot_of_the_op_queue_that_cannot_be(tmp_path: Path) -> None:
    """It did not expire: what its op ended is not pending."""
    name = "cursoredited-5.1.4"
    root = copy_of(name, tmp_path)
    (queue,) = queue_files(root, OP_TOPIC)
    damage.write_bytes(queue, 0, b"\xf7" * 8)
    found = states(by_id(pending([open_store(root)], settings_of(name)).table().to_pylist()))
    assert found == states(by_id(pending([opened(name)], settings_of(name)).table().to_pylist()))

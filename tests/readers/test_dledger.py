"""DLedger commit logs: records, transactions and entries as of any store, every byte accounted for, nothing written."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.dledger import ENTRY_HEADER, _crc_matches, scan_entries
from rmqtx.readers.log.record_at import block_of_one
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store import Store, open_store
from rmqtx.repairs.rebuild.rebuild import PARTS, rebuild
from rmqtx.repairs.records.store_sizes import store_sizes
from rmqtx.repairs.salvage.salvage import salvage
from tests.brokers import corpus
from tests.forge.records import Message
from tests.forge.stores import contents, copy_of, opened
from tests.verdicts.truth import require_judged_as_any_store

NAMES = corpus.corpus_names("dledger")
FRAME = ENTRY_HEADER.size_bytes
BLANK = b"\xff\xff\xff\xff"


@pytest.mark.parametrize("name", NAMES)
def test_transactions_are_judged_as_in_any_store(name: str) -> None:
    notes = require_judged_as_any_store(name)
    assert notes[0].startswith("read by cursors, queues and index")


@pytest.mark.parametrize("name", NAMES)
def test_entries_number_the_records(name: str) -> None:
    store = opened(name)
    reading = scan_entries(store)
    entries = reading.table()
    records = scan_records(store).table()
    assert reading.findings == []
    assert entries["commit_log_offset"].equals(records["commit_log_offset"])
    assert entries["body_length_bytes"].equals(records["length_bytes"])
    assert entries["topic"].equals(records["topic"])
    assert entries["entry_index"].to_pylist() == list(range(len(entries)))
    for coverage in reading.coverage:
        assert coverage.decoded_bytes + coverage.filler_bytes == coverage.size_bytes
        assert (coverage.damaged_bytes, coverage.unread_bytes) == (0, 0)
    assert sum(entries["length_bytes"].to_pylist()) == sum(one.decoded_bytes for one in reading.coverage)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split_bytes", [48, 1000, 7001])
def test_splits_give_each_record_once(name: str, split_bytes: int) -> None:
    (segment,) = opened(name).commit_log
    whole = SegmentScan(segment)
    wanted = [offset for block in whole for offset in block.commit_log_offsets.tolist()]
    end = wanted[-1] + 2000
    found: list[int] = []
    decoded = 0
    for begin in range(0, end, split_bytes):
        to = begin + split_bytes if begin + split_bytes < end else segment.size_bytes
        scan = SegmentScan(segment, from_position=begin, to_position=to)
        found += [offset for block in scan for offset in block.commit_log_offsets.tolist()]
        decoded += scan.decoded_bytes
    assert found == wanted
    assert decoded == whole.decoded_bytes


def framed(records: list[Message], file_bytes: int, directory: Path) -> Store:
    """A store of these records as DLedger lays them out: blanks end the files."""
    data = directory / "dledger-n0" / "data"
    data.mkdir(parents=True)
    files: list[bytearray] = [bytearray()]
    for index, message in enumerate(records):
        length = len(message.record(0)) + FRAME
        if len(files[-1]) + length + 8 > file_bytes:
            left = file_bytes - len(files[-1])
            files[-1] += (BLANK + left.to_bytes(4, "big")).ljust(left, b"\0")
            files.append(bytearray())
        place = (len(files) - 1) * file_bytes + len(files[-1])
        files[-1] += ENTRY_HEADER.pack(
            magic=1, length_bytes=length, entry_index=index, entry_offset=place, body_length_bytes=length - FRAME
        )
        files[-1] += message.record(place + FRAME)
    for number, content in enumerate(files):
        (data / f"{number * file_bytes:020d}").write_bytes(bytes(content.ljust(file_bytes, b"\0")))
    return open_store(directory)


def messages(count: int) -> list[Message]:
    return [Message(topic="orders", body=b"x" * (number * 37 % 400), queue_offset=number) for number in range(count)]


@pytest.mark.parametrize("file_bytes", [1024, 1500, 4096])
def test_blanks_end_files(file_bytes: int, tmp_path: Path) -> None:
    store = framed(messages(30), file_bytes, tmp_path)
    assert len(store.commit_log) > 2
    reading = scan_entries(store)
    assert reading.table()["entry_index"].to_pylist() == list(range(30))
    assert reading.findings == []
    assert {one.damaged_bytes + one.unread_bytes for one in reading.coverage} == {0}


@pytest.mark.parametrize("position", [0, 4, 8, 24, 44, 48, 52, 76, 1024, 1028, 1072, 1076])
def test_damage_is_accounted_for_and_costs_no_other_record(position: int, tmp_path: Path) -> None:
    store = framed(messages(30), 1024, tmp_path)
    before = scan_records(store).table()["commit_log_offset"].to_pylist()
    segment = store.commit_log[position // 1024]
    with Path(segment.file).open("r+b") as file:
        file.seek(position % 1024)
        file.write(b"\xa5" * 4)
    reading = scan_entries(store)
    after = reading.table()["commit_log_offset"].to_pylist()
    assert set(after) <= set(before)
    assert len(after) >= len(before) - 1
    assert reading.findings
    for one in reading.coverage:
        assert one.decoded_bytes + one.filler_bytes + one.damaged_bytes == one.size_bytes
    if len(after) == len(before):  # 76: the record's own offset
        assert {finding.code for finding in reading.findings} == {"record-header" if position == 76 else "entry-header"}
    else:
        assert sum(one.damaged_bytes for one in reading.coverage) > 0


def test_records_in_front_of_a_dledger_log_are_no_entries(tmp_path: Path) -> None:
    """A store that became one of DLedger keeps its old log in front."""
    old = tmp_path / "commitlog"
    old.mkdir()
    message = Message(topic="orders", body=b"old")
    head = message.record(0)
    blank = (4096 - len(head)).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    (old / f"{0:020d}").write_bytes((head + blank).ljust(4096, b"\0"))
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    record = message.record(4096 + FRAME)
    header = ENTRY_HEADER.pack(
        magic=1, length_bytes=FRAME + len(record), entry_offset=4096, body_length_bytes=len(record)
    )
    (data / f"{4096:020d}").write_bytes((header + record).ljust(4096, b"\0"))
    store = open_store(tmp_path)
    assert scan_records(store).table()["commit_log_offset"].to_pylist() == [0, 4096 + FRAME]
    reading = scan_entries(store)
    assert reading.table()["commit_log_offset"].to_pylist() == [4096 + FRAME]
    assert reading.findings == []


def test_a_store_without_dledger_says_so() -> None:
    reading = scan_entries(opened("common-5.1.4"))
    assert reading.table() == pa.Table.from_batches([], schema=reading.schema)
    assert "no DLedger log" in reading.notes[0].text


@pytest.mark.parametrize("name", NAMES[:1])
def test_nothing_is_made_of_it(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path / "copy")
    store = open_store(root)
    before = contents(root)
    with pytest.raises(BadRequest, match="DLedger"):
        rebuild(PARTS, store, tmp_path / "new", store_sizes(store))
    for path in (root, root / "dledger-n0" / "data", Path(store.commit_log[0].file)):
        with pytest.raises(BadRequest, match="DLedger"):
            salvage([path], tmp_path / "salvaged", store_sizes(store))
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "salvaged").exists()
    assert contents(root) == before


def test_the_crc_of_an_entry_is_that_of_its_record_and_0_is_none() -> None:
    """A broker writes 0 unless it computes them: then damage is neither shown nor excluded."""
    record = Message().record(48)
    block = block_of_one(record, 48, "file", 48)
    assert block is not None
    crc = zlib.crc32(record)
    kind = np.dtype([("body_crc", ">i8")])
    found = [list(_crc_matches(block, np.array([(stored,)], kind))) for stored in (crc, crc - (1 << 32), crc ^ 1, 0)]
    assert found == [[True], [True], [False], [None]]

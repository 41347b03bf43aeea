"""Index files against the records that brokers put into them, and against forged bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rmqtx.readers.index.index import ENTRY, HEADER, infer_slots_count
from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.model.java_hashes import column_key_hashes, java_hash, key_hashes
from rmqtx.readers.storage.open_file import LOCAL, OpenFile
from rmqtx.readers.store.store import Store, open_store
from tests.brokers import corpus
from tests.forge.stores import copy_of, opened
from tests.representatives import each_store, few_quick

Wanted = list[tuple[bytes, int]]


def keys_of(store: Store) -> Wanted:
    """What brokers index: the id and each business key of every record."""
    wanted = []
    for row in scan_records(store).table().to_pylist():
        if row["transaction_type"] != "rollback":
            words = [row["transaction_id"], *(row["keys"] or "").split(" ")]
            wanted += [(f"{row['topic']}#{word}".encode(), row["commit_log_offset"]) for word in words if word]
    return wanted


def forged(entries: Wanted, slots_count: int, room: int, times_s: int = 0) -> bytearray:
    """An index file as IndexFile.java putKey builds it."""
    hashes = key_hashes([key for key, _ in entries]).tolist()
    heads = [0] * slots_count
    data = bytearray()
    for number, (value, (_, offset)) in enumerate(zip(hashes, entries, strict=True), 1):
        slot = value % slots_count
        data += ENTRY.pack(
            key_hash=value, commit_log_offset=offset, seconds_since_begin=times_s, previous_entry_number=heads[slot]
        )
        heads[slot] = number
    header = HEADER.pack(
        begin_time_ms=1_000_000, end_time_ms=2_000_000, begin_offset=entries[0][1], end_offset=entries[-1][1],
        used_slots_count=sum(map(bool, heads)), next_entry_number=len(entries) + 1,
    )
    table = b"".join(head.to_bytes(4, "big") for head in heads)
    rest = bytes(ENTRY.size_bytes * (room - len(entries) - 1))
    return bytearray(header + table + bytes(ENTRY.size_bytes) + data + rest)


def store_with(tmp_path: Path, *files: bytes | bytearray) -> Store:
    (tmp_path / "index").mkdir(exist_ok=True)
    (tmp_path / "commitlog").mkdir(exist_ok=True)
    for number, data in enumerate(files):
        (tmp_path / "index" / f"{20260101000000000 + number}").write_bytes(data)
    return open_store(tmp_path)


def entries(count: int, first: int = 0) -> Wanted:
    return [(b"orders#key-%d" % number, number * 100) for number in range(first, first + count)]


def found(store: Store, keys: list[bytes], lows: list[int] | None = None) -> list[tuple[int, int]]:
    numbers, offsets = open_index(store).find(keys, None if lows is None else np.array(lows, np.int64))
    return list(zip(numbers.tolist(), offsets.tolist(), strict=True))


# ---- real stores


@pytest.mark.parametrize("name", each_store(corpus.corpus_names()))
def test_every_key_of_a_real_store_is_found_and_nothing_else(name: str) -> None:
    store = opened(name)
    index = open_index(store)
    wanted = [(key, offset) for key, offset in keys_of(store) if offset <= (index.covered_until_offset or -1)]
    assert index.findings == []
    assert all(begin >= 0 for begin, _ in index.ranges)
    keys = sorted({key for key, _ in wanted})
    numbers, offsets = index.find(keys)
    places = {key: number for number, key in enumerate(keys)}
    assert list(zip(numbers.tolist(), offsets.tolist(), strict=True)) == sorted(
        {(places[key], offset) for key, offset in wanted}
    )
    assert wanted or not index.exists


@pytest.mark.parametrize("name", ["common-4.3.0", "common-4.9.7", "common-5.5.0"])
def test_the_chains_of_a_few_keys_lead_to_the_same_records_as_a_sweep(name: str) -> None:
    store = opened(name)
    wanted = keys_of(store)
    for key in sorted({key for key, _ in wanted})[:40]:
        assert [offset for _, offset in found(store, [key])] == sorted({o for k, o in wanted if k == key})


@pytest.mark.parametrize("name", few_quick(corpus.corpus_names()))
def test_every_byte_of_a_real_index_is_explained(name: str) -> None:
    store = opened(name)
    reading = scan_entries(store)
    rows = reading.table()
    assert reading.findings == []
    assert sum(c.damaged_bytes + c.unread_bytes for c in reading.coverage) == 0
    until = open_index(store).covered_until_offset or -1  # a killed broker may not have added the last records
    known = {(int(key_hashes([key])[0]), offset) for key, offset in keys_of(store) if offset <= until}
    entered = set(zip(rows["key_hash"].to_pylist(), rows["commit_log_offset"].to_pylist(), strict=True))
    assert entered >= known if reading.coverage else not entered
    log = {row["commit_log_offset"]: row["store_time_ms"] for row in scan_records(store).table().to_pylist()}
    for row in rows.to_pylist():
        assert abs(log[row["commit_log_offset"]] - row["store_time_ms"]) < 1000


# ---- hashes


def test_hashes_are_those_of_java() -> None:
    # values from java.lang.String.hashCode
    assert java_hash("d") == 100
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("hello") == 99162322
    assert java_hash("\N{GRINNING FACE}") == java_hash("\N{GRINNING FACE}".encode()) == 1772899


def test_hashes_of_many_keys_are_those_of_each(tmp_path: Path) -> None:
    chance = random.Random(3)
    alphabet = "abcXYZ0189#%|-_é中\N{GRINNING FACE}"
    for letters in (alphabet[:14], alphabet):
        keys = ["".join(chance.choices(letters, k=chance.randrange(40))) for _ in range(300)]
        expected = [abs(java_hash(key)) % 2**31 for key in [*keys, "polygenelubricants"]]
        assert key_hashes([key.encode() for key in [*keys, "polygenelubricants"]]).tolist() == expected
        column = pa.array([*keys, "polygenelubricants"], pa.string())
        assert column_key_hashes(column).tolist() == expected
        assert column_key_hashes(column.slice(1)).tolist() == expected[1:]
    assert key_hashes([]).tolist() == column_key_hashes(pa.array([], pa.string())).tolist() == []


# ---- forged files


@pytest.mark.parametrize(
    ("slots_count", "room", "count"), [(1000, 4000, 300), (7, 50, 40), (333, 500, 499), (1, 10, 3), (64, 999, 1)]
)
def test_the_length_of_the_slot_table_follows_from_the_data(
    tmp_path: Path, slots_count: int, room: int, count: int
) -> None:
    store = store_with(tmp_path, forged(entries(count, first=3), slots_count, room))
    assert infer_slots_count(store.index_files[0]) == slots_count
    assert found(store, [b"orders#key-3"]) == [(0, 300)]


def test_a_single_record_at_the_logs_begin_is_enough(tmp_path: Path) -> None:
    store = store_with(tmp_path, forged([(b"a#1", 0), (b"a#2", 0)], 11, 13))
    assert infer_slots_count(store.index_files[0]) == 11


def test_an_empty_index_covers_nothing(tmp_path: Path) -> None:
    empty = bytes(40 + 4 * 10 + 20 * 40)
    index = open_index(store_with(tmp_path, empty))
    assert not index.exists
    assert (index.findings, list(index.ranges), index.covered_until_offset) == ([], [], None)
    assert index.uncovered(5, 10) == [(5, 10)]
    assert len(index.find([b"a#1"])[0]) == 0


def test_keys_with_the_same_hash_are_candidates_of_each_other(tmp_path: Path) -> None:
    store = store_with(tmp_path, forged([(b"t#Aa", 100), (b"t#BB", 200)], 10, 40))
    assert found(store, [b"t#BB", b"t#Aa", b"t#Aa"]) == [(n, o) for n in range(3) for o in (100, 200)]


def test_nothing_before_the_wanted_offset_is_given(tmp_path: Path) -> None:
    store = store_with(tmp_path, forged([(b"t#a", n * 10) for n in range(20)], 10, 40))
    assert found(store, [b"t#a", b"t#a", b"t#b"], [185, 300, 0]) == [(0, 190)]


@pytest.mark.parametrize("near_bytes", [0, 16 << 10])
def test_a_long_chain_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near_bytes: int
) -> None:
    monkeypatch.setattr(OpenFile, "limits", replace(LOCAL, near_bytes=near_bytes))
    many = [(b"t#hot", n * 10) for n in range(3000)] + [(b"t#cold", 40_000)]
    store = store_with(tmp_path, forged(many, 100, 4000))
    assert len(found(store, [b"t#hot"])) == 3000
    assert len(found(store, [b"t#hot"], [29_900])) == 10
    assert found(store, [b"t#cold"]) == [(0, 40_000)]


def test_holes_between_files_are_not_covered(tmp_path: Path) -> None:
    files = [forged(entries(20, first), 10, 40) for first in (5, 24, 100)]
    index = open_index(store_with(tmp_path, *files))
    assert index.ranges == [(500, 4300), (10_000, 11_900)]
    assert (min(index.ranges)[0], index.covered_until_offset) == (500, 11_900)
    assert index.uncovered(0, 20_000) == [(0, 500), (4300, 10_000), (11_900, 20_000)]
    assert index.uncovered(600, 700) == []
    assert index.uncovered(4000, 9000) == [(4300, 9000)]
    keys = [b"orders#key-24", b"orders#key-110", b"orders#key-60"]
    numbers, offsets = index.find(keys)
    assert list(zip(numbers.tolist(), offsets.tolist(), strict=True)) == [(0, 2400), (1, 11_000)]


@pytest.mark.parametrize("link", [-5, 30, 31, 2**31 - 1])
def test_a_chain_that_runs_in_circles_or_out_of_the_file_ends_and_is_told(tmp_path: Path, link: int) -> None:
    same = [(b"t#a", n * 10) for n in range(40)]
    data = forged([*same, *entries(400, 10)], 1000, 2000)
    place = 40 + 4000 + 20 * 30 + ENTRY.offsets["previous_entry_number"]
    data[place : place + 4] = link.to_bytes(4, "big", signed=True)
    index = open_index(store_with(tmp_path, data))
    offsets = index.find([b"t#a"])[1].tolist()
    assert offsets == [n * 10 for n in range(40) if n != 29]
    assert [finding.code for finding in index.findings] == ["index-damaged"]
    assert index.uncovered(0, 100) == [(0, 100)]


def test_a_slot_that_names_no_entry_does_not_hide_a_key(tmp_path: Path) -> None:
    data = forged(entries(400), 1000, 2000)
    place = 40 + 4 * (int(key_hashes([b"orders#key-200"])[0]) % 1000)
    data[place : place + 4] = (999).to_bytes(4, "big")
    store = store_with(tmp_path, data)
    index = open_index(store)
    assert index.find([b"orders#key-200"])[1].tolist() == [20_000]
    assert [finding.code for finding in index.findings] == ["index-damaged"]
    reading = scan_entries(store)
    assert reading.table().num_rows == 400
    assert [(f.position_bytes, f.length_bytes) for f in reading.findings] == [(place, 4)]
    assert reading.coverage[0].damaged_bytes == 4


@pytest.mark.parametrize("is_remote", [False, True])
@pytest.mark.parametrize("keys_count", [1, 60, 400])
def test_a_slot_with_an_entry_of_another_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_count: int, is_remote: bool
) -> None:
    wanted = entries(400)
    data = forged(wanted, 1000, 2000)
    slots = [int(key_hashes([key])[0]) % 1000 for key, _ in wanted]
    place = 40 + 4 * slots[0]
    other = next(number for number, slot in enumerate(slots, 1) if slot != slots[0])
    data[place : place + 4] = other.to_bytes(4, "big")
    monkeypatch.setattr(OpenFile, "is_remote", is_remote)  # then all entries are read, in order
    index = open_index(store_with(tmp_path, data), 1000)
    numbers, offsets = index.find([key for key, _ in wanted[:keys_count]])
    assert list(zip(numbers.tolist(), offsets.tolist(), strict=True)) == [
        (number, offset) for number, (_, offset) in enumerate(wanted[:keys_count])
    ]
    assert [finding.code for finding in index.findings] == ["index-damaged"]
    assert index.ranges == []


def test_an_entry_that_is_being_added_is_passed_over(tmp_path: Path) -> None:
    chain = [(b"t#a", 0), *entries(100, 1), (b"t#a", 20_000)]
    data = forged(chain, 1000, 2000)
    data[36:40] = (102).to_bytes(4, "big")  # the header still counts 101 entries, the last record of which is at 10,000
    data[24:32] = (10_000).to_bytes(8, "big")
    index = open_index(store_with(tmp_path, data))
    assert index.find([b"t#a"])[1].tolist() == [0]
    assert (index.findings, index.covered_until_offset) == ([], 10_000)


def test_a_cut_file_covers_nothing_but_gives_what_it_has(tmp_path: Path) -> None:
    data = forged(entries(400), 1000, 2000)[: 40 + 4000 + 20 * 300]
    store = store_with(tmp_path, data)
    index = open_index(store, 1000)
    assert index.find([b"orders#key-100", b"orders#key-350"])[1].tolist() == [10_000]
    assert (index.ranges, [finding.code for finding in index.findings]) == ([], ["index-damaged"])
    reading = scan_entries(store, 1000)
    assert reading.table().num_rows == 299
    assert reading.coverage[0].unread_bytes == 0


@pytest.mark.parametrize("seed", range(40))
def test_damage_of_any_kind_is_counted_and_never_raises(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = copy_of("common-5.5.0", tmp_path)
    (file,) = (root / "index").iterdir()
    data = bytearray(file.read_bytes())
    for _ in range(chance.randrange(1, 200)):
        data[chance.choice([chance.randrange(40), chance.randrange(len(data))])] = chance.randrange(256)
    file.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data)), chance.randrange(60)])])
    store = open_store(root)
    reading = scan_entries(store)
    count = reading.table().num_rows
    for coverage in reading.coverage:
        assert coverage.unread_bytes == 0
        assert min(coverage.decoded_bytes, coverage.filler_bytes, coverage.damaged_bytes) >= 0
        assert coverage.decoded_bytes >= count * 20
    index = open_index(store)
    index.find([b"orders#a"])
    index.find([b"orders#%d" % number for number in range(500)])

"""Provenance: digests show what a result was made from, and change when the bytes do and for no other reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.provenance import (
    EDGE_BYTES,
    EngineFacts,
    Provenance,
    as_json,
    file_provenance,
    provenance,
    segment_digest,
    store_provenance,
    with_provenance,
)
from tests.custody_read import custody_of
from tests.forge.stores import copy_of, opened

SIZE = 4 * EDGE_BYTES


def segment(path: Path, size: int = SIZE) -> Segment:
    path.write_bytes(bytes(range(1, 256)) * (size // 255) + b"x" * (size % 255))
    return Segment(str(path), 0, size)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("position", [0, 1, EDGE_BYTES - 1, SIZE - EDGE_BYTES, SIZE - 1])
def test_one_byte_of_head_or_tail_changes_the_digest(tmp_path: Path, position: int) -> None:
    one = segment(tmp_path / "00000000000000000000")
    before = segment_digest(one), segment_digest(one, hash_all=True)
    flip(tmp_path / one.file, position)
    assert segment_digest(one) != before[0]
    assert segment_digest(one, hash_all=True) != before[1]


def test_only_hash_sees_a_byte_in_the_middle(tmp_path: Path) -> None:
    one = segment(tmp_path / "00000000000000000000")
    before = segment_digest(one), segment_digest(one, hash_all=True)
    flip(tmp_path / one.file, SIZE // 2)
    assert segment_digest(one) == before[0]
    assert segment_digest(one, hash_all=True) != before[1]


def test_the_digest_of_all_bytes_is_what_sha256sum_prints(tmp_path: Path) -> None:
    one = segment(tmp_path / "00000000000000000000", 3 * EDGE_BYTES + 17)
    wanted = hashlib.sha256(Path(one.file).read_bytes()).hexdigest()
    assert segment_digest(one, hash_all=True) == f"sha256:{wanted}"


def test_another_length_is_another_digest(tmp_path: Path) -> None:
    one = segment(tmp_path / "00000000000000000000")
    assert segment_digest(one) != segment_digest(Segment(one.file, 0, SIZE - 1))


def test_a_log_that_grows_into_preallocated_space_has_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"a" * 100_000 + bytes(SIZE - 100_000))
    one = Segment(str(path), 0, SIZE)
    before = segment_digest(one)
    path.write_bytes(b"a" * 200_000 + bytes(SIZE - 200_000))
    assert segment_digest(one) != before


def test_a_small_segment_is_head_and_tail_at_once(tmp_path: Path) -> None:
    one = segment(tmp_path / "00000000000000000000", 300)
    before = segment_digest(one)
    flip(tmp_path / one.file, 150)
    assert segment_digest(one) != before


def test_a_store_is_known_by_log_and_cursors_wherever_its_copy_lies(tmp_path: Path) -> None:
    first = store_provenance(opened("common-5.3.3"))
    copy = copy_of("common-5.3.3", tmp_path)
    second = store_provenance(open_store(copy))
    assert first["digest"] == second["digest"]
    assert first["store"] != second["store"]
    sizes = [segment.size_bytes for segment in opened("common-5.3.3").commit_log]
    assert [file["size_bytes"] for file in first["segments"]] == sizes
    cursors = copy / "config" / "consumerOffset.json"
    cursors.write_text(cursors.read_text() + " ")
    third = store_provenance(open_store(copy))
    assert third["digest"] != second["digest"]
    assert third["segments"] == second["segments"]


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    copy = copy_of("common-5.3.3", tmp_path)
    store = open_store(copy)
    (copy / "commitlog" / "00000000000000000000").unlink()
    (facts,) = store_provenance(store)["segments"]
    assert facts["digest"] is None
    assert "cannot open" in str(facts["unreadable"])


def facts_at(time_ms: int) -> Provenance:
    stores = [store_provenance(opened("common-5.3.3"))]
    engine = EngineFacts("local", 1, 2)
    return provenance(stores, command="audit", options={"where": "x"}, engine=engine, made_time_ms=time_ms)


def without_times(value: object) -> object:
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if not name.endswith("time_ms")}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def test_apart_from_times_two_runs_say_the_same() -> None:
    first, second = facts_at(1), facts_at(2)
    assert first != second
    assert as_json(without_times(first)) == as_json(without_times(second))  # type: ignore[arg-type]


def test_a_schema_carries_it_and_keeps_what_it_had() -> None:
    facts = facts_at(1)
    schema = with_provenance(TRANSACTIONS.with_metadata({b"other": b"1"}), facts)
    assert custody_of(schema) == facts
    assert (schema.metadata or {})[b"other"] == b"1"
    assert custody_of(TRANSACTIONS) is None


def test_other_inputs_have_a_digest_too(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.csv"
    ledger.write_text("a,b\n")
    facts = file_provenance(ledger)
    wanted = hashlib.sha256(ledger.read_bytes()).hexdigest()
    assert (facts["size_bytes"], facts["digest"]) == (4, f"sha256:{wanted}")
    assert file_provenance(tmp_path / "none")["unreadable"] == "No such file or directory"

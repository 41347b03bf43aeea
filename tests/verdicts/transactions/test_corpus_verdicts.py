"""Every store that a real broker wrote: each verdict and each proof is what the clients and the broker saw."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import OP_TOPIC
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from tests.brokers import corpus
from tests.forge.stores import contents, copy_of, opened, settings_of, unpacked
from tests.representatives import each_store, few_quick, in_two_ways
from tests.verdicts.truth import Row, audited, require_truth


@dataclass(frozen=True, slots=True)
class Readings:
    """All ways to read a store, each taken once."""

    plain: Reading
    with_bodies: Reading
    bodies: list[Row]
    halves: Reading
    ops: Reading
    pending: Reading
    pending_rows: list[Row]
    scanned_rows: list[Row]


@functools.cache
def readings(name: str) -> Readings:
    """The readings of a store, for all tests of this file."""
    store, settings = opened(name), settings_of(name)
    plain, halves, ops = scan_records(store), scan_halves(store), scan_ops(store)
    for reading in (plain, halves, ops, scan_records(store, with_body=True, decompress=True)):
        list(reading)
    with_bodies = scan_records(store, with_body=True, check_crc=True)
    bodies = with_bodies.table().to_pylist()
    open_ones = pending([store], settings)
    open_rows = open_ones.table().to_pylist()
    scanned_rows = pending([store], settings, scan=True).table().to_pylist()
    list(show([store], settings, audited(name)[0]["transaction_id"]))
    return Readings(plain, with_bodies, bodies, halves, ops, open_ones, open_rows, scanned_rows)


@pytest.fixture(params=each_store(corpus.corpus_names()))
def name(request: pytest.FixtureRequest) -> str:
    """Each store in turn."""
    return str(request.param)


@pytest.fixture(params=few_quick(corpus.corpus_names()))
def read_name(request: pytest.FixtureRequest) -> str:
    """A store in turn, for what reads every record."""
    return str(request.param)


@pytest.fixture(params=in_two_ways(corpus.corpus_names()))
def some_name(request: pytest.FixtureRequest) -> str:
    """A store in turn, for what compares our own answers."""
    return str(request.param)


def test_every_transaction_has_the_state_and_the_proof_that_was_seen(name: str) -> None:
    rows = audited(name)
    if name == "lmq-4.9.3":  # 4.9.3 forgets its cursors: after its next start it reads again what had been passed
        settings = replace(settings_of(name)(opened(name)), version_low=(4, 9, 4), version_high=(4, 9, 4))
        rows = audit([opened(name)], lambda _: settings).table().to_pylist()
    require_truth(name, rows)


def test_every_row_is_complete(name: str) -> None:
    for row in audited(name):
        assert row["transaction_id"]
        assert row["state"]
        assert row["reason"]
        proof = row["half_copies"] or row["final_records"] or row["discard_copies"]
        assert proof or "delayed_half" in row["flags"]  # one that waits in a delay topic has no half copy
        assert (row["decided_time_ms"] is None) == (row["state"] in ("PENDING", "LOST", "UNDECIDABLE")) or set(
            row["flags"]
        ) & {"without_copy"}
        if "delayed_half" not in row["flags"]:  # there the first half message was diverted from the half topic
            assert row["half_store_time_ms"] == row["half_copies"][0]["store_time_ms"]


def test_pending_is_the_open_part_of_audit(some_name: str) -> None:
    name = some_name
    wanted = [row for row in audited(name) if row["state"] == "PENDING" or row["advice"] in ("close", "wait")]
    assert readings(name).pending_rows == wanted
    # Only halves without UNIQ_KEY, whose id is the place of their first copy, are not in the index.
    firsts = [(row["transaction_id"], row["half_copies"][0]["commit_log_offset"]) for row in wanted]
    lone = [identity for identity, offset in firsts if identity.endswith(f"{offset:016X}")]
    # Without an op queue only the log shows that there are no op messages.
    is_scanned = lone or (wanted and not opened(name).has("consumequeue", OP_TOPIC))
    note = readings(name).pending.notes[0]
    assert note.text.startswith("the log is scanned" if is_scanned else "read by cursors, queues and index")
    assert readings(name).scanned_rows == wanted


def test_show_finds_a_transaction_by_its_id_and_by_its_records(some_name: str) -> None:
    name = some_name
    rows = audited(name)
    for row in rows[:: max(1, len(rows) // 2)]:
        assert row in show([opened(name)], settings_of(name), row["transaction_id"]).table().to_pylist()
        for key in (row["keys"] or "").split(" ")[:1]:
            if key:
                assert row in show([opened(name)], settings_of(name), key).table().to_pylist()


def test_decode_accounts_for_every_byte(read_name: str) -> None:
    store, found = opened(read_name), readings(read_name)
    for reading in (found.plain, found.with_bodies, found.halves, found.ops):
        assert [finding.line() for finding in reading.findings] == []
        assert sum(coverage.size_bytes for coverage in reading.coverage) == sum(s.size_bytes for s in store.commit_log)
        for coverage in reading.coverage:
            assert coverage.decoded_bytes + coverage.filler_bytes == coverage.size_bytes
            assert (coverage.damaged_bytes, coverage.unread_bytes) == (0, 0)


def test_records_are_where_their_rows_say(read_name: str) -> None:
    log, rows = opened(read_name).log(), readings(read_name).bodies
    assert len({row["commit_log_offset"] for row in rows}) == len(rows)
    for row in rows:
        data = log.read(row["commit_log_offset"], row["length_bytes"])
        assert int.from_bytes(data[:4], "big") == row["length_bytes"]
        assert int.from_bytes(data[28:36], "big") == row["commit_log_offset"]
        assert row["topic"].encode() in data
        assert row["body"] in data
        assert row["body_crc_matches"]
    log.close()


def test_reading_changes_nothing(read_name: str, tmp_path: Path) -> None:
    assert audited(read_name)
    assert readings(read_name).bodies
    assert contents(unpacked(read_name)) == contents(copy_of(read_name, tmp_path))

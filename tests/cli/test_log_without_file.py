"""A log that lacks one of its files: what commands advise, and what they repair."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, FINDINGS, INCOMPLETE
from tests.cli.conftest import Run
from tests.forge.damage import log_files
from tests.forge.stores import copy_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders-5.3.3.tar.xz"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of the example: two log files, stopped cleanly."""
    with tarfile.open(EXAMPLE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "store"


def test_queues_are_not_rebuilt_from_a_log_without_its_end(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    """A rebuild would leave the cursors behind the end of the new queues, and the same finding."""
    log_files(store)[-1].unlink()
    verified = rmqtx("verify", store)
    assert verified.status == FINDINGS
    assert "start-cuts-queue" in verified.err
    assert "rmqtx rebuild" not in verified.err
    assert "find the missing files of the commit log" in verified.err
    rebuilt = rmqtx("rebuild", "queues", store, "--to", tmp_path / "new")
    assert rebuilt.status == INCOMPLETE
    assert "error: log-missing" in rebuilt.err
    assert "add the missing files, then rebuild again" in rebuilt.err
    assert "rmqtx salvage" not in rebuilt.err


def test_a_diagnosis_counts_what_cannot_be_decided(rmqtx: Run, store: Path) -> None:
    """The records of the first file ended some transactions, perhaps."""
    log_files(store)[0].unlink()
    result = rmqtx("diagnose", store)
    assert result.status == INCOMPLETE
    assert "2 are UNDECIDABLE: evidence is missing or damaged" in result.err


def test_verify_names_what_it_does_not_compare(rmqtx: Run, store: Path) -> None:
    assert "no index to compare" not in rmqtx("verify", store).err
    for file in (store / "index").iterdir():
        file.unlink()
    (store / "index").rmdir()
    assert f"{store}: no index to compare" in rmqtx("verify", store).err


def test_a_result_in_a_format_that_is_not_read_names_those_that_are(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    rmqtx("audit", store, "-o", file)
    assert "rmqtx audit STORE -o FILE.parquet (or .arrow)" in rmqtx("diff", file, file).err


def test_a_salvage_that_lost_records_is_not_whole(rmqtx: Run, store: Path, tmp_path: Path) -> None:
    """The log ends too early: empty messages take the places of the lost ones, and only the old queues name these."""
    with log_files(store)[-1].open("r+b") as file:
        file.truncate(66_510)
    salvaged = rmqtx("salvage", store, "--to", tmp_path / "new")
    assert salvaged.status == INCOMPLETE
    assert "the records of 3 queue offsets" in salvaged.err
    assert f"next: rmqtx audit {store}" in salvaged.err
    assert "keep it" in salvaged.err


def test_simulate_heeds_a_log_file_of_zeros(rmqtx: Run, store: Path) -> None:
    """No record that the check reads is in it; but some releases end the log there at their start."""
    assert rmqtx("simulate", store).status == DONE
    file = log_files(store)[0]
    file.write_bytes(bytes(file.stat().st_size))
    for name in ("simulate", "pending", "audit", "stores"):
        answered = rmqtx(name, store)
        assert answered.status == INCOMPLETE, name
        assert "error: record-damaged" in answered.err


@pytest.mark.parametrize(
    ("name", "is_named"), [("rocksdb-queues-5.5.0", True), ("rocksdb-both-5.5.0", False), ("common-4.9.7", False)]
)
def test_a_salvage_of_queues_in_rocksdb_leaves_them_to_the_broker(
    name: str, is_named: bool, rmqtx: Run, tmp_path: Path
) -> None:
    result = rmqtx("salvage", copy_of(name, tmp_path / "broken"), "--to", tmp_path / "new")
    assert result.status == DONE
    assert ("storeType=defaultRocksDB writes its own from the log" in result.err) == is_named
    assert "the default, as no file" not in result.err

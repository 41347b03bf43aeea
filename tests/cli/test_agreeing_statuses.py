"""Status 0 is a promise: what one command knows about a store, no other one leaves out. Each case differed once."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import AT
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.forge.damage import (
    SLOT_BYTES,
    drop,
    flip_byte,
    lengthen,
    log_files,
    queue_files,
    records_in,
    truncate,
    write_bytes,
    zero_bytes,
)
from tests.forge.stores import copy_of
from tests.verdicts.missing.test_foreign_files import MIXED, mixed
from tests.verdicts.truth import judged

PENDING = ("pending", "--all-open", "--format", "jsonl", "--broker-version")


@pytest.mark.parametrize(
    ("name", "files", "status"), [("multipath-5.3.3", 3, 0), ("multipath-4.9.7", 3, 3), ("killed-5.3.3", 3, 3)]
)
def test_pending_with_and_without_scan_where_old_log_files_have_expired(
    rmqtx: Run, tmp_path: Path, name: str, files: int, status: int
) -> None:
    """What the check has passed is not pending, whatever has left the log: a scan counted it. An UNDECIDABLE row that
    the check reads again was listed by both ways, and only a scan ended with 3.
    """
    root = copy_of(name, tmp_path)
    for file in log_files(root)[:files]:
        drop(file)
    version = name.rpartition("-")[2]
    fast, scanned = (rmqtx(*PENDING, version, root, *more) for more in ((), ("--scan",)))
    assert (fast.status, scanned.status, fast.out) == (status, status, scanned.out)
    for one in (fast, scanned):
        assert ("error: undecidable" in one.err) == (status == 3)
    assert rmqtx("audit", root, "--broker-version", version).status == 3


@pytest.mark.parametrize("name", ["delayed-4.3.0", "delayed-4.4.0", "upgraded-4.2.0-4.3.0"])
def test_an_op_queue_that_no_check_reads(rmqtx: Run, tmp_path: Path, name: str) -> None:
    """Op queue 1 has op messages of decisions on ordinary messages; the check reads op queue 0, as the half queue is
    number 0. `audit` ended with 3 and `pending` with 0.
    """
    root = copy_of(name, tmp_path)
    version = name.rpartition("-")[2]
    before = rmqtx("audit", root, "--format", "jsonl", "--broker-version", version)
    (queue,) = queue_files(root, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "1")
    zero_bytes(queue, 0, SLOT_BYTES)
    after = rmqtx("audit", root, "--format", "jsonl", "--broker-version", version)
    assert (after.status, after.out) == (before.status, before.out)
    assert {rmqtx(*PENDING, version, root, *more).status for more in ((), ("--scan",))} == {before.status}
    assert rmqtx("verify", root, "--broker-version", version).status == 1


@pytest.mark.parametrize("name", ["rocksdb-5.5.0", "rocksdb-killed-5.5.0", "rocksdb-5.4.0"])
@pytest.mark.parametrize("topic", ["RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"])
def test_queues_that_the_check_of_a_table_does_not_read(rmqtx: Run, tmp_path: Path, name: str, topic: str) -> None:
    """5.4.0 and 5.5.0 asked about the same transactions without them. `pending` and `audit` ended with 3, `simulate`
    with 0: "their transactions are never checked again".
    """
    root = copy_of(name, tmp_path)
    version = name.rpartition("-")[2]
    commands = (("audit", "--format", "jsonl", "--broker-version"), PENDING, ("simulate", "--broker-version"))
    before = [rmqtx(*words, version, root).status for words in commands]
    (queue,) = queue_files(root, topic, "0")
    zero_bytes(queue, 0, SLOT_BYTES)
    assert [rmqtx(*words, version, root).status for words in commands] == before
    found = rmqtx("verify", root, "--broker-version", version, "--format", "json")
    assert found.status == 1
    assert "checked again" not in found.out
    drop(queue)
    assert [rmqtx(*words, version, root).status for words in commands] == before
    assert rmqtx("verify", root, "--broker-version", version).status == 1


@pytest.mark.parametrize("name", ["delayed-4.4.0", "upgraded-4.2.0-4.3.0"])
def test_the_op_queue_that_the_check_reads(rmqtx: Run, tmp_path: Path, name: str) -> None:
    root = copy_of(name, tmp_path)
    (queue,) = queue_files(root, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "0")
    zero_bytes(queue, 0, SLOT_BYTES)
    assert rmqtx("audit", root, "--broker-version", name.rpartition("-")[2]).status == 3


@pytest.mark.parametrize("name", ["controller-5.1.4", "common-5.3.3", "cursorback-4.9.7", "rocksdb-5.4.0"])
def test_a_later_time_hides_no_damage(rmqtx: Run, tmp_path: Path, name: str) -> None:
    """`--at` after the end of a store only sets the clock; damage of queues and bodies was left out, with status 0."""
    root = copy_of(name, tmp_path)
    (queue,) = queue_files(root, "RMQ_SYS_*TRANS_OP_HALF_TOPIC", "0")
    zero_bytes(queue, 0, SLOT_BYTES)
    (first, *_) = log_files(root)
    position, _ = records_in(first)[-1]
    flip_byte(first, position + AT["body_length_bytes"] + 6)
    version = name.rpartition("-")[2]
    later = f"{time.gmtime().tm_year + 1}-06-01"
    for command in (("audit",), PENDING[:1], ("pending", "--scan"), ("diagnose",)):
        now, then = (
            rmqtx(*command, root, "--verbose", "--broker-version", version, *more) for more in ((), ("--at", later))
        )
        codes = [re.findall(r"error: ([a-z-]+):", one.err) for one in (now, then)]
        if command != PENDING[:1]:
            assert codes[1] == codes[0] != []
        assert then.status == 3


@pytest.mark.parametrize("name", ["empty-4.9.7", "empty-5.3.3"])
def test_records_that_only_the_checkpoint_of_an_empty_log_shows(rmqtx: Run, tmp_path: Path, name: str) -> None:
    root = copy_of(name, tmp_path)
    assert rmqtx("verify", root).status == 0
    write_bytes(root / "checkpoint", 8, (1_795_000_000_000).to_bytes(8, "big"))
    for command in ("verify", "pending", "audit", "simulate"):
        one = rmqtx(command, root, "--broker-version", name.rpartition("-")[2])
        assert (one.status, "log-missing" in one.err + one.out) == (1 if command == "verify" else 3, True), command


@pytest.mark.parametrize("name", ["common-5.5.0", "dledger-killed-5.1.4", "rocksdb-5.5.0"])
def test_a_record_that_only_the_checkpoint_shows_within_the_log(rmqtx: Run, tmp_path: Path, name: str) -> None:
    """Where it has another record or none: `verify` ended with 0, and the others with 3."""
    root = copy_of(name, tmp_path)
    write_bytes(root / "checkpoint", 40, (104).to_bytes(8, "big"))
    for command in ("verify", "pending", "audit"):
        one = rmqtx(command, root, "--broker-version", name.rpartition("-")[2], "--verbose")
        assert (one.status, "log-missing" in one.err + one.out) == (1 if command == "verify" else 3, True), command


@pytest.mark.parametrize("name", ["statetable-3.1.4", "prepared-3.2.6", "common-4.3.0", "killed-4.4.0"])
def test_a_log_file_that_a_start_does_not_load(rmqtx: Run, tmp_path: Path, name: str) -> None:
    """Before 4.5.0 a broker starts without a log file of another length, and without later ones: only `verify`
    reported it.
    """
    root = copy_of(name, tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(corpus.broker_conf(name), encoding="utf-8")
    files = [file for file in log_files(root) if records_in(file)]
    lengthen(files[len(files) // 2], bytes(100))
    given = ("--broker-conf", conf, "--broker-version", name.rpartition("-")[2], "--verbose", "--format", "jsonl")
    for command in ("verify", "pending", "simulate", "audit", "diagnose"):
        one = rmqtx(command, root, *given)
        assert (one.status, "start-leaves-out" in one.err + one.out) == (1 if command == "verify" else 3, True), command
    rows = rmqtx(*PENDING[:2], root, *given).rows
    begin = int(files[len(files) // 2].name)
    cut = [row for row in rows if all(copy["commit_log_offset"] >= begin for copy in row["half_copies"])]
    assert len(files) == 1 or {row["next_event"] for row in cut} == {"cut"}


def _renamed(file: Path) -> Path:
    return file.rename(file.with_name("00000000040543225471"))


def _copied(file: Path) -> Path:
    return shutil.copyfile(file, file.with_name(f"{file.stat().st_size + 7:020d}"))


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"])
@pytest.mark.parametrize("changed", [_renamed, _copied])
@pytest.mark.parametrize("name", ["controller-5.1.4", "killed-4.9.7"])
def test_a_queue_file_whose_name_is_no_place_of_a_slot(
    rmqtx: Run, tmp_path: Path, name: str, changed: Callable[[Path], Path], topic: str
) -> None:
    """Only the commands that read the queue by its cursor reported the file: `simulate`, and `pending` without a scan.
    `verify`, `audit` and `pending --scan` left it out.
    """
    root = copy_of(name, tmp_path)
    file = changed(queue_files(root, topic)[0])
    given = ("--broker-version", name.rpartition("-")[2], "--verbose", "--format", "jsonl")
    for command in (("verify",), ("audit",), ("pending",), ("pending", "--scan"), ("simulate",)):
        one = rmqtx(*command, root, *given)
        assert one.status == (1 if command == ("verify",) else 3), command
        assert any(
            "slot-invalid" in line and file.name in line and "multiple of 20" in line
            for line in (one.out + one.err).splitlines()
        ), command


def test_a_queue_of_consumers_whose_name_is_no_place_of_a_slot(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-5.3.3", tmp_path)
    file = _renamed(queue_files(root, "orders")[0])
    one = rmqtx("verify", root, "--broker-version", "5.3.3", "--format", "jsonl")
    found = [row for row in map(json.loads, one.out.splitlines()) if row["file"] == str(file)]
    assert (one.status, [row["code"] for row in found]) == (1, ["slot-invalid"])


def pending_record(root: Path, name: str) -> tuple[Path, int]:
    """The file and the position of the newest copy of a pending transaction."""
    row = next(row for row in judged(name).to_pylist() if row["state"] == "PENDING" and row["half_copies"])
    place = row["half_copies"][-1]["commit_log_offset"]
    file = max(one for one in log_files(root) if int(one.name) <= place)
    return file, place - int(file.name)


@pytest.mark.parametrize(("name", "part"), [
    ("statetable-3.1.4", "PGROUP"), ("rocksdb-5.4.0", "PGROUP"), ("rocksdb-5.4.0", "REAL_TOPIC"),
    ("rocksdb-5.4.0", "UNIQ_KEY"),
])
def test_an_open_record_of_a_table_whose_properties_cannot_be_read(
    rmqtx: Run, tmp_path: Path, name: str, part: str
) -> None:
    """The end of a property's value is damaged, so the value runs on: `simulate` of a state table or of transactions in
    RocksDB asked the producer of this transaction, with status 0.
    """
    root = copy_of(name, tmp_path)
    file, at = pending_record(root, name)
    data = file.read_bytes()
    value = data.index(part.encode() + b"\x01", at)
    flip_byte(file, data.index(b"\x02", value), 1)
    for command in ("simulate", "pending", "audit"):
        one = rmqtx(command, root, "--broker-version", name.rpartition("-")[2], "--verbose")
        assert (one.status, "half-unreadable" in one.err) == (3, True), command


@pytest.mark.parametrize("field", ["born_time_ms", "store_time_ms"])
@pytest.mark.parametrize("name", ["statetable-3.1.4", "rocksdb-5.4.0"])
def test_an_open_record_of_a_table_with_a_time_that_no_clock_shows(
    rmqtx: Run, tmp_path: Path, name: str, field: str
) -> None:
    """The check of transactions in RocksDB computes its age from this time; `simulate` ended with 0."""
    root = copy_of(name, tmp_path)
    file, at = pending_record(root, name)
    flip_byte(file, at + AT[field], 0x80)
    for command in ("simulate", "pending", "audit"):
        one = rmqtx(command, root, "--broker-version", name.rpartition("-")[2], "--verbose")
        assert (one.status, "record-header" in one.err) == (3, True), command


@pytest.mark.parametrize(("name", "number", "other"), MIXED)
def test_a_file_of_another_log(rmqtx: Run, tmp_path: Path, name: str, number: int, other: str) -> None:
    """Where the file joins its neighbours, and the check has passed it, `check` was OK, and `pending` 0."""
    root = mixed(name, number, other, tmp_path)
    version = ("--broker-version", name.rpartition("-")[2])
    checked = rmqtx("check", root, *version, "--warning", "9000d", "--critical", "9999d")
    assert checked.status != 0
    for command in ("pending", "audit", "simulate", "diagnose"):
        assert rmqtx(command, root, *version).status == 3, command
    assert rmqtx("verify", root, *version).status == 1


def _halved(file: Path) -> None:
    truncate(file, sum(records_in(file)[len(records_in(file)) // 2]))


def _in_its_place(file: Path) -> None:
    file.unlink()
    file.mkdir()


OF_RECORDS = (
    ("search", "--key", "x"), ("decode", "commitlog"), ("decode", "half"), ("decode", "op"), ("decode", "trace"),
    ("sql", "SELECT count(*) FROM records"), ("sql", "SELECT count(*) FROM halves"),
)


@pytest.mark.parametrize("hurt", [_halved, Path.unlink, _in_its_place, lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize("name", ["common-4.9.7", "rocksdb-5.5.0", "statetable-3.1.4"])
def test_records_that_are_listed_are_all_there_are(
    rmqtx: Run, tmp_path: Path, name: str, hurt: Callable[[Path], object]
) -> None:
    """A log without its end, or without a file, has no damage in it: only its queues show what is lost. `search` found
    nothing, and `decode`, `export` and `sql` listed what was left, with status 0.
    """
    root = copy_of(name, tmp_path)
    before = [rmqtx(*command, root).status for command in OF_RECORDS]
    hurt(log_files(root)[0])
    for command, status in zip(OF_RECORDS, before, strict=True):
        after = rmqtx(*command, root)
        assert (status, after.status) == (0, 3), command
        code = "unreadable-file" if hurt is _in_its_place else "log-missing"
        assert f"error: {code}" in after.err, command
    assert rmqtx("export", "records", root, "--to", tmp_path / "out").status == 3


def test_what_is_lost_behind_the_range_is_not_asked_for(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    _halved(log_files(root)[0])
    assert rmqtx("search", root, "--key", "x", "--to", "50000").status == 0
    assert rmqtx("decode", "commitlog", root, "--limit", "3").status == 0

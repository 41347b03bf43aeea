"""What the other files of a store know of its log binds every answer: no destroyed segment reads as healthy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.store import HALF_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.claims.claim_proofs import broken_claim_findings, broken_claims
from rmqtx.verdicts.claims.log_claims import QUEUE, QUEUES_ASKED_MAX, log_claims
from tests.brokers import corpus
from tests.forge import damage
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import in_two_ways
from tests.verdicts.claims.test_known_ends import needs_rocksdict
from tests.verdicts.following import Followed

Damage = Callable[[bytes], bytes]
ROCKSDB = {"rocksdb-5.5.0", "rocksdb-queues-5.5.0", "rocksdb-single-5.5.0", "rocksdb-queues-killed-5.5.0"}


def used(data: bytes) -> int:
    """Where the data of a segment ends."""
    return len(data.rstrip(b"\0"))


def without_a_piece(data: bytes) -> bytes:
    """Nine bytes of the middle are gone and the rest moved up: bytes of no record, then zeros."""
    return (data[: used(data) // 2] + data[used(data) // 2 + 9 :]).ljust(len(data), b"\0")


DAMAGES: dict[str, Damage] = {
    "zero": lambda data: bytes(len(data)),
    "0xff": lambda data: b"\xff" * len(data),
    "random": lambda data: random.Random(len(data)).randbytes(len(data)),
    "inverted": lambda data: bytes(byte ^ 0xFF for byte in data),
    "9 bytes later": lambda data: (bytes(9) + data)[: len(data)],
    "4096 bytes earlier": lambda data: data[4096:].ljust(len(data), b"\0"),
    "zero from the middle": lambda data: data[: used(data) // 2].ljust(len(data), b"\0"),
    "0xff from the middle": lambda data: data[: used(data) // 2].ljust(used(data), b"\xff").ljust(len(data), b"\0"),
    "a piece is gone": without_a_piece,
    "cut": lambda data: data[: used(data) // 2],
}


def last_used(root: Path) -> Path:
    """The last file of the log that holds anything."""
    files = [Path(segment.file) for segment in open_store(root).commit_log]
    return [file for file in files if used(file.read_bytes())][-1]


def audited(store: Store, name: str) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Rows by id, and the codes of the errors among the findings."""
    reading = audit([store], settings_of(name))
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    return rows, [finding.code for finding in reading.findings if finding.kind.severity == "error"]


def require_heeded(root: Path, name: str) -> list[str]:
    """That the audit says that something is missing, and gives no state that is not the truth; the codes."""
    rows, codes = audited(open_store(root), name)
    assert codes
    for row in corpus.expected(name):
        wanted = row["state"] if isinstance(row["state"], list) else [row["state"]]
        if row["transaction_id"] in rows:
            assert rows[row["transaction_id"]]["state"] in [*wanted, "UNDECIDABLE"]
    return codes


def cases() -> list[Any]:
    """The stores of the reproductions, clean and killed, each with every damage; `make test` plays every third."""
    names = ("common-4.9.7", "killed-5.5.0", "statetable-3.1.4", "statetable-killed-3.1.4", "prepared-3.2.6",
             "prepared-killed-4.2.0", "rocksdb-5.5.0", "rocksdb-queues-5.5.0", "dledger-5.1.4")
    return [
        pytest.param(
            name, damage,
            marks=[*([needs_rocksdict] if name in ROCKSDB else []), *([pytest.mark.slow] if (one + other) % 3 else [])],
        )
        for one, name in enumerate(names) for other, damage in enumerate(DAMAGES)
    ]


@pytest.mark.parametrize(("name", "damage"), cases())
def test_a_destroyed_end_is_missing_evidence(name: str, damage: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    file = last_used(root)
    data = file.read_bytes()
    file.write_bytes(DAMAGES[damage](data))
    require_heeded(root, name)


@pytest.mark.parametrize(
    "name", ["common-4.9.7", "statetable-3.1.4", "prepared-4.2.0", pytest.param("rocksdb-5.5.0", marks=needs_rocksdict),
             pytest.param("rocksdb-single-5.5.0", marks=needs_rocksdict)]
)
def test_a_log_without_files_is_missing(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    for file in damage.log_files(root):
        file.unlink()
    assert require_heeded(root, name) == ["log-missing"]
    assert [finding.code for finding in broken_claim_findings(open_store(root), log_claims(open_store(root)))] == [
        "log-missing"
    ]


def test_only_the_file_that_was_made_for_later_is_left(tmp_path: Path) -> None:
    """A killed broker leaves a file of zeros ready; where the others are gone, all seemed to have expired."""
    name = "prepared-killed-4.2.0"
    root = copy_of(name, tmp_path)
    for file in damage.log_files(root)[:-1]:
        file.unlink()
    assert require_heeded(root, name) == ["log-missing"]


@pytest.mark.parametrize("name", ["killed-5.3.3", "statetable-killed-3.1.4"])
def test_records_of_another_segment_say_nothing_of_what_stood_there(name: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    files = [file for file in damage.log_files(root) if used(file.read_bytes())]
    for number in range(1, len(files)):
        data = files[number].read_bytes()
        files[number].write_bytes(files[number - 1].read_bytes())
        require_heeded(root, name)
        files[number].write_bytes(data)


@pytest.mark.parametrize(("name", "other"), [("prepared-4.2.0", "prepared-3.2.6"), ("common-4.9.7", "common-5.1.4")])
def test_the_log_of_another_broker_contradicts_the_other_files(name: str, other: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    file = last_used(root)
    file.write_bytes(last_used(Path(opened(other).root)).read_bytes())
    _, codes = audited(open_store(root), name)
    assert "log-missing" in codes or "slot-mismatch" in codes


def test_cursor_and_count_alone_tell_that_there_was_a_log(tmp_path: Path) -> None:
    name = "common-5.1.4"
    root = copy_of(name, tmp_path)
    for part in ("consumequeue", "index", "checkpoint"):
        damage.drop(root / part)
    damage.zero_bytes(last_used(root), 0, last_used(root).stat().st_size)
    (claim, *_) = log_claims(open_store(root)).newest
    assert claim.reach_offset is None
    assert require_heeded(root, name) == ["log-empty", "log-missing", *2 * ["cursor-beyond-end"]]


def test_a_checkpoint_alone_knows_a_later_record(tmp_path: Path) -> None:
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    for part in ("consumequeue", "index"):
        damage.drop(root / part)
    file = last_used(root)
    records = damage.records_in(file)
    place = records[len(records) * 3 // 5][0]
    damage.zero_bytes(file, place, file.stat().st_size - place)
    assert "log-missing" in require_heeded(root, name)


def test_a_running_broker_wrote_the_log_first(tmp_path: Path) -> None:
    """What its queues knew before the scan began must be in the log; what its log has no file for yet need not."""
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    in_use = replace(open_store(root), used_by_process=1)
    assert audited(in_use, name)[1] == []
    file = last_used(root)
    file.write_bytes(DAMAGES["zero from the middle"](file.read_bytes()))
    assert "log-missing" in audited(in_use, name)[1]


def test_one_slot_that_leads_behind_the_end_is_damaged_itself(tmp_path: Path) -> None:
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    (file,) = damage.queue_files(root, HALF_TOPIC)
    last = (used(file.read_bytes()) - 1) // 20 * 20
    damage.write_bytes(file, last, (200_000).to_bytes(8, "big"))
    assert "log-missing" not in audited(open_store(root), name)[1]


@pytest.mark.parametrize("damage", ["zero", "0xff from the middle", "a piece is gone"])
def test_an_audit_that_follows_says_the_same(damage: str, tmp_path: Path) -> None:
    name = "common-4.9.7"
    root = copy_of(name, tmp_path / "store")
    file = last_used(root)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    followed = Followed([root], tmp_path / "checkpoint", settings_of(name))
    followed.assert_current()
    assert any(finding.kind.severity == "error" for finding in followed.last.findings)


@needs_rocksdict
@pytest.mark.parametrize("name", in_two_ways(corpus.all_names()))
def test_an_undamaged_log_keeps_every_claim(name: str) -> None:
    store = opened(name)
    claims = log_claims(store)
    log = store.log()
    try:
        assert claims.newest or name.startswith("empty")
        assert broken_claims(store, claims, log) == []
    finally:
        log.close()


def test_a_half_copy_whose_id_is_overwritten_may_be_of_any_transaction(tmp_path: Path) -> None:
    """Its structure is sound, for no checksum covers properties."""
    name = "multipath-4.9.7"
    root = copy_of(name, tmp_path)
    claim = next(one for one in log_claims(open_store(root)).newest if one.kind == QUEUE and one.slot)
    assert claim.slot is not None
    assert claim.slot[0] == HALF_TOPIC
    file = last_used(root)
    place = file.read_bytes().index(b"UNIQ_KEY\x01", int(claim.record_offset or 0) - int(file.name)) + 16
    end = int(claim.reach_offset or 0) - int(file.name)
    damage.write_bytes(file, place, b"\xff" * (end - place))
    found = set(require_heeded(root, name))
    # the index knows its id
    assert found - {"slot-mismatch"} == {"half-unreadable", "words-contradict"}


def test_what_was_not_asked_is_said(tmp_path: Path) -> None:
    name = "common-4.9.7"
    root = copy_of(name, tmp_path)
    for number in range(QUEUES_ASKED_MAX):
        (root / "consumequeue" / "zebra" / str(number)).mkdir(parents=True)
    reading = audit([open_store(root)], settings_of(name))
    assert reading.table().num_rows
    assert any("some were not compared" in note.text for note in reading.notes)

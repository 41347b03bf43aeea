"""What `rmqtx stores` says of logs that it does not read: a promise only of what it looked at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, INCOMPLETE
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from rmqtx.verdicts.claims.log_agreement import agreement_findings
from rmqtx.verdicts.claims.log_claims import log_claims
from tests.brokers.corpus import all_names
from tests.cli.conftest import Run, refuse_to_open
from tests.forge.damage import log_files, queue_files
from tests.forge.stores import copy_of, opened

LOOKED_AT = "lead to records"


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def all_ones(file: Path) -> None:
    file.write_bytes(b"\xff" * file.stat().st_size)


def inverted(file: Path) -> None:
    file.write_bytes(bytes(255 - byte for byte in file.read_bytes()))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def removed(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", [zeroed, all_ones, inverted, emptied, removed])
@pytest.mark.parametrize(
    ("name", "place"), [("common-4.9.7", 0), ("rocksdb-5.5.0", 0), ("prepared-4.2.0", 0), ("multipath-5.3.3", 1)]
)
def test_a_destroyed_log_is_a_finding(
    rmqtx: Run, tmp_path: Path, damage: Callable[[Path], None], name: str, place: int
) -> None:
    root = copy_of(name, tmp_path)
    assert LOOKED_AT in rmqtx("stores", root).out
    damage(log_files(root)[place])
    described = rmqtx("stores", root)
    assert described.status == INCOMPLETE
    assert LOOKED_AT not in described.out
    assert "damaged:" in described.out
    [row] = json.loads(rmqtx("stores", root, "--format", "json").out)
    assert not any(LOOKED_AT in sentence for sentence in row["trust"])


def test_a_file_that_this_user_may_not_read(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of("multipath-5.3.3", tmp_path)
    closed = str(log_files(root)[1])
    refuse_to_open(closed, monkeypatch)
    described = rmqtx("stores", root)
    assert described.status == INCOMPLETE
    assert LOOKED_AT not in described.out
    assert f"cannot read {closed}: permission denied" in described.err


def test_undamaged_stores_agree() -> None:
    for name in all_names():
        assert agreement_findings(opened(name), log_claims(opened(name))) == [], name


def test_a_broker_that_was_only_just_started(rmqtx: Run, tmp_path: Path) -> None:
    """A log of one file made ahead, and nothing that knows a record."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"dataVersion":{"counter":1},"topicConfigTable":{}}')
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    (tmp_path / "commitlog").mkdir()
    for size in (None, 1 << 20):
        if size is not None:
            with (tmp_path / "commitlog" / f"{0:020d}").open("wb") as file:
                file.truncate(size)
        assert rmqtx("stores", tmp_path).status == DONE
        assert rmqtx("pending", tmp_path).status == DONE
        assert rmqtx("audit", tmp_path).status == DONE
        checked = rmqtx("check", tmp_path, "--state-dir", tmp_path.parent / "state")
        assert (checked.status, checked.out[:22]) == (DONE, "RMQTX OK - 0 pending|o")


def test_an_unknown_check_cursor_is_not_answered_with_status_0(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-5.1.4", tmp_path)
    for file in (root / "config").glob("consumerOffset.json*"):
        file.unlink()
    answered = rmqtx("stores", root)
    assert answered.status == INCOMPLETE
    assert "the check's cursor is unknown" in answered.out


def test_a_store_without_half_queue_needs_no_check_cursor(rmqtx: Run, tmp_path: Path) -> None:
    assert rmqtx("stores", copy_of("prepared-4.2.0", tmp_path)).status == DONE


def test_a_missing_op_queue_is_not_answered_with_status_0(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-5.1.4", tmp_path)
    shutil.rmtree(root / "consumequeue" / OP_TOPIC)
    answered = rmqtx("stores", root)
    assert answered.status == INCOMPLETE
    assert "damaged: cursor-beyond-end, queue-missing" in answered.out


def test_an_op_queue_that_ends_before_the_check_cursor_is_not_answered_with_status_0(
    rmqtx: Run, tmp_path: Path
) -> None:
    """Such a cursor was only a warning, so the status was 0 where a zeroed op queue has nothing left to read."""
    root = copy_of("common-5.1.4", tmp_path)
    for file in queue_files(root, OP_TOPIC):
        file.write_bytes(bytes(file.stat().st_size))
    answered = rmqtx("stores", root)
    assert answered.status == INCOMPLETE
    assert f": cursor-beyond-end: {root}/consumequeue/{OP_TOPIC}/0: " in answered.err
    assert LOOKED_AT not in answered.out


@pytest.mark.parametrize(
    ("name", "cursors"), [("killed-5.3.3", True), ("common-4.9.7", True), ("common-5.3.3", False)]
)
def test_a_missing_half_queue_is_not_answered_with_status_0(
    rmqtx: Run, tmp_path: Path, name: str, *, cursors: bool
) -> None:
    """The next start writes the queue again, up to the check cursor: nothing was reported. Nor was it without any
    cursors, where the op queue shows that there were half messages.
    """
    root = copy_of(name, tmp_path)
    if not cursors:
        for file in (root / "config").glob("consumerOffset.json*"):
            file.unlink()
    shutil.rmtree(root / "consumequeue" / HALF_TOPIC)
    answered = rmqtx("stores", root)
    assert answered.status == INCOMPLETE
    assert "queue-missing" in answered.out
    assert LOOKED_AT not in answered.out


def test_a_store_on_which_no_broker_starts_is_not_answered_with_status_0(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-5.1.4", tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text("garbage")
    answered = rmqtx("stores", root)
    assert answered.status == INCOMPLETE
    assert "damaged: start-refused" in answered.out


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
def test_a_gap_in_a_queue_of_the_check_is_not_answered_with_status_0(topic: str, rmqtx: Run, tmp_path: Path) -> None:
    """`pending` had 3 there: a file of another queue, or a lost one in the middle."""
    root = copy_of("busystop-4.9.7", tmp_path)
    assert rmqtx("stores", root).status == DONE
    [file] = queue_files(root, topic)
    file.with_name(f"{5 * file.stat().st_size:020d}").write_bytes(file.read_bytes())
    result = rmqtx("stores", root)
    assert result.status == INCOMPLETE
    assert "queue-gap" in result.err

"""What `show` and the acts answer where a name is not found: 16 only where all that could bear it was read."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.model.exit_status import INCOMPLETE, NO_SUCH_TRANSACTION, UNREADABLE
from rmqtx.verdicts.audit.local_audit import audit
from tests.cli.conftest import Run, refuse_to_open
from tests.forge.comparing import cited
from tests.forge.damage import log_files, zero_bytes
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import rest_is_slow

NAME = "killed-5.1.4"
"""Nine files of 16 KiB; one in the middle holds whole transactions."""
MIDDLE = 7
Wound = Callable[[Path], object]


def zeroed(root: Path) -> None:
    file = log_files(root)[MIDDLE]
    zero_bytes(file, 0, file.stat().st_size)


def removed(root: Path) -> None:
    log_files(root)[MIDDLE].unlink()


def with_a_directory_in_its_place(root: Path) -> None:
    file = log_files(root)[MIDDLE]
    file.unlink()
    file.mkdir()


def without_an_index(root: Path) -> None:
    zeroed(root)
    shutil.rmtree(root / "index")


def cut_short(root: Path) -> None:
    for file in log_files(root)[MIDDLE:]:
        file.unlink()


WOUNDS = (zeroed, removed, with_a_directory_in_its_place, without_an_index, cut_short)


@functools.cache
def in_the_middle() -> dict[str, str]:
    """The names of a transaction all of whose records are in the middle file."""
    segment = opened(NAME).commit_log[MIDDLE]
    rows = audit([opened(NAME)], settings_of(NAME)).table().to_pylist()
    row = next(row for row in rows if row["keys"] and all(segment.base_offset <= at < segment.end_offset
                                                          for at in cited(row)))
    block = block_at(opened(NAME).log(), row["half_copies"][0]["commit_log_offset"])
    assert block is not None
    return {"id": row["transaction_id"], "key": row["keys"], "message_id": block.message_ids().to_pylist()[0]}


@pytest.mark.parametrize("wound", rest_is_slow(WOUNDS))
@pytest.mark.parametrize("way", ["id", "message_id", "key", "UNKNOWN"])
@pytest.mark.parametrize("scan", [False, True])
def test_a_hole_is_no_proof_that_there_is_no_transaction(
    rmqtx: Run, tmp_path: Path, wound: Wound, way: str, scan: bool
) -> None:
    root = copy_of(NAME, tmp_path)
    identity = in_the_middle().get(way, way)
    wound(root)
    shown = rmqtx("show", identity, "--store", root, *["--scan"] * scan)
    assert shown.status == INCOMPLETE
    assert shown.out == ""
    last = shown.err.splitlines()[-1]
    assert f"no transaction {identity} in the readable part of {root}" in last
    assert "commit-log offset" in last or "log-missing" in last


def test_one_damaged_store_of_several(rmqtx: Run, tmp_path: Path, common: Path) -> None:
    root = copy_of(NAME, tmp_path)
    zeroed(root)
    assert rmqtx("show", "UNKNOWN", common, root).status == INCOMPLETE
    assert rmqtx("show", "UNKNOWN", common).status == NO_SUCH_TRANSACTION


def test_an_act_says_the_same(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("multipath-5.3.3", tmp_path)
    arguments = ("commit", "UNKNOWN", "--store", root, "--to", tmp_path / "new", "--broker-version", "5.3.3")
    assert rmqtx(*arguments).status == NO_SUCH_TRANSACTION
    zero_bytes(log_files(root)[1], 0, 4096)
    refused = rmqtx(*arguments)
    assert refused.status == INCOMPLETE
    assert "some parts cannot be read" in refused.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("scan", [False, True])
def test_what_this_user_may_not_read(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scan: bool
) -> None:
    root = copy_of(NAME, tmp_path)
    closed = str(log_files(root)[MIDDLE])
    identity = in_the_middle()["id"]
    refuse_to_open(closed, monkeypatch)
    shown = rmqtx("show", identity, "--store", root, *["--scan"] * scan)
    assert shown.status == UNREADABLE
    assert f"cannot read {closed}: permission denied" in shown.err


def test_an_empty_log_that_others_know_of(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of("common-4.9.7", tmp_path)
    for file in log_files(root):
        file.unlink()
    assert rmqtx("show", "UNKNOWN", "--store", root).status == INCOMPLETE

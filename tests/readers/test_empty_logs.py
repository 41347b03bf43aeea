"""Logs without any record where no broker has been, and files of a log under other names: errors of every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx_cli.main import status_of
from tests.forge.damage import log_files
from tests.forge.stores import copy_of, opened, settings_of

KILLED = "killed-4.9.7"


def codes(root: Path) -> list[str]:
    return [finding.code for finding in open_store(root).findings]


@pytest.mark.parametrize("size", [None, 0, 4096])
def test_a_log_without_a_record_and_without_a_checkpoint(size: int | None, tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    if size is not None:
        (log / f"{0:020d}").write_bytes(bytes(size))
    assert "log-empty" in codes(tmp_path)
    for command in ("pending", "audit"):
        assert status_of([command, str(tmp_path), "--quiet"]) == 3
    assert status_of(["verify", str(tmp_path), "--quiet"]) == 1


def test_check_does_not_call_it_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "commitlog").mkdir()
    assert status_of(["check", str(tmp_path), "--state-dir", str(tmp_path / "state")]) == 3
    assert capsys.readouterr().out.startswith("RMQTX UNKNOWN")


@pytest.mark.parametrize("name", ["empty-3.1.4", "empty-killed-4.9.7", "empty-5.5.0"])
def test_a_broker_that_was_just_started_has_a_checkpoint(name: str) -> None:
    assert "log-empty" not in codes(Path(opened(name).root))


@pytest.mark.parametrize("name", ["{}.orig", "lost-{}", "segment"])
def test_a_file_under_another_name_is_missing_evidence(name: str, tmp_path: Path) -> None:
    root = copy_of(KILLED, tmp_path)
    first = log_files(root)[0]
    first.rename(first.with_name(name.format(first.name)))
    (found,) = [one for one in open_store(root).findings if one.code == "segment-misnamed"]
    assert (found.commit_log_offset, found.length_bytes) == (int(first.name), 16384)
    assert found.expected == f"the name {first.name}"
    whole = audit([opened(KILLED)], settings_of(KILLED)).table().to_pylist()
    before = {row["transaction_id"]: row["state"] for row in whole}
    rows = audit([open_store(root)], settings_of(KILLED)).table().to_pylist()
    assert {row["state"] for row in rows if row["state"] != before[row["transaction_id"]]} <= {"UNDECIDABLE"}
    assert status_of(["audit", str(root), "--quiet"]) == 3
    assert status_of(["pending", str(root), "--quiet"]) == 3


def test_a_copy_of_a_file_that_is_there_is_only_a_stray_file(tmp_path: Path) -> None:
    root = copy_of(KILLED, tmp_path)
    first = log_files(root)[0]
    first.with_name("backup").write_bytes(first.read_bytes())
    assert codes(root) == ["stray-file"]

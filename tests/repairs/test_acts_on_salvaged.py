"""A copy that salvage made can be acted on: the empty messages in place of lost ones are records for a broker."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.cli.conftest import Run
from tests.cli.conftest import journal_directory as journal_directory
from tests.cli.conftest import rmqtx as rmqtx
from tests.forge.damage import log_files, write_bytes
from tests.forge.stores import copy_of, settings_of

NAME = "common-5.3.3"


def pending_ids(root: Path) -> list[str]:
    rows = audit([open_store(root)], settings_of(NAME)).table().to_pylist()
    return [row["transaction_id"] for row in rows if row["state"] == "PENDING"]


def test_what_is_pending_behind_damage_is_committed_in_a_salvaged_copy(rmqtx: Run, tmp_path: Path) -> None:
    root = copy_of(NAME, tmp_path)
    write_bytes(log_files(root)[-1], 150_000, bytes(range(1, 251)) * 12)
    identity = pending_ids(root)[-1]
    words = ("--broker-version", "5.3.3", "--reason", "test", "--yes")
    refused = rmqtx("commit", identity, "--store", root, "--to", tmp_path / "refused", *words)
    assert refused.status != 0
    assert "salvage" in refused.err
    salvaged, done = tmp_path / "salvaged", tmp_path / "done"
    assert "salvage" in rmqtx("verify", root).err
    rmqtx("salvage", root, "--to", salvaged)
    assert "rmqtx salvage" not in rmqtx("verify", salvaged).err
    committed = rmqtx("commit", identity, "--store", salvaged, "--to", done, *words)
    assert committed.status == 0, committed.err
    assert identity not in pending_ids(done)
    assert set(pending_ids(salvaged)) - {identity} == set(pending_ids(done))

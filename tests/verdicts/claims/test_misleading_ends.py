"""Stores from before 4.3 whose log lost its tail: queues and redo log know it, and nothing ended is called pending."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.damage import log_files
from tests.forge.stores import copy_of, settings_of

Row = dict[str, Any]
STORES = ("statetable-3.1.4", "prepared-4.2.0", "upgraded-3.1.4-3.2.6")


def audited(root: Path, name: str) -> dict[str, Row]:
    rows: list[Row] = audit([open_store(root)], settings_of(name)).table().to_pylist()
    return {row["transaction_id"]: row for row in rows}


@pytest.mark.parametrize("is_zeroed", [True, False])
@pytest.mark.parametrize("name", STORES)
def test_what_ended_in_a_lost_tail_is_not_pending(name: str, is_zeroed: bool, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before = audited(root, name)
    file = log_files(root)[-1]
    data = file.read_bytes()
    kept = data[: len(data.rstrip(b"\0")) * 6 // 10]
    file.write_bytes(kept.ljust(len(data), b"\0") if is_zeroed else kept)
    after = audited(root, name)
    assert after
    for identity, row in after.items():
        assert row["state"] in ("UNDECIDABLE", before[identity]["state"]), row["reason"]
    assert any(row["state"] == "UNDECIDABLE" for row in after.values())


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("statetable-3.1.4", "transaction/redolog/*/0/*"),
        ("prepared-4.2.0", "consumequeue/payments/1/00000000000000000000"),
    ],
)
def test_a_last_entry_that_leads_nowhere_takes_nothing_from_the_log(name: str, files: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before = audited(root, name)
    file = next(file for file in sorted(root.glob(files), reverse=True) if any(file.read_bytes()))
    data = file.read_bytes()
    last = (len(data.rstrip(b"\0")) - 1) // 20 * 20
    file.write_bytes(data[:last] + struct.pack(">q", 100_000) + data[last + 8 :])
    assert {key: row["state"] for key, row in audited(root, name).items()} == {
        key: row["state"] for key, row in before.items()
    }

"""close settles the copies that the check reads: op messages before the op cursor do not count for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.evidence.store_facts import known_until_ms
from tests.cli.conftest import Run
from tests.cli.conftest import journal_directory as journal_directory
from tests.cli.conftest import rmqtx as rmqtx
from tests.conftest import MOMENT
from tests.forge.stores import copy_of, settings_of


def test_copies_whose_op_messages_lie_before_the_op_cursor_are_closed(rmqtx: Run, tmp_path: Path) -> None:
    """The check of 4.4.0 stopped, so its half cursor stayed at 19, while its op cursor is 11."""
    name = "poison-4.4.0"
    root = copy_of(name, tmp_path)
    rows = {row["transaction_id"]: row for row in audit([open_store(root)], settings_of(name)).table().to_pylist()}
    identity = next(one for one, row in rows.items() if row["advice"] == "close")
    changed = tmp_path / "changed"
    done = rmqtx(
        "close", identity, "--store", root, "--to", changed, "--broker-version", "4.4.0", "--reason", "test", "--yes"
    )
    assert done.status == 0, done.err
    after = {row["transaction_id"]: row for row in audit([open_store(changed)], settings_of(name)).table().to_pylist()}
    named = {mark["half_queue_offset"] for mark in after[identity]["op_marks"] if mark["queue_offset"] >= 11}
    assert named >= {copy["queue_offset"] for copy in rows[identity]["half_copies"] if copy["queue_offset"] >= 19}
    assert after[identity]["advice"] == "none"
    assert [one for one, row in after.items() if row["advice"] == "close"] == [
        one for one, row in rows.items() if row["advice"] == "close" and one != identity
    ]


def test_a_check_that_would_not_read_the_op_messages_is_a_reason_to_refuse(
    rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two compressed copies that 4.4.0 put back stop its check; it passes op messages, and reads their copies again."""
    name = "poison-4.4.0"
    root = copy_of(name, tmp_path)
    now_ms = known_until_ms(open_store(root)) + 10_000
    monkeypatch.setattr(MOMENT, lambda _: now_ms)
    monkeypatch.setattr("rmqtx.repairs.acts.file_medium.clock", SimpleNamespace(now_ms=lambda: now_ms))
    rows = audit([open_store(root)], settings_of(name)).table().to_pylist()
    by_copy = {copy["queue_offset"]: row["transaction_id"] for row in rows for copy in row["half_copies"]}
    pending = [row["transaction_id"] for row in rows if row["state"] == "PENDING"]
    options = ("--broker-version", "4.4.0", "--reason", "test", "--yes")
    for copy, end in ((23, 24), (24, 23), (25, 23)):
        refused = rmqtx("commit", by_copy[copy], "--store", root, "--to", tmp_path / "refused", *options)
        assert refused.status == 12, refused.err
        assert f"cannot-be-written: the check ends at half queue offset {end} " in refused.err
        assert f"reads half copy {copy}, although" in refused.err
    done = rmqtx("commit", *pending, "--store", root, "--to", tmp_path / "done", *options)
    assert done.status == 0, done.err
    after = audit([open_store(tmp_path / "done")], settings_of(name)).table().to_pylist()
    assert {row["state"] for row in after if row["transaction_id"] in pending} == {"COMMITTED"}

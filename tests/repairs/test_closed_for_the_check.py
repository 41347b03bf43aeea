"""close settles the copies that the check reads: op messages before the op cursor do not count for it."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.cli.conftest import Run
from tests.cli.conftest import journal_directory as journal_directory
from tests.cli.conftest import rmqtx as rmqtx
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

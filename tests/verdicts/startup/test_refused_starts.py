"""Stores whose start depends on more than their own files: at which of their files brokers exit nevertheless.

Each case was tried on a real broker of the release.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge import damage
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.startup.test_recovery import foreseen

FIRST = "0" * 20


def _unreadable(name: str) -> Callable[[Path], object]:
    return lambda root: [(root / "config" / f"{name}{end}").write_bytes(b'{"a":') for end in ("", ".bak")]


DAMAGES: dict[str, Callable[[Path], object]] = {
    "topics": _unreadable("topics.json"),
    "cursors": _unreadable("consumerOffset.json"),
    "queue file cut": lambda root: damage.truncate(damage.queue_files(root, "orders")[0], 4096),
    "foreign file": lambda root: (root / "commitlog" / "readme.txt").write_bytes(b"x"),
    "DLedger index cut": lambda root: damage.truncate(root / "dledger-n0/index" / FIRST, 4096),
    "DLedger file empty": lambda root: damage.truncate(root / "dledger-n0/data" / FIRST, 0),
}
EXITED = [
    ("dledger-4.9.7", "topics"), ("dledger-4.9.7", "queue file cut"), ("dledger-4.9.7", "DLedger index cut"),
    ("dledger-4.9.7", "DLedger file empty"), ("dledger-5.1.4", "DLedger file empty"), ("controller-5.1.4", "topics"),
    ("controller-5.1.4", "queue file cut"), ("controller-5.1.4", "foreign file"), ("rocksdb-queues-5.5.0", "topics"),
    ("rocksdb-queues-5.5.0", "cursors"), ("rocksdb-queues-5.5.0", "foreign file"), ("rocksdb-single-5.5.0", "topics"),
    ("rocksdb-combined-5.4.0", "topics"), ("rocksdb-combined-5.4.0", "queue file cut"),
    ("rocksdb-configs-5.5.0", "queue file cut"), ("rocksdb-configs-5.5.0", "foreign file"),
]  # fmt: skip
STARTED = [("rocksdb-configs-5.5.0", "topics"), ("rocksdb-configs-5.5.0", "cursors")]


def refused_files(root: Path, name: str) -> tuple[list[str], list[str]]:
    """The files at which the broker exits, by verify and by audit."""
    conf = settings_of(name)(open_store(root)).given or {}
    by_verify = [row["file"] for code, row in foreseen(root, None, **conf).items() if code == "start-refused"]
    reading = audit([open_store(root)], settings_of(name))
    reading.table()
    return by_verify, [str(one.file) for one in reading.findings if one.code == "start-refused"]


@pytest.mark.parametrize(("name", "case"), EXITED)
def test_verify_and_audit_name_the_file_at_which_the_broker_exited(tmp_path: Path, name: str, case: str) -> None:
    root = copy_of(name, tmp_path)
    assert refused_files(root, name) == ([], [])
    DAMAGES[case](root)
    by_verify, by_audit = refused_files(root, name)
    assert len(by_verify) == 1
    assert by_audit == by_verify


@pytest.mark.parametrize(("name", "case"), STARTED)
def test_files_that_a_database_replaces_are_not_read(tmp_path: Path, name: str, case: str) -> None:
    root = copy_of(name, tmp_path)
    DAMAGES[case](root)
    assert refused_files(root, name) == ([], [])

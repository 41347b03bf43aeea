"""Stores whose start depends on more than their own files: at which of their files brokers exit nevertheless.

Each case was tried on a real broker of the release.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from rmqtx.verdicts.startup.refusals import refusals
from rmqtx.verdicts.startup.rules import rules_of
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
]
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


@pytest.mark.parametrize(
    ("conf", "is_loaded"),
    [
        ({"storeType": "default"}, True), ({"storeType": "defaultRocksDB"}, False),
        ({"storeType": "defaultRocksDB", "rocksdbCQDoubleWriteEnable": "true"}, False),
        ({"rocksdbCQDoubleWriteEnable": "true"}, True), ({}, True),
    ],
)
@pytest.mark.parametrize("name", ["rocksdb-combined-5.4.0", "rocksdb-separate-5.5.0"])
def test_which_settings_have_a_broker_load_queue_files_beside_a_database(
    tmp_path: Path, name: str, conf: dict[str, str], is_loaded: bool
) -> None:
    """Without a configuration the files show it: they lead as far as the database."""
    root = copy_of(name, tmp_path)
    DAMAGES["queue file cut"](root)
    conf = conf and {"mappedFileSizeConsumeQueue": "20000", **conf}
    findings = list(refusals(open_store(root), conf, rules_of((5, 5, 0), conf)))
    assert [one.code for one in findings] == ["start-refused"] * is_loaded


def test_queue_files_that_a_broker_left_behind_do_not_count(tmp_path: Path) -> None:
    """It went on with queues in RocksDB: the files end before the database."""
    root = copy_of("rocksdb-combined-5.4.0", tmp_path)
    for file in damage.queue_files(root):
        slots = file.read_bytes().rstrip(b"\0")
        file.write_bytes(slots[: len(slots) // 40 * 20].ljust(20_000, b"\0"))
    DAMAGES["queue file cut"](root)
    assert list(refusals(open_store(root), {}, rules_of((5, 4, 0), {}))) == []


@pytest.mark.parametrize("name", ["controller-5.1.4", "common-5.1.4", "prepared-4.2.0", "masked-4.4.0"])
def test_a_start_that_only_some_possible_releases_refuse_is_reported(tmp_path: Path, name: str) -> None:
    """Of a controller's log, and of designs without a half queue, nothing else is predicted of a start: it was left
    out.
    """
    root = copy_of(name, tmp_path)
    queue, *_ = damage.queue_files(root, "orders")
    damage.foreign_file(queue.parent, f"{int(queue.name) + queue.stat().st_size:020}", b"")
    hanging = pending([open_store(root)], broker_settings)
    hanging.table()
    (found,) = [one for one in hanging.findings if one.code == "start-differs"]
    assert "the broker does not start" in (found.actual or "")
    known = pending([open_store(root)], lambda store: broker_settings(store, version="5.5.0"))
    known.table()
    assert [one.code for one in known.findings if one.code.startswith("start-")] == []


def _put_in_place_of(root: Path, topic: str, *names: str) -> None:
    """A directory in place of a file of a queue, or a file in place of the queue."""
    place = root.joinpath("consumequeue", topic, "0", *names)
    damage.drop(place)
    if names:
        place.mkdir()
    else:
        place.write_bytes(b"x")


@pytest.mark.parametrize("names", [(FIRST,), ()])
@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
def test_a_queue_that_the_start_cannot_write_is_not_predicted(
    tmp_path: Path, topic: str, names: tuple[str, ...]
) -> None:
    """5.3.3 and 5.5.0 started with a half queue that stayed empty: no half message was checked again."""
    root = copy_of("common-5.3.3", tmp_path)
    _put_in_place_of(root, topic, *names)
    found = foreseen(root, None)
    assert "in place of a queue" in found["start-unforeseen"]["actual"]
    assert not {"start-enters", "start-skips"} & set(found)
    reading = pending([open_store(root)], settings_of("common-5.3.3"))
    has_discard = {row["discard_at_ms"] is not None for row in reading.table().to_pylist()}
    assert has_discard == {topic == OP_TOPIC}
    assert reading.findings

"""Which stores of running brokers are compared with what they answer."""

from __future__ import annotations

from pathlib import Path

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.damage import SLOT_BYTES, queue_files, zero_bytes
from tests.forge.logs import Forge
from tests.histories.living import behind_the_queue, has_bytes_behind

_FILE_BYTES = 16_384


def _log(root: Path, *ends: int) -> Path:
    """A log of files with data up to an end each."""
    (root / "commitlog").mkdir()
    for number, end in enumerate(ends):
        data = (b"x" * end).ljust(_FILE_BYTES, b"\0")
        (root / "commitlog" / f"{number * _FILE_BYTES:020d}").write_bytes(data)
    return root


def test_a_log_that_ends_where_its_broker_counts_is_compared_also_within_a_page(tmp_path: Path) -> None:
    assert not has_bytes_behind(_log(tmp_path, _FILE_BYTES, 1_001, 0), _FILE_BYTES + 1_001)


def test_bytes_that_a_start_cut_off_are_seen_in_the_last_file_and_in_a_later_one(tmp_path: Path) -> None:
    root = _log(tmp_path, _FILE_BYTES, 1_001, 0)
    assert has_bytes_behind(root, _FILE_BYTES + 1_000)
    assert has_bytes_behind(root, _FILE_BYTES - 1)


def test_a_half_message_behind_the_queue_is_known_by_its_place(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    for name in ("A", "B"):
        forge.half(name)
    root = forge.write()
    rows = audit([store := open_store(root)], lambda one: broker_settings(one, version="4.9.7")).table().to_pylist()
    assert behind_the_queue(store, rows) == frozenset()
    (file,) = queue_files(root, HALF_TOPIC)
    zero_bytes(file, SLOT_BYTES, SLOT_BYTES)
    rows = audit([store := open_store(root)], lambda one: broker_settings(one, version="4.9.7")).table().to_pylist()
    assert behind_the_queue(store, rows) == {"B"}

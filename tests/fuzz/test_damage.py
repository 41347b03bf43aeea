"""Damages of files that are larger than the memory: they read and write only the piece that changes."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.forge.damage import RANDOM, last_record, swap
from tests.fuzz.rounds import TookTooLong, alarm

#: Of a file, nearly all of it a hole: nothing could read it whole.
SIZE_BYTES = 1 << 40
WRITTEN = b"\0\0\0\x40\xda\xa3\x20\xa7".ljust(64, b"\1")


def _large(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        opened.write(WRITTEN)
        opened.truncate(SIZE_BYTES)
    return file


@pytest.mark.parametrize("name", sorted(set(RANDOM) - {"cursor"}))
def test_a_file_larger_than_the_memory(name: str, tmp_path: Path) -> None:
    files = [_large(tmp_path / "commitlog" / f"{number * SIZE_BYTES:020d}") for number in range(2)]
    files += [_large(tmp_path / "consumequeue" / "RMQ_SYS_TRANS_HALF_TOPIC" / part / f"{0:020d}") for part in "01"]
    files += [_large(tmp_path / "index" / "20260101000000000"), _large(tmp_path / "checkpoint")]
    files.append(_large(tmp_path / "config" / "topics.json"))
    for number in range(10):
        assert RANDOM[name](tmp_path, random.Random(f"{name} {number}"))
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or file.stat().st_blocks * 512 < 1 << 20, file


@pytest.mark.parametrize("name", ["flip_log", "overwrite_log", "zero_page", "copy_block"])
def test_random_places_are_in_the_written_part(name: str, tmp_path: Path) -> None:
    file = _large(tmp_path / "commitlog" / ("0" * 20))
    for number in range(50):
        RANDOM[name](tmp_path, random.Random(number))
    with file.open("rb") as opened:
        assert opened.read(64) != WRITTEN
        opened.seek(16 << 10)
        assert not opened.read(1 << 20).strip(b"\0")
    assert file.stat().st_size == SIZE_BYTES


def test_the_last_record_of_a_large_file(tmp_path: Path) -> None:
    file = _large(tmp_path / "commitlog" / ("0" * 20))
    assert last_record(tmp_path) == (file, 0, 64)


def test_exchanged_files_keep_their_holes(tmp_path: Path) -> None:
    one, other = _large(tmp_path / "one"), tmp_path / "other"
    other.write_bytes(b"short")
    swap(one, other)
    assert (one.read_bytes(), other.stat().st_size, other.stat().st_blocks < 64) == (b"short", SIZE_BYTES, True)
    swap(one, one)
    assert one.read_bytes() == b"short"


def test_waiting_for_the_processor_is_no_failure() -> None:
    with alarm(1):
        signal.sigtimedwait([signal.SIGUSR1], 1.5)  # waits, by the clock, longer than the alarm allows of CPU time
    with pytest.raises(TookTooLong, match="no answer in 1 s of CPU time"), alarm(1):
        _compute()


def _compute() -> None:
    while True:
        pass

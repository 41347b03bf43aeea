"""Which stores of running brokers are compared with what they answer."""

from __future__ import annotations

from pathlib import Path

from tests.histories.living import has_bytes_behind

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

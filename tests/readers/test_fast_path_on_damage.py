"""`pending`, `show` and look-ups by derived files on damaged logs: they say what an audit says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from readers.errors import EvidenceMissing
from readers.local_engine import audit
from readers.questions import lookup, open_rows, pending, show
from readers.reading import Reading
from readers.segment_joins import JOINS_MAX, broken_join, unseen_joins
from readers.store import open_store
from tests.forge.damage import flip_byte, log_files
from tests.forge.stores import copy_of, opened, settings_of, with_several_segments

Deed = Callable[[bytes], bytes]


def _used(data: bytes) -> int:
    return len(data.rstrip(b"\0"))


DEEDS: dict[str, Deed] = {
    "zeros": lambda data: bytes(len(data)),
    "0xff": lambda data: b"\xff" * len(data),
    "inverted": lambda data: bytes(255 - byte for byte in data),
    "nine bytes later": lambda data: (bytes(9) + data)[: len(data)],
    "zeros from the middle": lambda data: data[: _used(data) // 2] + bytes(len(data) - _used(data) // 2),
    "a hole": lambda data: data[: _used(data) // 3] + bytes(_used(data) // 3) + data[2 * (_used(data) // 3) :],
    "zeros to the middle": lambda data: bytes(_used(data) // 2) + data[_used(data) // 2 :],
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("common-4.9.7", 0), ("upgraded-4.2.0-4.3.0", 0), ("killed-5.3.3", 4), ("killed-5.3.3", -2),
        ("multipath-5.5.0", 1),
    ],
)
def test_whole_files(tmp_path: Path, name: str, place: int, deed: str) -> None:
    """Many of these were answered with status 0 and others than the true transactions, or PENDING for UNDECIDABLE."""
    root = copy_of(name, tmp_path)
    file = [path for path in log_files(root) if path.read_bytes().strip(b"\0")][place]
    file.write_bytes(DEEDS[deed](file.read_bytes()))
    whole = audit([open_store(root)], settings_of(name))
    rows = whole.table()
    states = dict(zip(rows["transaction_id"].to_pylist(), rows["state"].to_pylist(), strict=True))
    hanging = pending([open_store(root)], settings_of(name))
    assert hanging.table().to_pylist() == open_rows(rows).to_pylist()
    assert errors(hanging)
    for row in audit([opened(name)], settings_of(name)).table().to_pylist()[::8]:
        identity = row["transaction_id"]
        try:
            [shown] = show([open_store(root)], settings_of(name), identity).table().to_pylist()
        except EvidenceMissing:
            assert identity not in states
        else:
            assert shown["state"] == states[identity]
    looked = lookup([open_store(root)], settings_of(name), ["UNKNOWN", *list(states)[::8]]).table()
    assert looked["state"].to_pylist() == [states[name] for name in looked["transaction_id"].to_pylist()]


def errors(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings if finding.kind.severity == "error"]


def test_a_record_that_the_index_knows_by_another_key(tmp_path: Path) -> None:
    """One byte of the UNIQ_KEY of a COMMIT record: by the index it named no transaction, and that was ROLLED_BACK."""
    name = "busystop-4.9.7"
    root = copy_of(name, tmp_path)
    row = next(row for row in audit([opened(name)], settings_of(name)).table().to_pylist() if row["final_records"])
    final = row["final_records"][0]["commit_log_offset"]
    file = log_files(root)[0]
    at = file.read_bytes().index(row["transaction_id"].encode(), final)
    flip_byte(file, at + 3, 1)
    by_scan = show([open_store(root)], settings_of(name), row["transaction_id"], scan=True).table()["state"].to_pylist()
    reading = show([open_store(root)], settings_of(name), row["transaction_id"])
    assert reading.table()["state"].to_pylist() == by_scan
    assert any("not the key that the index knows it by" in note for note in reading.notes)


def test_undamaged_logs_join() -> None:
    for name in with_several_segments():
        assert broken_join(opened(name)) is None
        assert unseen_joins(opened(name)) == max(0, len(opened(name).commit_log) - JOINS_MAX)


@pytest.mark.parametrize("name", ["busystop-4.9.7", "killed-5.3.3", "multipath-5.5.0", "delayed-5.1.4"])
def test_undamaged_logs_need_no_scan(name: str) -> None:
    reading = pending([opened(name)], settings_of(name))
    assert not errors(reading)
    assert not [note for note in reading.notes if " because " in note]

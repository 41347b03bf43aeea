"""Index files of brokers from before half topics, whose hashes 3.1.4 wrote with their sign."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.index.index_scan import scan_entries
from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.verify.verify import FULL
from tests.brokers import corpus
from tests.forge.stores import copy_of
from tests.verdicts.verifying import every_finding

NAMES = [name for design in ("state_table", "prepared_records") for name in corpus.corpus_names(design)]
TRANSACTION_BITS, PREPARED_BITS = 0xC, 0x4


def indexed(name: str) -> set[tuple[bytes, int]]:
    """What the broker says has keys: records that are ordinary or prepared (3.x does not enter COMMIT records)."""
    return {
        (f"{record['topic']}#{key}".encode(), record["commit_log_offset"])
        for record in corpus.truth(name)
        if record["event"] == "after_record" and record["system_flag"] & TRANSACTION_BITS in (0, PREPARED_BITS)
        for key in (record.get("keys") or "").split()
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_key_of_an_ordinary_or_prepared_record_is_found(name: str, tmp_path: Path) -> None:
    store = open_store(copy_of(name, tmp_path))
    index = open_index(store)
    assert index.findings == []
    wanted = {one for one in indexed(name) if one[1] <= (index.covered_until_offset or -1)}
    keys = sorted({key for key, _ in wanted})
    numbers, offsets = index.find(keys)
    found = {(keys[number], offset) for number, offset in zip(numbers.tolist(), offsets.tolist(), strict=True)}
    assert found >= wanted
    assert wanted
    for key in keys[:20]:  # by the chains of its slot, not by a sweep
        offsets = index.find([key])[1]
        assert {offset for one, offset in wanted if one == key} <= set(offsets.tolist())


@pytest.mark.parametrize("name", NAMES)
def test_every_byte_of_an_old_index_is_explained(name: str, tmp_path: Path) -> None:
    reading = scan_entries(open_store(copy_of(name, tmp_path)))
    rows = reading.table()
    assert reading.findings == []
    assert sum(part.damaged_bytes + part.unread_bytes for part in reading.coverage) == 0
    assert rows.num_rows
    assert min(rows["key_hash"].to_pylist()) >= 0


@pytest.mark.parametrize("name", NAMES)
def test_keys_that_3_x_leaves_out_are_not_missed(name: str, tmp_path: Path) -> None:
    store = open_store(copy_of(name, tmp_path))
    told = [finding for finding in every_finding(Path(store.root), FULL) if finding["code"].startswith("index")]
    assert told == []

"""Queues in RocksDB are held against the log: a discard copy whose topic is damaged is missed there, as in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.forge.comparing import COLUMNS, flipped, parts_of
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.following import Followed
from tests.verdicts.truth import wrong_states

_RECORDS_MAX = 5


def topics_of(root: Path, topic: str) -> list[tuple[Path, int]]:
    """The file and place of the topic of some of its records."""
    found = []
    for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist():
        if record["topic"] == topic and record["queue_id"] == 0:
            file, begin = Path(record["file"]), record["position_bytes"]
            part = parts_of(file.read_bytes()[begin : begin + record["length_bytes"]])["topic"]
            found.append((file, begin + part.start))
    return found[:: max(1, len(found) // _RECORDS_MAX)]


@pytest.mark.parametrize("topic", [DISCARD_TOPIC, HALF_TOPIC])
@pytest.mark.parametrize("name", ["rocksdb-queues-5.5.0", "rocksdb-both-5.5.0"])
def test_a_damaged_topic_is_found(name: str, topic: str, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before = {row["transaction_id"]: row["state"] for row in audit([open_store(root)], settings_of(name)).table()
              .to_pylist()}
    places = topics_of(root, topic)
    if not places:
        pytest.skip("no such records")
    for file, place in places:
        with flipped(file, place + 15, 0x40):
            reading = audit([open_store(root)], settings_of(name))
            after = {row["transaction_id"]: row["state"] for row in reading.table().to_pylist()}
        assert "slot-mismatch" in {finding.code for finding in reading.findings}, place
        assert wrong_states(before, after) == {}, place


def test_an_audit_that_follows_knows_it_too(tmp_path: Path) -> None:
    name = "rocksdb-queues-5.5.0"
    root = copy_of(name, tmp_path)
    file, place = topics_of(root, DISCARD_TOPIC)[0]
    with flipped(file, place + 15, 0x40):
        Followed([root], tmp_path / "checkpoint", settings_of(name)).assert_finds("slot-mismatch")

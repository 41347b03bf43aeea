"""A damaged topic: the other words of a record tell in which of the broker's own topics it stood.

Each on stores that real brokers wrote, where a queue leads to the record and where none does.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    open_store,
)
from tests.forge.comparing import COLUMNS, Row, parts_of
from tests.forge.stores import copy_of, settings_of
from tests.representatives import rest_is_slow
from tests.verdicts.following import Followed
from tests.verdicts.truth import states_and_errors, wrong_states
from tests.verdicts.verifying import findings

#: By store, the topics that are damaged; the first one's queues are in RocksDB, which its killed broker did not flush.
CASES = [
    ("rocksdb-queues-killed-5.5.0", DISCARD_TOPIC), ("rocksdb-queues-killed-5.5.0", OP_TOPIC),
    ("rocksdb-queues-killed-5.5.0", HALF_TOPIC), ("delayed-4.3.0", SCHEDULE_TOPIC), ("delayed-4.3.0", HALF_TOPIC),
    ("rocksdb-killed-5.5.0", ROCKSDB_HALF_TOPIC), ("rocksdb-killed-5.5.0", ROCKSDB_OP_TOPIC),
]
_RECORDS_MAX = 3


def records_of(root: Path, topic: str) -> list[Row]:
    """Some records of a topic, from all over the log; of those that wait for their time, only half messages."""
    records = [
        record for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist()
        if record["topic"] == topic
        and (topic != SCHEDULE_TOPIC or dict(record["properties"])["REAL_TOPIC"] == HALF_TOPIC)
    ]
    return records[:: max(1, len(records) // _RECORDS_MAX)]


def with_topic(record: Row, *, is_bit: bool) -> tuple[Path, bytes, bytes]:
    """The file of a record, its bytes, and the same with a bit of its topic flipped, or with other bytes for it."""
    file, begin = Path(record["file"]), record["position_bytes"]
    data = file.read_bytes()
    part = parts_of(data[begin : begin + record["length_bytes"]])["topic"]
    chance = random.Random(record["commit_log_offset"])
    topic = bytearray(data[begin + part.start : begin + part.stop])
    if is_bit:
        topic[chance.randrange(len(topic))] ^= 1 << chance.randrange(7)
    else:
        topic[:] = chance.randbytes(len(topic))
    return file, data, data[: begin + part.start] + topic + data[begin + part.stop :]


@pytest.mark.parametrize("is_bit", [True, False])
@pytest.mark.parametrize(("name", "topic"), rest_is_slow(CASES, quick=3))
def test_nothing_is_said_for_certain_that_was_not_so(name: str, topic: str, is_bit: bool, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    before, sound = states_and_errors(root, name)
    violations = []
    records = records_of(root, topic)
    assert records
    for record in records:
        file, data, damaged = with_topic(record, is_bit=is_bit)
        file.write_bytes(damaged)
        after, errors = states_and_errors(root, name)
        file.write_bytes(data)
        what = f"{record['commit_log_offset']}"
        if not errors - sound:
            violations.append(f"{what}: nothing was found")
        violations += [f"{what}: {line}" for line in wrong_states(before, after).values()]
    assert violations == []


def test_an_audit_that_follows_knows_it_too(tmp_path: Path) -> None:
    name = "rocksdb-queues-killed-5.5.0"
    root = copy_of(name, tmp_path)
    file, _, damaged = with_topic(records_of(root, DISCARD_TOPIC)[0], is_bit=True)
    file.write_bytes(damaged)
    Followed([root], tmp_path / "checkpoint", settings_of(name)).assert_finds("words-contradict")


def test_a_topic_that_the_store_knows_is_believed(tmp_path: Path) -> None:
    """An application that copies all properties of a message keeps its REAL_TOPIC in another topic."""
    name = "rocksdb-queues-killed-5.5.0"
    root = copy_of(name, tmp_path)
    record = records_of(root, DISCARD_TOPIC)[0]
    file, _, damaged = with_topic(record, is_bit=True)
    part = parts_of(damaged[record["position_bytes"] :][: record["length_bytes"]])["topic"]
    topic = damaged[record["position_bytes"] + part.start : record["position_bytes"] + part.stop].decode()
    file.write_bytes(damaged)
    assert "words-contradict" in states_and_errors(root, name)[1]
    config = root / "config/topics.json"  # a killed broker may never have written it
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps({"topicConfigTable": {topic: {"topicName": topic}}}), encoding="utf-8")
    assert "words-contradict" not in states_and_errors(root, name)[1]


@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC])
def test_a_verification_says_so_too(topic: str, tmp_path: Path) -> None:
    root = copy_of("rocksdb-queues-killed-5.5.0", tmp_path)
    record = records_of(root, topic)[0]
    file, _, damaged = with_topic(record, is_bit=True)
    assert "words-contradict" not in {one["code"] for one in findings(root)}
    file.write_bytes(damaged)
    (finding,) = (one for one in findings(root) if one["code"] == "words-contradict")
    assert (finding["commit_log_offset"], finding["expected"]) == (
        record["commit_log_offset"], f"topic {topic}, by the record's other fields",
    )

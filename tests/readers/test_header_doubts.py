"""Flags, properties and hosts of records of the designs before 4.3: what cannot be right is found, and no other truth.

Each on stores that real brokers wrote, for some records of a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.record_layout import AT, COMMIT, PREPARED, TRANSACTION_MASK
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, open_store
from rmqtx.verdicts.audit.lookups import lookup
from tests.forge.comparing import COLUMNS, Row, parts_of
from tests.forge.damage import write_bytes
from tests.forge.stores import copy_of, settings_of
from tests.verdicts.following import Followed
from tests.verdicts.truth import states_and_errors, wrong_states

_RECORDS_MAX = 6


def records_of(root: Path, kind: int) -> list[Row]:
    """Some records of a kind, from all over the log."""
    records = [
        record for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist()
        if record["sys_flag"] & TRANSACTION_MASK == kind and dict(record["properties"] or []).get("PGROUP")
        and (kind == PREPARED or record["prepared_transaction_offset"])  # to name the first record is to name none
        and "REAL_TOPIC" not in dict(record["properties"]) and "CLUSTER" not in dict(record["properties"])
    ]
    return records[:: max(1, len(records) // _RECORDS_MAX)]


def _flag(value: int) -> Callable[[bytes], tuple[int, bytes]]:
    return lambda _record: (AT["sys_flag"], value.to_bytes(4, "big"))


def _properties(record: bytes) -> tuple[int, bytes]:
    part = parts_of(record)["properties"]
    return part.start, b"\xa7" * len(part)


def _port(_record: bytes) -> tuple[int, bytes]:
    return AT["store_address"] + 4, b"\xff" * 4


ENDED = ("COMMITTED", "ROLLED_BACK")
CASES = [
    ("prepared-killed-4.2.0", COMMIT, _flag(7), "words-contradict"),
    ("prepared-3.2.6", COMMIT, _flag(4), "words-contradict"),
    ("statetable-lossy-3.1.4", COMMIT, _flag(4), "words-contradict"),
    ("statetable-lossy-3.1.4", PREPARED, _flag(0), "redo-entry-mismatch"),
    ("statetable-lossy-3.1.4", PREPARED, _flag(3), "redo-entry-mismatch"),
    ("statetable-3.1.4", PREPARED, _flag(8), "redo-entry-mismatch"),
    ("prepared-3.2.6", PREPARED, _properties, "half-unreadable"),
    ("statetable-3.1.4", PREPARED, _properties, "half-unreadable"),
    ("statetable-slave-3.1.4", PREPARED, _port, "record-header"),
    ("prepared-3.2.6", COMMIT, _port, "record-header"),
]


@pytest.mark.parametrize(("name", "kind", "damage", "code"), CASES)
def test_it_is_found(
    name: str, kind: int, damage: Callable[[bytes], tuple[int, bytes]], code: str, tmp_path: Path
) -> None:
    root = copy_of(name, tmp_path)
    before, sound = states_and_errors(root, name)
    assert code not in sound
    violations = []
    for record in records_of(root, kind):
        file, begin = Path(record["file"]), record["position_bytes"]
        data = file.read_bytes()
        place, value = damage(data[begin : begin + record["length_bytes"]])
        file.write_bytes(data[: begin + place] + value + data[begin + place + len(value) :])
        after, errors = states_and_errors(root, name)
        file.write_bytes(data)
        what = f"{record['commit_log_offset']}"
        if code not in errors:
            violations.append(f"{what}: {code} is not among {errors}")
        wrong = wrong_states(before, after)
        if code == "record-header" and before.get(record["message_id"], "COMMITTED") not in ENDED:
            wrong.pop(record["message_id"], None)  # nothing else knows its host
        violations += [f"{what}: {line}" for line in wrong.values()]
    assert violations == []


def _topic(record: bytes) -> tuple[int, bytes]:
    part = parts_of(record)["topic"]
    return part.start, b"\xff" * len(part)


def _deliveries(_record: bytes) -> tuple[int, bytes]:
    return AT["reconsume_times"], b"\x97\x59\x88\xc3"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("busystop-4.3.0", damage) for damage in (_flag(7), _topic, _deliveries)),
        *(("cursorback-5.5.0", damage) for damage in (_flag(7), _deliveries)),  # its finals have no REAL_TOPIC beside
    ],
)
def test_a_commit_record_of_the_first_half(
    name: str, damage: Callable[[bytes], tuple[int, bytes]], tmp_path: Path
) -> None:
    """It names offset 0, as what names nothing, so what is damaged made it a half or a message; it was ROLLED_BACK."""
    root = copy_of(name, tmp_path)
    before, _ = states_and_errors(root, name)
    [record] = [
        record for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist()
        if record["sys_flag"] & TRANSACTION_MASK == COMMIT and not record["prepared_transaction_offset"]
    ]
    file, begin = Path(record["file"]), record["position_bytes"]
    data = file.read_bytes()
    place, value = damage(data[begin : begin + record["length_bytes"]])
    file.write_bytes(data[: begin + place] + value + data[begin + place + len(value) :])
    after, errors = states_and_errors(root, name)
    assert "words-contradict" in errors
    identity = dict(record["properties"])["UNIQ_KEY"]
    assert lookup([open_store(root)], settings_of(name), [identity]).table()["state"].to_pylist() == ["UNDECIDABLE"]
    assert {key: (state, after[key]) for key, state in before.items() if after[key] != state} == {
        dict(record["properties"])["UNIQ_KEY"]: ("COMMITTED", "UNDECIDABLE")
    }


def test_an_audit_that_follows_knows_it_too(tmp_path: Path) -> None:
    name = "statetable-3.1.4"
    root = copy_of(name, tmp_path)
    record = records_of(root, PREPARED)[1]
    file, place = Path(record["file"]), record["position_bytes"] + AT["sys_flag"]
    data = file.read_bytes()
    file.write_bytes(data[:place] + bytes(4) + data[place + 4 :])
    Followed([root], tmp_path / "checkpoint", settings_of(name)).assert_finds("redo-entry-mismatch")


#: Single damaged fields that once changed a state in an answer with status 0: store, place in the log, bytes, finding.
FIELDS = [
    ("fifteen-4.4.0", 731 + 17, b"\xa9", "half-unreadable"),  # the end of a real topic
    ("prepared-killed-4.2.0", 12495 + 3, b"\0", "words-contradict"),  # a prepared record with an ordinary flag
    ("rocksdb-queues-killed-5.5.0", 21921, b"\xff" * 4, "record-header"),  # the queue of an op message
    ("upgraded-4.2.0-4.3.0", 453 + 3, b"\7", "words-contradict"),  # the first COMMIT record with a prepared flag
    ("prepared-killed-4.2.0", 488, b"\xff" * 4, "record-header"),  # deliveries of the first COMMIT record
    ("delayed-4.9.7", 2845, b"\xa6" * 192, "words-contradict"),  # all properties of the first COMMIT record
    ("statetable-slave-3.1.4", 79, b"\1", "words-contradict"),  # the log's first record names another one
    ("upgraded-4.2.0-4.3.0", 76, bytes.fromhex("2d612fc403919966"), "words-contradict"),  # the same with a wild number
]


@pytest.mark.parametrize(("name", "position", "data", "code"), FIELDS)
def test_a_field_that_only_a_verification_read(
    tmp_path: Path, name: str, position: int, data: bytes, code: str
) -> None:
    root = copy_of(name, tmp_path)
    assert code not in states_and_errors(root, name)[1]
    write_bytes(root / "commitlog" / ("0" * 20), position, data)
    assert code in states_and_errors(root, name)[1]


@pytest.mark.parametrize("topic", [ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC])
def test_a_record_of_a_system_topic_that_names_a_copy_is_no_commit_record(topic: str, tmp_path: Path) -> None:
    """It has the properties of the half message: the transaction was COMMITTED."""
    root = copy_of(name := "rocksdb-killed-5.4.0", tmp_path)
    before = states_and_errors(root, name)[0]
    records = [one for one in scan_records(open_store(root)).table().to_pylist() if one["topic"] == topic]
    for record in records[:20]:
        write_bytes(Path(record["file"]), record["position_bytes"] + AT["prepared_transaction_offset"], b"\xff" * 8)
    after, errors = states_and_errors(root, name)
    assert "record-header" in errors
    assert {after[key] for key in before if after[key] != before[key]} <= {"UNDECIDABLE"}

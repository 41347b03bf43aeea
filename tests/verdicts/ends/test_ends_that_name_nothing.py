"""An end whose name is damaged ends nothing silently: a finding, no invented transaction, no state but the truth.

Each bit of the name of some ends of each generation is flipped, on stores that real brokers wrote.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.op_messages import TRANS_OFFSET
from rmqtx.readers.log.record_layout import AT, COMMIT, NAME_END, ROLLBACK, TRANSACTION_MASK, VALUE_END
from rmqtx.readers.log.splits import WorkDivision
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_OP_TOPIC, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending, show
from tests.forge.comparing import COLUMNS, flipped
from tests.forge.stores import copy_of, opened, settings_of
from tests.representatives import one_of_each_design, rest_is_slow
from tests.verdicts.following import Followed

Row = dict[str, Any]
ENDS_OF_A_KIND = 2
BITS_OF_AN_END = 10
STORES = (
    "statetable-3.1.4", "statetable-killed-3.1.4", "prepared-3.2.6", "prepared-4.2.0", "upgraded-4.2.0-4.9.7",
    "common-4.3.0", "common-4.9.7", "killed-5.1.4", "common-5.3.3", "common-5.5.0", "dledger-5.1.4", "rocksdb-5.5.0",
    "rocksdb-killed-5.4.0",
)
NAME = "statetable-3.1.4"
#: What the same byte contradicts beside the name: its slot, its entry in the redo log, a field of its header, and how
#: many transactions the table has after the next start (3.1 makes it again from the redo log and these records).
BESIDE = ("redo-entry-mismatch", "table-slot-mismatch", "slot-mismatch", "record-header", "table-remade")


def place_of_name(record: Row) -> range:
    """The bytes of a record's file in which an end names its half; empty where it is no end."""
    kind, place = record["sys_flag"] & TRANSACTION_MASK, record["position_bytes"]
    if record["topic"] == ROCKSDB_OP_TOPIC:
        data = Path(record["file"]).read_bytes()
        begin = data.index(TRANS_OFFSET.encode() + bytes([NAME_END]), place) + len(TRANS_OFFSET) + 1
        return range(begin, data.index(bytes([VALUE_END]), begin))
    if record["topic"] == HALF_TOPIC or not record["prepared_transaction_offset"] or kind not in (COMMIT, ROLLBACK):
        return range(0)
    return range(place + AT["prepared_transaction_offset"], place + AT["prepared_transaction_offset"] + 8)


def ends(root: Path) -> dict[str, list[tuple[Row, range]]]:
    """The ends of a store by kind, with the bytes of their names."""
    found: dict[str, list[tuple[Row, range]]] = {}
    for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist():
        if places := place_of_name(record):
            is_op = record["topic"] == ROCKSDB_OP_TOPIC
            kind = "op" if is_op else str(record["sys_flag"] & TRANSACTION_MASK)
            found.setdefault(kind, []).append((record, places))
    return found


def read(root: Path, name: str) -> tuple[dict[str, Row], list[Finding]]:
    """The verdicts by id, and the findings."""
    reading = audit([open_store(root)], settings_of(name))
    rows = {row["transaction_id"]: row for row in reading.table().to_pylist()}
    return rows, reading.findings


def flips(root: Path) -> Iterator[tuple[Row, int, int]]:
    """An end, a byte of its file, a bit of it; the same at every run."""
    chance = random.Random(root.name)
    for of_kind in ends(root).values():
        for record, places in chance.sample(of_kind, min(ENDS_OF_A_KIND, len(of_kind))):
            bits = [(place, 1 << bit) for place in places for bit in range(8)]
            for place, mask in chance.sample(bits, BITS_OF_AN_END):
                yield record, place, mask


def states_but_the_truth(before: dict[str, Row], after: dict[str, Row]) -> list[str]:
    """What is said of transactions that is neither what it was nor UNDECIDABLE."""
    changed = [
        f"{identity}: {row['state']} -> {now['state'] if (now := after.get(identity)) else 'gone'}"
        for identity, row in before.items()
        if identity not in after or after[identity]["state"] not in (row["state"], "UNDECIDABLE")
    ]
    return changed + [f"invented: {identity}" for identity in after.keys() - before.keys()]


@pytest.mark.parametrize("name", rest_is_slow(one_of_each_design(STORES), slow=2))
def test_a_flipped_bit_in_the_name_of_an_end_is_found_and_ends_nothing_silently(name: str, tmp_path: Path) -> None:
    if name.startswith("rocksdb") and importlib.util.find_spec("rocksdict") is None:
        pytest.skip("rocksdict is not here (pip install rocksdict)")
    root = copy_of(name, tmp_path)
    before, sound = read(root, name)
    known = {finding.line() for finding in sound}
    tried = 0
    for record, place, mask in flips(root):
        with flipped(Path(record["file"]), place, mask):
            after, findings = read(root, name)
        what = f"end at {record['commit_log_offset']}, byte {place} ^ {mask:#x}"
        assert states_but_the_truth(before, after) == [], what
        new = [finding for finding in findings if finding.line() not in known]
        is_same_number = not new and all(after[identity] == row for identity, row in before.items())
        if is_same_number and record["topic"] == ROCKSDB_OP_TOPIC:
            continue  # a digit that became no digit in front of the number: it is the same
        named = {(one.code, one.commit_log_offset) for one in new if one.code not in BESIDE}
        assert named == {("end-names-nothing", record["commit_log_offset"])}, what
        tried += 1
    assert tried >= BITS_OF_AN_END


# ---- what was answered with status 0, and delivered what had been rolled back


def only_rollback(rows: dict[str, Row]) -> tuple[str, Row]:
    """A transaction that one ROLLBACK record alone ended."""
    return next(
        (identity, row) for identity, row in rows.items() if row["state"] == "ROLLED_BACK" and len(row["op_marks"]) == 1
    )


@pytest.fixture
def wounded(tmp_path: Path) -> tuple[Path, str, int]:
    """A store whose ROLLBACK record of one transaction has another bit in its name; its id, and where the end is."""
    root = copy_of(NAME, tmp_path)
    identity, row = only_rollback(read(root, NAME)[0])
    offset = int(row["op_marks"][0]["commit_log_offset"])
    (record,) = (record for some in ends(root).values() for record, _ in some if record["commit_log_offset"] == offset)
    file, place = Path(record["file"]), place_of_name(record)[-2]
    data = bytearray(file.read_bytes())
    data[place] ^= 0x20
    file.write_bytes(data)
    return root, identity, offset


def test_what_a_damaged_rollback_ended_is_undecidable_and_says_why(wounded: tuple[Path, str, int]) -> None:
    root, identity, offset = wounded
    rows, findings = read(root, NAME)
    assert rows.keys() == read(Path(opened(NAME).root), NAME)[0].keys()
    assert rows[identity]["state"] == "UNDECIDABLE"
    assert f"ROLLBACK record at commit-log offset {offset} may have ended it" in rows[identity]["reason"]
    assert [row["state"] for row in rows.values()].count("UNDECIDABLE") == 1
    (finding,) = (one for one in findings if one.code not in BESIDE)
    assert (finding.code, finding.kind.severity) == ("end-names-nothing", "error")
    assert (finding.commit_log_offset, Path(str(finding.file)).parent.name) == (offset, "commitlog")


def test_pending_and_show_know_it_too(wounded: tuple[Path, str, int]) -> None:
    root, identity, _ = wounded
    reading = pending([open_store(root)], settings_of(NAME))
    assert identity not in reading.table()["transaction_id"].to_pylist()
    assert {"end-names-nothing", "undecidable"} <= {finding.code for finding in reading.findings}
    reading = show([open_store(root)], settings_of(NAME), identity)
    assert reading.table()["state"].to_pylist() == ["UNDECIDABLE"]
    assert "end-names-nothing" in {finding.code for finding in reading.findings}


@pytest.mark.parametrize("split_bytes", [700, 7_000])
def test_small_splits_know_it_too(wounded: tuple[Path, str, int], split_bytes: int) -> None:
    root, _, _ = wounded
    whole, findings = read(root, NAME)
    reading = audit([open_store(root)], settings_of(NAME), work=WorkDivision(split_bytes))
    assert sorted(reading.table().to_pylist(), key=str) == sorted(whole.values(), key=str)
    assert [finding.line() for finding in reading.findings] == [finding.line() for finding in findings]


def test_an_audit_that_follows_knows_it_too(wounded: tuple[Path, str, int], tmp_path: Path) -> None:
    root, identity, _ = wounded
    followed = Followed([root], tmp_path / "checkpoint", settings_of(NAME))
    for _ in range(2):
        rows = followed.assert_current().to_pylist()
        assert "end-names-nothing" in {finding.code for finding in followed.last.findings}
        assert {row["transaction_id"]: row["state"] for row in rows}[identity] == "UNDECIDABLE"


def test_an_end_that_no_half_answers_to_may_have_ended_any_of_its_group(tmp_path: Path) -> None:
    """Two bytes of the name and one of the born time are others: nothing tells which half it was."""
    name = "prepared-3.2.6"
    root = copy_of(name, tmp_path)
    before, _ = read(root, name)
    _, row = only_rollback(before)
    offset = int(row["op_marks"][0]["commit_log_offset"])
    (record,) = (record for some in ends(root).values() for record, _ in some if record["commit_log_offset"] == offset)
    file = Path(record["file"])
    data = bytearray(file.read_bytes())
    for place in (*place_of_name(record)[-3:-1], record["position_bytes"] + AT["born_time_ms"] + 7):
        data[place] ^= 0x10
    file.write_bytes(data)
    after, findings = read(root, name)
    assert states_but_the_truth(before, after) == []
    assert [finding.code for finding in findings if finding.code not in BESIDE] == ["end-names-nothing"]
    for identity, now in after.items():
        could_be = (
            now["producer_group"] == row["producer_group"] and before[identity]["state"] == "PENDING"
            and now["half_copies"][0]["commit_log_offset"] < offset
        )
        assert (now["state"] == "UNDECIDABLE") == (could_be or now["transaction_id"] == row["transaction_id"]), now


# ---- decisions on records outside the half topic: their op has the number of a half that nobody decided


def decisions(root: Path) -> list[tuple[Row, range]]:
    """The COMMIT records of a store that name a final or a discard copy, with the bytes of their names."""
    topics = {
        record["commit_log_offset"]: record["topic"]
        for record in scan_records(open_store(root), columns=COLUMNS).table().to_pylist()
    }
    return [
        (record, places) for record, places in ends(root).get(str(COMMIT), [])
        if topics.get(record["prepared_transaction_offset"]) != HALF_TOPIC
    ]


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("name", rest_is_slow(["masked-4.9.7", "masked-4.3.0"], quick=1))
def test_an_op_that_may_be_a_damaged_decisions_rolls_nothing_back(name: str, has_index: bool, tmp_path: Path) -> None:
    root = copy_of(name, tmp_path)
    if not has_index:
        for file in (root / "index").iterdir():
            file.unlink()
    before, _ = read(root, name)
    found = decisions(root)
    assert len(found) >= 2
    for record, places in found:
        with flipped(Path(record["file"]), places[3], 0x40):
            after, findings = read(root, name)
            shown = {
                identity: show([open_store(root)], settings_of(name), identity).table()["state"].to_pylist()
                for identity, row in before.items() if after[identity]["state"] != row["state"]
            }
        assert "end-names-nothing" in {finding.code for finding in findings}
        assert states_but_the_truth(before, after) == [], record["commit_log_offset"]
        assert has_index is False or [row["state"] for row in after.values()].count("UNDECIDABLE") <= 1
        assert all(states == ["UNDECIDABLE"] for states in shown.values())

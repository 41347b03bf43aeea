"""Records before 4.3 with one damaged field of the header, which has no checksum: the others say what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.log.record_layout import COMMIT, RECORD, ROLLBACK
from rmqtx.readers.store.store import open_store
from tests.forge import damage
from tests.forge.records import Message
from tests.verdicts.transactions.test_forged_designs import Old, verdicts

FLAGS, NAME = RECORD.offsets["sys_flag"] + 3, RECORD.offsets["prepared_transaction_offset"] + 7
WANTED = ["PENDING", "COMMITTED", "ROLLED_BACK", "PENDING"]


def forged(root: Path, name: str | None) -> tuple[Path, dict[str, int]]:
    """A store with a transaction of each state, and where its records are."""
    forge = Old(root / "store", segment_bytes=8192)
    forge.append(Message())
    halves = [forge.prepared(name and f"{name}{number}") for number in range(4)]
    places = {"pending": halves[3], "prepared": halves[1]}
    places["commit"] = forge.ended(halves[1], COMMIT)
    places["rollback"] = forge.ended(halves[2], ROLLBACK)
    forge.append(Message())
    return forge.write(half_cursor=None, op_cursor=None), places


@pytest.mark.parametrize(
    ("record", "position", "mask"),
    [
        ("pending", FLAGS, 0x08), ("pending", NAME, 0x01), ("prepared", FLAGS, 0x08), ("prepared", NAME, 0x01),
        ("commit", FLAGS, 0x04), ("commit", FLAGS, 0x08), ("rollback", FLAGS, 0x04), ("rollback", FLAGS, 0x08),
        ("rollback", FLAGS, 0x0C),
    ],
)
@pytest.mark.parametrize(("name", "version"), [(None, "3.2.6"), ("T", "4.2.0")])
def test_one_damaged_field_changes_no_state(
    name: str | None, version: str, record: str, position: int, mask: int, tmp_path: Path
) -> None:
    root, places = forged(tmp_path, name)
    rows = verdicts(open_store(root), version)
    assert [row["state"] for row in rows.values()] == WANTED
    damage.flip_byte(damage.log_files(root)[0], places[record] + position, mask)
    again = verdicts(open_store(root), version)
    assert {one: row["state"] for one, row in again.items()} == {one: row["state"] for one, row in rows.items()}


def test_what_a_consumer_sent_back_decides_nothing(tmp_path: Path) -> None:
    """It keeps flag, name and words of the final that it is a copy of."""
    forge = Old(tmp_path / "store", segment_bytes=8192)
    half = forge.prepared("T")
    words = forge._halves[half].properties
    for flag in (0, COMMIT, ROLLBACK):
        forge.append(Message(topic="%RETRY%audit", properties=words, sys_flag=flag, prepared_transaction_offset=half,
                             reconsume_times=1))
    rows = verdicts(open_store(forge.write(half_cursor=None, op_cursor=None)), "4.2.0")
    assert {one: row["state"] for one, row in rows.items()} == {"T": "PENDING"}


@pytest.mark.parametrize("record", ["commit", "rollback"])
def test_a_decision_that_names_no_record_says_so(record: str, tmp_path: Path) -> None:
    """Without UNIQ_KEY (before 4.0) the name is all that ties the two together."""
    root, places = forged(tmp_path, None)
    damage.flip_byte(damage.log_files(root)[0], places[record] + NAME, 0x01)
    rows = verdicts(open_store(root), "3.2.6")
    assert all(row["half_copies"] for row in rows.values())  # no transaction is made of such a name alone
    reasons = [row["reason"] for row in rows.values() if row["state"] == "UNDECIDABLE"]
    what = f"the {record.upper()} record at commit-log offset {places[record]} may have ended it"
    assert any(what in one for one in reasons)

"""What is wrong near a transaction refuses every act on it; what is wrong elsewhere in its store refuses none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.old_tables.state_table import STATE_SLOT
from rmqtx.readers.store.store import HALF_TOPIC, open_store
from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.changes.execution import Destination
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from tests.forge.stores import copy_of
from tests.repairs.acting import act, medium_of, rows_of

Row = dict[str, Any]
OLD, OLD_VERSION = "statetable-3.1.4", "3.1.4"
NEW, NEW_VERSION = "common-4.9.7", "4.9.7"


def flip(file: Path, place: int, mask: int) -> None:
    """Change some bits of one byte."""
    data = bytearray(file.read_bytes())
    data[place] ^= mask
    file.write_bytes(data)


def log_file(root: Path) -> Path:
    """The only file of a log."""
    (file,) = [file for file in sorted((root / "commitlog").iterdir()) if any(file.read_bytes())]
    return file


def flip_name(root: Path, offset: int) -> None:
    """One bit of what an end names."""
    flip(log_file(root), offset + AT["prepared_transaction_offset"] + 6, 0x20)


def one(rows: dict[str, Row], state: str) -> str:
    """A transaction of a state that is not marked in any way."""
    return next(name for name, row in rows.items() if row["state"] == state and not row["flags"])


def rolled_back(rows: dict[str, Row]) -> tuple[str, int]:
    """A transaction that one record alone ended, and where that stands."""
    return next(
        (name, row["op_marks"][0]["commit_log_offset"]) for name, row in rows.items()
        if row["state"] == "ROLLED_BACK" and len(row["op_marks"]) == 1
    )


def outcome(
    root: Path, version: str, name: str, action: ActKind, journal: Journal, target: Path, *overrides: str
) -> Any:
    """What came of one action on a copy, with its notes."""
    medium = medium_of(root, version, Destination(copy=target))
    (receipt,) = act(medium, journal, {name: action}, Conduct(overrides=overrides))
    return receipt


def test_what_was_rolled_back_is_not_delivered_because_one_bit_flipped(tmp_path: Path, journal: Journal) -> None:
    root = copy_of(OLD, tmp_path / "source")
    name, end = rolled_back(rows_of(root, OLD_VERSION))
    refused = outcome(root, OLD_VERSION, name, ActKind.COMMIT, journal, tmp_path / "sound")
    assert refused.notes[0].startswith("already-decided: ")
    flip_name(root, end)
    for action in (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD):
        refused = outcome(root, OLD_VERSION, name, action, journal, tmp_path / action)
        assert refused.outcome == "refused_by_guard"
        (note,) = refused.notes
        assert note.startswith("evidence-incomplete: ")
        assert f"ROLLBACK record at commit-log offset {end} may have ended it" in note
        assert "rmqtx show" in note
    done = outcome(root, OLD_VERSION, name, ActKind.ROLLBACK, journal, tmp_path / "forced", "evidence-incomplete")
    assert done.outcome != "refused_by_guard"


def test_an_end_that_names_nothing_refuses_no_act_on_others(tmp_path: Path, journal: Journal) -> None:
    root = copy_of(OLD, tmp_path / "source")
    rows = rows_of(root, OLD_VERSION)
    name = one(rows, "PENDING")
    flip_name(root, rolled_back(rows)[1])
    assert outcome(root, OLD_VERSION, name, ActKind.COMMIT, journal, tmp_path / "target").outcome == "proved"


def slot_of(root: Path, prepared_offset: int) -> tuple[Path, int]:
    """Where the state table has the slot of a prepared record."""
    for file in sorted((root / "transaction" / "statetable").iterdir()):
        data = file.read_bytes()
        for place in range(0, len(data), STATE_SLOT.size_bytes):
            if int.from_bytes(data[place : place + 8], "big") == prepared_offset and any(data[place + 8 : place + 12]):
                return file, place
    raise AssertionError(f"no slot is of the prepared record at {prepared_offset}")


@pytest.mark.parametrize("is_own", [True, False])
def test_the_state_table_is_asked(is_own: bool, tmp_path: Path, journal: Journal) -> None:
    """A slot says ROLLBACK of what the log calls pending: its end may have been lost from the log."""
    root = copy_of(OLD, tmp_path / "source")
    rows = rows_of(root, OLD_VERSION)
    names = [name for name, row in rows.items() if row["state"] == "PENDING" and row["state_entries"]]
    own, other = names[0], names[1]
    file, place = slot_of(root, rows[own if is_own else other]["half_copies"][0]["commit_log_offset"])
    flip(file, place + 23, 0x08)  # PREPARED becomes ROLLBACK
    receipt = outcome(root, OLD_VERSION, own, ActKind.COMMIT, journal, tmp_path / "target")
    assert (receipt.outcome == "refused_by_guard") == is_own
    assert is_own == any(note.startswith("evidence-incomplete: ") and "state table" in note for note in receipt.notes)


def half_of(root: Path, row: Row) -> Row:
    """The record of the newest half copy of a transaction."""
    records = {one["commit_log_offset"]: one for one in scan_records(open_store(root)).table().to_pylist()}
    found: Row = records[row["half_copies"][-1]["commit_log_offset"]]
    return found


@pytest.mark.parametrize("action", ["commit", "rollback", "discard"])
@pytest.mark.parametrize("witness", ["queue", "index"])
@pytest.mark.parametrize("is_own", [True, False])
def test_queue_and_index_are_asked(
    witness: str, is_own: bool, action: ActKind, tmp_path: Path, journal: Journal
) -> None:
    root = copy_of(NEW, tmp_path / "source")
    rows = rows_of(root, NEW_VERSION)
    names = [name for name, row in rows.items() if row["state"] == "PENDING" and not row["flags"]]
    name = names[1]
    record = half_of(root, rows[name if is_own else names[0]])
    if witness == "queue":  # the slot's length is another: it still points at its record
        number = record["queue_offset"]
        flip(root / "consumequeue" / HALF_TOPIC / "0" / f"{0:020}", 20 * number + 7, 0x08)
    else:
        file = next(iter(sorted((root / "index").iterdir())))
        offset = record["commit_log_offset"].to_bytes(8, "big")
        data = file.read_bytes()
        for place in [at for at in range(len(data)) if data[at : at + 8] == offset and (at - 44) % 4 == 0]:
            flip(file, place + 7, 0x01)
    receipt = outcome(root, NEW_VERSION, name, action, journal, tmp_path / "target")
    assert (receipt.outcome == "refused_by_guard") == is_own, receipt.notes
    if is_own:
        assert receipt.notes[0].startswith("evidence-incomplete: ")
    else:
        assert receipt.outcome == "proved"

"""The undo file itself: what is torn, changed, mixed or another store's is refused, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx.readers.model.errors import FormatError, StoreChanged, UnreadableFile
from rmqtx.repairs.changes import undo_files
from rmqtx.repairs.changes.execution import execute, resume, undo
from rmqtx.repairs.changes.undo_files import read_undo_file
from tests.repairs.small_store import ROLL_OVER, facts, lay_out_store


def test_a_torn_or_changed_undo_file_is_refused_and_nothing_is_done(store: Path, kept: Path) -> None:
    execute(ROLL_OVER, store, kept)
    whole = kept.read_bytes()
    plan_bytes = whole.rindex(b"stat\0")
    before = facts(store)
    damaged = [whole[:length] for length in range(0, plan_bytes, 97)]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, plan_bytes, 61)]
    damaged += [b"", b"{}", whole[100:], whole[:plan_bytes][::-1]]
    for data in damaged:
        kept.write_bytes(data)
        for act in (undo, resume):
            with pytest.raises(FormatError) as caught:
                act(kept)
            assert "\n" not in str(caught.value)
    assert facts(store) == before
    kept.unlink()
    with pytest.raises(UnreadableFile, match="does not exist"):
        undo(kept)


def test_parts_of_two_undo_files_are_none(tmp_path: Path) -> None:
    files = []
    for name in ("one", "other"):
        execute(ROLL_OVER, lay_out_store(tmp_path / name), tmp_path / f"{name}.undo")
        files.append((tmp_path / f"{name}.undo").read_bytes())
    at = files[0].index(b"prnt\0")
    (tmp_path / "mixed").write_bytes(files[0][:at] + files[1][files[1].index(b"prnt\0") :])
    with pytest.raises(FormatError, match="damaged or was changed"):
        undo(tmp_path / "mixed")


def test_the_undo_file_of_another_store_is_refused(store: Path, kept: Path, tmp_path: Path) -> None:
    execute(ROLL_OVER, store, kept)
    other = lay_out_store(tmp_path / "other")
    before = facts(other)
    with pytest.raises(StoreChanged):
        undo(kept, other, times=False)
    assert facts(other) == before


def test_receipts_have_a_field_of_their_own_and_lines_may_change(
    store: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote the ids only within the lines: these files must still lead to their receipts."""
    first, second = "20261121T112900.123456Z-4f3a9c", "20261121T112900.123457Z-4f3a9d"
    made = execute(ROLL_OVER, store, kept, about=["any sentence"], receipts=[first, second, first])
    assert made.receipts == read_undo_file(kept).receipts == (first, second)
    undo(kept)
    kept.unlink()

    def without_receipts(value: object) -> bytes:
        assert isinstance(value, dict | list)
        is_head = isinstance(value, dict)
        return plain({name: value[name] for name in value if name != "receipts"} if is_head else value)

    plain = undo_files._json
    monkeypatch.setattr(undo_files, "_json", without_receipts)
    lines = [f"commit T1: op at 4096 (receipt {first})", f"commit T1: final at 5120 (receipt {first})"]
    assert execute(ROLL_OVER, store, kept, about=lines, receipts=[second]).receipts == (first,)

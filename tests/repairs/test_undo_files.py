"""The undo file itself: what is torn, changed, mixed or another store's is refused, and nothing is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from readers.model.errors import FormatError, StoreChanged, UnreadableFile
from repairs.changes.execution import execute, resume, undo
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
    with pytest.raises(UnreadableFile, match="is not there"):
        undo(kept)


def test_parts_of_two_undo_files_are_none(tmp_path: Path) -> None:
    files = []
    for name in ("one", "other"):
        execute(ROLL_OVER, lay_out_store(tmp_path / name), tmp_path / f"{name}.undo")
        files.append((tmp_path / f"{name}.undo").read_bytes())
    at = files[0].index(b"prnt\0")
    (tmp_path / "mixed").write_bytes(files[0][:at] + files[1][files[1].index(b"prnt\0") :])
    with pytest.raises(FormatError, match="torn or was changed"):
        undo(tmp_path / "mixed")


def test_the_undo_file_of_another_store_is_refused(store: Path, kept: Path, tmp_path: Path) -> None:
    execute(ROLL_OVER, store, kept)
    other = lay_out_store(tmp_path / "other")
    before = facts(other)
    with pytest.raises(StoreChanged):
        undo(kept, other, times=False)
    assert facts(other) == before

"""Differences of a store since the last state of an undo file: with any, its changes cannot be undone or completed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rmqtx.repairs.changes.apply_edits import differs, not_between
from rmqtx.repairs.changes.edits import Edit, real_file
from rmqtx.repairs.changes.fingerprints import differences, fingerprint
from rmqtx.repairs.changes.undo_files import APPLIED, APPLYING, UNDOING, UndoFile


def differences_since(undo_file: UndoFile, root: Path, *, times: bool) -> list[str]:
    """Return the differences of a store since the last state of an undo file, in a few words each.

    `times`: whether a file whose time has changed counts as changed.
    Raises: UnreadableFile.
    """
    edits = undo_file.edits
    found = differences(undo_file.fingerprint, fingerprint(root, edits), times=times)
    if undo_file.state in (APPLYING, UNDOING):
        return found + [what for edit in edits if (what := not_between(edit, root))]
    forward = undo_file.state == APPLIED
    found += [what for edit in edits if (what := differs(edit, root, forward=forward))]
    if times and not found:
        now = times_of(edits, root)
        found += [
            f"{path} has another time: it was written to, or is a copy"
            for path, time_ns in undo_file.times.items() if now.get(path) != time_ns
        ]
    return found


def times_of(edits: Sequence[Edit], root: Path) -> dict[str, int]:
    """Times of the changed files that exist. Units: nanoseconds."""
    files = {edit.path: real_file(root, edit.path) for edit in edits}
    return {path: file.stat().st_mtime_ns for path, file in files.items() if file.exists()}

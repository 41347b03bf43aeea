"""What an undo file that exists already stands for."""

from __future__ import annotations

import os
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest, FormatError, RmqtxError, UnreadableFile, UnsafeStore
from rmqtx.repairs.changes.in_progress_mark import commands_to_finish
from rmqtx.repairs.changes.undo_files import APPLYING, STATES, UNDOING, read_undo_file


def undo_file_exists(file: Path) -> RmqtxError:
    """Return the error for a new undo file that exists already; it names the commands that finish begun changes."""
    try:
        state = read_undo_file(Path(os.path.realpath(file))).state
    except (FormatError, UnreadableFile):
        return BadRequest(f"{file} exists already", advice="give a new undo file")
    what = f"{file} exists already: {STATES[state]}"
    if state in (APPLYING, UNDOING):
        return UnsafeStore(what, file=file, advice=commands_to_finish(file))
    return BadRequest(what, advice="give a new undo file")

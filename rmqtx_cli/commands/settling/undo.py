"""`rmqtx undo`: undo or complete a change of a store in place."""

from __future__ import annotations

import os
from pathlib import Path

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.model.shell_words import quoted
from rmqtx.repairs.changes import execution
from rmqtx.repairs.changes.undo_files import APPLIED, EDITS, STATES, UNDONE, UndoFile, table
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.recheck import update_receipts
from rmqtx_cli.commands.declared.repair import UndoCommand
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text


def run(options: UndoCommand) -> int:
    """Run the command; return its exit status."""
    listing = Listing(EDITS, view(), options.output.rows, voice=options.voice)
    undo_file, differing = execution.state_and_differences(options.file, options.store, times=not options.ignore_times)
    root = as_text(os.path.realpath(options.store or undo_file.root))
    _say_standing(undo_file, root, options.voice)
    for difference in (
        differing if options.voice.verbose else differing[:_SHOWN_MAX]
    ) if options.dry_run or options.voice.verbose else ():
        say.error(f"changed since: {difference}")
    listing.write(iter(table(undo_file).to_batches()))
    if options.dry_run:
        options.voice.note(f"nothing was done: --dry-run; {_would(undo_file, options.resume, differing)}")
        return exit_status.STALE_PLAN if differing else exit_status.DONE
    is_done = undo_file.state == _goal(options.resume)
    if not differing and not is_done and not options.yes and not _agreed(undo_file, root, options.resume):
        say.line("rmqtx: nothing was done")
        return exit_status.REFUSED_BY_GUARD
    act = execution.resume if options.resume else execution.undo
    act(options.file, options.store, times=not options.ignore_times)
    _update_receipts(undo_file, options.file, options.resume, options.voice)
    if is_done:
        options.voice.note("nothing left to do")
    else:
        _say_changed(root, options.file, options.resume, options.voice)
    return exit_status.DONE


def _say_changed(root: str, file: Path, resume: bool, voice: Voice) -> None:
    if resume:
        voice.note(f"{root}: changes complete; to undo them: rmqtx undo {quoted(str(file))}")
    else:
        voice.note(f"{root}: restored; to redo the changes: rmqtx undo {quoted(str(file))} --resume")


def _update_receipts(undo_file: UndoFile, file: Path, resume: bool, voice: Voice) -> None:
    """Update the receipts of the changes that were undone or redone; a failure here does not touch the files."""
    journal = Journal()
    try:
        updated = update_receipts(undo_file.receipts, undo_file.root, str(file), journal, is_undone=not resume)
    except RmqtxError as error:
        say.error(f"the receipts could not be updated: {error}")
        return
    if updated.count:
        voice.note(f"{count(updated.count, 'receipt')} updated in {journal.path}")
    if updated.missing:
        voice.note(
            f"{count(len(updated.missing), 'receipt')} not found in {journal.path}, first {updated.missing[0]}: look "
            "in the journal of the user who made the change, with rmqtx receipts --recheck --store STORE"
        )


_SHOWN_MAX = 10


def _goal(resume: bool) -> str:
    return APPLIED if resume else UNDONE


def _say_standing(undo_file: UndoFile, root: str, voice: Voice) -> None:
    made = f"{time_text(undo_file.made_time_ms)} by {undo_file.who} with {undo_file.made_by}"
    voice.note(f"{root}: {STATES[undo_file.state]} ({time_text(undo_file.state_time_ms)}); begun at {made}")
    for line in undo_file.about:
        voice.note(f"  {line}")


def _would(undo_file: UndoFile, resume: bool, differing: list[str]) -> str:
    if differing:
        return "the change would be refused"
    if undo_file.state == _goal(resume):
        return "nothing left to do"
    return f"{count(len(undo_file.edits), 'change')} would be {'made' if resume else 'undone'}"


def _agreed(undo_file: UndoFile, root: str, resume: bool) -> bool:
    verb = "make" if resume else "undo"
    return agreed(f"{verb} {count(len(undo_file.edits), 'change')} in {root}")


def view() -> View:
    """Return the view of changes."""
    return View(
        (
            plain("path", ALWAYS), plain("change", ALWAYS), plain("position_bytes", ALWAYS, "at byte"),
            plain("before_bytes", ALWAYS, "bytes before"), plain("after_bytes", ALWAYS, "bytes after"),
        ),
        "no changes",
    )

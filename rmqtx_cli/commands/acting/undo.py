"""`rmqtx undo`: undo or complete a change of a store in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.acting.acting import DryRunOption, YesOption
from rmqtx_cli.commands import Example
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import ReceiptOptions, VoiceOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx.repairs.changes.undo_files import UndoFile
    from rmqtx_cli.output.views import View

NAME = "undo"
EXAMPLES = (
    Example("rmqtx undo before.undo --dry-run", "show what was changed, and whether it can be undone"),
    Example("rmqtx undo before.undo", "restore the files; asks for confirmation"),
    Example("rmqtx undo before.undo --resume", "complete a change that a crash interrupted, or redo it"),
    Example("rmqtx undo before.undo --store /mnt/copy/store --ignore-times", "undo in a copy of the store"),
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Undo file, written by --in-place --undo FILE")]
StoreOption = Annotated[
    Path | None, typer.Option("--store", metavar="STORE", help="Present place of the store, if it was moved or copied")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Complete the changes, or redo them after an undo")
]
IgnoreTimesOption = Annotated[
    bool,
    typer.Option(
        "--ignore-times", help="Ignore modification times, compare names, lengths and contents: for a copy of the store"
    ),
]


@with_option_groups
def command(
    file: FileArgument,
    store: StoreOption = None,
    resume: ResumeOption = False,
    ignore_times: IgnoreTimesOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    *,
    output: ReceiptOptions,
    voice: VoiceOptions,
) -> int:
    """Restore the files of a store to their content before rmqtx changed them in place.

    Refused if a changed byte, or the name, length or time of another file differs from the record in the undo file, for
    example because a broker has run on the store since. The command can be interrupted and repeated at any time.
    --resume makes the changes again. The rows on stdout list the changes.
    """
    from rmqtx.repairs.changes import execution
    from rmqtx.repairs.changes.undo_files import EDITS, table
    from rmqtx_cli.output.listing import Listing

    listing = Listing(EDITS, view(), output.rows, voice=voice)
    undo_file, differing = execution.state_and_differences(file, store, times=not ignore_times)
    root = as_text(os.path.realpath(store or undo_file.root))
    _say_standing(undo_file, root, voice)
    for difference in (differing if voice.verbose else differing[:_SHOWN_MAX]) if dry_run or voice.verbose else ():
        say.error(f"changed since: {difference}")
    listing.write(iter(table(undo_file).to_batches()))
    if dry_run:
        voice.note(f"nothing was done: --dry-run; {_would(undo_file, resume, differing)}")
        return exit_status.STALE_PLAN if differing else exit_status.DONE
    is_done = undo_file.state == _goal(resume)
    if not differing and not is_done and not yes and not _agreed(undo_file, root, resume):
        say.line("rmqtx: nothing was done")
        return exit_status.REFUSED_BY_GUARD
    act = execution.resume if resume else execution.undo
    act(file, store, times=not ignore_times)
    _update_receipts(undo_file, file, resume, voice)
    if is_done:
        voice.note("nothing left to do")
    else:
        _say_changed(root, file, resume, voice)
    return exit_status.DONE


def _say_changed(root: str, file: Path, resume: bool, voice: Voice) -> None:
    if resume:
        voice.note(f"{root}: changes complete; to undo them: rmqtx undo {quoted(str(file))}")
    else:
        voice.note(f"{root}: restored; to redo the changes: rmqtx undo {quoted(str(file))} --resume")


def _update_receipts(undo_file: UndoFile, file: Path, resume: bool, voice: Voice) -> None:
    """Update the receipts of the changes that were undone or redone; a failure here does not touch the files."""
    from rmqtx.repairs.receipts.journal import Journal
    from rmqtx.repairs.receipts.recheck import update_receipts

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
    from rmqtx.repairs.changes.undo_files import APPLIED, UNDONE

    return APPLIED if resume else UNDONE


def _say_standing(undo_file: UndoFile, root: str, voice: Voice) -> None:
    from rmqtx.repairs.changes.undo_files import STATES

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
    from rmqtx_cli.output.views import ALWAYS, View, plain

    return View(
        (
            plain("path", ALWAYS), plain("change", ALWAYS), plain("position_bytes", ALWAYS, "at byte"),
            plain("before_bytes", ALWAYS, "bytes before"), plain("after_bytes", ALWAYS, "bytes after"),
        ),
        "no changes",
    )  # fmt: skip

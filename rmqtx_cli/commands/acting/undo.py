"""`rmqtx undo`: takes back what was changed in the files of a store, or completes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import RmqtxError
from readers.model.findings import as_text
from rmqtx_cli.acting.acting import DryRunOption, YesOption
from rmqtx_cli.commands import Example
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import OutputOptions, VoiceOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from repairs.changes.undo_files import UndoFile
    from rmqtx_cli.output.views import View

NAME = "undo"
SHORT = "take back what was changed in a store's files, or complete it after a crash"
EXAMPLES = (
    Example("rmqtx undo before.undo --dry-run", "what was changed, and could it be taken back?"),
    Example("rmqtx undo before.undo", "the files as they were before; asks first"),
    Example("rmqtx undo before.undo --resume", "complete changes that a crash interrupted, or make them again"),
    Example("rmqtx undo before.undo --store /mnt/copy/store --ignore-times", "in a copy of that store"),
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="An undo file: --in-place --undo FILE wrote it.")]
StoreOption = Annotated[
    Path | None, typer.Option("--store", metavar="STORE", help="Where the store is now, if it was moved or copied.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="The other way: complete the changes, or make them again once undone.")
]
IgnoreTimesOption = Annotated[
    bool,
    typer.Option(
        "--ignore-times", help="Names, lengths and contents count, modification times do not: the store is a copy."
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
    output: OutputOptions,
    voice: VoiceOptions,
) -> int:
    """Bring the files of a store back to what they were before rmqtx changed them in place.

    Every changed byte, every other file's name, length and time must be as the undo file left them: if a broker has run
    on the store since, it is refused. It can be interrupted and repeated at any instant, and --resume takes it back.
    The list on stdout says which files are concerned.
    """
    from repairs.changes import execution
    from repairs.changes.undo_table import EDITS, table
    from rmqtx_cli.output.listing import Listing

    listing = Listing(EDITS, view(), output, voice=voice)
    undo_file, differing = execution.standing(file, store, times=not ignore_times)
    root = as_text(os.path.realpath(store or undo_file.root))
    _say_standing(undo_file, root, voice)
    for difference in differing if voice.verbose else differing[:_SHOWN_MAX]:
        say.error(f"changed since: {difference}")
    listing.write(iter(table(undo_file).to_batches()))
    if dry_run:
        voice.note(f"nothing was done: --dry-run; {_would(undo_file, resume, differing)}")
        return exit_status.STALE_PLAN if differing else exit_status.DONE
    is_done = undo_file.state == _goal(resume)
    if not differing and not is_done and not yes and not _agreed(undo_file, root, resume):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    act = execution.resume if resume else execution.undo
    act(file, store, times=not ignore_times)
    _update_receipts(undo_file, file, resume, voice)
    if is_done:
        voice.note("nothing was left to do")
    else:
        _say_changed(root, file, resume, voice)
    return exit_status.DONE


def _say_changed(root: str, file: Path, resume: bool, voice: Voice) -> None:
    if resume:
        voice.note(f"{root} is changed as planned; rmqtx undo {file} takes it back")
    else:
        voice.note(f"{root} is as it was before; rmqtx undo {file} --resume makes the changes again")


def _update_receipts(undo_file: UndoFile, file: Path, resume: bool, voice: Voice) -> None:
    """Have the receipts of what was taken back, or made again, say so; the files are as they are either way."""
    from repairs.receipts.journal import Journal
    from repairs.receipts.undo_receipts import tell_receipts

    journal = Journal()
    try:
        told = tell_receipts(undo_file.about, undo_file.root, str(file), journal, is_undone=not resume)
    except RmqtxError as error:
        say.error(f"the receipts could not be told: {error}")
        return
    if told.count:
        voice.note(f"{count(told.count, 'receipt')} in {journal.path} told")
    if told.missing:
        voice.note(
            f"{count(len(told.missing), 'receipt')} not in {journal.path}, first {told.missing[0]}: whoever made the "
            "change has the journal (rmqtx receipts --recheck --store STORE)"
        )


_SHOWN_MAX = 10


def _goal(resume: bool) -> str:
    from repairs.changes.undo_files import APPLIED, UNDONE

    return APPLIED if resume else UNDONE


def _say_standing(undo_file: UndoFile, root: str, voice: Voice) -> None:
    from repairs.changes.undo_files import STATES

    made = f"{time_text(undo_file.made_time_ms)} by {undo_file.who} with {undo_file.made_by}"
    voice.note(f"{root}: {STATES[undo_file.state]} ({time_text(undo_file.state_time_ms)}); planned {made}")
    for line in undo_file.about:
        voice.note(f"  {line}")


def _would(undo_file: UndoFile, resume: bool, differing: list[str]) -> str:
    if differing:
        return "it would be refused"
    if undo_file.state == _goal(resume):
        return "there is nothing left to do"
    return f"{count(len(undo_file.edits), 'change')} would be {'made' if resume else 'taken back'}"


def _agreed(undo_file: UndoFile, root: str, resume: bool) -> bool:
    verb = "make" if resume else "take back"
    return agreed(f"{verb} {count(len(undo_file.edits), 'change')} in {root}")


def view() -> View:
    """How the changes are listed."""
    from rmqtx_cli.output.views import ALWAYS, View, plain

    return View(
        (
            plain("path", ALWAYS), plain("change", ALWAYS), plain("position_bytes", ALWAYS, "at byte"),
            plain("before_bytes", ALWAYS, "bytes before"), plain("after_bytes", ALWAYS, "bytes after"),
        ),
        "no changes",
    )  # fmt: skip

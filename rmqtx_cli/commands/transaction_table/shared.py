"""What the verbs on a transaction table have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from readers.model.errors import BadRequest, RmqtxError, UnreadableFile
from rmqtx_cli.words import say
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from repairs.receipts.journal import Journal
    from repairs.transaction_table.plan import TableStep
    from rmqtx_cli.output.views import View
    from rmqtx_cli.words.say import Voice


def text_of(file: Path) -> str:
    """What is in a file.

    Raises: UnreadableFile, BadRequest.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file} is not text") from error


def tell(receipts: Sequence[str], standing: str, reason: str, journal: Journal, voice: Voice) -> None:
    """Have the receipts of an undo file say what became of the rows; the table is as it is either way."""
    from repairs.receipts.recheck import Standing
    from repairs.receipts.undo_receipts import tell_named

    try:
        told = tell_named(receipts, Standing(standing, reason), journal)
    except RmqtxError as error:
        say.error(f"the receipts could not be told: {error}")
        return
    if told.count:
        voice.note(f"{count(told.count, 'receipt')} in {journal.path} told")
    if told.missing:
        voice.note(f"{count(len(told.missing), 'receipt')} not in {journal.path}, first {told.missing[0]}")


def steps_text(steps: Sequence[TableStep]) -> str:
    """How many rows go and come."""
    gone = sum(step.action == "delete" for step in steps)
    return f"{count(gone, 'row')} to delete, {len(steps) - gone} to add"


def steps_view() -> View:
    """The steps of a plan."""
    from rmqtx_cli.output.views import ALWAYS, View, plain

    return View(
        (
            plain("action", ALWAYS), plain("half_commit_log_offset", ALWAYS, "offset"),
            plain("producer_group", ALWAYS, "group", may_be_cut=True), plain("reason", 1, may_be_cut=True),
        ),
        "no row should go or come",
    )  # fmt: skip

"""`rmqtx transaction-table undo`: takes changes of rows back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.acting.acting import YesOption
from rmqtx_cli.commands import Example
from rmqtx_cli.commands.transaction_table.shared import tell, text_of
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.logins import login
from rmqtx_cli.options.options import QuietOption, VerboseOption
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from repairs.receipts.journal import Journal
    from repairs.transaction_table.undo import TableUndo

NAME = "undo"
SHORT = "have the rows as they were before"
EXAMPLES = (Example("rmqtx transaction-table undo rows.undo", "ask, then have the rows as they were"),)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The undo file of rmqtx transaction-table apply.")]


def command(
    file: FileArgument, yes: YesOption = False, verbose: VerboseOption = False, quiet: QuietOption = False
) -> int:
    """Have the rows of a table as they were before a plan was applied, in one transaction of the database.

    Each row must be as it was before, or as the plan had it: where somebody changed one since, nothing is done. It can
    be repeated.
    """
    from repairs.receipts.journal import Journal
    from repairs.transaction_table.changes import undo_steps
    from repairs.transaction_table.undo import read_undo

    voice = Voice(verbose, quiet)
    text = text_of(file)
    undo = read_undo(text, str(file))
    receipts = undo.receipts
    if yes:
        _require_known(undo, Journal())
    asked = f"have {count(len(undo.steps), 'row')} of {undo.address.name} as they were before {file}"
    if not yes and not agreed(asked):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    address, changed = undo_steps(text, str(file), login())
    voice.note(f"{address.name} is as it was before: {count(changed, 'row')} changed back")
    tell(receipts, "undone", f"rmqtx transaction-table undo {file} took it back", Journal(), voice)
    return exit_status.DONE


def _require_known(undo: TableUndo, journal: Journal) -> None:
    """Refuse to log in, unasked, to a database that only an undo file names: it may come from elsewhere.

    Raises: BadRequest.
    """
    if not undo.address.is_server:
        return
    known = {receipt.receipt_id for receipt in journal.read().receipts}
    if not known & set(undo.receipts):
        raise BadRequest(
            f"no receipt in {journal.path} says that {undo.address.name} was changed from here",
            advice="user and password would go to that host: leave --yes out to be asked",
        )

"""`rmqtx transaction-table apply`: makes a plan's changes of rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import StoreChanged, UnwritableFile
from rmqtx_cli.acting.acting import DryRunOption, ReasonOption, YesOption
from rmqtx_cli.commands import Example
from rmqtx_cli.commands.transaction_table.shared import steps_text, tell, text_of
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.logins import login
from rmqtx_cli.options.options import CommitLogOption, QuietOption, VerboseOption
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from repairs.transaction_table.plan import TablePlan

NAME = "apply"
SHORT = "make a plan's changes of rows, all or none"
EXAMPLES = (
    Example("rmqtx transaction-table apply rows.plan --undo rows.undo", "ask, then change the rows"),
    Example("rmqtx transaction-table apply rows.plan --undo rows.undo --dry-run", "does the plan still hold?"),
    Example("rmqtx transaction-table apply rows.plan --undo rows.undo --yes", "after a crash: the same command again"),
)
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan of rmqtx transaction-table plan.")]
UndoOption = Annotated[
    Path, typer.Option("--undo", metavar="FILE", help="Where the rows as they were are kept: a file that is not there.")
]


def command(
    plan: PlanArgument,
    undo: UndoOption,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    commit_log: CommitLogOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Change the rows of a table as a plan says, in one transaction of the database: all, or none.

    The store is read again first, and each row: where the log does not ask for a step any more, or a row is not as it
    was, nothing is done. The rows as they were are in the undo file, and a receipt in the journal, before the first one
    is changed. After an interruption the same command, with the same undo file, completes it.

    The plan names the database: a server is logged in to only after the question, or with --yes, also for --dry-run.
    """
    from repairs.receipts.journal import Journal
    from repairs.transaction_table.changes import AFTER, apply_steps, standing_of_rows, undo_of
    from repairs.transaction_table.plan import read_plan
    from repairs.transaction_table.receipts import TableReceipt
    from repairs.transaction_table.rows import kept_without_transactions

    voice, text, journal = Voice(verbose, quiet), text_of(plan), Journal()
    asked = read_plan(text, str(plan))
    earlier = undo_of(undo, asked.steps, asked.address)
    voice.note(f"{asked.address.name}: {steps_text(asked.steps)}")
    if not yes and not _agreed(asked, dry_run=dry_run):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    if earlier is not None and standing_of_rows(asked.steps, asked.address, login()) == AFTER:
        voice.note(f"{asked.address.name} is as planned already; rmqtx transaction-table undo {undo} takes it back")
        tell(earlier.receipts, "stands", f"rmqtx transaction-table apply {plan} found it done", journal, voice)
        return exit_status.DONE
    _refuse_stale(asked, str(plan), undo, commit_log)
    engine = kept_without_transactions(asked.address, login())
    if engine is not None:
        voice.note(f"{engine} keeps it, which has no transactions: a crash can leave a part of the rows changed")
    if dry_run or not asked.steps:
        voice.note("nothing was done" + (": --dry-run" if dry_run else ""))
        return exit_status.DONE
    journal.prepare()
    if engine is not None and not yes and not agreed("change the rows all the same"):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    act = TableReceipt(journal, asked, file=str(plan), text=text, reason=reason)
    try:
        with act.ended(login()):
            apply_steps(
                asked.steps, asked.address, login(), undo, time.time_ns() // 1_000_000,
                receipts=(act.receipt.receipt_id,), begun=act.begin,
            )  # fmt: skip
    except UnwritableFile as error:
        if not act.is_unknown:
            raise
        say.error(f"{error} - whether the rows are changed is unknown: run the same command again, it looks first")
        return exit_status.UNKNOWN_OUTCOME
    voice.note(f"{asked.address.name} is changed as planned; rmqtx transaction-table undo {undo} takes it back")
    voice.note(f"receipt {act.receipt.receipt_id} is in {journal.path}")
    return exit_status.DONE


def _agreed(asked: TablePlan, *, dry_run: bool) -> bool:
    """Whether the operator says yes. The plan may come from elsewhere, so a server is asked for before it is reached.

    Raises: BadRequest without a terminal to ask on.
    """
    rows = count(len(asked.steps), "row")
    if asked.address.is_server:
        return agreed(
            f"log in to {asked.address.name}" + ("" if dry_run else f" and change {rows}"),
            advice="user and password would go to the server that the plan names: say --yes to log in without asking",
        )
    return dry_run or not asked.steps or agreed(f"change {rows} of {asked.address.name}")


def _refuse_stale(asked: TablePlan, name: str, undo: Path, commit_log: list[str] | None) -> None:
    """Read log and table again.

    Raises: StoreChanged where they do not ask for a step any more; BadRequest for an undo file inside the store.
    """
    from readers.old_tables.transaction_table import read_transaction_table
    from repairs.transaction_table.plan import wanted_changes
    from rmqtx_cli.sources.opening import open_stores, refuse_inside

    store = open_stores([asked.store], commit_log).stores[0]
    refuse_inside(undo, [store])
    now = wanted_changes(store, read_transaction_table(asked.address, store.root, login=login()))
    known = {(step.action, step.half_commit_log_offset, step.producer_group) for step in now.steps}
    lost = [s for s in asked.steps if (s.action, s.half_commit_log_offset, s.producer_group) not in known]
    if lost:
        raise StoreChanged(
            f"{name}: {lost[0].action} {lost[0].half_commit_log_offset} is not what log and table ask for now",
            advice="make the plan again",
        )

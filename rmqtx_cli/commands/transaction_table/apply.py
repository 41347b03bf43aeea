"""`rmqtx transaction-table apply`: makes a plan's changes of rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from readers.errors import StoreChanged
from rmqtx_cli import exit_status, say
from rmqtx_cli.acting import DryRunOption, YesOption
from rmqtx_cli.commands import Example
from rmqtx_cli.commands.transaction_table.shared import agreed, steps_text, text_of
from rmqtx_cli.logins import login
from rmqtx_cli.options import CommitLogOption, QuietOption, VerboseOption
from rmqtx_cli.say import Voice

NAME = "apply"
SHORT = "make a plan's changes of rows, all or none"
EXAMPLES = (
    Example("rmqtx transaction-table apply rows.plan --undo rows.undo", "ask, then change the rows"),
    Example("rmqtx transaction-table apply rows.plan --undo rows.undo --dry-run", "does the plan still hold?"),
)
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan of rmqtx transaction-table plan.")]
UndoOption = Annotated[
    Path, typer.Option("--undo", metavar="FILE", help="Where the rows as they were are kept: a file that is not there.")
]


def command(
    plan: PlanArgument,
    undo: UndoOption,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    commit_log: CommitLogOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Change the rows of a table as a plan says, in one transaction of the database: all, or none.

    The store is read again first, and each row: where the log does not ask for a step any more, or a row is not as it
    was, nothing is done. The rows as they were are in the undo file before the first one is changed.
    """
    from readers.transaction_table import read_transaction_table
    from repairs.table_changes import apply_steps
    from repairs.table_plans import read_plan, wanted_changes
    from rmqtx_cli.opening import open_stores

    voice = Voice(verbose, quiet)
    asked = read_plan(text_of(plan), str(plan))
    opened = open_stores([asked.store], commit_log)
    store = opened.stores[0]
    now = wanted_changes(store, read_transaction_table(asked.address, store.root, login=login()))
    known = {(step.action, step.half_commit_log_offset, step.producer_group) for step in now.steps}
    lost = [s for s in asked.steps if (s.action, s.half_commit_log_offset, s.producer_group) not in known]
    if lost:
        raise StoreChanged(
            f"{plan}: {lost[0].action} {lost[0].half_commit_log_offset} is not what log and table ask for now",
            advice="make the plan again",
        )
    voice.note(f"{asked.address.name}: {steps_text(asked.steps)}")
    if dry_run or not asked.steps:
        voice.note("nothing was done" + (": --dry-run" if dry_run else ""))
        return exit_status.DONE
    if not yes and not agreed(f"change {len(asked.steps)} rows of {asked.address.name}"):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    apply_steps(asked.steps, asked.address, login(), undo, time.time_ns() // 1_000_000)
    voice.note(f"{asked.address.name} is changed as planned; rmqtx transaction-table undo {undo} takes it back")
    return exit_status.DONE

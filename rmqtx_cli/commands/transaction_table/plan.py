"""`rmqtx transaction-table plan`: which rows should go or come."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.commands.transaction_table.shared import steps_text, steps_view
from rmqtx_cli.options.options import CommitLogOption, FieldsOption, FormatOption, QuietOption, VerboseOption
from rmqtx_cli.sources.transaction_tables import DatabaseOptions, with_database_options
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

NAME = "plan"
SHORT = "which rows should go or come, by the log"
EXAMPLES = (
    Example(
        "rmqtx transaction-table plan STORE --transaction-table mysql+pymysql://HOST/DB --plan rows.plan",
        "look at the steps, then apply the plan",
    ),
    Example("rmqtx transaction-table plan STORE --transaction-table export.csv", "of an export: only look"),
)
StoreArgument = Annotated[str, typer.Argument(metavar="STORE", help="Root of the broker's store.")]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Write the steps as a plan that can be applied.")
]


@with_database_options
def command(
    store: StoreArgument,
    plan: PlanOption = None,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    commit_log: CommitLogOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    database: DatabaseOptions,
) -> int:
    """List the rows of a broker's table of open transactions that should go or come, by its log.

    A row should go where the log has its COMMIT or ROLLBACK record, and one should come for each prepared record that
    nothing ended. Of a log with damage no row is added: a decision may be in what cannot be read.
    """
    import pyarrow as pa

    from repairs.transaction_table.plan import TABLE_STEPS, TablePlan, step_rows, wanted_changes
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.port import open_stream
    from rmqtx_cli.sources.opening import consistency, open_stores, refuse_inside

    voice = Voice(verbose, quiet)
    address = database.address
    if address is None or database.is_jdbc:
        advice = "--transaction-table URL, as SQLAlchemy has it"
        raise BadRequest("no table is named that can be read here", advice=advice)
    listing = Listing(TABLE_STEPS, steps_view(), output_format, None, fields, voice=voice)
    opened = open_stores([store], commit_log)
    refuse_inside(plan, opened.stores)
    voice.note(f"{opened.stores[0].root}: {consistency(opened.stores[0])}")
    table = database.read(opened.stores)
    assert table is not None
    found = wanted_changes(opened.stores[0], table)
    voice.findings([*found.findings, *table.findings])
    listing.write(iter(pa.Table.from_pylist(step_rows(found.steps), schema=TABLE_STEPS).to_batches()))
    voice.note(steps_text(found.steps))
    if found.is_damaged:
        voice.note("the log has damage: no row is added, for a decision may be in what cannot be read")
    if found.unknown_count:
        rows = count(found.unknown_count, "row")
        voice.note(f"{rows} more: no prepared record begins there: is it the table of this broker? (rmqtx verify)")
    if plan is not None:
        made = TablePlan(opened.stores[0].root, address, found.steps)
        with open_stream(plan) as stream:
            stream.write(made.text(time.time_ns() // 1_000_000).encode())
        voice.note(f"{plan}: a plan; rmqtx transaction-table apply {plan} --undo FILE makes the changes")
    return exit_status.INCOMPLETE if found.is_damaged else exit_status.DONE

"""`rmqtx decode statetable`: the slots of the state table (3.0, 3.1)."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import Asked, CoverageOption, list_rows
from rmqtx_cli.options import (
    FieldsOption,
    FindingsOption,
    FormatOption,
    LimitOption,
    OutputOption,
    QuietOption,
    StoreArguments,
    VerboseOption,
    WhereOption,
)
from rmqtx_cli.say import Voice

NAME = "statetable"
SHORT = "slots of the state table (3.0, 3.1)"
EXAMPLES = (
    Example("rmqtx decode statetable STORE", "every slot"),
    Example("rmqtx decode statetable STORE --where 'state = PREPARED'", "what a broker of 3.1 asks for"),
)


def command(
    store: StoreArguments,
    where: WhereOption = None,
    limit: LimitOption = None,
    coverage: CoverageOption = False,
    findings: FindingsOption = False,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Decode transaction/statetable: one slot for each prepared record of a broker of 3.0 or 3.1.

    The commit log is the truth: a slot belongs to the prepared record at its commit-log offset, whatever its number.
    """
    from readers.state_table import scan_state_table
    from readers.tables import STATE_TABLE

    asked = Asked(
        store, None, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    return list_rows(asked, "state_table", lambda one, _columns: scan_state_table(one), schema=STATE_TABLE)

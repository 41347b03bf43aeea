"""`rmqtx decode redolog`: the entries of the redo log (3.0, 3.1)."""

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

NAME = "redolog"
SHORT = "entries of the redo log (3.0, 3.1)"
EXAMPLES = (
    Example("rmqtx decode redolog STORE", "every entry"),
    Example("rmqtx decode redolog STORE --where 'half_commit_log_offset = 4711'", "what it knows of a prepared record"),
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
    """Decode transaction/redolog: an entry for each prepared, COMMIT or ROLLBACK record of a broker of 3.0 or 3.1.

    After a crash that broker makes its state table anew from these entries.
    """
    from readers.redo_log import scan_redo_log
    from readers.tables import REDO_LOG

    asked = Asked(
        store, None, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    return list_rows(asked, "redo_log", lambda one, _columns: scan_redo_log(one), schema=REDO_LOG)

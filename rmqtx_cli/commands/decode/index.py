"""`rmqtx decode index`: the entries of index files."""

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

NAME = "index"
SHORT = "every entry of the index files"
EXAMPLES = (
    Example("rmqtx decode index STORE --where 'commit_log_offset = 4711'", "what the index knows of a record"),
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
    """Decode the index: which records a key's hash leads to."""
    from readers.index_scan import scan_entries

    asked = Asked(
        store, None, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    return list_rows(asked, "index_entries", lambda one, _columns: scan_entries(one))

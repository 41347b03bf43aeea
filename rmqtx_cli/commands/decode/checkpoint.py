"""`rmqtx decode checkpoint`: the times and offsets in the checkpoint."""

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

NAME = "checkpoint"
SHORT = "how far things were flushed"
EXAMPLES = (
    Example("rmqtx decode checkpoint STORE", "its values and what they mean"),
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
    """Decode the checkpoint: how far log, queues and index were flushed."""
    from readers.checkpoint import read_checkpoint

    asked = Asked(
        store, None, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    return list_rows(asked, "checkpoint", lambda one, _columns: read_checkpoint(one))

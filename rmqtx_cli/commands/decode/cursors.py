"""`rmqtx decode cursors`: how far consumer groups have come."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import Asked, CoverageOption, equals, list_rows
from rmqtx_cli.options import (
    FieldsOption,
    FindingsOption,
    FormatOption,
    LimitOption,
    OutputOption,
    QuietOption,
    StoreArguments,
    TopicOption,
    VerboseOption,
    WhereOption,
)
from rmqtx_cli.say import Voice

NAME = "cursors"
SHORT = "how far consumer groups and the check are"
EXAMPLES = (
    Example("rmqtx decode cursors STORE", "every cursor"),
    Example("rmqtx decode cursors STORE --where 'group = CID_RMQ_SYS_TRANS'", "where the transaction check stands"),
)


def command(
    store: StoreArguments,
    topic: TopicOption = None,
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
    """Decode config/consumerOffset.json: how far each consumer group, and the check, has come."""
    from readers.cursors import read_cursors

    asked = Asked(
        store, None, where, fields, limit, output_format, output, coverage, findings, Voice(verbose, quiet)
    )
    return list_rows(asked, "cursors", lambda one, _columns: read_cursors(one), conditions=(equals("topic", topic),))

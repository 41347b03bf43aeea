"""`rmqtx decode epochs`: the epochs of a replica under a controller."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import Asked, list_rows
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

NAME = "epochs"
SHORT = "epochs of a controller's replica (5.0.0+)"
EXAMPLES = (Example("rmqtx decode epochs STORE", "from which offset on each master wrote"),)


def command(
    store: StoreArguments,
    where: WhereOption = None,
    limit: LimitOption = None,
    findings: FindingsOption = False,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Decode epochFileCheckpoint: from which commit-log offset on each master of a replica's group wrote."""
    from readers.epoch_file import read_epochs
    from readers.tables import EPOCHS

    asked = Asked(store, None, where, fields, limit, output_format, output, False, findings, Voice(verbose, quiet))
    return list_rows(asked, "epochs", lambda one, _columns: read_epochs(one), schema=EPOCHS)

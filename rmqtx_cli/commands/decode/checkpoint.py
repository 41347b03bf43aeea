"""`rmqtx decode checkpoint`: the times and offsets in the checkpoint."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows, with_rows_options
from rmqtx_cli.options.options import StoreArguments

NAME = "checkpoint"
SHORT = "how far things were flushed"
EXAMPLES = (
    Example("rmqtx decode checkpoint STORE", "its values and what they mean"),
)


@with_rows_options
def command(store: StoreArguments, *, rows: RowsOptions) -> int:
    """Decode the checkpoint: how far log, queues and index were flushed."""
    from readers.store.checkpoint import read_checkpoint

    return list_rows(rows.of(store), "checkpoint", lambda one, _columns: read_checkpoint(one))

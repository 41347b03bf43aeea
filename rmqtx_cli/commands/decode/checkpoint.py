"""`rmqtx decode checkpoint`: times and offsets in the checkpoint."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, VoiceOptions

NAME = "checkpoint"
SHORT = "how far log, queues and index were flushed"
EXAMPLES = (
    Example("rmqtx decode checkpoint STORE", "its values"),
    Example("rmqtx decode checkpoint STORE --format json", "for a script"),
)


@with_option_groups
def command(store: StoreArguments, *, rows: RowsOptions, voice: VoiceOptions) -> int:
    """Decode the checkpoint: up to which time log, queues and index were flushed."""
    from rmqtx.readers.store.checkpoint import read_checkpoint

    return list_rows(rows.of(store, voice), "checkpoint", lambda one, _columns: read_checkpoint(one))

"""`rmqtx decode epochs`: the epochs of a replica under a controller."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import UncoveredRowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, VoiceOptions

NAME = "epochs"
SHORT = "epochs of a controller's replica (5.0.0+)"
EXAMPLES = (
    Example("rmqtx decode epochs STORE", "begin offset of each epoch"),
    Example("rmqtx decode epochs STORE --format json", "for a script"),
)


@with_option_groups
def command(store: StoreArguments, *, rows: UncoveredRowsOptions, voice: VoiceOptions) -> int:
    """Decode epochFileCheckpoint: the commit-log offset at which each master of the replica group began to write."""
    from rmqtx.readers.model.tables import EPOCHS
    from rmqtx.readers.store.epoch_file import read_epochs

    return list_rows(rows.of(store, voice), "epochs", lambda one, _columns: read_epochs(one), schema=EPOCHS)

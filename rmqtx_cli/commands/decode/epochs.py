"""`rmqtx decode epochs`: the epochs of a replica under a controller."""

from __future__ import annotations

from rmqtx.readers.model.tables import EPOCHS
from rmqtx.readers.store.epoch_file import read_epochs
from rmqtx_cli.commands.declared.decode import DecodeEpochs
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeEpochs) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(options.rows, options.store, options.voice), "epochs", lambda one, _columns: read_epochs(one),
        schema=EPOCHS,
    )

"""`rmqtx decode checkpoint`: times and offsets in the checkpoint."""

from __future__ import annotations

from rmqtx.readers.store.checkpoint import read_checkpoint
from rmqtx_cli.commands.declared.decode import DecodeCheckpoint
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeCheckpoint) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(options.rows, options.store, options.voice), "checkpoint", lambda one, _columns: read_checkpoint(one)
    )

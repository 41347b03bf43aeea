"""`rmqtx decode cursors`: cursors of the consumer groups."""

from __future__ import annotations

from rmqtx.readers.cursors.cursors import read_cursors
from rmqtx_cli.commands.declared.decode import DecodeCursors
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeCursors) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(
            options.rows, options.store, options.voice
        ), "cursors", lambda one, _columns: read_cursors(one), named={"--topic": ("topic", options.topic)}
    )

"""`rmqtx decode statetable`: the slots of the state table (3.0, 3.1)."""

from __future__ import annotations

from rmqtx.readers.model.tables import STATE_TABLE
from rmqtx.readers.old_tables.state_table import scan_state_table
from rmqtx_cli.commands.declared.decode import DecodeStatetable
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeStatetable) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(
            options.rows, options.store, options.voice
        ), "state_table", lambda one, _columns: scan_state_table(one), schema=STATE_TABLE
    )

"""`rmqtx decode redolog`: the entries of the redo log (3.0, 3.1)."""

from __future__ import annotations

from rmqtx.readers.model.tables import REDO_LOG
from rmqtx.readers.old_tables.redo_log import scan_redo_log
from rmqtx_cli.commands.declared.decode import DecodeRedolog
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeRedolog) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(options.rows, options.store, options.voice), "redo_log", lambda one, _columns: scan_redo_log(one),
        schema=REDO_LOG,
    )

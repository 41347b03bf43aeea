"""`rmqtx decode index`: the entries of index files."""

from __future__ import annotations

from rmqtx.readers.index.index_scan import scan_entries
from rmqtx_cli.commands.declared.decode import DecodeIndex
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeIndex) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(options.rows, options.store, options.voice), "index_entries", lambda one, _columns: scan_entries(one)
    )

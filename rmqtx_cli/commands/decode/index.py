"""`rmqtx decode index`: the entries of index files."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, VoiceOptions

NAME = "index"
SHORT = "entries of the index files"
EXAMPLES = (
    Example("rmqtx decode index STORE --where 'commit_log_offset = 4711'", "the entries of one record"),
    Example("rmqtx decode index STORE --coverage", "decoded, filler, damaged and unread bytes of each file"),
)


@with_option_groups
def command(store: StoreArguments, *, rows: RowsOptions, voice: VoiceOptions) -> int:
    """Decode the entries of the index: the hash of a key and the record that has it."""
    from rmqtx.readers.index.index_scan import scan_entries

    return list_rows(rows.of(store, voice), "index_entries", lambda one, _columns: scan_entries(one))

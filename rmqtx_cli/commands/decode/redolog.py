"""`rmqtx decode redolog`: the entries of the redo log (3.0, 3.1)."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, VoiceOptions

NAME = "redolog"
SHORT = "entries of the redo log (3.0, 3.1)"
EXAMPLES = (
    Example("rmqtx decode redolog STORE", "all entries"),
    Example("rmqtx decode redolog STORE --where 'half_commit_log_offset = 4711'", "the entries of one prepared record"),
)


@with_option_groups
def command(store: StoreArguments, *, rows: RowsOptions, voice: VoiceOptions) -> int:
    """Decode transaction/redolog of 3.0 and 3.1: an entry for each prepared, COMMIT or ROLLBACK record.

    After a crash the broker rebuilds its state table from these entries.
    """
    from rmqtx.readers.model.tables import REDO_LOG
    from rmqtx.readers.old_tables.redo_log import scan_redo_log

    return list_rows(rows.of(store, voice), "redo_log", lambda one, _columns: scan_redo_log(one), schema=REDO_LOG)

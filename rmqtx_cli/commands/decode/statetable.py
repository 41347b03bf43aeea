"""`rmqtx decode statetable`: the slots of the state table (3.0, 3.1)."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, VoiceOptions

NAME = "statetable"
SHORT = "slots of the state table (3.0, 3.1)"
EXAMPLES = (
    Example("rmqtx decode statetable STORE", "all slots"),
    Example("rmqtx decode statetable STORE --where 'state = PREPARED'", "the transactions that a broker of 3.1 checks"),
)


@with_option_groups
def command(store: StoreArguments, *, rows: RowsOptions, voice: VoiceOptions) -> int:
    """Decode transaction/statetable of 3.0 and 3.1: one slot for each prepared record.

    A slot belongs to the prepared record at its commit-log offset, whatever the slot's number.
    """
    from rmqtx.readers.model.tables import STATE_TABLE
    from rmqtx.readers.old_tables.state_table import scan_state_table

    return list_rows(
        rows.of(store, voice), "state_table", lambda one, _columns: scan_state_table(one), schema=STATE_TABLE
    )

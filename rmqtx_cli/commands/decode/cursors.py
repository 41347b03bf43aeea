"""`rmqtx decode cursors`: cursors of the consumer groups."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, TopicOption, VoiceOptions

NAME = "cursors"
SHORT = "cursors of the consumer groups and of the check"
EXAMPLES = (
    Example("rmqtx decode cursors STORE", "all cursors"),
    Example("rmqtx decode cursors STORE --where 'group = CID_RMQ_SYS_TRANS'", "cursors of the transaction check"),
)


@with_option_groups
def command(store: StoreArguments, topic: TopicOption = None, *, rows: RowsOptions, voice: VoiceOptions) -> int:
    """Decode the cursors of the consumer groups and of the check.

    They are in config/consumerOffset.json, or where the broker keeps them instead (enableLmq, RocksDB).
    """
    from rmqtx.readers.cursors.cursors import read_cursors

    return list_rows(
        rows.of(store, voice), "cursors", lambda one, _columns: read_cursors(one), named={"--topic": ("topic", topic)}
    )

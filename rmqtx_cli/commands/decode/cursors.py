"""`rmqtx decode cursors`: how far consumer groups have come."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import RowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, TopicOption, VoiceOptions

NAME = "cursors"
SHORT = "how far consumer groups and the check are"
EXAMPLES = (
    Example("rmqtx decode cursors STORE", "every cursor"),
    Example("rmqtx decode cursors STORE --where 'group = CID_RMQ_SYS_TRANS'", "where the transaction check stands"),
)


@with_option_groups
def command(store: StoreArguments, topic: TopicOption = None, *, rows: RowsOptions, voice: VoiceOptions) -> int:
    """Decode how far each consumer group, and the check, has come: config/consumerOffset.json, or what the broker keeps
    instead of it (enableLmq, RocksDB).
    """
    from readers.cursors.cursors import read_cursors

    return list_rows(
        rows.of(store, voice), "cursors", lambda one, _columns: read_cursors(one), named={"--topic": ("topic", topic)}
    )

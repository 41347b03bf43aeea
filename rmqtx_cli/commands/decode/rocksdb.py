"""`rmqtx decode rocksdb`: the transactions that a broker keeps in RocksDB."""

from __future__ import annotations

from rmqtx_cli.commands import Example
from rmqtx_cli.commands.decode.shared import UncoveredRowsOptions, list_rows
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import StoreArguments, TopicOption, VoiceOptions

NAME = "rocksdb"
SHORT = "open transactions in RocksDB (5.4.0+)"
EXAMPLES = (
    Example("rmqtx decode rocksdb STORE", "all open transactions in the database, with their checks"),
    Example("rmqtx decode rocksdb STORE --where 'checks_count > 10'", "transactions with more than 10 checks"),
)


@with_option_groups
def command(
    store: StoreArguments, topic: TopicOption = None, *, rows: UncoveredRowsOptions, voice: VoiceOptions
) -> int:
    """Decode the column family trans of rocksdbstore/: the transactions that the broker will check.

    The database of a running or killed broker can be behind the commit log, so `rmqtx pending` uses the log. Needs the
    extra rocksdb.
    """
    from rmqtx.readers.model.tables import ROCKSDB_TRANSACTIONS
    from rmqtx.readers.rocksdb.rocksdb_transactions import read_rocksdb_transactions

    return list_rows(
        rows.of(store, voice), "rocksdb_transactions", lambda one, _columns: read_rocksdb_transactions(one),
        named={"--topic": ("topic", topic)}, schema=ROCKSDB_TRANSACTIONS,
    )  # fmt: skip

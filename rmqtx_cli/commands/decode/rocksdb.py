"""`rmqtx decode rocksdb`: the transactions that a broker keeps in RocksDB."""

from __future__ import annotations

from rmqtx.readers.model.tables import ROCKSDB_TRANSACTIONS
from rmqtx.readers.rocksdb.rocksdb_transactions import read_rocksdb_transactions
from rmqtx_cli.commands.declared.decode import DecodeRocksdb
from rmqtx_cli.commands.decode.shared import asked_of, list_rows


def run(options: DecodeRocksdb) -> int:
    """Run the command; return its exit status."""
    return list_rows(
        asked_of(
            options.rows, options.store, options.voice
        ), "rocksdb_transactions", lambda one, _columns: read_rocksdb_transactions(one),
        named={"--topic": ("topic", options.topic)}, schema=ROCKSDB_TRANSACTIONS,
    )  # fmt: skip

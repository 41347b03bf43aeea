"""Records that settle a half message by its commit-log offset: ROLLBACK records (before 4.3), op messages for RocksDB.

They contain the transaction's identity, so they can be assigned even if the half message has expired.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import record_columns
from rmqtx.readers.log.prepared_records import prepared_names
from rmqtx.readers.log.properties import REAL_TOPIC, TRANSACTION_ID
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import integers
from rmqtx.readers.model.tables import FINALS, MARKS
from rmqtx.readers.store.store import ROCKSDB_OP_TOPIC

#: Property of an op message of a transaction in RocksDB: the commit-log offset of the half message. Source:
#: docs/formats/rocksdb_transactions.md#records.
TRANS_OFFSET = "TRANS_OFFSET"

_HEADER = ("store", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms")
_WORDS = ("born_time_ms", "transaction_id", "producer_group", "keys")
#: Marks with the identity of their transaction. `topic` is the record's topic; without UNIQ_KEY, `lone_prepared_id` and
#: `fingerprint` are the message id of the prepared record.
OFFSET_MARKS = pa.schema(
    [
        *(FINALS.field(name) for name in _HEADER),
        MARKS.field("half_commit_log_offset"),
        *(FINALS.field(name) for name in _WORDS),
        pa.field("real_topic", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("lone_prepared_id", pa.string()),
    ]
)


def rollback_marks(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are ROLLBACK records, as rows of OFFSET_MARKS."""
    columns = _columns(block, store)
    names = pa.nulls(len(block), pa.string())
    alone = np.flatnonzero(np.asarray(columns["transaction_id"].is_null()))
    if len(alone):
        places = np.full(len(block), -1, np.int64)
        places[alone] = np.arange(len(alone))
        names = prepared_names(block.take(alone)).take(pa.array(places, mask=places < 0))
    columns |= {
        "half_commit_log_offset": pa.array(block.header("prepared_transaction_offset")),
        "real_topic": columns["topic"], "fingerprint": names, "lone_prepared_id": names,
    }
    return _batch(columns)


def rocksdb_marks(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are op messages of transactions in RocksDB, as rows of OFFSET_MARKS.

    Damage: an op message without a readable TRANS_OFFSET has null.
    """
    columns = _columns(block, store)
    none = pa.nulls(len(block), pa.string())
    columns |= {
        "half_commit_log_offset": integers(block.properties.text(TRANS_OFFSET), pa.int64()),
        "born_time_ms": pa.nulls(len(block), pa.int64()),  # the record has the op message's time, not the transaction's
        "transaction_id": block.properties.text(TRANSACTION_ID),
        "real_topic": block.properties.text(REAL_TOPIC), "fingerprint": none, "lone_prepared_id": none,
    }
    return _batch(columns)


def _columns(block: Block, store: str) -> dict[str, pa.Array]:
    names = [*_HEADER, *_WORDS]
    return dict(zip(names, record_columns(block, store, names), strict=True))


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name] for name in OFFSET_MARKS.names], schema=OFFSET_MARKS)


def is_rocksdb_mark(marks: pa.Table) -> pa.ChunkedArray:
    """Return which rows of OFFSET_MARKS are op messages; the others are ROLLBACK records."""
    return pc.equal(marks["topic"], ROCKSDB_OP_TOPIC)


def as_marks(marks: pa.Table) -> pa.Table:
    """Return rows of OFFSET_MARKS as rows of MARKS: no half queue offset, no repetition."""
    count = marks.num_rows
    more = {
        "half_queue_offset": pa.nulls(count, pa.int64()), "repetition": pa.array(np.zeros(count, np.int32)),
    }
    return pa.Table.from_arrays(
        [more[name] if name in more else marks[name] for name in MARKS.names], schema=MARKS
    )

"""Records of the designs before 4.3: prepared, COMMIT and ROLLBACK records in the real topic, told by the system flag.

A prepared record (type 4) has the body; a decision appends a COMMIT record with a copy of it, or a ROLLBACK record
(type 12) without a body, both naming the prepared record by its commit-log offset, of which 0 is one. Brokers 3.0 and
3.1 number prepared records by the slot of their state table, 3.2 to 4.2 by 0. (docs/formats/state_table.md#records,
docs/formats/prepared_records.md#end.)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from readers.log.properties import HALF_MARK, PRODUCER_GROUP, REAL_TOPIC
from readers.log.record_block import Block
from readers.log.record_layout import COMMIT, PREPARED, ROLLBACK, TRANSACTION_MASK
from readers.model.columns import Bools, Int64s
from readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    WAITING_TOPICS,
)

#: What `CommitLog` of 4.3 and later never writes with a prepared or rollback type: the type is taken off.
_LATER_TOPICS = (HALF_TOPIC, OP_TOPIC, DISCARD_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, *WAITING_TOPICS)
#: Property of the cluster's name, which later brokers put on every message: 4.9.7 and 5.x do, 4.2.0 to 4.4.0 do not.
CLUSTER = "CLUSTER"


def is_prepared(block: Block) -> Bools:
    """Prepared records of the designs before 4.3.

    The header has no CRC, so no field of it decides alone: such a record has a producer's words and a body, and mostly
    names no other record; of flags and name one may be damaged.
    """
    kinds, named = _kinds_and_names(block)
    has_body = block.body_lengths > 0
    found: Bools = (kinds == PREPARED) & (has_body | ~named)
    found |= (kinds == ROLLBACK) & has_body & ~named
    return _of_old_design(block, found, may_be_unreadable=(kinds == PREPARED) & has_body & ~named)


def is_rollback(block: Block) -> Bools:
    """ROLLBACK records of the designs before 4.3: without a body, which clients send no message without."""
    kinds, named = _kinds_and_names(block)
    has_body = block.body_lengths > 0
    certain = (kinds == ROLLBACK) & ~has_body
    found = _of_old_design(block, certain | (named & ~has_body), certain & named)
    rows = np.flatnonzero(found & ~certain)
    if len(rows):
        found[rows] = block.take(rows).properties.locate(HALF_MARK)[2]
    return found


def _kinds_and_names(block: Block) -> tuple[Int64s, Bools]:
    """The type of each record by its flags, and whether it names another."""
    named: Bools = block.header("prepared_transaction_offset") != 0
    kinds: Int64s = block.sys_flag & TRANSACTION_MASK
    return kinds, named


def _of_old_design(
    block: Block, found: Bools, sure: Bools | None = None, may_be_unreadable: Bools | None = None
) -> Bools:
    """Those of some records that a producer's words are on, and no topic that later brokers keep transactions in.

    `sure`: those that need no words, which may be damaged: what they are is in several fields of the header.
    `may_be_unreadable`: those that need none where their properties are not names and values.
    """
    rows = np.flatnonzero(found)
    if len(rows):
        alone = block.take(rows)
        own = alone.properties.locate(PRODUCER_GROUP)[2] | alone.properties.locate(HALF_MARK)[2]
        if sure is not None:
            own = own | sure[rows]
        if may_be_unreadable is not None and not own.all():
            own = own | (may_be_unreadable[rows] & alone.properties.malformed())
        own &= alone.data[alone.topic_starts] != ord("%")  # %RETRY%, %DLQ%: what consumers sent back
        for topic in _LATER_TOPICS:
            own &= ~alone.topic_is(topic)
        found[rows] = own
    return found


def prepared_names(alone: Block) -> pa.Array:
    """What records without UNIQ_KEY are known by: the offset message id of their prepared record.

    Null for records of later designs. A COMMIT record of 4.3 to 5.3.3 keeps REAL_TOPIC, and a later one the cluster's
    name.
    """
    kinds = alone.sys_flag & TRANSACTION_MASK
    prepared = is_prepared(alone)
    names = (kinds == COMMIT) | (alone.header("prepared_transaction_offset") != 0)
    naming = is_rollback(alone) | (
        ~prepared & names & ~alone.properties.locate(REAL_TOPIC)[2] & ~alone.properties.locate(CLUSTER)[2]
    )
    known = prepared | naming
    if not known.any():
        return pa.nulls(len(alone), pa.string())
    offsets = np.where(prepared, alone.commit_log_offsets, alone.header("prepared_transaction_offset"))
    places = np.where(known, np.arange(len(alone)), -1)
    return alone.message_ids_of(offsets).take(pa.array(places, mask=~known))

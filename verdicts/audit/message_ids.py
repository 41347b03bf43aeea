"""Whether a record has an offset message id: its store host and its offset, not its offset alone.

An offset message id has the address of the broker that stored the record. Each young broker has a record at the first
offsets, so an id of another broker leads to a record here too. A moved store keeps the old address in its records, so
the id is compared with the record, and not with any configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_head import HEADER_BYTES_MAX, number_at, place_of
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.identities import OFFSET_DIGITS, offset_of
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store


def stores_of_message_id(stores: Sequence[Store], identity: str) -> frozenset[str]:
    """Return the roots of the stores with a record, sound or damaged, that has this offset message id."""
    offset = offset_of(identity)
    if offset is None:
        return frozenset()
    found: set[str] = set()
    for store in stores:
        with closing(store.log()) as log:
            if _has_id(log, offset, identity.upper()):
                found.add(store.root)
    return frozenset(found)


def other_id_words(stores: Sequence[Store], identity: str) -> str:
    """Return a clause about the records at the offset of a message id that have another id; empty without any."""
    offset, found = offset_of(identity), ""
    for store in stores if offset is not None else ():
        assert offset is not None
        with closing(store.log()) as log:
            own = _own_id(log, offset)
        if own is not None and own != identity.upper():
            found += other_id_clause(offset, own, store.root)
    return found


def other_id_clause(offset: int, own: str, where: str) -> str:
    """Return a clause about a record with another message id than the given one, which has the same offset."""
    return f"; the record at commit-log offset {offset} in {where} has the id {own}: this id names another broker"


def _own_id(log: SegmentedLog, offset: int) -> str | None:
    try:
        block = block_at(log, offset)
    except SourceError:
        return None
    return None if block is None else str(block.message_ids()[0])


def _has_id(log: SegmentedLog, offset: int, identity: str) -> bool:
    own = _own_id(log, offset)
    if own is not None:
        return own == identity
    # A damaged record still has its host.
    try:
        head = log.read(offset, HEADER_BYTES_MAX) if log.segment_at(offset) is not None else b""
    except SourceError:
        return False
    begin = place_of("store_address", number_at(head, "sys_flag"))
    host = bytes.fromhex(identity[:-OFFSET_DIGITS])
    return len(head) >= begin + len(host) and head[begin : begin + len(host)] == host

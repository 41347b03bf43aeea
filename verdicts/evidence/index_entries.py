"""Entries of the index for the records of some transactions, and whether the records have the keys of their entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.index.index_search import Index
from rmqtx.readers.index.record_keys import key_pairs, tag_pairs, typed_id_pairs, unique_key_pairs
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s, are_among
from rmqtx.readers.model.java_hashes import column_key_hashes
from rmqtx.verdicts.evidence.derived_trust import Untrusted

#: Hashes in the index are not negative.
_HASH_BITS = 31


class Entries(NamedTuple):
    """Entries of the index: the commit-log offset of the record, and the hash of the key."""

    offsets: Int64s
    hashes: Int64s


def entries_of(index: Index, keys: Sequence[tuple[str | pa.Array, pa.Array]]) -> Entries:
    """Return the entries that the index has for names in topics; the index is read once for all.

    `keys`: topics and names; one topic for all names, or one for each.
    """
    separators = ("#", "#U#") if index.has_typed_ids else ("#",)
    hashes = np.concatenate([
        column_key_hashes(pc.binary_join_element_wise(topics, names, separator)).astype(np.int64)
        for topics, names in keys for separator in separators
    ])
    numbers, offsets = index.find_hashes(hashes)
    return Entries(offsets, hashes[numbers])


def _packed(places: Int64s, offsets: Int64s, hashes: Int64s) -> Int64s:
    """Pack pairs of offset and hash into numbers; `places`: all existing offsets, ascending."""
    packed: Int64s = np.searchsorted(places, offsets) << _HASH_BITS | hashes
    return packed


def require_keys(block: Block, offsets: Int64s, hashes: Int64s) -> None:
    """Require that records have the keys under which the index has them: it was built from the original records."""
    places = block.commit_log_offsets
    wanted = _packed(places, offsets, hashes)
    wanted = wanted[~are_among(wanted, _packed(places, *unique_key_pairs(block)))]
    if not len(wanted):
        return
    rest = block.take(np.unique(wanted >> _HASH_BITS))
    for pairs in (key_pairs, tag_pairs, typed_id_pairs):  # tags are in the index from 5.5.0 on
        wanted = wanted[~are_among(wanted, _packed(places, *pairs(rest)))]
    if not len(wanted):
        return
    offset = int(places[wanted[0] >> _HASH_BITS])
    raise Untrusted(f"the record at commit-log offset {offset} does not have the key that it has in the index")

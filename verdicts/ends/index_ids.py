"""Ids that only one record has, compared with the index, which has every record under the id that the broker stored.

No checksum covers a property. An id in two records is sound; an id in a single record may have a flipped bit, which
invents a transaction and hides another. The index has the hash of the true id for the record's place. An entry counts
only if its own chain leads to it; otherwise the index is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.index.index import ENTRY, IndexFile
from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.index.record_keys import explained_entries
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import JUDGED_HALVES
from rmqtx.readers.model.columns import Int64s, rows_in_order
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.identities import UInt64s
from rmqtx.readers.model.java_hashes import column_key_hashes
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.model.verdict_inputs import DoubtfulId

#: If more records of a split contradict the index, the index belongs to another log.
_SUSPECTS_MAX = 1000
_INDEXED = ("halves", "finals", "discards")
#: Witnesses with an id that are not in the index.
_NOT_INDEXED = ("offset_marks",)


def doubtful_ids(
    store: Store, batches: Mapping[str, Sequence[pa.RecordBatch]], hashes: Mapping[str, UInt64s]
) -> list[DoubtfulId]:
    """Return the witnesses of one split with an id that no other witness has, if the index has another id for them.

    `batches`: the witnesses by kind. `hashes`: those of their identities, all batches of a kind together.
    Order: commit-log offset.
    Damage: an index that cannot be read contradicts nothing; a remote one is not read.
    """
    return [] if store.is_remote or not store.index_files else contradicted_ids(store, _lone(batches, hashes))


def contradicted_ids(store: Store, rows: pa.Table) -> list[DoubtfulId]:
    """Return the records for which the index has another id.

    `rows`: commit_log_offset, topic and transaction_id of each, in the order of the log.
    Order: commit-log offset.
    Damage: an index that cannot be read contradicts nothing; a remote one is not read.
    """
    if store.is_remote or not store.index_files or not rows.num_rows:
        return []
    try:
        with store.log() as log:
            index = open_index(store)
            suspects = _suspects(index, rows)
            return [one for block in blocks_at(log, suspects) for one in _examined(store, index, block)]
    except SourceError:
        return []  # reported where the index is searched or verified


def _lone(batches: Mapping[str, Sequence[pa.RecordBatch]], hashes: Mapping[str, UInt64s]) -> pa.Table:
    """The half copies, finals and discard copies whose identity no other witness has."""
    schema = pa.schema([JUDGED_HALVES.field(name) for name in ("commit_log_offset", "topic", "transaction_id")])
    numbers = np.concatenate([hashes[name] for name in (*_INDEXED, *_NOT_INDEXED)])
    order = np.argsort(numbers)
    in_order = numbers[order]
    is_first = np.append(True, in_order[1:] != in_order[:-1])
    is_lone = np.empty(len(numbers), np.bool_)
    is_lone[order] = is_first & np.append(is_first[1:], True)
    found, begin = [], 0
    for batch in (batch for name in _INDEXED for batch in batches[name]):
        chosen = np.flatnonzero(is_lone[begin : begin + batch.num_rows])
        begin += batch.num_rows
        if len(chosen):
            found.append(batch.select(schema.names).take(pa.array(chosen)))
    return rows_in_order(pa.Table.from_batches(found, schema).combine_chunks(), ["commit_log_offset"])


def _suspects(index: Index, rows: pa.Table) -> list[int]:
    """Return places that are in the index with other hashes than that of the record's id."""
    offsets = np.asarray(rows["commit_log_offset"])
    forms = [_hashes(rows, separator) for separator in (("#", "#U#") if index.has_typed_ids else ("#",))]
    is_known, is_same = np.zeros(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
    for file in index.files:
        for places, found in _entries_between(file, int(offsets[0]), int(offsets[-1])):
            if (places[1:] < places[:-1]).any():  # only in a damaged index
                order = np.argsort(places, kind="stable")
                places, found = places[order], found[order]
            first = np.searchsorted(places, offsets)
            counts = np.searchsorted(places, offsets, "right") - first
            is_known |= counts > 0
            rows_of = np.repeat(np.arange(len(offsets)), counts)
            entries = np.arange(len(rows_of)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            for own in forms:
                is_same[rows_of[found[entries] == own[rows_of]]] = True
    suspects: list[int] = offsets[is_known & ~is_same].tolist()
    return suspects if len(suspects) <= _SUSPECTS_MAX else []


def _hashes(rows: pa.Table, separator: str) -> Int64s:
    names = pc.binary_join_element_wise(rows["topic"], rows["transaction_id"], separator)
    return column_key_hashes(pc.fill_null(names, "").combine_chunks()).astype(np.int64)


def _entries_between(index: IndexFile, first: int, last: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Places and hashes of the index entries for a range of the log, in log order."""
    if index.end_offset < first or index.begin_offset > last:
        return
    with index.segment.open() as file:
        low, high = (index.number_at(file, place) for place in (first, last + 1))
        length = (high - low) * ENTRY.size_bytes
        if length > 0:
            entries = index.entries_of(file.read(index.entry_position(low), length))
            yield entries["commit_log_offset"].astype(np.int64), entries["key_hash"].astype(np.int64)


def _examined(store: Store, index: Index, block: Block) -> Iterator[DoubtfulId]:
    explained = explained_entries(block)
    for row, offset in enumerate(block.commit_log_offsets.tolist()):
        entries = [pair for file in index.files for pair in _entries_between(file, offset, offset)]
        hashes = {value for places, found in entries for value in found[places == offset].tolist()}
        left = sorted(value for value in hashes if (offset, value) not in explained)
        known = index.offsets_of_hashes(np.array(left, np.int64)) if left else {}
        proven = tuple(value for value in left if offset in known.get(value, ()))
        if not proven:
            continue
        topic, name = str(block.topic_texts()[row]), block.properties.text(UNIQ_KEY)[row].as_py()
        seen = f"no other record has the id {name}" if name else "the record has no id"
        yield DoubtfulId(store.root, offset, topic, seen, proven)

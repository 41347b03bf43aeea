"""The hashes of the keys under which the index has records, for thousands of records at once, and the form of its ids.

Java brokers write ids as `topic#id`, rocketmq-rust as `topic#U#id`. Both can be in one store, if brokers of both
implementations ran on it; keys are searched in both forms then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.index.index import IndexFile, entries_at, open_index_file
from rmqtx.readers.log.properties import KEYS, TAGS, UNIQ_KEY
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.java_hashes import hashed_on, index_hashes, java_hash, key_hashes
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import Store
from rmqtx.readers.store.version_signs import rust_mark

_ASCII_LAST = 127
#: Entries at the begin and at the end of an index that are compared with their records.
_SAMPLED = 8
#: From a block the index entries of its records: (commit-log offset, hash) of each key.
Pairs = Callable[[Block], tuple[Int64s, Int64s]]


def key_pairs(block: Block) -> tuple[Int64s, Int64s]:
    """Return the index entries that the broker writes for a block's records: (commit-log offset, hash) of each key.

    Source: store/index/IndexService.java buildIndex; docs/formats/index.md#keys.
    """
    rows = _indexed(block)
    pairs = [_pairs(rows, *keys) for keys in (_unique_keys(rows), _business_keys(rows))]
    return np.concatenate([offsets for offsets, _ in pairs]), np.concatenate([hashes for _, hashes in pairs])


def unique_key_pairs(block: Block) -> tuple[Int64s, Int64s]:
    """Return the index entries of `key_pairs` for unique keys only."""
    rows = _indexed(block)
    return _pairs(rows, *_unique_keys(rows))


def _indexed(block: Block) -> Block:
    """Return the records that the broker indexes: all except ROLLBACK records."""
    rows = (block.sys_flag & TRANSACTION_MASK) != ROLLBACK
    return block if rows.all() else block.take(rows)


def typed_id_pairs(block: Block) -> tuple[Int64s, Int64s]:
    """Return the index entries of `unique_key_pairs`, in the same order, as rocketmq-rust writes them: `topic#U#id`."""
    rows = _indexed(block)
    return _pairs(rows, *_unique_keys(rows), separator=b"#U#")


def key_pairs_with_typed_ids(block: Block) -> tuple[Int64s, Int64s]:
    """Return the index entries of `key_pairs` as rocketmq-rust writes them."""
    rows = _indexed(block)
    pairs = [typed_id_pairs(block), _pairs(rows, *_business_keys(rows))]
    return np.concatenate([offsets for offsets, _ in pairs]), np.concatenate([hashes for _, hashes in pairs])


def explained_entries(block: Block) -> set[tuple[int, int]]:
    """Return all entries that a broker of any release or implementation writes for a block's records: commit-log offset
    and hash.
    """
    found = (pairs(block) for pairs in (key_pairs, tag_pairs, typed_id_pairs))
    return {pair for offsets, hashes in found for pair in zip(offsets.tolist(), hashes.tolist(), strict=True)}


def typed_id_key(key: bytes) -> bytes:
    """Return the key that rocketmq-rust writes for the id in a key of the form `topic#id`."""
    return key.replace(b"#", b"#U#", 1)


def _pairs(rows: Block, keys: pa.Array, owners: Int64s, separator: bytes = b"#") -> tuple[Int64s, Int64s]:
    topics = rows.coded_topics()
    prefixes = [topic + separator for topic in topics.dictionary.to_pylist()]
    numbers = np.asarray(topics.indices).astype(np.int64)[owners]
    return rows.commit_log_offsets[owners], _hashes(keys, numbers, prefixes)


def may_lack_entries(block: Block) -> Bools:
    """Return the records whose keys a broker may have left out: COMMIT records without a unique key.

    3.1.4 and 3.2.6 do not index them, and their clients set no unique key; 4.2.0 and later index them.
    """
    commits: Bools = (block.sys_flag & TRANSACTION_MASK) == COMMIT
    return commits & ~block.properties.locate(UNIQ_KEY)[2] if commits.any() else commits


def _unique_keys(rows: Block) -> tuple[pa.Array, Int64s]:
    """The unique keys as bytes, and the record of each."""
    unique = rows.properties.value(UNIQ_KEY).cast(pa.binary())
    return unique.drop_null(), np.flatnonzero(np.asarray(pc.is_valid(unique)))


def _business_keys(rows: Block) -> tuple[pa.Array, Int64s]:
    """The words of the business keys as bytes, and the record of each."""
    business = rows.properties.value(KEYS).cast(pa.binary())
    has = np.flatnonzero(np.asarray(pc.is_valid(business)))
    lists = pc.split_pattern(business.drop_null(), b" ")
    words, owners = lists.flatten(), np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
    full = np.asarray(pc.binary_length(words)) > 0
    return words.filter(pa.array(full)), has[owners[full]]


def _hashes(keys: pa.Array, prefix_numbers: Int64s, prefixes: list[bytes]) -> Int64s:
    """The absolute Java hashes of prefix + key, all keys at once."""
    count = len(keys)
    if not count:
        return np.empty(0, np.int64)
    starts = np.array([java_hash(prefix) for prefix in prefixes], np.int64).astype(np.uint32)
    places = np.frombuffer(keys.buffers()[1], np.int32, count + 1 + keys.offset)[keys.offset :].astype(np.int64)
    text = np.frombuffer(keys.buffers()[2], np.uint8)
    hashes = hashed_on(starts[prefix_numbers], text, places[:-1], np.diff(places)).view(np.int32)
    inside = text[places[0] : places[-1]]
    if inside.max(initial=0) > _ASCII_LAST:  # Java hashes UTF-16 units, not bytes
        ends = np.append(0, np.cumsum(inside > _ASCII_LAST))[places - places[0]]
        for row in np.flatnonzero(np.diff(ends)).tolist():
            hashes[row] = java_hash(prefixes[prefix_numbers[row]] + keys[row].as_py())
    return index_hashes(hashes.view(np.uint32)).astype(np.int64)


def tag_pairs(block: Block) -> tuple[Int64s, Int64s]:
    """Return the index entries of tags, which 5.5.0 writes as `topic#T#tag` and earlier brokers do not write."""
    rows = np.flatnonzero(block.properties.locate(TAGS)[2] & ((block.sys_flag & TRANSACTION_MASK) != ROLLBACK))
    tagged = block.take(rows)
    if not len(tagged):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    topics = tagged.coded_topics()
    tags = tagged.properties.coded(TAGS)
    kinds, places = np.unique(
        np.asarray(topics.indices).astype(np.int64) << 32 | np.asarray(tags.indices), return_inverse=True
    )
    names, words = topics.dictionary.to_pylist(), tags.dictionary.to_pylist()
    hashes = key_hashes([names[kind >> 32] + b"#T#" + words[kind & 0xFFFFFFFF] for kind in kinds.tolist()])
    return tagged.commit_log_offsets, hashes.astype(np.int64)[places]


def has_typed_ids(store: Store, files: Sequence[IndexFile]) -> bool:
    """Return whether index files have, or may have, ids as `topic#U#id`.

    `files`: those of the store, oldest first. A copy may lack the files that show the implementation, so the first and
    the last entries of a local index are compared with their records.
    Damage: a file that cannot be read has none.
    """
    if rust_mark(store) is not None:
        return True
    return not store.is_remote and any(_is_typed(store, file, first) for file, first in _samples(files))


def _samples(files: Sequence[IndexFile]) -> list[tuple[IndexFile, int]]:
    found = [file for file in files if file.why_incomplete() is None and file.entries_count]
    if not found:
        return []
    return [(found[0], 1), (found[-1], max(1, found[-1].entries_count + 1 - _SAMPLED))]


@remembered
def _is_typed(store: Store, index: IndexFile, first: int) -> bool:
    return have_entry_of(store, index, first, _SAMPLED, typed_id_pairs)


def have_entry_of(store: Store, index: IndexFile, first: int, count: int, pairs_of: Pairs) -> bool:
    """Return whether one of some entries from a number on is one that `pairs_of` returns for its record.

    Damage: what cannot be read has none; it is reported where the index is searched or verified.
    """
    try:
        with store.log() as log, index.segment.open() as file:
            entries = entries_at(file, index, np.arange(first, min(first + count, index.entries_count + 1)))
            pairs = set(zip(entries["commit_log_offset"].tolist(), entries["key_hash"].tolist(), strict=True))
            for block in blocks_at(log, np.unique(entries["commit_log_offset"].astype(np.int64))):
                offsets, hashes = pairs_of(block)
                if not pairs.isdisjoint(zip(offsets.tolist(), hashes.tolist(), strict=True)):
                    return True
    except SourceError:
        pass
    return False


def is_of_rust(store: Store) -> bool:
    """Return whether rocketmq-rust wrote a store: its files or its index show it."""
    try:
        ends = dict.fromkeys([*store.index_files[:1], *store.index_files[-1:]])
        return has_typed_ids(store, [open_index_file(segment) for segment in ends])
    except SourceError:
        return rust_mark(store) is not None


def record_offset(store: Store) -> int:
    """Return the commit-log offset of the record to which the checkpoint refers (5.5.0+); 0 without one."""
    offset = checkpoint_values(store).get("logics_offset", 0)
    return 0 if offset and is_of_rust(store) else offset


def indexed_end_offset(store: Store) -> int:
    """Return the commit-log offset up to which rocketmq-rust had indexed the log; 0 if it did not write the store.

    Source: rocketmq-store/src/base/store_checkpoint.rs of rocketmq-rust 1.0.0, index_safe_phy_offset.
    """
    offset = checkpoint_values(store).get("logics_offset", 0)
    return offset if offset and is_of_rust(store) else 0

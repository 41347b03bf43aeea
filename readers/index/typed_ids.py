"""Whether the index has ids as `topic#U#id`, as rocketmq-rust writes them; Java brokers write `topic#id`.

Both can be in one store, if brokers of both implementations ran on it. Keys are searched in both forms then.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtx.readers.index.index import IndexFile, entries_at, open_index_file
from rmqtx.readers.index.record_keys import typed_id_pairs
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.checkpoint import checkpoint_values
from rmqtx.readers.store.remembered import Remembered
from rmqtx.readers.store.store import Store
from rmqtx.readers.store.version_signs import rust_mark

#: Entries at the begin and at the end of an index that are compared with their records.
_SAMPLED = 8


def has_typed_ids(store: Store, files: Sequence[IndexFile]) -> bool:
    """Return whether index files have, or may have, ids as `topic#U#id`.

    `files`: those of the store, oldest first. A copy may lack the files that show the implementation, so the first and
    the last entries of a local index are compared with their records.
    Damage: a file that cannot be read has none.
    """
    if rust_mark(store) is not None:
        return True
    return not store.is_remote and any(_is_known_typed(store, file, first) for file, first in _samples(files))


#: By file and first entry: one command asks several times.
_KNOWN: Remembered[dict[tuple[str, int], bool]] = Remembered()


def _is_known_typed(store: Store, index: IndexFile, first: int) -> bool:
    known, key = _KNOWN.of(store, dict), (index.segment.file, first)
    if key not in known:
        known[key] = _is_typed(store, index, first)
    return known[key]


def _samples(files: Sequence[IndexFile]) -> list[tuple[IndexFile, int]]:
    found = [file for file in files if file.why_incomplete() is None and file.entries_count]
    if not found:
        return []
    return [(found[0], 1), (found[-1], max(1, found[-1].entries_count + 1 - _SAMPLED))]


def _is_typed(store: Store, index: IndexFile, first: int) -> bool:
    log = store.log()
    try:
        with index.segment.open() as file:
            end = min(first + _SAMPLED, index.entries_count + 1)
            entries = entries_at(file, index, np.arange(first, end))
        pairs = set(zip(entries["commit_log_offset"].tolist(), entries["key_hash"].tolist(), strict=True))
        for block in blocks_at(log, np.unique(entries["commit_log_offset"].astype(np.int64))):
            offsets, hashes = typed_id_pairs(block)
            if not pairs.isdisjoint(zip(offsets.tolist(), hashes.tolist(), strict=True)):
                return True
    except SourceError:
        pass  # reported where the index is searched or verified
    finally:
        log.close()
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

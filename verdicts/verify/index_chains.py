"""Internal consistency of index files: the values that a broker derives when it adds a key are derived again.

The chain of each slot, the slot table and the slot count follow from the hashes in the order of the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rmqtx.readers.index.index import BLOCK_ENTRIES, ENTRY, HEADER, INDEX_SLOT, IndexFile
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.verify.index_entries import index_files, read_entries

_SLOTS_AT_ONCE = 1 << 20


def chain_findings(store: Store) -> Iterator[Finding]:
    """Return what in index files does not follow from the hashes: chains, slot table, slot count, the unused entry.

    Order: file; at most one finding of each kind.
    """
    if store.in_use:
        return
    for index in index_files(store):
        if not index.entries_count:
            continue
        try:
            with index.segment.open() as file:
                yield from _of_file(store, index, file)
        except SourceError as error:
            yield Finding(store.root, "unreadable-file", error.file, error.position_bytes, actual=error.message)


def _of_file(store: Store, index: IndexFile, file: OpenFile) -> Iterator[Finding]:
    assert index.slots_count is not None

    def finding(position: int, length: int, expected: str, actual: str) -> Finding:
        return Finding(store.root, "index-damaged", index.segment.file, position, length, expected=expected,
                       actual=actual)

    newest = np.zeros(index.slots_count, np.int64)
    wrong, first = 0, None
    for number in range(1, index.entries_count + 1, BLOCK_ENTRIES):
        entries = read_entries(index, file, number, min(number + BLOCK_ENTRIES, index.entries_count + 1))
        expected = _previous(entries["key_hash"].astype(np.int64) % index.slots_count, number, newest)
        rows = np.flatnonzero(entries["previous_entry_number"] != expected)
        wrong += len(rows)
        if first is None and len(rows):
            row = int(rows[0])
            first = number + row, int(expected[row]), int(entries["previous_entry_number"][row])
    if first is not None:
        number, expected_number, actual_number = first
        more = f", and {wrong - 1} more entries" if wrong > 1 else ""
        yield finding(index.entry_position(number), ENTRY.size_bytes,
                      f"previous_entry_number {expected_number}, from the hashes before it", f"{actual_number}{more}")
    yield from _of_table(store, index, file, newest, finding)
    # 4.3.0 and 4.4.0 count every entry, later versions every slot that is used; both may have written a file.
    used, counted = int(np.count_nonzero(newest)), index.header["used_slots_count"]
    if not used <= counted <= index.entries_count and not (store.aborted and counted == used + 1):
        yield finding(HEADER.offsets["used_slots_count"], 4,
                      f"used_slots_count {used}, from its hashes, to {index.entries_count}", str(counted))
    if any(file.read(index.entry_position(0), ENTRY.size_bytes)):
        yield finding(index.entry_position(0), ENTRY.size_bytes, "zeros: entries are numbered from 1", "other bytes")


def _previous(slots: Int64s, first_number: int, newest: Int64s) -> Int64s:
    """Return for each entry the previous one of its slot; `newest` has the last entry of each slot and is updated."""
    order = np.argsort(slots, kind="stable")
    sorted_slots, numbers = slots[order], first_number + order
    begins = np.r_[True, np.diff(sorted_slots) != 0]
    before = np.where(begins, newest[sorted_slots], np.r_[0, numbers[:-1]])
    ends = np.r_[begins[1:], True]
    newest[sorted_slots[ends]] = numbers[ends]
    previous = np.empty_like(before)
    previous[order] = before
    return previous


def _of_table(
    store: Store, index: IndexFile, file: OpenFile, newest: Int64s, finding: Callable[[int, int, str, str], Finding]
) -> Iterator[Finding]:
    """Slots that do not point to their newest entry; a broker may have been killed while it added one."""
    wrong, first = 0, None
    size = INDEX_SLOT.size_bytes
    for begin in range(0, len(newest), _SLOTS_AT_ONCE):
        expected = newest[begin : begin + _SLOTS_AT_ONCE]
        heads = np.frombuffer(file.read(HEADER.size_bytes + begin * size, len(expected) * size), ">i4")
        is_wrong = heads != expected
        if store.aborted:
            is_wrong &= heads != index.entries_count + 1
        rows = np.flatnonzero(is_wrong)
        wrong += len(rows)
        if first is None and len(rows):
            first = begin + int(rows[0]), int(expected[rows[0]]), int(heads[rows[0]])
    if first is not None:
        slot, expected_number, actual_number = first
        more = f", and {wrong - 1} more slots" if wrong > 1 else ""
        yield finding(HEADER.size_bytes + slot * size, size, f"newest_entry_number {expected_number}, from the hashes",
                      f"{actual_number}{more}")

"""Whether stores have the log of one broker: a master and its slaves, or a backup and the store.

A log is a copy of another one if both have the same record at the same commit-log offset: a record contains its place,
its time and the address of its broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.store import Store

#: The first records in the common range that are compared to find out whether two logs are copies of one.
_RECORDS_TRIED = 16
_COMPARED_BYTES = 8 << 20
#: What is read of a log in object storage to find out whether it is a copy.
_REMOTE_BYTES = 1 << 20
#: How much is read at once of a log in object storage to find the end of its data.
_REMOTE_STEP_BYTES = 64 << 10


def store_host(store: Store) -> str | None:
    """Return the store host of the first sound record of a log; in object storage, of the first bytes."""
    begin = store.log_begin_offset
    try:
        for block in blocks_of(store, begin, begin + _REMOTE_BYTES if store.is_remote else None):
            if len(block):
                return str(block.store_host_numbers()[0])
    except SourceError:
        pass  # reported by the audit
    return None


def blocks_of(store: Store, begin: int, end: int | None) -> Iterator[Block]:
    """Yield the sound records of a log that begin in a range of commit-log offsets; None: to the end of the log.

    Raises: SourceError.
    """
    for split in plan_splits([store], from_offset=begin, to_offset=end):
        yield from split.scan()


def common_range(one: Store, other: Store) -> tuple[int, int]:
    """Return the commit-log offsets from which on, and before which, both logs have bytes. Raises: SourceError."""
    begin = max(one.log_begin_offset, other.log_begin_offset)
    return begin, min(_data_end(store, begin) for store in (one, other))


def _data_end(store: Store, begin: int) -> int:
    """Return the end of the last byte of a log that is not zero: after it the file is not written yet."""
    end = written_end(store).offset
    step = _REMOTE_STEP_BYTES if store.is_remote else _COMPARED_BYTES
    with store.log() as log:
        while end > begin:
            segment = log.segment_at(end - 1)
            low = max(begin, end - step, 0 if segment is None else segment.base_offset)
            data = log.read(low, end - low).rstrip(b"\0")
            if data or segment is None:
                return low + len(data)
            end = low
    return end


def is_copy(one: Store, other: Store) -> bool:
    """Whether one of the first records in the common range of two logs is the same in both.

    Damage in one of the two can hide the first records of the other, so the records of both are tried.
    """
    return _has_same_record(one, other) or _has_same_record(other, one)


def _has_same_record(one: Store, other: Store) -> bool:
    try:
        begin, end = common_range(one, other)
        tried_bytes = _REMOTE_BYTES if one.is_remote else _COMPARED_BYTES
        with other.log() as log:
            for block in itertools.islice(blocks_of(one, begin, min(end, begin + tried_bytes)), 1):
                for row in range(min(len(block), _RECORDS_TRIED)):
                    start, length = int(block.starts[row]), int(block.lengths[row])
                    if log.read(int(block.commit_log_offsets[row]), length) == block.raw[start : start + length]:
                        return True
    except SourceError:
        pass
    return False


def logs_of(stores: Sequence[Store]) -> dict[str, str]:
    """Return for each store, by root, the log that it has: the root of the first store with that log.

    Copies without a common range are of one log if a third store is a copy of both.
    """
    logs = {store.root: store.root for store in stores}
    hosts = [store_host(store) for store in stores]
    for (number, one), (place, other) in itertools.combinations(enumerate(stores), 2):
        first, second = logs[one.root], logs[other.root]
        if first != second and hosts[number] is not None and hosts[number] == hosts[place] and is_copy(one, other):
            logs = {root: first if log == second else log for root, log in logs.items()}
    return logs


def uncompared_logs(stores: Sequence[Store], logs: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return for each store, by root, the other logs of `logs_of` of which no record can be compared with its own.

    Their brokers have one address, as far as it can be read: whether it is one broker is unknown.
    """
    hosts = {store.root: store_host(store) for store in stores}
    found: dict[str, set[str]] = {store.root: set() for store in stores}
    compared: dict[str, set[str]] = {store.root: set() for store in stores}
    for one, other in itertools.combinations(stores, 2):
        if logs[one.root] == logs[other.root]:
            continue
        known = {hosts[one.root], hosts[other.root]} - {None}
        sides = compared if len(known) > 1 or _has_common_record(one, other) else found
        sides[one.root].add(logs[other.root])
        sides[other.root].add(logs[one.root])
    # A log is another one for all copies of a log that could be compared with it.
    of_log: dict[str, set[str]] = {}
    for root, others in compared.items():
        of_log.setdefault(logs[root], set()).update(others)
    return {root: frozenset(others - of_log[logs[root]]) for root, others in found.items()}


def _has_common_record(one: Store, other: Store) -> bool:
    """Whether one of two logs has a sound record where both have bytes."""
    try:
        begin, end = common_range(one, other)
        return any(
            len(block) for store in (one, other) if begin < end for block in blocks_of(store, begin, end)
        )
    except SourceError:
        return False

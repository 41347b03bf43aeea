"""What the producers of transactions wrote about them into the message traces of a store, by transaction id.

The index finds the records, which have the ids of their lines as keys. What the index does not cover is scanned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.log.commit_log import data_end_offset, scan_segments
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import UInt64s, identity_hashes
from rmqtx.readers.rocksdb.rocksdb_queues import queue_bounds
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import TRACE_TOPIC, Store
from rmqtx.readers.traces import TraceKind, traces_of

#: How much of a log is scanned for traces that the index does not cover: takes some seconds.
_SCANNED_BYTES_MAX = 1 << 30
#: The same for a store that is read over a network.
_REMOTE_BYTES_MAX = 16 << 20
#: Scans begin at multiples of this, so that one scan serves transactions of several partitions.
_STEP_BYTES = 64 << 20
#: Scans that are kept: one for each store of a run.
_KEPT_MAX = 8


class Traces(Protocol):
    """The message traces of one store or broker. That a line is missing shows nothing (docs/formats/traces.md)."""

    @property
    def root(self) -> str:
        """The value of the column `store`."""

    @property
    def topic(self) -> str:
        """The topic of the traces."""

    @property
    def exist(self) -> bool:
        """Whether the topic is known to exist."""

    @property
    def findings(self) -> list[Finding]:
        """What could not be read of the traces that were searched for; grows."""

    @property
    def until_offset(self) -> int | None:
        """Commit-log offset up to which traces are found; None if it is not known."""

    def rows(self, transaction_ids: Sequence[str], from_offset: int = 0) -> dict[str, list[dict[str, Any]]]:
        """Return the lines about each transaction, as rows of TRACES; a transaction without lines is left out.

        `from_offset`: where the first record of any of them is in this log.
        """


@dataclass(frozen=True, slots=True)
class TraceEvidence:
    """The traces in the files of one store."""

    store: Store
    exist: bool = field(init=False, default=True)
    findings: list[Finding] = field(default_factory=list, compare=False, repr=False)

    @property
    def root(self) -> str:
        """See `Traces`."""
        return self.store.root

    @property
    def topic(self) -> str:
        """See `Traces`."""
        return self.store.trace_topic

    def rows(self, transaction_ids: Sequence[str], from_offset: int = 0) -> dict[str, list[dict[str, Any]]]:
        """See `Traces`.

        Order:  of a transaction: commit-log offset, then line.
        Damage: trace-unreadable; traces-unread, if the index does not cover more of the log than is scanned.
        """
        store, topic, found = self.store, self.store.trace_topic, list[Block]()
        index, log = open_index(store), store.log()
        try:
            _, offsets = index.find([f"{topic}#{one}".encode() for one in transaction_ids])
            offsets = np.unique(offsets[(offsets >= log.begin_offset) & (offsets < log.end_offset)])
            end = max(data_end_offset(store), int(offsets.max(initial=-1)) + 1)
            scanned = self._scanned(index.uncovered(max(from_offset, log.begin_offset), end), index)
            places = np.union1d(offsets, scanned.offsets_of(transaction_ids))
            found = list(blocks_at(log, places))
            read = [block.commit_log_offsets for block in found]
            self._report(
                Finding(store.root, "trace-unreadable", commit_log_offset=offset, actual="no record, by the index one")
                for offset in np.setdiff1d(places, np.concatenate([*read, _NOTHING.offsets])).tolist()
            )
            found = [block.take(block.topic_is(topic)) for block in found]
        except SourceError as error:
            self._report([_unread(store, error.message)])
        finally:
            log.close()
        findings: list[Finding] = []
        rows = rows_by_id(found, self.root, transaction_ids, findings)
        self._report(findings)
        return rows

    def _scanned(self, ranges: list[tuple[int, int]], index: Index) -> _Scanned:
        """Return where the traces are that the index does not cover."""
        ranges = [(begin - begin % _STEP_BYTES if end - begin > _STEP_BYTES else begin, end) for begin, end in ranges]
        length = sum(end - begin for begin, end in ranges)
        if length > (_REMOTE_BYTES_MAX if self.store.is_remote else _SCANNED_BYTES_MAX):
            why = "an index that cannot be searched" if index.findings else "no index" if not index.exists else "a gap"
            self._report([_unread(self.store, f"{why}, and {length} bytes of the log that are not scanned for it")])
            return _NOTHING
        key = self.store.root, self.store.opening, self.store.trace_topic, tuple(ranges)
        if key not in _kept:
            while len(_kept) >= _KEPT_MAX:
                _kept.pop(next(iter(_kept)))
            _kept[key] = _scan(self.store, ranges)
        self._report(_kept[key].findings)
        return _kept[key]

    def _report(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(one for one in findings if one not in self.findings)

    @property
    def until_offset(self) -> int | None:
        """See `Traces`: the end of the last file of the index; what follows is scanned each time."""
        try:
            return open_index(self.store).covered_until_offset
        except SourceError:
            return None


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The lines in some ranges of a log. Shape: hashes of their ids, ascending, and the offsets of their records."""

    hashes: UInt64s
    offsets: Int64s
    findings: tuple[Finding, ...] = ()

    def offsets_of(self, transaction_ids: Sequence[str]) -> Int64s:
        """Return the offsets of records with lines about some transactions, as far as hashes show it."""
        wanted = identity_hashes(pa.array(transaction_ids, pa.string()))
        return np.unique(self.offsets[np.isin(self.hashes, wanted)])


_NOTHING = _Scanned(np.empty(0, np.uint64), np.empty(0, np.int64))
_kept: dict[tuple[str, str, str, tuple[tuple[int, int], ...]], _Scanned] = {}


def _scan(store: Store, ranges: list[tuple[int, int]]) -> _Scanned:
    hashes, offsets = [_NOTHING.hashes], [_NOTHING.offsets]
    findings: list[Finding] = []
    for begin, end in ranges:
        for block in scan_segments(store, [], [], from_offset=begin, to_offset=end):  # damage: that of the audit
            chosen = block.take(block.topic_is(store.trace_topic))
            if len(chosen):
                rows = traces_of(chosen, store.root, findings)
                is_named = rows["transaction_id"].is_valid()
                hashes.append(identity_hashes(rows["transaction_id"].filter(is_named)))
                offsets.append(np.asarray(rows["commit_log_offset"].filter(is_named)))
    return _Scanned(np.concatenate(hashes), np.concatenate(offsets), tuple(findings))


def trace_evidence(store: Store) -> TraceEvidence | None:
    """Return the traces of a store; None if nothing shows that it has the topic of the traces."""
    return TraceEvidence(store) if _has_topic(store) else None


def _has_topic(store: Store) -> bool:
    """Whether a store has the topic, by its queues or the configuration of its broker; another one was given."""
    topic = store.trace_topic
    if topic != TRACE_TOPIC or topic in store.topics():
        return True
    if topic in (config_table(store, "topics.json", "topicConfigTable") or ()):
        return True
    return store.has_rocksdb_queues and any(name == topic for name, _ in queue_bounds(store, []))


def last_said(traces: Iterable[Traces | None], transaction_ids: Sequence[str]) -> dict[str, str]:
    """Return the last decision of each transaction, by the clock of its producer, as far as traces have one."""
    last: dict[str, tuple[int, str]] = {}
    for one in traces:
        for identity, lines in (one.rows(transaction_ids) if one is not None else {}).items():
            decided = [(line["time_ms"], line["decision"]) for line in lines if line["kind"] == TraceKind.DECIDED]
            last[identity] = max([*decided, *([last[identity]] if identity in last else [])], default=(-1, ""))
    return {identity: decision for identity, (_, decision) in last.items()}


def rows_by_id(
    blocks: Iterable[Block], store: str, transaction_ids: Iterable[str], findings: list[Finding]
) -> dict[str, list[dict[str, Any]]]:
    """Return the lines about some transactions in trace records, as rows of TRACES. Order: as given.

    `findings`: gets what cannot be read in the records.
    """
    wanted, found = frozenset(transaction_ids), defaultdict(list)
    for block in blocks:
        for row in traces_of(block, store, findings, wanted).to_pylist():
            if row["transaction_id"] in wanted:
                found[row["transaction_id"]].append(row)
    return dict(found)


def _unread(store: Store, actual: str) -> Finding:
    return Finding(store.root, "traces-unread", actual=actual)

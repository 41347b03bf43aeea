"""Copies of one broker's log among some stores: a master and its slaves, or a backup and the store.

The same bytes at the same commit-log offset are one record, in whichever copy. Where copies have different bytes, they
have different histories: after a failover a slave wrote on, or a log was cut and written again. Bytes that belong
to no record in one of the copies are damage there, or the filler of a salvage, but not another history.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.evidence.same_log import blocks_of, common_range, is_copy, store_host
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import State

_COMPARED_BYTES = 8 << 20
#: How far before a different byte the begin of its record is searched for.
_RECORD_BYTES_MAX = 8 << 20
#: The newest bytes that are compared of logs in object storage: where all bytes are compared of others, and elsewhere.
_REMOTE_BYTES, _REMOTE_FEW_BYTES = 64 << 20, 1 << 20
#: Different bytes that are nearer to each other are one run, and the most runs that are compared with records.
_RUN_GAP_BYTES, _RUNS_MAX = 64, 10_000
#: The runs of which the records are compared, and the fields that are equal in copies of one record.
_SAME_TRIED, _SAME = 16, ("queue_id", "queue_offset", "store_time_ms", "born_time_ms")
_DAMAGED = "one of the two copies is damaged there: no checksum covers all bytes of a record, so unknown is which"
_TORN = "{root} is damaged there: the properties of a record are torn, those of the same record in {other} are whole"
#: The reasons of a transaction with records in several logs, the columns with its records, and all that are needed.
_SHARED_ID, _UNCOMPARED_ID = "id_of_several_logs", "id_of_uncompared_logs"
_EVIDENCE = ("half_copies", "op_marks", "final_records")
_UNCOMPARED_MEANING = (
    "an id of the designs before 4.3 is only the address of a broker and a place in its log; the two logs have no part "
    "in common, so whether one broker wrote both is unknown: given together, these transactions are UNDECIDABLE"
)
NEEDED_OF_SHARED = ("reason_code", *_EVIDENCE)
#: The columns of TRANSACTIONS that `OpenInCopies` needs.
NEEDED = ("state", "half_copies")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the log of a store differs from that of the first store with the same log.

    Shape: `begin_offset`: the begin of the first different record; `end_offset`: the end of the last different byte.
           `are_same_records`: these are the same records with other bytes. `torn_root`: the only one of the two stores
           in which these have torn properties; None if it is not known which of the two is damaged.
    Units: commit-log offsets in bytes.
    """

    root: str
    begin_offset: int
    end_offset: int
    are_same_records: bool
    torn_root: str | None = None

    def meaning(self, first_root: str) -> str | None:
        """Return which of the two stores is damaged; None for other records, which are another history."""
        if not self.are_same_records:
            return None
        if self.torn_root is None:
            return _DAMAGED
        return _TORN.format(root=self.torn_root, other=self.root if self.torn_root == first_root else first_root)


@dataclass(frozen=True, slots=True)
class LogCopies:
    """Stores with the log of one broker.

    Shape: `differences`: of each store that differs from the first one. `newest_bytes`: if not all bytes were compared,
           how many of the newest that two logs have; a difference is then that of the first record among those.
    Units: bytes.
    """

    roots: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    newest_bytes: int | None = None

    def findings(self) -> Iterator[Finding]:
        """Return a finding for each store with other bytes than the first one."""
        first = self.roots[0]
        for one in self.differences:
            what = "other bytes in the same records" if one.are_same_records else "other records"
            begin, end = one.begin_offset, one.end_offset
            yield Finding(
                one.root, "logs-differ", commit_log_offset=begin, length_bytes=end - begin,
                expected=f"the bytes of {first}",
                actual=f"{what} from commit-log offset {begin} to {end}{self._depth_text}",
                meaning=one.meaning(first),
                advice=f"rmqtx verify --full {quoted(first)} {quoted(one.root)}" if one.are_same_records else None,
            )

    @property
    def _depth_text(self) -> str:
        if self.newest_bytes is None:
            return ""
        return f" (of the newest {self.newest_bytes >> 20} MiB that both have: older ones may differ too)"

    @property
    def note(self) -> str | None:
        """The sentence about what was not compared."""
        if self.newest_bytes is None:
            return None
        return (
            f"of the logs of {' and '.join(self.roots)} only the newest {self.newest_bytes >> 20} MiB that both have "
            "were compared: reading logs in object storage whole would take as long as copying them"
        )


def log_copies(
    stores: Sequence[Store], newest_bytes: int | None = None, *, is_exact: bool = True
) -> list[LogCopies]:
    """Return the groups of stores that have the log of one broker, compared byte by byte.

    A log that is shorter than another, or begins later, does not differ from it. Of logs in object storage only the
    newest bytes of the common range are compared.
    `newest_bytes`: compare only the newest bytes of the common range, and the rest only if these differ: copies that
    have different histories differ from some place on. None: compare all. `is_exact`: then find the first
    difference of the logs; else that of the newest bytes is returned.
    """
    by_host: dict[str, list[Store]] = defaultdict(list)
    for store in stores if len(stores) > 1 else ():
        host = store_host(store)
        if host is not None:
            by_host[host].append(store)
    return [group for mine in by_host.values() for group in _groups(mine, _Depth(newest_bytes, is_exact))]


def glance_at_copies(stores: Sequence[Store], newest_bytes: int) -> tuple[dict[str, str], list[Finding]]:
    """Return which stores have the log of an earlier one, and those that differ from it, without reading the logs.

    Shape: root → root of the first store with the log of the same broker; a finding without offsets for each store
           that differs in the newest bytes of the common range: where the difference begins is not searched.
    """
    firsts: dict[str, str] = {}
    found = []
    for group in log_copies(stores, newest_bytes, is_exact=False):
        for root in group.roots[1:]:
            firsts[root] = group.roots[0]
        for one in group.differences:
            found.append(Finding(
                one.root, "logs-differ", expected=f"the bytes of {group.roots[0]}",
                actual=f"other records in the newest {newest_bytes >> 20} MiB that both have",
                advice=f"rmqtx verify {quoted(group.roots[0])} {quoted(one.root)}",
            ))
    return firsts, found


@dataclass(frozen=True, slots=True)
class _Depth:
    newest_bytes: int | None
    is_exact: bool


def _groups(stores: list[Store], depth: _Depth) -> Iterator[LogCopies]:
    left = stores
    while len(left) > 1:
        first, others = left[0], left[1:]
        mine = [store for store in others if is_copy(first, store)]
        if mine:
            is_remote = any(store.is_remote for store in (first, *mine))
            how = _remote_depth(depth) if is_remote else depth
            compared = [_difference(first, store, how) for store in mine]
            yield LogCopies(
                (first.root, *(store.root for store in mine)),
                tuple(found for found in compared if found is not None),
                how.newest_bytes if is_remote else None,
            )
        left = [store for store in others if store not in mine]


def _remote_depth(depth: _Depth) -> _Depth:
    return _Depth(_REMOTE_BYTES if depth.newest_bytes is None else _REMOTE_FEW_BYTES, is_exact=False)


def _difference(one: Store, other: Store, depth: _Depth) -> Difference | None:
    """Return where the second log differs from the first one, if it does.

    If some of the different records are not the same ones, the first of those is the begin.
    """
    runs: list[Int64s] = []
    try:
        begin, end = common_range(one, other)
        with ExitStack() as stack:
            logs = [stack.enter_context(store.log()) for store in (one, other)]
            if depth.newest_bytes is not None and end - begin > depth.newest_bytes:
                newest = end - depth.newest_bytes
                if not depth.is_exact:
                    begin = newest
                elif not any(True for _ in _compared(logs, newest, end)):
                    begin = end
            for place, differs in _compared(logs, begin, end):
                runs.append(place + _runs(np.flatnonzero(differs)))
    except SourceError:
        pass  # reported by the audit; what was compared still holds
    found = np.concatenate([np.empty((0, 2), np.int64), *runs])
    if len(found) <= _RUNS_MAX:
        found = found[_in_records(one, found) & _in_records(other, found)]
    if not len(found):
        return None
    end = int(found[-1, 1])
    begins: list[int] = []
    torn: set[tuple[bool, ...]] = set()
    for first in found[:_SAME_TRIED, 0].tolist():
        places = [_record_begin(store, first) for store in (one, other)]
        begins.append(min(places))
        records = [_record_at(store, place) for store, place in zip((one, other), places, strict=True)]
        if places[0] != places[1] or not _are_same_record(records):
            return Difference(other.root, begins[-1], end, are_same_records=False)
        torn.add(tuple(record is not None and bool(have_torn_properties(record)[0]) for record in records))
    torn_root = one.root if torn == {(True, False)} else other.root if torn == {(False, True)} else None
    return Difference(other.root, begins[0], end, len(found) <= _SAME_TRIED, torn_root)


def _record_at(store: Store, place: int) -> Block | None:
    """Return the record at a place; None without a sound one, or if it cannot be read."""
    try:
        with store.log() as log:
            return block_at(log, place)
    except SourceError:
        return None


def _are_same_record(records: Sequence[Block | None]) -> bool:
    """Whether the records of two logs are one record: of equal length, number and store time."""
    named = [
        None if record is None else [int(record.lengths[0]), *(int(record.header(name)[0]) for name in _SAME)]
        for record in records
    ]
    return named[0] is not None and named[0] == named[1]


def _runs(places: Int64s) -> Int64s:
    """Return begin and end of each run of places."""
    if not len(places):
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(places) > _RUN_GAP_BYTES)
    begins, ends = np.append(places[0], places[breaks + 1]), np.append(places[breaks], places[-1]) + 1
    return np.stack([begins, ends], axis=1)


def _in_records(store: Store, runs: Int64s) -> Bools:
    """Return which runs of bytes have a byte of a sound record; all of them where the log cannot be read."""
    found = np.zeros(len(runs), np.bool_)
    if not len(runs):
        return found
    begin = max(store.log_begin_offset, int(runs[0, 0]) - _RECORD_BYTES_MAX)
    try:
        for block in blocks_of(store, begin, int(runs[-1, 1])):
            begins = block.commit_log_offsets
            first = np.searchsorted(runs[:, 1], begins, "right")
            last = np.searchsorted(runs[:, 0], begins + block.lengths, "left")
            for low, high in zip(first[first < last].tolist(), last[first < last].tolist(), strict=True):
                found[low:high] = True
    except SourceError:
        return np.ones(len(runs), np.bool_)
    return found


def _compared(logs: list[SegmentedLog], begin: int, end: int) -> Iterator[tuple[int, Bools]]:
    """Yield which bytes differ, in ranges that both logs have."""
    while begin < end:
        length = min(_COMPARED_BYTES, end - begin)
        parts = [log.read(begin, length) for log in logs]
        length = min(map(len, parts))
        if not length:  # one of the two has a hole here
            begin = min([end, *(_next_file(log, begin) for log, part in zip(logs, parts, strict=True) if not part)])
            continue
        if parts[0][:length] != parts[1][:length]:
            yield begin, np.frombuffer(parts[0], np.uint8, length) != np.frombuffer(parts[1], np.uint8, length)
        begin += length


def _next_file(log: SegmentedLog, offset: int) -> int:
    return min((one.base_offset for one in log.segments if one.base_offset > offset), default=np.iinfo(np.int64).max)


def _record_begin(store: Store, offset: int) -> int:
    """Return where the record of a byte begins; the byte itself if it belongs to no sound record."""
    found = offset
    try:
        with store.log() as log:
            for block in blocks_of(store, max(store.log_begin_offset, offset - _RECORD_BYTES_MAX), offset + 1):
                for place in block.commit_log_offsets[block.commit_log_offsets <= offset][-1:].tolist():
                    record = block_at(log, int(place))
                    if record is not None and place + int(record.lengths[0]) > offset:
                        found = int(place)
    except SourceError:
        pass
    return found


def with_log_copies(
    batches: Iterator[pa.RecordBatch], stores: Sequence[Store], reading: VerdictReading,
    newest_bytes: int | None = None, columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an audit; at its end add the findings about copies of one log to the reading.

    `newest_bytes`: as in `log_copies`. `columns`: those of the rows to yield; None: all that they have.
    """
    if len(stores) < 2:
        yield from batches
        return
    counted, shared = OpenInCopies(groups := log_copies(stores, newest_bytes)), _SharedIds()
    for batch in batches:
        counted.add(batch)
        shared.add(batch)
        yield batch if columns is None else batch.select(columns)
    reading.findings.extend(finding for group in groups for finding in group.findings())
    reading.notes.extend(Note(NoteKind.WHY, group.note) for group in groups if group.note is not None)
    reading.findings.extend(counted.findings())
    reading.findings.extend(shared.findings())


class _SharedIds:
    """Counts the transactions with records in several logs that are not known to be copies, row by row."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[bool, tuple[str, ...]]] = Counter()

    def add(self, rows: pa.RecordBatch) -> None:
        """Count those among some rows of TRANSACTIONS, by their stores."""
        if not set(NEEDED_OF_SHARED) <= set(rows.schema.names):
            return
        for code in (_SHARED_ID, _UNCOMPARED_ID):
            for row in rows.filter(pc.equal(rows["reason_code"], code)).select(_EVIDENCE).to_pylist():
                roots = tuple(sorted({one["store"] for name in _EVIDENCE for one in row[name]}))
                self._counts[code == _UNCOMPARED_ID, roots] += 1

    def findings(self) -> Iterator[Finding]:
        """Return a finding for each group of stores with records of one id. Order: that of their names."""
        for (is_uncompared, roots), count in sorted(self._counts.items()):
            commands = " and ".join(f"rmqtx audit {quoted(root)}" for root in roots)
            how = "give a store too that has parts of both logs, or " if is_uncompared else ""
            yield Finding(
                roots[0], "logs-share-ids", expected=f"no id that a record in {' or '.join(roots[1:])} has too",
                actual=f"{count} transaction{'s' if count > 1 else ''} with records in {' and '.join(roots)}",
                meaning=_UNCOMPARED_MEANING if is_uncompared else None, advice=f"{how}{commands}, each alone",
            )


class OpenInCopies:
    """Counts the pending transactions that a copy of a log lacks, row by row."""

    def __init__(self, groups: Sequence[LogCopies]) -> None:
        self._groups = groups
        self._lacking: dict[str, int] = defaultdict(int)

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Count the pending transactions among some rows of TRANSACTIONS that not all copies have."""
        if not self._groups or not set(NEEDED) <= set(rows.schema.names):
            return
        chosen = rows.filter(pc.equal(rows["state"], State.PENDING))
        for copies in chosen["half_copies"].to_pylist():
            mine = {copy["store"] for copy in copies}
            for group in self._groups:
                if mine & set(group.roots):
                    for root in set(group.roots) - mine:
                        self._lacking[root] += 1

    def findings(self) -> Iterator[Finding]:
        """Return a finding for each copy that lacks pending transactions. Order: that of the stores."""
        for group in self._groups:
            for root in group.roots:
                if count := self._lacking.get(root):
                    yield lacking_finding(group, root, count)


def lacking_finding(group: LogCopies, root: str, count: int) -> Finding:
    """Return the finding for a copy that lacks a number of the pending transactions of the others."""
    others = [one for one in group.roots if one != root]
    return Finding(
        root, "copy-lacks-pending", expected=f"the pending transactions of {' '.join(others)}",
        actual=f"{count} of them {'is' if count == 1 else 'are'} not in this copy",
        advice=f"rmqtx diff {quoted(root)} {quoted(others[0])}",
    )

"""The records that COMMIT, ROLLBACK and op records name, examined one by one: their own half, another record, or none.

An end copies values of the half that it names: group, born time and host, keys, id; a COMMIT record also the body, a
ROLLBACK record the number (3.1). So a reference to a place in the log without a record, or with another half, is
damaged: no checksum covers it. Other witnesses then show the possible halves (`named_halves.py`).
(EndTransactionProcessor; docs/formats/half_and_op.md#final, docs/formats/state_table.md#records,
docs/formats/rocksdb_transactions.md#records, docs/formats/end_transaction.md#repeats.)

A decision on a record outside the half topic is no damage: END_TRANSACTION does not test the topic of the named record
(to 5.3.3). The op then has the queue offset of *that* record, and may hide a half that was never decided (seen on 4.9.7
and 5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc

from rmqtx.readers.log.op_messages import rocksdb_marks, rollback_marks
from rmqtx.readers.log.prepared_records import is_rollback, prepared_names
from rmqtx.readers.log.record_at import block_at, blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import (
    JUDGED_HALVES,
    are_halves,
    finals_of,
    halves_of,
    is_final,
    witnesses_of,
)
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, one_by_one
from rmqtx.readers.model.identities import identities
from rmqtx.readers.old_tables.redo_log import PREPARED_TAGS, RedoEntries, redo_entries
from rmqtx.readers.old_tables.state_table import StateSlots, state_slots
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import DISCARD_TOPIC, ROCKSDB_OP_TOPIC, Store
from rmqtx.verdicts.ends.doubtful_ends import can_be_decided, misdirected_decision
from rmqtx.verdicts.ends.named_halves import PossibleNumbers, RecordWords, doubtful_number, identified_rows, words_of
from rmqtx.verdicts.model.verdict_inputs import DoubtfulEnd, MisdirectedDecision, MissingRange

_ENDS_AT_ONCE = 4096
_COMMIT, _ROLLBACK, _OP = "COMMIT record", "ROLLBACK record", "op message"
_OFFSET_BYTES = 8
#: The most ends for which similar offsets are tried; a log with more is badly damaged.
_ENDS_MAX = 64


@dataclass(slots=True)
class ExaminedEnds:
    """The results for some ends.

    Shape: `decisions`: those on records outside the half topic; `ties`: pairs of identities that are, or may be, one
           transaction and must be judged together; `doubtful`: ends for which the ended half is unknown; `missing`: op
           numbers that may belong to another half: a queue contradicts them, or the reference of the end is damaged.
    """

    decisions: list[MisdirectedDecision] = field(default_factory=list)
    ties: list[tuple[str, str]] = field(default_factory=list)
    doubtful: list[DoubtfulEnd] = field(default_factory=list)
    missing: list[MissingRange] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Wrong:
    """One fault of an end: its place, and the texts of its finding."""

    code: str
    offset: int
    length_bytes: int
    expected: str
    actual: str


def examined_ends(
    store: Store, offsets: Int64s, named_offsets: Int64s, unreadable_files: frozenset[str] = frozenset(),
    missing: Sequence[MissingRange] = (), damaged_halves: Iterable[Block] = (),
) -> ExaminedEnds:
    """Examine the records that some ends, and commits of diverted half messages, name.

    `offsets`: their places; `named_offsets`: the places that they name. Ends that name their own half copy need not be
    included. `unreadable_files`: files that cannot be read; `missing`: other missing ranges; `damaged_halves`: half
    records in them that can still be read in part.
    Units: commit-log offsets in bytes; the two arrays go together.
    Order: commit-log offset of the end.
    Damage: end-names-nothing, words-contradict, slot-mismatch.
    Raises: SourceError if a file that an end names can no longer be read.
    """
    with store.log() as log:
        work = _Examination(store, log, unreadable_files, missing, damaged_halves)
        order = np.argsort(offsets, kind="stable")
        pairs = []
        for offset, named in zip(offsets[order].tolist(), named_offsets[order].tolist(), strict=True):
            if work.cannot_be_read(named, offset):
                work.tie_to_damaged(offset, named)
            else:
                pairs.append((offset, named))
        for first in range(0, len(pairs), _ENDS_AT_ONCE):
            portion = pairs[first : first + _ENDS_AT_ONCE]
            settled = _settled(log, store.root, portion)
            for offset, named in portion:
                if offset not in settled:
                    work.examine(offset, named)
        return work.result()


def _settled(log: SegmentedLog, store: str, pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Return the ends that name a half copy with the same values: most do, and need no closer examination."""
    own, named = (
        [witnesses_of(block, store) for block in blocks_at(log, sorted(places))]
        for places in ({offset for offset, _ in pairs}, {place for offset, place in pairs if 0 <= place < offset})
    )
    halves = identified_rows([found["halves"] for found in named if "halves" in found])
    return {
        offset
        for kind, name in (("finals", "prepared_transaction_offset"), ("offset_marks", "half_commit_log_offset"))
        for offset in identified_rows([found[kind] for found in own if kind in found]).settled(name, halves).tolist()
    }


class _Examination:
    """The ends of one store."""

    def __init__(
        self, store: Store, log: SegmentedLog, unreadable_files: frozenset[str], missing: Sequence[MissingRange],
        damaged_halves: Iterable[Block],
    ) -> None:
        self._store, self._log = store, log
        self._unreadable, self._missing = unreadable_files, missing
        self._missing_from = frozenset(one.begin_offset for one in missing)
        self._damaged_halves = {int(half.commit_log_offsets[0]): half for half in damaged_halves}
        self._found = ExaminedEnds()
        self._wrong: list[_Wrong] = []
        self._candidates = EndCandidates(store, log)
        self._numbers = PossibleNumbers(store, log)

    def examine(self, offset: int, named_offset: int) -> None:
        """Examine one end and the record that it names."""
        end = block_at(self._log, offset)
        if end is None:
            return
        kind, is_before = _kind_of(end), 0 <= named_offset < offset
        named = block_at(self._log, named_offset) if is_before else None
        if named is None:
            what = "not before this record" if named_offset >= 0 else "no offset"
            if is_before:
                what = "no record begins there"
            self._add_nothing(end, kind, named_offset, what)
            return
        words, other = words_of(end), words_of(named)
        is_half = bool(are_halves(named)[0])
        if kind is None:  # a commit of a diverted half message, which went to the half topic again
            if words.is_of_same(other) and not is_half:
                self._add_decision(named, end)
            return
        if _is_copy(named):  # a chain may join them by the place, if no other record has the end's id
            self._add_tie(named, end, kind)
        is_known = is_half or bool(can_be_decided(named)[0])
        if not is_known or not words.is_of_same(other) or (_is_of_old_design(end) and not is_half):
            self._add_nothing(end, kind, named_offset, f"{_described(named)} begins there")
            return
        for name, mine, its in words.contradictions(other):
            self._wrong.append(_Wrong(
                "words-contradict", offset, int(end.lengths[0]),
                f"{name} {its}, as in {_described(named, with_id=False)} at commit-log offset {named_offset} that this "
                f"{kind} names", f"{name} {mine}",
            ))
        if not is_half:
            self._add_decision(named, end)

    def tie_to_damaged(self, offset: int, named_offset: int) -> None:
        """Tie an end to the damaged copy that it names: the place joins them even if the id is damaged."""
        named, segment = self._damaged_halves.get(named_offset), self._log.segment_at(named_offset)
        if named is None and named_offset in self._missing_from:
            is_readable = segment is not None and segment.file not in self._unreadable
            named = block_at(self._log, named_offset) if is_readable else None
        if named is None or not _is_copy(named):
            return
        end = block_at(self._log, offset)
        kind = None if end is None else _kind_of(end)
        if end is not None and kind is not None:
            self._add_tie(named, end, kind)

    def result(self) -> ExaminedEnds:
        """Return all results."""
        for code in ("end-names-nothing", "words-contradict"):
            mine = [one for one in self._wrong if one.code == code]
            for one, more in one_by_one(mine, "records"):
                self._found.findings.append(Finding(
                    self._store.root, code, *self._log.place_of(one.offset), one.length_bytes,
                    commit_log_offset=one.offset, expected=one.expected, actual=f"{one.actual}{more}",
                ))
        return self._found

    def cannot_be_read(self, named_offset: int, offset: int) -> bool:
        """Whether the named record has left the log or is missing: then the reference may be right."""
        if not 0 <= named_offset < offset:
            return False
        segment = self._log.segment_at(named_offset)
        if segment is None or segment.file in self._unreadable:
            return True
        return any(one.begin_offset <= named_offset < one.end_offset for one in self._missing)

    def _add_nothing(self, end: Block, kind: str | None, named_offset: int, what: str) -> None:
        offset = int(end.commit_log_offsets[0])
        name = "half record" if kind is None else kind
        self._wrong.append(_Wrong(
            "end-names-nothing", offset, int(end.lengths[0]), f"the place of the half that this {name} ended",
            f"commit-log offset {named_offset}: {what}",
        ))
        if kind is None:  # a half message itself: it ends nothing
            return
        words = words_of(end)
        ids = () if words.transaction_id is None else (words.transaction_id,)
        named = f"commit-log offset {named_offset}: {what}"
        self._found.doubtful.append(DoubtfulEnd(
            self._store.root, offset, kind == _COMMIT,
            f"the {kind} at commit-log offset {offset} may have ended it; the place it names is damaged: {named}",
            ids, () if ids else self._candidates.of(end, named_offset), words.group,
        ))
        if kind == _COMMIT and not _is_of_old_design(end):
            doubt = f"the {kind} at commit-log offset {offset} names {named}"
            self._found.missing.extend(self._numbers.of(end, doubt))

    def _add_decision(self, named: Block, end: Block) -> None:
        self._found.decisions.append(misdirected_decision(self._store.root, named, end))
        doubt = doubtful_number(self._store, self._log, named, int(end.commit_log_offsets[0]))
        if doubt is not None:
            self._found.missing.append(doubt[0])
            self._found.findings.append(doubt[1])

    def _add_tie(self, named: Block, end: Block, kind: str) -> None:
        root = self._store.root
        copy = identities(halves_of(named, root, JUDGED_HALVES))[0].as_py()
        rows = {_COMMIT: lambda: finals_of(end, root), _ROLLBACK: lambda: rollback_marks(end, root),
                _OP: lambda: rocksdb_marks(end, root)}[kind]()
        own = pc.coalesce(rows["transaction_id"], rows["fingerprint"])[0].as_py()
        if own is not None and copy is not None and copy != own:
            self._found.ties.append((copy, own))


def _is_copy(named: Block) -> bool:
    """Whether a record that an end names is a half copy or a discard copy."""
    return bool(are_halves(named)[0] or named.topic_is(DISCARD_TOPIC)[0])


def _kind_of(end: Block) -> str | None:
    """The kind of an end as text; None for a record of a half topic."""
    if end.topic_is(ROCKSDB_OP_TOPIC)[0]:
        return _OP
    if is_rollback(end)[0]:
        return _ROLLBACK
    return _COMMIT if is_final(end)[0] else None


def _is_of_old_design(end: Block) -> bool:
    """Whether an end can only name a prepared record (before 4.3)."""
    return bool(is_rollback(end)[0]) or prepared_names(end)[0].is_valid


def _described(named: Block, *, with_id: bool = True) -> str:
    """Describe a record that an end names."""
    if are_halves(named)[0]:
        what = "a half record"
    elif named.topic_is(DISCARD_TOPIC)[0]:
        what = "a discard copy"
    else:
        what = f"a record of topic {named.topic_texts()[0]}"
    words = words_of(named)
    if not with_id:
        return what.replace("a ", "the ", 1)
    own = [] if words.transaction_id is None else [f"transaction {words.transaction_id}"]
    own += [] if words.group is None else [f"group {words.group}"]
    return f"{what} of {', '.join(own)}" if own else f"{what} without an id"


# Candidates for the half of an end with a damaged reference: by redo log, state table, or one changed byte.
#
# A candidate must have the same group, topic, born time and host, keys, body or number as the end. An end with an id
# needs no candidate; an end without candidates may belong to any transaction of its group.


class EndCandidates:
    """The half records that ends of one store may have ended."""

    def __init__(self, store: Store, log: SegmentedLog) -> None:
        self._store, self._log = store, log
        self._left = _ENDS_MAX
        self._redo: RedoEntries | None = None
        self._slots: StateSlots | None = None
        self._is_read = False

    def of(self, end: Block, named_offset: int) -> tuple[int, ...]:
        """Return the commit-log offsets of half records that match an end; none if no witness points to one.

        Order: ascending.
        """
        words, offset = words_of(end), int(end.commit_log_offsets[0])
        for places in (self._by_tables(words, offset), self._near(named_offset, offset)):
            found = sorted({place for place in places if self._matches(place, words)})
            if found:
                return tuple(found)
        return ()

    def _by_tables(self, words: RecordWords, offset: int) -> Iterator[int]:
        """Places that the redo log has for this end, and those of state-table slots with its number."""
        if not self._is_read:
            self._is_read = True
            with suppress(SourceError):  # their own readers report it
                self._redo, self._slots = redo_entries(self._store, []), state_slots(self._store, [])
        if self._redo is not None:
            mine = (self._redo.offsets == offset) & (self._redo.tags != PREPARED_TAGS)
            yield from self._redo.tags[mine].tolist()
        if self._slots is not None and words.number is not None:
            yield from self._slots.offsets[self._slots.numbers == words.number].tolist()

    def _near(self, named_offset: int, offset: int) -> Iterator[int]:
        """The offsets that differ from the named one in one byte."""
        self._left -= 1
        if self._left < 0:
            return
        for byte in range(_OFFSET_BYTES):
            cleared = named_offset & ~(0xFF << 8 * byte) & (1 << 64) - 1
            for value in range(256):
                place = cleared | value << 8 * byte
                if self._log.begin_offset <= place < offset and place != named_offset:
                    yield place

    def _matches(self, place: int, words: RecordWords) -> bool:
        half = block_at(self._log, place)
        return half is not None and bool(are_halves(half)[0]) and not any(words.contradictions(words_of(half)))

"""Ends compared with the half copies that they name: those of one split, or some of a whole log.

A decision may also name a record outside the half topic. Its op has the queue offset of that record
(docs/formats/end_transaction.md#repeats), and no checksum covers a queue offset. If record and queue differ, an op with
either number may belong to the decision. If the reference in the decision is damaged, its op may have the number of any
final or discard copy of the transaction.

`RecordWords`: the properties that identify a transaction agree in its half copies, decisions and discard copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.properties import KEYS, PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_ID, UNIQ_KEY
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.log.transaction_records import NO_PLACE, are_halves
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import UInt64s, identities, identity_hashes
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, ROCKSDB_OP_TOPIC, Store
from rmqtx.verdicts.model.verdict_inputs import MissingRange

#: Columns that an end copies from its half beside the identity.
_REPEATED = ("born_time_ms", "producer_group")


class IdentifiedRows:
    """Half copies, or ends, of one log, with the hashes of their identities.

    Shape: one value per row, all batches together.
    Order: commit-log offset.
    """

    def __init__(self, batches: list[pa.RecordBatch], hashes: UInt64s) -> None:
        self._batches = batches
        self._hashes = hashes

    def integers(self, name: str) -> Int64s:
        """A column as native integers; `NO_PLACE` for null."""
        parts = [np.asarray(rows[name].fill_null(NO_PLACE).cast(pa.int64())) for rows in self._batches]
        return np.concatenate([np.empty(0, np.int64), *parts])

    @cached_property
    def _offsets(self) -> Int64s:
        return self.integers("commit_log_offset")

    def _each(self, value_of: Callable[[pa.RecordBatch], pa.Array]) -> Bools:
        return np.concatenate([np.empty(0, np.bool_), *(np.asarray(value_of(rows)) for rows in self._batches)])

    def unmatched(self, named_by: str, halves: IdentifiedRows) -> tuple[Int64s, Int64s, UInt64s]:
        """Return the ends that name no half copy here, or one with other values; see `SplitFacts`.

        `named_by`: the column with the named offsets.
        """
        named = self.integers(named_by)
        is_by_place = self._each(
            lambda rows: pc.fill_null(pc.equal(rows["fingerprint"], rows["lone_prepared_id"]), False)
        )
        # 0 is a reference only if an end has no other: a final that waited for its delay names nothing.
        names = (named != 0) | is_by_place
        is_settled, is_contradicted = self._settled_by(named, halves)
        rows = np.flatnonzero(names & ~is_settled)
        hashes = np.where(is_by_place | is_contradicted, np.uint64(0), self._hashes)
        return self._offsets[rows], named[rows], hashes[rows]

    def settled(self, named_by: str, halves: IdentifiedRows) -> Int64s:
        """Return the places of ends that name a half copy with the same values."""
        is_settled, _ = self._settled_by(self.integers(named_by), halves)
        return self._offsets[is_settled]

    def decisions(self) -> tuple[Int64s, Int64s, UInt64s]:
        """Return the half copies that are commits of other records: they name none of these half copies."""
        places, named = self._offsets, self.integers("named_commit_log_offset")
        is_half = self._each(lambda rows: pc.equal(rows["topic"], HALF_TOPIC))
        is_other: Bools = named != NO_PLACE
        if is_other.any():
            is_other &= ~np.isin(named, places[is_half])
        return places[is_other], named[is_other], np.zeros(int(is_other.sum()), np.uint64)

    def _settled_by(self, named: Int64s, halves: IdentifiedRows) -> tuple[Bools, Bools]:
        """Whether each end names a half copy with the same values, and whether one with other values."""
        settled, contradicted = np.zeros(len(named), np.bool_), np.zeros(len(named), np.bool_)
        places = halves._offsets
        if not len(places) or not len(named):
            return settled, contradicted
        row = np.minimum(np.searchsorted(places, named), len(places) - 1)
        found = np.flatnonzero(places[row] == named)
        same = halves._hashes[row[found]] == self._hashes[found]
        for name in _REPEATED:
            same &= self._agrees(name, found, halves, row[found])
        settled[found], contradicted[found] = same, ~same
        return settled, contradicted

    def _agrees(self, name: str, rows: Int64s, halves: IdentifiedRows, half_rows: Int64s) -> Bools:
        """Whether ends and halves have the same value, or one of them has none."""
        ends = [batch[name] for batch in self._batches]
        values = pa.chunked_array([*ends, *(batch[name] for batch in halves._batches)]).combine_chunks()
        known = np.asarray(values.is_valid())
        # Texts are compared by their dictionary numbers: gathering texts by place costs more than comparing them.
        # Numbers are compared as they are: most are different, and a dictionary of them is large.
        numbers = values.dictionary_encode().indices if pa.types.is_string(values.type) else values
        numbers = np.asarray(numbers.fill_null(0))
        both = len(self._offsets) + half_rows
        agrees: Bools = (numbers[rows] == numbers[both]) | ~known[rows] | ~known[both]
        return agrees


def identified_rows(batches: list[pa.RecordBatch]) -> IdentifiedRows:
    """Return half copies or ends with the hashes of their identities."""
    hashes = [identity_hashes(identities(rows)) for rows in batches]
    return IdentifiedRows(batches, np.concatenate([np.empty(0, np.uint64), *hashes]))


def unmatched_ends(
    halves: IdentifiedRows, finals: IdentifiedRows, offset_marks: IdentifiedRows
) -> tuple[Int64s, Int64s, UInt64s]:
    """Return the ends of a split that must be examined: those that do not name a half copy of their own in it.

    A commit of a diverted half message goes to the half topic, so halves may be decisions too: on a record of another
    topic, whose queue offset is then in the op.
    Shape: places of the ends, the offsets that they name, and hashes as in `SplitFacts`.
    """
    unmatched = [
        finals.unmatched("prepared_transaction_offset", halves),
        offset_marks.unmatched("half_commit_log_offset", halves),
        halves.decisions(),
    ]
    offsets, named_offsets, hashes = (np.concatenate(parts) for parts in zip(*unmatched, strict=True))
    return offsets, named_offsets, hashes


def doubtful_number(
    store: Store, log: SegmentedLog, named: Block, end_offset: int
) -> tuple[MissingRange, Finding] | None:
    """Return the doubt if a queue slot contradicts the queue offset of a record that a decision names; else None.

    `named`: one record; `end_offset`: the place of the decision on it.
    Units: commit-log offsets in bytes.
    Damage: slot-mismatch. A queue that cannot be read, or has neither slot, contradicts nothing.
    """
    place, number = int(named.commit_log_offsets[0]), int(named.header("queue_offset")[0])
    topic, own_id = str(named.topic_texts()[0]), int(named.header("queue_id")[0])
    is_contradicted = False
    for queue_id in store.queue_numbers(topic):
        try:
            with open_queue(store, topic, queue_id) as queue:
                found = queue.offset_of(place)
                is_there = queue.place_at(found) == place
                has_other = 0 <= number < queue.max_offset and queue.place_at(number) is not None
        except SourceError:
            continue
        if is_there and (found, queue_id) == (number, own_id):
            return None
        if is_there:
            held = f"slot {found} of {topic}, queue {queue_id}"
            return _doubt(store, log, named, end_offset, (number, found), held)
        is_contradicted |= queue_id == own_id and has_other
    held = f"another record in slot {number} of {topic}, queue {own_id}"
    return _doubt(store, log, named, end_offset, (number,), held) if is_contradicted else None


def _doubt(
    store: Store, log: SegmentedLog, named: Block, end_offset: int, numbers: tuple[int, ...], held: str
) -> tuple[MissingRange, Finding]:
    place, length = int(named.commit_log_offsets[0]), int(named.lengths[0])
    own = f"{int(named.header('queue_offset')[0])} of queue {int(named.header('queue_id')[0])}"
    what = (
        f"the decision at commit-log offset {end_offset} names the record at {place} with number {own}, but its "
        f"queue has {held}: an op with either number may belong to this decision"
    )
    missing = MissingRange(
        store.root, place, place + length, what, is_identified=True, half_queue_offsets=tuple(sorted(set(numbers)))
    )
    return missing, Finding(
        store.root, "slot-mismatch", *log.place_of(place), length, commit_log_offset=place, expected=held,
        actual=f"number {own} in the record that the decision at commit-log offset {end_offset} names",
    )


class PossibleNumbers:
    """Possible op numbers of COMMIT records with a damaged reference, if they named another record than their half.

    The other records of the transaction are found by the index, which is opened once, when it is first needed.
    """

    def __init__(self, store: Store, log: SegmentedLog) -> None:
        self._store, self._log = store, log
        self._index: Index | None = None

    def of(self, end: Block, what: str) -> list[MissingRange]:
        """Return the doubt about one COMMIT record; none if it could only name its half.

        `what`: the fault of the record. If the index does not cover all records before it, any later op may be its own.
        """
        place, topic = int(end.commit_log_offsets[0]), str(end.topic_texts()[0])
        identity, words = end.properties.text(UNIQ_KEY)[0].as_py(), words_of(end)
        numbers: set[int] = set()
        is_whole = False
        if identity is not None and self._store.index_files and not self._store.is_remote:
            self._index = self._index or open_index(self._store)
            keys = [f"{name}#{identity}".encode() for name in (topic, DISCARD_TOPIC)]
            for offset in np.unique(self._index.find(keys)[1]).tolist():
                named = block_at(self._log, offset) if offset < place else None
                if named is not None and not are_halves(named)[0] and words.is_of_same(words_of(named)):
                    numbers.add(int(named.header("queue_offset")[0]))
            is_whole = not self._index.uncovered(self._log.begin_offset, place)
        if is_whole and not numbers:
            return []
        return [MissingRange(
            self._store.root, place, place + int(end.lengths[0]),
            f"{what}; an op mark may belong to this decision and not to the half",
            is_identified=True, half_queue_offsets=tuple(sorted(numbers)),
            named_from_offset=None if is_whole else place,
        )]


@dataclass(frozen=True, slots=True)
class RecordWords:
    """The identifying properties of one record; None for properties that the kind of record does not have.

    Shape: `is_torn`: its properties were not completely written, so None is unknown. `number` is the queue offset of a
           prepared record (3.1), which its ROLLBACK record repeats.
    Units: milliseconds.
    """

    transaction_id: str | None
    group: str | None
    topic: str | None
    born_time_ms: int | None
    born_host: str | None
    keys: str | None
    body_crc: int | None
    number: int | None
    is_torn: bool = False

    def contradictions(self, other: RecordWords) -> Iterator[tuple[str, str, str]]:
        """Return the properties in which two records of one transaction differ: name, this record's value, the other's.

        An id that only one of them has is a difference, unless the other's properties are torn.
        """
        if self.transaction_id != other.transaction_id and not self._lacks_id(other) and not other._lacks_id(self):
            yield "transaction id", str(self.transaction_id or "none"), str(other.transaction_id or "none")
        for name, mine, its in self._pairs(other):
            if mine is not None and its is not None and mine != its:
                yield name, str(mine), str(its)

    def _lacks_id(self, other: RecordWords) -> bool:
        """Whether only this record has no id, because its properties are torn."""
        return self.is_torn and self.transaction_id is None and other.transaction_id is not None

    def is_of_same(self, other: RecordWords) -> bool:
        """Whether two records belong to one transaction, even if one property of one record is damaged."""
        differing = sum(mine is not None and its is not None and mine != its for _, mine, its in self._pairs(other))
        if self.transaction_id is not None and self.transaction_id == other.transaction_id:
            return True
        if self.transaction_id is None and other.transaction_id is None:
            return differing <= 1
        return differing == 0

    def _pairs(self, other: RecordWords) -> Iterator[tuple[str, str | int | None, str | int | None]]:
        yield "producer group", self.group, other.group
        yield "real topic", self.topic, other.topic
        yield "born time", self.born_time_ms, other.born_time_ms
        yield "born host", self.born_host, other.born_host
        is_torn = (self.is_torn and self.keys is None) or (other.is_torn and other.keys is None)
        if self.born_time_ms is not None and other.born_time_ms is not None and not is_torn:
            yield "keys", self.keys or "none", other.keys or "none"
        yield "body CRC", self.body_crc, other.body_crc
        yield "number", self.number, other.number


def words_of(block: Block) -> RecordWords:
    """Return the identifying properties of a block of one record."""
    text = {name: block.properties.text(name)[0].as_py()
            for name in (UNIQ_KEY, TRANSACTION_ID, PRODUCER_GROUP, KEYS, REAL_TOPIC)}
    is_torn = bool(have_torn_properties(block)[0])
    if is_torn:  # a value that runs on into zeros is not complete
        text = {name: None if value is None or "\0" in value else value for name, value in text.items()}
    if block.topic_is(ROCKSDB_OP_TOPIC)[0]:  # its other properties are those of the op message
        return RecordWords(text[TRANSACTION_ID], None, text[REAL_TOPIC], None, None, None, None, None, is_torn)
    is_end, is_old = bool(is_rollback(block)[0]), bool(is_prepared(block)[0])
    is_in_half_topic = not is_old and bool(are_halves(block)[0])
    topic = text[REAL_TOPIC] or (None if is_in_half_topic else str(block.topic_texts()[0]))
    return RecordWords(
        text[UNIQ_KEY], text[PRODUCER_GROUP], topic, int(block.header("born_time_ms")[0]), str(block.born_hosts()[0]),
        text[KEYS], None if is_end else int(block.header("body_crc")[0]),
        int(block.header("queue_offset")[0]) if is_end or is_old else None, is_torn,
    )

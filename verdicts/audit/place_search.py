"""The transactions with a record at a place: a number in the half or op queue, or a byte of the commit log.

Several half messages can have one number: a half queue whose files were lost begins again at 0. Only the whole log
shows all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import is_final
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import few
from rmqtx.readers.model.identities import AT, FINAL, HALF, OP, NamedPlace, is_named
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPIC, HALF_TOPICS, OP_TOPIC, OP_TOPICS, Store
from rmqtx.verdicts.evidence.store_facts import StoreFacts

PLACES_ADVICE = (
    "rmqtx decode half STORE and rmqtx decode op STORE list the queue offsets, rmqtx decode commitlog STORE all records"
)
_TOPICS = {HALF: HALF_TOPICS, OP: OP_TOPICS}
_LISTS = {
    "half_copies": "half message", "final_records": "COMMIT record", "discard_copies": "discard copy",
    "op_marks": "op message",
}


@dataclass(frozen=True, slots=True)
class _Match:
    """One record of a transaction that is at the place; `number`: its number among the records of its kind, from 1."""

    kind: str
    number: int
    count: int
    entry: dict[str, Any]


class PlaceWords:
    """A place, and how rows of TRANSACTIONS are at it. `starts`: the first byte of the record there, by store."""

    def __init__(self, place: NamedPlace, roots: Collection[str], starts: dict[str, int] | None = None) -> None:
        self.place, self._roots, self._starts = place, roots, {} if starts is None else starts

    def _matches(self, rows: pa.Table) -> Iterator[list[_Match]]:
        columns = {name: rows[name].to_pylist() for name in _LISTS}
        self._prepare(columns)
        for number in range(rows.num_rows):
            yield [
                _Match(kind, place + 1, len(entries), entry)
                for kind, lists in columns.items()
                for entries in (lists[number],)
                for place, entry in enumerate(entries)
                if self._is_at(kind, entry)
            ]

    def _is_at(self, kind: str, entry: dict[str, Any]) -> bool:
        root, place = entry["store"], self.place
        if root not in self._roots:
            return False
        if place.is_of_log:
            is_decision = kind == "final_records" or (kind == "op_marks" and entry["half_queue_offset"] is None)
            return entry["commit_log_offset"] == self._starts.get(root) and (place.kind == AT or is_decision)
        if kind != ("half_copies" if place.kind == HALF else "op_marks") or entry["queue_offset"] != place.number:
            return False
        # The numbers of a delayed copy, or of a prepared record, are of other queues.
        return self._topic(root, entry["commit_log_offset"]) in (None, *_TOPICS[place.kind])

    def _prepare(self, columns: dict[str, list[list[dict[str, Any]]]]) -> None:
        """Find the records at the place among the evidence of some rows."""

    def _topic(self, root: str, offset: int) -> str | None:  # noqa: ARG002 -- read by sources that have the log
        """Return the topic of a record; None if it is not known."""
        return None

    def _words_of_queues(self, halves: dict[str, dict[int, str]]) -> Iterator[str]:  # noqa: ARG002
        """Return sentences about the queue that has the place. `halves`: by store, id by commit-log offset."""
        yield from ()

    def notes(self, rows: pa.Table, identity: str) -> list[Note]:
        """Return notes about what is at the place: which copy, several records, a key of the same name."""
        names, keys = rows["transaction_id"].to_pylist(), rows["keys"].to_pylist()
        found = list(self._matches(rows))
        words: list[str] = []
        halves: dict[str, dict[int, str]] = defaultdict(dict)
        for name, matches in zip(names, found, strict=True):
            for match in matches:
                if match.kind == "half_copies":
                    halves[match.entry["store"]][match.entry["commit_log_offset"]] = name
            words += self._words_of(name, matches)
        words += self._words_of_queues(halves)
        by_key = [name for name, own in zip(names, keys, strict=True) if is_named(identity, name, own)]
        if by_key:
            at = "; " + (f"{self.place.words} is of {few(at_place)}" if (at_place := [
                name for name, matches in zip(names, found, strict=True) if matches
            ]) else f"no transaction is at {self.place.words}")
            words.insert(0, f"{identity} is an id or a key of {few(by_key)}{at}")
        return [Note(NoteKind.WHY, word) for word in words]

    def _words_of(self, name: str, matches: list[_Match]) -> Iterator[str]:
        place = self.place
        for match in matches:
            entry, begin = match.entry, match.entry["commit_log_offset"]
            if match.kind == "half_copies" and entry["checks_count"]:
                yield (
                    f"{place.words} is copy {match.number} of {match.count} of {name}, put back by check "
                    f"{entry['checks_count']}"
                )
            if place.is_of_log and begin != place.number:
                what = _LISTS[match.kind]
                yield f"{place.words} is byte {place.number - begin} of the {what} at commit-log offset {begin}"
            if place.also_number not in (None, entry["queue_offset"]) and match.kind == "half_copies":
                yield (
                    f"the line has queue offset {place.also_number}, the record at {place.words} has "
                    f"{entry['queue_offset']}: the line may be of another broker, or of another record"
                )


class PlaceSearch(PlaceWords):
    """A place in some stores on files. Raises: SourceError if a file of the log cannot be read."""

    def __init__(self, facts: Sequence[StoreFacts], place: NamedPlace) -> None:
        self._all = [fact.store for fact in facts]
        self._stores = {
            fact.store.root: fact.store for fact in facts
            if place.is_in(fact.store.root, (fact.settings.given or {}).get("brokerName"))
        }
        super().__init__(place, self._stores)
        self._topics: dict[tuple[str, int], str | None] = {}
        self._ids: list[str] = []
        if place.is_of_log:
            for root, store in self._stores.items():
                block = self._block(store, place.number)
                if block is not None:
                    self._starts[root] = place.number
                    self._ids.append(str(block.message_ids()[0]))

    def message_ids(self) -> list[str]:
        """Return the message ids of the records that begin at the place; none for a place in a queue."""
        return self._ids

    @property
    def why_scanned(self) -> str:
        """Why the derived files do not answer; empty if they can."""
        if not self.place.is_of_log:
            return "several records can have one queue offset"
        return "" if self._starts else f"no record begins at {self.place.words}"

    def are_at(self, rows: pa.Table) -> pa.Array:
        """Return which rows of TRANSACTIONS have a record at the place."""
        found = list(self._matches(rows))
        return pa.array([bool(matches) for matches in found], pa.bool_())

    def _prepare(self, columns: dict[str, list[list[dict[str, Any]]]]) -> None:
        """Note the records of transactions that cover the byte, where no record begins there."""
        if not self.place.is_of_log:
            return
        wanted = self.place.number
        nearest: dict[str, int] = defaultdict(lambda: -1)
        for lists in columns.values():
            for entry in (entry for entries in lists for entry in entries):
                if entry["commit_log_offset"] <= wanted:
                    nearest[entry["store"]] = max(nearest[entry["store"]], entry["commit_log_offset"])
        for root, offset in nearest.items():
            if root in self._starts or root not in self._stores or offset < 0:
                continue
            block = self._block(self._stores[root], offset)
            if block is not None and wanted < offset + int(block.lengths[0]):
                self._starts[root] = offset

    def _topic(self, root: str, offset: int) -> str | None:
        if (root, offset) not in self._topics:
            block = self._block(self._stores[root], offset)
            self._topics[root, offset] = None if block is None else block.topic_texts().to_pylist()[0]
        return self._topics[root, offset]

    @staticmethod
    def _block(store: Store, offset: int) -> Block | None:
        with store.log() as log:
            return block_at(log, offset)

    # -- words ----------------------------------------------------------------------------------------------------

    def _words_of_queues(self, halves: dict[str, dict[int, str]]) -> Iterator[str]:
        if self.place.kind == HALF:
            for root, own in halves.items():
                by_topic: dict[str, dict[int, str]] = defaultdict(dict)
                for offset, name in own.items():
                    by_topic[self._topic(root, offset) or HALF_TOPIC][offset] = name
                yield from (self._shared_words(root, topic, same) for topic, same in by_topic.items() if len(same) > 1)
                if len(by_topic) > 1:
                    yield f"{root} has {self.place.words} in {len(by_topic)} queues: {', '.join(sorted(by_topic))}"
        if self.place.kind == OP:
            yield from self._op_words()

    def _shared_words(self, root: str, topic: str, halves: dict[int, str]) -> str:
        """Return a sentence about several half messages with one number."""
        slot = self._place_in_queue(root, topic)
        listed = few([f"{name} at {offset}" for offset, name in sorted(halves.items())])
        read = f"the slot leads to commit-log offset {slot}" if slot is not None else "no slot has that number"
        return (
            f"{len(halves)} half messages have {self.place.words} ({listed}): the half queue began again, or two "
            f"records got one number; the check reads only one of them, and {read}"
        )

    def _op_words(self) -> Iterator[str]:
        for root in self._stores:
            numbers = self._op_numbers(root)
            if numbers:
                yield f"the op message at op queue offset {self.place.number} lists half queue offsets {few(numbers)}"

    def _op_numbers(self, root: str) -> list[int]:
        offset = self._place_in_queue(root, OP_TOPIC)
        block = None if offset is None else self._block(self._stores[root], offset)
        if block is None or not block.topic_is(OP_TOPIC).all():
            return []
        return sorted(set(ops_of(block, root)["half_queue_offsets"].flatten().to_pylist()))

    def _place_in_queue(self, root: str, topic: str) -> int | None:
        """Return the commit-log offset in the slot with the number; None without a slot, or if it cannot be read."""
        try:
            with open_queue(self._stores[root], topic, 0) as queue:
                return queue.place_at(self.place.number)
        except SourceError:
            return None

    def why_nothing(self) -> str:
        """Return a clause about what there is instead: the range of the queue or of the log."""
        if not self._stores:
            names = ", ".join(store.root for store in self._all)
            return f"; no store of {names} is, or has a broker, named {self.place.where}"
        return "".join(f"; {self._why_nothing_in(store)}" for store in self._stores.values())

    def _why_nothing_in(self, store: Store) -> str:
        if self.place.is_of_log:
            return self._why_no_record(store)
        what, topics = ("half", _TOPICS[HALF]) if self.place.kind == HALF else ("op", _TOPICS[OP])
        ranges: list[str] = []
        try:
            for topic in topics:
                with open_queue(store, topic, 0) as queue:
                    if queue.max_offset > queue.min_offset:
                        ranges.append(f"queue offsets {queue.min_offset} to {queue.max_offset - 1} of {topic}")
        except SourceError:
            return f"the {what} queue of {store.root} cannot be read"
        if not ranges:
            if store.has_rocksdb_queues:
                return f"the queues of {store.root} are in RocksDB, and no {what} message of the log has that number"
            return f"{store.root} has no {what} queue with messages (brokers before 4.3 have none: use at:)"
        numbers = self._op_numbers(store.root) if self.place.kind == OP else []
        listed = f"; this op message lists half queue offsets {few(numbers)}, of no half message" if numbers else ""
        return f"{store.root} has {' and '.join(ranges)}{listed}"

    def _why_no_record(self, store: Store) -> str:
        end = written_end(store).offset
        if not store.log_begin_offset <= self.place.number < end:
            return f"the files of the commit log of {store.root} have bytes {store.log_begin_offset} to {end - 1}"
        block = self._block(store, self.place.number)
        if block is None:
            return f"no record of a transaction covers byte {self.place.number} of the commit log of {store.root}"
        topic = block.topic_texts().to_pylist()[0]
        what = "no COMMIT record" if self.place.kind == FINAL and not is_final(block)[0] else "of no transaction"
        return f"the record there, of topic {topic}, is {what}"

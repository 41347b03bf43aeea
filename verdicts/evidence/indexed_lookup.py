"""The fast path: the witnesses of some transactions by cursors, queues and index, without reading the whole log.

Its cost depends on the open window, not on the log: the half queue from the check cursor on, the op queue from the
first copy's place on, and for each transaction an index lookup for its other copies, its final and its discard copy.
What neither queue nor index covers (the log's tail after a crash, holes between index files) is scanned. If a file
cannot be trusted, `Untrusted` is raised with the cause, and the caller scans the log instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.index.record_keys import key_pairs, tag_pairs, typed_id_pairs, unique_key_pairs
from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.designs import has_only_prepared
from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.prepared_records import CLUSTER, is_prepared, is_rollback
from rmqtx.readers.log.record_at import block_at, blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.transaction_records import NO_PLACE, are_damaged_finals, is_delayed_half, is_final, named_offsets
from rmqtx.readers.model.columns import Int64s, IntegerSet, are_among, int64s
from rmqtx.readers.model.identities import offset_of
from rmqtx.readers.model.java_hashes import column_key_hashes
from rmqtx.readers.model.releases import REFUSED_TAKES_NUMBER
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    WAITING_TOPICS,
)
from rmqtx.verdicts.ends.doubtful_ends import misdirected_decisions, names_of
from rmqtx.verdicts.evidence.derived_trust import (
    Untrusted,
    require_agreement,
    require_end,
    require_order_before,
    require_queued,
    require_readable_copies,
    require_slots,
    require_sound_properties,
    sound_blocks,
)
from rmqtx.verdicts.evidence.lookup_costs import Counts, about_offset, why_dear
from rmqtx.verdicts.evidence.store_facts import StoreFacts
from rmqtx.verdicts.evidence.witness_collector import CollectedWitnesses, incomplete_chains, lacks_diverted
from rmqtx.verdicts.missing.split_numbers import REFUSED_MAX
from rmqtx.verdicts.model.witnesses import Witnesses

#: For a window larger than this, a scan of the log is faster.
WINDOW_SLOTS_MAX = 1 << 20
#: How much of a log before its first half message is read, to exclude prepared records of older brokers.
_BEFORE_HALVES_BYTES_MAX = 16 << 20
#: How much of a log before its first half message is read, to exclude that the half queue was deleted (about 12 ms).
_OLDER_HALVES_BYTES_MAX = 4 << 20
#: The most topics whose queue 0 is searched for records that a decision outside the half topic may have named.
_TOPICS_MAX = 256
_OPS_AT_ONCE = 1 << 16
#: How much of the log after the last slot of a killed broker's half or op queue is read, in bytes.
_TAIL_BYTES_MAX = 256 << 20
#: How far before the first copy of a transaction in object storage its other records are searched for in the index.
_BEFORE_FIRST_BYTES = 16 << 20
#: If it was further back, this multiple of the searched part of the log is added.
_FURTHER = 2
#: How much a producer's clock may be ahead of the broker's; if it is more, the search goes on.
_CLOCKS_DIFFER_MS = 1_000
#: Hashes in the index are not negative.
_HASH_BITS = 31


class DerivedFiles:
    """One store, read by its derived files.

    Shape:  `open_transactions()` and `transactions_of(...)` return names, `witnesses(...)` whole transactions. Findings
            are added to the store's facts.
    Raises: Untrusted; SourceError if files vanish.
    """

    def __init__(self, facts: StoreFacts) -> None:
        self._facts = facts
        self._store = facts.store
        self._gathered = CollectedWitnesses(self._store.root)

    def __enter__(self) -> DerivedFiles:
        with ExitStack() as stack:  # closed here if a file cannot be trusted
            self._require_trust()
            self._log = stack.enter_context(self._store.log())
            require_agreement(self._facts, self._log)
            self._half_queue = stack.enter_context(open_queue(self._store, HALF_TOPIC, 0))
            self._op_queue = stack.enter_context(open_queue(self._store, OP_TOPIC, 0))
            require_end(self._half_queue)
            require_end(self._op_queue)
            self._index = open_index(self._store, self._facts.settings.max_hash_slots)
            if not self._half_queue.exists and self._store.commit_log:
                raise Untrusted(
                    "prepared records (before 4.3) are in no consume queue" if has_only_prepared(self._store) else
                    "the half topic has no files of consume queues (normal before 4.3, and with transactions or queues "
                    "in RocksDB)"
                )
            self._require_half_topic_alone()
            self._require_cursors_in_queues()
            cursor = (self._facts.cursors.half or {}).get(0, self._half_queue.min_offset)
            if cursor < self._half_queue.max_offset and self._op_queue.max_offset == self._op_queue.first_offset:
                raise Untrusted("the op topic has no slot in a consume queue: the log shows whether it has op messages")
            if not self._index.exists and self._half_queue.exists:
                raise Untrusted("there is no index")
            if self._store.aborted or self._store.in_use:
                # Records that were not dispatched when the broker was killed, or are being dispatched now; there are
                # none after a clean stop (the broker removes `abort` only then).
                self._scan_into(self._tail_begin(), None)
            else:
                require_queued(self._facts, (self._half_queue, self._op_queue))
            self._stack = stack.pop_all()
        return self

    def _tail_begin(self) -> int:
        """Return from where the log may have records that are not in the index or, after a kill, in their queue.

        Raises: Untrusted if a queue ends far before the index.
        """
        covered = self._index.covered_until_offset or self._store.log_begin_offset
        if self._store.in_use:
            return covered
        begin = covered
        for queue in (self._half_queue, self._op_queue):
            last = queue.last_place()
            end = self._store.log_begin_offset if last is None else last  # a queue without slots may have lost them
            if covered - end > _TAIL_BYTES_MAX:
                raise Untrusted(f"the queue of {queue.topic} ends {covered - end} bytes before the index")
            begin = min(begin, end)
        return begin

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    #: Whether single transactions were requested; their copies need not all be in the window.
    _is_lookup = False

    def open_transactions(self) -> dict[str, str | None]:
        """Return every transaction with a half copy that the check has not reached yet: id → real topic."""
        self._read_window()
        self._read_scheduled()
        halves = self._gathered.table("halves")
        if pc.any(pc.is_null(halves["transaction_id"])).as_py():
            raise Untrusted("open half messages without UNIQ_KEY are not in the index")
        if self._store.is_remote and halves.num_rows:
            why = why_dear(self._counts(halves))
            if why is not None:
                raise Untrusted(why)
        return self._named(halves)

    def _counts(self, halves: pa.Table) -> Counts:
        """Return what look-ups of the open half copies will read, as far as counts and times show it."""
        originals = halves.filter(pc.is_null(halves["checks_count"]))
        names, known = (pc.count_distinct(rows["transaction_id"]).as_py() for rows in (halves, originals))
        first = self._first_place()
        more = [topic for topic in (DISCARD_TOPIC, *WAITING_TOPICS) if self._store.has("consumequeue", topic)]
        return Counts(
            older=names - known, keys=names * (2 + len(more)),
            entries=sum(file.entries_from(max(0, first - _BEFORE_FIRST_BYTES)) for file in self._index.files),
            ops=self._op_queue.max_offset - self._op_queue.offset_of(first),
            span_bytes=max(0, written_end(self._store).offset - max(first, self._log.begin_offset)),
            log_bytes=sum(segment.size_bytes for segment in self._store.commit_log),
        )

    def transactions_of(self, identities: Sequence[str]) -> dict[str, dict[str, str | None]]:
        """Return the transactions for ids, message ids of any copy or final, or business keys.

        Shape: for each known identity: id → real topic. The index is read once for all.
        """
        self._is_lookup = True
        self._require_own_window()
        at_offsets: dict[str, int | None] = dict.fromkeys(identities)
        for identity in identities:
            if (offset := offset_of(identity)) is not None:
                block = block_at(self._log, offset)
                if block is not None and block.message_ids().to_pylist()[0] == identity.upper():
                    self._add(block)
                    at_offsets[identity] = offset
        names = pa.array(identities, pa.string())
        self._read_hits(entries_of(self._index, [(HALF_TOPIC, names), (DISCARD_TOPIC, names)]))
        named: dict[str, dict[str, str | None]] = {}
        for identity, records in self._gathered.named_by(at_offsets).items():
            for name, _, topic in records:
                if name is None:
                    raise Untrusted("the transaction has no UNIQ_KEY, so it is not in the index")
                named.setdefault(identity, {}).setdefault(name, topic)
        self._require_half_copies(self._gathered.table("halves"))
        return named

    @staticmethod
    def _named(halves: pa.Table) -> dict[str, str | None]:
        return dict(zip(halves["transaction_id"].to_pylist(), halves["real_topic"].to_pylist(), strict=True))

    def witnesses(self, named: dict[str, str | None]) -> Witnesses:
        """Return half copies, op marks, finals and discard copies of some transactions, given as id → real topic."""
        self._gathered.restrict(named)
        if named:
            self._follow_index(named)
            self._require_half_copies(self._gathered.table("halves"))
            for kind in ("halves", "discards"):
                require_readable_copies(self._gathered.table(kind))
            self._require_discard_slots(self._gathered.table("discards"))
            if self._gathered.table("halves").num_rows:
                self._read_holes()
                self._require_whole_chains()
                require_slots(self._store, self._half_queue, self._gathered.table("halves"))
                self._read_ops()
                self._require_single_numbers()
        if self._gathered.findings:
            offset = self._gathered.findings[0].commit_log_offset
            raise Untrusted(f"the op message at commit-log offset {offset} cannot be read")
        self._facts.findings.extend(
            [*self._half_queue.findings, *self._op_queue.findings, *self._index.findings]
        )
        kept = self._gathered.kept()
        self._facts.misdirected_decisions.extend(misdirected_decisions(self._store.root, kept, self))
        return kept

    # -- what may be trusted --------------------------------------------------------------------------------------

    def _require_trust(self) -> None:
        if self._store.has_rocksdb_queues:
            raise Untrusted("the consume queues are in RocksDB")
        if self._facts.cursors.half is None or self._facts.cursors.op is None:
            raise Untrusted("the check cursors are unknown")
        holes = [f for f in self._store.findings if f.code in ("segment-gap", "segment-overlap", "segment-size")]
        if holes:
            raise Untrusted(f"the files of the commit log do not join (finding {holes[0].code})")

    def _require_own_window(self) -> None:
        """Require that the half queue goes on in the order of the log from the check cursor on, up to its last record.

        Slots that lead to half messages before them, as of a file that was copied, have numbers that no record has.
        """
        queue = self._half_queue
        if not queue.exists:
            return
        end, cursor = queue.max_offset, (self._facts.cursors.half or {}).get(0, queue.min_offset)
        begin = max(cursor, end - WINDOW_SLOTS_MAX) if self._store.is_remote else cursor
        require_order_before(queue, end, self._log, min(begin, end))

    def _require_cursors_in_queues(self) -> None:
        """Require that both queues reach the check's cursors: behind the end of the op queue, decisions are missing."""
        if not self._half_queue.exists:
            return
        half, op = ((cursors or {}).get(0, 0) for cursors in (self._facts.cursors.half, self._facts.cursors.op))
        if half > (end := self._half_queue.max_offset):
            raise Untrusted(f"the check cursor {half} lies beyond the half queue's end {end}")
        if op > (end := self._op_queue.max_offset):
            raise Untrusted(f"the check's op cursor {op} lies beyond the op queue's end {end}")

    def _require_half_topic_alone(self) -> None:
        """Require that the log has no transactions of another design: queues and cursors do not show them."""
        if self._store.has("consumequeue", ROCKSDB_HALF_TOPIC):
            raise Untrusted("it has transactions in RocksDB: no cursor shows which are open")
        queue, begin = self._half_queue, self._log.begin_offset
        self._require_first_half()
        place = queue.place_at(queue.min_offset)
        first = self._log.end_offset if place is None else place
        if place is not None and first == begin:
            block = block_at(self._log, first)
            if block is None or not block.topic_is(HALF_TOPIC)[0]:
                where = f"commit-log offset {first}"
                raise Untrusted(f"the first slot of the half queue points to {where}, which is not a half message")
        if queue.min_offset > 0 or first <= begin:
            return  # the first half messages have left the log
        # Only a broker before 4.3 writes prepared records, and it would have written the beginning of the log.
        oldest = next(sound_blocks(self._facts, begin, begin + 1), None)
        if oldest is not None and oldest.properties.locate(CLUSTER)[2][0]:
            return
        if first - begin > _BEFORE_HALVES_BYTES_MAX:
            raise Untrusted(f"{first - begin} bytes of the log are older than the half topic")
        for block in sound_blocks(self._facts, begin, first):
            if (is_prepared(block) | is_rollback(block)).any():
                raise Untrusted("it has prepared records of a broker before 4.3, which are in no queue")

    def _require_first_half(self) -> None:
        """Require that no half message is older than the first slot: a queue that was deleted begins again at 0.

        An op message that is older than all half messages of the queue proves it. Without one, the log before the
        first half message is read, if that is short.
        """
        queue, begin = self._half_queue, self._log.begin_offset
        first = queue.place_at(queue.first_offset)
        if first is None or first <= begin:
            return
        first_op = self._op_queue.place_at(self._op_queue.min_offset)
        is_older = queue.first_offset == 0 and first_op is not None and begin <= first_op < first
        op = block_at(self._log, first_op) if first_op is not None and is_older else None
        if op is not None and op.topic_is(OP_TOPIC)[0]:
            raise Untrusted("an op message is older than all half messages of the half queue: the queue began again")
        if first - begin > _OLDER_HALVES_BYTES_MAX or self._store.is_remote:
            return
        for block in sound_blocks(self._facts, begin, first):
            if block.topic_is(HALF_TOPIC).any():
                raise Untrusted("a half message is older than all half messages of the half queue")

    @staticmethod
    def _require_half_copies(halves: pa.Table) -> None:
        """Require that half copies that were found by name or by the index are of the half topic."""
        topics = pa.array([HALF_TOPIC, *WAITING_TOPICS])
        if not pc.all(pc.is_in(halves["topic"], value_set=topics), min_count=0).as_py():
            raise Untrusted("it belongs to another design than the half topic: no queue contains all its records")

    def _require_discard_slots(self, discards: pa.Table) -> None:
        """Require that the discard queue, if it is there, points to the discard copies: no CRC covers their numbers."""
        if discards.num_rows and self._store.has("consumequeue", DISCARD_TOPIC):
            with open_queue(self._store, DISCARD_TOPIC, 0) as queue:
                if queue.exists:
                    require_slots(self._store, queue, discards)

    # -- reading --------------------------------------------------------------------------------------------------

    def _read_window(self) -> None:
        queue = self._half_queue
        cursor = (self._facts.cursors.half or {}).get(0, queue.min_offset)
        if queue.max_offset - cursor > WINDOW_SLOTS_MAX:
            raise Untrusted(f"{queue.max_offset - cursor} half messages are ahead of the check cursor")
        begin = max(cursor, queue.min_offset)
        numbers, offsets, lengths, _ = queue.read(begin, queue.max_offset)
        if len(numbers) != queue.max_offset - begin:
            raise Untrusted("the half queue has invalid slots")
        known = self._facts.windows.take_records(offsets)
        if known is None:
            blocks = blocks_at(self._log, offsets, lengths)
        else:
            blocks = (block.take(~block.are_fillers()) for block in known)
        for block in self._checked(blocks, HALF_TOPIC, numbers, offsets):
            self._gathered.add(block)

    def _read_scheduled(self) -> None:
        """Half messages that a delay level diverted and that are not due yet (clients before 4.6.1).

        Source: docs/formats/half_and_op.md#delayed-half.
        """
        queue_ids = self._store.queue_numbers(SCHEDULE_TOPIC)
        table = config_table(self._store, "delayOffset.json", "offsetTable") if queue_ids else None
        if queue_ids and table is None:
            raise Untrusted("without config/delayOffset.json it is unknown which delayed half messages wait")
        cursors = {str(level): cursor for level, cursor in (table or {}).items()}
        for queue_id in queue_ids:
            cursor = cursors.get(str(queue_id + 1), 0)  # a broker begins a level without a cursor at 0
            if not isinstance(cursor, int):
                raise Untrusted(f"config/delayOffset.json has no number as cursor of level {queue_id + 1}")
            with open_queue(self._store, SCHEDULE_TOPIC, queue_id) as queue:
                _, offsets, lengths, _ = queue.read(max(cursor, queue.min_offset), queue.max_offset)
                for block in blocks_at(self._log, offsets, lengths):
                    self._add(block.take(is_delayed_half(block)))

    @staticmethod
    def _checked(blocks: Iterable[Block], topic: str, numbers: Int64s, offsets: Int64s) -> Iterator[Block]:
        """Return the records that some slots of a queue point to; every one must be there and match its slot.

        `numbers`, `offsets`: of the slots.
        Raises: Untrusted if the slots and their records contradict one another.
        """
        if (np.diff(offsets) <= 0).any():
            raise Untrusted(f"the queue of {topic} is not in the order of the log")
        found = 0
        for block in blocks:
            if not block.topic_is(topic).all():
                raise Untrusted(f"the queue of {topic} points to records of other topics")
            place = np.searchsorted(offsets, block.commit_log_offsets)
            if (numbers[place] != block.header("queue_offset")).any() or block.header("queue_id").any():
                raise Untrusted(f"the queue of {topic} and its records have different queue offsets")
            require_sound_properties(block)
            found += len(block)
            yield block
        if found != len(offsets):
            raise Untrusted(f"{len(offsets) - found} records that the queue of {topic} points to cannot be read")

    def _add(self, block: Block) -> None:
        require_sound_properties(block)
        self._gathered.add(block)

    def _scan_into(self, from_offset: int, to_offset: int | None) -> None:
        for block in sound_blocks(self._facts, from_offset, to_offset):
            self._add(block)
            ops = block.commit_log_offsets[block.topic_is(OP_TOPIC)]
            self._facts.last_op_offset = max(self._facts.last_op_offset, int(ops.max(initial=-1)))

    # -- whole transactions ---------------------------------------------------------------------------------------

    def _follow_index(self, named: dict[str, str | None]) -> None:
        """Read other copies, finals and discard copies of the transactions, by the index."""
        halves = self._gathered.table("halves")
        names, topics = pa.array(named.keys(), pa.string()), pa.array(named.values(), pa.string())
        # An original is the first copy, so all later copies are in the window too.
        originals = halves.filter(pc.is_null(halves["checks_count"]))
        is_whole = np.asarray(pc.is_in(names, value_set=originals["transaction_id"].combine_chunks()))
        keys: list[tuple[str | pa.Array, pa.Array]] = [
            (topics.drop_null(), names.filter(topics.is_valid())),
            (HALF_TOPIC, names.filter(pa.array(~is_whole | self._is_lookup | self._store.is_remote))),
        ]
        more = [topic for topic in (DISCARD_TOPIC, *WAITING_TOPICS) if self._store.has("consumequeue", topic)]
        keys += ((topic, names) for topic in more)
        begin = oldest = self._log.begin_offset
        if self._store.is_remote and not self._is_lookup:
            begin = max(oldest, self._first_place() - _BEFORE_FIRST_BYTES)
        read_from: int | None = None
        while True:
            entries = entries_of(self._index, keys, begin)
            self._read_hits(entries, read_from)
            # A record of a transaction lies after its original, and chains show whether that was found.
            if begin == oldest or not incomplete_chains(self._gathered.table("halves")):
                break
            read_from = begin
            begin = max(oldest, begin - _FURTHER * ((self._index.covered_until_offset or 0) - begin))
        self._require_indexed_ids(entries.offsets if self._store.is_remote else None)

    def _first_place(self) -> int:
        """Return about where the first copy of the open transactions is: that of a put-back copy is not read yet."""
        halves = self._gathered.table("halves")
        is_original = np.asarray(pc.is_null(halves["checks_count"]))
        first = self._first_offset()
        put_back = halves.filter(pa.array(~is_original))
        known = halves.filter(pa.array(is_original))["transaction_id"].combine_chunks()
        older = put_back.filter(pc.invert(pc.is_in(put_back["transaction_id"], value_set=known)))
        if older.num_rows:
            born_ms = int(pc.min(older["born_time_ms"]).as_py())
            first = min(first, about_offset(self._index.files, born_ms - _CLOCKS_DIFFER_MS))
        return first

    def _require_indexed_ids(self, known: Int64s | None) -> None:
        """Require that the index has half messages under their ids, where no other record has the id.

        `known`: the places that it has under the ids in all topics, if it was asked for them already.
        No checksum covers an id: a changed one invents a transaction.
        """
        halves = self._gathered.table("halves").select(["transaction_id", "topic", "commit_log_offset"])
        others = (self._gathered.table(kind)["transaction_id"] for kind in ("finals", "discards"))
        named = pc.value_counts(pa.chunked_array([
            chunk for column in (halves["transaction_id"], *others) for chunk in column.chunks
        ], pa.string()))
        lone = named.field("values").filter(pc.equal(named.field("counts"), 1))
        rows = halves.filter(pc.is_in(halves["transaction_id"], value_set=lone))
        offsets = int64s(rows["commit_log_offset"])
        for begin, end in self._index.uncovered(-1, self._log.end_offset):  # its last record has at least its id there
            offsets = offsets[(offsets <= begin) | (offsets >= end)]
        if not len(offsets):
            return
        if known is None:
            keys = rows.combine_chunks()
            known, _ = entries_of(self._index, [(keys["topic"].chunk(0), keys["transaction_id"].chunk(0))])
        without = np.setdiff1d(offsets, known)
        if len(without):
            raise Untrusted(f"the index does not have the half message at commit-log offset {without[0]} under its id")

    def _read_hits(self, entries: Entries, read_from: int | None = None) -> None:
        """Read the records of entries. `read_from`: those from this place of the log on were read before."""
        offsets, hashes = entries
        end = self._log.end_offset if read_from is None else read_from
        inside = (offsets >= self._log.begin_offset) & (offsets < end)
        order = np.flatnonzero(inside)[np.argsort(offsets[inside], kind="stable")]
        offsets, hashes = offsets[order], hashes[order]
        unseen = np.unique(offsets)
        found = 0
        for block in blocks_at(self._log, unseen):
            found += len(block)
            first, last = block.commit_log_offsets[[0, -1]]
            rows = slice(np.searchsorted(offsets, first), np.searchsorted(offsets, last, "right"))
            require_keys(block, offsets[rows], hashes[rows])
            if (lost := are_damaged_finals(block)).any():
                offset = int(block.commit_log_offsets[lost][0])
                raise Untrusted(f"the header of the COMMIT record at commit-log offset {offset} is damaged")
            new = block.take(~self._gathered.has(block.commit_log_offsets))  # a scan of the tail may have had it
            if len(new):
                self._add(new)
        if found != len(unseen):
            raise Untrusted(f"{len(unseen) - found} places that the index points to have no record")

    def _read_holes(self) -> None:
        """Read ranges that the index does not cover: a recovered broker rebuilds its last file from a later place on.

        A diverted half message lies before all its copies in the queue; a damaged index may have lost it.
        """
        if self._index.findings and any(self._store.has("consumequeue", topic) for topic in WAITING_TOPICS):
            raise Untrusted("the index is damaged, and half messages were delayed: only the index has their places")
        for begin, end in self._index.uncovered(self._first_offset(), self._log.end_offset):
            self._scan_into(begin, None if end == self._log.end_offset else end)

    def _first_offset(self) -> int:
        """Commit-log offset of the first known half copy."""
        return int(pc.min(self._gathered.table("halves")["commit_log_offset"]).as_py())

    def _require_whole_chains(self) -> None:
        """Require that put-backs have all predecessors: n checks need n copies before, unless the log begins later."""
        without = incomplete_chains(self._gathered.table("halves"))
        if without and self._store.log_begin_offset == 0:
            raise Untrusted("the index lacks copies of an open transaction")
        if self._store.log_begin_offset == 0 and lacks_diverted(self._gathered.table("halves")):
            raise Untrusted("the index lacks a half message that was delayed")

    def _read_ops(self) -> None:
        """Read op messages from the first copy's place on; an older op cannot name any of the copies."""
        wanted = IntegerSet(int64s(self._gathered.table("halves")["queue_offset"]))
        queue = self._op_queue
        first_offset = self._first_offset()
        begin = queue.offset_of(first_offset)
        require_order_before(queue, begin, self._log)
        op_cursor = max((self._facts.cursors.op or {}).get(0, 0), queue.min_offset)
        if begin - _OPS_AT_ONCE <= op_cursor < begin:  # the check reads them too, and compares only numbers
            begin = op_cursor
        while begin < queue.max_offset:
            end = min(begin + _OPS_AT_ONCE, queue.max_offset)
            numbers, offsets, lengths, _ = queue.read(begin, end)
            if len(numbers) != end - begin:
                raise Untrusted("the op queue has invalid slots")
            for block in self._checked(blocks_at(self._log, offsets, lengths), OP_TOPIC, numbers, offsets):
                rows = ops_of(block, self._store.root)
                if _name_any_before(rows, wanted, first_offset):
                    raise Untrusted("an op message names a half message that was written after it")
                self._require_numbers(rows)
                self._gathered.add_ops(rows, wanted)
            begin = end

    def _require_numbers(self, ops: pa.RecordBatch) -> None:
        """Require that op messages list no half queue offset beyond the half queue and the half messages after it."""
        if self._store.in_use:
            return
        highest = pc.max(ops["half_queue_offsets"].flatten()).as_py()
        if highest is None or highest < self._half_queue.max_offset:
            return
        known = pc.max(self._gathered.table("halves")["queue_offset"]).as_py()
        if known is None or highest > known:
            raise Untrusted(f"an op message lists half queue offset {highest}, which no half message has")

    def _require_single_numbers(self) -> None:
        """Require that no slot shortly before a number that an op message names leads to a half message with it too.

        A broker that gives a number to a half message that it refuses writes the next ones into slots before theirs.
        """
        if REFUSED_TAKES_NUMBER.between(None, self._facts.settings.version_high) is False:
            return
        queue = self._half_queue
        named = np.intersect1d(
            self._gathered.named_numbers()[0], int64s(self._gathered.table("halves")["queue_offset"])
        )
        slots = np.unique(named[:, None] - np.arange(1, REFUSED_MAX))
        slots = slots[(slots >= queue.min_offset) & (slots < queue.max_offset)]
        for run in np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1) if len(slots) else ():
            numbers, offsets, lengths, _ = queue.read(int(run[0]), int(run[-1]) + 1)
            for _ in self._checked(blocks_at(self._log, offsets, lengths), HALF_TOPIC, numbers, offsets):
                pass

    # -- op numbers of other records ------------------------------------------------------------------------------

    def numbered(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Return records with the given queue offsets in queue 0 of any topic except those of halves and ops."""
        topics = [topic for topic, queue_id in self._store.queues() if queue_id == 0]
        topics = [topic for topic in topics if topic not in (HALF_TOPIC, OP_TOPIC) and not topic.startswith("%")]
        if len(topics) > _TOPICS_MAX:
            raise Untrusted(f"{len(topics)} topics: a scan is needed to find decisions on other records")
        for topic, _ in self._store.queues_opened_together((topic, 0) for topic in topics):
            with open_queue(self._store, topic, 0) as queue:
                for number in numbers:
                    place = queue.place_at(number) if queue.first_offset <= number < queue.max_offset else None
                    block = None if place is None else block_at(self._log, place)
                    if block is not None:
                        yield block

    def namesakes(self, named: Sequence[Block]) -> Iterator[Block]:
        """Return later records that the index has under the id of one of the given records.

        Raises: Untrusted if one of them is a COMMIT record that names no record of its own transaction.
        """
        for block in named:
            names = names_of(block)
            if not names:
                continue
            _, hits = self._index.find([f"{topic}#{name}".encode() for topic, name in names])
            for hit in np.unique(hits[hits > block.commit_log_offsets[0]]).tolist():
                found = block_at(self._log, hit)
                if found is None:
                    continue
                if is_final(found)[0] and not self._names_its_own(found, names[0][1]):
                    raise Untrusted(f"the COMMIT record at commit-log offset {hit} names no record of its transaction")
                yield found

    def _names_its_own(self, final: Block, name: str) -> bool:
        """Whether a COMMIT record of a transaction names a record of it, or one that has left the log."""
        place, begin = int(named_offsets(final)[0]), self._log.begin_offset
        if not begin <= place < int(final.commit_log_offsets[0]):
            return 0 <= place < begin or place == NO_PLACE
        named = block_at(self._log, place)
        return named is not None and named.properties.text("UNIQ_KEY").to_pylist() == [name]


def _name_any_before(ops: pa.RecordBatch, wanted: IntegerSet, offset: int) -> bool:
    """Whether op messages before a place of the log name one of some half queue offsets."""
    older = ops.filter(pc.less(ops["commit_log_offset"], offset))
    return bool(wanted.has(np.asarray(older["half_queue_offsets"].flatten())).any())


class Entries(NamedTuple):
    """Entries of the index: the commit-log offset of the record, and the hash of the key."""

    offsets: Int64s
    hashes: Int64s


def entries_of(
    index: Index, keys: Sequence[tuple[str | pa.Array, pa.Array]], from_offset: int = 0
) -> Entries:
    """Return the entries that the index has for names in topics; the index is read once for all.

    `keys`: topics and names; one topic for all names, or one for each. `from_offset`: entries of older records are left
    out, and most of them are not read.
    """
    separators = ("#", "#U#") if index.has_typed_ids else ("#",)
    hashes = np.concatenate([
        column_key_hashes(pc.binary_join_element_wise(topics, names, separator)).astype(np.int64)
        for topics, names in keys for separator in separators
    ])
    numbers, offsets = index.find_hashes(hashes, np.full(len(hashes), from_offset, np.int64))
    return Entries(offsets, hashes[numbers])


def _packed(places: Int64s, offsets: Int64s, hashes: Int64s) -> Int64s:
    """Pack pairs of offset and hash into numbers; `places`: all existing offsets, ascending."""
    packed: Int64s = np.searchsorted(places, offsets) << _HASH_BITS | hashes
    return packed


def require_keys(block: Block, offsets: Int64s, hashes: Int64s) -> None:
    """Require that records have the keys under which the index has them: it was built from the original records."""
    places = block.commit_log_offsets
    wanted = _packed(places, offsets, hashes)
    wanted = wanted[~are_among(wanted, _packed(places, *unique_key_pairs(block)))]
    if not len(wanted):
        return
    rest = block.take(np.unique(wanted >> _HASH_BITS))
    for pairs in (key_pairs, tag_pairs, typed_id_pairs):  # tags are in the index from 5.5.0 on
        wanted = wanted[~are_among(wanted, _packed(places, *pairs(rest)))]
    if not len(wanted):
        return
    offset = int(places[wanted[0] >> _HASH_BITS])
    raise Untrusted(f"the record at commit-log offset {offset} does not have the key that it has in the index")

"""Which transactions missing bytes can concern: a part of the rules in `judgement.py`.

A verdict that depends on the absence of a record is undecidable if missing bytes may have contained that record. They
cannot have contained it in two cases:

* The bytes lie before the first copy of the transaction. A record that decides, discards or puts back a half names the
  half, so it was written later. Only the original proves this: a put-back (it has a number of checks, or the queue
  offset of its source) had copies before it, which may be in the missing bytes.
* All records that the bytes hide are known (`hidden_records.py`), and none of them is of a kind that could change the
  verdict: an op message can name any half before it; a half, a discard copy and a final have the key of their
  transaction, so the hashes in the index exclude all others, and a final is in its real topic.

They can concern only transactions with a copy in the same store. If a transaction has copies in several stores, which
may have different histories, each store may have ended it: so the order in which the stores are given does not matter.

If the highest number of checks of any half is used as the broker's limit, a hidden half may have a higher one.

A file with the records of another log hides those of this one; the transactions of the other log are all undecidable.

A COMMITTED verdict depends on an existing record. So does a ROLLED_BACK verdict, except for a COMMIT record of its own,
and for a decision on a record outside the half topic that could explain its op: that decision may be of any topic, and
lies before the op. The missing bytes may have contained this decision, or the record that it names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.java_hashes import key_hashes
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, HALF_TOPICS, OP_TOPICS, WAITING_TOPICS
from rmqtx.verdicts.model.verdict_inputs import HiddenRecords, HiddenTopic, MissingRange, UnexplainedBytes
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.found_states import FoundStates
from rmqtx.verdicts.transactions.judged_copies import JudgedCopies

#: Topics of records that settle, discard or put back a half message: no COMMIT record is in them.
_OF_THE_CHECK = (*OP_TOPICS, *HALF_TOPICS, DISCARD_TOPIC)
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class _InStore:
    """The places of all transactions in the log of one store: each store has its own offsets.

    Shape: for each transaction: whether the store has a copy of it (`is_of`), the place of its first copy if that is
           the original (`begin`), and of its last op mark (`last_mark`); _NOWHERE without one. `halves`: for each half
           copy whether it is in the store.
    Units: commit-log offsets in bytes.
    """

    is_of: Bools
    halves: Bools
    begin: Int64s
    last_mark: Int64s

    @classmethod
    def of(cls, copies: JudgedCopies, store: str) -> _InStore:
        """Return them for one store."""
        chains, halves, marks = copies.chains, copies.chains.halves, copies.chains.marks
        here = halves.are_in([store])
        begin = np.full(chains.count, _NOWHERE, np.int64)
        first = halves.lowest(np.arange(len(halves)), len(halves), here)
        rows = np.flatnonzero(first < len(halves))
        is_original = np.asarray(pc.is_null(halves.table["checks_count"]))
        is_original &= np.asarray(pc.is_null(halves.table["prepared_queue_offset"]))
        rows = rows[is_original[first[rows]]]
        begin[rows] = halves.integers("commit_log_offset")[first[rows]]
        numbered = copies.marks.decides & np.asarray(pc.is_null(marks.table["half_commit_log_offset"]))
        numbered &= marks.are_in([store])
        places = np.where(numbered, marks.integers("commit_log_offset"), _NOWHERE)
        return cls(chains.have_copy_in(store), here, begin, marks.highest(places, _NOWHERE))


class MissingRule:
    """The rule, for all transactions of a judgement after their states are found."""

    def __init__(self, found: FoundStates) -> None:
        chains, others, state = found.copies.chains, found.copies.others, found.state
        self._copies, self._chains, self._halves = found.copies, chains, chains.halves
        #: What is missing in all stores.
        self.missing = [one for view in chains.views.values() for one in view.missing]
        self._is_committed: Bools = state.are(State.COMMITTED)
        self._is_rolled_back: Bools = state.are(State.ROLLED_BACK)
        self._offsets = chains.halves.integers("commit_log_offset")
        self._parts: dict[str, _InStore] = {}
        self._rests_on_others = found.depends_on_assumed_check_max & state.are(State.DISCARDED)
        self._may_come_back = chains.halves.any_of(chains.diverted_halves | others.is_rocksdb)
        self._is_prepared = chains.halves.any_of(others.is_prepared) | chains.has_rollback_record
        self._hashes: dict[str, list[Int64s]] = {}

    def concerned(self, missing: MissingRange) -> Bools:
        """Return the transactions with a copy in its store that a missing range makes undecidable."""
        here = self._in(missing.store)
        hit = self._named(missing) if missing.is_identified else self._behind(missing)
        if missing.named_from_offset is not None:
            hit |= self._is_rolled_back & (here.last_mark > missing.named_from_offset)
        hit &= here.is_of & ~self._is_committed
        if missing.is_of_another_log:
            hit |= self._have_record_in(missing)
        return hit

    def may_lack_op(self, missing: MissingRange) -> Bools:
        """Return the transactions, including committed ones, whose op message a missing range may have contained."""
        if missing.is_identified or missing.hidden is None:
            return self._any(missing)
        here = self._in(missing.store)
        hit = np.zeros(self._chains.count, np.bool_)
        for topic in missing.hidden.topics:
            if topic.topic in OP_TOPICS:
                hit |= here.begin < topic.last_offset
            elif topic.topic in HALF_TOPICS:  # its op may exist, for a copy that is missing
                hit |= ((here.begin < topic.last_offset) | (topic.key_hashes is not None)) & self._may_have_key(topic)
        for gap in missing.hidden.gaps:
            if not set(gap.clear_topics).issuperset((*OP_TOPICS, *HALF_TOPICS)):
                hit |= here.begin < gap.end_offset
        return hit & here.is_of

    def may_lack_final(self, missing: MissingRange) -> Bools:
        """Return the transactions, including committed ones, whose COMMIT record a missing range may have contained."""
        if missing.is_identified or missing.hidden is None:
            return self._any(missing)
        here = self._in(missing.store)
        hit = np.zeros(self._chains.count, np.bool_)
        for topic in missing.hidden.topics:
            if topic.topic not in _OF_THE_CHECK:
                is_own = np.asarray(pc.fill_null(pc.equal(self._chains.real_topics, topic.topic), True))
                is_own = is_own | (topic.topic in WAITING_TOPICS)
                hit |= is_own & (here.begin < topic.last_offset) & self._may_have_key(topic)
        for gap in missing.hidden.gaps:
            hit |= (here.begin < gap.end_offset) & ~self._is_clear_of_finals(gap)
        hit |= self._are_at(here, missing.hidden.ended_offsets)
        return hit & here.is_of

    def _have_record_in(self, missing: MissingRange) -> Bools:
        """Return the transactions with a record in a range: none of them is of this log."""
        found = np.zeros(self._chains.count, np.bool_)
        for group in self._chains.bearers:
            places = group.integers("commit_log_offset")
            is_inside = (places >= missing.begin_offset) & (places < missing.end_offset)
            found |= group.any_of(group.are_in([missing.store]) & is_inside)
        return found

    def _in(self, store: str) -> _InStore:
        """Return the places of the transactions in the log of one store."""
        if store not in self._parts:
            self._parts[store] = _InStore.of(self._copies, store)
        return self._parts[store]

    def _any(self, missing: MissingRange) -> Bools:
        """Return the transactions that a range concerns by its place, or by its values if these can be read."""
        here = self._in(missing.store)
        hit: Bools = self._named(missing) if missing.is_identified else here.begin < missing.end_offset
        return hit & here.is_of

    def _named(self, missing: MissingRange) -> Bools:
        """Return the transactions that the readable bytes name."""
        halves, here = self._halves, self._in(missing.store)
        hit = np.zeros(self._chains.count, np.bool_)
        for name, values in (
            ("commit_log_offset", missing.prepared_offsets), ("queue_offset", missing.half_queue_offsets),
        ):
            if values:
                named = here.halves & np.isin(halves.integers(name), np.array(values, np.int64))
                # Only half copies of the half topic have their own queue offsets.
                hit |= halves.any_of(named & (self._copies.is_in_half_topic | (name != "queue_offset")))
        if missing.transaction_ids:
            ids = pa.array(missing.transaction_ids, pa.string())
            hit |= np.asarray(pc.is_in(self._chains.ids, value_set=ids))
        if missing.copy_born_ms is not None:
            hit |= self._may_have_copy(missing)
        return hit

    def _may_have_copy(self, missing: MissingRange) -> Bools:
        """Return the transactions to which a half copy without a readable id may belong, with that of the copy itself.

        If no other copy was born at the same time, it is an original, unless its original has left the log.
        """
        halves = self._halves
        is_here = self._in(missing.store).halves
        is_it = is_here & (self._offsets == missing.begin_offset)
        others = is_here & ~is_it & (halves.integers("born_time_ms") == missing.copy_born_ms)
        view = self._chains.views[missing.store]
        if view.log_begin_offset:
            waited_ms = halves.integers("store_time_ms") - halves.integers("born_time_ms")
            others |= is_it & (waited_ms >= view.settings.transaction_time_out_ms)
        if not others.any() and not missing.has_other_copies:
            return np.zeros(self._chains.count, np.bool_)
        return halves.any_of(others | is_it)

    def _behind(self, missing: MissingRange) -> Bools:
        if missing.hidden is None:
            hit: Bools = self._in(missing.store).begin < missing.end_offset
            hit |= self._rests_on_others
            return hit
        return self._by_records(self._in(missing.store), missing.hidden)

    def _by_records(self, here: _InStore, hidden: HiddenRecords) -> Bools:
        hit = np.zeros(self._chains.count, np.bool_)
        for topic in hidden.topics:
            hit |= self._by_topic(here, topic)
        for gap in hidden.gaps:
            hit |= self._by_gap(here, gap)
        if hidden.ended_offsets:
            hit |= self._are_at(here, hidden.ended_offsets)
            hit |= ~self._halves.has
        return hit

    def _are_at(self, here: _InStore, offsets: tuple[int, ...]) -> Bools:
        """Return the transactions with a half copy at one of some places in the log of a store."""
        return self._halves.any_of(here.halves & np.isin(self._offsets, np.array(offsets, np.int64)))

    def _by_topic(self, here: _InStore, hidden: HiddenTopic) -> Bools:
        """Return the transactions that the hidden records of one topic can belong to."""
        name = hidden.topic
        is_open = ~self._is_rolled_back
        began: Bools = here.begin < hidden.last_offset
        if name in OP_TOPICS:
            return is_open & began
        if name in HALF_TOPICS:
            mine = is_open | self._may_come_back
        elif name == DISCARD_TOPIC:
            mine = is_open
        elif name in WAITING_TOPICS:
            mine = np.ones(len(is_open), np.bool_)
        else:
            mine = np.asarray(pc.fill_null(pc.equal(self._chains.real_topics, name), True))
        may_have_key = self._may_have_key(hidden)
        own: Bools = mine & began & may_have_key
        if name in HALF_TOPICS:
            # A producer without a response sends a half again: the first one may be hidden before the visible one.
            if hidden.key_hashes is not None:
                own |= mine & may_have_key
            own |= self._rests_on_others
            return own
        return own | self._may_be_explained(here, hidden.first_offset, hidden.last_offset)

    def _may_be_explained(self, here: _InStore, first_offset: int, last_offset: int) -> Bools:
        """Return the transactions whose op could belong to a decision on another record in between."""
        is_between: Bools = (here.begin < last_offset) & (here.last_mark > first_offset)
        return is_between & self._is_rolled_back

    def _may_have_key(self, hidden: HiddenTopic) -> Bools:
        """Return the transactions that have a key with one of the hashes; all if the hashes are unknown."""
        everyone = np.ones(self._chains.count, np.bool_)
        if hidden.key_hashes is None:
            return everyone
        if hidden.topic not in self._hashes:
            self._hashes[hidden.topic] = self._hashes_of(hidden.topic)
        (ids, rows, keys) = self._hashes[hidden.topic]
        hashes = np.array(hidden.key_hashes, np.int64)
        hit: Bools = np.isin(ids, hashes) | (ids == _NOWHERE)
        hit[rows[np.isin(keys, hashes)]] = True
        return hit

    def _hashes_of(self, topic: str) -> list[Int64s]:
        """Return the index hashes of the ids of all transactions, and of their business keys with their rows.

        Brokers of 3.0 and 3.1 index only the business keys. From 4.3 on each record of a half message has an entry for
        the id, so a business key, which transactions may share, decides nothing. A transaction without an id may have
        any.
        """
        names, own_keys = self._chains.ids.to_pylist(), self._chains.first_of("keys").to_pylist()
        by_id = np.full(len(names), _NOWHERE, np.int64)
        known = [number for number, name in enumerate(names) if name is not None]
        by_id[known] = key_hashes([f"{topic}#{names[number]}".encode() for number in known])
        pairs = [
            (number, key)
            for number, text in enumerate(own_keys) if text and self._is_prepared[number]
            for key in text.split(" ") if key
        ]
        texts = [f"{topic}#{key}" for _, key in pairs]
        for number in known:  # as rocketmq-rust writes ids
            pairs.append((number, ""))
            texts.append(f"{topic}#U#{names[number]}")
        by_key = key_hashes([text.encode() for text in texts]).astype(np.int64)
        return [by_id, np.array([number for number, _ in pairs], np.int64), by_key]

    def _by_gap(self, here: _InStore, gap: UnexplainedBytes) -> Bools:
        """Return the transactions that a record in unexplained bytes can belong to."""
        clear = set(gap.clear_topics)
        began = here.begin < gap.end_offset
        is_check_clear = clear.issuperset(_OF_THE_CHECK)
        may_end = ~self._is_clear_of_finals(gap) | self._is_prepared
        hit: Bools = may_end | (~self._is_rolled_back & (not is_check_clear))
        hit |= self._may_come_back & (not is_check_clear)
        if HALF_TOPIC not in clear:
            began = began | self._rests_on_others
        return (began & hit) | self._may_be_explained(here, gap.begin_offset, gap.end_offset)

    def _is_clear_of_finals(self, gap: UnexplainedBytes) -> Bools:
        """Return the transactions without a COMMIT record in a gap."""
        clear = pa.array(gap.clear_topics, pa.string())
        found: Bools = np.asarray(pc.fill_null(pc.is_in(self._chains.real_topics, value_set=clear), False))
        return found & set(gap.clear_topics).issuperset(WAITING_TOPICS)

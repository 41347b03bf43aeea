"""Copies of transactions that `rmqtx redeliver --store` sent, by their mark of origin.

A copy is an ordinary message with the id of the transaction: no record of the broker connects them, only the mark. The
index finds copies, because their id is a key of their topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.index.index_search import open_index
from rmqtx.readers.log.commit_log import data_end_offset, scan_segments
from rmqtx.readers.log.kernels import accelerated
from rmqtx.readers.log.properties import ORIGIN, UNIQ_KEY
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.store.store import Store, is_bundle
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.verdict_words import Advice, State

if TYPE_CHECKING:
    from rmqtx.verdicts.model.transaction import Transaction

#: How much of a log is scanned for copies that the index does not cover.
_SCANNED_BYTES_MAX = 64 << 20
#: Of a store that is read over a network, more transactions are not looked up: each takes requests.
_REMOTE_COUNT_MAX = 1
#: Scans that are kept: one for each store of a run.
_KEPT_MAX = 8
#: What the flag of a transaction with a copy is, and the columns that show which may have one.
REDELIVERED = "redelivered"
NEEDED = ("transaction_id", "state", "topic")
_MARK = ORIGIN.encode()
#: States that a redelivery may change.
OVER = (State.ROLLED_BACK, State.DISCARDED, State.LOST)


@dataclass(frozen=True, slots=True)
class MarkedCopy:
    """A message that consumers get for a transaction.

    Shape: `origin`: message id and digest of the record that it was made from; empty without a mark.
    """

    record: FinalRecord
    message_id: str
    origin: str


class MarkedCopies(Protocol):
    """The copies in one store or broker. That none is found shows nothing where the index lacks records."""

    def of(self, topics: Mapping[str, str]) -> dict[str, list[MarkedCopy]]:
        """Return the copies of some transactions, by id; a transaction without copies is left out.

        `topics`: the real topic of each, by id.
        """


@dataclass(frozen=True, slots=True)
class FileCopies:
    """The copies in the files of one store; `until_ms`: only those that were stored until then."""

    store: Store
    until_ms: int | None = None

    def of(self, topics: Mapping[str, str]) -> dict[str, list[MarkedCopy]]:
        """See `MarkedCopies`. What the index does not cover of the log is scanned, if it is short.

        Order:  of a transaction: commit-log offset.
        Damage: what cannot be read has no copies.
        """
        store, found = self.store, SeenCopies()
        if not topics or not store.commit_log or (store.is_remote and len(topics) > _REMOTE_COUNT_MAX):
            return {}
        try:
            index = open_index(store)
            with store.log() as log:
                _, offsets = index.find([f"{topic}#{identity}".encode() for identity, topic in topics.items()])
                offsets = np.unique(offsets[(offsets >= log.begin_offset) & (offsets < log.end_offset)])
                for block in blocks_at(log, offsets):
                    found.add(block, store.root)
                ranges = index.uncovered(log.begin_offset, data_end_offset(store))
            later = _scanned(store, tuple(ranges)).of(topics)
        except SourceError:
            return {}
        copies = found.of(topics)
        for identity, more in later.items():
            copies[identity] = list(dict.fromkeys([*copies.get(identity, []), *more]))
        return copies if self.until_ms is None else _until(copies, self.until_ms)


def _until(copies: dict[str, list[MarkedCopy]], time_ms: int) -> dict[str, list[MarkedCopy]]:
    earlier = {name: [one for one in some if one.record.store_time_ms <= time_ms] for name, some in copies.items()}
    return {name: some for name, some in earlier.items() if some}


def copies_in(
    block: Block, root: str, topics: Mapping[str, str], *, only_marked: bool = True
) -> Iterator[tuple[str, MarkedCopy]]:
    """The records of a block that consumers get for some transactions: marked copies; else COMMIT records too."""
    has_mark = block.properties.locate(ORIGIN)[2]
    rows = np.flatnonzero(has_mark if only_marked else np.isin(block.sys_flag & TRANSACTION_MASK, (0, COMMIT)))
    for identity, copy in _named(block.take(rows), root) if len(rows) else ():
        if identity is not None and copy.record.topic == topics.get(identity):
            yield identity, copy


def _named(block: Block, root: str) -> Iterator[tuple[str | None, MarkedCopy]]:
    """All records of a block, with their ids."""
    origins, message_ids = block.properties.text(ORIGIN).to_pylist(), block.message_ids().to_pylist()
    topics = block.topic_texts().to_pylist()
    is_commit = (block.sys_flag & TRANSACTION_MASK) == COMMIT
    for number, identity in enumerate(block.properties.text(UNIQ_KEY).to_pylist()):
        record = FinalRecord(
            root, topics[number], int(block.header("queue_id")[number]), int(block.header("queue_offset")[number]),
            int(block.commit_log_offsets[number]), int(block.header("store_time_ms")[number]),
            int(block.header("prepared_transaction_offset")[number]) if is_commit[number] else None,
        )
        yield identity, MarkedCopy(record, message_ids[number], origins[number] or "")


class SeenCopies:
    """The copies among some records, by id. It can be pickled."""

    def __init__(self, copies: Iterable[tuple[str, MarkedCopy]] = ()) -> None:
        self._found: dict[str, dict[int, MarkedCopy]] = {}
        for identity, copy in copies:
            self._found.setdefault(identity, {})[copy.record.commit_log_offset] = copy

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[tuple[str, MarkedCopy]]:
        return ((identity, copy) for identity, copies in self._found.items() for copy in copies.values())

    def add(self, block: Block, root: str) -> None:
        """Note the copies in a block.

        The accelerator finds their mark with the other properties; without it most blocks are left out by their bytes.
        """
        if accelerated() is None and _MARK not in block.raw:
            return
        rows = np.flatnonzero(block.properties.locate(ORIGIN)[2])
        for identity, copy in _named(block.take(rows), root) if len(rows) else ():
            if identity is not None:
                self._found.setdefault(identity, {})[copy.record.commit_log_offset] = copy

    def of(self, topics: Mapping[str, str]) -> dict[str, list[MarkedCopy]]:
        """See `MarkedCopies`."""
        named = (identity for identity in topics if identity in self._found) if self._found else ()
        found = {
            identity: [copy for copy in self._found[identity].values() if copy.record.topic == topics[identity]]
            for identity in named
        }
        return {identity: copies for identity, copies in found.items() if copies}


#: Of each store of a run, what the index did not cover.
_kept: dict[tuple[object, ...], SeenCopies] = {}


def _scanned(store: Store, ranges: tuple[tuple[int, int], ...]) -> SeenCopies:
    """Return the copies in some ranges of a log, if these are short; each is scanned once for all partitions."""
    found = SeenCopies()
    length = sum(end - begin for begin, end in ranges)
    if length > _SCANNED_BYTES_MAX and not is_bundle(store):  # of a bundle most is left out
        return found
    key = store.root, store.opening, ranges
    if key not in _kept:
        while len(_kept) >= _KEPT_MAX:
            _kept.pop(next(iter(_kept)))
        _kept[key] = found
        for begin, end in ranges:
            for block in scan_segments(store, [], [], from_offset=begin, to_offset=end):
                found.add(block, store.root)
    return _kept[key]


def with_delivered_copies(row: Transaction, stores: Iterable[Store]) -> Transaction:
    """Return a transaction with its copies in the files of some stores as deliveries, for acts on what is over."""
    if row.topic is None or row.state not in OVER:
        return row
    topics = {row.transaction_id: row.topic}
    copies = [copy.record for store in stores for copy in FileCopies(store).of(topics).get(row.transaction_id, [])]
    return replace(row, final_records=(*row.final_records, *copies))


def with_copies(rows: pa.Table, places: Iterable[MarkedCopies]) -> pa.Table:
    """Return rows of TRANSACTIONS, of which those that are over and have a copy have a flag, and no advice to deliver.

    Their state stays: it is what the broker recorded.
    """
    places = [place for place in places if place]  # nearly no log has any
    if not places:
        return rows
    is_over = pc.is_in(rows["state"], value_set=pa.array(OVER))
    chosen = rows.select(["transaction_id", "topic"]).filter(pc.and_(is_over, pc.is_valid(rows["topic"])))
    topics = dict(zip(chosen["transaction_id"].to_pylist(), chosen["topic"].to_pylist(), strict=True))
    found = {identity for place in places for identity in place.of(topics)}
    if not found:
        return rows
    has_copy = pc.and_(is_over, pc.is_in(rows["transaction_id"], value_set=pa.array(sorted(found), pa.string())))
    if "flags" in rows.schema.names:
        flags = [
            [*words, REDELIVERED] if is_delivered else words
            for words, is_delivered in zip(rows["flags"].to_pylist(), has_copy.to_pylist(), strict=True)
        ]
        rows = _changed(rows, "flags", pa.array(flags, rows.schema.field("flags").type))
    if "advice" in rows.schema.names:
        delivers = pc.is_in(rows["advice"], value_set=pa.array([Advice.RESUME, Advice.DECIDE]))
        advice = pc.if_else(pc.and_(has_copy, delivers), pa.scalar(Advice.NONE, pa.string()), rows["advice"])
        rows = _changed(rows, "advice", advice)
    return rows


def _changed(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)

"""Candidates for the half of an end with a damaged reference: by redo log, state table, or one changed byte.

A candidate must have the same group, topic, born time and host, keys, body or number as the end. An end with an id
needs no candidate; an end without candidates may belong to any transaction of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_words import RecordWords, words_of
from rmqtx.readers.log.transaction_records import are_halves
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.old_tables.redo_log import PREPARED_TAGS, RedoEntries, redo_entries
from rmqtx.readers.old_tables.state_table import StateSlots, state_slots
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store

_OFFSET_BYTES = 8
#: The most ends for which similar offsets are tried; a log with more is badly damaged.
_ENDS_MAX = 64


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

"""Whose end a record may be whose name leads nowhere: by the redo log, the state table, or one byte of the name.

Each candidate has to say what the end says: group, topic, born time and host, keys, body or number. An end with an id
needs none of this; an end that no half record answers to may be that of any of its group.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from readers.log.record_at import block_at
from readers.log.record_block import Block
from readers.log.record_words import RecordWords, words_of
from readers.log.transaction_records import are_halves
from readers.model.errors import SourceError
from readers.old_tables.redo_log import PREPARED_TAGS, RedoEntries, redo_entries
from readers.old_tables.state_table import StateSlots, state_slots
from readers.storage.segments import SegmentedLog
from readers.store.store import Store

_OFFSET_BYTES = 8
#: For so many ends places near the name are tried; a log with more is damaged at large.
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
        """Commit-log offsets of the half records that say what an end says; none where no witness leads to one.

        Order: ascending.
        """
        words, offset = words_of(end), int(end.commit_log_offsets[0])
        for places in (self._by_tables(words, offset), self._near(named_offset, offset)):
            found = sorted({place for place in places if self._says_the_same(place, words)})
            if found:
                return tuple(found)
        return ()

    def _by_tables(self, words: RecordWords, offset: int) -> Iterator[int]:
        """What the redo log says that this end ended, and the state table of a slot with its number."""
        if not self._is_read:
            self._is_read = True
            with suppress(SourceError):  # what reads them for themselves reports it
                self._redo, self._slots = redo_entries(self._store, []), state_slots(self._store, [])
        if self._redo is not None:
            mine = (self._redo.offsets == offset) & (self._redo.tags != PREPARED_TAGS)
            yield from self._redo.tags[mine].tolist()
        if self._slots is not None and words.number is not None:
            yield from self._slots.offsets[self._slots.numbers == words.number].tolist()

    def _near(self, named_offset: int, offset: int) -> Iterator[int]:
        """The places that differ from a name in one byte."""
        self._left -= 1
        if self._left < 0:
            return
        for byte in range(_OFFSET_BYTES):
            cleared = named_offset & ~(0xFF << 8 * byte) & (1 << 64) - 1
            for value in range(256):
                place = cleared | value << 8 * byte
                if self._log.begin_offset <= place < offset and place != named_offset:
                    yield place

    def _says_the_same(self, place: int, words: RecordWords) -> bool:
        half = block_at(self._log, place)
        return half is not None and bool(are_halves(half)[0]) and not any(words.contradictions(words_of(half)))

"""Scan a segment of the commit log: sound records one after another, and a classification of all other bytes.

A record is *sound* if its magic code is known, its stored offset is its place, and its length is the sum of its parts.
All other bytes are filler (blank records, zeros after the end of the log), damaged, torn or foreign. The scan continues
at the next sound record, which is proved by its stored offset. For any file: decoded + filler + damaged + unread =
size.

A record whose stored offset alone is damaged is proved by the others: it begins where a record ends, or the file
begins; its body has its CRC; it ends where a sound record or the blank record begins, or the data ends; and it was not
copied here from another place of the log. Brokers compare no stored offset, so they read it as any other.

In a log of DLedger entries each record has its entry's header in front. Positions are still those of records; a header
belongs to the record after it, whose stored offset proves both.

Fillers that `rmqtx salvage` writes into gaps are sound, so that brokers skip them; here they count as the damage that
they stand for.

A broker's recovery is stricter: it stops at the first unsound record and drops all that follows
(docs/formats/recovery.md#normal). The two differ only if the log is damaged in its middle, and then the records after
the damage are evidence.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.log.kernels import accelerated
from rmqtx.readers.log.properties import CHECK_TIMES
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import (
    AT,
    BLANK_MAGIC,
    CRC_MASK,
    FILLER_MARK,
    HEAD_BYTES,
    HEADER_BYTES_MAX,
    MAGIC_AT,
    MAGIC_START,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    head_of,
    header_bytes,
    is_blank_head,
    length_of,
    number_at,
    topic_width,
)
from rmqtx.readers.model.columns import SLACK_BYTES, Bools, Int64s, integers_at
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import DISCARD_TOPIC

_WORD_BYTES = 4
#: The words of the mark that lie at a multiple of their length: one of them does, wherever the mark begins.
_WORDS = [int.from_bytes(FILLER_MARK[place : place + _WORD_BYTES], "little") for place in range(_WORD_BYTES)]
#: Words that are compared at once; they fit into the processor's caches.
_WORDS_AT_ONCE = 1 << 16
#: Bytes read at a time: about ten thousand records. Larger windows do not fit into the processor's caches.
WINDOW_BYTES = 8 << 20
_PAST_RANGE_BYTES = 64 << 10
#: What is read at once in search of the next record: at first less, since mostly it is near.
_RESYNC_BYTES, _FIRST_RESYNC_BYTES = 4 << 20, 64 << 10
#: What a preallocated part of a file contains.
_ZEROS = bytes(_RESYNC_BYTES)
#: Bytes read after a range, for the record that crosses its end; most records are shorter.
_BEHIND_BYTES = 16 << 10
_PAGE_BYTES = 4096
#: In a DLedger entry the magic code precedes the length.
_DLEDGER_BLANK_BYTES = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one file that is not a record: blank, preallocated, damaged, torn or foreign. Units: bytes."""

    kind: str
    position_bytes: int
    length_bytes: int

    @property
    def is_filler(self) -> bool:
        """Whether no data is missing in the range."""
        return self.kind in ("blank", "preallocated")


def merged_spans(spans: list[Span]) -> list[Span]:
    """Return spans of one file with adjacent damaged spans merged, since the ends of splits divide them arbitrarily.

    Order: position ascending.
    """
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.position_bytes):
        before = merged[-1] if merged else None
        if (
            before is not None
            and before.kind == span.kind == "damaged"
            and before.position_bytes + before.length_bytes == span.position_bytes
        ):
            merged[-1] = Span("damaged", before.position_bytes, before.length_bytes + span.length_bytes)
        else:
            merged.append(span)
    return merged


def walk(
    data: bytes, base_offset: int, position: int, limit: int, frame_bytes: int = 0
) -> tuple[Int64s, int]:
    """Return the positions of consecutive records from `position`, and the position where they end.

    Units: bytes; `base_offset` is the commit-log offset of `data`; records end at or before `limit`; `frame_bytes` is
           the length between the end of a record and the begin of the next.
    """
    starts: list[int] = []
    add = starts.append
    end = min(limit, len(data)) - HEAD_BYTES
    while position <= end:
        (length,) = length_of(data, position)
        if length < RECORD_BYTES_MIN or position + length > limit:
            break
        add(position)
        position += length + frame_bytes
    # Each length leads to the next record. Whether they are records is seen for all at once: half the time.
    places = np.array(starts, np.int64)
    buffer = np.frombuffer(data, np.uint8)
    magics = integers_at(buffer, places + MAGIC_AT, ">u4")
    is_wrong = (magics != MAGIC_V1) & (magics != MAGIC_V2)
    is_wrong |= integers_at(buffer, places + AT["commit_log_offset"], ">i8") != base_offset + places
    if is_wrong.any():
        first = int(is_wrong.argmax())
        return places[:first], starts[first]
    return places, position


#: Takes a file, and the begin and end of a range of it that a scan of this process has read.
Watch = Callable[[str, int, int], None]
_WATCHES: list[Watch] = []


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Report to a function what scans of this process, in all its threads, read during the block.

    In a block inside another one only the function of the inner one is called.
    """
    _WATCHES.append(watch)
    try:
        yield
    finally:
        _WATCHES.remove(watch)


class SegmentScan:
    """One pass over a segment, or a range of it: blocks of sound records, and spans of other bytes.

    Shape:  iterate for blocks; `spans` and `decoded_bytes` are complete at the end of the iteration, and so is
            `misplaced`, the records whose own offset is damaged. `unused`: by file, the position from which on other
            scans found only zeros, if it is set before the iteration; this scan adds what it finds.
    Order:  position ascending; a record is returned exactly once. Records that begin in [from_position, to_position)
            belong to this scan, even if they end past it, and so does damage after them.
    Damage: becomes spans; the scan continues at the next record that is proved by its stored offset.
    """

    def __init__(
        self, segment: Segment, *, from_position: int = 0, to_position: int | None = None, is_last: bool = True,
        window_bytes: int = WINDOW_BYTES, stops_at_break: bool = False, with_fillers: bool = False,
    ) -> None:
        """`is_last`: no later segment holds data, so zeros up to the end are preallocated space.

        `stops_at_break`: end at the first place without a record, as recovery does, and account for no bytes after;
        `break_position` is then that place.
        `with_fillers`: return the fillers of `rmqtx salvage` too, which are records for a broker.
        """
        self.segment = segment
        self.spans: list[Span] = []
        self.misplaced: list[Block] = []
        self.decoded_bytes = 0
        self._frame = segment.frame_bytes
        self._from = from_position
        self._to = segment.size_bytes if to_position is None else min(to_position, segment.size_bytes)
        self._is_last = is_last
        # For a small range a whole window would be read for one record that ends past it; the window grows if needed.
        self._window_bytes = min(window_bytes, max(self._to - self._from, 0) + _PAST_RANGE_BYTES)
        self._stops_at_break = stops_at_break
        self._with_fillers = with_fillers
        self.unused: dict[str, int] = {}
        self._record_bytes = 0
        #: Past the last byte that is not zero of a range in which no record was found.
        self._seen_end = 0
        self.last_store_time_ms = 0
        self.break_position: int | None = None

    def __iter__(self) -> Iterator[Block]:
        with self.segment.open() as file:
            file.will_read_until(self._to + _BEHIND_BYTES + SLACK_BYTES)
            position: int | None = self._from or self._frame
            if self._from:
                to_position = min(self._to, self._unused_from)
                # Records after that place belong to another scan; without one before it, so does the damage here.
                position = self._resync(file, self._from, to_position)
                position = position if position is None else self._misplaced_before(file, position)
            while position is not None and position < self._to:
                data = file.read(position, self._wanted_bytes(position) + SLACK_BYTES)
                limit = len(data) - SLACK_BYTES
                if position + len(data) >= self.segment.size_bytes:
                    limit = len(data)
                    data += bytes(SLACK_BYTES)
                block, stop = self._completed(file, data, position, limit)
                if holds_mark(data) and len(block) and not self._with_fillers:
                    block = self._without_fillers(block)
                if len(block):
                    self.decoded_bytes += int(block.lengths.sum()) + len(block) * self._frame
                    self._note_time(int(block.take(np.array([len(block) - 1])).header("store_time_ms")[0]))
                    yield block
                self._note_read(self._from, position + stop)
                if position + stop < self._to and not self._goes_on(file, position + stop, stop):
                    if (others := self._misplaced(file, position + stop)) is not None:
                        position = self._taken(others)
                        yield others
                    elif self._stops_at_break:
                        self.break_position, position = position + stop - self._frame, None
                    else:
                        position = self._skip(file, position + stop - self._frame)
                else:
                    position += stop
            if position is not None and not self._stops_at_break:
                self._account_behind(file, position)

    def _note_read(self, begin: int, end: int) -> None:
        """Pass on what was read."""
        if _WATCHES:
            _WATCHES[-1](self.segment.file, begin, end)

    def _note_time(self, store_time_ms: int) -> None:
        """Keep the store time of the last record, unless it is impossible."""
        if 0 <= store_time_ms <= BROKER_TIME_MAX_MS:
            self.last_store_time_ms = store_time_ms

    def _without_fillers(self, block: Block) -> Block:
        """Return the block without the fillers of `rmqtx salvage`, which are counted as damage.

        The check may have discarded half messages among the fillers: the copies that it wrote to the discard topic are
        records of a broker, so they count as decoded, but they are no evidence.
        """
        fillers = block.are_fillers()
        discarded = fillers & block.topic_is(DISCARD_TOPIC) & block.properties.locate(CHECK_TIMES)[2]
        self.decoded_bytes += int(block.lengths[discarded].sum())
        for row in np.flatnonzero(fillers & ~discarded).tolist():
            position, length = int(block.positions[row]), int(block.lengths[row])
            last = self.spans[-1] if self.spans else None
            if last is not None and last.kind == "damaged" and last.position_bytes + last.length_bytes == position:
                self.spans[-1] = Span("damaged", last.position_bytes, last.length_bytes + length)
            else:
                self.spans.append(Span("damaged", position, length))
        return block.take(~fillers)

    def _wanted_bytes(self, position: int) -> int:
        """Return how much to read at a position: a window, but not far behind the range, and at least one record."""
        return max(self._record_bytes, min(self._window_bytes, self._to - position + _BEHIND_BYTES))

    def _account_behind(self, file: OpenFile, position: int) -> None:
        """Account for bytes after the last record of this scan's range, up to the first record of the next scan."""
        is_behind = self._to <= position < self.segment.size_bytes + self._frame
        if not is_behind or sound_length(file, position, self.segment.base_offset) is not None:
            return
        if misplaced_length(file, position, self.segment) is None:
            self._skip(file, position - self._frame)

    def _misplaced_before(self, file: OpenFile, position: int) -> int:
        """Return where a record with a damaged own offset begins in this range that ends at a position; else that."""
        data = file.read(self._from, position - self._from)
        found = data.rfind(MAGIC_START, MAGIC_AT)
        while found >= 0:
            place = self._from + found - MAGIC_AT
            length = misplaced_length(file, place, self.segment)
            if length is not None and place + length + self._frame == position:
                return place
            found = data.rfind(MAGIC_START, MAGIC_AT, found)
        return position

    def _misplaced(self, file: OpenFile, position: int) -> Block | None:
        """Return the record that begins at a place, if its own offset alone is damaged; None for others."""
        length = misplaced_length(file, position, self.segment, self.last_store_time_ms if self._is_last else None)
        if length is None:
            return None
        data = file.read(position, length) + bytes(SLACK_BYTES)
        return Block(data, self.segment.base_offset + position, position, self.segment.file, np.zeros(1, np.int64))

    def _taken(self, block: Block) -> int:
        """Count a record with a damaged own offset as decoded; return where the next record begins."""
        self.decoded_bytes += int(block.lengths.sum()) + len(block) * self._frame
        self._note_time(int(block.header("store_time_ms")[-1]))
        self.misplaced.append(block)
        return int(block.positions[-1] + block.lengths[-1]) + self._frame

    def _completed(self, file: OpenFile, data: bytes, position: int, limit: int) -> tuple[Block, int]:
        """Return the sound records of a window. If the last record ends in zeros, the window is read once more.

        A running broker may have been about to write the rest of it.
        """
        spans_count, decoded_bytes = len(self.spans), self.decoded_bytes
        block, stop = self._block(file, data, position, limit)
        if not self._is_last or not len(block) or not block.properties_lengths[-1]:
            return block, stop
        if block.data[int(block.starts[-1] + block.lengths[-1]) - 1]:
            return block, stop
        again = file.read(position, limit)
        if len(again) != limit or again == data[:limit]:
            return block, stop
        del self.spans[spans_count:]
        self.decoded_bytes = decoded_bytes
        return self._block(file, again + data[limit:], position, limit)

    def _block(self, file: OpenFile, data: bytes, position: int, limit: int) -> tuple[Block, int]:
        """Return the sound records of a window. The bytes of an unsound one before others are searched for records."""
        base = self.segment.base_offset + position
        walked, sound, stop = self._walk(data, base, limit, position)
        past = int(np.searchsorted(walked.starts, self._to - position))
        is_cut = past < len(walked)
        if is_cut:
            stop = int(walked.starts[past])
            walked, sound = walked.take(np.arange(past)), sound[:past]
        if sound.all():
            fast = accelerated()
            if fast is None:
                return walked, stop  # with what the test has decoded
            fields = fast.fields(walked.data, walked.starts)
            return Block(data, base, position, self.segment.file, walked.starts, fields=fields), stop
        starts = walked.starts.tolist()
        if not sound[-1] and not is_cut:  # its length, which led to the end of the chain, proves nothing
            stop = starts.pop()
            sound = sound[:-1]
        kept: list[int] = []
        for number, start in enumerate(starts):
            if sound[number]:
                kept.append(start)
                continue
            end = position + (starts[number + 1] if number + 1 < len(starts) else stop) - self._frame
            inside = self._records_inside(file, position + start + 1, end)
            own = [(place, length) for place, length in inside if place < self._to]
            kept.extend(place - position for place, _ in own)
            if len(own) < len(inside):  # the next scan finds the others, and damage after them
                end = inside[len(own)][0] - self._frame
                stop = end + self._frame - position
                self._damage_between(position + start - self._frame, own, end)
                break
            self._damage_between(position + start - self._frame, inside, end)
        return Block(data, base, position, self.segment.file, np.array(kept, np.int64)), stop

    def _walk(self, data: bytes, base: int, limit: int, position: int) -> tuple[Block, Bools, int]:
        """Return consecutive records of a window, which of them are sound, and where they end."""
        fast = None if self._frame else accelerated()
        if fast is not None:
            chain, sound, stop = fast.walk(data, base, 0, limit)
            return Block(data, base, position, self.segment.file, chain), sound, stop
        starts, stop = walk(data, base, 0, limit, self._frame)
        block = Block(data, base, position, self.segment.file, starts)
        return block, block.sound(), stop

    def _records_inside(self, file: OpenFile, position: int, end: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while (place := self._resync(file, position, end)) is not None:
            length = sound_length(file, place, self.segment.base_offset)
            if length is None or place + length > end:
                break
            found.append((place, length))
            position = place + length + self._frame
        return found

    def _damage_between(self, position: int, records: list[tuple[int, int]], end: int) -> None:
        framed = [(place - self._frame, length + self._frame) for place, length in records]
        for place, length in [*framed, (end, 0)]:
            if place > position:
                self.spans.append(Span("damaged", position, place - position))
            else:  # a record without room for a header in front: counted with the record
                self.decoded_bytes -= position - place
            position = place + length

    def _goes_on(self, file: OpenFile, position: int, walked_bytes: int) -> bool:
        """Whether the chain of records ended only because the window ended."""
        length = sound_length(file, position, self.segment.base_offset)
        if length is None:
            return False
        if not walked_bytes:  # one record longer than the window
            self._record_bytes = max(self._record_bytes, length)
        return True

    def _skip(self, file: OpenFile, position: int) -> int | None:
        """Account for bytes that are not a record from `position` on; return where the next record begins.

        At `position` there may be a header.
        """
        size = self.segment.size_bytes
        head = file.read(position, HEAD_BYTES)
        if _is_blank(head, size - position, self._frame):
            self.spans.append(Span("blank", position, size - position))
            return None
        following = self._resync(file, position + self._frame + 1, self._unused_from)
        if self._is_written_meanwhile(file, position):
            return position + self._frame
        if following is not None and not self._is_stale(file, following):
            self.spans.append(Span("damaged", position, following - self._frame - position))
            return following
        # The search saw all that follows: no byte after the last one that is not zero is read again.
        end = None if following is not None else max(self._seen_end, _used_end(file, position, self._frame + 1))
        blank = self._find_blank(file, position + 1, end)
        if blank is not None:
            self.spans.append(Span("damaged", position, blank - position))
            self.spans.append(Span("blank", blank, size - blank))
            return None
        if end is None:
            end = max(position, self._unused_from) if self._unused_from < size else data_end(file, position)
        if self._is_written_meanwhile(file, position):
            return position + self._frame
        if end > position:
            place = position + self._frame
            head = file.read(place, HEAD_BYTES) if self._frame else head
            kind = "foreign" if following is not None else self._tail_kind(file, head, place, end)
            self.spans.append(Span(kind, position, end - position))
        if size > end:
            self.spans.append(Span("preallocated" if self._is_last else "damaged", end, size - end))
            if self._is_last:
                self.unused[self.segment.file] = min(end, self._unused_from)
        return None

    @property
    def _unused_from(self) -> int:
        """The position from which on the file is known to have only zeros."""
        return self.unused.get(self.segment.file, self.segment.size_bytes)

    def _is_written_meanwhile(self, file: OpenFile, position: int) -> bool:
        """Whether a record is complete now: the newest record of a running broker may have been read half-written."""
        return self._is_last and sound_length(file, position + self._frame, self.segment.base_offset) is not None

    def _tail_kind(self, file: OpenFile, head: bytes, position: int, end: int) -> str:
        """Return the kind of the bytes after the last sound record.

        Torn: a record of this place that was not completely written. Foreign: a record of another place, bytes up to
        the end of the page that are not a record, as 5.5.0 leaves them with writeWithoutMmap=true, or records that
        recovery cut off.
        """
        if not self._is_last:
            return "damaged"
        if min(len(head), end - position) < HEAD_BYTES:  # the stored offset was not written
            return "torn"
        length, magic, offset = head_of(head, 0)
        is_here = offset == self.segment.base_offset + position
        has_magic = magic in (MAGIC_V1, MAGIC_V2)
        if is_here:
            return "torn" if has_magic and position + length > end else "damaged"
        is_page_rest = not has_magic and end <= -(-position // _PAGE_BYTES) * _PAGE_BYTES
        return "foreign" if is_page_rest or (has_magic and self._is_stale(file, position)) else "damaged"

    def _is_stale(self, file: OpenFile, position: int) -> bool:
        """Whether a record after a break is older than the records before.

        Recovery only moves the write position; records that it cut off stay in the file until later writes cover them,
        and must not be used as evidence.
        """
        if not self._is_last:
            return False
        return number_at(file.read(position, HEADER_BYTES_MAX), "store_time_ms") < self.last_store_time_ms

    def _resync(self, file: OpenFile, position: int, end: int | None = None) -> int | None:
        """Return where the first sound record in [position, end) begins, or None."""
        base = self.segment.base_offset
        last = 0, b""
        for start, data in _windows(file, position, end, overlap=HEAD_BYTES, note=self._note_read):
            last = start, data
            found = data.find(MAGIC_START, MAGIC_AT)
            while found >= 0:
                place = found - MAGIC_AT
                if place + HEAD_BYTES <= len(data) and head_of(data, place)[2] == base + start + place:
                    length = sound_length(file, start + place, base)
                    if length is not None and (end is None or start + place < end):
                        return start + place
                found = data.find(MAGIC_START, found + 1)
        self._seen_end = last[0] + len(last[1].rstrip(b"\0"))
        return None

    def _find_blank(self, file: OpenFile, position: int, end: int | None) -> int | None:
        magic, before = (_DLEDGER_BLANK_BYTES, 0) if self._frame else (BLANK_MAGIC, MAGIC_AT)
        for start, data in _windows(file, position, end, overlap=8):
            found = data.find(magic, before)
            while found >= 0:
                place = start + found - before
                if _is_blank(data[found - before : found - before + 8], self.segment.size_bytes - place, self._frame):
                    return place
                found = data.find(magic, found + 1)
        return None


def _windows(
    file: OpenFile, position: int, end: int | None, *, overlap: int, note: Callable[[int, int], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield overlapping parts of a file; sparse holes and parts of zeros are skipped, in which no magic can be."""
    stop = file.size_bytes if end is None else min(end + overlap, file.size_bytes)
    length, begin = _FIRST_RESYNC_BYTES, position
    while position < stop:
        position = max(position, file.next_data(position) - overlap)
        data = file.read(position, min(length, stop - position))
        length = _RESYNC_BYTES
        if note is not None:
            note(begin, position + len(data))
        if len(data) <= overlap and position + len(data) < stop:
            return
        if data and data != _ZEROS[: len(data)]:
            yield position, data
        if position + len(data) >= stop:
            return
        position += len(data) - overlap


def _used_end(file: OpenFile, position: int, length: int) -> int:
    """Return the position past the last byte of a short range that is not zero; `position` if all are zero."""
    return position + len(file.read(position, length).rstrip(b"\0"))


def data_end(file: OpenFile, position: int) -> int:
    """Return the position past the last byte from `position` on that is not zero; `position` if all are zero."""
    end = position
    while (position := file.next_data(position)) < file.size_bytes:
        data = file.read(position, _RESYNC_BYTES)
        if data != _ZEROS[: len(data)]:  # ten times as fast as rstrip, and most parts are zeros
            end = position + len(data.rstrip(b"\0"))
        position += len(data)
    return end


def misplaced_length(
    file: OpenFile, position: int, segment: Segment, not_before_ms: int | None = None
) -> int | None:
    """Return the length of the record at a position whose own offset alone is damaged; None if more is damaged, or
    nothing.

    Its body has its CRC, and it ends where a sound record begins; or, in a file that begins with a sound record, where
    the blank record begins or the data ends. Of several such records in a row none counts: they may be the content of
    another file. `not_before_ms`: the least store time of the last record of a log; an older one was cut off by a
    recovery, and is still in the file.
    """
    frame, base = segment.frame_bytes, segment.base_offset
    if position >= file.size_bytes or sound_length(file, position, base) is not None:
        return None
    length = sound_length(file, position, None)
    if length is None or is_blank_at(file, position - frame, segment):
        return None
    head = file.read(position, HEADER_BYTES_MAX)
    body_length = number_at(head, "body_length_bytes")
    body = file.read(position + header_bytes(number_at(head, "sys_flag")), body_length)
    if zlib.crc32(body) & CRC_MASK != number_at(head, "body_crc") or _is_moved(head, position, segment):
        return None
    end = position + length + frame
    if sound_length(file, end, base) is not None:
        return length
    if position == frame or sound_length(file, frame, base) is None:
        return None
    if is_blank_at(file, end - frame, segment):
        return length
    is_last = not_before_ms is not None and data_end(file, end - frame) <= end - frame
    is_new = is_last and number_at(head, "store_time_ms") >= (not_before_ms or 0)
    return length if is_new else None


def _is_moved(head: bytes, position: int, segment: Segment) -> bool:
    """Whether a record with another own offset was copied or moved from another place: it shows nothing about this one.

    Then the offset is a place in the log, and differs in more than one byte.
    """
    stored, place = number_at(head, "commit_log_offset"), segment.base_offset + position
    if not 0 <= stored < segment.end_offset:
        return False
    return sum(one != other for one, other in zip(stored.to_bytes(8, "big"), place.to_bytes(8, "big"), strict=True)) > 1


def is_blank_at(file: OpenFile, position: int, segment: Segment) -> bool:
    """Whether the rest of a file is a blank record, or an entry in its place."""
    return _is_blank(file.read(position, HEAD_BYTES), segment.size_bytes - position, segment.frame_bytes)


def _is_blank(head: bytes, left_bytes: int, frame_bytes: int) -> bool:
    if not frame_bytes:
        return is_blank_head(head, left_bytes)
    return head[:4] == _DLEDGER_BLANK_BYTES and int.from_bytes(head[4:8], "big") == left_bytes


def sound_length(file: OpenFile, position: int, base_offset: int | None) -> int | None:
    """Return the length of the record at a position, or None if it is not sound; a few small reads for any length.

    `base_offset`: of the file; None: whatever offset the record has stored.
    """
    head = file.read(position, HEADER_BYTES_MAX)
    if len(head) < RECORD_BYTES_MIN - 3:
        return None
    length, magic, offset = head_of(head, 0)
    if magic not in (MAGIC_V1, MAGIC_V2) or length < RECORD_BYTES_MIN:
        return None
    if base_offset is not None and offset != base_offset + position:
        return None
    sys_flag = number_at(head, "sys_flag")
    body_length = number_at(head, "body_length_bytes", 0, sys_flag)
    if body_length < 0 or position + length > file.size_bytes:
        return None
    width = topic_width(magic)
    topic_at = position + header_bytes(sys_flag) + body_length
    topic_length = int.from_bytes(file.read(topic_at, width), "big", signed=True)
    if topic_length < 0:
        return None
    sizes_at = topic_at + width + topic_length
    if sizes_at + 2 > position + length:
        return None
    properties_length = int.from_bytes(file.read(sizes_at, 2), "big", signed=True)
    if properties_length < 0 or sizes_at + 2 + properties_length != position + length:
        return None
    if not topic_length + properties_length:
        return None
    return int(length)


def holds_mark(data: bytes) -> bool:
    """Return whether the mark of fillers is in the data."""
    fast = accelerated()
    return (_may_hold_mark(data) if fast is None else fast.may_hold_mark(data)) and FILLER_MARK in data


def _may_hold_mark(data: bytes) -> bool:
    """Return False if the mark is not in the data; True if it may be. Sooner than a search for the text."""
    words = np.frombuffer(data, "<u4", len(data) // _WORD_BYTES)
    for begin in range(0, len(words), _WORDS_AT_ONCE):
        part = words[begin : begin + _WORDS_AT_ONCE]
        found = part == _WORDS[0]
        for word in _WORDS[1:]:
            found |= part == word
        if found.any():
            return True
    return False

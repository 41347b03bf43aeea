"""How a broker reads its log when it starts: from one of the last files on, record by record, up to its end.

The broker checks less than our scan in places (it ignores a record's own offset) and more in others (one wrong CRC ends
the log). Where our scan found sound records with right CRCs, both agree, so only the other places are read here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rmqtx.readers.log.header_rules import PROPERTY_CRC, PROPERTY_CRC_BYTES
from rmqtx.readers.log.record_layout import (
    BLANK,
    HEADER_BYTES_MAX,
    MAGIC_BLANK,
    NAME_END,
    RECORD,
    RECORD_BYTES_MIN,
    VALUE_END,
    header_bytes,
    number_at,
    topic_width,
)
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import SCHEDULE_TOPIC
from rmqtx.verdicts.startup.rules import RecoveryRules

RECORD_OK, BLANK_OK, MISMATCH, END = "record", "blank", "mismatch", "end"
_JAVA_INTEGER = re.compile(rb"[+-]?\d{1,10}")


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a broker for the bytes at one place. Units: bytes; `read_bytes`: the number of bytes it read."""

    kind: str
    length_bytes: int = 0
    read_bytes: int = 0
    why: str = ""

    def is_passed(self, rules: RecoveryRules, *, is_abnormal: bool) -> bool:
        """Whether the recovery goes on behind the record. `is_abnormal`: it is that of a killed broker."""
        return self.kind == RECORD_OK or (self.kind == MISMATCH and is_abnormal and rules.counts_mismatched)


@dataclass(frozen=True, slots=True)
class LogWalk:
    """Where a start begins to read the log and where it finds the end.

    Shape: `segments`: the files that it loads; `start`: number of the first file that it reads; `stopped_in`: of the
           last file. `why`: the cause of the end.
    Units: commit-log offsets in bytes.
    """

    segments: Sequence[Segment] = field(compare=False)  # the same walk over a copy is equal
    start: int
    stopped_in: int
    end_offset: int
    why: str

    @classmethod
    def to_the_end(cls, segments: Sequence[Segment], start: int, end_offset: int) -> LogWalk:
        """Return the walk of a start that does not cut the log."""
        return cls(segments, start, len(segments) - 1, end_offset, "")


def check_record(file: OpenFile, position: int, rules: RecoveryRules) -> Checked:
    """Return how a broker judges the record at a position of a file.

    Raises: FileChanged, UnreadableFile.
    Source: store/CommitLog.java checkMessageAndReturnSize; docs/formats/record.md#validation.
    """
    head = file.read(position, HEADER_BYTES_MAX)
    if len(head) < BLANK.size_bytes:
        return Checked(END, why="the file ends without a blank record")
    length = number_at(head, "length_bytes")
    magic = number_at(head, "magic") & 0xFFFFFFFF
    if rules.bounds_lengths and file.size_bytes - position < length:
        return Checked(END, why=f"a length of {length} bytes, more than the rest of the file")
    if magic == MAGIC_BLANK:
        return Checked(BLANK_OK)
    if magic not in rules.magics:
        return Checked(END, why="zeros" if not any(head[:8]) else f"{magic:08x} instead of a magic code")
    if length < RECORD_BYTES_MIN:
        return Checked(END, why=f"a length of {length} bytes")
    flags = number_at(head, "sys_flag") if rules.reads_ipv6 else 0
    if len(head) < header_bytes(flags):
        return Checked(END, why="the file ends inside a record's header")
    return _check_parts(file, position, head, length, flags, rules)


def _check_parts(
    file: OpenFile, position: int, head: bytes, length: int, flags: int, rules: RecoveryRules
) -> Checked:
    """Judge the parts after the header: body, topic and properties must fit into the record's length and the file."""
    body_length = number_at(head, "body_length_bytes", 0, flags)
    place = position + header_bytes(flags)
    if body_length > 0:
        if body_length > length or place + body_length > file.size_bytes:
            return Checked(END, why=f"a body of {body_length} bytes")
        if zlib.crc32(file.read(place, body_length)) & 0x7FFFFFFF != number_at(head, "body_crc"):
            return Checked(END, why="a body that does not match its CRC")
        place += body_length
    width = topic_width(number_at(head, "magic"))
    topic_length = _signed(file.read(place, width).ljust(1, b"\xff"), 0, width)
    place += width
    if topic_length < 0 or topic_length > length or place + topic_length + 2 > file.size_bytes:
        return Checked(END, why=f"a topic of {topic_length} bytes")
    topic = file.read(place, topic_length)
    place += topic_length
    properties_length = _signed(file.read(place, 2), 0, 2)
    place += 2
    properties = b""
    if properties_length > 0:
        if properties_length > length or place + properties_length > file.size_bytes:
            return Checked(END, why=f"properties of {properties_length} bytes")
        properties = file.read(place, properties_length)
        place += properties_length
    if _has_bad_number(topic, properties):
        return Checked(END, why="a property that is not a number")
    if rules.verifies_property_crcs and not _has_right_crc(file.read(position, place - position), properties):
        return Checked(END, why="a property CRC that is missing or wrong")
    if place - position != length:
        return Checked(MISMATCH, length, place - position, why=f"a length of {length} bytes, but the parts have "
                       f"{place - position}")
    return Checked(RECORD_OK, length, length)


def _has_right_crc(record: bytes, properties: bytes) -> bool:
    """Whether a record ends in a property CRC that matches the bytes before it."""
    name = PROPERTY_CRC.encode() + bytes([NAME_END])
    if properties[-PROPERTY_CRC_BYTES:][: len(name)] != name:
        return False
    digits = record[len(name) - PROPERTY_CRC_BYTES : -1]
    computed = zlib.crc32(record[:-PROPERTY_CRC_BYTES]) & 0x7FFFFFFF
    return digits.isdigit() and int(digits[::-1]) == computed


def _signed(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "big", signed=True)


def _has_bad_number(topic: bytes, properties: bytes) -> bool:
    """Whether a property that the broker parses is not a number: the exception ends the log."""
    if topic != SCHEDULE_TOPIC.encode() or b"DELAY" not in properties:
        return False
    pairs = dict(
        pair.split(bytes([NAME_END]), 1) for pair in properties.split(bytes([VALUE_END])) if bytes([NAME_END]) in pair
    )
    value = pairs.get(b"DELAY")
    return value is not None and not _JAVA_INTEGER.fullmatch(value)


def walk_log(
    segments: Sequence[Segment], start: int, breaks: Mapping[str, Int64s], rules: RecoveryRules, *, is_abnormal: bool
) -> LogWalk:
    """Return where reading from file number `start` on ends.

    `breaks`: file → rows [from, to) that are not sound records with a right CRC, including blanks and unused bytes.
    Raises: FileChanged, UnreadableFile.
    """
    counted = 0
    for number in range(start, len(segments)):
        counted, why = _walk_file(segments[number], breaks, rules, is_abnormal=is_abnormal)
        if why is not None:
            return LogWalk(segments, start, number, segments[number].base_offset + counted, why)
    return LogWalk(segments, start, len(segments) - 1, segments[-1].base_offset + counted, "the last file is full")


def _walk_file(
    segment: Segment, breaks: Mapping[str, Int64s], rules: RecoveryRules, *, is_abnormal: bool
) -> tuple[int, str | None]:
    """Return how many bytes of a file count as records, and why reading ends in it; None: it continues in the next."""
    rows = breaks.get(segment.file, np.empty((0, 2), np.int64))
    ends = set(rows[:, 1].tolist())
    position = counted = 0
    is_in_step = True  # the broker is at the begin of a record that our scan found
    with segment.open() as file:
        while True:
            if is_in_step:  # the records are sound up to the next break
                at = int(np.searchsorted(rows[:, 0], position))
                stop = int(rows[at, 0]) if at < len(rows) else segment.size_bytes
                counted += stop - position
                position = stop
            found = check_record(file, position, rules)
            if found.kind == BLANK_OK:
                return counted, None
            if not found.is_passed(rules, is_abnormal=is_abnormal):
                return counted, found.why
            counted += found.length_bytes
            position += found.read_bytes
            is_in_step = position in ends


def first_record(segment: Segment, rules: RecoveryRules) -> tuple[int, int] | None:
    """Return the offset and store time of the first record of a file; None without a magic code.

    Raises: FileChanged, UnreadableFile.
    Source: store/CommitLog.java isMappedFileMatchedRecover.
    """
    with segment.open() as file:
        head = file.read(0, HEADER_BYTES_MAX)
    if len(head) < RECORD.size_bytes or number_at(head, "magic") & 0xFFFFFFFF not in rules.magics:
        return None
    flags = number_at(head, "sys_flag") if rules.reads_ipv6 else 0
    return number_at(head, "commit_log_offset"), number_at(head, "store_time_ms", 0, flags)

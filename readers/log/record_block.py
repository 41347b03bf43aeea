"""Sound records of one window of the commit log, decoded by column, all of them at once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.log.kernels import accelerated
from rmqtx.readers.log.properties import PropertyAreas, properties_of
from rmqtx.readers.log.record_layout import AT, BORN_V6, CRC_MASK, FILLER, IPV6_EXTRA_BYTES, MAGIC_V2, RECORD, STORE_V6
from rmqtx.readers.model.columns import Bools, Int64s, coded, crcs, hosts, integers_at, message_ids, strings, views

if TYPE_CHECKING:
    from rmqtx.readers.log.accelerator.columns import Fields


class Block:
    """Sound records of one window: columns are decoded on demand, for all or for some of the records.

    Shape: every property and method returns one value per record, in log order.
    """

    def __init__(
        self, data: bytes | bytearray, base_offset: int, position_bytes: int, file: str, starts: Int64s,
        offsets: Int64s | None = None, fields: Fields | None = None,
    ) -> None:
        """`data` begins at `position_bytes` of `file`, which is commit-log offset `base_offset`.

        `offsets`: for records from different places of the file, the commit-log offset of each.
        `fields`: columns that the accelerator has decoded; the others are decoded on demand.
        """
        self.raw = cast(bytes, data)  # never changed
        self.data = np.frombuffer(data, np.uint8)
        self._buffer = pa.py_buffer(data)
        self.base_offset = base_offset
        self.position_bytes = position_bytes
        self.file = file
        self.starts = starts
        self._offsets = offsets
        self._fields = fields
        self._rows: Int64s | None = None  # of the records in `fields`; None for all

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, rows: Int64s | Bools) -> Block:
        """Return a block of the same window with some of the records."""
        if rows.dtype == np.bool_:
            if rows.all():
                return self
            rows = np.flatnonzero(rows)  # by which columns are taken in less time
        block = Block.__new__(Block)
        block.raw, block.data, block._buffer = self.raw, self.data, self._buffer
        block.base_offset, block.position_bytes, block.file = self.base_offset, self.position_bytes, self.file
        block.starts = self.starts[rows]
        block._offsets = None if self._offsets is None else self._offsets[rows]
        block._fields, block._rows = self._fields, None
        if self._fields is not None:
            numbers = np.arange(len(self)) if self._rows is None else self._rows
            block._rows = numbers[rows]
        known: PropertyAreas | None = self.__dict__.get("properties")
        if known is not None and (known.has_found_all or 2 * len(block) >= len(self)):
            block.__dict__["properties"] = known.take(rows)
        return block

    def _decoded(self, name: str) -> npt.NDArray[Any] | None:
        """Return a column that the accelerator has decoded."""
        column = None if self._fields is None else self._fields.columns.get(name)
        return column if column is None or self._rows is None else column[self._rows]

    def _integers(self, positions: Int64s, code: str) -> npt.NDArray[np.int64]:
        return integers_at(self.data, positions, code)

    def header(self, name: str) -> npt.NDArray[np.int64]:
        """Return a field of the record header by its declared name, as native integers."""
        if (decoded := self._decoded(name)) is not None:
            return decoded
        if AT[name] <= AT["born_address"] or not self._has_v6:
            column = self._heads[name]
            return column.astype(column.dtype.newbyteorder("="))
        extra = self._born_extra if AT[name] <= AT["store_address"] else self._born_extra + self._store_extra
        return self._integers(self.starts + AT[name] + extra, RECORD.dtype[name].str)

    @cached_property
    def _heads(self) -> npt.NDArray[np.void]:
        """The headers of the records in one copy; hosts of IPv6 move the fields after them to other places."""
        width = RECORD.size_bytes
        rows = np.ndarray((max(0, len(self.data) - width + 1), width), np.uint8, self.data, 0, (1, 1))[self.starts]
        heads: npt.NDArray[np.void] = rows.view(RECORD.dtype).reshape(-1)
        return heads

    @cached_property
    def sys_flag(self) -> npt.NDArray[np.int32]:
        """System flag bits."""
        return self.header("sys_flag").astype(np.int32)

    @cached_property
    def _has_v6(self) -> bool:
        return bool((self.sys_flag & (BORN_V6 | STORE_V6)).any())

    @cached_property
    def _born_extra(self) -> npt.NDArray[np.int64]:
        return np.where(self.sys_flag & BORN_V6, IPV6_EXTRA_BYTES, 0)

    @cached_property
    def _store_extra(self) -> npt.NDArray[np.int64]:
        return np.where(self.sys_flag & STORE_V6, IPV6_EXTRA_BYTES, 0)

    @cached_property
    def lengths(self) -> Int64s:
        """Whole record. Units: bytes."""
        return self.header("length_bytes").astype(np.int64)

    @cached_property
    def body_lengths(self) -> Int64s:
        """Stored body. Units: bytes."""
        return self.header("body_length_bytes").astype(np.int64)

    @cached_property
    def body_starts(self) -> Int64s:
        """Where bodies begin in the window. Units: bytes."""
        if (decoded := self._decoded("body_starts")) is not None:
            return decoded
        return self.starts + RECORD.size_bytes + self._born_extra + self._store_extra

    @cached_property
    def is_v2(self) -> Bools:
        """Whether the topic length takes two bytes (5.1.0+)."""
        return np.equal(self.data[self.starts + 7], MAGIC_V2 & 0xFF)

    @cached_property
    def _topic(self) -> tuple[Int64s, Int64s]:
        decoded = self._decoded("topic_starts"), self._decoded("topic_lengths")
        if decoded[0] is not None and decoded[1] is not None:
            return decoded[0], decoded[1]
        place = self.body_starts + self.body_lengths
        lengths = self.data[place].astype(np.int64)
        starts = place + 1
        two = self.is_v2.nonzero()[0]
        if len(two):
            lengths[two] = self._integers(place[two], ">i2")
            starts[two] += 1
        return starts, lengths

    @property
    def topic_starts(self) -> Int64s:
        """Where topics begin in the window. Units: bytes."""
        return self._topic[0]

    @property
    def topic_lengths(self) -> Int64s:
        """Topics as stored. Units: bytes."""
        return self._topic[1]

    @cached_property
    def _properties_area(self) -> tuple[Int64s, Int64s]:
        decoded = self._decoded("properties_starts"), self._decoded("properties_lengths")
        if decoded[0] is not None and decoded[1] is not None:
            return decoded[0], decoded[1]
        starts, lengths = self._topic
        place = starts + lengths
        return place + 2, self._integers(place, ">i2").astype(np.int64)

    @property
    def properties_lengths(self) -> Int64s:
        """Properties as stored. Units: bytes."""
        return self._properties_area[1]

    @property
    def commit_log_offsets(self) -> Int64s:
        """Commit-log offset of each record; in a sound record the stored offset is equal."""
        return self.starts + self.base_offset if self._offsets is None else self._offsets

    @property
    def positions(self) -> Int64s:
        """Where each record begins in its file. Units: bytes."""
        return self.commit_log_offsets - self.base_offset + self.position_bytes

    def sound(self) -> Bools:
        """Return whether each record's length is the sum of its parts; reads nothing outside the record.

        What the properties contain does not matter: the recovery of a broker keeps a record with torn properties. A
        record has a topic or properties: no broker writes one without both.
        Source: store/CommitLog.java checkMessageAndReturnSize; docs/formats/record.md#validation.
        """
        last = self.starts + self.lengths - 3  # the latest place where a properties length can stand
        place = self.body_starts + self.body_lengths
        good = (self.body_lengths >= 0) & (place <= last) & (self.body_starts <= last)
        place = np.where(good, place, self.starts)
        lengths = self.data[place].astype(np.int64)
        wide = self.is_v2.nonzero()[0]
        starts = place + 1
        lengths[~self.is_v2 & (lengths > 127)] = -1  # the broker reads a signed byte
        if len(wide):
            lengths[wide] = self._integers(place[wide], ">i2")
            starts[wide] += 1
        ends = starts + lengths
        good &= (lengths >= 0) & (ends <= self.starts + self.lengths - 2)
        ends = np.where(good, ends, self.starts)
        sizes = self._integers(ends, ">i2").astype(np.int64)
        good &= (sizes >= 0) & (ends + 2 + sizes == self.starts + self.lengths) & (lengths + sizes > 0)
        if good.all():
            self.__dict__["_topic"], self.__dict__["_properties_area"] = (starts, lengths), (ends + 2, sizes)
        return good

    def topic_is(self, name: str) -> Bools:
        """Return which records have a topic; compares bytes, once for each topic."""
        if name not in self._of_topic:
            self._of_topic[name] = self._compared_with(name)
        return self._of_topic[name].copy()

    @cached_property
    def _of_topic(self) -> dict[str, Bools]:
        return {}

    def _compared_with(self, name: str) -> Bools:
        known = None if self._fields is None else self._fields.topic_is(name)
        if known is not None:
            return known if self._rows is None else known[self._rows]
        starts, lengths = self._topic
        text = name.encode()
        rows = (lengths == len(text)).nonzero()[0]
        for place in [*range(0, len(text) - 7, 8), max(0, len(text) - 8)]:
            if not len(rows):
                break
            part = text[place : place + 8]
            if len(part) == 8:
                found = integers_at(self.data, starts[rows] + place, "<u8") == int.from_bytes(part, "little")
                rows = rows[found]
            else:
                for number, value in enumerate(part):
                    rows = rows[self.data[starts[rows] + place + number] == value]
        mask = np.zeros(len(self), np.bool_)
        mask[rows] = True
        return mask

    def are_fillers(self) -> Bools:
        """Return which records are fillers of `rmqtx salvage`: they are sound, and evidence of nothing."""
        return self.topic_is(FILLER) | self.properties.locate(FILLER)[2]

    def topics(self) -> pa.Array:
        """Topics as bytes (a binary view)."""
        return self._views(*self._topic)

    def _views(self, starts: Int64s, lengths: Int64s) -> pa.Array:
        fast = accelerated()
        return (views if fast is None else fast.text_views)(self.data, self._buffer, starts, lengths)

    def coded_topics(self) -> pa.DictionaryArray:
        """Topics as bytes, a dictionary column: there are few different topics."""
        fast = accelerated()
        return (coded if fast is None else fast.codes)(self.data, self._buffer, *self._topic)

    def topic_texts(self) -> pa.Array:
        """Topics as text; each different topic is decoded once."""
        if (fast := accelerated()) is not None:
            return fast.texts(self.data, self._buffer, *self._topic)
        encoded = self.coded_topics()
        return strings(encoded.dictionary).take(encoded.indices)

    @property
    def end_offset(self) -> int:
        """Commit-log offset after the last record."""
        return int(self.commit_log_offsets[-1] + self.lengths[-1])

    def bodies(self) -> pa.Array:
        """Bodies as stored (a binary view)."""
        return self._views(self.body_starts, self.body_lengths)

    @cached_property
    def properties(self) -> PropertyAreas:
        """The property areas of the records."""
        starts, lengths = self._properties_area
        return properties_of(self.data, self._buffer, starts, lengths)

    def born_hosts(self) -> pa.Array:
        """Producer addresses as text."""
        return hosts(self.data, self.starts + AT["born_address"], (self.sys_flag & BORN_V6) != 0)

    @property
    def _store_host_starts(self) -> Int64s:
        return self.starts + AT["store_address"] + self._born_extra

    def store_hosts(self) -> pa.Array:
        """Broker addresses as text."""
        return hosts(self.data, self._store_host_starts, (self.sys_flag & STORE_V6) != 0)

    def store_host_numbers(self) -> Int64s:
        """Return a number for each record's broker, equal for equal address and port (of IPv6 the last eight bytes)."""
        return self._integers(self._store_host_starts + self._store_extra, ">i8").astype(np.int64)

    def message_ids(self) -> pa.Array:
        """Offset message ids."""
        return self.message_ids_of(self.commit_log_offsets)

    def message_ids_of(self, offsets: Int64s) -> pa.Array:
        """Return the offset message ids of other records that were stored on each record's host."""
        is_v6 = (self.sys_flag & STORE_V6) != 0
        return message_ids(self.data, self._store_host_starts, is_v6, offsets)

    def within(self, from_time_ms: int | None, to_time_ms: int | None) -> Block:
        """Return the records whose store time is in [from, to); None is no bound."""
        if from_time_ms is None and to_time_ms is None:
            return self
        times = self.header("store_time_ms")
        low = -(1 << 63) if from_time_ms is None else from_time_ms
        high = (1 << 63) - 1 if to_time_ms is None else to_time_ms
        return self.take((times >= low) & (times < high))

    def body_crc_matches(self) -> Bools:
        """Return whether each body matches its stored CRC-32.

        Source: common/UtilAll.java crc32; docs/formats/record.md#body.
        """
        fast = accelerated()
        starts, lengths = self.body_starts, self.body_lengths
        computed = crcs(self.raw, starts, lengths) if fast is None else fast.checksums(self.data, starts, lengths)
        matches: Bools = (self.header("body_crc") ^ computed) & CRC_MASK == 0
        return matches


def end_in_zeros(block: Block) -> Bools:
    """Return which records have properties that end in a zero byte; no broker and no client writes one there."""
    lengths = block.properties_lengths
    last = block.data[block.starts + block.lengths - 1]
    found: Bools = (lengths > 0) & (last == 0)
    return found

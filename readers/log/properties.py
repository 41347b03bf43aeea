"""Find properties of records (`name` 0x01 `value` 0x02, repeated), for thousands of records at once.

Rules (MessageDecoder.string2messageProperties; docs/formats/record.md#properties): pieces are split at 0x02 and at
their first 0x01; pieces shorter than three bytes and empty names or values are ignored; of a name that occurs twice
the last value counts. 4.9.1 to 5.1.4 omit the last 0x02, so a value ends at 0x02 or at the end of its area.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtx.readers.log.kernels import accelerated
from rmqtx.readers.log.record_layout import NAME_END, VALUE_END
from rmqtx.readers.model.columns import SLACK_BYTES, Bools, Bytes, Int64s, even_texts, strings, views
from rmqtx.readers.model.tables import PROPERTIES

UNIQ_KEY = "UNIQ_KEY"
PRODUCER_GROUP = "PGROUP"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
KEYS = "KEYS"
TAGS = "TAGS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
HALF_MARK = "TRAN_MSG"
#: The further queues of a record (light queues).
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
#: The id of the client that sent the half message, which some clients add.
PRODUCER_CLIENT_ID = "__TXN_PRODUCER_CID__"
#: Marks a copy that `rmqtx redeliver --store` sent: message id of the record that it was made from, and the first
#: digits of the SHA-256 of that record.
ORIGIN = "RMQTX_ORIGIN"
#: The tag of op messages: the check passes over a record of the op topic that has another tag, or none.
OP_TAG = "d"


Words = npt.NDArray[np.uint64]


def _masked(words: Words, width: int) -> Words:
    """Return only the first `width` bytes of words."""
    return words if width == 8 else words & np.uint64((1 << (8 * width)) - 1)


def _word(part: bytes) -> np.uint64:
    """Return at most eight bytes as a word."""
    return np.uint64(int.from_bytes(part, "little"))


class PropertyAreas:
    """The property areas of some records, copied into one run of bytes.

    Shape: `value(name)` returns one value per record, null if absent.
    """

    def __init__(self, data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s) -> None:
        self.count = len(starts)
        # One spare area at the end, so that eight bytes can be read at every piece.
        spare = min(len(data), 2 * SLACK_BYTES)
        padded = views(
            data, buffer, np.append(starts, 0).astype(np.int64), np.append(lengths, spare).astype(np.int64)
        ).cast(pa.binary())
        self._offsets = np.frombuffer(padded.buffers()[1], np.int32, self.count + 2).astype(np.int64)
        self._buffer = padded.buffers()[2]
        self._bytes = np.frombuffer(self._buffer, np.uint8, int(self._offsets[-1]))

    @cached_property
    def _separators(self) -> Int64s:
        found: Bools = self._bytes == VALUE_END
        return found.nonzero()[0]

    @cached_property
    def _pieces(self) -> Int64s:
        """Return the first byte of every piece of the areas, ascending, each once; without the spare area."""
        ends = self._offsets[1 : self.count + 1]
        if self.count and (np.diff(self._offsets[:-1]) > 0).all() and (self._bytes[ends - 1] == VALUE_END).all():
            # Each area but the first begins after the last separator of the area before it.
            last = np.searchsorted(self._separators, ends[-1] - 1)
            return np.append(0, self._separators[:last] + 1)
        begins = np.zeros(len(self._bytes) + 1, np.bool_)
        begins[self._offsets[:-2]] = True
        begins[self._separators + 1] = True
        return begins[: self._offsets[self.count]].nonzero()[0]

    @cached_property
    def _words(self) -> Words:
        """The first eight bytes of every piece."""
        return self._words_at(self._pieces)

    def _words_at(self, positions: Int64s) -> Words:
        words: Words = np.ndarray((len(self._bytes) - 7,), "<u8", self._bytes, 0, (1,))[positions]
        return words

    @cached_property
    def _piece_ends(self) -> Int64s:
        """Return the end of every piece: the separator after it, or the end of its area."""
        following = np.append(self._pieces, self._offsets[self.count])[1:]
        ends: Int64s = following - (self._bytes[following - 1] == VALUE_END)
        return ends

    @cached_property
    def _piece_records(self) -> Int64s:
        """Return the record of every piece."""
        firsts = np.searchsorted(self._pieces, self._offsets[: self.count])
        return np.repeat(np.arange(self.count), np.diff(firsts, append=len(self._pieces)))

    def locate(self, name: str) -> tuple[Int64s, Int64s, Bools]:
        """Return start, length and presence of a property's value, per record. Units: bytes of the copied areas."""
        if name not in self._of_name:
            self._of_name[name] = self._searched(name)
        return self._of_name[name]

    @cached_property
    def _of_name(self) -> dict[str, tuple[Int64s, Int64s, Bools]]:
        return {}

    def _searched(self, name: str) -> tuple[Int64s, Int64s, Bools]:
        key = name.encode() + bytes([NAME_END])
        numbers = self._begin_with(key[:8]).nonzero()[0]
        for place in range(8, len(key), 8):
            if not len(numbers):
                break
            numbers = numbers[self._contain(self._pieces[numbers] + place, key[place : place + 8])]
        starts, lengths = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        present = np.zeros(self.count, np.bool_)
        if not len(numbers):
            return starts, lengths, present
        values, ends = self._pieces[numbers] + len(key), self._piece_ends[numbers]
        full = ends > values
        if not full.all():
            numbers, values, ends = numbers[full], values[full], ends[full]
        records = self._piece_records[numbers]
        starts[records], lengths[records], present[records] = values, ends - values, True
        return starts, lengths, present

    def _begin_with(self, part: bytes) -> Bools:
        """Return which pieces begin with at most eight bytes."""
        found: Bools = _masked(self._words, len(part)) == _word(part)
        return found

    def _contain(self, positions: Int64s, part: bytes) -> Bools:
        """Return at which positions there are at most eight bytes; false behind the last position of a word."""
        inside = np.minimum(positions, len(self._bytes) - 8)
        found: Bools = (_masked(self._words_at(inside), len(part)) == _word(part)) & (inside == positions)
        return found

    def value(self, name: str) -> pa.Array:
        """The property as bytes (a binary view), null if absent."""
        return self.views_of(*self.locate(name))

    def views_of(self, starts: Int64s, lengths: Int64s, present: Bools) -> pa.Array:
        """Return values at places in the copied areas, as bytes (a binary view)."""
        return views(self._bytes, self._buffer, starts, lengths, present)

    def texts_of(self, starts: Int64s, lengths: Int64s, present: Bools) -> pa.Array:
        """Return values at places in the copied areas, as text; ids usually have one length."""
        if not present.any():
            return pa.nulls(len(present), pa.string())
        even = even_texts(self._bytes, starts, lengths) if present.all() else None
        return strings(self.views_of(starts, lengths, present)) if even is None else even

    def coded(self, name: str) -> pa.DictionaryArray:
        """The property as bytes, a dictionary column, null if absent; for properties with few different values."""
        return self.value(name).cast(pa.binary()).dictionary_encode()

    @property
    def has_found_all(self) -> bool:
        """Whether all known properties have been found, so that some records of these areas cost nothing more."""
        return False

    def take(self, rows: Int64s | Bools) -> PropertyAreas:
        """Return the areas of some of the records, in which nothing is searched for again."""
        return _TakenAreas(self, rows)

    def text(self, name: str) -> pa.Array:
        """The property as text, null if absent."""
        return self.texts_of(*self.locate(name))

    def malformed(self) -> Bools:
        """Return which records have a piece that is not a property: no name, no value, or a second end of a name.

        An empty piece between two ends of values is allowed: brokers write one before a property CRC.
        """
        pieces, records, ends = self._pieces, self._piece_records, self._piece_ends
        full = ends > pieces
        pieces, records, ends = pieces[full], records[full], ends[full]
        equals = np.flatnonzero(self._bytes[: self._offsets[self.count]] == NAME_END)
        if len(equals) == len(pieces) and bool(((equals > pieces) & (equals < ends - 1)).all()):
            return np.zeros(self.count, np.bool_)  # one end of a name in each piece: nothing to search for
        first, behind = np.searchsorted(equals, pieces), np.searchsorted(equals, ends)
        good = behind - first == 1
        splits = equals[np.minimum(first, len(equals) - 1)] if len(equals) else np.zeros(len(pieces), np.int64)
        good &= (splits > pieces) & (splits < ends - 1)
        wrong = np.zeros(self.count, np.bool_)
        wrong[records[~good]] = True
        return wrong

    def maps(self) -> pa.Array:
        """All properties of every record, in stored order, as the map type PROPERTIES."""
        pieces, records, ends = self._pieces, self._piece_records, self._piece_ends
        equals = np.flatnonzero(self._bytes == NAME_END)
        numbers = np.searchsorted(equals, pieces)
        splits = equals[np.minimum(numbers, len(equals) - 1)] if len(equals) else np.zeros(len(pieces), np.int64)
        good = (numbers < len(equals)) & (splits < ends - 1) & (splits > pieces) & (ends - pieces >= 3)
        pieces, records, ends, splits = pieces[good], records[good], ends[good], splits[good]
        names = strings(views(self._bytes, self._buffer, pieces, splits - pieces))
        values = strings(views(self._bytes, self._buffer, splits + 1, ends - splits - 1))
        offsets = np.searchsorted(records, np.arange(self.count + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values).cast(PROPERTIES)


class _TakenAreas(PropertyAreas):
    """Some of the areas of other areas."""

    def __init__(self, areas: PropertyAreas, rows: Int64s | Bools) -> None:
        self._areas, self._chosen_rows = areas, np.arange(areas.count)[rows]
        self.count = len(self._chosen_rows)

    def locate(self, name: str) -> tuple[Int64s, Int64s, Bools]:
        """Return start, length and presence of a property's value, per record. Units: bytes of the copied areas."""
        starts, lengths, present = self._areas.locate(name)
        return starts[self._chosen_rows], lengths[self._chosen_rows], present[self._chosen_rows]

    def value(self, name: str) -> pa.Array:
        """The property as bytes (a binary view), null if absent."""
        return self._areas.views_of(*self.locate(name))

    def views_of(self, starts: Int64s, lengths: Int64s, present: Bools) -> pa.Array:
        """Return values at places in the copied areas, as bytes (a binary view)."""
        return self._areas.views_of(starts, lengths, present)

    def texts_of(self, starts: Int64s, lengths: Int64s, present: Bools) -> pa.Array:
        """Return values at places in the copied areas, as text."""
        return self._areas.texts_of(starts, lengths, present)

    def take(self, rows: Int64s | Bools) -> PropertyAreas:
        """Return some of these areas."""
        return _TakenAreas(self._areas, self._chosen_rows[rows])

    def malformed(self) -> Bools:
        """Return which records have a piece that is not a property."""
        return self._areas.malformed()[self._chosen_rows]

    def maps(self) -> pa.Array:
        """All properties of every record, in stored order, as the map type PROPERTIES."""
        return self._areas.maps().take(pa.array(self._chosen_rows))


#: Properties that verdicts and record columns use; the accelerator finds them in one pass.
KNOWN = (
    UNIQ_KEY,
    PRODUCER_GROUP,
    REAL_TOPIC,
    REAL_QUEUE_ID,
    KEYS,
    TAGS,
    CHECK_TIMES,
    IMMUNITY,
    PREPARED_QUEUE_OFFSET,
    TRANSACTION_ID,
    MULTI_DISPATCH,
    ORIGIN,
)


class PropertyViews(PropertyAreas):
    """Properties found by the accelerator: known properties in place, without a copy of the areas."""

    def __init__(self, data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s) -> None:
        self._data, self._data_buffer = data, buffer
        self._area_starts, self._area_lengths = starts, lengths
        self.count = len(starts)
        self._taken_from: tuple[PropertyViews, Int64s | Bools] | None = None

    @cached_property
    def _gathered(self) -> PropertyAreas:
        return PropertyAreas(self._data, self._data_buffer, self._area_starts, self._area_lengths)

    @property
    def has_found_all(self) -> bool:
        """Whether all known properties have been found, so that some records of these areas cost nothing more."""
        return self._taken_from is not None or "_located" in self.__dict__

    def take(self, rows: Int64s | Bools) -> PropertyAreas:
        """Return the areas of some of the records, in which nothing is searched for again."""
        taken = PropertyViews(self._data, self._data_buffer, self._area_starts[rows], self._area_lengths[rows])
        if self.has_found_all:
            taken._taken_from = self, rows
        return taken

    @cached_property
    def _located(self) -> tuple[dict[str, tuple[Int64s, Int64s, Bools]], Bools]:
        fast = accelerated()
        assert fast is not None
        found: tuple[dict[str, tuple[Int64s, Int64s, Bools]], Bools] = fast.locate(
            self._data, self._area_starts, self._area_lengths, KNOWN
        )
        return found

    def _known(self, name: str) -> tuple[Int64s, Int64s, Bools]:
        """Return start, length and presence of a known property's value."""
        if self._taken_from is None:
            return self._located[0][name]
        if name not in self._of_name:
            whole, rows = self._taken_from
            starts, lengths, present = whole._known(name)
            if present.any():
                self._of_name[name] = starts[rows], lengths[rows], present[rows]
            else:  # as most of the known properties
                nothing = np.zeros(self.count, np.int64)
                self._of_name[name] = nothing, nothing, np.zeros(self.count, np.bool_)
        return self._of_name[name]

    def locate(self, name: str) -> tuple[Int64s, Int64s, Bools]:
        """Return start, length and presence of a property's value, per record. Units: bytes of the block's data."""
        return self._known(name) if name in KNOWN else self._gathered.locate(name)

    def value(self, name: str) -> pa.Array:
        """The property as bytes (a binary view), null if absent."""
        fast = accelerated()
        if name not in KNOWN or fast is None:
            return self._gathered.value(name)
        return fast.text_views(self._data, self._data_buffer, *self._known(name))

    def coded(self, name: str) -> pa.DictionaryArray:
        """The property as bytes, a dictionary column, null if absent; for properties with few different values."""
        fast = accelerated()
        if name not in KNOWN or fast is None:
            return super().coded(name)
        return fast.codes(self._data, self._data_buffer, *self._known(name))

    def text(self, name: str) -> pa.Array:
        """The property as text, null if absent."""
        fast = accelerated()
        if name not in KNOWN or fast is None:
            return strings(self.value(name))
        return fast.texts(self._data, self._data_buffer, *self._known(name))

    def malformed(self) -> Bools:
        """Return which records have a piece that is not a property."""
        if self._taken_from is None:
            return self._located[1]
        whole, rows = self._taken_from
        return whole.malformed()[rows]

    def maps(self) -> pa.Array:
        """All properties of every record, in stored order, as the map type PROPERTIES."""
        return self._gathered.maps()


def properties_of(data: Bytes, buffer: pa.Buffer, starts: Int64s, lengths: Int64s) -> PropertyAreas:
    """Return the property areas of some records, for the inner loops of this process."""
    kind = PropertyAreas if accelerated() is None else PropertyViews
    return kind(data, buffer, starts, lengths)

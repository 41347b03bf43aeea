"""The properties that identify a record's transaction; they must agree in half copies, decisions and discard copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.properties import KEYS, PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_ID, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.log.transaction_records import are_halves
from rmqtx.readers.store.store import ROCKSDB_OP_TOPIC


@dataclass(frozen=True, slots=True)
class RecordWords:
    """The identifying properties of one record; None for properties that the kind of record does not have.

    Shape: `is_torn`: its properties were not completely written, so None is unknown. `number` is the queue offset of a
           prepared record (3.1), which its ROLLBACK record repeats.
    Units: milliseconds.
    """

    transaction_id: str | None
    group: str | None
    topic: str | None
    born_time_ms: int | None
    born_host: str | None
    keys: str | None
    body_crc: int | None
    number: int | None
    is_torn: bool = False

    def contradictions(self, other: RecordWords) -> Iterator[tuple[str, str, str]]:
        """Return the properties in which two records of one transaction differ: name, this record's value, the other's.

        An id that only one of them has is a difference, unless the other's properties are torn.
        """
        if self.transaction_id != other.transaction_id and not self._lacks_id(other) and not other._lacks_id(self):
            yield "transaction id", str(self.transaction_id or "none"), str(other.transaction_id or "none")
        for name, mine, its in self._pairs(other):
            if mine is not None and its is not None and mine != its:
                yield name, str(mine), str(its)

    def _lacks_id(self, other: RecordWords) -> bool:
        """Whether only this record has no id, because its properties are torn."""
        return self.is_torn and self.transaction_id is None and other.transaction_id is not None

    def is_of_same(self, other: RecordWords) -> bool:
        """Whether two records belong to one transaction, even if one property of one record is damaged."""
        differing = sum(mine is not None and its is not None and mine != its for _, mine, its in self._pairs(other))
        if self.transaction_id is not None and self.transaction_id == other.transaction_id:
            return True
        if self.transaction_id is None and other.transaction_id is None:
            return differing <= 1
        return differing == 0

    def _pairs(self, other: RecordWords) -> Iterator[tuple[str, str | int | None, str | int | None]]:
        yield "producer group", self.group, other.group
        yield "real topic", self.topic, other.topic
        yield "born time", self.born_time_ms, other.born_time_ms
        yield "born host", self.born_host, other.born_host
        is_torn = (self.is_torn and self.keys is None) or (other.is_torn and other.keys is None)
        if self.born_time_ms is not None and other.born_time_ms is not None and not is_torn:
            yield "keys", self.keys or "none", other.keys or "none"
        yield "body CRC", self.body_crc, other.body_crc
        yield "number", self.number, other.number


def words_of(block: Block) -> RecordWords:
    """Return the identifying properties of a block of one record."""
    text = {name: block.properties.text(name)[0].as_py()
            for name in (UNIQ_KEY, TRANSACTION_ID, PRODUCER_GROUP, KEYS, REAL_TOPIC)}
    is_torn = bool(have_torn_properties(block)[0])
    if is_torn:  # a value that runs on into zeros is not complete
        text = {name: None if value is None or "\0" in value else value for name, value in text.items()}
    if block.topic_is(ROCKSDB_OP_TOPIC)[0]:  # its other properties are those of the op message
        return RecordWords(text[TRANSACTION_ID], None, text[REAL_TOPIC], None, None, None, None, None, is_torn)
    is_end, is_old = bool(is_rollback(block)[0]), bool(is_prepared(block)[0])
    is_in_half_topic = not is_old and bool(are_halves(block)[0])
    topic = text[REAL_TOPIC] or (None if is_in_half_topic else str(block.topic_texts()[0]))
    return RecordWords(
        text[UNIQ_KEY], text[PRODUCER_GROUP], topic, int(block.header("born_time_ms")[0]), str(block.born_hosts()[0]),
        text[KEYS], None if is_end else int(block.header("body_crc")[0]),
        int(block.header("queue_offset")[0]) if is_end or is_old else None, is_torn,
    )

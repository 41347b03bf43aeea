"""Which designs of transactional messages a store shows, and why: by directories and two pieces of its log.

A store may show several: one whose broker was upgraded keeps the old records, and one whose configuration was changed
has transactions in the half topic and in RocksDB. Where nothing shows any, that is said, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from readers.log.commit_log import last_with_data, written_bytes
from readers.log.prepared_records import is_prepared, is_rollback
from readers.log.record_block import Block
from readers.log.segment_scan import SegmentScan
from readers.model.errors import SourceError
from readers.queues.consume_queue import open_queue
from readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, Store

STATE_TABLE, PREPARED_RECORDS, HALF_TOPIC_DESIGN, ROCKSDB = "state_table", "prepared_records", "half_topic", "rocksdb"
#: What people call them, with the versions whose brokers write so.
DESIGNS: dict[str, str] = {
    STATE_TABLE: "state tables (3.0, 3.1)",
    PREPARED_RECORDS: "prepared records (3.2 to 4.2)",
    HALF_TOPIC_DESIGN: "half and op topics (4.3.0+)",
    ROCKSDB: "transactions in RocksDB (5.4.0+)",
}
#: So much of the log is looked at, at its begin and at its end, where no directory tells.
SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SeenDesign:
    """A design of DESIGNS that a store shows, and what shows it."""

    word: str
    why: str


@dataclass(slots=True)
class _Sample:
    """What some records of a log are."""

    numbers: list[int] = field(default_factory=list)
    rollback_numbers: list[int] = field(default_factory=list)
    has_halves: bool = False
    has_rocksdb_halves: bool = False

    @property
    def numbered_count(self) -> int:
        """Prepared records with the number of a slot."""
        return len(self.numbers) - self.unnumbered_count

    @property
    def unnumbered_count(self) -> int:
        """Prepared records without: those of number 0 but the first of a table, which number 1 follows.

        A table begins again at 0 when its broker was killed, so there may be several first ones. A last 0 behind
        numbers may be one, too.
        """
        following = [*self.numbers[1:], 1 if any(self.numbers) else 0]
        return sum(number == 0 and after != 1 for number, after in zip(self.numbers, following, strict=False))

    def add(self, block: Block) -> None:
        prepared = is_prepared(block)
        if prepared.any():
            self.numbers += block.take(prepared).header("queue_offset").tolist()
        rollbacks = is_rollback(block)
        if rollbacks.any():
            self.rollback_numbers += block.take(rollbacks).header("queue_offset").tolist()
        self.has_halves |= bool(block.topic_is(HALF_TOPIC).any())
        self.has_rocksdb_halves |= bool(block.topic_is(ROCKSDB_HALF_TOPIC).any())


def designs_of(store: Store) -> list[SeenDesign]:
    """The designs that a store shows; none where nothing tells.

    Order: oldest design first.
    """
    found: list[SeenDesign] = []
    tables = [name for name in ("statetable", "redolog") if store.has("transaction", name)]
    if tables:
        found.append(SeenDesign(STATE_TABLE, f"it has {' and '.join(f'transaction/{name}' for name in tables)}"))
    has_half_queue, older_bytes = _half_queue(store)
    sample = _Sample()
    if not has_half_queue or older_bytes:
        for block in _sampled(store, older_bytes):
            sample.add(block)
    # 3.1 numbers prepared records by slots; 3.2 to 4.2 number none.
    unnumbered, numbered = sample.unnumbered_count, sample.numbered_count
    if numbered and not tables:
        found.append(SeenDesign(STATE_TABLE, f"{numbered} prepared records with the number of a slot"))
    if unnumbered > 1 or (unnumbered and not tables):
        what = "prepared records without a slot's number" if unnumbered > 1 else "prepared record, number 0"
        found.append(SeenDesign(PREPARED_RECORDS, f"{unnumbered} {what}"))
    if sample.rollback_numbers and not sample.numbers and not tables:
        why = f"{len(sample.rollback_numbers)} ROLLBACK records, whose prepared records are older than the log"
        found.append(SeenDesign(STATE_TABLE if any(sample.rollback_numbers) else PREPARED_RECORDS, why))
    if has_half_queue or sample.has_halves:
        why = f"consumequeue/{HALF_TOPIC}" if has_half_queue else f"records of {HALF_TOPIC}"
        found.append(SeenDesign(HALF_TOPIC_DESIGN, f"it has {why}"))
    has_rocksdb_queue = store.has("consumequeue", ROCKSDB_HALF_TOPIC)
    if has_rocksdb_queue or sample.has_rocksdb_halves:
        why = f"consumequeue/{ROCKSDB_HALF_TOPIC}" if has_rocksdb_queue else f"records of {ROCKSDB_HALF_TOPIC}"
        found.append(SeenDesign(ROCKSDB, f"it has {why}"))
    return found


def _half_queue(store: Store) -> tuple[bool, int]:
    """Whether the half topic has a queue, and how many bytes of the log are older than its first half message."""
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            if not queue.exists:
                return False, 0
            places = queue.read(queue.min_offset, queue.min_offset + 1)[1].tolist()
            is_first = queue.min_offset == 0 and bool(places)
    except SourceError:
        return True, 0  # what reads the queue reports it
    if queue.min_offset == 0 and queue.max_offset and not places:
        return True, SAMPLE_BYTES  # left out of a bundle: what is before it is not known
    return True, max(0, places[0] - store.log_begin_offset) if is_first else 0


def _sampled(store: Store, older_bytes: int) -> Iterator[Block]:
    """Records of the log's begin and of its end; or of the begin alone, up to the first half message."""
    written = [segment for segment in store.commit_log if segment.base_offset <= last_with_data(store.commit_log)]
    if not written:
        return
    try:
        yield from SegmentScan(written[0], to_position=min(older_bytes or SAMPLE_BYTES, SAMPLE_BYTES))
        if not older_bytes:
            begin = max(0, written_bytes(written[-1]) - SAMPLE_BYTES)
            if begin or len(written) > 1:
                yield from SegmentScan(written[-1], from_position=begin)
    except SourceError:
        return  # what reads the log reports it



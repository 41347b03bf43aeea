"""Find the designs of transactional messages in a store, and the evidence: by directories and two parts of the log.

A store may have several: after an upgrade of the broker the old records remain, and after a change of the configuration
it has transactions in the half topic and in RocksDB. If there is no evidence, the result is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, Store

STATE_TABLE, PREPARED_RECORDS, HALF_TOPIC_DESIGN, ROCKSDB = "state_table", "prepared_records", "half_topic", "rocksdb"
#: Names of the designs, with the broker versions.
DESIGNS: dict[str, str] = {
    STATE_TABLE: "state tables (3.0, 3.1)",
    PREPARED_RECORDS: "prepared records (3.2 to 4.2)",
    HALF_TOPIC_DESIGN: "half and op topics (4.3.0+)",
    ROCKSDB: "transactions in RocksDB (5.4.0+)",
}
#: Length of the part that is read at the log's begin and at its end, if no directory shows the design.
SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SeenDesign:
    """A design of DESIGNS in a store, and the evidence."""

    word: str
    why: str


@dataclass(slots=True)
class _Sample:
    """Counts over a sample of a log's records."""

    numbers: list[int] = field(default_factory=list)
    rollback_numbers: list[int] = field(default_factory=list)
    has_halves: bool = False
    has_rocksdb_halves: bool = False

    @property
    def numbered_count(self) -> int:
        """Number of prepared records with a slot number."""
        return len(self.numbers) - self.unnumbered_count

    @property
    def unnumbered_count(self) -> int:
        """Number of prepared records without a slot number: those with 0, except before a 1, where 0 is the first slot.

        A table begins again at 0 after its broker was killed, so several records may be the first. A last 0 after
        other numbers may also be the first.
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


@remembered
def designs_of(store: Store) -> list[SeenDesign]:
    """Return the designs in a store; none if there is no evidence. Order: oldest design first."""
    found: list[SeenDesign] = []
    tables = [name for name in ("statetable", "redolog") if store.has("transaction", name)]
    if tables:
        found.append(SeenDesign(STATE_TABLE, f"the store has {' and '.join(f'transaction/{name}' for name in tables)}"))
    has_half_queue, older_bytes = _half_queue(store)
    sample = _Sample()
    if not has_half_queue or older_bytes:
        for block in _sampled(store, older_bytes):
            sample.add(block)
    # 3.1 numbers prepared records by slots; 3.2 to 4.2 write 0.
    unnumbered, numbered = sample.unnumbered_count, sample.numbered_count
    if numbered and not tables:
        found.append(SeenDesign(STATE_TABLE, f"{numbered} prepared records with a slot number"))
    if unnumbered > 1 or (unnumbered and not tables):
        what = "prepared records without a slot number" if unnumbered > 1 else "prepared record with number 0"
        found.append(SeenDesign(PREPARED_RECORDS, f"{unnumbered} {what}"))
    if sample.rollback_numbers and not sample.numbers and not tables:
        why = f"{len(sample.rollback_numbers)} ROLLBACK records, whose prepared records are older than the log"
        found.append(SeenDesign(STATE_TABLE if any(sample.rollback_numbers) else PREPARED_RECORDS, why))
    if has_half_queue or sample.has_halves:
        why = f"consumequeue/{HALF_TOPIC}" if has_half_queue else f"records of {HALF_TOPIC}"
        found.append(SeenDesign(HALF_TOPIC_DESIGN, f"the store has {why}"))
    has_rocksdb_queue = store.has("consumequeue", ROCKSDB_HALF_TOPIC)
    if has_rocksdb_queue or sample.has_rocksdb_halves:
        why = f"consumequeue/{ROCKSDB_HALF_TOPIC}" if has_rocksdb_queue else f"records of {ROCKSDB_HALF_TOPIC}"
        found.append(SeenDesign(ROCKSDB, f"the store has {why}"))
    return found


def has_only_prepared(store: Store) -> bool:
    """Whether a store shows designs before 4.3, and no other."""
    return are_before_half_topics([seen.word for seen in designs_of(store)])


def are_before_half_topics(designs: Collection[str]) -> bool:
    """Whether all transactions of a store are of designs before 4.3, without half queue and cursors."""
    return bool(designs) and set(designs) <= {STATE_TABLE, PREPARED_RECORDS}


def _half_queue(store: Store) -> tuple[bool, int]:
    """Return whether the half topic has a queue, and how many bytes of the log precede its first half message."""
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            if not queue.exists:
                return False, 0
            first = queue.place_at(queue.min_offset)
    except SourceError:
        return True, 0  # the code that reads the queue reports it
    if queue.min_offset == 0 and queue.max_offset and first is None:
        return True, SAMPLE_BYTES  # left out of a bundle: the records before it are unknown
    return True, 0 if first is None or queue.min_offset else max(0, first - store.log_begin_offset)


def _sampled(store: Store, older_bytes: int) -> Iterator[Block]:
    """Yield records of the log's begin and end, or of the begin only, up to the first half message."""
    end = written_end(store)
    written = [segment for segment in store.commit_log if segment.base_offset <= end.last_base]
    if not written:
        return
    try:
        yield from SegmentScan(written[0], to_position=min(older_bytes or SAMPLE_BYTES, SAMPLE_BYTES))
        if not older_bytes:
            begin = max(0, end.offset - end.last_base - SAMPLE_BYTES)
            if begin or len(written) > 1:
                yield from SegmentScan(written[-1], from_position=begin)
    except SourceError:
        return  # the code that reads the log reports it



"""Numbers of records outside the half topic that a decision names, held against their queues: an op carries them.

No checksum covers a record's queue offset, and the op of such a decision has it (FORMATS 9.4). Where record and queue
differ, no more is known than that an op with either number may be the decision's.
"""

from __future__ import annotations

from readers.consume_queue import open_queue
from readers.errors import SourceError
from readers.findings import Finding
from readers.premises import MissingRange
from readers.record_block import Block
from readers.sources import SegmentedLog
from readers.store import Store


def doubtful_number(
    store: Store, log: SegmentedLog, named: Block, end_offset: int
) -> tuple[MissingRange, Finding] | None:
    """What is in doubt where a queue slot contradicts the number of a record that a decision names; None if none does.

    `named`: one record; `end_offset`: where the decision on it stands.
    Units: commit-log offsets in bytes.
    Damage: slot-mismatch. A queue that cannot be read, or has neither slot, contradicts nothing.
    """
    place, number = int(named.commit_log_offsets[0]), int(named.header("queue_offset")[0])
    topic, own_id = str(named.topic_texts()[0]), int(named.header("queue_id")[0])
    is_contradicted = False
    for queue_id in store.queue_numbers(topic):
        try:
            with open_queue(store, topic, queue_id) as queue:
                found = queue.offset_of(place)
                is_there = queue.read(found, found + 1)[1].tolist() == [place]
                others = queue.read(number, number + 1)[1].tolist() if 0 <= number < queue.max_offset else []
        except SourceError:
            continue
        if is_there and (found, queue_id) == (number, own_id):
            return None
        if is_there:
            held = f"slot {found} of {topic}, queue {queue_id}"
            return _doubt(store, log, named, end_offset, (number, found), held)
        is_contradicted |= queue_id == own_id and bool(others)
    held = f"another record in slot {number} of {topic}, queue {own_id}"
    return _doubt(store, log, named, end_offset, (number,), held) if is_contradicted else None


def _doubt(
    store: Store, log: SegmentedLog, named: Block, end_offset: int, numbers: tuple[int, ...], held: str
) -> tuple[MissingRange, Finding]:
    place, length = int(named.commit_log_offsets[0]), int(named.lengths[0])
    segment = log.segment_at(place)
    own = f"{int(named.header('queue_offset')[0])} of queue {int(named.header('queue_id')[0])}"
    what = (
        f"the decision at commit-log offset {end_offset} names the record at {place}, which says number {own}, where "
        f"its queue has {held}: an op of either number may be its own"
    )
    missing = MissingRange(
        store.root, place, place + length, what, is_identified=True, half_queue_offsets=tuple(sorted(set(numbers)))
    )
    return missing, Finding(
        store.root, "slot-mismatch", None if segment is None else segment.file,
        None if segment is None else place - segment.base_offset, length, commit_log_offset=place, expected=held,
        actual=f"number {own} in the record that the decision at commit-log offset {end_offset} names",
    )

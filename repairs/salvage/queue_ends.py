"""Ends of the half and op queues before records at the end of a log were lost, from other evidence.

A queue offset of a half or op must not be used twice: an op message that settled the first half with it would settle
the new one too, and a new op before the check's cursor would never be read. For other queues brokers and clients notice
it themselves: a consumer whose cursor is beyond the end continues at the end.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import read_cursors
from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.op_messages import ops_of
from rmqtx.readers.log.transaction_records import is_delayed_half
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, Store

#: A queue offset beyond this is damage: no queue becomes that long.
_NUMBER_MAX = 1 << 48


def known_ends(new: Store, source: Store | None) -> dict[tuple[bytes, int], int]:
    """Return (topic, queue number) of halves and ops → the queue offset after the last one used, where known.

    From the queue's old files if `source` has them; else from the check's cursor, and for half messages from the
    highest queue offset that an op message settles.
    """
    ends: dict[tuple[bytes, int], int] = {}
    for row in read_cursors(new).table().to_pylist():
        if row["group"] == CHECK_GROUP and row["topic"] in (HALF_TOPIC, OP_TOPIC):
            _raise(ends, row["topic"], row["queue_id"], row["next_queue_offset"])
    for queue_id, number in _ended_halves(new).items():
        _raise(ends, HALF_TOPIC, queue_id, number + 1)
    if source is not None:
        ends |= _old_ends(source)
    return {name: end for name, end in ends.items() if 0 < end < _NUMBER_MAX}


def discards_go_on(source: Store | None, end_offset: int) -> bool:
    """Whether a store's discard queue points at a record after the end of the salvaged log.

    This may be the only trace of a discard: a discard writes no op message.
    """
    if source is None:
        return False
    try:
        with open_queue(source, DISCARD_TOPIC, 0) as queue:
            _, offsets, _, _ = queue.read(max(0, queue.max_offset - 1), queue.max_offset)
    except SourceError:
        return False
    return bool((offsets >= end_offset).any())


def _old_ends(source: Store) -> dict[tuple[bytes, int], int]:
    """Ends of a store's half and op queues."""
    ends = {}
    for topic, queue_id in source.queues():
        if topic not in (HALF_TOPIC, OP_TOPIC):
            continue
        try:
            with open_queue(source, topic, queue_id) as queue:
                if queue.exists:
                    ends[topic.encode(), queue_id] = queue.max_offset
        except SourceError:  # other evidence counts then
            continue
    return ends


def _raise(ends: dict[tuple[bytes, int], int], topic: str, queue_id: int, number: int) -> None:
    name = topic.encode(), queue_id
    ends[name] = max(ends.get(name, 0), number)


def _ended_halves(store: Store) -> dict[int, int]:
    """Queue number → the highest queue offset of a half that an op message settles.

    A decision on a half that waits in another topic (4.3 to 4.6) writes an op with the queue offset in that topic: it
    is ignored. So is an op with a queue number above 0, where there are no halves: a ROLLBACK under 4.3.0 for a
    prepared record from before an upgrade writes it.
    """
    highest: dict[int, int] = {}
    waiting: dict[int, set[int]] = defaultdict(set)
    for block in scan_segments(store, [], []):
        delayed = block.take(is_delayed_half(block))
        places = zip(delayed.header("queue_id").tolist(), delayed.header("queue_offset").tolist(), strict=True)
        for queue_id, number in places:
            waiting[queue_id].add(number)
        mine = block.take(block.topic_is(OP_TOPIC))
        if not len(mine):
            continue
        rows = ops_of(mine, store.root)
        for queue_id in {0} & set(rows["queue_id"].to_pylist()):
            lists = rows.filter(pc.equal(rows["queue_id"], queue_id))["half_queue_offsets"]
            numbers = pc.list_flatten(lists)
            own = numbers.filter(pc.invert(pc.is_in(numbers, pa.array(sorted(waiting[queue_id]), pa.int64()))))
            found = pc.max(own).as_py()
            if found is not None:
                highest[queue_id] = max(highest.get(queue_id, 0), found)
    return highest

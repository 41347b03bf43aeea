"""Where the cursors of the check stand in the half queue and the op queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store

if TYPE_CHECKING:
    from rmqtx.remoting.live.store_facts import LiveStore


@dataclass(frozen=True, slots=True)
class CheckQueue:
    """One queue of the check and its cursor. Units: queue offsets, `end_offset` excluded; None where unknown.

    Shape: `kind`: half or op. Without a cursor, `next_offset` is unknown.
    """

    store: str
    kind: str
    begin_offset: int | None
    next_offset: int | None
    end_offset: int | None

    @property
    def ahead_count(self) -> int | None:
        """Slots between the cursor and the end of the queue; None if unknown."""
        if self.next_offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.next_offset)


def check_queues_of_files(store: Store) -> Iterator[CheckQueue]:
    """Return the half queue and the op queue of a store whose design has them; none if their files are missing.

    Damage: a queue that cannot be read has unknown bounds.
    """
    cursors = check_cursors(store)
    for kind, topic, found in (("half", HALF_TOPIC, cursors.half), ("op", OP_TOPIC, cursors.op)):
        if not store.has("consumequeue", topic):
            continue
        begin = end = None
        try:
            with open_queue(store, topic, 0) as queue:
                begin, end = queue.first_offset, queue.max_offset
        except SourceError:
            pass  # the audit reports the file
        yield CheckQueue(store.root, kind, begin, None if found is None else found.get(0), end)


def check_queues_of_broker(facts: LiveStore) -> Iterator[CheckQueue]:
    """Return the half queue and the op queue of a live broker; one request for the end of the op queue.

    Raises: Unreachable, NoAnswer, Refused.
    """
    if facts.has_half_topic:
        yield CheckQueue(facts.root, "half", facts.half_begin, facts.half_cursor, facts.half_end)
        yield CheckQueue(facts.root, "op", facts.op_begin, facts.op_cursor, facts.broker.max_offset(OP_TOPIC))

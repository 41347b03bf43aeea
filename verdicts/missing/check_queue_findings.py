"""Faults of the half and the op queue, and of the check's cursors in them: what the check reads is not all there is."""

from __future__ import annotations

from collections.abc import Mapping

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.consume_queue import Queue, open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import end_in_rocksdb
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.missing.split_numbers import SplitNumbers

#: What the check does about a cursor beyond the end of its op queue, the same in each release.
OP_CURSOR_BEYOND_END = (
    "the op queue was deleted or lost its end: the check moves this cursor to the end of the queue, does not read op "
    "messages that get a slot before it, and asks again about what they decided"
)


def half_queue_findings(
    store: Store, half_cursors: Mapping[int, int] | None, has_halves: bool, numbers: SplitNumbers | None = None
) -> list[Finding]:
    """Return faults beside the log that affect the check: no half queue, or a check cursor outside of it.

    `numbers`: the queue offsets of all half messages in the log, if they are known.
    """
    found: list[Finding] = []
    end = end_in_rocksdb(store, HALF_TOPIC)
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            if not queue.exists and store.has_rocksdb_queues and not end:
                return found
            if not queue.exists and has_halves and not store.has_rocksdb_queues:
                found.append(Finding(store.root, "queue-missing", as_text(store.queue_directory(HALF_TOPIC, 0))))
            cursor = (half_cursors or {}).get(0)
            is_stale = end > queue.max_offset
            if (last := _passed_end(store, queue, end, cursor)) is not None:
                found.append(
                    Finding(
                        store.root, "cursor-beyond-end", as_text(store.queue_directory(HALF_TOPIC, 0)),
                        expected=f"at most {last}", actual=str(cursor),
                    )
                )
            elif cursor is not None and cursor < queue.min_offset and not is_stale:
                meaning, advice = _why_before_begin(store, queue, cursor, numbers)
                found.append(
                    Finding(
                        store.root, "cursor-before-begin", as_text(store.queue_directory(HALF_TOPIC, 0)),
                        expected=f"at least {queue.min_offset}", actual=str(cursor),
                        meaning=meaning, advice=advice,
                    )
                )
    except SourceError:
        pass  # the reader of the queue reports it
    return found


def op_queue_findings(store: Store, op_cursors: Mapping[int, int] | None, *, has_ops: bool) -> list[Finding]:
    """Return faults of the op queue from which the check reads decisions: no file, or a check cursor after its end.

    `has_ops`: the log has op messages.
    """
    found: list[Finding] = []
    end = end_in_rocksdb(store, OP_TOPIC)
    try:
        with open_queue(store, OP_TOPIC, 0) as queue:
            place, cursor = as_text(store.queue_directory(OP_TOPIC, 0)), (op_cursors or {}).get(0)
            if not queue.exists and store.has_rocksdb_queues and not end:
                return found
            if not queue.exists and has_ops and not store.has_rocksdb_queues:
                found.append(Finding(store.root, "queue-missing", place))
            last = _passed_end(store, queue, end, cursor)
            if last is not None and not (store.in_use and store.has_rocksdb_queues):  # not all slots are flushed yet
                found.append(Finding(
                    store.root, "cursor-beyond-end", place, expected=f"at most {last}", actual=str(cursor),
                    meaning=OP_CURSOR_BEYOND_END,
                ))
    except SourceError:
        pass  # the reader of the queue reports it
    return found


def _passed_end(store: Store, queue: Queue, end_in_database: int, cursor: int | None) -> int | None:
    """Return the end of a queue that a cursor lies beyond; None if it does not.

    A kill leaves a database without the slots that it had not written yet; the next start dispatches them (5.5.0).
    """
    end = max(queue.max_offset, end_in_database)
    is_written_later = end_in_database > 0 and store.aborted
    return end if cursor is not None and cursor > end and not is_written_later else None


def _why_before_begin(
    store: Store, queue: Queue, cursor: int, numbers: SplitNumbers | None
) -> tuple[str | None, str | None]:
    """Return meaning and advice of a check cursor before the first half message that is left.

    None: the half messages in between expired: the queue still has slots that lead before the begin of the log.
    """
    begin = queue.min_offset
    runs = () if numbers is None else numbers.runs
    if any(first < begin and last >= cursor for first, last, _ in runs):
        return (
            "the half queue was cut or rebuilt from a later place: the log still has half messages in between, and the "
            "check never reads them",
            "rmqtx audit lists them as LOST; rmqtx rebuild queues writes the queue again, in a copy of the store",
        )
    slots = queue.read(queue.first_offset, begin)[0]
    if store.log_begin_offset > 0 and len(slots):
        return None, None
    if numbers is None:
        return "the half queue begins after the cursor; rmqtx audit reads the log and finds out why", None
    return (
        "the half queue begins after the cursor, and no slot is left of the half messages in between: this store never "
        "received them (a slave that began later, with the cursors of its master), or its queue was cut",
        "compare with its master or another slave: rmqtx diff MASTER SLAVE lists what only the master has",
    )

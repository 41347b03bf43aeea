"""Faults of the half and the op queue, and of the check's cursors in them: what the check reads is not all there is."""

from __future__ import annotations

from collections.abc import Mapping

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.consume_queue import Queue, open_queue
from rmqtx.readers.rocksdb.rocksdb_queues import half_end_in_rocksdb
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.missing.split_numbers import SplitNumbers


def half_queue_findings(
    store: Store, half_cursors: Mapping[int, int] | None, has_halves: bool, numbers: SplitNumbers | None = None
) -> list[Finding]:
    """Return faults beside the log that affect the check: no half queue, or a check cursor outside of it.

    `numbers`: the queue offsets of all half messages in the log, if they are known.
    """
    found: list[Finding] = []
    end = half_end_in_rocksdb(store)
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            if not queue.exists and (has_halves or store.has_rocksdb_queues):
                if store.has_rocksdb_queues:
                    return found
                found.append(Finding(store.root, "queue-missing", as_text(store.queue_directory(HALF_TOPIC, 0))))
            cursor = (half_cursors or {}).get(0)
            is_stale = end > queue.max_offset
            if cursor is not None and cursor > queue.max_offset and not is_stale:
                found.append(
                    Finding(
                        store.root, "cursor-beyond-end", as_text(store.queue_directory(HALF_TOPIC, 0)),
                        expected=f"at most {queue.max_offset}", actual=str(cursor),
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
    if store.has_rocksdb_queues:
        return []
    try:
        with open_queue(store, OP_TOPIC, 0) as queue:
            place, cursor = as_text(store.queue_directory(OP_TOPIC, 0)), (op_cursors or {}).get(0)
            if not queue.exists:
                return [Finding(store.root, "queue-missing", place)] if has_ops else []
            if cursor is not None and cursor > queue.max_offset and not store.in_use:
                return [Finding(
                    store.root, "group-cursor-beyond-end", place,
                    expected=f"at most {queue.max_offset} for {CHECK_GROUP} in queue 0 of {OP_TOPIC}",
                    actual=str(cursor),
                    meaning="the check moves this cursor to the end of the queue: it does not read op messages that "
                    "get a slot before it, and asks again about what they decided",
                )]
    except SourceError:
        pass  # the reader of the queue reports it
    return []


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

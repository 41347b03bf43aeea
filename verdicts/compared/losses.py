"""The number and kinds of messages that were lost with damaged or missing bytes of a log, from the consume queues.

A queue slot outlives its record, so the slots that point into a lost range give the number of half, op and other
messages in it. Records that were not dispatched yet (the last ones when a broker was killed) are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import Version
from rmqtx.readers.queues.consume_queue import are_sound
from rmqtx.readers.queues.slot_files import BATCH, SIMPLE, pointed_boundary, slot_files, topic_bytes
from rmqtx.readers.queues.unit_files import BLOCK_UNITS
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TABLE_TOPICS,
    Store,
)
from rmqtx.verdicts.compared.queue_claims import unread_op_queues
from rmqtx.verdicts.startup.findings import dispatched_findings
from rmqtx.verdicts.startup.log_walk import LogWalk
from rmqtx.verdicts.startup.losses import amount
from rmqtx.verdicts.startup.queues import QueueFacts, recovered
from rmqtx.verdicts.startup.recovery import OtherQueues, loaded_log, recover_queues, start_file
from rmqtx.verdicts.startup.rules import not_predictable, rules_of
from rmqtx.verdicts.startup.started_queues import queue_reach

#: Codes of findings about lost bytes of the log.
LOSS_CODES = ("record-damaged", "segment-gap", "tail-torn", "tail-foreign", "unreadable-file", "log-missing")
_KINDS = ("half", "op", "discard copy", "other message")
_TOPICS = {HALF_TOPIC: 0, ROCKSDB_HALF_TOPIC: 0, OP_TOPIC: 1, ROCKSDB_OP_TOPIC: 1, DISCARD_TOPIC: 2}
_OTHER = 3


def with_losses(store: Store, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings; those about lost bytes get a text with the lost messages, if a queue has slots for them.

    Units: commit-log offsets in bytes.
    Order: as given.
    """
    ranges = {number: lost for number, one in enumerate(findings) if (lost := _lost_range(store, one)) is not None}
    if not ranges:
        return list(findings)
    # Ranges of findings may overlap; each edge begins a new piece.
    edges = np.unique(np.array(list(ranges.values()), np.int64))
    counts = _counted(store, edges)
    described = list(findings)
    for number, (begin, end) in ranges.items():
        first, last = np.searchsorted(edges, (begin, end)).tolist()
        words = _words(counts[first:last].sum(axis=0))
        if words:
            described[number] = replace(described[number], meaning=words)
    return described


def meaning_of_mismatch(topic: str, count: int) -> str | None:
    """Return the meaning of entries that point to other records, for transaction queues; None for other topics."""
    kind = _TOPICS.get(topic)
    if kind is None:
        return None
    return (
        f"by the queue {amount(_KINDS[kind], count)} should be there, but other records are: unless a finding "
        "slot-missing has the same number, the right record is lost as evidence, and transactions that may depend on "
        "it are UNDECIDABLE"
    )


def _lost_range(store: Store, finding: Finding) -> tuple[int, int] | None:
    if finding.code not in LOSS_CODES:
        return None
    if finding.code == "unreadable-file":
        lost = [segment for segment in store.commit_log if segment.file == finding.file]
        return (lost[0].base_offset, lost[0].end_offset) if lost else None
    if finding.code == "log-missing":
        return finding.commit_log_offset or 0, np.iinfo(np.int64).max
    begin, length = finding.commit_log_offset, finding.length_bytes
    return None if begin is None or not length else (begin, begin + length)


def _counted(store: Store, edges: Int64s) -> Int64s:
    """Return the number of entries of each kind that point into each piece between two edges; one row per piece."""
    counts = np.zeros((len(edges) - 1, len(_KINDS)), np.int64)
    for queue_kind in (SIMPLE, BATCH):
        for topic, queue_id in store.queues(queue_kind):
            files = slot_files(store, (queue_kind, topic.encode("utf-8", "surrogateescape"), queue_id))
            column = _TOPICS.get(topic, _OTHER)
            try:
                number, _ = pointed_boundary(files, int(edges[0]))
                _, end = pointed_boundary(files, int(edges[-1]))
                while number < end:
                    slots = files.read(number, min(number + BLOCK_UNITS, end))
                    places = slots["commit_log_offset"][are_sound(slots)].astype(np.int64)
                    pieces = np.searchsorted(edges, places, "right") - 1
                    inside = (pieces >= 0) & (pieces < len(counts))
                    counts[:, column] += np.bincount(pieces[inside], minlength=len(counts))
                    number += BLOCK_UNITS
            except SourceError:  # reported by the comparison of the queue
                continue
            finally:
                files.close()
    return counts


def _words(counts: Int64s) -> str | None:
    if not counts.sum():
        return None
    parts = [amount(kind, number) for kind, number in zip(_KINDS, counts.tolist(), strict=True) if number]
    listed = ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]
    finals = " (COMMIT records may be among them)" if counts[_OTHER] else ""
    return (
        f"by the consume queues the lost bytes contained {listed}{finals}: transactions that may depend on them are "
        "UNDECIDABLE"
    )


def started_check_findings(
    store: Store, version: Version, conf: Mapping[str, str], facts: Sequence[QueueFacts], log_end: int
) -> Iterator[Finding]:
    """Return the half and op messages that a start of a stopped broker leaves without their own slot.

    `facts`: the compared queues of the check. `log_end`: past the last record; the start does not cut the log.
    Damage: what cannot be read is reported elsewhere; then nothing is predicted.
    """
    try:
        segments, _ = loaded_log(store, conf, rules_of(version, conf))
        if store.in_use or store.is_dledger or not segments or not_predictable(store, conf) is not None:
            return
        rules = rules_of(version, conf)
        reach = -1 if store.aborted else queue_reach(store, [one.name for one in facts]).as_counted(rules)
        fates = [recovered(one, rules, None) for one in facts]
        first = start_file(store, segments, conf, max([reach, *(fate.maximum for fate in fates)]), rules)
        walk = LogWalk.to_the_end(segments, first, log_end)
        recover_queues(store, walk, fates, rules, OtherQueues(min(reach, log_end)))
    except SourceError:
        return
    unread, of_tables = unread_op_queues(store), {topic_bytes(topic) for topic in TABLE_TOPICS}
    are_read = [fate for fate in fates if fate.facts.name not in unread and fate.facts.name[1] not in of_tables]
    yield from (one for one in dispatched_findings(store, are_read) if one.is_error)

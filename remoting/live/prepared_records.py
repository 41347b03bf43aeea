"""Prepared records of live brokers (before 4.3) and their decisions, from the index and from the log itself.

A prepared record is in no queue. Its index entry is under its real topic, as for other messages. Its decision may not
be in the index either: ROLLBACK records never are, COMMIT records only since 4.0. So the log is read after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.prepared_records import is_prepared
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, WAITING_TOPICS
from rmqtx.remoting.connections.batched_reads import Pace, queries, topics
from rmqtx.remoting.live.queues import LogTooLong, walked
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.evidence.witness_collector import CollectedWitnesses

__all__ = ["read_prepared", "walk_behind_prepared"]

#: Topics of half copies that are not prepared records.
_HALF_TOPICS = (HALF_TOPIC, ROCKSDB_HALF_TOPIC, *WAITING_TOPICS)
#: Most topics in which a key is looked up.
_TOPICS_MAX = 256
_EVER_MS = 1 << 62
_CLOCK_AHEAD_MS = 3_600_000


def read_prepared(facts: LiveStore, gathered: CollectedWitnesses, names: Sequence[str], pace: Pace) -> None:
    """Add the prepared records that the index has under some ids or business keys, in any topic.

    For a broker before 4.3, COMMIT records are added too: their prepared record may have expired.
    Raises: Unreachable, NoAnswer, Refused.
    """
    try:
        known = topics(facts.broker)
    except Refused:  # access control: this requires an administrator's account
        return
    real = [topic for topic in known if not topic.startswith("%") and topic not in _HALF_TOPICS][:_TOPICS_MAX]
    keys = [(topic, name) for topic in real for name in names]
    for times_ms in _spans(facts):
        for block in blocks_of(queries(facts.broker, keys, pace, times_ms=times_ms), facts.root, facts.findings):
            chosen = is_prepared(block) if facts.has_half_topic else np.ones(len(block), np.bool_)
            gathered.add(block.take(chosen))


def _spans(facts: LiveStore) -> Iterator[tuple[int, int]]:
    """Yield the time since the log's first record, in spans that the broker accepts in one query."""
    end_ms = facts.taken_time_ms + _CLOCK_AHEAD_MS
    if facts.query_span_ms is None:
        yield 0, _EVER_MS
        return
    begin_ms = end_ms - facts.query_span_ms
    for block in blocks_of([facts.broker.view(facts.log_begin_offset) or b""], facts.root, []):
        begin_ms = int(block.header("store_time_ms")[0])
    while begin_ms < end_ms:
        yield begin_ms, min(begin_ms + facts.query_span_ms, end_ms)
        begin_ms += facts.query_span_ms


def walk_behind_prepared(facts: LiveStore, gathered: CollectedWitnesses, names: Sequence[str], pace: Pace) -> None:
    """Add all records after the first prepared record of some transactions, unless they are too many.

    Damage: too many are a finding, and verdicts that rest on the absence of records are UNDECIDABLE.
    Raises: Unreachable, NoAnswer, Refused.
    """
    halves = gathered.chosen("halves", names)
    prepared = halves.filter(pc.invert(pc.is_in(halves["topic"], value_set=pa.array(_HALF_TOPICS))))
    if not prepared.num_rows:
        return
    first = pc.min(prepared["commit_log_offset"]).as_py()
    try:
        for block in blocks_of(walked(facts.broker, first, facts.log_file_bytes, pace), facts.root, []):
            gathered.add(block)
    except LogTooLong as error:
        facts.findings.append(Finding(facts.root, "prepared-unwalked", actual=f"{error.actual} bytes"))
        facts.add_missing(
            f"the {error.actual} bytes of its log after a prepared record, too many to read from the broker"
        )

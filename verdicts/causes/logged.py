"""Which records of transactions the lines of broker logs name, or belong to by their times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.verdicts.causes.evidence import Evidence, Records
from rmqtx.verdicts.model.log_evidence import LogEvidence
from rmqtx.verdicts.model.verdict_words import State

#: A check is sent, or the missing producer logged, within this time after the copy is put back.
_SEND_SECONDS_MAX = 5
ANSWERS = ("answered-unknown", "answered-commit", "answered-rollback")
_NEVER = np.iinfo(np.int64).max


def _by_store(found: Evidence, records: Records, value: Callable[[LogEvidence, Bools], Bools]) -> Bools:
    """Return a value for each record, computed for each store with logs; False for the others."""
    result = np.zeros(len(records), np.bool_)
    for number, facts in enumerate(found.stores.values()):
        rows = records.store == number
        if facts.logs is not None and rows.any():
            result[rows] = value(facts.logs, rows)
    return result


def named(found: Evidence, *kinds: str) -> Bools:
    """Return the half copies that a line of one of the kinds names."""
    offsets = found.copies.offset
    return _by_store(found, found.copies, lambda logs, rows: logs.names(kinds, offsets[rows]))


def transactions_named(found: Evidence, *kinds: str) -> Bools:
    """Return the transactions of which a line names a half copy."""
    return found.any_of(found.copies, named(found, *kinds))


def asked(found: Evidence) -> Bools:
    """Return the half copies that the check put back to ask about."""
    return (found.copies.checks > 0) & found.half_topic[found.copies.owner]


def last_asked(found: Evidence) -> Bools:
    """Return the newest copy of each transaction, if it was asked about."""
    return asked(found) & (found.next_copy < 0)


def times_covered(found: Evidence) -> Bools:
    """Return the half copies whose times the logs cover, and the time in which a check was sent."""
    times = found.copies.time_ms

    def covered(logs: LogEvidence, rows: Bools) -> Bools:
        is_covered: Bools = logs.covers(times[rows]) & logs.covers(times[rows] + 1000)
        return is_covered

    return _by_store(found, found.copies, covered)


def met_no_producer(found: Evidence) -> Bools:
    """Return the half copies after which the log shows that no producer of their group was connected.

    A producer that connected within the same seconds leaves open which copy the line is about.
    """
    copies = found.copies
    first = copies.time_ms // 1000
    last = first + _SEND_SECONDS_MAX
    if len(copies):
        has_next = found.next_copy >= 0
        last[has_next] = np.minimum(last[has_next], copies.time_ms[found.next_copy[has_next]] // 1000)
    encoded = pc.dictionary_encode(found.rows["producer_group"].combine_chunks())
    names = encoded.dictionary.to_pylist()
    group = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)[copies.owner]

    def met(logs: LogEvidence, rows: Bools) -> Bools:
        result = np.zeros(int(rows.sum()), np.bool_)
        groups, begins, ends = group[rows], first[rows], last[rows]
        for number in np.unique(groups[groups >= 0]).tolist():
            of_group = groups == number
            spans = begins[of_group], ends[of_group]
            result[of_group] = logs.of_group_within("no-producer", names[number], *spans)
            result[of_group] &= ~logs.of_group_within("producer-connected", names[number], *spans)
        return result

    return _by_store(found, copies, met)


def in_failed_rounds(found: Evidence, moment: str) -> Bools:
    """Return the half copies that were put back in a round that a line of this kind ended."""
    seconds = found.copies.time_ms // 1000

    def failed(logs: LogEvidence, rows: Bools) -> Bools:
        ended = _next(logs.moments.get(moment), seconds[rows])
        return (ended < _NEVER) & (ended <= _next(logs.moments.get("round-begins"), seconds[rows] + 1))

    rows: Bools = asked(found) & _by_store(found, found.copies, failed)
    return rows


def _next(values: Int64s | None, seconds: Int64s) -> Int64s:
    """Return the first of the sorted values from each time on."""
    if values is None or not len(values):
        return np.full(len(seconds), _NEVER)
    return np.append(values, _NEVER)[np.searchsorted(values, seconds)]


def ops_failed(found: Evidence) -> Bools:
    """Return the COMMIT records after which the log shows that an op message could not be written, within the time that
    the broker holds op messages.
    """
    finals = found.finals
    holds = found.numbers(lambda one: one.op_hold_ms, 0)[finals.store]
    first, last = finals.time_ms // 1000, (finals.time_ms + holds) // 1000

    def failed(logs: LogEvidence, rows: Bools) -> Bools:
        return logs.within("op-batch-failed", first[rows], last[rows])

    return _by_store(found, finals, failed)


def undecided(found: Evidence) -> Bools:
    """Return the transactions without any decision, whose producers could have been asked."""
    rows = found.state(State.DISCARDED, State.PENDING) & ~found.flag("delayed_half") & ~found.flag("bad_body")
    rows &= ~found.flag("discarded_unasked")
    rows &= ~(found.has_marks | found.has_finals)
    return rows


def open_without_logs(found: Evidence) -> Bools:
    """Transactions that were discarded, and whose last check no log covers."""
    rows = undecided(found) & found.state(State.DISCARDED)
    return rows & found.any_of(found.copies, last_asked(found) & ~times_covered(found))


def last_met_no_producer(found: Evidence) -> Bools:
    """Return the undecided transactions whose newest copy met a group without a producer, and got no answer."""
    last = last_asked(found) & times_covered(found) & met_no_producer(found) & ~named(found, *ANSWERS)
    return undecided(found) & found.any_of(found.copies, last)

"""A producer group of several applications: a check asks any connected producer of the group, whatever its application.

The process that sent a half message is named by the first digits of its transaction id; the logs of a broker name the
address of the client that answered. What belongs to which application shows only after the last transaction of a
group: `rmqtx.verdicts.model.group_habits` has the rule.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, Change
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import ANSWERS, undecided
from rmqtx.verdicts.model.group_habits import SENDERS_MAX, Decisions, Members, Sent
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES
from rmqtx.verdicts.model.verdict_words import State

#: In the id of a Java client: address, process and class loader, in hexadecimal; with an IPv6 address it is longer.
_PROCESS_DIGITS, _PROCESS_DIGITS_V6 = 20, 44
_ID_DIGITS, _ID_DIGITS_V6 = 32, 56
_ENDED = ("ended-unknown", "ended-rollback")


def _rolled_back_at_check(found: Evidence) -> Bools:
    """Transactions of which every decision is a rollback and names a copy that the check put back."""
    return found.state(State.ROLLED_BACK) & found.has_marks & ~found.is_direct & found.half_topic


def _not_committed_at_check(found: Evidence) -> Support:
    """Rolled back at a check, or checked and not decided; unless the log shows that its own client answered."""
    rows = _rolled_back_at_check(found) | (undecided(found) & found.was_checked)
    sent_by, answered_by = ended_by(found), answers_by(found)
    return fits(rows & ~((sent_by >= 0) & (sent_by == answered_by)))


def ended_by(found: Evidence) -> Int64s:
    """Return which client ended each transaction directly, as the log of its broker shows; -1 if unknown."""
    return _client(found, lambda checks: checks <= 0, _ENDED)


def answers_by(found: Evidence) -> Int64s:
    """Return which client gave the last answer to a check of each transaction; -1 if unknown."""
    return _client(found, lambda checks: checks > 0, ANSWERS)


def _client(found: Evidence, are_chosen: Callable[[Int64s], Bools], kinds: tuple[str, ...]) -> Int64s:
    """Return the client that a line about the last of some copies of each transaction names.

    `are_chosen`: which copies, by the number of checks before each.
    """
    clients = np.full(found.count, -1, np.int64)
    for number, facts in enumerate(found.stores.values()):
        if facts.logs is not None:
            rows = np.flatnonzero(are_chosen(found.copies.checks) & (found.copies.store == number))
            named = facts.logs.client_of(kinds, found.copies.offset[rows])
            clients[found.copies.owner[rows[named >= 0]]] = named[named >= 0]
    return clients


def members_of(found: Evidence) -> dict[tuple[str, str], Members]:
    """Return what is known of the producers of each group, by store and group, from some transactions."""
    members: dict[tuple[str, str], Members] = {}
    (groups, group), (topics, topic) = found.words("producer_group"), found.words("topic")
    known = np.flatnonzero((group >= 0) & (topic >= 0) & (found.store >= 0))
    by_topic, firsts = _numbered((found.store * len(groups) + group)[known] * len(topics) + topic[known])
    keys = [
        ((found.names[found.store[row]], groups[group[row]]), topics[topic[row]]) for row in known[firsts].tolist()
    ]
    counts = [np.bincount(by_topic[chosen[known]], minlength=len(firsts)).tolist() for chosen in _decided(found)]
    for (one_group, name), *decided in zip(keys, *counts, strict=True):
        members.setdefault(one_group, Members()).decisions[name] = Decisions(*decided)
    senders, sender = _senders(found)
    has_sender = sender[known] >= 0
    known, by_topic = known[has_sender], by_topic[has_sender]
    by_sender, firsts = _numbered(by_topic * len(senders) + sender[known])
    sent = [
        (*keys[number], senders[code], times) for number, code, times in zip(
            by_topic[firsts].tolist(), sender[known[firsts]].tolist(),
            _sent(by_sender, found.half_store_time_ms[known], len(firsts)), strict=True,
        )
    ]
    of_group: dict[tuple[str, str], set[str]] = {}
    for one_group, _, process, _ in sent:
        of_group.setdefault(one_group, set()).add(process)
    for one_group, processes in of_group.items():
        if len(processes) > SENDERS_MAX:
            members[one_group].forget_senders()
    for one_group, name, process, times in sent:
        if len(of_group[one_group]) <= SENDERS_MAX:
            members[one_group].add_sent(process, name, times)
    _add_addresses(found, members)
    return members


def _numbered(keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the number of each key, in the order of the first rows that have them, and these rows."""
    codes = int64s(pa.array(keys).dictionary_encode().indices)
    firsts = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(keys))[::-1]
    return codes, firsts


def _sent(groups: Int64s, times_ms: Int64s, count: int) -> list[Sent]:
    """Return how many rows each group has, and the first and last of their times."""
    first_ms, last_ms = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first_ms, groups, times_ms)
    np.maximum.at(last_ms, groups, times_ms)
    numbers = np.bincount(groups, minlength=count)
    return [Sent(*one) for one in zip(numbers.tolist(), first_ms.tolist(), last_ms.tolist(), strict=True)]


def _senders(found: Evidence) -> tuple[list[str], Int64s]:
    """Return the processes that sent half messages, and the number of that of each transaction; -1 if unknown."""
    ids = found.rows["transaction_id"].combine_chunks()
    lengths = int64s(pc.utf8_length(ids))
    names = pc.utf8_slice_codeunits(ids, 0, _PROCESS_DIGITS)
    if (lengths != _ID_DIGITS).any():
        longer = pc.utf8_slice_codeunits(ids, 0, _PROCESS_DIGITS_V6)
        names = pc.if_else(pa.array(lengths == _ID_DIGITS), names, pa.scalar(None, names.type))
        names = pc.if_else(pa.array(lengths == _ID_DIGITS_V6), longer, names)
    encoded = names.dictionary_encode()
    return encoded.dictionary.to_pylist(), int64s(encoded.indices)


def _decided(found: Evidence) -> list[Bools]:
    """Return which transactions were decided in each way, in the order of `Decisions`."""
    committed, rolled_back = found.state(State.COMMITTED), found.state(State.ROLLED_BACK)
    at_check = found.has_marks & ~found.is_direct
    return [committed & found.is_direct, rolled_back & found.is_direct, committed & at_check, rolled_back & at_check]


def _add_addresses(found: Evidence, members: dict[tuple[str, str], Members]) -> None:
    """Add the topics of the transactions that clients ended directly, as the logs show."""
    clients = ended_by(found)
    for _, address, store, group, topic in addressed(found, np.flatnonzero(clients >= 0), clients):
        members[store, group].addresses.setdefault(address, set()).add(topic)


def addressed(found: Evidence, rows: Int64s, clients: Int64s) -> list[tuple[int, str, str, str, str]]:
    """Return some transactions with the address of a client, their store, group and topic, where all are known."""
    groups, topics = (found.rows[name].combine_chunks().take(pa.array(rows)) for name in ("producer_group", "topic"))
    result = []
    for row, group, topic in zip(rows.tolist(), groups.to_pylist(), topics.to_pylist(), strict=True):
        store = found.names[found.store[row]]
        logs = found.stores[store].logs
        if group is not None and topic is not None and logs is not None and clients[row] >= 0:
            result.append((row, logs.addresses[clients[row]], store, group, topic))
    return result


CAUSES = (
    Cause(
        "group-shared-by-applications",
        "several applications are in its producer group: the check may have asked one that did not send it",
        affected=(Change(
            "a check goes to any connected producer of the group, whichever topics it sends to",
            "broker/client/ProducerManager.java getAvailableChannel; #9791; seen on 4.9.7, 5.3.3 and 5.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_not_committed_at_check,
        contradicted=lambda found: np.zeros(found.count, np.bool_),
        of_group=Members.has_foreign_answers,
        shows_in=(FILES, BROKER_LOG),
        consequence="an application that does not find the local transaction answers ROLLBACK or UNKNOWN: what was to "
        "be committed is rolled back, or discarded after transactionCheckMax checks",
        act=f"{RECONCILE} compares with the application that sent it; "
        "rmqtx redeliver ID -n HOST:PORT delivers what was rolled back wrongly",
        change="give each application a producer group of its own; checkLocalTransaction must not answer ROLLBACK for "
        "what it does not find",
        shown_by=(),
        decides="transaction.log: the address of the client that answered (--broker-logs DIR); or the list of the "
        "applications that use the group: rmqtx producers -n HOST:PORT --group GROUP",
    ),
)

"""A producer group of several applications: a check asks any connected producer of the group, whatever its application.

The process that sent a half message is named by the first digits of its transaction id; the logs of a broker name the
address of the client that answered. What belongs to which application shows only after the last transaction of a
group: `rmqtx.verdicts.model.group_habits` has the rule.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, Change
from rmqtx.verdicts.causes.cause import RECONCILE, Cause, Support, fits
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import undecided
from rmqtx.verdicts.model.group_habits import SENDERS_MAX, Decisions, Members, Sent
from rmqtx.verdicts.model.state import State
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES

#: In the id of a Java client: address, process and class loader, in hexadecimal; with an IPv6 address it is longer.
_PROCESS_DIGITS, _PROCESS_DIGITS_V6 = 20, 44
_ID_DIGITS, _ID_DIGITS_V6 = 32, 56
_ANSWERED = ("answered-unknown", "answered-commit", "answered-rollback")
#: Columns of the table of transactions that are counted, in the order of `Decisions`.
_COUNTS = ("direct_commit", "direct_rollback", "commit_at_check", "rollback_at_check")
_ENDED = ("ended-unknown", "ended-rollback")


def _rolled_back_at_check(found: Evidence) -> Bools:
    """Transactions of which every decision is a rollback and names a copy that the check put back."""
    is_direct = found.any_of(found.marks, found.names_original)
    return found.state(State.ROLLED_BACK) & (found.count_of(found.marks) > 0) & ~is_direct & found.half_topic


def _not_committed_at_check(found: Evidence) -> Support:
    """Rolled back at a check, or checked and not decided; unless the log shows that its own client answered."""
    was_checked = found.any_of(found.copies, found.copies.checks > 0)
    rows = _rolled_back_at_check(found) | (undecided(found) & was_checked)
    sent_by, answered_by = ended_by(found), answers_by(found)
    return fits(rows & ~((sent_by >= 0) & (sent_by == answered_by)))


def ended_by(found: Evidence) -> Int64s:
    """Return which client ended each transaction directly, as the log of its broker shows; -1 if unknown."""
    return _client(found, found.copies.checks <= 0, _ENDED)


def answers_by(found: Evidence) -> Int64s:
    """Return which client gave the last answer to a check of each transaction; -1 if unknown."""
    return _client(found, found.copies.checks > 0, _ANSWERED)


def _client(found: Evidence, chosen: Bools, kinds: tuple[str, ...]) -> Int64s:
    """Return the client that a line about the last of the chosen copies of each transaction names."""
    clients = np.full(found.count, -1, np.int64)
    for number, facts in enumerate(found.stores.values()):
        if facts.logs is not None:
            rows = np.flatnonzero(chosen & (found.copies.store == number))
            named = facts.logs.client_of(kinds, found.copies.offset[rows])
            clients[found.copies.owner[rows[named >= 0]]] = named[named >= 0]
    return clients


def members_of(found: Evidence) -> dict[tuple[str, str], Members]:
    """Return what is known of the producers of each group, by store and group, from some transactions."""
    members: dict[tuple[str, str], Members] = {}
    rows = _members_table(found)
    by_topic, firsts = _grouped(rows, ["store", "group", "topic"])
    counts = [np.bincount(by_topic, np.asarray(rows[name]), len(firsts)).astype(np.int64).tolist() for name in _COUNTS]
    for row, *decided in zip(rows.take(pa.array(firsts)).to_pylist(), *counts, strict=True):
        mine = members.setdefault((found.names[row["store"]], row["group"]), Members())
        mine.decisions[row["topic"]] = Decisions(*decided)
    rows = rows.filter(rows["sender"].is_valid())
    by_sender, firsts = _grouped(rows, ["store", "group", "topic", "sender"])
    senders: dict[tuple[str, str], set[str]] = {}
    sent = list(zip(rows.take(pa.array(firsts)).to_pylist(), _sent(by_sender, rows, len(firsts)), strict=True))
    for row, _ in sent:
        senders.setdefault((found.names[row["store"]], row["group"]), set()).add(row["sender"])
    for one_group, known in senders.items():
        if len(known) > SENDERS_MAX:
            members[one_group].forget_senders()
    for row, times in sent:
        one_group = found.names[row["store"]], row["group"]
        if len(senders[one_group]) <= SENDERS_MAX:
            members[one_group].add_sent(row["sender"], row["topic"], times)
    _add_addresses(found, members)
    return members


def _grouped(rows: pa.Table, names: list[str]) -> tuple[Int64s, Int64s]:
    """Return the group of each row by the values of some columns, numbered by its first row, and these first rows.

    As `group_by` of Arrow, which loads its data sets, file systems and Parquet: a tenth of the time of a small audit.
    """
    codes = np.zeros(rows.num_rows, np.int64)
    for name in names:
        values = rows[name].combine_chunks().dictionary_encode()
        # The numbers of a dictionary are in the order of the first rows.
        pairs = pa.array(codes * len(values.dictionary) + np.asarray(values.indices))
        codes = int64s(pairs.dictionary_encode().indices)
    firsts = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(rows.num_rows)[::-1]
    return codes, firsts


def _sent(groups: Int64s, rows: pa.Table, count: int) -> list[Sent]:
    """Return how many rows each group has, and the first and last of their times."""
    times_ms = np.asarray(rows["time_ms"])
    first_ms, last_ms = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, np.int64)
    np.minimum.at(first_ms, groups, times_ms)
    np.maximum.at(last_ms, groups, times_ms)
    numbers = np.bincount(groups, minlength=count)
    return [Sent(*one) for one in zip(numbers.tolist(), first_ms.tolist(), last_ms.tolist(), strict=True)]


def _members_table(found: Evidence) -> pa.Table:
    marks, direct = found.marks, found.names_original
    is_direct, is_at_check = found.any_of(marks, direct), found.any_of(marks, ~direct)
    committed, rolled_back = found.state(State.COMMITTED), found.state(State.ROLLED_BACK)
    ids = found.rows["transaction_id"].combine_chunks()
    lengths = pc.utf8_length(ids)
    sender = pc.case_when(
        pc.make_struct(pc.equal(lengths, _ID_DIGITS), pc.equal(lengths, _ID_DIGITS_V6)),
        pc.utf8_slice_codeunits(ids, 0, _PROCESS_DIGITS), pc.utf8_slice_codeunits(ids, 0, _PROCESS_DIGITS_V6),
    )
    table = pa.table({
        "store": pa.array(found.store), "group": found.rows["producer_group"].combine_chunks(),
        "topic": found.rows["topic"].combine_chunks(), "sender": sender, "time_ms": pa.array(found.half_store_time_ms),
        "direct_commit": pa.array((committed & is_direct).astype(np.int64)),
        "direct_rollback": pa.array((rolled_back & is_direct).astype(np.int64)),
        "commit_at_check": pa.array((committed & is_at_check & ~is_direct).astype(np.int64)),
        "rollback_at_check": pa.array((rolled_back & is_at_check & ~is_direct).astype(np.int64)),
    })  # fmt: skip
    is_known = pc.and_(table["group"].is_valid(), table["topic"].is_valid())
    return table.filter(pc.and_(is_known, pc.greater_equal(table["store"], 0)))


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

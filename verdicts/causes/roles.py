"""Causes in the roles of brokers: a slave that acts as its master, and a slave that becomes one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from readers.model.columns import Bools, Int64s
from readers.model.releases import ACTING_SLAVE, SLAVE_REFUSES_TYPES, Change
from verdicts.causes.cause import Cause, Support, fits
from verdicts.causes.evidence import Evidence, Records
from verdicts.causes.needs import need

_ESCAPE = "broker/failover/EscapeBridge.java"
_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
#: Rounds of a check are transactionCheckInterval apart (default 30 s, before 5.1.1 60 s; 5.5.0 has one more when it
#: stops), and the first one comes transactionTimeOut after the message: no broker puts a half message back within this
#: time, and again within this time.
_ROUNDS_MS_MIN = 500


@dataclass(frozen=True, slots=True)
class _Groups:
    """The half copies of a transaction in one store, as rows of `Evidence.copies`.

    Shape: `first`: the row of the first copy; `owner`: the transaction. `is_foreign`: another store has copies of the
           transaction too, and none of them is a replica of a copy in this group.
    """

    first: Int64s
    owner: Int64s
    is_foreign: Bools


def _groups(found: Evidence, copies: Records) -> _Groups:
    group = copies.owner * len(found.names) + copies.store
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(copies) else np.empty(0, np.int64)
    owner = copies.owner[first]
    is_spread = np.bincount(owner, minlength=found.count)[owner] > 1
    if not is_spread.any():
        return _Groups(first, owner, is_spread)
    places = np.stack([copies.owner, copies.queue_offset, copies.offset, copies.time_ms])
    _, place, counts = np.unique(places, axis=1, return_inverse=True, return_counts=True)
    is_replica = counts[place.reshape(-1)] > 1
    replicas = np.add.reduceat(is_replica.astype(np.int64), first)
    return _Groups(first, owner, is_spread & (replicas == 0))


def _sent_by_acting_slave(found: Evidence) -> Support:
    """Copies that the check of this broker has not written: their numbers of checks rise faster than it has rounds, or
    begin above 0 although another broker has the earlier copies.

    A first copy after some checks only fits where the earlier copies are unknown: their file may have expired. Copies
    of 0 checks on two brokers only fit: a producer whose request timed out sends the same message to another broker.
    """
    copies, following = found.copies, found.next_copy
    groups = _groups(found, copies)
    rows = groups.first[following[groups.first] >= 0] if len(copies) else groups.first
    rows = rows[following[following[rows]] >= 0]
    second, third = following[rows], following[following[rows]]
    rises = (copies.checks[second] == copies.checks[rows] + 1) & (copies.checks[third] == copies.checks[second] + 1)
    is_fast = np.diff(copies.time_ms[np.stack([rows, second, third])], axis=0).max(axis=0) < _ROUNDS_MS_MIN
    is_burst = (copies.checks[rows] == 0) & rises & is_fast
    is_late = (copies.checks[groups.first] > 0) & found.half_topic[groups.owner]
    proven = found.any_owner(copies.owner[rows[is_burst]]) | found.any_owner(groups.owner[is_late & groups.is_foreign])
    may_be = found.any_owner(groups.owner[is_late | groups.is_foreign])
    is_other = found.flag("resumed") | found.flag("delayed_half")
    return fits((proven | may_be) & ~is_other, proven & ~is_other)


def _passed_by_acting_slave(found: Evidence) -> Support:
    """The check passed it without a trace: no copy, no decision, no discard."""
    is_other = found.flag("masked") | found.flag("delayed_half")
    return fits(found.state("LOST") & found.reason("check_passed") & found.half_topic & ~is_other)


def _topic_refused(found: Evidence) -> Support:
    """The topic is not in the broker's topics; another store that was read has it with attributes.

    Without that store it only fits: the topic may have been deleted.
    """
    is_missing = ~found.topic_in(lambda one: one.topics)
    typed = frozenset[str]().union(*(one.typed_topics for one in found.stores.values()))
    return fits(is_missing, is_missing & found.topic_in(lambda _: typed))


CAUSES = (
    Cause(
        "acting-slave-sent-copies",
        "a slave that acted as its master sent its open half copies to another broker, which checks each of them",
        affected=(Change(ACTING_SLAVE.what, f"{_ESCAPE}; RIP-32; seen on 5.3.3", since=ACTING_SLAVE.since),),
        rule=_sent_by_acting_slave,
        consequence="each copy is checked to its end: a producer that answers COMMIT has the message delivered once a "
        "copy, also if the killed master had committed it",
        act="rmqtx audit STORE STORE reads both masters: what the other one had decided; then rmqtx close ID -n "
        "HOST:PORT",
        change="set enableRemoteEscape false: half messages then wait for their master",
        shown_by=(),
        decides="the address that sent the copies, a slave's or a producer's: rmqtx search STORE --property "
        "UNIQ_KEY=ID --fields born_host",
    ),
    Cause(
        "acting-slave-gave-up",
        "a slave that acted as its master could not send it to another broker, and its check passed it",
        affected=(Change(ACTING_SLAVE.what, f"{_CHECK}; #5012, #5062; seen on 5.3.3", since=ACTING_SLAVE.since),),
        rule=_passed_by_acting_slave,
        consequence="if the slave becomes the master, no broker checks it again: it is lost without a decision",
        act="before the slave becomes the master: rmqtx cursor set --half N --store STORE --to COPY; else rmqtx commit "
        "ID -n HOST:PORT, or rmqtx rollback ID -n HOST:PORT",
        change="do not let the store of an acting slave go on as a master: start the master again",
        shown_by=(),
        needs=(need("enableSlaveActingMaster"),),
        decides="transaction.log of the slave: \"Escaping transactional message failed\"; otherwise the cursor was "
        "set forward by hand",
    ),
    Cause(
        "topic-refused-by-slave",
        "the broker has half messages of the topic and not the topic: as a slave it refused one with attributes",
        affected=(SLAVE_REFUSES_TYPES,),
        rule=_topic_refused,
        consequence="consumers cannot read what is committed, and producers get \"topic not exist\", until the topic "
        "is created again",
        act="mqadmin updateTopic with the attributes that the topic had; then consumers receive what was committed",
        change="upgrade to 5.3.4 or later, the slaves first",
        shown_by=(),
        decides="config/topics.json of the master: rmqtx diagnose STORE STORE of both; or whether the topic was "
        "deleted",
    ),
)

"""Causes in the roles of brokers: a slave that acts as its master, and a slave that becomes one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s, int64s
from rmqtx.readers.model.releases import (
    ACTING_SLAVE,
    HALF_TOPIC_DESIGN,
    SLAVE_DELETES_TOPICS,
    SLAVE_REFUSES_TYPES,
    Change,
)
from rmqtx.verdicts.causes.cause import OP_THREAD_NOTE, Cause, Support, fits, need, releases_text
from rmqtx.verdicts.causes.checks import checks_begin_again
from rmqtx.verdicts.causes.evidence import Evidence, Records
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES, StoreEvidence
from rmqtx.verdicts.model.verdict_words import State

_ESCAPE = "broker/failover/EscapeBridge.java"
_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"
#: Rounds of a check are transactionCheckInterval apart (default 30 s, before 5.1.1 60 s; 5.5.0 has one more when it
#: stops): no broker puts a half message back twice within this time, and once more within this time.
_ROUNDS_MS_MIN = 500
#: A producer's half message is stored sooner after it was made.
_LATE_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Groups:
    """The half copies of a transaction in one store, as rows of `Evidence.copies`.

    Shape: `first`: the row of the first copy; `owner`: the transaction. `is_foreign`: another store has copies of the
           transaction too, and none of them is a replica of a copy in this group. `checks`: the lowest number of checks
           of the first copy, of all groups of the transaction with replicas where this group has replicas: they are of
           one log, and the first copy can be missing in one of them.
    """

    first: Int64s
    owner: Int64s
    is_foreign: Bools
    checks: Int64s


def _groups(found: Evidence, copies: Records) -> _Groups:
    group = copies.owner * len(found.names) + copies.store
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    owner = copies.owner[first]
    is_spread = np.bincount(owner, minlength=found.count)[owner] > 1
    checks = copies.checks[first]
    if not is_spread.any():
        return _Groups(first, owner, is_spread, checks)
    places = np.stack([copies.owner, copies.queue_offset, copies.offset, copies.time_ms])
    _, place, counts = np.unique(places, axis=1, return_inverse=True, return_counts=True)
    is_replica = counts[place.reshape(-1)] > 1
    replicas = np.add.reduceat(is_replica.astype(np.int64), first)
    lowest = np.full(found.count, np.iinfo(np.int64).max)
    np.minimum.at(lowest, owner[replicas > 0], checks[replicas > 0])
    return _Groups(first, owner, is_spread & (replicas == 0), np.where(replicas > 0, lowest[owner], checks))


def _rise_too_fast(found: Evidence, groups: _Groups) -> Int64s:
    """The transactions whose numbers of checks rise from 0 by two and more, each step faster than a round of the check.

    Later copies do not count: a check at an older cursor puts several copies of a transaction back in one round.
    """
    copies, following = found.copies, found.next_copy
    rows = np.arange(len(copies))
    rises = (following >= 0) & (copies.checks[following] == copies.checks + 1)
    ends = np.minimum.reduceat(np.where(rises, len(copies), rows), groups.first)
    sizes = np.diff(np.append(groups.first, len(copies)))
    is_first_run = (rows < np.repeat(ends, sizes)) & np.repeat(copies.checks[groups.first] == 0, sizes)
    is_fast = is_first_run & (copies.time_ms[following] - copies.time_ms < _ROUNDS_MS_MIN)
    owners: Int64s = copies.owner[1:][is_fast[1:] & is_fast[:-1] & (copies.owner[1:] == copies.owner[:-1])]
    return owners


def _sent_by_acting_slave(found: Evidence) -> Support:
    """Copies that the check of this broker has not written: the first one came long after its producer made the
    message, and numbers of checks rise faster than there are rounds; or they begin above 0 and another broker has the
    earlier copies.

    It only fits where the first copy came late and checks begin again, where the first copy has had checks, and where
    the same message is on two brokers: a clock may be behind, the file of earlier copies may have expired, and a
    producer whose request timed out sends its message to another broker.
    """
    copies = found.copies
    if not len(copies):
        return fits(np.zeros(found.count, np.bool_))
    groups = _groups(found, copies)
    has_checks = (groups.checks > 0) & found.half_topic[groups.owner]
    born_ms = int64s(found.rows["born_time_ms"].combine_chunks(), np.iinfo(np.int64).max)[groups.owner]
    is_late = found.any_owner(groups.owner[copies.time_ms[groups.first] - _LATE_MS > born_ms])
    proven = is_late & found.any_owner(_rise_too_fast(found, groups))
    proven |= found.any_owner(groups.owner[has_checks & groups.is_foreign])
    may_be = found.any_owner(groups.owner[has_checks | groups.is_foreign]) | (is_late & checks_begin_again(found))
    is_other = found.flag("resumed") | found.flag("delayed_half")
    return fits((proven | may_be) & ~is_other, proven & ~is_other)


def _passed_by_acting_slave(found: Evidence) -> Support:
    """The check passed it without a trace: no copy, no decision, no discard."""
    is_other = found.flag("masked") | found.flag("delayed_half")
    return fits(found.state(State.LOST) & found.reason("check_passed") & found.half_topic & ~is_other)


def _topic_refused(found: Evidence) -> Support:
    """The broker does not have the topic: files do not show whether it refused it, deleted it, or never fetched it."""
    return fits(~found.has_topic)


def _topic_deleted(found: Evidence) -> Support:
    """The broker does not have the topic; the log of a slave shows that it deleted the topic at a synchronisation."""
    is_missing = ~found.has_topic
    return fits(is_missing, is_missing & found.topic_among(_deleted_topics))


def _deleted_topics(facts: StoreEvidence) -> frozenset[str]:
    return frozenset() if facts.logs is None else facts.logs.topics.get("slave-deleted-topic", frozenset())


def _group_deleted(found: Evidence) -> Support:
    """A consumer group that has read the topic is not among those of the broker."""
    return fits(found.topic_among(lambda one: one.topics_without_group))


def _decided_on_master(found: Evidence) -> Support:
    """What the newest records may have decided, in the copy of a slave, which takes no decisions itself."""
    return fits(found.flag("may_be_decided") & found.of_store(lambda one: one.is_slave))


_DELETING = releases_text(SLAVE_DELETES_TOPICS)

CAUSES = (
    Cause(
        "acting-slave-sent-copies",
        "a slave that acted as its master sent its open half copies to another broker, which checks each of them",
        affected=(Change(ACTING_SLAVE.what, f"{_ESCAPE}; RIP-32; seen on 5.3.3 and 5.5.0", since=ACTING_SLAVE.since),),
        rule=_sent_by_acting_slave,
        consequence="each copy is checked to its end: a producer that answers COMMIT has the message delivered once a "
        "copy, also if the killed master had committed it",
        act="rmqtx audit STORE STORE reads both masters: what the other one had decided; then rmqtx close ID -n "
        "HOST:PORT",
        change="set enableRemoteEscape false: half messages then wait for their master",
        shown_by=("escaped-5.3.3",),
        decides="the address that sent the copies, a slave's or a producer's: rmqtx search STORE --property "
        "UNIQ_KEY=ID --fields born_host",
    ),
    Cause(
        "acting-slave-gave-up",
        "a slave that acted as its master could not send it to another broker, and its check passed it",
        affected=(Change(ACTING_SLAVE.what, f"{_CHECK}; #5012, #5062; seen on 5.3.3", since=ACTING_SLAVE.since),),
        rule=_passed_by_acting_slave,
        consequence="if the slave becomes the master, no broker checks it again: it is lost without a decision",
        act="before the slave becomes the master: rmqtx cursor set --half N --store STORE --to COPY; else rmqtx resume "
        "ID -n HOST:PORT",
        change="do not let the store of an acting slave go on as a master: start the master again",
        shown_by=("acting-5.3.3",),
        needs=(need("enableSlaveActingMaster"),),
        decides="transaction.log of the slave: \"Escaping transactional message failed\"; otherwise the cursor was "
        "set forward by hand",
    ),
    Cause(
        "topic-refused-by-slave",
        "the broker has half messages of the topic and not the topic: as a slave it refused one with attributes",
        affected=(SLAVE_REFUSES_TYPES,),
        rule=_topic_refused,
        fits_uneventful=True,
        consequence="consumers cannot read what is committed, and producers get \"topic not exist\", until the topic "
        "is created again",
        act="mqadmin updateTopic -b HOST:PORT -t TOPIC -a +message.type=TRANSACTION: then consumers receive what was "
        "committed",
        change=f"upgrade to 5.5.0 or later, the slaves first; not to {_DELETING}, in which a slave deletes its topics "
        f"at each synchronisation; {OP_THREAD_NOTE}",
        shown_by=("acting-5.3.3",),
        decides="the log of the slave: \"SyncTopicConfig Exception\"; otherwise the topic was deleted, or the slave "
        "became a master before it fetched it, which it does once a minute",
        rivals=("slave-deletes-topics",),
    ),
    Cause(
        "slave-deletes-topics",
        "the broker has half messages of the topic and not the topic: as a slave it deleted its topics to fetch them "
        "again",
        affected=(SLAVE_DELETES_TOPICS,),
        rule=_topic_deleted,
        fits_uneventful=True,
        shows_in=(FILES, BROKER_LOG),
        consequence="a slave that ends or becomes the master in that moment lacks the topics: consumers cannot read "
        "what is committed, and producers get \"topic not exist\", until the topics are created again",
        act="mqadmin updateTopic -b HOST:PORT -t TOPIC -a +message.type=TRANSACTION for each topic; or copy "
        "config/topics.json of the master while this broker is stopped",
        change=f"upgrade to 5.5.0 or later, the slaves first; {OP_THREAD_NOTE}; until then keep a copy of config/ of "
        "the master",
        shown_by=(),
        decides="the log of the slave: --broker-logs DIR; \"delete topic config OK\" for many topics within a second",
        rivals=("topic-refused-by-slave",),
    ),
    Cause(
        "slave-behind-master",
        "this is the copy of a slave: its master may have decided it, and the slave ended before it had the record",
        affected=(Change(
            "a slave takes no decisions, and has the records of its master later",
            "broker/processor/EndTransactionProcessor.java, store/ha/; seen on 5.4.0", since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_decided_on_master,
        shows_in=(FILES, BROKER_LOG),
        consequence="if the slave becomes the master, the decision is lost: its check asks the producer again",
        act="rmqtx pending MASTER SLAVE reads both stores: what is pending in both; rmqtx diff MASTER SLAVE lists what "
        "differs",
        change="brokerRole=SYNC_MASTER: a commit is confirmed when a slave has it too",
        shown_by=(),
        decides="the store of the master: rmqtx diff MASTER SLAVE",
    ),
    Cause(
        "slave-deletes-groups",
        "a consumer group that has read the topic is missing: as a slave the broker deleted its subscription groups to "
        "fetch them again",
        affected=(SLAVE_DELETES_TOPICS,),
        rule=_group_deleted,
        fits_uneventful=True,
        consequence="with autoCreateSubscriptionGroup=false the group cannot consume what is committed; otherwise it "
        "gets default settings (retries, order)",
        act="mqadmin updateSubGroup -b HOST:PORT -g GROUP; or copy config/subscriptionGroup.json of the master while "
        "this broker is stopped",
        change=f"upgrade to 5.5.0 or later, the slaves first; {OP_THREAD_NOTE}; until then keep a copy of config/ of "
        "the master",
        shown_by=(),
        decides="the log of the slave: \"delete subscription group OK\" for many groups within a second; otherwise an "
        "operator deleted the group",
    ),
)

"""Causes in the designs before 4.3: prepared records, the state table of 3.0 and 3.1."""

from __future__ import annotations

from rmqtx.readers.model.releases import HALF_TOPIC_DESIGN, PREPARED_NOT_CHECKED, STATE_TABLE, Change
from rmqtx.verdicts.causes.cause import Cause, Support, proves
from rmqtx.verdicts.causes.evidence import Evidence

_STATES = "store/transaction/TransactionStateService.java; seen on 3.1.4"
_TABLES = Change("every answer names a slot of the state table", _STATES, STATE_TABLE.since, PREPARED_NOT_CHECKED.since)


def _never_checked(found: Evidence) -> Support:
    return proves(found.reason("prepared_never_asked"))


def _refused_since_upgrade(found: Evidence) -> Support:
    return proves(found.reason("prepared_commit_refused"))


def _renumbered(found: Evidence) -> Support:
    return proves(found.flag("unanswerable"))


def _without_slot(found: Evidence) -> Support:
    return proves(found.reason("prepared_without_slot", "prepared_forgotten_after_start"))


CAUSES = (
    Cause(
        "prepared-never-checked", "brokers of 3.2 to 4.2 never ask the producer about a prepared record",
        affected=(Change(
            PREPARED_NOT_CHECKED.what, PREPARED_NOT_CHECKED.source, PREPARED_NOT_CHECKED.since, HALF_TOPIC_DESIGN.since
        ),),
        rule=_never_checked,
        consequence="a transaction whose producer died before its decision stays pending permanently",
        act="find the outcome in the application, then rmqtx commit ID -n HOST:PORT or rmqtx rollback ID",
        change="upgrade to 4.3.0 or later after all prepared records are decided",
        shown_by=(
            "prepared-3.2.6", "prepared-4.2.0", "prepared-killed-3.2.6", "prepared-killed-4.2.0",
            "upgraded-3.1.4-3.2.6",
        ),
    ),
    Cause(
        "prepared-before-upgrade", "the broker was upgraded to half topics while a prepared record was undecided",
        affected=(Change(HALF_TOPIC_DESIGN.what, HALF_TOPIC_DESIGN.source, HALF_TOPIC_DESIGN.since),),
        rule=_refused_since_upgrade,
        consequence="the broker neither checks it nor accepts a commit of it: it stays pending permanently",
        act="stop the broker, then rmqtx commit ID --store STORE --in-place --undo FILE",
        change="",
        shown_by=("upgraded-4.2.0-4.3.0", "upgraded-4.2.0-4.9.7"),
    ),
    Cause(
        "state-table-renumbered", "its slot of the state table has another number than its record",
        affected=(_TABLES,),
        rule=_renumbered,
        consequence="the broker refuses every answer of the producer, and asks again and again",
        act="rmqtx rebuild statetable STORE --to NEW shows the numbers of the next start; decide by hand: rmqtx "
        "commit ID -n HOST:PORT",
        change="stop brokers in order: a start after a crash rebuilds the table and numbers it again",
        shown_by=("statetable-killed-3.1.4", "statetable-lossy-3.1.4", "statetable-recovered-3.1.4"),
    ),
    Cause(
        "state-table-lacks-slot", "the state table has no slot for its prepared record",
        affected=(_TABLES,),
        rule=_without_slot,
        consequence="the broker never asks its producer: it stays pending permanently",
        act="rmqtx rebuild statetable STORE --to NEW, or decide by hand: rmqtx commit ID -n HOST:PORT",
        change="do not delete transaction/statetable or transaction/redolog",
        shown_by=("statetable-lossy-3.1.4", "statetable-slave-3.1.4"),
    ),
)

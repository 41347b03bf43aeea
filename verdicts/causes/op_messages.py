"""Causes in op messages (lost, not written, not read in time) and in half copies; and in the cursors of the check."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.releases import (
    CHECK_WAITS_FOR_PUT,
    ERROR_ENDS_CHECK,
    HALF_TOPIC_DESIGN,
    LIGHT_CURSORS_WRITTEN,
    NO_OP_IS_NO_LIST,
    OP_LISTS,
    OPS_LOST_AT_STOP,
    RESUME_BREAKS_COMPRESSED,
    RESUME_REQUEST,
    UNREADABLE_OP_IS_NULL,
    Change,
)
from rmqtx.verdicts.causes.cause import SLAVE_NOTE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.logged import ops_failed
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, FILES
from rmqtx.verdicts.model.verdict_words import State

_CHECK = "broker/transaction/queue/TransactionalMessageServiceImpl.java"


def _lacks_op(found: Evidence) -> Bools:
    """Transactions that were committed before any discard, without any op message."""
    finals, discards = found.finals, found.discards
    first_discard = np.full(found.count, np.iinfo(np.int64).max)
    np.minimum.at(first_discard, discards.owner, discards.offset)
    is_before = found.any_of(finals, finals.offset < first_discard[finals.owner])
    is_known = found.flag("commit_without_op") | (found.flag("discarded_though_decided") & found.state(State.COMMITTED))
    lacking: Bools = is_known & is_before & (found.count_of(found.marks) == 0) & found.half_topic
    return lacking


def _is_behind_all_ops(found: Evidence) -> Bools:
    """Transactions with a COMMIT record after the last op message of their store."""
    finals = found.finals
    last_op = found.numbers(lambda one: one.last_op_offset, np.iinfo(np.int64).max)
    return found.any_of(finals, finals.offset > last_op[finals.store])


def _is_logged(found: Evidence) -> Bools:
    """Transactions with a COMMIT record after which the broker's log shows an op message that was not written."""
    return found.any_of(found.finals, ops_failed(found))


def _lost_at_kill(found: Evidence) -> Support:
    """A COMMIT record after the last op message of a killed broker proves it; an open one only fits.

    A slave takes no decisions: its kill loses no op message, and it has the COMMIT records of its master.
    """
    is_slave = found.of_store(lambda one: one.is_slave)
    lost = _lacks_op(found) & ~(_is_behind_all_ops(found) & found.of_store(lambda one: one.was_stopped))
    lost &= _is_behind_all_ops(found) | ~_is_logged(found)
    proven = _lacks_op(found) & _is_behind_all_ops(found) & found.of_store(lambda one: one.was_killed)
    return fits(lost | (found.flag("may_be_decided") & ~is_slave), proven & ~is_slave)


def _lost_at_stop(found: Evidence) -> Support:
    """The same of a broker that was stopped in order; before later op messages it may have been a kill too."""
    behind = _is_behind_all_ops(found)
    rows = _lacks_op(found) & np.where(behind, found.of_store(lambda one: one.was_stopped), ~_is_logged(found))
    return fits(rows, rows & behind & ~found.of_store(lambda one: one.is_slave))


def _not_written(found: Evidence) -> Support:
    """Op messages that a running broker could not write leave the same records as a kill and a start after it; its log
    proves them.
    """
    rows = _lacks_op(found) & ~_is_behind_all_ops(found)
    return fits(rows, rows & _is_logged(found))


def _stopped_at_op(found: Evidence) -> Support:
    """The check is stopped at an op message; what that one settles is unknown."""
    is_open = found.flag("never_asked") | found.state(State.PENDING) | found.flag("open_after_decision")
    rows = found.half_topic & is_open
    is_stopped = found.of_store(lambda one: one.stop is not None and one.stop.is_op)
    return fits(is_stopped & found.half_topic & found.state(State.UNDECIDABLE), is_stopped & rows)


def _discarded_before_op(found: Evidence) -> Support:
    """The newest copy was decided, its op message was written, and then the transaction was discarded."""
    copies, marks, discards = found.copies, found.marks, found.discards
    rows = np.flatnonzero((found.copy_of_mark >= 0) & (found.copy_after_mark < 0) & ~found.names_other_slot)
    first_op = np.full(found.count, np.iinfo(np.int64).max)
    np.minimum.at(first_op, marks.owner[rows], marks.offset[rows])
    is_later = found.any_of(discards, discards.offset > first_op[discards.owner])
    return fits(is_later & found.flag("discarded_though_decided") & (found.count_of(copies) > 0))


def _op_of_another_slot(found: Evidence) -> Support:
    """Checked, discarded or still open after an op message that names its number, and so another slot than its own."""
    copies, marks, following = found.copies, found.marks, found.copy_after_mark
    rows = np.flatnonzero(found.names_other_slot & (following >= 0))
    checked = rows[copies.offset[following[rows]] > marks.offset[rows]]
    is_left = found.flag("open_after_decision") | found.flag("discarded_though_decided")
    named = found.any_owner(marks.owner[found.names_other_slot & (following < 0)])
    return proves(found.any_owner(marks.owner[checked]) | (is_left & named))


def _spoiled_by_resume(found: Evidence) -> Support:
    return proves(found.flag("bad_body") & found.flag("resumed"))


def _no_room(found: Evidence) -> Support:
    """The check is stopped at a half message that it cannot put back; those behind it are never checked."""
    is_stopped = found.of_store(lambda one: one.stop is not None and one.stop.lacks_room)
    return proves(found.flag("never_asked") & found.half_topic & is_stopped)


def _in_light_queue(found: Evidence) -> Support:
    shown: Bools = np.zeros(found.count, np.bool_)
    for number, one in enumerate(found.stores.values()):
        if len(one.light_halves):
            copies = found.copies
            shown |= found.any_of(copies, (copies.store == number) & np.isin(copies.offset, one.light_halves))
    return proves(shown)


def _cursors_unreadable(found: Evidence) -> Support:
    """Only the cursor decides it, and neither the file of cursors nor its backup can be parsed."""
    return proves(found.reason("cursor_unknown") & found.of_store(lambda one: one.are_cursors_damaged))


def _check_ended(found: Evidence) -> Support:
    """The check does not reach what it can read, although its broker runs: records do not show why."""
    return fits((found.flag("stalled") | found.flag("never_checked")) & found.half_topic)


CAUSES = (
    Cause(
        "ops-lost-in-memory", "the broker was killed with op messages in its memory",
        affected=(Change(OP_LISTS.what, f"{OP_LISTS.source}; #5386", since=OP_LISTS.since),),
        rule=_lost_at_kill,
        consequence="a commit of the last seconds is checked again, and delivered twice if the producer answers "
        "COMMIT; a rollback of that time has left no trace and appears undecided",
        act="rmqtx close ID -n HOST:PORT ends the checks of a commit; before a commit by hand look up the outcome in "
        "the application",
        change="a lower transactionOpBatchInterval makes the window shorter, at an orderly stop too",
        shown_by=("killed-5.1.4", "killed-5.3.3", "killed-5.5.0", "opslost-5.3.3", "rollbackslost-5.3.3"),
        decides="the producer's log: its decisions of the last seconds before the kill",
        rivals=("ops-lost-at-stop", "op-write-failed"),
    ),
    Cause(
        "ops-lost-at-stop", "the broker was stopped in order with op messages in its memory, and did not write them",
        affected=(OPS_LOST_AT_STOP,),
        rule=_lost_at_stop,
        consequence="after the next start commits of the last seconds are checked again, and delivered twice if the "
        "producer answers COMMIT; rollbacks of that time have left no trace and appear undecided",
        act="rmqtx close ID -n HOST:PORT ends the checks of a commit; before a commit by hand look up the outcome in "
        "the application",
        change="before a stop: rmqtx drain; or stop the producers and wait for twice transactionOpBatchInterval",
        shown_by=("lmqhalf-5.5.0",),
        decides="the broker's log: how it stopped after this decision",
        rivals=("ops-lost-in-memory", "op-write-failed"),
    ),
    Cause(
        "op-write-failed", "the broker took op messages from its memory and could not write them",
        affected=(Change(
            "an op message that could not be written is dropped", f"{_CHECK} batchSendOpMessage; seen on 5.5.0",
            since=OP_LISTS.since,
        ),),
        rule=_not_written,
        consequence="committed transactions are checked again, and delivered twice if the producer answers COMMIT; "
        "rollbacks appear undecided",
        act="rmqtx close ID -n HOST:PORT ends the checks of a commit; before a commit by hand look up the outcome in "
        "the application",
        change="keep the disk below diskSpaceWarningLevelRatio; do not make a master that takes decisions a slave",
        shown_by=(),
        decides="the broker's log: --broker-logs DIR; \"Transaction batch op message write failed\"",
        shows_in=(FILES, BROKER_LOG),
        rivals=("ops-lost-in-memory", "ops-lost-at-stop"),
    ),
    Cause(
        "op-unreadable-exception", "the check ends each round with an exception at op messages that it cannot read",
        affected=(UNREADABLE_OP_IS_NULL, NO_OP_IS_NO_LIST),
        rule=_stopped_at_op,
        consequence="no transaction behind it is checked or discarded, and what the round writes before the exception "
        "is written again in each round; from 5.1.0 on the next readable op message ends the stop",
        act="rmqtx pending STORE: the place and the commands; rmqtx cursor set --op N skips the op message",
        change="no release corrects it; replace the disk or file system that damaged the log",
        shown_by=(),
        decides="whether the op message that cannot be read settles it: the application's own data",
    ),
    Cause(
        "discarded-before-op-read", "the broker discarded it before it read the op message of its decision",
        affected=(Change(
            "the check discards at its last check before it reads more than 32 op messages", f"{_CHECK} check; #8311; "
            "seen on 4.9.7", since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_discarded_before_op,
        consequence="the discard topic has a copy of a transaction that was committed or rolled back: settling it by "
        "hand would decide it twice",
        act="rmqtx show ID --store STORE: its decision; do not settle the discarded copy",
        change="raise transactionCheckMax, so that the decision comes before the last check",
        shown_by=("discards-4.9.7",),
        decides="the broker's log: whether the cursors went back between its decision and its discard",
        rivals=("cursor-went-back", "op-cursor-jumped"),
    ),
    Cause(
        "op-names-another-slot",
        "its half message is in another slot of the half queue than its number, and the op message names the number",
        affected=(Change(
            "a half message gets its number before its slot: a start, or a refused half message (5.0.0, 5.1.0), moves "
            "them apart", "docs/formats/half_and_op.md#numbers; seen on 5.0.0, 5.1.0 and 5.3.3",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_op_of_another_slot,
        consequence="the check asks about the decided transaction again, and skips the half message in the slot with "
        "that number: that one is lost without a decision",
        act="rmqtx audit STORE --where 'flags = masked': the half messages that are hidden; rmqtx close ID -n "
        "HOST:PORT ends the checks of this one",
        change="upgrade to 5.1.1 or later, which give a refused half message no number; start 5.0.0 or 5.1.0 again: "
        "the next half messages are in their slots",
        shown_by=(),
    ),
    Cause(
        "resume-spoils-compressed",
        "a resume wrote a compressed message with a decompressed body and the flag for compression",
        affected=(Change(
            RESUME_BREAKS_COMPRESSED.what, f"{RESUME_BREAKS_COMPRESSED.source}; #9015", since=RESUME_REQUEST.since,
            until=RESUME_BREAKS_COMPRESSED.until,
        ),),
        rule=_spoiled_by_resume,
        consequence="the producer cannot read the check and never answers it; the broker discards the message again; "
        "consumers cannot read it, if that copy is committed",
        act="rmqtx show ID --store STORE: the first copy still has the readable body; rmqtx commit ID names it",
        change=f"do not resume compressed messages, or upgrade to 5.3.2 or later; {SLAVE_NOTE}",
        shown_by=("discards-4.9.7",),
        rivals=("check-spoils-compressed",),
    ),
    Cause(
        "no-room-for-check",
        "the check cannot put a half message back: its properties leave no room for those of the check",
        affected=(Change(
            "a half message that cannot be put back is tried again until the round ends, in every round",
            "broker/transaction/queue/TransactionalMessageServiceImpl.java check; seen on 5.5.0",
            since=HALF_TOPIC_DESIGN.since,
        ),),
        rule=_no_room,
        consequence="neither it nor the half messages behind it are ever checked or discarded; the thread of the check "
        "uses a processor for a minute in each round",
        act="rmqtx pending STORE: the place and the commands; decide it and those behind it: rmqtx plan",
        change="keep the properties of transactional messages below 32,000 bytes",
        shown_by=("noroom-5.5.0",),
    ),
    Cause(
        "light-queue-shows-half", "consumers of light queues received the half message before it was decided",
        affected=(Change(
            "a half message with INNER_MULTI_DISPATCH is in its light queues when it is stored",
            "store/queue/MultiDispatchUtils.java; #6795; seen on 5.5.0", since=LIGHT_CURSORS_WRITTEN.since,
        ),),
        rule=_in_light_queue,
        fits_uneventful=True,
        consequence="they read uncommitted data, also of transactions that are rolled back later; a commit delivers it "
        "to them once more",
        act="rmqtx audit STORE: its state; withdraw what consumers of light queues did with undecided messages",
        change="do not set INNER_MULTI_DISPATCH on transactional messages, or set enableMultiDispatch=false",
        shown_by=("lmqhalf-5.5.0",),
    ),
    Cause(
        "check-thread-ended", "the thread of the check ended or waits without limit, and the broker runs without it",
        affected=(ERROR_ENDS_CHECK, CHECK_WAITS_FOR_PUT),
        rule=_check_ended,
        consequence="no producer is asked and nothing is discarded until the broker starts again",
        act="jstack PID, for a thread TransactionalMessageCheckService: if it is missing, or waits in putMessage, "
        "start the broker again",
        change="upgrade to 4.7.0 or later, and not to 4.9.1 or 4.9.2",
        shown_by=(),
        decides="a thread dump of the broker; other reasons are a slave, a replica that is missing, a full disk",
    ),
    Cause(
        "cursors-unreadable",
        "config/consumerOffset.json and its backup are empty or half written: the cursors of the check are lost",
        affected=(Change(
            "a power loss or a kill may interrupt the writing of a file in config/ and of its backup",
            "common/MixAll.java string2File; #9412, #9705, #9706; seen on 5.4.0",
        ),),
        rule=_cursors_unreadable,
        consequence="the next start begins at the first half message that exists: discarded transactions, and copies "
        "that the check had put back, are checked again",
        act="before the broker starts, restore the file from a backup of config/; rmqtx simulate STORE --half-cursor 0 "
        "--op-cursor 0 shows what the check does without it",
        change="keep a copy of config/; upgrade to 5.3.4 or later, which sync these files to the disk; "
        f"{SLAVE_NOTE}",
        shown_by=(),
    ),
)

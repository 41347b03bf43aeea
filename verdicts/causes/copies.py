"""Causes in half copies (spoiled by a resume, no room, in light queues) and in the cursors of the check."""

from __future__ import annotations

import numpy as np

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.releases import (
    CHECK_WAITS_FOR_PUT,
    ERROR_ENDS_CHECK,
    HALF_TOPIC_DESIGN,
    LIGHT_CURSORS_WRITTEN,
    RESUME_BREAKS_COMPRESSED,
    RESUME_REQUEST,
    Change,
)
from rmqtx.verdicts.causes.cause import SLAVE_NOTE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence


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

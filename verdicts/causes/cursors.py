"""Causes in the cursors of the check: cursors that no longer move, files that a power loss left unreadable."""

from __future__ import annotations

from rmqtx.readers.model.releases import CHECK_WAITS_FOR_PUT, ERROR_ENDS_CHECK, Change
from rmqtx.verdicts.causes.cause import SLAVE_NOTE, Cause, Support, fits, proves
from rmqtx.verdicts.causes.evidence import Evidence


def _cursors_unreadable(found: Evidence) -> Support:
    """Only the cursor decides it, and neither the file of cursors nor its backup can be parsed."""
    return proves(found.reason("cursor_unknown") & found.of_store(lambda one: one.are_cursors_damaged))


def _check_ended(found: Evidence) -> Support:
    """The check does not reach what it can read, although its broker runs: records do not show why."""
    return fits((found.flag("stalled") | found.flag("never_checked")) & found.half_topic)


CAUSES = (
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

"""Causes in the cursors of the check: files that a power loss left empty or half written."""

from __future__ import annotations

from readers.model.releases import CURSORS_NOT_SYNCED
from verdicts.causes.cause import Cause, Support, proves
from verdicts.causes.evidence import Evidence


def _cursors_unreadable(found: Evidence) -> Support:
    """Only the cursor decides it, and neither the file of cursors nor its backup can be parsed."""
    return proves(found.reason("cursor_unknown") & found.of_store(lambda one: one.are_cursors_damaged))


CAUSES = (
    Cause(
        "cursors-unreadable",
        "config/consumerOffset.json and its backup are empty or half written: the cursors of the check are lost",
        affected=(CURSORS_NOT_SYNCED,),
        rule=_cursors_unreadable,
        consequence="the next start begins at the first half message that exists: discarded transactions, and copies "
        "that the check had put back, are checked again",
        act="before the broker starts: rmqtx cursor set --half N --store STORE --to COPY, or restore the file from a "
        "backup; rmqtx simulate STORE shows what the check would do",
        change="upgrade to 5.3.4 or later; keep a copy of config/",
        shown_by=(),
    ),
)

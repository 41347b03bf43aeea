"""Texts of findings for stores before 4.3: they have no half messages, no op messages and no cursors of the check."""

from __future__ import annotations

from dataclasses import dataclass

_REBUILD = "rmqtx rebuild queues writes the queues again, in a copy of the store"


@dataclass(frozen=True, slots=True)
class OldTexts:
    """Texts that replace those of a kind. None: the text of the kind is right for these stores too."""

    title: str | None = None
    meaning: str | None = None
    advice: str | None = None


#: For stores whose transactions are all prepared records.
OF_PREPARED: dict[str, OldTexts] = {
    "config-missing": OldTexts(
        meaning="the cursors of the consumer groups are unknown; no state of a transaction depends on them",
        advice="add the store's config/consumerOffset.json",
    ),
    "config-backup": OldTexts(
        meaning="what was changed in the last persist interval (5 s) is missing; no state of a transaction depends on "
        "it",
    ),
    "copy-lacks-pending": OldTexts(
        meaning="a failover to this copy loses them: their prepared records were not copied, or the log of the copy "
        "begins later",
    ),
    "end-names-nothing": OldTexts(
        title="a COMMIT or ROLLBACK record whose reference leads to no prepared record of its transaction"
    ),
    "half-unreadable": OldTexts(
        title="a prepared record whose properties cannot be read", meaning="its group, topic and keys may be unknown"
    ),
    "slot-missing": OldTexts(meaning="no consumer receives it"),
    "start-empties-queues": OldTexts(meaning="consumers receive none of the messages"),
    "start-shifts": OldTexts(meaning="the cursors of consumer groups lead to other messages than before"),
    "start-skips": OldTexts(meaning="no consumer receives them", advice=_REBUILD),
}

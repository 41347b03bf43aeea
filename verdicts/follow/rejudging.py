"""Which transactions an audit that follows must judge again though no new witness of them was written.

A verdict depends on the transaction's own witnesses and on the `StoreView`. Those with a new witness are judged again
anyway. When only the view has changed, these can come out otherwise (the rules are in `judge.py`):

- the reference time moved: PENDING only; stalled, never_checked, immune and expires_soon are asked of no other; and
  those that may be decided, for the window in which ops were in memory moves with it;
- the clock alone moved, which it does at every step: immunity and fileReservedTime alone are measured by it: those
  that are immune, and those that came near fileReservedTime since; all that are PENDING where it was set back;
- a check cursor moved: those with a copy at or behind the lower one of where it was and is (`is_before_per_copy`: the
  state PENDING, and the flag open_after_decision of those that are decided or discarded), and all that are PENDING,
  LOST or UNDECIDABLE, for their reason says the cursor;
- the op cursor moved: of copies before the half cursor nothing is asked any more, so the same;
- a decision on a record outside the half topic became known or unreadable: those with a copy of that queue offset;
- settings, missing bytes, ends and ids that name nothing, the limit that spent checks are measured by, whether the
  log's begin is gone, what tables beside the log say, or where the check is stopped: all.

Of two views of which one is not known, all are unsettled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from verdicts.follow.checkpoint_db import FollowDatabase
from verdicts.model.verdict_inputs import StoreView
from verdicts.transactions.flags import EXPIRES_SOON_MS

_CHANGES_ALL = ("settings", "missing", "doubtful_ends", "doubtful_ids", "checks_limit", "begins_later", "beside",
                "check_stops")
_UNSETTLED_STATES = "('PENDING', 'LOST', 'UNDECIDABLE')"


def view_words(view: StoreView) -> dict[str, Any]:
    """What a verdict can depend on in a view, as JSON keeps it."""
    settings = view.settings
    # What was seen counts only where a version writes no copies of what it discards, and nobody said the limit.
    is_measured = settings.writes_discard_copy is not True and not settings.check_max_is_configured
    words = {
        "settings": {**asdict(settings), "origin": dict(settings.origin)},
        "half_cursors": view.half_cursors,
        "op_cursors": view.op_cursors,
        "reference_time_ms": view.reference_time_ms,
        "now_ms": view.now_ms,
        "begins_later": view.log_begin_offset > 0,
        "checks_limit": min(settings.transaction_check_max, view.checks_seen_max) if is_measured else None,
        "beside": [view.is_interrupted, view.was_killed, view.beside.digest()],
        "missing": [asdict(missing) for missing in view.missing],
        "doubtful_ends": [asdict(end) for end in view.doubtful_ends],
        "doubtful_ids": [asdict(one) for one in view.doubtful_ids],
        "check_stops": [asdict(stop) for stop in view.check_stops],
        "foreign": [asdict(decision) for decision in view.foreign_decisions],
    }
    given: dict[str, Any] = json.loads(json.dumps(words))
    return given


def mark_unsettled(database: FollowDatabase, number: int, before: dict[str, Any] | None, now: dict[str, Any]) -> None:
    """Have those transactions judged again that a store's new view can concern."""
    if before is None or any(before.get(name) != now[name] for name in _CHANGES_ALL):
        database.mark_all_unjudged()
        return
    if (before["half_cursors"], before["op_cursors"]) != (now["half_cursors"], now["op_cursors"]):
        _mark_states(database, _UNSETTLED_STATES)
        _mark_behind_cursors(database, number, before["half_cursors"], now["half_cursors"])
    elif before["reference_time_ms"] != now["reference_time_ms"] or _is_earlier(before.get("now_ms"), now["now_ms"]):
        _mark_states(database, "('PENDING')")
    else:
        _mark_flagged(database, "immune")
        _mark_expiring(database, before["now_ms"], now)
    if before["reference_time_ms"] != now["reference_time_ms"]:
        _mark_flagged(database, "may_be_decided")
    old, new = ({json.dumps(entry) for entry in words["foreign"]} for words in (before, now))
    for entry in old ^ new:
        database.connection.execute(
            "INSERT OR IGNORE INTO unjudged SELECT hash FROM halves INDEXED BY halves_by_queue_offset "
            "WHERE store = ? AND queue_offset = ?",
            (number, json.loads(entry)["queue_offset"]),
        )


def _mark_states(database: FollowDatabase, states: str) -> None:
    database.connection.execute(f"INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts WHERE state IN {states}")


def _mark_flagged(database: FollowDatabase, flag: str) -> None:
    database.connection.execute(
        "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts WHERE ',' || flags || ',' LIKE ?", (f"%,{flag},%",)
    )


def _mark_expiring(database: FollowDatabase, before_ms: int, now: Mapping[str, Any]) -> None:
    """Those whose time until `expires_soon` ended since the step before."""
    allowed_ms = now["settings"]["file_reserved_time_hours"] * 3_600_000 - EXPIRES_SOON_MS
    database.connection.execute(
        "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts "
        "WHERE state = 'PENDING' AND born_time_ms BETWEEN ? AND ?",
        (before_ms - allowed_ms, now["now_ms"] - allowed_ms),
    )


def _is_earlier(before: int | None, now: int | None) -> bool:
    """Whether a clock was set back, or one of the two times is not known."""
    return before is None or now is None or now < before


def _mark_behind_cursors(
    database: FollowDatabase, number: int, before: Mapping[str, int] | None, now: Mapping[str, int] | None
) -> None:
    if before is None or now is None:
        database.mark_all_unjudged()
        return
    for queue in before.keys() | now.keys():  # without an entry the verdict takes 0
        lowest = min(before.get(queue, 0), now.get(queue, 0))
        database.connection.execute(
            "INSERT OR IGNORE INTO unjudged SELECT hash FROM halves INDEXED BY halves_by_queue_offset "
            "WHERE store = ? AND queue_offset >= ? AND queue_id = ?",
            (number, lowest, int(queue)),
        )

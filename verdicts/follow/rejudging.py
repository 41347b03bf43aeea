"""Which transactions a following audit must judge again although they have no new witness.

A verdict depends on the transaction's own witnesses and on the `StoreView`. Transactions with a new witness are always
judged again. If only the view has changed, these verdicts can change (the rules are in `verdicts/transactions`):

- the reference time moved: PENDING, because only they can be stalled, never_checked, immune or expires_soon; and
  may_be_decided, because the time window of ops in memory moves too;
- only the clock moved, as at every step: immunity and fileReservedTime depend on it: transactions that are immune, or
  came close to fileReservedTime since, or became older; if the clock was set back, all PENDING ones;
- the future changed, that is what the check does next with any half copy: PENDING, LOST and UNDECIDABLE ones, those
  that the broker checks again, and those with a copy at or after the check cursor: a decision counts for the check only
  if a slot leads to its op message;
- a check cursor moved: transactions with a copy at or after the lower one of old and new cursor (`is_ahead`: the state
  PENDING, and the flag open_after_decision of decided or discarded ones), and all PENDING, LOST or
  UNDECIDABLE ones, because their reason contains the cursor;
- the op cursor moved: the same, because copies before the half cursor are not checked;
- a decision on a record outside the half topic became known or unreadable: transactions with a copy of that queue
  offset;
- rmqtx redelivered a transaction, or the log lost the copy: that transaction;
- the facts changed that rules of causes read (`evidence_words`): those whose causes can depend on the changed fact;
- settings, missing bytes, ends and ids that name nothing, the limit for used-up checks, the loss of the log's
  beginning, tables beside the log, the place at which the check is stopped, or which stores have one log: all.

If one of two views is unknown, all are judged again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from rmqtx.readers.model.identities import identity_hashes
from rmqtx.readers.store.broker_settings import reserved_time_ms
from rmqtx.verdicts.follow.checkpoint_db import FollowDatabase, signed
from rmqtx.verdicts.model.marked_copies import MarkedCopy
from rmqtx.verdicts.model.store_evidence import StoreEvidence
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.transactions.flags import EXPIRES_SOON_MS

_CHANGES_ALL = ("settings", "missing", "doubtful_ends", "doubtful_ids", "checks_limit", "begins_later", "beside",
                "check_stops", "half_numbers", "log")
_UNSETTLED_STATES = "('PENDING', 'LOST', 'UNDECIDABLE')"


def view_words(view: StoreView, evidence: StoreEvidence, copies: Iterable[tuple[str, MarkedCopy]]) -> dict[str, Any]:
    """Return the values of a view, of the facts for causes, and of redelivered copies that a verdict can depend on,
    for JSON.
    """
    settings = view.settings
    # The highest number of checks counts only if the version writes no discard copies and the limit is unknown.
    is_measured = settings.checks_show_limit
    words = {
        "settings": {**asdict(settings), "origin": dict(settings.origin)},
        "half_cursors": view.half_cursors,
        "op_cursors": view.op_cursors,
        "reference_time_ms": view.reference_time_ms,
        "now_ms": view.now_ms,
        "begins_later": view.log_begin_offset > 0,
        "checks_limit": min(settings.transaction_check_max, view.checks_seen_max) if is_measured else None,
        "beside": [view.is_interrupted, view.killed_time_ms is not None, view.beside.digest()],
        "missing": [asdict(missing) for missing in view.missing],
        "doubtful_ends": [asdict(end) for end in view.doubtful_ends],
        "doubtful_ids": [asdict(one) for one in view.doubtful_ids],
        "check_stops": [asdict(stop) for stop in view.check_stops],
        "future": None if view.future is None else view.future.digest(),
        "half_numbers": view.half_numbers.digest(),
        "log": view.log,
        "foreign": [asdict(decision) for decision in view.misdirected_decisions],
        "evidence": evidence_words(evidence),
        "copies": sorted({identity for identity, _ in copies}),
    }
    given: dict[str, Any] = json.loads(json.dumps(words))
    return given


def evidence_words(one: StoreEvidence) -> dict[str, Any]:
    """Return the facts of a store that only causes depend on, for JSON; the others are in `settings`, `check_stops`."""
    return {
        "all": [
            one.first_op_offset, one.was_killed, one.was_stopped, one.are_cursors_damaged, one.has_proxy,
            sorted(one.read), one.topics is None,
        ],
        "last_op_offset": one.last_op_offset,
        "topics": [sorted(one.topics or ()), sorted(one.topics_without_group)],
        "light_halves": one.light_halves.tolist(),
        "traced_until": None if one.traces is None else one.traces.until_offset,
    }


def mark_unsettled(database: FollowDatabase, number: int, before: dict[str, Any] | None, now: dict[str, Any]) -> None:
    """Mark the transactions that a store's new view can affect, to be judged again."""
    if before is None or any(before.get(name) != now[name] for name in _CHANGES_ALL):
        database.mark_all_unjudged()
        return
    _mark_causes(database, number, before["evidence"], now["evidence"])
    if copied := {*before["copies"]} ^ {*now["copies"]}:
        database.mark_unjudged(set(signed(identity_hashes(pa.array(sorted(copied), pa.string())))))
    if (before["half_cursors"], before["op_cursors"]) != (now["half_cursors"], now["op_cursors"]):
        _mark_states(database, _UNSETTLED_STATES)
        _mark_behind_cursors(database, number, before["half_cursors"], now["half_cursors"])
    elif before["reference_time_ms"] != now["reference_time_ms"] or _is_earlier(before.get("now_ms"), now["now_ms"]):
        _mark_states(database, "('PENDING')")
    else:
        _mark_flagged(database, "immune")
        _mark_expiring(database, before["now_ms"], now)
    if before["future"] != now["future"]:
        _mark_states(database, _UNSETTLED_STATES)
        database.connection.execute(
            "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts WHERE advice IN ('close', 'wait')"
        )
        _mark_behind_cursors(database, number, before["half_cursors"], now["half_cursors"])
    if not _is_earlier(before.get("now_ms"), now["now_ms"]):
        _mark_too_old(database, before["now_ms"], now)
    if before["reference_time_ms"] != now["reference_time_ms"]:
        _mark_flagged(database, "may_be_decided")
    old, new = ({json.dumps(entry) for entry in words["foreign"]} for words in (before, now))
    for entry in old ^ new:
        database.connection.execute(
            "INSERT OR IGNORE INTO unjudged SELECT hash FROM halves INDEXED BY halves_by_queue_offset "
            "WHERE store = ? AND queue_offset = ?",
            (number, json.loads(entry)["queue_offset"]),
        )


def _mark_causes(
    database: FollowDatabase, number: int, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Mark those whose causes can change with facts of their store, or of a store with a copy of its log."""
    run = database.connection.execute
    if before["all"] != now["all"]:
        database.mark_all_unjudged()
        return
    if before["last_op_offset"] != now["last_op_offset"]:
        _mark_flagged(database, "commit_without_op")
        _mark_flagged(database, "discarded_though_decided")
    if before["traced_until"] != now["traced_until"]:
        run(
            "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts "
            "WHERE state IN ('PENDING', 'DISCARDED') AND op_marks_count = 0 AND final_records_count = 0"
        )
    for old, new in zip(before["topics"], now["topics"], strict=True):
        for topic in set(old) ^ set(new):
            run("INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts WHERE topic = ?", (topic,))
    for offset in set(before["light_halves"]) ^ set(now["light_halves"]):
        for table in ("halves", "damaged_halves"):
            run(
                f"INSERT OR IGNORE INTO unjudged SELECT hash FROM {table} WHERE store = ? AND commit_log_offset = ?",
                (number, offset),
            )


def _mark_states(database: FollowDatabase, states: str) -> None:
    database.connection.execute(f"INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts WHERE state IN {states}")


def _mark_flagged(database: FollowDatabase, flag: str) -> None:
    database.connection.execute(
        "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts WHERE ',' || flags || ',' LIKE ?", (f"%,{flag},%",)
    )


def _mark_expiring(database: FollowDatabase, before_ms: int, now: Mapping[str, Any]) -> None:
    """Mark those that reached `expires_soon` since the step before."""
    allowed_ms = reserved_time_ms(now["settings"]["file_reserved_time_hours"]) - EXPIRES_SOON_MS
    database.connection.execute(
        "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts "
        "WHERE state = 'PENDING' AND born_time_ms BETWEEN ? AND ?",
        (before_ms - allowed_ms, now["now_ms"] - allowed_ms),
    )


def _mark_too_old(database: FollowDatabase, before_ms: int, now: Mapping[str, Any]) -> None:
    """Mark those that became older than fileReservedTime since the step before: a resume of them is of no use now."""
    reserved_ms = reserved_time_ms(now["settings"]["file_reserved_time_hours"])
    lead_ms = now["settings"]["transaction_check_interval_ms"]
    database.connection.execute(
        "INSERT OR IGNORE INTO unjudged SELECT hash FROM verdicts "
        "WHERE state IN ('PENDING', 'DISCARDED', 'LOST') AND born_time_ms BETWEEN ? AND ?",
        (before_ms - reserved_ms, now["now_ms"] + lead_ms - reserved_ms),
    )


def _is_earlier(before: int | None, now: int | None) -> bool:
    """Whether a clock was set back, or one of the two times is unknown."""
    return before is None or now is None or now < before


def _mark_behind_cursors(
    database: FollowDatabase, number: int, before: Mapping[str, int] | None, now: Mapping[str, int] | None
) -> None:
    if before is None or now is None:
        database.mark_all_unjudged()
        return
    for queue in before.keys() | now.keys():  # without an entry the verdict uses 0
        lowest = min(before.get(queue, 0), now.get(queue, 0))
        database.connection.execute(
            "INSERT OR IGNORE INTO unjudged SELECT hash FROM halves INDEXED BY halves_by_queue_offset "
            "WHERE store = ? AND queue_offset >= ? AND queue_id = ?",
            (number, lowest, int(queue)),
        )

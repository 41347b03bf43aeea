"""The one future of a store: what its next start and its check do next with each half copy.

By the rules of the simulation (`half_queue_check.py`, `timers_without_copies.py`): no producer answers or sends, and
the settings do not change. It begins with the start where the broker is stopped (`check_window`). Rounds begin when the
broker's own do: a running broker begins the next round one interval after the last copy that it put back; a stopped
broker is assumed to start at the moment of reading, and begins its first round one interval later (its check of RocksDB
begins at once). So the times of a stopped broker's store move with the clock until the broker starts.

Source: broker/transaction/TransactionalMessageCheckService.java run, onWaitEnd; docs/formats/half_and_op.md#check,
docs/formats/rocksdb_transactions.md#check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqtx.readers.cursors import CheckCursors
from rmqtx.readers.log.designs import HALF_TOPIC_DESIGN, PREPARED_RECORDS, ROCKSDB, STATE_TABLE, designs_of
from rmqtx.readers.log.record_layout import PROPERTIES_BYTES_MAX
from rmqtx.readers.model.columns import Bools, Int64s, no_numbers
from rmqtx.readers.model.errors import FileChanged, MissingLibrary, SourceError, UnreadableFile
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.releases import ALWAYS, PREPARED_NOT_CHECKED, Version, dotted
from rmqtx.readers.queues.unit_files import unreadable
from rmqtx.readers.rocksdb.database_slots import UnknownSlots
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.check.check_rules import (
    CheckRules,
    CheckSettings,
    Stop,
    check_rules,
    check_settings,
    is_stored_since,
    is_waited_for,
    supposed_version,
    wait_for_ops_ms,
)
from rmqtx.verdicts.check.check_stops import stopping_versions
from rmqtx.verdicts.check.slots import half_queues
from rmqtx.verdicts.check.stored_records import ABSENT, StoredHalves, StoredOps
from rmqtx.verdicts.check.window import (
    CheckWindow,
    CheckWindows,
    begins_again,
    last_round_ms,
    next_round_ms,
    refuted_check_max,
)
from rmqtx.verdicts.deadlines.discard_rounds import Discards, OpenHalves, discards_by_round
from rmqtx.verdicts.model.predicted import (
    ASSUMED,
    ASSUMED_SETTINGS,
    ASSUMED_VERSION,
    COPY_ARRAYS,
    DIVERTED,
    ENDLESS,
    NEVER,
    NEVER_ASKED,
    NEVER_DISCARDED,
    NO_CURSOR,
    NOT_BEFORE,
    OUT_OF_REACH,
    PASSED,
    PLAYED_HALVES_MAX,
    READ_EVENTS,
    REFUSED,
    ROCKSDB_QUEUES,
    ROUNDS_MAX,
    SLAVE,
    TOO_MANY,
    UNREAD_LOG,
    Event,
    Prediction,
    Why,
)
from rmqtx.verdicts.model.verdict_inputs import CheckStop
from rmqtx.verdicts.simulation.next_start import differing_starts, refused_by_all, starting_cursors
from rmqtx.verdicts.startup.findings import left_out_findings

if TYPE_CHECKING:
    from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
    from rmqtx.verdicts.simulation.simulation import Outcome, SimulatedCheck

#: What the check may add to the properties of a copy.
_GROWTH_BYTES = 128


def predict_from_files(
    store: Store, settings: BrokerSettings, cursors: CheckCursors, now_ms: int, *,
    windows: CheckWindows | None = None, stops: Sequence[CheckStop] = (),
) -> Prediction:
    """Predict what the next start and the next rounds of a store's broker do.

    Reads the halves and ops after the cursors. `now_ms`: when a stopped broker is assumed to start, and after which a
    running one begins its next round. `windows`: the kept windows of the store. `stops`: where its check is stopped.
    Damage: if the check cannot be played, nothing is predicted, and `why` has the cause; unreadable-file.
    """
    windows = windows or CheckWindows(store, settings.given or {})
    try:
        found = _predict(store, settings, cursors, now_ms, windows, stops)
    except (UnreadableFile, FileChanged) as error:
        unread = unreadable(as_text(error.file or store.root), store.root, error)
        return Prediction(is_running=store.in_use, why=Why(error.message, is_known=False), unread=(unread,))
    except SourceError as error:
        return Prediction(is_running=store.in_use, why=Why(error.message, is_known=False))
    others = _other_futures(store, settings, cursors, now_ms, found, stops)
    if len(others) > 1:
        differing = tuple(f"{dotted(version)}: {one.summary()}" for version, one in others)
        found = replace(_only_skipped_by_all(found, [one for _, one in others]), differing=differing)
    return replace(
        found, assumed=_assumed(store, settings), start_ms=0 if store.in_use else now_ms,
        left_out=() if found.refusals else tuple(left_out_findings(store, settings)),
    )


def _other_futures(
    store: Store, settings: BrokerSettings, cursors: CheckCursors, now_ms: int, predicted: Prediction,
    stops: Sequence[CheckStop],
) -> list[tuple[Version, Prediction]]:
    """Return each future that the possible releases lead to, with a release; few or none if they all lead to one."""
    versions = differing_starts(store, settings, only_refusals=not predicted.is_whole)
    if any(stop.version is not None for stop in stops):  # what stops one release, another one may pass or discard
        versions = sorted({*versions, *stopping_versions(settings)})
    futures: dict[str, tuple[Version, Prediction]] = {}
    for version in versions if len(versions) > 1 else []:
        exactly = replace(settings, version_low=version, version_high=version)
        windows = CheckWindows(store, settings.given or {})
        found = _predict(store, exactly, cursors, now_ms, windows, [])
        futures[found.digest()] = version, found
    return list(futures.values())


def _only_skipped_by_all(found: Prediction, others: Sequence[Prediction]) -> Prediction:
    """Return a prediction in which a half is skipped for good only if it is in each possible future."""
    fillers = {
        queue_id: reduce(np.intersect1d, (one.fillers.get(queue_id, no_numbers()) for one in others), numbers)
        for queue_id, numbers in found.fillers.items()
    }
    skipped = reduce(np.intersect1d, (one.offsets[one.events == Event.SKIPPED] for one in others), found.offsets)
    are_doubtful = (found.events == Event.SKIPPED) & ~np.isin(found.offsets, skipped)
    return replace(found, fillers=fillers, events=np.where(are_doubtful, Event.UNREAD, found.events))


def _assumed(store: Store, settings: BrokerSettings) -> tuple[str, ...]:
    """Return what a prediction assumes without evidence, of ASSUMED."""
    is_assumed = settings.known_version is None
    names = {ASSUMED_SETTINGS: not settings.given, ASSUMED_VERSION: is_assumed, UNREAD_LOG: not store.in_use}
    return tuple(name for name in ASSUMED if names[name])


def _predict(
    store: Store, settings: BrokerSettings, cursors: CheckCursors, now_ms: int, windows: CheckWindows,
    stops: Sequence[CheckStop],
) -> Prediction:
    designs = [seen.word for seen in designs_of(store)]
    why, is_whole = NOT_BEFORE, False
    refusals: list[Finding] = [] if store.in_use else refused_by_all(store, settings)
    if refusals:
        return Prediction(is_running=False, why=REFUSED, refusals=tuple(refusals))
    if STATE_TABLE in designs or PREPARED_RECORDS in designs:
        asks = STATE_TABLE in designs and not PREPARED_NOT_CHECKED.holds(settings.version_low or ALWAYS)
        why = NEVER_DISCARDED if asks else NEVER_ASKED
    parts: list[Prediction] = []
    if ROCKSDB in designs or STATE_TABLE in designs:
        from rmqtx.verdicts.simulation.simulation_without_queue import beside_tables

        conf, is_slave = settings.given or {}, settings.broker_role == "SLAVE"
        checks = beside_tables(store, settings, conf).simulated(
            "as is", settings, conf, now_ms, log_cut=windows.log_cut
        )
        parts += [
            played(one, store.in_use) if one.file is None else _of_timer(one, store.in_use) for one in checks
            if one.file is None or not is_slave  # a slave's timers check nothing
        ]
    if HALF_TOPIC_DESIGN not in designs:
        pass
    elif cursors.half is None or cursors.op is None:
        why = NO_CURSOR
    elif settings.broker_role == "SLAVE":
        why = SLAVE
    else:
        version = supposed_version(settings, stops)[0]
        started = cursors if store.in_use else starting_cursors(store, cursors, version, settings.given or {})[0]
        rules, is_whole = check_rules(version), True
        for queue_id in half_queues(store):
            half, op = (started.half or {}).get(queue_id), (started.op or {}).get(queue_id)
            try:
                window = windows.take(rules, queue_id, half, op)
            except (UnknownSlots, MissingLibrary):  # only of queues in RocksDB
                why, is_whole = ROCKSDB_QUEUES, False
                continue
            part = predict_window(store.root, window, rules, settings, now_ms, is_running=store.in_use)
            if any(stop.is_readable for stop in stops):
                part = standing(part)
            is_whole &= part.is_whole
            parts.append(part)
    return replace(_together(parts, store.in_use, why), is_whole=is_whole, refusals=tuple(refusals))


def standing(part: Prediction) -> Prediction:
    """Return the prediction of a check that does not run, although no message stops it."""
    never = np.full(len(part.offsets), NEVER, np.int64)
    is_ended = part.events == Event.ENDED
    return replace(
        part, events=np.where(is_ended, Event.ENDED, Event.STOPPED), event_times_ms=never, times_ms=never,
        checks_to_come=np.zeros(len(never), np.int64),
        whys=dict.fromkeys(part.offsets[~is_ended].tolist(), OUT_OF_REACH),
    )


def predict_window(
    root: str, window: CheckWindow, rules: CheckRules, settings: BrokerSettings, now_ms: int, *, is_running: bool,
    booted_time_ms: int | None = None,
) -> Prediction:
    """Predict what the check of one half queue does.

    `booted_time_ms`: when a running broker started, if that is known.
    """
    how, state = check_settings(settings), window.state
    halves = window.stored_halves
    begin_ms = now_ms + how.interval_ms
    if is_running:
        begun = [time_ms for time_ms in (last_round_ms(halves), booted_time_ms) if time_ms is not None]
        begin_ms = next_round_ms(max(begun, default=None), how.interval_ms, now_ms)
        window = from_real_cursor(window)
        state, halves = window.state, window.stored_halves
    are_open, is_plain = _open_slots(window, rules)
    # The queues of a running broker are read one after the other: op messages can name half messages that are newer.
    assert isinstance(state.ops, StoredOps)
    is_plain &= is_running or not begins_again(state.ops, state.half_begin, state.half_end, rules)
    rows = halves.rows[are_open]
    offsets = np.asarray(halves.words["commit_log_offset"]).astype(np.int64)
    if not is_plain or (rules.end_is_illegal and _may_leave_ops(halves, are_open, rules, how, begin_ms)):
        if len(rows) > PLAYED_HALVES_MAX:
            return Prediction(is_running, begin_ms, why=TOO_MANY)
        from rmqtx.verdicts.simulation.simulation import Simulated

        found = played(Simulated(root, "as is", window, rules, how, begin_ms), is_running)
    else:
        # A running broker's files have old cursors: ops after them need not be new to its next round.
        has_ops = state.op_begin <= state.op_cursor < state.op_end and (not is_running or booted_time_ms is not None)
        wait_ms = wait_for_ops_ms(rules) if has_ops else 0
        ends = discards_by_round(_halves_of(halves, rows, how), rules, how, begin_ms, wait_ms)
        settled = offsets[halves.rows[~are_open & (halves.rows >= 0)]]
        found = _of_ends(is_running, begin_ms, offsets[rows], ends, settled)
    found = replace(_with_diverted(found, offsets[halves.are_diverted]), is_whole=True)
    if not set(state.reads) <= set(window.fillers.tolist()):  # a damaged slot can be repaired, so nothing is LOST
        found = replace(found, events=np.where(found.events == Event.SKIPPED, Event.UNREAD, found.events))
    found = _without_questions(found, offsets[~window.are_askable])
    new = state.undispatched
    hidden_until = None if new is None or new.maximum < new.log_end else (new.log_end, new.maximum)
    found = replace(
        found, fillers={state.queue_id: window.fillers}, hidden_until=hidden_until, cuts=window.cuts,
        passes_ops=bool(state.op_reads) or window.has_slotless_ops,
    )
    found = _with_unreadable(found, np.setdiff1d(window.slot_offsets, [*offsets, *found.offsets]))
    if (why := refuted_check_max(window, settings)) is not None:
        found = _without_check_max(found, Why(why, is_known=False))
    return found


def _without_check_max(found: Prediction, why: Why) -> Prediction:
    """Return the prediction where transactionCheckMax is not known: nothing is discarded because of its checks."""
    is_spent = found.events == Event.SPENT
    is_left = (found.times_ms != NEVER) & ~found.are_expired
    return replace(
        found, events=np.where(is_spent, Event.UNKNOWN, found.events),
        event_times_ms=np.where(is_spent, NEVER, found.event_times_ms),
        times_ms=np.where(is_left, NEVER, found.times_ms),
        whys={**found.whys, **dict.fromkeys(found.offsets[is_left].tolist(), why)},
    )


def _without_questions(found: Prediction, offsets: Int64s) -> Prediction:
    """Return the prediction with half copies that are put back, but about which no producer is asked."""
    if not len(offsets):
        return found
    are_unasked = np.isin(found.offsets, offsets)
    return replace(
        found, events=np.where(are_unasked & (found.events == Event.ASKED), Event.PUT_BACK, found.events),
        checks_to_come=np.where(are_unasked, 0, found.checks_to_come),
    )


def _with_unreadable(found: Prediction, offsets: Int64s) -> Prediction:
    """Return the prediction with half copies that are in slots, and that the check cannot decode."""
    count = len(offsets)
    never, none = np.full(count, NEVER, np.int64), np.zeros(count, np.bool_)
    more = Prediction(
        offsets=offsets, events=np.full(count, Event.STOPPED, np.int64), event_times_ms=never, times_ms=never,
        checks_to_come=np.zeros(count, np.int64), are_expired=none, may_be_later=none,
    )
    return replace(_together([found, more], found.is_running, found.why), begin_ms=found.begin_ms, is_whole=True)


def from_real_cursor(window: CheckWindow) -> CheckWindow:
    """Return the window from the real place of a running check: cursors are stored only at times, and after a round.

    The check has passed every half that it has put back, and all halves before them.
    """
    halves = window.stored_halves
    slots = np.flatnonzero(halves.rows >= 0)
    rows = halves.rows[slots]
    names = np.asarray(halves.words["transaction_id"].combine_chunks().dictionary_encode().indices)[rows]
    last = np.zeros(int(names.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, names, np.arange(len(slots)))
    is_put_back = halves.numbers["checks_count"][rows][last[names]] != ABSENT
    passed = slots[(last[names] > np.arange(len(slots))) & is_put_back]
    if not len(passed):
        return window
    begin = halves.begin + int(passed.max()) + 1
    left = replace(halves, begin=begin, rows=halves.rows[begin - halves.begin :])
    return replace(window, state=replace(window.state, half_cursor=begin, halves=left))


def _open_slots(window: CheckWindow, rules: CheckRules) -> tuple[Bools, bool]:
    """Return which slots hold halves that no op ends, and whether nothing among them hinders the check."""
    state = window.state
    halves, ops = window.stored_halves, state.ops
    assert isinstance(ops, StoredOps)
    numbers: list[int] = []
    are_ops_plain = True
    for op in ops.ops:
        if op is None or not op.has_body:
            are_ops_plain = False
        elif op.is_tagged and (rules.reads_lists or len(op.numbers) == 1):
            numbers += op.numbers
    slots = np.arange(halves.begin, halves.begin + len(halves.rows))
    are_open: Bools = (halves.rows >= 0) & ~np.isin(slots, np.array(numbers, np.int64))
    rows = halves.rows[are_open]
    lengths, prepared = (halves.numbers[name][rows] for name in ("fixed_properties_bytes", "prepared_queue_offset"))
    is_plain = (
        are_ops_plain
        and state.undispatched is None
        and state.half_cursor <= state.half_end  # a cursor beyond the end is corrected first
        and halves.begin >= state.half_cursor  # else op messages behind the end may move it back to the begin
        and state.is_op_cursor_inside
        and bool(((halves.rows >= 0) | np.isin(slots, list(state.left_out))).all())
        and not state.reads
        and not state.op_reads
        and not halves.numbers["spoils"][rows].any()
        and bool((lengths <= PROPERTIES_BYTES_MAX - _GROWTH_BYTES).all())
        and not np.isin(prepared, np.array([-1, *numbers], np.int64)).any()
    )
    return are_open, is_plain


def _may_leave_ops(
    halves: StoredHalves, are_open: Bools, rules: CheckRules, settings: CheckSettings, begin_ms: int
) -> bool:
    """Whether a round can end before a copy that an op ends, because of a half message that is too young."""
    settled = np.flatnonzero(~are_open & (halves.rows >= 0))
    rows = halves.rows[: settled[-1] if len(settled) else 0]
    rows = rows[are_open[: len(rows)]]
    numbers = halves.numbers
    waits = (numbers["immunity_seconds"][rows] == ABSENT) & is_waited_for(
        begin_ms - numbers["born_time_ms"][rows], settings, rules
    )
    return bool((waits | is_stored_since(numbers["store_time_ms"][rows], begin_ms)).any())


def _halves_of(halves: StoredHalves, rows: Int64s, settings: CheckSettings) -> OpenHalves:
    checks, immunity = halves.numbers["checks_count"][rows], halves.numbers["immunity_seconds"][rows]
    own_ms = np.where(immunity == -1, settings.time_out_ms, np.where(immunity == ABSENT, -1, immunity) * 1_000)
    return OpenHalves(
        born_time_ms=halves.numbers["born_time_ms"][rows],
        store_time_ms=halves.numbers["store_time_ms"][rows],
        checks=np.where(checks == ABSENT, 0, checks),
        is_fresh=checks == ABSENT,
        immunity_ms=np.where(immunity == ABSENT, -1, np.maximum(own_ms, 0)),
    )


def _of_ends(is_running: bool, begin_ms: int, offsets: Int64s, ends: Discards, settled: Int64s) -> Prediction:
    """Return the prediction of open copies, and of `settled` ones, which ops end."""
    count = len(settled)
    never, none = np.full(count, NEVER, np.int64), np.zeros(count, np.bool_)
    every = np.concatenate([offsets, settled])
    found = Prediction(
        is_running, begin_ms, every,
        np.concatenate([ends.event, np.full(count, Event.ENDED, np.int64)]),
        np.concatenate([ends.event_ms, never]),
        np.concatenate([ends.time_ms, never]),
        np.concatenate([ends.checks_to_come, np.zeros(count, np.int64)]),
        np.concatenate([ends.is_expired, none]),
        np.concatenate([ends.may_be_later, none]),
        dict.fromkeys(offsets[ends.time_ms == NEVER].tolist(), ENDLESS),
    )
    return found.chosen(np.argsort(every, kind="stable"))


def played(simulated: SimulatedCheck, is_running: bool) -> Prediction:
    """Predict by playing the check step by step."""
    from rmqtx.verdicts.simulation.simulation import Simulated, outcomes
    from rmqtx.verdicts.simulation.simulation_tables import transaction_rows

    if not isinstance(simulated, Simulated):
        if len(simulated.records) > PLAYED_HALVES_MAX:
            return Prediction(is_running, simulated.begin_ms, why=TOO_MANY)
        return _of_rows(transaction_rows(simulated).to_pylist(), is_running, simulated.begin_ms)
    offsets = np.asarray(simulated.window.words["commit_log_offset"]).astype(np.int64)
    by_place: dict[int, Outcome] = {}
    for row, outcome in outcomes(simulated).items():
        place = int(offsets[row])
        known = by_place.get(place)
        # Two slots may lead to one record: the check does with it what it does first.
        by_place[place] = outcome if known is None or _turn(outcome) < _turn(known) else known
    places = np.array(sorted(by_place), np.int64)
    rows = [by_place[place] for place in places.tolist()]
    why, last, unmet = ENDLESS, simulated.last, Event.UNKNOWN
    if last is not None and last.stop in (Stop.ABORTED, Stop.REFUSED):
        unmet = Event.STOPPED
        place = last.steps[-1].queue_offset if last.steps else last.before.half_cursor
        why = Why(f"every round of the check ends at half queue offset {place}, so the check never discards it")
    return Prediction(
        is_running, simulated.begin_ms, places,
        np.array([unmet if one.event is Event.UNKNOWN else one.event for one in rows], np.int64),
        np.array([one.event_ms for one in rows], np.int64),
        np.array([_discard_ms(one) for one in rows], np.int64),
        np.array([one.checks_to_come_count for one in rows], np.int64),
        np.array([one.end == "expired" for one in rows], np.bool_),
        np.array([one.may_be_a_round_later for one in rows], np.bool_),
        {
            int(place): PASSED if one.end == "skipped" else why
            for place, one in zip(places, rows, strict=True) if _discard_ms(one) == NEVER and not one.is_ended
        },
    )


def _turn(outcome: Outcome) -> tuple[bool, int]:
    """Return a value that is smaller for a half copy that is read, and for one that is read earlier."""
    return outcome.event not in READ_EVENTS, outcome.event_ms


def _discard_ms(outcome: Outcome) -> int:
    return NEVER if outcome.end_ms is None or outcome.end == "skipped" else outcome.end_ms


def _of_rows(rows: list[dict[str, Any]], is_running: bool, begin_ms: int) -> Prediction:
    """Return the prediction for rows of SIMULATED_TRANSACTIONS of a check without put-backs."""
    rows = sorted(rows, key=lambda row: row["commit_log_offset"])

    def times(name: str) -> Int64s:
        return np.array([NEVER if row[name] is None else row[name] for row in rows], np.int64)

    asked, ended = times("next_check_time_ms"), times("end_time_ms")
    return Prediction(
        is_running, begin_ms, times("commit_log_offset"),
        np.where(asked != NEVER, Event.ASKED, np.where(ended != NEVER, Event.DROPPED, Event.UNKNOWN)),
        np.where(asked != NEVER, asked, ended), ended, times("checks_to_come_count"),
        np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_),
        {row["commit_log_offset"]: ENDLESS for row in rows if row["end_time_ms"] is None},
    )


def _of_timer(simulated: BesideSimulated, is_running: bool) -> Prediction:
    """Return the prediction of a timer of 3.0 and 3.1: each run asks about each open record, without an end."""
    records = sorted(simulated.records, key=lambda one: one.commit_log_offset)
    offsets = np.array([one.commit_log_offset for one in records], np.int64)
    are_read = np.array([one.is_readable for one in records], np.bool_)
    are_asked, none = are_read & simulated.is_enabled, np.zeros(len(records), np.bool_)
    never = np.full(len(records), NEVER, np.int64)
    return Prediction(
        is_running, simulated.begin_ms, offsets,
        np.where(are_asked, Event.ASKED, np.where(are_read, Event.STOPPED, Event.UNREAD)).astype(np.int64),
        np.where(are_asked, simulated.begin_ms, never), never, np.where(are_asked, ROUNDS_MAX, 0).astype(np.int64),
        none, none, dict.fromkeys(offsets.tolist(), NEVER_DISCARDED),
    )


def _with_diverted(predicted: Prediction, diverted: Int64s) -> Prediction:
    """Return the prediction with halves whose copies go through another topic: only what happens without a copy."""
    are_unknown = np.isin(predicted.offsets, diverted) & np.isin(predicted.events, (Event.ASKED, Event.PUT_BACK))
    if not are_unknown.any():
        return predicted
    return replace(
        predicted, events=np.where(are_unknown, Event.UNKNOWN, predicted.events),
        event_times_ms=np.where(are_unknown, NEVER, predicted.event_times_ms),
        times_ms=np.where(are_unknown, NEVER, predicted.times_ms),
        checks_to_come=np.where(are_unknown, 0, predicted.checks_to_come),
        whys={**predicted.whys, **dict.fromkeys(predicted.offsets[are_unknown].tolist(), DIVERTED)},
    )


def _together(parts: list[Prediction], is_running: bool, why: Why) -> Prediction:
    """Combine the predictions of several queues and tables."""
    if not parts:
        return Prediction(is_running, why=why)
    reasons = [part.why for part in parts if part.why != NOT_BEFORE]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COPY_ARRAYS}
    found = Prediction(
        is_running, min(part.begin_ms for part in parts), **arrays,
        whys={offset: why for part in parts for offset, why in part.whys.items()},
        why=reasons[0] if reasons else why,
        fillers={queue_id: numbers for part in parts for queue_id, numbers in part.fillers.items()},
        hidden_until=next((part.hidden_until for part in parts if part.hidden_until is not None), None),
        cuts=tuple(cut for part in parts for cut in part.cuts),
        passes_ops=any(part.passes_ops for part in parts),
    )
    return found.chosen(np.argsort(found.offsets, kind="stable"))

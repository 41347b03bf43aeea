"""The deadline of each open transaction: a prediction of when the broker will discard it.

By the rules of the simulation (`half_queue_check.py`, `timers_without_copies.py`): no producer answers or sends, and
the settings do not change. Rounds begin when the broker's own do: a running broker begins the next round one interval
after the last copy that it put back; a stopped broker is assumed to start at the moment of reading, and begins its
first round one interval later (its check of RocksDB begins at once). So the deadline in a stopped broker's store moves
with the clock until the broker starts.

Source: broker/transaction/TransactionalMessageCheckService.java run, onWaitEnd; docs/formats/half_and_op.md#check,
docs/formats/rocksdb_transactions.md#check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from readers.cursors.cursors import CheckCursors
from readers.log.designs import HALF_TOPIC_DESIGN, PREPARED_RECORDS, ROCKSDB, STATE_TABLE, designs_of
from readers.model.columns import Bools, Int64s
from readers.model.errors import SourceError
from readers.model.releases import ALWAYS, PREPARED_NOT_CHECKED
from readers.store.broker_settings import BrokerSettings
from readers.store.store import HALF_TOPIC, Store
from verdicts.check.check_rules import CheckRules, check_rules, supposed_version
from verdicts.check.decisions import wait_for_ops_ms
from verdicts.check.slots import half_queues
from verdicts.check.state import PROPERTIES_BYTES_MAX, check_settings
from verdicts.check.steps import Stop
from verdicts.check.window import ABSENT, CheckWindow, CheckWindows, StoredHalves, StoredOps
from verdicts.deadlines.discard_rounds import NEVER, Discards, OpenHalves, discards_by_round
from verdicts.model.check_stop import CheckStop
from verdicts.model.predicted import (
    DIVERTED,
    ENDLESS,
    NEVER_ASKED,
    NEVER_DISCARDED,
    NO_CURSOR,
    NO_HALF_QUEUE,
    NOT_BEFORE,
    PAST,
    PLAYED_HALVES_MAX,
    ROCKSDB_QUEUES,
    SLAVE,
    TOO_MANY,
    Prediction,
    Why,
)

if TYPE_CHECKING:
    from verdicts.simulation.simulation import SimulatedCheck

#: What the check may add to the properties of a copy.
_GROWTH_BYTES = 128
#: How much later than one interval after the last round the next one may begin. Units: milliseconds.
_LATE_MS_MAX = 1_000


def predict_from_files(
    store: Store, settings: BrokerSettings, cursors: CheckCursors, now_ms: int, at_ms: int | None = None,
    windows: CheckWindows | None = None, stops: Sequence[CheckStop] = (),
) -> Prediction:
    """Predict what the next rounds of a store's broker discard.

    Reads the halves and ops after the cursors. `now_ms`: when a stopped broker is assumed to start, and after which a
    running one begins its next round. `at_ms`: the past time given by the user, if any. `windows`: the kept windows of
    the store. `stops`: where its check is stopped.
    Damage: if the check cannot be played, nothing is predicted, and `why` has the cause.
    """
    if at_ms is not None:
        return Prediction(why=PAST)
    try:
        return _predict(store, settings, cursors, now_ms, windows or CheckWindows(store), stops)
    except SourceError as error:
        return Prediction(is_running=store.in_use, why=Why(error.message, is_known=False))


def _predict(
    store: Store, settings: BrokerSettings, cursors: CheckCursors, now_ms: int, windows: CheckWindows,
    stops: Sequence[CheckStop],
) -> Prediction:
    designs = [seen.word for seen in designs_of(store)]
    why = NOT_BEFORE
    if STATE_TABLE in designs or PREPARED_RECORDS in designs:
        asks = STATE_TABLE in designs and not PREPARED_NOT_CHECKED.holds(settings.version_low or ALWAYS)
        why = NEVER_DISCARDED if asks else NEVER_ASKED
    parts: list[Prediction] = []
    if ROCKSDB in designs:
        from verdicts.simulation.simulation_without_queue import beside_tables

        checks = beside_tables(store, settings, {}).simulated("as is", settings, {}, now_ms)
        parts += [played(one, store.in_use) for one in checks if one.file is None]
    if HALF_TOPIC_DESIGN not in designs:
        pass
    elif store.has_rocksdb_queues:
        why = ROCKSDB_QUEUES
    elif cursors.half is None or cursors.op is None:
        why = NO_CURSOR
    elif settings.broker_role == "SLAVE":
        why = SLAVE
    elif not store.queue_segments(HALF_TOPIC, 0)[0]:
        why = NO_HALF_QUEUE
    else:
        rules = check_rules(supposed_version(settings, stops)[0])
        for queue_id in half_queues(store):
            half, op = cursors.half.get(queue_id), cursors.op.get(queue_id)
            window = windows.take(rules, queue_id, half, op)
            parts.append(
                predict_window(store.root, window, rules, settings, now_ms, is_running=store.in_use)
            )
    return _together(parts, store.in_use, why)


def predict_window(
    root: str, window: CheckWindow, rules: CheckRules, settings: BrokerSettings, now_ms: int, *, is_running: bool,
    booted_time_ms: int | None = None,
) -> Prediction:
    """Predict what the check of one half queue discards.

    `booted_time_ms`: when a running broker started, if that is known.
    """
    how, state = check_settings(settings), window.state
    halves = _stored(window)
    begin_ms = now_ms + how.interval_ms
    if is_running:
        begun = [time_ms for time_ms in (_last_round_ms(halves), booted_time_ms) if time_ms is not None]
        begin_ms = _next_round_ms(max(begun, default=None), how.interval_ms, now_ms)
        window = _from_real_cursor(window)
        state, halves = window.state, _stored(window)
    are_open, is_plain = _open_slots(window, rules)
    rows = halves.rows[are_open]
    offsets = np.asarray(halves.words["commit_log_offset"]).astype(np.int64)
    if not is_plain:
        if len(rows) > PLAYED_HALVES_MAX:
            return Prediction(is_running, begin_ms, why=TOO_MANY)
        from verdicts.simulation.simulation import Simulated

        return _without(played(Simulated(root, "as is", window, rules, how, begin_ms), is_running),
                        offsets[halves.are_diverted])
    # A running broker's files have old cursors: ops after them need not be new to its next round.
    has_ops = state.op_begin <= state.op_cursor < state.op_end and (not is_running or booted_time_ms is not None)
    wait_ms = wait_for_ops_ms(rules) if has_ops else 0
    ends = discards_by_round(_halves_of(halves, rows), rules, how, begin_ms, wait_ms)
    prediction = _of_ends(is_running, begin_ms, offsets[rows], ends)
    return _without(prediction, offsets[halves.are_diverted])


def _stored(window: CheckWindow) -> StoredHalves:
    halves = window.state.halves
    assert isinstance(halves, StoredHalves)
    return halves


def _from_real_cursor(window: CheckWindow) -> CheckWindow:
    """Return the window from the real place of a running check: cursors are stored only at times, and after a round.

    The check has passed every half that it has put back, and all halves before them.
    """
    halves = _stored(window)
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


def _last_round_ms(halves: StoredHalves) -> int | None:
    """Return when the newest copy of the check was put back."""
    made = halves.numbers["checks_count"] != ABSENT
    return int(halves.numbers["store_time_ms"][made].max()) if made.any() else None


def _next_round_ms(last_ms: int | None, interval_ms: int, now_ms: int) -> int:
    """Return when a running broker begins its next round; at once if no earlier round is known.

    A round may have put its copies back since `now_ms`, the moment at which the store was opened.
    """
    interval_ms = max(1, interval_ms)
    if last_ms is None or last_ms > now_ms + interval_ms:
        return now_ms
    late_ms = min(_LATE_MS_MAX, interval_ms // 10)
    rounds = max(1, -(-(now_ms - last_ms - late_ms) // interval_ms))
    return max(now_ms, last_ms + rounds * interval_ms)


def _open_slots(window: CheckWindow, rules: CheckRules) -> tuple[Bools, bool]:
    """Return which slots hold halves that no op ends, and whether nothing among them hinders the check."""
    state = window.state
    halves, ops = _stored(window), state.ops
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
        and bool((halves.rows >= 0).all())
        and not halves.numbers["spoils"][rows].any()
        and bool((lengths <= PROPERTIES_BYTES_MAX - _GROWTH_BYTES).all())
        and not np.isin(prepared, np.array([-1, *numbers], np.int64)).any()
    )
    return are_open, is_plain


def _halves_of(halves: StoredHalves, rows: Int64s) -> OpenHalves:
    checks = halves.numbers["checks_count"][rows]
    return OpenHalves(
        born_time_ms=halves.numbers["born_time_ms"][rows],
        store_time_ms=halves.numbers["store_time_ms"][rows],
        checks=np.where(checks == ABSENT, 0, checks),
        is_fresh=checks == ABSENT,
        has_immunity=halves.numbers["immunity_seconds"][rows] != ABSENT,
    )


def _of_ends(is_running: bool, begin_ms: int, offsets: Int64s, ends: Discards) -> Prediction:
    done = ends.time_ms != NEVER
    order = np.argsort(offsets[done], kind="stable")
    return Prediction(
        is_running, begin_ms, offsets[done][order], ends.time_ms[done][order], ends.checks_to_come[done][order],
        ends.is_expired[done][order], ends.may_be_later[done][order],
        dict.fromkeys(offsets[~done].tolist(), ENDLESS),
    )  # fmt: skip


def played(simulated: SimulatedCheck, is_running: bool) -> Prediction:
    """Predict by playing the check step by step."""
    from verdicts.simulation.simulation import Simulated, transaction_rows
    from verdicts.simulation.simulation_without_queue import BesideSimulated

    if isinstance(simulated, BesideSimulated) and len(simulated.records) > PLAYED_HALVES_MAX:
        return Prediction(is_running, simulated.begin_ms, why=TOO_MANY)
    rows = transaction_rows(simulated).to_pylist()
    done = sorted((row for row in rows if row["end_time_ms"] is not None), key=lambda row: row["commit_log_offset"])
    why = ENDLESS
    last = simulated.last if isinstance(simulated, Simulated) else None
    if last is not None and last.stop in (Stop.ABORTED, Stop.REFUSED):
        place = last.steps[-1].queue_offset if last.steps else last.before.half_cursor
        why = Why(f"every round of the check ends at half queue offset {place}, so the check never discards it")
    return Prediction(
        is_running, simulated.begin_ms,
        np.array([row["commit_log_offset"] for row in done], np.int64),
        np.array([row["end_time_ms"] for row in done], np.int64),
        np.array([row["checks_to_come_count"] for row in done], np.int64),
        np.array([row["end"] == "expired" for row in done], np.bool_),
        np.array([row["may_be_a_round_later"] for row in done], np.bool_),
        {row["commit_log_offset"]: why for row in rows if row["end_time_ms"] is None},
    )  # fmt: skip


def _without(predicted: Prediction, diverted: Int64s) -> Prediction:
    """Return the prediction without diverted halves, whose copies go through another topic."""
    if not len(diverted):
        return predicted
    kept = ~np.isin(predicted.offsets, diverted)
    return replace(
        predicted, offsets=predicted.offsets[kept], times_ms=predicted.times_ms[kept],
        checks_to_come=predicted.checks_to_come[kept], are_expired=predicted.are_expired[kept],
        may_be_later=predicted.may_be_later[kept],
        whys={**predicted.whys, **dict.fromkeys(diverted.tolist(), DIVERTED)},
    )  # fmt: skip


def _together(parts: list[Prediction], is_running: bool, why: Why) -> Prediction:
    """Combine the predictions of several queues and tables."""
    if not parts:
        return Prediction(is_running, why=why)
    offsets = np.concatenate([part.offsets for part in parts])
    order = np.argsort(offsets, kind="stable")
    reasons = [part.why for part in parts if part.why != NOT_BEFORE]
    return Prediction(
        is_running,
        min(part.begin_ms for part in parts),
        offsets[order],
        np.concatenate([part.times_ms for part in parts])[order],
        np.concatenate([part.checks_to_come for part in parts])[order],
        np.concatenate([part.are_expired for part in parts])[order],
        np.concatenate([part.may_be_later for part in parts])[order],
        {offset: why for part in parts for offset, why in part.whys.items()},
        reasons[0] if reasons else why,
    )

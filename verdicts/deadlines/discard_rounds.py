"""What the check does next with each open half of a queue, and when it discards it, calculated for all halves at once:
rounds over columns.

Each round has the same result as in `half_queue_check.py` if nothing hinders the loop: every half can be read, every
copy fits into the store, and no op arrives. Other cases are played step by step (`predicting.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.verdicts.check.check_rules import (
    CheckRules,
    CheckSettings,
    is_expired,
    is_spent,
    is_stored_since,
    is_waited_for,
    is_younger,
    wait_for_ops_ms,
)
from rmqtx.verdicts.model.predicted import NEVER, ROUNDS_MAX, Event


@dataclass(frozen=True, slots=True)
class OpenHalves:
    """The half copies that the check has not reached yet and that no op ends, in the order of their queue.

    Shape: `is_fresh`: the copy has no count of checks yet, and `checks` is 0. `immunity_ms`: its own immunity time, -1
           without one; while it is younger, the check puts it back, which counts as a check, instead of waiting for it.
    Units: epoch milliseconds.
    """

    born_time_ms: Int64s
    store_time_ms: Int64s
    checks: Int64s
    is_fresh: Bools
    immunity_ms: Int64s

    def __len__(self) -> int:
        return len(self.checks)


@dataclass(frozen=True, slots=True)
class Discards:
    """What happens to each of some open halves, and when each is discarded.

    Shape: `time_ms` is NEVER where no round discards it; `checks_to_come` counts the rounds that ask a producer about
           it until then; `is_expired`: because of its age, not because its checks are used up. `may_be_later`: its last
           check is in the same round, so it may happen one round later if the queue lags behind. `event`, `event_ms`:
           what the first round that reaches it does.
    """

    time_ms: Int64s
    checks_to_come: Int64s
    is_expired: Bools
    may_be_later: Bools
    event: Int64s
    event_ms: Int64s


def discards_by_round(
    halves: OpenHalves, rules: CheckRules, settings: CheckSettings, begin_ms: int, wait_ms: int = 0
) -> Discards:
    """Return when open halves are discarded, if a round begins at `begin_ms`.

    Each later round begins one interval after the end of the one before. `wait_ms`: how long the first round waits for
    ops, if there are unread ones.
    """
    count = len(halves)
    ends = np.full(count, NEVER, np.int64)
    asked = np.zeros(count, np.int64)
    event, event_ms = np.full(count, Event.UNKNOWN, np.int64), np.full(count, NEVER, np.int64)
    expiry, later = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    rows: Int64s = np.arange(count)
    stored, checks, fresh = halves.store_time_ms.copy(), halves.checks.copy(), halves.is_fresh.copy()
    now_ms = begin_ms

    def note(some: Int64s, what: Int64s, time_ms: Int64s) -> None:
        is_first = event_ms[some] == NEVER
        event[some] = np.where(is_first, what, event[some])
        event_ms[some] = np.where(is_first, time_ms, event_ms[some])

    rounds = 0
    while len(rows) and rounds < ROUNDS_MAX:
        is_done = bool(is_spent(checks[0], settings) & ~fresh[0])
        idle = 0 if is_done else _idle_rounds(int(stored[0]), int(halves.born_time_ms[rows[0]]), now_ms, settings)
        rounds += 1 + idle
        now_ms += idle * settings.interval_ms
        age = now_ms - halves.born_time_ms[rows]
        expired = is_expired(age, settings.reserved_ms)
        spent = is_spent(checks, settings) & ~fresh
        waits = (halves.immunity_ms[rows] < 0) & is_waited_for(age, settings, rules)
        stops = (is_stored_since(stored, now_ms) | waits) & ~spent & ~expired
        stop = int(np.argmax(stops)) if stops.any() else len(rows)
        gone, kept = (spent | expired)[:stop], ~(spent | expired)[:stop]
        put_back, counted = rows[:stop][kept], checks[:stop][kept] + 1
        immunity = halves.immunity_ms[put_back]
        immune = (immunity >= 0) & is_younger(age[:stop][kept], immunity, rules.age_may_equal)
        asked[put_back[~immune]] += 1
        # The loop waits for ops before it asks the first time, and before it asks about a half that is just old enough.
        waits_for_ops = np.zeros(stop, np.bool_)
        limits = np.where(immunity < 0, settings.time_out_ms, immunity)
        ages = age[:stop][kept]
        is_due = ((ages > limits) | (ages < 0)) & (wait_ms == 0)
        waits_for_ops[np.flatnonzero(kept)[~immune & ~is_due]] = True
        waited_ms = (wait_ms or wait_for_ops_ms(rules)) if waits_for_ops.any() else 0
        wait_ms = 0 if waited_ms else wait_ms
        times = now_ms + waited_ms * (np.cumsum(waits_for_ops) > 0)
        ends[rows[:stop][gone]] = times[gone]
        expiry[rows[:stop][gone & ~spent[:stop]]] = True
        note(rows[:stop][gone], np.where(spent[:stop][gone], Event.SPENT, Event.EXPIRED), times[gone])
        note(put_back, np.where(immune, Event.PUT_BACK, Event.ASKED), times[kept])
        now_ms += waited_ms
        if stop == len(rows):  # the loop continues with the round's own copies, up to the first one with checks left
            own = np.flatnonzero(~is_spent(counted, settings))
            done = int(own[0]) if len(own) else len(counted)
            ends[put_back[:done]] = now_ms
            later[put_back[:done]] = True
            put_back, counted, immunity = put_back[done:], counted[done:], immunity[done:]
        skipped = _quiet_rounds(age, counted, settings) if stop == len(rows) == len(put_back) else 0
        asked[put_back] += _asked_rounds(skipped, age, immunity, rules, settings) if skipped else 0
        rows = np.concatenate([rows[stop:], put_back])
        checks = np.concatenate([checks[stop:], counted + skipped])
        stored = np.concatenate([stored[stop:], np.full(len(put_back), now_ms + skipped * settings.interval_ms)])
        fresh = np.concatenate([fresh[stop:], np.zeros(len(put_back), np.bool_)])
        now_ms += (1 + skipped) * settings.interval_ms
    return Discards(ends, asked, expiry, later, event, event_ms)


def _idle_rounds(stored_ms: int, born_ms: int, now_ms: int, settings: CheckSettings) -> int:
    """Return how many rounds end at the first half, because it was stored after they began: the clock was set back.

    `stored_ms`, `born_ms`: of the first half, which has checks left.
    """
    until_ms = min(stored_ms, born_ms + settings.reserved_ms)
    return min(ROUNDS_MAX, max(0, until_ms - now_ms) // settings.interval_ms)


def _quiet_rounds(age_ms: Int64s, checks: Int64s, settings: CheckSettings) -> int:
    """Return how many of the next rounds only put all halves back once more."""
    to_spend = settings.check_max - int(checks.max()) - 1
    to_expire = (settings.reserved_ms - int(age_ms.max())) // settings.interval_ms - 1
    return max(0, min(to_spend, to_expire)) if int(age_ms.min()) >= settings.time_out_ms else 0


def _asked_rounds(
    rounds: int, age_ms: Int64s, immunity_ms: Int64s, rules: CheckRules, settings: CheckSettings
) -> Int64s:
    """Return in how many of the next quiet rounds a producer is asked: those after the immunity time of the half."""
    left_ms = np.where(immunity_ms < 0, 0, immunity_ms - age_ms)
    immune = left_ms // settings.interval_ms if rules.age_may_equal else -(-left_ms // settings.interval_ms) - 1
    asked: Int64s = rounds - np.clip(immune, 0, rounds)
    return asked

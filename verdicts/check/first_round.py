"""When the next round of a broker's check begins."""

from __future__ import annotations

from rmqtx.verdicts.check.state import CheckSettings
from rmqtx.verdicts.check.stored_records import ABSENT, StoredHalves
from rmqtx.verdicts.check.window import CheckWindow

#: How much later than one interval after the last round the next one may begin. Units: milliseconds.
_LATE_MS_MAX = 1_000


def first_round_ms(window: CheckWindow, settings: CheckSettings, now_ms: int, *, is_running: bool) -> int:
    """Return when the next round of a check begins; a stopped broker is assumed to start at `now_ms`."""
    if not is_running:
        return now_ms + settings.interval_ms
    halves = window.state.halves
    assert isinstance(halves, StoredHalves)
    return next_round_ms(last_round_ms(halves), settings.interval_ms, now_ms)


def last_round_ms(halves: StoredHalves) -> int | None:
    """Return when the newest copy of the check was put back."""
    made = halves.numbers["checks_count"] != ABSENT
    return int(halves.numbers["store_time_ms"][made].max()) if made.any() else None


def next_round_ms(last_ms: int | None, interval_ms: int, now_ms: int) -> int:
    """Return when a running broker begins its next round; at once if no earlier round is known.

    A round may have put its copies back since `now_ms`, the moment at which the store was opened.
    """
    interval_ms = max(1, interval_ms)
    if last_ms is None or last_ms > now_ms + interval_ms:
        return now_ms
    late_ms = min(_LATE_MS_MAX, interval_ms // 10)
    rounds = max(1, -(-(now_ms - last_ms - late_ms) // interval_ms))
    return max(now_ms, last_ms + rounds * interval_ms)

"""The decisions of the check about one half message that no op has ended: the tests of its loop.

They accept the numbers of one half, to play half by half (`half_queue_check.py`), or arrays, to calculate all open
halves of a queue at once (`discard_rounds.py`). A truth is a bool for numbers and an array of bools for arrays.

Source: broker/transaction/queue/TransactionalMessageServiceImpl.java check, needDiscard, needSkip;
docs/formats/half_and_op.md#check, docs/formats/half_and_op.md#discard.
"""

from __future__ import annotations

from typing import Any

from rmqtx.readers.model.columns import Int64s
from rmqtx.verdicts.check.check_rules import CheckRules
from rmqtx.verdicts.check.state import CheckSettings

_SLEEP_WITHOUT_OPS_MS = 1_000
#: `may_equal` of the checks that go through records without copies: of RocksDB, and of the timers before 4.3.
RECORD_AGE_MAY_EQUAL = False
Number = int | Int64s
Truth = Any


def is_spent(checks: Number, settings: CheckSettings) -> Truth:
    """Whether it has had all its checks: the check discards it before any other test (needDiscard)."""
    return checks >= settings.check_max


def is_expired(age_ms: Number, reserved_ms: Number) -> Truth:
    """Whether it was born longer ago than fileReservedTime: the check skips it, which discards it too (needSkip)."""
    return age_ms > reserved_ms


def is_stored_since(store_time_ms: Number, begin_ms: int) -> Truth:
    """Whether it was stored after the round began, as the round's own copies are: the round ends there."""
    return store_time_ms >= begin_ms


def is_younger(age_ms: Number, immunity_ms: Number, may_equal: Truth) -> Truth:
    """Whether it is too young, or still immune. `may_equal`: also at the age that equals the time (`age_may_equal`)."""
    return age_ms < immunity_ms + may_equal  # both are whole milliseconds


def is_waited_for(age_ms: Number, settings: CheckSettings, rules: CheckRules) -> Truth:
    """Whether a half without its own immunity is too young: the round ends there, and all halves after it wait.

    A half from a producer with a clock that is ahead is not too young.
    """
    return (age_ms >= 0) & is_younger(age_ms, settings.time_out_ms, rules.age_may_equal)


def wait_for_ops_ms(rules: CheckRules) -> int:
    """Return how long the loop waits for more ops before it decides without one; almost 0 before 5.1.0."""
    return _SLEEP_WITHOUT_OPS_MS if rules.reads_lists else 1

"""The rules of the broker's check of half messages: what differs between versions, its settings, the tests of its loop.

The tests are about one half message that no op has ended. They accept the numbers of one half, to play half by half
(`half_queue_check.py`), or arrays, to calculate all open halves of a queue at once (`discard_rounds.py`). A truth is a
bool for numbers and an array of bools for arrays. The steps of a round have names: the action on a half copy, and why
the round ends.

Source: TransactionalMessageServiceImpl, TransactionalMessageBridge, DefaultTransactionalMessageCheckListener, read at
the tag of each version; docs/formats/half_and_op.md#check, docs/formats/half_and_op.md#discard,
docs/formats/record.md#properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.releases import (
    AGE_MAY_EQUAL,
    CHECK_INFLATES,
    DISCARD_COPY,
    END_IS_ILLEGAL,
    LAST_END_LEFT_OUT,
    NEWEST_READ,
    OP_LISTS,
    OPS_DONE_AT_ONCE,
    OVERFLOW_TO_BEGIN,
    UNREADABLE_IS_PASSED,
    Version,
    dotted,
)
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.verdicts.check.state import CheckState, HalfCopy
from rmqtx.verdicts.model.verdict_inputs import CheckStop

_SLEEP_WITHOUT_OPS_MS = 1_000
#: `may_equal` of the checks that go through records without copies: of RocksDB, and of the timers before 4.3.
RECORD_AGE_MAY_EQUAL = False
Number = int | Int64s
Truth = Any


@dataclass(frozen=True, slots=True)
class CheckRules:
    """The rules of one version.

    Shape: `marks_done_at_once`: an op is done as soon as its half is reached (4.6.0+), else only in a later round.
           `end_is_illegal`: reading at the end of a queue counts as an illegal offset (before 4.6.0), which moves the
           op cursor at once. `inflates`: copies are written with inflated bodies, and an incomplete stream cannot be
           read (before 4.6.0). `unreadable_ends_round`: a half that cannot be read ends the round, and no
           cursor is kept (before 4.9.5, and 5.0.0). `reads_lists`: ops hold several numbers, a wrong tag does
           not matter, and an empty pull of ops costs a second (5.1.0+). `age_may_equal`: a half exactly as old as its
           time is still too young (5.3.4+). `writes_discard_copy`: 4.5.2+. `ends_properties`: the last property has
           an end mark too (to 4.9.0, and 5.2.0+). `overflow_to_begin`: an offset after the end of a queue that
           begins at 0 is corrected to 0 (before 4.9.4), not to the end.
    """

    version: Version
    marks_done_at_once: bool
    end_is_illegal: bool
    inflates: bool
    unreadable_ends_round: bool
    reads_lists: bool
    age_may_equal: bool
    writes_discard_copy: bool
    ends_properties: bool
    overflow_to_begin: bool


def check_rules(version: Version) -> CheckRules:
    """Return the rules of a version."""
    return CheckRules(
        version=version,
        marks_done_at_once=OPS_DONE_AT_ONCE.holds(version),
        end_is_illegal=END_IS_ILLEGAL.holds(version),
        inflates=CHECK_INFLATES.holds(version),
        unreadable_ends_round=not UNREADABLE_IS_PASSED.holds(version),
        reads_lists=OP_LISTS.holds(version),
        age_may_equal=AGE_MAY_EQUAL.holds(version),
        writes_discard_copy=DISCARD_COPY.holds(version),
        ends_properties=not LAST_END_LEFT_OUT.holds(version),
        overflow_to_begin=OVERFLOW_TO_BEGIN.holds(version),
    )


class CheckSettings(NamedTuple):
    """The settings that the check uses. Units: milliseconds."""

    time_out_ms: int
    check_max: int
    interval_ms: int
    reserved_ms: int


def check_settings(settings: BrokerSettings) -> CheckSettings:
    """Return the check settings of a broker."""
    return CheckSettings(
        settings.transaction_time_out_ms,
        settings.transaction_check_max,
        max(1, settings.transaction_check_interval_ms),  # a latch does not wait for 0 or less, but a round takes time
        settings.file_reserved_time_ms,
    )


def age_may_equal(settings: BrokerSettings, stops: Sequence[CheckStop] = ()) -> bool:
    """Whether a half message in the half topic is too young, or immune, also when its age equals that time.

    Of RocksDB it never is (docs/formats/rocksdb_transactions.md#check).
    """
    return AGE_MAY_EQUAL.holds(supposed_version(settings, stops)[0])


def supposed_version(settings: BrokerSettings, stops: Sequence[CheckStop] = ()) -> tuple[Version, str | None]:
    """Return the version to use, and a note if the version is not certain.

    It is the newest possible one; if the check of the store is stopped (`stops`), the one by whose rules it is.
    """
    low, high = settings.version_low, settings.version_high
    if settings.known_version is not None:
        return settings.known_version, None
    stopped = next((stop.version for stop in stops if stop.version is not None), None)
    chosen = stopped or high or NEWEST_READ
    known = "unknown" if low is None and high is None else settings.version_with_reasons
    why = "" if stopped is None else ", by which its check is stopped"
    words = f"the rules of {dotted(chosen)} are assumed{why}; if it is another one, add --broker-version X.Y.Z"
    return chosen, f"the broker's version is {known}: {words}"


def supposed_rules(settings: BrokerSettings) -> CheckRules:
    """Return the rules of the version to use."""
    return check_rules(supposed_version(settings)[0])


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


class Action(StrEnum):
    """The action of a round on a half copy."""

    CHECKED = "checked"
    UNASKED = "put back unasked"
    IMMUNE = "put back immune"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    ENDED = "ended"
    UNREADABLE = "unreadable"
    SKIPPED = "skipped"


class Stop(StrEnum):
    """Why a round ends."""

    END = "the end of the queue"
    OWN_COPY = "its own copies"
    YOUNG = "a half that is too young"
    UNREADABLE = "a second unreadable half"
    ABORTED = "an exception: no cursor moves"
    TIME = "60 seconds"
    REFUSED = "a copy that the store refuses"


class CheckStep(NamedTuple):
    """One action of a round.

    Shape: `queue_offset`: the slot of the loop; `half` is None if it cannot be read. `written`: the new copy, if any.
           `is_own_copy`: the copy was put back in the same round; if the queue lags behind, the broker may reach it
           only in the next round (a millisecond decides).
    """

    action: Action
    queue_offset: int
    half: HalfCopy | None
    time_ms: int
    written: HalfCopy | None = None
    written_bytes: int = 0
    is_own_copy: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what it did, how it ended, the state after it. Units: epoch milliseconds."""

    begin_ms: int
    end_ms: int
    steps: tuple[CheckStep, ...]
    stop: Stop
    before: CheckState
    state: CheckState

    @property
    def repeats_itself(self) -> bool:
        """Whether it met no half copy and moved nothing: each later round does the same, at any time."""
        met_none = self.stop in (Stop.END, Stop.UNREADABLE) and all(step.half is None for step in self.steps)
        return met_none and _moved(self.before) == _moved(self.state)


def _moved(state: CheckState) -> tuple[object, ...]:
    """What a round can move."""
    return (
        state.half_cursor, state.half_begin, state.half_end, state.op_cursor, state.undispatched, state.first_file,
        state.appended,
    )

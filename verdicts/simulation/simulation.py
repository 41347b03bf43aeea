"""The next rounds of the check of a half queue: each half, each round, and when each open half is discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rmqtx.readers.log.designs import HALF_TOPIC_DESIGN
from rmqtx.verdicts.check.check_rules import Action, CheckRules, CheckSettings, CheckStep, Round, Stop
from rmqtx.verdicts.check.half_queue_check import play_rounds
from rmqtx.verdicts.check.state import first_read
from rmqtx.verdicts.check.stored_records import StoredHalves
from rmqtx.verdicts.check.window import CheckWindow
from rmqtx.verdicts.model.predicted import NEVER, ROUNDS_MAX, Event
from rmqtx.verdicts.simulation.beside_simulated import BesideSimulated
from rmqtx.verdicts.simulation.simulation_tables import Row, names

#: Consecutive rounds with an exception after which playing stops: each round writes the same copies again.
_ABORTED_ROUNDS_MAX = 3


@dataclass(slots=True)
class Simulated:
    """The check of one half queue under one configuration, ready to be played; `last` is the last round of rows."""

    store: str
    configuration: str
    window: CheckWindow
    rules: CheckRules
    settings: CheckSettings
    begin_ms: int
    last: Round | None = None

    def rounds(self) -> Iterator[Round]:
        """Play rounds without end."""
        are_askable = self.window.are_askable.tolist()
        for played in play_rounds(self.window.state, self.rules, self.settings, self.begin_ms):
            yield replace(played, steps=tuple(_step_as_asked(step, are_askable) for step in played.steps))

    def words(self, row: int) -> Mapping[str, Any]:
        """Return the names of a stored half copy's transaction."""
        found: Mapping[str, Any] = self.window.words.slice(row, 1).to_pylist()[0]
        return found

    @property
    def design(self) -> str:
        """See `WithRows`."""
        return HALF_TOPIC_DESIGN

    @property
    def file(self) -> None:
        """See `WithRows`."""
        return

    @property
    def queue_id(self) -> int:
        """See `WithRows`."""
        return self.window.state.queue_id

    def check_row(self, step: CheckStep) -> Row | None:
        """See `WithRows`."""
        if step.action is Action.ENDED:
            return None
        half = step.written or step.half
        words = None if half is None else self.words(half.row)
        is_new = step.written is not None and not step.written.is_elsewhere
        return {
            **({} if words is None else names(words["transaction_id"], words)),
            "checks_count": None if half is None else half.checks_count,
            "half_queue_offset": step.queue_offset,
            "commit_log_offset": None if words is None else words["commit_log_offset"],
            "new_half_queue_offset": step.written.queue_offset if step.written is not None and is_new else None,
            "written_bytes": step.written_bytes,
            "may_be_a_round_later": step.is_own_copy,
        }

    def round_row(self, played: Round) -> Row:
        """See `WithRows`."""
        counts = Counter(step.action for step in played.steps)
        return {
            "end_time_ms": played.end_ms,
            "checked_count": counts[Action.CHECKED],
            "unasked_count": counts[Action.UNASKED],
            "immune_count": counts[Action.IMMUNE],
            "discarded_count": counts[Action.DISCARDED],
            "expired_count": counts[Action.EXPIRED],
            "ended_count": counts[Action.ENDED],
            "unreadable_count": counts[Action.UNREADABLE],
            "skipped_count": counts[Action.SKIPPED],
            "half_cursor": played.state.half_cursor,
            "half_cursor_before": played.before.half_cursor,
            "op_cursor": played.state.op_cursor,
            "op_cursor_before": played.before.op_cursor,
            "half_end": played.state.half_end,
            "written_bytes": sum(step.written_bytes for step in played.steps),
        }

    def transaction_rows(self, rounds_max: int) -> list[Row]:
        """See `WithRows`."""
        found = sorted(outcomes(self, rounds_max).items(), key=lambda item: item[1].queue_offset)
        return [_outcome_row(self.words(row), outcome) for row, outcome in found if not outcome.is_ended]


def _step_as_asked(step: CheckStep, are_askable: Sequence[bool]) -> CheckStep:
    """Return a step with the action `put back unasked` for a half copy that names no producer to ask."""
    if step.action is not Action.CHECKED or step.half is None or are_askable[step.half.row]:
        return step
    return step._replace(action=Action.UNASKED)


#: One check, ready to be played, of any design.
SimulatedCheck = Simulated | BesideSimulated


# --- the outcome of each half -----------------------------------------------------------------------------------------


_EVENTS = {
    Action.CHECKED: Event.ASKED, Action.UNASKED: Event.PUT_BACK, Action.IMMUNE: Event.PUT_BACK,
    Action.DISCARDED: Event.SPENT, Action.EXPIRED: Event.EXPIRED, Action.ENDED: Event.ENDED,
    Action.UNREADABLE: Event.STOPPED, Action.SKIPPED: Event.SKIPPED,
}


@dataclass(slots=True)
class Outcome:
    """The actions of simulated rounds on one stored half copy and on its later copies."""

    queue_offset: int
    checks_count: int | None
    next_check_ms: int | None = None
    checks_to_come_count: int = 0
    written_bytes: int = 0
    end: str | None = None
    end_round: int | None = None
    end_ms: int | None = None
    is_ended: bool = False
    may_be_a_round_later: bool = False
    event: Event = Event.UNKNOWN
    event_ms: int = NEVER

    @property
    def is_open(self) -> bool:
        """Whether no round has ended it yet."""
        return self.end is None and not self.is_ended

    def take(self, number: int, step: CheckStep) -> None:
        """Add one step.

        A round without a half cursor for the next one can leave an op message behind: the next one reads the copy.
        """
        if self.event_ms == NEVER or (self.event is Event.ENDED and step.action not in (Action.ENDED, Action.SKIPPED)):
            self.event, self.event_ms, self.is_ended = _EVENTS[step.action], step.time_ms, False
        elif step.action is Action.SKIPPED:  # the store returned it for another slot before
            return
        self.written_bytes += step.written_bytes
        if step.action is Action.CHECKED:
            self.next_check_ms = step.time_ms if self.next_check_ms is None else self.next_check_ms
            self.checks_to_come_count += 1
        elif step.action in (Action.DISCARDED, Action.EXPIRED, Action.SKIPPED) and self.end is None:
            self.end, self.end_round, self.end_ms = str(step.action), number, step.time_ms
            self.may_be_a_round_later = step.is_own_copy
        elif step.action is Action.ENDED:
            self.is_ended = True


def outcomes(simulated: Simulated, rounds_max: int = ROUNDS_MAX) -> dict[int, Outcome]:
    """Return what simulated rounds do with every half copy that the check has not reached yet, by row of the window.

    Playing ends when every copy has its end, and where rounds repeat themselves: that meet no half copy, or end with
    an exception.
    """
    outcomes, passed = _open_halves(simulated)
    left, aborted = len(outcomes), 0
    for number, played in enumerate(islice(simulated.rounds(), rounds_max), 1):
        for step in played.steps:
            row = _row_of(played, step)
            if row in passed:
                outcomes[row] = passed.pop(row)
                left += 1
            if row is None or row not in outcomes:
                continue
            outcome = outcomes[row]
            was_open = outcome.is_open
            outcome.take(number, step)
            left += outcome.is_open - was_open
        if played.before.half_cursor > played.before.half_end:  # the pull corrects the cursor and returns no half
            left -= _pass_before(outcomes.values(), played.state.half_cursor, number, played.begin_ms)
        simulated.last = played
        aborted = aborted + 1 if played.stop is Stop.ABORTED else 0
        if (left <= 0 and not aborted) or aborted == _ABORTED_ROUNDS_MAX or played.repeats_itself:
            break
    return outcomes


def _pass_before(outcomes: Iterable[Outcome], half_cursor: int, number: int, time_ms: int) -> int:
    """Set the outcome of the open halves that a corrected cursor passes; return how many they are."""
    passed = [one for one in outcomes if one.is_open and one.queue_offset < half_cursor]
    for one in passed:
        one.end, one.end_round, one.end_ms = str(Action.SKIPPED), number, time_ms
        if one.event is Event.UNKNOWN:
            one.event = Event.UNREAD
    return len(passed)


def _open_halves(simulated: Simulated) -> tuple[dict[int, Outcome], dict[int, Outcome]]:
    """Return the half copies from the cursor on, and those before it that a check may read once more."""
    state = simulated.window.state
    assert isinstance(state.halves, StoredHalves)
    begin = first_read(state.half_cursor, state.half_end, state.half_begin)
    found: tuple[dict[int, Outcome], dict[int, Outcome]] = {}, {}
    for place in range(state.halves.begin, state.half_end):
        half = state.copy_at(place)
        if half is not None:
            found[place < begin][half.row] = Outcome(place, half.checks_count)
    return found


def _row_of(played: Round, step: CheckStep) -> int | None:
    """Return the stored half copy from which the half of a step was made."""
    half, before = step.half, played.before
    if half is None and step.action is Action.ENDED and before.half_begin <= step.queue_offset < before.half_end:
        half = before.copy_at(step.queue_offset)
    return None if half is None else half.row


def _outcome_row(words: Mapping[str, Any], outcome: Outcome) -> Row:
    return names(words["transaction_id"], words) | {
        "half_queue_offset": outcome.queue_offset,
        "commit_log_offset": words["commit_log_offset"],
        "checks_count": outcome.checks_count,
        "next_check_time_ms": outcome.next_check_ms,
        "checks_to_come_count": outcome.checks_to_come_count,
        "is_answerable": True,
        "end": outcome.end,
        "end_round": outcome.end_round,
        "end_time_ms": outcome.end_ms,
        "written_bytes": outcome.written_bytes,
        "may_be_a_round_later": outcome.may_be_a_round_later,
    }

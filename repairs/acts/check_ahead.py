"""What a broker's check does after acts: whether it reads the records that they append before the copies they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.live.witnesses import LiveWitnesses
from rmqtx.repairs.acts.situation import NamedRecord, ReadAgain, Situation
from rmqtx.verdicts.check.check_rules import CheckRules, CheckSettings, check_rules, check_settings, supposed_rules
from rmqtx.verdicts.check.read_again import RoundEnd, copies_read_again
from rmqtx.verdicts.check.state import Op, first_read
from rmqtx.verdicts.check.window import CheckWindow, NextStart, check_window

#: About the length of the record of an op message.
_OP_BYTES = 256


class CheckAhead:
    """The check of a broker after acts."""

    def __init__(
        self, window: CheckWindow | None, rules: CheckRules, settings: CheckSettings, begin_times_ms: Sequence[int],
        next_offset: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        """`window`: what the check reads; None if that cannot be read, and the acts are refused for it elsewhere.

        `begin_times_ms`: when its next round may begin. `next_offset`: the queue offset of the next record of a topic.
        """
        self._window = window
        self._rules = rules
        self._how = settings
        self._begin_times_ms = begin_times_ms
        ends = {} if window is None else {HALF_TOPIC: window.state.half_end, OP_TOPIC: window.state.op_end}
        # A start may give an earlier record one more slot, and the next one with that number gets none.
        taken = (topic for topic, end in ends.items() if (number := next_offset(topic)) is not None and number < end)
        #: The topics, half or op, whose next record the check does not read.
        self.hides_new: frozenset[str] = frozenset(taken) | (frozenset() if window is None else window.hides_new)

    @property
    def unread_op(self) -> tuple[int, int] | None:
        """The op cursor and the number of the next op message, if the cursor is after it."""
        state = None if self._window is None else self._window.state
        return None if state is None or state.op_cursor <= state.op_end else (state.op_cursor, state.op_end)

    def first_read(self, half_cursor: int | None) -> int:
        """The first half queue offset that the check may read."""
        return (half_cursor or 0) if self._window is None else first_read(half_cursor, self._window.state.half_end)

    def after_acts(
        self, situations: Sequence[Situation], numbers_of: Callable[[NamedRecord, Situation], Sequence[int]],
        planned: Sequence[int] = (),
    ) -> list[Situation]:
        """Return the situations with the half copies that the check would read after acts on all of them.

        `numbers_of`: the half queue offsets that the op messages of an act name. `planned`: those of acts before.
        """
        acts = {
            one.transaction_id: numbers_of(one.named, one) for one in situations
            if one.named is not None and one.named.topic == HALF_TOPIC
        }
        found = self.read_again(acts, planned) if acts else {}
        return [
            replace(one, conditions=replace(
                one.conditions, read_again=found.get(one.transaction_id),
                unread_op=self.unread_op if one.transaction_id in acts else None,
            ))
            for one in situations
        ]

    def read_again(self, acts: Mapping[str, Sequence[int]], planned: Sequence[int]) -> Mapping[str, ReadAgain]:
        """Return the acts after which the check reads a settled half copy, each with this copy.

        `acts`: by transaction id, the half queue offsets that the op messages of the act name; all acts that have no
        such effect are written together. `planned`: the numbers that op messages before them name.
        """
        window, left, found = self._window, dict(acts), dict[str, ReadAgain]()
        if window is None or not self._may_read_settled(window):
            return found
        # Behind an op message with the next number of the queue the check begins at the first half message again.
        state = window.state
        if self._rules.overflow_to_begin and state.half_begin < window.stored_halves.begin:
            for name, numbers in acts.items():
                if max((*planned, *numbers), default=-1) >= state.half_end:
                    found[name] = ReadAgain(max(numbers), state.half_end, None)
                    del left[name]
        if not left:
            return found
        known = self._read(window, planned)
        while left:
            read = self._read(window, [*planned, *(number for numbers in left.values() for number in numbers)])
            hit = {name: number for name, numbers in left.items() for number in numbers if number in read}
            others = [number for number in read if number not in known]
            if not hit and others:  # of another transaction, which one of these acts or several of them do this to
                hit = dict.fromkeys(left, others[0])
            if not hit:
                break
            for name, number in hit.items():
                end = read[number]
                stopping = None if end.row is None else window.words["transaction_id"][end.row].as_py()
                found[name] = ReadAgain(number, end.queue_offset, stopping)
                del left[name]
        return found

    def _may_read_settled(self, window: CheckWindow) -> bool:
        """Whether the check can leave an op message behind; faster than playing rounds."""
        state = window.state
        newest_ms = int(window.stored_halves.numbers["born_time_ms"].max(initial=0))
        return (
            self._rules.end_is_illegal
            or OP_TOPIC in self.hides_new
            or not state.is_op_cursor_inside
            or newest_ms > max(self._begin_times_ms)  # a check asks about it before it reads all op messages
        )

    def _read(self, window: CheckWindow, numbers: Sequence[int]) -> dict[int, RoundEnd]:
        """Return the settled half copies that the check reads, if further op messages name some numbers."""
        end, begin_ms = window.state.op_end, max(self._begin_times_ms)
        new = [Op(end + turn, (one,), True, True, begin_ms, _OP_BYTES) for turn, one in enumerate(numbers)]
        found: dict[int, RoundEnd] = {}
        for time_ms in self._begin_times_ms:
            found |= copies_read_again(
                window.state, self._rules, self._how, time_ms, new, are_seen=OP_TOPIC not in self.hides_new
            )
        return found


def check_of_files(
    store: Store, version: Version, settings: BrokerSettings, conf: Mapping[str, str], now_ms: int,
    next_offset: Callable[[str], int | None],
) -> CheckAhead:
    """Return the check of a stopped broker after its next start, which finds the file `abort` that an act leaves.

    `settings`, `conf`: of its broker. `now_ms`: when the broker is assumed to start. `next_offset`: the queue offset
    that an act gives to the next record of a topic.
    """
    cursors, rules, how = check_cursors(store), check_rules(version), check_settings(settings)
    half, op = ((one or {}).get(0) for one in (cursors.half, cursors.op))
    try:
        window = check_window(replace(store, aborted=True), rules, 0, half, op, start=NextStart(conf))
    except SourceError:
        window = None
    return CheckAhead(window, rules, how, [now_ms + how.interval_ms], next_offset)


def check_of_broker(facts: LiveStore) -> CheckAhead | None:
    """Return the check of a running broker, whose next round begins within one interval.

    None where it reads each op message until all half copies that this names are passed: then nothing more is read.
    It does not where slots of its queues have no record, which the last look has found.
    Raises: OpsUnreadable if the broker does not serve its op queue; Unreachable, NoAnswer, Refused.
    """
    if facts.is_slave or not facts.has_half_topic:
        return None
    rules, how = supposed_rules(facts.settings), check_settings(facts.settings)
    has_all_slots = all(one.code != "entries-unread" for one in facts.findings)
    if has_all_slots and not rules.end_is_illegal and facts.op_cursor <= facts.broker.max_offset(OP_TOPIC):
        return None
    begin_ms = facts.taken_time_ms
    return CheckAhead(LiveWitnesses(facts).check_window(rules), rules, how, [begin_ms, begin_ms + how.interval_ms])

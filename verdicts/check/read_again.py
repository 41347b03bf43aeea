"""Half copies that the check reads although an op message settles them.

Before 4.6.0, a pull at the end of the op queue stores the op cursor at once, and so also in a round that ends before
it has passed all half copies of these op messages: later rounds do not read the op messages again. These are rounds
that end with an exception, because of a compressed copy that a check put back, or at a half message that is too young,
or that cannot be put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from rmqtx.verdicts.check.check_rules import Action, CheckRules, CheckSettings, Round, Stop
from rmqtx.verdicts.check.half_queue_check import play_rounds
from rmqtx.verdicts.check.state import CheckState, Op, OpWindow

_ROUNDS_MAX = 32
_NOT_READ = (Action.ENDED, Action.UNREADABLE, Action.SKIPPED)


class RoundEnd(NamedTuple):
    """The place in the half queue where a round ends; `row`: of the copy there, None if it cannot be read."""

    queue_offset: int
    row: int | None


def copies_read_again(
    state: CheckState, rules: CheckRules, settings: CheckSettings, begin_ms: int, new_ops: Sequence[Op] = (), *,
    are_seen: bool = True,
) -> dict[int, RoundEnd]:
    """Return the half queue offsets that op messages name, and that the check reads nevertheless.

    `new_ops`: op messages that are appended to the op queue before the round that begins at `begin_ms`. `are_seen`:
    whether they get slots that the check reads.
    Shape: queue offset → where the round ends that leaves its op message behind.
    """
    begin = state.op_cursor if state.is_op_cursor_inside else state.op_begin
    stored = (state.ops.op_at(place) for place in range(begin, state.op_end))
    ops = [op for op in (*stored, *new_ops) if op is not None and op.is_tagged and op.has_body]
    newest = {number: op.queue_offset for op in ops for number in op.numbers if 0 <= number < state.half_end}
    if new_ops and are_seen:
        more = {state.op_end + turn: op for turn, op in enumerate(new_ops)}
        state = replace(state, ops=_Longer(state.ops, more), op_end=state.op_end + len(more))
    found: dict[int, RoundEnd] = {}
    for played in islice(play_rounds(state, rules, settings, begin_ms), _ROUNDS_MAX):
        after, end = played.state, _end_of(played)
        read = [step.queue_offset for step in played.steps if step.action not in _NOT_READ]
        left = [number for number, op in newest.items() if number >= after.half_cursor and op < after.op_cursor]
        found |= {number: end for number in (*read, *left) if number in newest and number not in found}
        is_repeated = (after.half_cursor, after.op_cursor) == (played.before.half_cursor, played.before.op_cursor)
        if after.half_cursor > max(newest, default=-1) or (is_repeated and played.stop is not Stop.YOUNG):
            break
    return found


@dataclass(frozen=True, slots=True)
class _Longer:
    """Op messages, with more behind them."""

    stored: OpWindow
    more: dict[int, Op]

    def op_at(self, queue_offset: int) -> Op | None:
        """See `OpWindow`."""
        return self.more.get(queue_offset) or self.stored.op_at(queue_offset)


def _end_of(played: Round) -> RoundEnd:
    """Return where a round ended."""
    before, place = played.before, played.state.half_cursor
    if played.stop is Stop.ABORTED and played.steps:
        place = played.steps[-1].queue_offset
    made = (step.written for step in played.steps if step.written is not None)
    copy = next((copy for copy in made if copy.queue_offset == place), None)
    if copy is None and before.half_begin <= place < before.half_end:
        copy = before.copy_at(place)
    return RoundEnd(place, None if copy is None else copy.row)

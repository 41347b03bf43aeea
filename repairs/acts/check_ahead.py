"""What the check of a stopped broker does after acts on its files: whether it reads the records that they append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from rmqtx.readers.cursors.cursors import check_cursors
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.releases import Version
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.store import OP_TOPIC, Store
from rmqtx.repairs.acts.situation import ReadAgain
from rmqtx.verdicts.check.check_rules import check_rules
from rmqtx.verdicts.check.read_again import RoundEnd, copies_read_again
from rmqtx.verdicts.check.state import Op, check_settings
from rmqtx.verdicts.check.stored_records import StoredHalves
from rmqtx.verdicts.check.window import CheckWindow, check_window

#: About the length of the record of an op message.
_OP_BYTES = 256


class CheckAhead:
    """The check of a stopped broker after its next start, which finds the file `abort` that an act leaves."""

    def __init__(
        self, store: Store, version: Version, settings: BrokerSettings, conf: Mapping[str, str], now_ms: int
    ) -> None:
        """`settings`, `conf`: of its broker. `now_ms`: when the broker is assumed to start."""
        self.store = store
        self._conf = conf
        self._rules = check_rules(version)
        self._how = check_settings(settings)
        self._now_ms = now_ms

    @cached_property
    def _window(self) -> CheckWindow | None:
        """What the check reads; None if that cannot be read: the act is refused when it is planned."""
        cursors = check_cursors(self.store)
        half, op = ((one or {}).get(0) for one in (cursors.half, cursors.op))
        try:
            return check_window(replace(self.store, aborted=True), self._rules, 0, half, op, conf=self._conf)
        except SourceError:
            return None

    @property
    def hides_new(self) -> frozenset[str]:
        """The topics, half or op, whose next record the check does not read."""
        return frozenset() if self._window is None else self._window.hides_new

    def read_again(self, acts: Mapping[str, Sequence[int]], planned: Sequence[int]) -> Mapping[str, ReadAgain]:
        """Return the acts after which the check reads a settled half copy, each with this copy.

        `acts`: by transaction id, the half queue offsets that the op messages of the act name; all acts that have no
        such effect are written together. `planned`: the numbers that op messages before them name.
        """
        window, left, found = self._window, dict(acts), dict[str, ReadAgain]()
        if window is None or not self._may_read_settled(window):
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
        assert isinstance(state.halves, StoredHalves)
        newest_ms = int(state.halves.numbers["born_time_ms"].max(initial=0))
        return (
            self._rules.end_is_illegal
            or OP_TOPIC in window.hides_new
            or not state.op_begin <= state.op_cursor <= state.op_end
            or newest_ms > self._now_ms + self._how.interval_ms  # a check asks about it before it reads all op messages
        )

    def _read(self, window: CheckWindow, numbers: Sequence[int]) -> dict[int, RoundEnd]:
        """Return the settled half copies that the check reads, if further op messages name some numbers."""
        end = window.state.op_end
        new = [Op(end + turn, (one,), True, True, self._now_ms, _OP_BYTES) for turn, one in enumerate(numbers)]
        return copies_read_again(
            window.state, self._rules, self._how, self._now_ms + self._how.interval_ms, new,
            are_seen=OP_TOPIC not in window.hides_new,
        )

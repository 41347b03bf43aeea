"""What a stopped broker does next: by the machine on a copy of the store, or as the machine did it once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC
from rmqtx.remoting.protocol.codes import RequestCode
from tests.histories.machine import Machine
from tests.histories.truth import Observed, Written
from tests.histories.world import Record, clock_of, greet, make_topics, parsed_records

_BATCH_MS = 3_000
#: A broker deletes queue files for the first time so long after its start.
_CLEANED_MS = 60_000


class Future(Protocol):
    """A broker after its start; `refusal` says why it does not start."""

    refusal: str | None

    def round(self, begin_ms: int) -> Observed:
        """Let the check run once at a time."""


class Fork:
    """A copy of a store on which the machine goes on."""

    def __init__(
        self, machine: Machine, root: Path, conf: Mapping[str, str], now_ms: int, *, has_producers: bool = True
    ) -> None:
        """`has_producers`: producers of all groups are connected; else they come with `greet`."""
        self._machine = machine
        self._cleaned_ms = now_ms + _CLEANED_MS
        machine.clock(now_ms)
        self.refusal = machine.start(root, conf).refusal
        self._log_end = 0
        self._places: set[int] = set()
        self._place_of_number: dict[int, int] = {}
        if self.refusal is None:
            (greet if has_producers else make_topics)(machine)
            self._new()

    def greet(self) -> None:
        """Let producers of all groups connect."""
        greet(self._machine)
        self._new()

    def round(self, begin_ms: int) -> Observed:
        """See `Future`."""
        machine = self._machine
        machine.clock(begin_ms)
        if begin_ms >= self._cleaned_ms:
            machine.step("clean")
        effects = machine.step("check")
        written = [Written(one.commit_log_offset, one.topic, one.number) for one in self._new()]
        words = next(line for line in machine.step("cursors").lines if line.startswith("cursors")).split("\t")
        half_cursor, op_cursor, half_end = (max(int(word), 0) for word in words[1:4])
        asked = [
            (number, self._place(number, int(frame.fields["commitLogOffset"])))
            for _, frame in effects.asked
            if frame.code == RequestCode.CHECK_TRANSACTION_STATE
            for number in [int(frame.fields["tranStateTableOffset"])]
        ]
        discarded = [
            (int(words[1]), self._place(int(words[1]), int(words[2])))
            for words in (line.split("\t") for line in effects.lines)
            if words[0] == "discard"
        ]
        end_ms = clock_of(effects)
        machine.clock(end_ms + _BATCH_MS)
        machine.step("batch")
        self._new()
        return Observed(begin_ms, end_ms, asked, written, discarded, half_cursor, op_cursor, half_end)

    def records(self) -> Iterator[Record]:
        """Every record of the log."""
        yield from parsed_records(self._machine.step("records", 0))

    def _new(self) -> list[Record]:
        records = parsed_records(self._machine.step("records", self._log_end))
        self._log_end = max((one.commit_log_offset + one.size_bytes for one in records), default=self._log_end)
        self._places |= {one.commit_log_offset for one in records}
        halves = (one for one in records if one.topic in (HALF_TOPIC, ROCKSDB_HALF_TOPIC))
        self._place_of_number |= {one.queue_offset: one.commit_log_offset for one in halves}
        return records

    def _place(self, queue_offset: int, named: int) -> int:
        """The place of a half copy; a broker names the one in its header, which may be damaged."""
        return named if named in self._places else self._place_of_number.get(queue_offset, named)

    def end(self) -> None:
        """End the machine's broker."""
        self._machine.step("abandon")


class Recorded:
    """What a machine did once; the rounds must begin when they began then."""

    def __init__(self, refusal: str | None, rounds: Sequence[Observed]) -> None:
        self.refusal = refusal
        self._left = list(rounds)

    def round(self, begin_ms: int) -> Observed:
        """See `Future`."""
        happened = self._left.pop(0)
        assert happened.begin_ms == begin_ms, f"a round at {begin_ms}, recorded at {happened.begin_ms}"
        return happened

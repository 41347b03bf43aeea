"""Logs of brokers as further evidence, and what is printed about the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtx.readers.model.errors import BadRequest
from rmqtx.verdicts.audit.logged_events import Event, LoggedEvents
from rmqtx.verdicts.causes.judging import Judging
from rmqtx.verdicts.causes.strengths import CAUSES
from rmqtx.verdicts.model.group_habits import Habits
from rmqtx.verdicts.model.log_evidence import LogEvidence
from rmqtx.verdicts.model.store_evidence import BROKER_LOG, StoreEvidence
from rmqtx.verdicts.model.verdict_words import Strength
from rmqtx_cli.options.source_options import LogOptions
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:

    from rmqtx.verdicts.model.reading import VerdictReading


@dataclass
class BrokerLogs:
    """What was read. Shape: by the value of the column `store`."""

    evidence: dict[str, LogEvidence] = field(default_factory=dict)
    events: dict[str, LoggedEvents] = field(default_factory=dict)
    has_problems: bool = False

    def with_logs(self, facts: Mapping[str, StoreEvidence]) -> Mapping[str, StoreEvidence]:
        """Return a view of the facts of stores with the evidence of their logs; facts may still be added."""
        return _WithLogs(facts, self.evidence) if self.evidence else facts

    def in_rows(self, reading: VerdictReading) -> None:
        """Have the column `causes` of a reading decided by the logs too; its rows have NEEDED_COLUMNS."""
        if self.evidence:
            reading.batches = self._decided(reading, reading.batches)

    def _decided(self, reading: VerdictReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts, habits = self.with_logs(reading.evidence), Habits()
        for batch in batches:
            rows, judging = pa.Table.from_batches([batch]), Judging({}, tuple(batch.schema.names), facts)
            decided, more = judging.with_causes_and_habits(rows)
            habits.update(more)
            yield from decided.to_batches()
        reading.habits = habits

    def events_of(self, number: int) -> list[Event] | None:
        """Return the events of a transaction, by its place among the given ones; None if no logs were read."""
        if not self.events:
            return None
        return [event for one in self.events.values() for event in one.of(number)]

    def is_missed(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a log could not be read that would decide a cause. `rows`: of DIAGNOSES."""
        return self.has_problems and any(
            row["strength"] == Strength.COULD_EXPLAIN and BROKER_LOG in CAUSES[row["cause"]].shows_in for row in rows
        )


class _WithLogs(Mapping[str, "StoreEvidence"]):
    """Facts of stores, with the evidence of their logs."""

    def __init__(self, facts: Mapping[str, StoreEvidence], logs: Mapping[str, LogEvidence]) -> None:
        self._facts, self._logs = facts, logs

    def __getitem__(self, name: str) -> StoreEvidence:
        one = self._facts[name]
        if name not in self._logs:
            return one
        return replace(one, logs=self._logs[name], read=one.read | {BROKER_LOG})

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def check_logs(options: LogOptions) -> None:
    """Refuse a zone without logs, and a zone that does not exist. Raises: BadRequest."""
    if options.log_zone is not None:
        if not options.broker_logs:
            raise BadRequest("--log-zone needs --broker-logs", advice="add --broker-logs DIR")
        _reading().parsed_zone(options.log_zone)


def read_logs(
    options: LogOptions, names: Sequence[str], voice: Voice, transactions: Sequence[Mapping[str, Any]] = ()
) -> BrokerLogs:
    """Read the logs of stores or brokers once. `transactions`: rows whose lines are kept as events.

    Raises: BadRequest, UnreadableFile.
    """
    check_logs(options)
    places = options.broker_logs or []
    if places and len(places) != len(names):
        raise BadRequest(
            f"{count(len(places), 'directory', 'directories')} of logs for {count(len(names), 'store or broker')}",
            advice="give --broker-logs once for each, in the order of the stores",
        )
    found = BrokerLogs()
    for name, place in zip(names, places, strict=False):
        evidence, events, has_problems = _reading().read_one(name, place, options.log_zone, voice, transactions)
        found.evidence[name], found.events[name] = evidence, events
        found.has_problems |= has_problems
    return found


def _reading() -> ModuleType:
    """Return the module that reads logs; few commands are given any."""
    from rmqtx_cli.sources import log_reading

    return log_reading

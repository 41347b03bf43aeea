"""The one way from witnesses to rows: judged with their dates, then with their causes.

An audit, a lookup, a task of Spark, a step that follows, and a live broker differ only in where their witnesses come
from and where the rows go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.log.light_queues import halves_in_light_queues
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_conf import PROXY_TOPIC
from rmqtx.readers.store.fastjson import config_table
from rmqtx.readers.store.store import OP_TOPIC, Store
from rmqtx.verdicts.causes import strengths
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.groups import habits_of
from rmqtx.verdicts.evidence.copied_ranges import views_of
from rmqtx.verdicts.evidence.store_facts import StoreFacts
from rmqtx.verdicts.model.group_habits import Habits
from rmqtx.verdicts.model.marked_copies import NEEDED, MarkedCopies, with_copies
from rmqtx.verdicts.model.predicted import Prediction
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.store_evidence import FILES, TRACE, StoreEvidence
from rmqtx.verdicts.model.trace_evidence import trace_evidence
from rmqtx.verdicts.model.verdict_inputs import StoreView
from rmqtx.verdicts.model.witnesses import Witnesses
from rmqtx.verdicts.transactions.judge import judge

if TYPE_CHECKING:
    from rmqtx.verdicts.evidence.store_conclusion import Conclusion


@dataclass(frozen=True, slots=True)
class Judging:
    """What witnesses become rows by; it can be passed to another process.

    Shape: by store: `views`, which the rules of states read, with the future; `evidence`, which the rules of causes
           read; `predicted`, what the check will do. `copies`: what rmqtx redelivered. `columns` of the rows: with
           `causes` only if these are needed.
    """

    views: Mapping[str, StoreView]
    columns: tuple[str, ...]
    evidence: Mapping[str, StoreEvidence] = field(default_factory=dict)
    predicted: Mapping[str, Prediction] = field(default_factory=dict)
    copies: tuple[MarkedCopies, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, StoreFacts], columns: Iterable[str]) -> Judging:
        """Return the judging of one audit, after the logs of its stores were read."""
        return cls(views_of(facts), tuple(columns)).informed(facts)

    def informed(self, facts: Mapping[str, StoreFacts]) -> Judging:
        """Return the same with what causes and pages need of the stores; evidence only if it is of the present."""
        evidence = {root: store_evidence(fact) for root, fact in facts.items() if fact.past_ms is None}
        predicted = {root: fact.predicted for root, fact in facts.items()}
        return replace(self, evidence=evidence, predicted=predicted, copies=tuple(one.copies for one in facts.values()))

    def judged(self, witnesses: Witnesses) -> pa.Table:
        """Return the verdict on each transaction, with its dates, and the columns that its causes and copies need."""
        needed = {*(NEEDED_COLUMNS if self._has_causes else ()), *(NEEDED if self._shows_copies else ())}
        held = [witnesses]
        del witnesses  # nothing else holds them: their memory is free once they are grouped
        return judge(held.pop(), self.views, {*self.columns, *needed})

    def with_causes(self, rows: pa.Table) -> pa.Table:
        """Return judged rows with their causes, and the flag of those with a redelivered copy, in the columns."""
        return self._with_causes(Evidence(rows, self.evidence))

    def habits(self, rows: pa.Table) -> Habits:
        """Return what the producer groups of judged rows have in common, if causes are needed."""
        return habits_of(Evidence(rows, self.evidence)) if self._has_causes else Habits()

    def with_causes_and_habits(self, rows: pa.Table) -> tuple[pa.Table, Habits]:
        """Return both; what is found out about the rows serves both."""
        found = Evidence(rows, self.evidence)
        return self._with_causes(found), habits_of(found) if self._has_causes else Habits()

    def _with_causes(self, found: Evidence) -> pa.Table:
        result = strengths.with_causes(found) if self._has_causes else found.rows
        if self._shows_copies:
            result = with_copies(result, self.copies)
        return result.select([name for name in self.columns if name in result.schema.names])

    @property
    def unread_traces(self) -> list[Finding]:
        """What could not be read of message traces, as far as these were searched."""
        return [finding for one in self.evidence.values() if one.traces is not None for finding in one.traces.findings]

    def forget_unread_traces(self) -> None:
        """Begin again without findings of traces, where the same facts judge for several tasks."""
        for one in self.evidence.values():
            if one.traces is not None:
                one.traces.findings.clear()

    def report(self, reading: VerdictReading) -> None:
        """Add what is known of the stores to a reading."""
        reading.predicted |= self.predicted
        reading.evidence |= self.evidence

    @property
    def _shows_copies(self) -> bool:
        return "flags" in self.columns or "advice" in self.columns

    @property
    def _has_causes(self) -> bool:
        return "causes" in self.columns


def report_begun(reading: VerdictReading, facts: Iterable[StoreFacts]) -> None:
    """Add what stores show before their logs are read to a reading."""
    for fact in facts:
        reading.notes.extend(fact.notes)
        reading.check_stops.extend(fact.check_stops)


def report_concluded(reading: VerdictReading, conclusion: Conclusion) -> None:
    """Add what a store shows after its log was read to a reading."""
    reading.coverage.extend(conclusion.coverage)
    reading.findings.extend(conclusion.facts.findings)


def store_evidence(facts: StoreFacts) -> StoreEvidence:
    """Return what the rules read of a store, after its log was read; reads its topics, two slots of its op queue, and
    its light queues.

    Damage: what cannot be read is unknown; the audit reports it.
    """
    settings, topics = facts.settings, _topics(facts.store)
    traces = trace_evidence(facts.store)
    return StoreEvidence(
        settings.version_low, settings.version_high, _last_op_offset(facts), _first_op_offset(facts.store),
        facts.store.was_killed, facts.check_stops[-1] if facts.check_stops else None, settings.given,
        are_cursors_damaged=any(one.code == "config-damaged" for one in facts.cursors.findings),
        topics=topics,
        has_proxy=PROXY_TOPIC in (topics or ()),
        topics_without_group=_topics_without_group(facts.store),
        was_stopped=not facts.store.was_killed and not facts.store.in_use,
        op_interval_ms=settings.transaction_op_batch_interval_ms,
        traces=traces, read=frozenset({FILES} if traces is None else {FILES, TRACE}),
        light_halves=halves_in_light_queues(facts.store), shifted_halves=facts.half_numbers.shifted,
    )


def _topics(store: Store) -> frozenset[str] | None:
    """Return the topics of config/topics.json; None if they are unknown."""
    return _table(store, "topics.json", "topicConfigTable")


def _topics_without_group(store: Store) -> frozenset[str]:
    """Return the topics of which a consumer group has a cursor, and is not in config/subscriptionGroup.json.

    The broker itself has cursors of its own topics without a subscription group.
    """
    groups = _table(store, "subscriptionGroup.json", "subscriptionGroupTable")
    cursors = _table(store, "consumerOffset.json", "offsetTable")
    if groups is None or cursors is None:
        return frozenset()
    named = (key.partition("@") for key in cursors)
    return frozenset(topic for topic, at, group in named if at and group not in groups)


def _table(store: Store, file: str, name: str) -> frozenset[str] | None:
    """Return the keys of a table of a configuration file; None if they are unknown."""
    table = config_table(store, file, name)
    return None if table is None else frozenset(table)


def _last_op_offset(facts: StoreFacts) -> int | None:
    """Return where the last op message is: by the op queue, or after its end, in the log of a killed broker.

    A queue without entries counts as empty only if the check never read an op either: it may have been deleted.
    """
    try:
        with open_queue(facts.store, OP_TOPIC, 0) as queue:
            last = queue.last_place()
    except SourceError:
        return None
    if last is None and (facts.cursors.op is None or any(facts.cursors.op.values())):
        return None
    if facts.store.has_own_abort:  # rmqtx wrote the op messages behind those of the queue
        return -1 if last is None else last
    return facts.last_op_offset if last is None else max(facts.last_op_offset, last)


def _first_op_offset(store: Store) -> int | None:
    """Return where the op message with queue offset 0 is."""
    try:
        with open_queue(store, OP_TOPIC, 0) as queue:
            first: list[int] = queue.read(0, 1)[1].tolist()
            return first[0] if first else None
    except SourceError:
        return None

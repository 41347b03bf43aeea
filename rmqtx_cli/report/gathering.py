"""What a report contains, gathered in one pass over the transactions; memory does not grow with their number.

Few transactions are kept: those that the report shows in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.reading import Coverage, NoteKind
from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.verdicts.audit.provenance import Provenance
from rmqtx.verdicts.audit.timeline import TimelineSource, consumers_past, timeline
from rmqtx.verdicts.causes.diagnosing import CauseRow, Diagnosis, diagnosed_each
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.model.predicted import Deadline, deadline_of
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.pages.drawing import check_cursor_lines
from rmqtx_cli.pages.order_of_harm import Harms
from rmqtx_cli.pages.summary import SUMMARY_COLUMNS, Summary
from rmqtx_cli.report.one_pass import CheckWays, EventCounts, PendingAges

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.readers.model.findings import Finding
    from rmqtx.verdicts.model.predicted import Prediction
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx.verdicts.model.verdict_inputs import CheckStop
    from rmqtx_cli.sources.broker_logs import BrokerLogs
    from rmqtx_cli.sources.check_queues import CheckQueue
    from rmqtx_cli.sources.source import Source

#: Transactions of each kind that are shown in full.
SHOWN_MAX = 5
_SHOWN_COLUMNS = (
    "reason", "advice", "queue_id", "keys", "decided_time_ms", "checks_count", "state_entries", "discard_at_ms",
    "deliveries_count", *FUTURE_COLUMNS,
)
#: The columns of TRANSACTIONS that a report reads.
REPORT_COLUMNS = tuple(dict.fromkeys((*SUMMARY_COLUMNS, *NEEDED_COLUMNS, *_SHOWN_COLUMNS)))


@dataclass(frozen=True, slots=True)
class TopKind:
    """A kind of transactions: which ones, and which of them come first."""

    title: str
    note: str
    choose: Callable[[pa.RecordBatch], pa.Array]
    orders: tuple[tuple[str, str], ...]


def _has_flag(batch: pa.RecordBatch, flag: str) -> pa.Array:
    flags = batch["flags"]
    owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), flag))
    return pc.is_in(pa.array(range(batch.num_rows), owners.type), value_set=owners)


_OLDEST = (("half_store_time_ms", "ascending"), ("store", "ascending"), ("transaction_id", "ascending"))
TOP_KINDS: dict[str, TopKind] = {
    "pending": TopKind(
        "Pending transactions", "the oldest first", lambda batch: pc.equal(batch["state"], State.PENDING), _OLDEST
    ),
    "lost": TopKind(
        "Lost transactions", "the oldest first", lambda batch: pc.equal(batch["state"], State.LOST), _OLDEST
    ),
    "delivered-twice": TopKind(
        "Transactions delivered more than once", "most deliveries first",
        lambda batch: _has_flag(batch, "duplicate_commit"), (("deliveries_count", "descending"), *_OLDEST),
    ),
}


@dataclass(slots=True)
class TopRows:
    """The first transactions of each kind among those seen so far, and how many there are."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOP_KINDS, 0))
    _kept: dict[str, pa.Table] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Consider some transactions."""
        for name, kind in TOP_KINDS.items():
            rows = batch.filter(kind.choose(batch))
            if not rows.num_rows:
                continue
            self.counts[name] += rows.num_rows
            kept = [self._kept[name]] if name in self._kept else []
            found = pa.concat_tables([*kept, pa.Table.from_batches([rows])])
            first = pc.sort_indices(found, sort_keys=list(kind.orders)).slice(0, SHOWN_MAX)
            self._kept[name] = found.take(first).combine_chunks()

    def rows(self, name: str) -> pa.Table | None:
        """Return the first transactions of a kind; None if the batches had none."""
        return self._kept.get(name)


@dataclass(frozen=True, slots=True)
class ShownTransaction:
    """One transaction in full.

    Shape: `row`: of TRANSACTIONS; `events`: rows of TIMELINE; `consumers`: rows of CONSUMERS; `causes`: rows of
           DIAGNOSES without those that are ruled out. `stopped_ms`: when its broker stopped; None if it runs, or
           unknown. `check_lines`: where the check stands.
    """

    row: dict[str, Any]
    events: list[dict[str, Any]]
    consumers: list[dict[str, Any]]
    causes: list[CauseRow]
    deadline: Deadline | None
    stopped_ms: int | None
    check_lines: list[str]


@dataclass(slots=True)
class Facts:
    """What is known beside the numbers.

    Shape: `arguments`: the options that open the same source, quoted for a shell. `store_lines`: a line about each
           store or broker; `store_notes`: lines about the broker's own counter and the sizes of the check's queues.
    """

    arguments: str
    live: str | None
    names: list[str]
    store_lines: list[str]
    store_notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stops: list[CheckStop] = field(default_factory=list)
    predicted: Mapping[str, Prediction] = field(default_factory=dict)
    queues: list[CheckQueue] = field(default_factory=list)
    provenance: Provenance | None = None


@dataclass(slots=True)
class Gathered:
    """All that a report about stores shows. Shape: `shown`: by the names of TOP_KINDS."""

    now_ms: int
    facts: Facts
    summary: Summary
    events: EventCounts
    ways: CheckWays
    ages: PendingAges
    top: TopRows
    diagnosis: Diagnosis
    shown: dict[str, list[ShownTransaction]] = field(default_factory=dict)

    @property
    def has_undecidable(self) -> bool:
        """Whether the state of a transaction is unknown."""
        return self.summary.states[State.UNDECIDABLE] > 0


def gathered(
    reading: VerdictReading, source: Source, facts: Facts, logs: BrokerLogs, now_ms: int,
    proxy_keeps_ms: int | None = None,
) -> Gathered:
    """Read all transactions of an audit once; the source stays open for the ones shown in full.

    `facts`: filled with those that the reading has after its last batch. `proxy_keeps_ms`: see StoreEvidence.
    """
    places = source.surroundings()
    stopped = {place.root: place.stopped_time_ms() for place in places}
    evidence = logs.with_logs(reading.evidence)
    found = Gathered(
        now_ms, facts, Summary(harms=Harms(now_ms)), EventCounts(now_ms), CheckWays(now_ms),
        PendingAges(now_ms, {root: time_ms for root, time_ms in stopped.items() if time_ms is not None}),
        TopRows(), Diagnosis(evidence, proxy_keeps_ms),
    )
    parts: tuple[Callable[[pa.RecordBatch], None], ...] = (
        found.summary.add, found.events.add, found.ways.add, found.ages.add, found.top.add, found.diagnosis.add,
    )
    for batch in reading:
        if batch.num_rows:
            for add in parts:
                add(batch)
    reading.add_trace_findings()
    add_reading(facts, reading, source)
    facts.store_notes.extend(found.summary.store_lines(source.stores, found.summary.damaged(facts.findings)))
    for name in TOP_KINDS:
        rows = found.top.rows(name)
        found.shown[name] = [] if rows is None else shown_transactions(rows, places, facts, evidence, proxy_keeps_ms)
    return found


def add_reading(facts: Facts, reading: VerdictReading, source: Source) -> None:
    """Add what a reading has after its last batch, and the queues of the check."""
    facts.findings.extend(reading.findings)
    facts.coverage.extend(reading.coverage)
    facts.notes.extend(dict.fromkeys(note.text for note in reading.notes if note.kind is NoteKind.WHY))
    facts.stops.extend(reading.check_stops)
    facts.predicted = reading.predicted
    facts.queues.extend(source.check_queues())


def shown_transactions(
    rows: pa.Table, places: Sequence[TimelineSource], facts: Facts, evidence: Any, proxy_keeps_ms: int | None = None,
    logs: BrokerLogs | None = None,
) -> list[ShownTransaction]:
    """Return some transactions in full, with their records, the cursors of consumers and their causes."""
    causes = diagnosed_each(rows, evidence, proxy_keeps_ms)
    stopped = {place.root: place.stopped_time_ms() for place in places}
    shown = [
        ShownTransaction(
            row,
            timeline(row, places, None if logs is None else logs.events_of(number)).to_pylist(),
            consumers_past(row, places).to_pylist(), causes[number], deadline_of(row, facts.predicted),
            stopped.get(row["store"]), list(check_cursor_lines(row, places)),
        )
        for number, row in enumerate(rows.to_pylist())
    ]
    for traces in (place.traces for place in places):
        facts.findings.extend(one for one in (traces.findings if traces else ()) if one not in facts.findings)
    return shown

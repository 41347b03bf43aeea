"""Applies all causes to judged transactions and counts what they explain, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.tables import column
from rmqtx.verdicts.causes.cause import STRENGTHS, Cause
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.groups import EXAMPLES_MAX, Count, Example, GroupCauses
from rmqtx.verdicts.causes.strengths import CAUSES, Applied, applied, applied_to_each
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.store_evidence import SOURCES, StoreEvidence
from rmqtx.verdicts.model.verdict_words import CLOCK_FLAGS, State, Strength

_EXAMPLE = pa.struct([
    column("transaction_id", pa.string(), "id of the transaction"),
    column("half_commit_log_offset", pa.int64(), "commit-log offset of its first half copy"),
])
_UNKNOWN_RELEASE = "the release of the broker: add --broker-version"

DIAGNOSES = pa.schema(
    [
        column("store", pa.string(), "the store; a broker's name and address where it is live"),
        column("cause", pa.string(), "why transactions are unusual, as a stable word", words="causes"),
        column(
            "strength", pa.string(), "how far the evidence goes: explains, could_explain or ruled_out",
            values=tuple(STRENGTHS),
        ),
        column("title", pa.string(), "the cause in a sentence"),
        column("transactions_count", pa.int64(), "transactions with this cause"),
        column("half_copies_count", pa.int64(), "half copies of these transactions"),
        column("first_time_ms", pa.int64(), "broker clock at the first half copy of the oldest of them"),
        column("last_time_ms", pa.int64(), "broker clock at the first half copy of the newest of them"),
        column("examples", pa.list_(_EXAMPLE), f"the {EXAMPLES_MAX} of them with the lowest commit-log offsets"),
        column("consequence", pa.string(), "what follows for the application"),
        column("would_decide", pa.string(), "what would show which cause it was; null where the cause explains"),
        column("act", pa.string(), "what to do now"),
        column("change", pa.string(), "what to configure, or which release to upgrade to; null if nothing helps"),
        column("releases", pa.string(), "the releases of RocketMQ that behave so"),
        column("sources", pa.string(), "upstream files and issues, and the brokers that were seen to behave so"),
    ]
)


@dataclass(slots=True)
class Diagnosis:
    """The causes of the transactions seen so far; memory does not grow with their number.

    Shape: `stores`: the facts of each store, complete when the first batch is added. `proxy_keeps_ms`: that of
           StoreEvidence, for all of them. `unusual_count`: transactions that have a flag (other than CLOCK_FLAGS), or
           are DISCARDED, LOST or UNDECIDABLE, or that a cause explains; of these `explained_count` have a cause that
           explains them, and `unexplained_count` none, not even one that could explain them. `waiting_count`: pending
           transactions that are not unusual, in stores whose broker does not run: no producer is asked about them.
           `needs_release`: whether a cause depends on the release of the broker, which is not known exactly;
           `needed_settings`: the settings that causes depend on and that are unknown.
    """

    stores: Mapping[str, StoreEvidence]
    proxy_keeps_ms: int | None = None
    transactions_count: int = 0
    undecidable_count: int = 0
    needs_release: bool = False
    needed_settings: dict[str, None] = field(default_factory=dict)
    _unusual_count: int = 0
    _explained_count: int = 0
    _unexplained_count: int = 0
    _waiting_count: int = 0
    _counts: dict[tuple[str, str, str], Count] = field(default_factory=dict)
    has_groups: bool = True
    _groups: GroupCauses = field(default_factory=GroupCauses)

    @property
    def unusual_count(self) -> int:
        """See `Diagnosis`."""
        return self._unusual_count + self._groups.usual_count

    @property
    def explained_count(self) -> int:
        """See `Diagnosis`."""
        return self._explained_count + self._groups.explained_count

    @property
    def unexplained_count(self) -> int:
        """See `Diagnosis`."""
        return self._unexplained_count - self._groups.unexplained_count

    @property
    def waiting_count(self) -> int:
        """See `Diagnosis`."""
        return self._waiting_count - self._groups.waiting_count

    def add_all(self, reading: VerdictReading) -> pa.Table:
        """Add all judged transactions of a reading, which gets the findings of traces; return the rows of DIAGNOSES."""
        for batch in reading:
            self.add(batch)
        reading.add_trace_findings()
        return self.table()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add judged transactions. `batch` has NEEDED_COLUMNS."""
        if not batch.num_rows:
            return
        found = _evidence(pa.Table.from_batches([batch]), self.stores, self.proxy_keeps_ms)
        has_cause, is_explained = np.zeros(found.count, np.bool_), np.zeros(found.count, np.bool_)
        for one in applied(found):
            self.count(found, one)
            is_explained |= one.rows.get(Strength.EXPLAINS, False)
            has_cause |= one.rows.get(Strength.COULD_EXPLAIN, False)
        has_cause |= is_explained
        is_unusual = _are_unusual(found) | has_cause
        self.transactions_count += found.count
        self._unusual_count += int(is_unusual.sum())
        self._explained_count += int(is_explained.sum())
        self._unexplained_count += int((is_unusual & ~has_cause).sum())
        rests = found.of_store(lambda one: one.was_stopped or one.was_killed)
        is_waiting = found.state(State.PENDING) & ~is_unusual & rests
        self._waiting_count += int(is_waiting.sum())
        if self.has_groups:
            self._groups.add(found, is_explained, ~is_unusual, is_unusual & ~has_cause, is_waiting)
        self.undecidable_count += int(found.state(State.UNDECIDABLE).sum())

    def table(self) -> pa.Table:
        """Return the causes found.

        Shape: DIAGNOSES.
        Order: those that are ruled out last; then most transactions first, then by store and word.
        """
        counts = dict(self._counts)
        for store, word, possible, proven in self._groups.counts():
            points = [*self._unknown(CAUSES[word], self.stores[store]), CAUSES[word].decides]
            possible.open_points = dict.fromkeys(points)
            for strength, count in ((Strength.COULD_EXPLAIN, possible), (Strength.EXPLAINS, proven)):
                if count.transactions:
                    counts.setdefault((store, word, strength), Count()).merge(count)
        keys = sorted(counts, key=lambda key: (key[2] == Strength.RULED_OUT, -counts[key].transactions, *key))
        return pa.Table.from_pylist([_row(*key, counts[key]) for key in keys], DIAGNOSES)

    def _unknown(self, cause: Cause, facts: StoreEvidence) -> list[str]:
        """Return what is unknown of a broker and decides whether it behaves so, and count it."""
        is_release_unknown = cause.affects(facts.version_low, facts.version_high) is None
        self.needs_release |= is_release_unknown
        settings = cause.unknown_settings(facts)
        self.needed_settings |= dict.fromkeys(settings)
        return [
            *([_UNKNOWN_RELEASE] if is_release_unknown else []),
            *([f"the configuration of the broker ({', '.join(settings)}): add --broker-conf FILE"] if settings else []),
            *([] if cause.is_seen(facts) else [SOURCES[one] for one in cause.shows_in]),
        ]

    def count(self, found: Evidence, one: Applied) -> None:
        """Count a cause in one store."""
        for strength, rows in one.rows.items():
            if rows.any():
                is_open = strength == Strength.COULD_EXPLAIN
                points = [*self._unknown(one.cause, one.facts), one.decides] if is_open else []
                count = self._counts.setdefault((one.store, one.cause.word, strength), Count())
                count.add(found, np.flatnonzero(rows), points, one.rivals if points else ())


class CauseRow(TypedDict):
    """A cause in a store: a row of DIAGNOSES."""

    store: str
    cause: str
    strength: str
    title: str
    transactions_count: int
    half_copies_count: int
    first_time_ms: int | None
    last_time_ms: int | None
    examples: list[Example]
    consequence: str
    would_decide: str | None
    act: str
    change: str | None
    releases: str
    sources: str


def diagnosed_each(
    rows: pa.Table, stores: Mapping[str, StoreEvidence], proxy_keeps_ms: int | None = None
) -> list[list[CauseRow]]:
    """Return for each transaction the causes that explain it, or could, as rows of DIAGNOSES."""
    if not rows.num_rows:
        return []
    found = _evidence(rows.combine_chunks(), stores, proxy_keeps_ms)
    causes = []
    for some in applied_to_each(found):
        diagnosis = Diagnosis(stores, proxy_keeps_ms, has_groups=False)  # one transaction shows nothing of its group
        for one in some:
            diagnosis.count(found, one)
        causes.append([row for row in diagnosis.table().to_pylist() if row["strength"] != Strength.RULED_OUT])
    return causes


def _evidence(rows: pa.Table, stores: Mapping[str, StoreEvidence], proxy_keeps_ms: int | None) -> Evidence:
    if proxy_keeps_ms is not None:
        stores = {name: replace(one, proxy_keeps_ms=proxy_keeps_ms) for name, one in stores.items()}
    return Evidence(rows, stores)


def _are_unusual(found: Evidence) -> Bools:
    """Transactions with a flag that more than the clock sets, and those that are DISCARDED, LOST or UNDECIDABLE."""
    lists = found.rows["flags"].combine_chunks()
    is_of_clock = pc.is_in(pc.list_flatten(lists), value_set=pa.array(CLOCK_FLAGS))
    owners = np.asarray(pc.list_parent_indices(lists).filter(pc.invert(is_of_clock)))
    has_flag = np.zeros(found.count, np.bool_)
    has_flag[owners] = True
    return has_flag | found.state(State.DISCARDED, State.LOST, State.UNDECIDABLE)


def _row(store: str, word: str, strength: str, found: Count) -> CauseRow:
    cause = CAUSES[word]
    rivals = [word for word in cause.rivals if word in found.rivals]
    points = [*found.open_points, *([f"whether it was {cause.word} or {' or '.join(rivals)}"] if rivals else [])]
    return {
        "store": store, "cause": word, "strength": strength, "title": cause.title,
        "transactions_count": found.transactions, "half_copies_count": found.half_copies,
        "first_time_ms": found.first_ms, "last_time_ms": found.last_ms, "examples": found.examples,
        "consequence": cause.consequence, "would_decide": "; ".join(points) or None,
        "act": cause.act, "change": cause.change or None, "releases": cause.releases,
        "sources": "; ".join(change.source for change in cause.affected),
    }

"""The summary of an audit: counts per group and topic, flags with an example each, counters, queues, the next command.

It keeps counts only, so that memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import transaction_metrics
from rmqtx.readers.model.columns import Int64s, int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import column
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.store import HALF_TOPICS, OP_TOPICS, Store
from rmqtx.verdicts.evidence.store_facts import known_until_ms, past_ms
from rmqtx.verdicts.model.verdict_words import CLOCK_FLAGS, STATES, State
from rmqtx.verdicts.model.witnesses import are_in_several_stores, distinct_counts
from rmqtx.verdicts.transactions.flags import FLAGS
from rmqtx.verdicts.transactions.measures import MEASURES
from rmqtx_cli.options.next_commands import next_line
from rmqtx_cli.output.views import ALWAYS, View, plain
from rmqtx_cli.pages.headlines import answer_lines, passed_lines, refused_lines
from rmqtx_cli.pages.latencies import LATENCY_COLUMNS, LATENCY_FIELDS, Latencies
from rmqtx_cli.pages.order_of_harm import HARM_COLUMNS, Harms
from rmqtx_cli.words.of_old_stores import copies_text, flag_text, have_only_prepared
from rmqtx_cli.words.text import count, grouped, size
from rmqtx_cli.words.times import duration_text

if TYPE_CHECKING:
    from rmqtx.readers.model.findings import Finding
    from rmqtx.verdicts.model.reading import VerdictReading

_KEYS = ("producer_group", "topic")
_COUNTS = [f"{state.lower()}_count" for state in STATES]
_CELL_COUNTS = ("transactions_count", *_COUNTS, "flagged_count", "half_copies_count")
#: One row per producer group and topic.
SUMMARY = pa.schema(
    [
        column("producer_group", pa.string(), "producer group"),
        column("topic", pa.string(), "real topic"),
        column("transactions_count", pa.int64(), "transactions of this group and topic"),
        *(column(name, pa.int64(), f"those in state {state}") for name, state in zip(_COUNTS, STATES, strict=True)),
        column("flagged_count", pa.int64(), "transactions with a flag"),
        column("half_copies_count", pa.int64(), "half copies of these transactions; the check reads each of them"),
        *LATENCY_FIELDS,
    ]
)
#: The states that a narrow table keeps longest have the lowest rank.
_RANKS: dict[str, int] = {
    State.PENDING: ALWAYS, State.LOST: 1, State.UNDECIDABLE: 1, State.DISCARDED: 2, State.ROLLED_BACK: 3,
    State.COMMITTED: 3,
}
#: The summary below the rows of an audit.
COUNTS_VIEW = View(
    (
        plain("producer_group", ALWAYS, "group", may_be_cut=True),
        plain("topic", ALWAYS, may_be_cut=True),
        plain("transactions_count", ALWAYS, "all"),
        *(plain(f"{state.lower()}_count", _RANKS[state], state.lower()) for state in STATES),
        plain("flagged_count", 4, "flagged"),
        plain("half_copies_count", 5, "half copies"),
    ),
    "no transactions",
)
SUMMARY_VIEW = replace(COUNTS_VIEW, columns=(*COUNTS_VIEW.columns, *LATENCY_COLUMNS))
#: The columns of TRANSACTIONS that are counted, and with the measures those of a summary.
COUNTED_COLUMNS = (*HARM_COLUMNS, *_KEYS, "half_copies")
SUMMARY_COLUMNS = (*COUNTED_COLUMNS, *MEASURES.names)

_Cell = tuple[str | None, str | None]

#: Slots read together when their lengths are added up.
_SLOTS_AT_ONCE = 1 << 18


def _grouped(
    batch: pa.RecordBatch, names: Sequence[str]
) -> tuple[Int64s, Iterator[tuple[dict[str, Any], int, int, int]]]:
    """Return the group of each row, by equal values; and the groups: their values, rows, half copies, flagged rows.

    Order: by the first row of each group.
    """
    # numpy rather than Table.group_by, whose import of pyarrow.acero loads datasets, file systems and ssl
    groups = np.zeros(batch.num_rows, np.int64)
    for name in names:
        codes = int64s(batch[name].dictionary_encode("encode").indices)
        # The numbers of a dictionary are in the order of the first rows.
        groups = int64s(pa.array(groups * (codes.max() + 2) + codes + 1).dictionary_encode().indices)
    firsts = np.empty(groups.max() + 1, np.int64)
    firsts[groups[::-1]] = np.arange(batch.num_rows)[::-1]
    copies = np.bincount(groups, distinct_counts(batch["half_copies"]))
    flagged = np.bincount(groups, int64s(pc.list_value_length(batch["flags"]), 0) > 0)
    numbers = np.bincount(groups)
    rows = batch.select(names).take(pa.array(firsts)).to_pylist()
    return groups, zip(rows, numbers.tolist(), copies.astype(np.int64).tolist(), flagged.tolist(), strict=True)


@dataclass(slots=True)
class Summary:
    """Counts of the transactions seen so far."""

    states: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    half_copies_count: int = 0
    harms: Harms = field(default_factory=Harms)
    _cells: dict[_Cell, Counter[str]] = field(default_factory=dict)
    _numbers: dict[_Cell, int] = field(default_factory=dict)
    _latencies: Latencies = field(default_factory=Latencies)
    _undecided: set[str | None] = field(default_factory=set)
    _pending: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    _found_in: dict[str, Counter[tuple[str, str | None]]] = field(
        default_factory=lambda: {state: Counter() for state in (State.PENDING, State.LOST)}
    )
    _decided_elsewhere: set[str] = field(default_factory=set)
    _never_asked: Counter[str] = field(default_factory=Counter)
    _oldest_pending_ms: int | None = None

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self.add(batch)
            yield batch
            del batch  # its memory is free while the next one is made

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the transactions of a batch."""
        if not batch.num_rows:
            return
        groups, rows = _grouped(batch, ("store", *_KEYS, "state"))
        cells = []
        for row, number, copies, flagged in rows:
            key = (row["producer_group"], row["topic"])
            cells.append(self._numbers.setdefault(key, len(self._numbers)))
            state = row["state"]
            self.states[state] += number
            self.half_copies_count += copies
            cell = self._cells.setdefault(key, Counter())
            cell.update({
                "transactions_count": number, f"{state.lower()}_count": number, "flagged_count": flagged,
                "half_copies_count": copies,
            })
            if state == State.UNDECIDABLE and row["store"] is not None:
                self._undecided.add(row["store"])
            if state == State.PENDING:
                self._pending[row["store"], row["topic"]] += number
        self._count_in_stores(batch)
        self._latencies.add(np.array(cells)[groups], batch)
        pending = pc.min(batch["half_store_time_ms"].filter(pc.equal(batch["state"], State.PENDING))).as_py()
        if pending is not None:
            self._oldest_pending_ms = min(pending, self._oldest_pending_ms or pending)
        flags = batch["flags"]
        owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), "never_asked"))
        never = batch.select(["store", "state"]).take(owners)
        self._never_asked.update(never.filter(pc.equal(never["state"], State.PENDING))["store"].to_pylist())
        self.harms.add(batch)
        self._find_examples(batch)

    def _count_in_stores(self, batch: pa.RecordBatch) -> None:
        """Count the transactions without a decision in each store that has a half copy: logs may be copies of one."""
        for state, counted in self._found_in.items():
            rows = batch.select(["topic", "half_copies"]).filter(pc.equal(batch["state"], state))
            copies, topics = rows["half_copies"], rows["topic"].to_pylist()
            owners = pc.list_parent_indices(copies).to_pylist()
            roots = pc.struct_field(pc.list_flatten(copies), "store").to_pylist()
            counted.update((root, topics[owner]) for owner, root in dict.fromkeys(zip(owners, roots, strict=True)))
        self._count_decided_elsewhere(batch)

    def _count_decided_elsewhere(self, batch: pa.RecordBatch) -> None:
        """Find the stores in which a transaction may be open, by their log, that another copy of the log decides."""
        is_open = pc.is_in(batch["state"], pa.array([State.PENDING, State.LOST], pa.string()))
        copies = batch["half_copies"]
        shared = copies.filter(pa.array(are_in_several_stores(copies) & ~np.asarray(is_open)))
        self._decided_elsewhere.update(pc.unique(pc.struct_field(pc.list_flatten(shared), "store")).to_pylist())

    def _find_examples(self, batch: pa.RecordBatch) -> None:
        for entry in pc.value_counts(pc.list_flatten(batch["flags"])).to_pylist():
            self.flags[entry["values"]] += entry["counts"]
        for state in self.states:
            if state not in self.examples:
                at = pc.index(batch["state"], state).as_py()
                if at >= 0:
                    self.examples[state] = batch["transaction_id"][at].as_py()
        flags, parents = pc.list_flatten(batch["flags"]), pc.list_parent_indices(batch["flags"])
        for flag in self.flags:
            if flag not in self.examples:
                at = parents[pc.index(flags, flag).as_py()].as_py()
                self.examples[flag] = batch["transaction_id"][at].as_py()

    @property
    def transactions_count(self) -> int:
        """The number of transactions counted so far."""
        return self.states.total()

    def table(self) -> pa.Table:
        """The rows of SUMMARY. Order: producer group, topic."""
        rows = [
            {"producer_group": key[0], "topic": key[1]} | {name: cell[name] for name in _CELL_COUNTS}
            | self._latencies.row(self._numbers[key], cell["transactions_count"], cell["half_copies_count"])
            for key, cell in sorted(self._cells.items(), key=lambda item: (str(item[0][0]), str(item[0][1])))
        ]
        return pa.Table.from_pylist(rows, schema=SUMMARY)

    def never_asked_counts(self, store: str) -> tuple[int, int]:
        """The pending transactions of a store that the check never reaches, and all its pending transactions."""
        return self._never_asked[store], sum(
            number for (root, _), number in self._pending.items() if root == store
        )

    def answer(
        self, stores: Sequence[Store], arguments: str, reading: VerdictReading, now_ms: int, live: str | None,
        more: Sequence[str] = (),
    ) -> Iterator[str]:
        """The lines above the table: harm, states, the oldest pending transaction, a stopped check, the next command.

        `arguments`: the options that open the same stores or brokers, quoted for a shell. `live`: the same for live
        brokers, None for files. `reading`: read to its end. `more`: the lines after these, with further commands.
        """
        damaged = self.damaged(reading.findings)
        line = self.next_line(arguments, [store.root for store in stores if store.root in damaged])
        if line is None and not more:
            line = "next: nothing to do"
        harm = "; ".join(self.harms.sentences(reading.predicted))
        is_first = self.harms.is_soon or not reading.check_stops
        if harm and is_first:
            yield harm
        yield from answer_lines(
            self.sentence(now_ms), reading.check_stops, self.never_asked_counts, live, line,
            is_one_store=len(stores) == 1, is_urgent=self.harms.is_soon,
        )
        if harm and not is_first:
            yield harm
        yield from refused_lines(reading.predicted)
        yield from passed_lines(reading.predicted)
        yield from more

    def sentence(self, now_ms: int) -> str:
        """The number of transactions in each state, and the age of the oldest pending one."""
        states = ", ".join(f"{grouped(self.states[state])} {state}" for state in STATES if self.states[state])
        counts = f"{count(self.transactions_count, 'transaction')}{': ' + states if states else ''}"
        if self._oldest_pending_ms is None:
            return counts
        return f"{counts}; oldest pending {duration_text(now_ms - self._oldest_pending_ms)}"

    def damaged(self, findings: Sequence[Finding]) -> set[str | None]:
        """The stores in which evidence is missing or damaged."""
        return {finding.store for finding in findings if finding.is_error} | self._undecided

    def lines(self, stores: Sequence[Store], findings: Sequence[Finding], at_ms: int | None = None) -> Iterator[str]:
        """The lines below the table: flags, the broker's own counter, sizes of the check's queues, copies.

        `findings`: those of the reading; damage may hide transactions that are not counted. `at_ms`: the time of the
        states; if it is before the end of a store, counter and queues of the store have later values.
        """
        damaged = self.damaged(findings)
        is_prepared = have_only_prepared(stores)
        for flag in FLAGS:
            if self.flags[flag]:
                text = flag_text(flag, FLAGS[flag], is_prepared=is_prepared)
                yield f"{flag}: {self.flags[flag]}, first {self.examples[flag]}: {text}"
        yield from self.store_lines([store for store in stores if not _is_past(store, at_ms)], damaged)
        if self.transactions_count:
            times = self.half_copies_count / self.transactions_count
            yield (
                f"{copies_text(self.half_copies_count, is_prepared=is_prepared)} of "
                f"{count(self.transactions_count, 'transaction')}: {times:.2f} each"
            )

    def store_lines(self, stores: Sequence[Store], damaged: Collection[str | None]) -> Iterator[str]:
        """The broker's own counter and the sizes of the check's queues, of each store. `damaged`: see `damaged`."""
        for store in stores:
            if store.root not in self._decided_elsewhere:
                yield from self._drift(store, is_whole=store.root not in damaged)
            yield from self._cost(store)

    def _drift(self, store: Store, *, is_whole: bool) -> Iterator[str]:
        for topic, counted in sorted((transaction_metrics(store) or {}).items()):
            found, lost = (self._found_in[state][store.root, topic] for state in (State.PENDING, State.LOST))
            if counted != found:
                if lost and counted == found + lost:
                    which = f"the other {lost} are LOST" if found else "they are LOST"
                elif is_whole:
                    which = "the counter is wrong; rmqtx does not use it"
                else:
                    which = "unknown which is right, because evidence is missing or damaged"
                yield (
                    f"{store.root}: the broker's counter (config/transactionMetrics) has {counted} open for {topic}, "
                    f"the log has {found}: {which}"
                )

    def _cost(self, store: Store) -> Iterator[str]:
        if not any(store.has("consumequeue", topic) for topic in HALF_TOPICS):
            return  # prepared records are in no queue; queues in RocksDB are not in files
        parts = []
        for name, topics in (("half", HALF_TOPICS), ("op", OP_TOPICS)):
            try:
                lengths = [_queue_lengths(store, topic) for topic in topics]
            except SourceError:
                return  # the audit has reported the file
            rows, written = (sum(values) for values in zip(*lengths, strict=True))
            parts.append(f"{count(rows, f'{name} record')} of {size(written)}")
        yield f"{store.root}: {' and '.join(parts)} in the queues of the check"

    def next_line(self, arguments: str, damaged: Sequence[str] = ()) -> str | None:
        """The line with the command that shows the transaction that is harmed first or most; it changes nothing.

        None if no transaction is harmed, and no store is `damaged`.
        """
        return self.harms.next_line(arguments) or (self.verify_line(damaged) if damaged else None)

    @staticmethod
    def verify_line(damaged: Sequence[str]) -> str:
        """The line with the command that lists the damage of the first damaged store."""
        return next_line(f"rmqtx verify {quoted(damaged[0])}", "damage may hide transactions")

    def why_lines(self, arguments: str) -> Iterator[str]:
        """The line with the command that names causes, if a transaction is unusual."""
        unusual = self.flags.total() - sum(self.flags[name] for name in CLOCK_FLAGS)
        if unusual or any(self.states[state] for state in (State.DISCARDED, State.LOST, State.UNDECIDABLE)):
            yield next_line(f"rmqtx diagnose {arguments}", "why")


def _is_past(store: Store, at_ms: int | None) -> bool:
    return past_ms(store, at_ms, known_until_ms(store)) is not None


def _queue_lengths(store: Store, topic: str) -> tuple[int, int]:
    """The number of records in queue 0 of a topic, and their bytes. Raises: SourceError."""
    rows = written = 0
    with open_queue(store, topic, 0) as queue:
        for first in range(queue.first_offset, queue.max_offset, _SLOTS_AT_ONCE):
            lengths = queue.read(first, first + _SLOTS_AT_ONCE)[2]
            rows, written = rows + len(lengths), written + int(lengths.sum(dtype="int64"))
    return rows, written

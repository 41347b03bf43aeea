"""Verification of a store: log, queues, index, checkpoint and cursors compared with each other, as rows of FINDINGS.

Each split reports its own faults; those of the whole store (slots that no record claims, a cursor beyond its queue)
follow when all splits are done. So the rows do not depend on the splits. Each place is reported once, with the most
specific code: a slot that points into damaged bytes is no further finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.cursors import check_cursors, read_cursors
from rmqtx.readers.jobs.job_runner import SplitResult
from rmqtx.readers.jobs.workers import ONE_PROCESS_BYTES_MAX
from rmqtx.readers.log.commit_log import remember_unused, span_findings
from rmqtx.readers.log.prepared_records import OldRecords
from rmqtx.readers.log.segment_scan import Span, merged_spans
from rmqtx.readers.log.splits import Split, plan_splits
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.ranges import LogRanges
from rmqtx.readers.model.releases import OPS_LOST_AT_STOP, dotted
from rmqtx.readers.model.tables import FINDINGS, findings_table
from rmqtx.readers.old_tables.beside_tables import expects_tables
from rmqtx.readers.old_tables.transaction_table import TransactionTable
from rmqtx.readers.queues.slot_files import close_slot_files
from rmqtx.readers.rocksdb.rocksdb_queues import lacking_database
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import HALF_TOPIC, Store
from rmqtx.verdicts.audit.lookups import open_transactions
from rmqtx.verdicts.check.check_stops import check_stops, stop_findings
from rmqtx.verdicts.claims.claim_proofs import DecodedLog
from rmqtx.verdicts.claims.log_agreement import contradictions, lost_end
from rmqtx.verdicts.claims.log_claims import CHECKPOINT, LogClaims, log_claims
from rmqtx.verdicts.compared.checked_queues import ranges_of_log
from rmqtx.verdicts.compared.losses import with_losses
from rmqtx.verdicts.compared.rocksdb_queues import leftover_queue_findings, rocksdb_queue_findings
from rmqtx.verdicts.compared.state_table import state_table_findings
from rmqtx.verdicts.compared.unclaimed_slots import QueueComparison
from rmqtx.verdicts.ends.end_records import examined_ends
from rmqtx.verdicts.ends.refused_numbers import with_refused
from rmqtx.verdicts.ends.taken_numbers import half_numbers, number_findings, op_number_findings
from rmqtx.verdicts.evidence.store_facts import moment_ms
from rmqtx.verdicts.missing.check_queue_findings import half_queue_findings, op_queue_findings
from rmqtx.verdicts.missing.split_numbers import joined_numbers
from rmqtx.verdicts.model.verdict_inputs import MissingRange
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.simulation.next_start import known_start, starting_findings, still_beyond
from rmqtx.verdicts.startup.findings import start_findings
from rmqtx.verdicts.startup.recovery import LogFacts
from rmqtx.verdicts.verify.index_entries import IndexComparison
from rmqtx.verdicts.verify.open_tables import database_findings, rocksdb_table_findings, transaction_table_findings
from rmqtx.verdicts.verify.split import SplitWork, VerifiedSplit
from rmqtx.verdicts.verify.store_files import (
    backwards_finding,
    chain_findings,
    checkpoint_findings,
    checkpoint_record_findings,
    configuration_findings,
    cursor_findings,
    index_file_findings,
    older_design_finding,
)

#: Levels: each one includes the checks of the level before it.
QUICK, DEFAULT, FULL = "quick", "default", "full"
#: What a level does not read.
NOT_EXAMINED: dict[str, str] = {
    QUICK: "bodies, properties, the records that decisions name, and all but the last slots and index entries",
    DEFAULT: "the content of compressed bodies, and whether all properties can be read",
    FULL: "",
}
_UNKNOWN = "which decided transactions the check reaches again: the queues do not lead to them; rmqtx audit STORE does"


@dataclass(frozen=True, slots=True)
class Verify:
    """The job. `level`: `quick` reads headers and the ends of the derived files; `default` also bodies' CRCs and every
    slot and index entry; `full` also inflates compressed bodies and reads every property area. `version` and `conf` of
    the broker, if known, decide what its next start does; with `is_next` that is the version of the broker that starts
    next, which did not write the store. `transaction_table`: the database table of brokers 3.2 to
    4.2, if given.
    """

    level: str = DEFAULT
    version: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    transaction_table: TransactionTable | None = None
    is_next: bool = False

    @property
    def schema(self) -> pa.Schema:
        """FINDINGS."""
        return FINDINGS

    def of_split(self, split: Split) -> SplitResult:
        """Return the findings about a split's records.

        Damage: bytes that are no record are a finding, and so is a file that cannot be read.
        """
        scan = split.scan()
        work = SplitWork(
            split, is_quick=self.level == QUICK, is_full=self.level == FULL,
            with_old=self.transaction_table is not None or expects_tables(split.store),
        )
        findings: list[Finding] = []
        try:
            for block in scan:
                findings.extend(work.findings(block))
        except SourceError as error:
            file, position = split.segment.file, error.position_bytes
            findings.append(Finding(split.store.root, "unreadable-file", file, position, actual=str(error)))
            work.is_unreadable = True
        return SplitResult(_rows(findings), [], scan.decoded_bytes, scan.spans, work.known(scan))

    def of_store(self, store: Store, carried: list[VerifiedSplit]) -> SplitResult:
        """Return the findings about the files beside the log, and about the log as a whole."""
        try:
            return SplitResult(_rows(list(self._store_findings(store, carried))))
        finally:
            close_slot_files(store)

    def settings_of(self, store: Store) -> BrokerSettings:
        """Return the settings of the broker of a store, as far as the store and the job give them."""
        return broker_settings(store, conf=dict(self.conf), version=self.version, is_next=self.is_next)

    def _store_findings(self, store: Store, splits: list[VerifiedSplit]) -> Iterator[Finding]:
        is_quick = self.level == QUICK
        is_partial = any(split.is_unread for split in splits)
        remember_unused(store, _spans_of(splits))
        ranges = log_ranges(store, splits)
        yield from _loss_findings(store, splits)
        backwards = _backwards(splits)
        yield from _log_findings(store, splits, backwards)
        if not (is_quick or is_partial):
            yield from _number_findings(store, self.settings_of(store), splits)
            yield from _end_findings(store, splits, ranges)
        yield from _rocksdb_findings(store, ranges, is_quick=is_quick, is_partial=is_partial)
        queues = QueueComparison(
            store, [split.queues for split in splits], ranges, only_ends=is_quick, is_partial=is_partial
        )
        yield from queues.findings()
        yield from index_file_findings(store, whole=not is_quick and not is_partial)
        if not is_quick:
            index = [split.index for split in splits]
            # Either of the two records may have the wrong time.
            reported_offsets = queues.reported_offsets.union(*((offset, before) for offset, _, before, _ in backwards))
            yield from IndexComparison(store, index, ranges, reported_offsets, is_partial=is_partial).findings()
        if self.level == FULL:
            yield from chain_findings(store)
        yield from _checkpoint_findings(
            store, splits, is_log_whole=not is_partial and not len(ranges.damaged) and not backwards
        )
        yield from cursor_findings(store)
        yield from configuration_findings(store)
        if not is_quick:
            yield from _other_databases(store)
        has_halves = is_quick and any(split.has_halves for split in splits)
        numbers = None if is_partial else joined_numbers(split.numbers for split in splits)
        conf, settings = dict(self.conf), self.settings_of(store)
        started = known_start(store, check_cursors(store), settings, conf)
        may_be_cut = is_partial or bool(len(ranges.damaged))
        beyond = [
            *half_queue_findings(store, started.half, has_halves, numbers),
            *op_queue_findings(store, started.op, has_ops=False),
        ]
        yield from still_beyond(store, settings, beyond, is_cut=may_be_cut)
        yield from starting_findings(store, settings, conf)
        stops = check_stops(store, settings, now_ms=moment_ms(store))
        yield from stop_findings(store, stops)
        yield from next_stop_findings(store, settings)
        if is_partial:
            if not store.in_use:
                yield Finding(store.root, "start-unforeseen", actual="not all of its log was read")
            return
        if not is_quick:
            yield from self._old_table_findings(store, settings, splits, ranges)
            if not stops and not len(ranges.damaged):
                yield from next_start_findings(store, settings)
        yield from start_findings(
            store, settings, conf, log_facts(splits), queues.facts, with_dispatch=not is_quick
        )

    def _old_table_findings(
        self, store: Store, settings: BrokerSettings, splits: list[VerifiedSplit], ranges: LogRanges
    ) -> Iterator[Finding]:
        """Return where the tables of designs before 4.3 and the log differ."""
        old = OldRecords.joined(split.old_records for split in splits)
        if expects_tables(store):
            yield from state_table_findings(store, settings, old, ranges)
        if self.transaction_table is not None:
            yield from transaction_table_findings(store, self.transaction_table, old, ranges)


def _rocksdb_findings(store: Store, ranges: LogRanges, *, is_quick: bool, is_partial: bool) -> Iterator[Finding]:
    """Return where queues and transactions in RocksDB differ from the log."""
    if store.has_rocksdb_queues and (is_quick or is_partial):
        yield from lacking_database(store) or [Finding(store.root, "queues-unchecked", store.place("consumequeue"))]
    elif store.has_rocksdb_queues:
        yield from rocksdb_queue_findings(store, ranges)
    yield from rocksdb_table_findings(store, ranges, with_records=not is_quick)


def _other_databases(store: Store) -> Iterator[Finding]:
    """Return databases that cannot be read, except that of the cursors if the cursors' reader reports it."""
    known = {finding.file for finding in read_cursors(store).findings if finding.code == "database-unread"}
    yield from (finding for finding in database_findings(store) if finding.file not in known)
    yield from leftover_queue_findings(store)


def _checkpoint_findings(store: Store, splits: list[VerifiedSplit], *, is_log_whole: bool) -> Iterator[Finding]:
    """Return where the checkpoint differs from the log; single records are compared only if the log is whole."""
    times = [split.latest_time_ms for split in splits if split.latest_time_ms is not None]
    yield from checkpoint_findings(store, max(times, default=None))
    firsts = [split.first for split in splits if split.first is not None]
    if firsts and is_log_whole:
        held = {value for split in splits for value in split.checkpoint_values}
        yield from checkpoint_record_findings(store, firsts[0], held, max(times))


def _number_findings(store: Store, settings: BrokerSettings, splits: list[VerifiedSplit]) -> Iterator[Finding]:
    """Return half queue offsets that several half messages have; other slots and records are compared elsewhere."""
    log = plan_splits([store])
    placed = with_refused(store, settings, joined_numbers(split.numbers for split in splits), log)
    numbers = half_numbers(store, placed, log, None)
    yield from (found for found in number_findings(store, numbers) if found.code == "half-number-taken")


def _end_findings(store: Store, splits: list[VerifiedSplit], ranges: LogRanges) -> Iterator[Finding]:
    """Return decisions that name no half message, and what they contradict of it; slots are compared elsewhere.

    A name in damaged bytes may be right.
    """
    offsets, named = np.concatenate([split.ends for split in splits]).T if splits else np.empty((2, 0), np.int64)
    damaged = [MissingRange(store.root, begin, end, "damaged") for begin, end in ranges.damaged.tolist()]
    try:
        examined = examined_ends(store, offsets, named, missing=damaged)
    except SourceError as error:
        yield Finding(store.root, "unreadable-file", error.file, error.position_bytes, actual=str(error))
        return
    yield from (found for found in examined.findings if found.code != "slot-mismatch")


def _rows(findings: list[Finding]) -> list[pa.RecordBatch]:
    return list(findings_table(findings).to_batches()) if findings else []


def _spans_of(splits: list[VerifiedSplit]) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = defaultdict(list)
    for split in splits:
        spans[split.file].extend(split.spans)
    return spans


def _loss_findings(store: Store, splits: list[VerifiedSplit]) -> Iterator[Finding]:
    """Damaged or missing bytes of the log, with the number of lost messages."""
    known = list(store.findings)
    spans = _spans_of(splits)
    for segment in store.commit_log:
        known.extend(span_findings(store, segment, merged_spans(spans[segment.file])))
    if not store.in_use and not any(split.is_unread for split in splits):  # files read now are newer than the scan
        times = [split.latest_time_ms for split in splits if split.latest_time_ms is not None]
        end = max([store.log_begin_offset, *(split.end_offset for split in splits)])
        claims = _with_places(log_claims(store)) if times else log_claims(store)
        decoded = DecodedLog(end, max(times, default=None))
        lost = lost_end(store, claims, spans, decoded)
        known.extend([] if lost is None else [lost.finding])
        known.extend(contradictions(store, _of_checkpoint(claims), spans, lost, decoded))
    yield from with_losses(store, known)


def _with_places(claims: LogClaims) -> LogClaims:
    """The claims without the checkpoint's times, which have a finding of their own where the log has a record."""
    return replace(claims, newest=tuple(claim for claim in claims.newest if claim.store_time_ms is None))


def _of_checkpoint(claims: LogClaims) -> LogClaims:
    """The claims of the checkpoint: slots, entries and tables are compared with their records one by one."""
    return replace(claims, newest=tuple(claim for claim in claims.newest if claim.kind == CHECKPOINT))


def log_ranges(store: Store, splits: list[VerifiedSplit]) -> LogRanges:
    """Return which parts of a log can contain records, from the results of its splits."""
    end = max((split.end_offset for split in splits), default=0)
    return ranges_of_log(store, end, [split.damaged for split in splits])


def log_facts(splits: list[VerifiedSplit]) -> LogFacts:
    """Combine the results of all splits for the prediction of a start."""
    breaks: dict[str, list[Int64s]] = defaultdict(list)
    for split in splits:
        breaks[split.file].append(split.breaks)
    end = max((split.end_offset for split in splits), default=0)
    return LogFacts({file: _in_order(rows) for file, rows in breaks.items()}, end)


def _in_order(rows: list[Int64s]) -> Int64s:
    every = np.concatenate(rows)
    return every[np.argsort(every[:, 0], kind="stable")]


def _backwards(splits: list[VerifiedSplit]) -> list[tuple[int, int, int, int]]:
    """Records with an earlier time than the record before them: place and time of both."""
    found: list[tuple[int, int, int, int]] = []
    before: tuple[int, int] | None = None
    for split in splits:
        if before is not None and split.first is not None and split.first[1] < before[1]:
            found.append((*split.first, *before))
        found.extend((row[0], row[1], row[2], row[3]) for row in split.backwards.tolist())
        before = None if split.is_unread else split.last or before
    return found


def _log_findings(
    store: Store, splits: list[VerifiedSplit], backwards: list[tuple[int, int, int, int]]
) -> Iterator[Finding]:
    """Times that run backwards, op numbers beyond the half queue, records of older designs."""
    for row in backwards:
        yield backwards_finding(store, *row)
    for split in splits:
        yield from op_number_findings(store, split.op_marks[:, 0], split.op_marks[:, 1])
    older = np.concatenate([np.empty(0, np.int64), *(split.older_offsets for split in splits)])
    if len(older):
        yield older_design_finding(store, int(older.min()), len(older))


def next_stop_findings(store: Store, settings: BrokerSettings) -> Iterator[Finding]:
    """Return what an orderly stop of a running broker loses."""
    loses = OPS_LOST_AT_STOP.between(settings.version_low, settings.version_high)
    if not store.in_use or not store.has("consumequeue", HALF_TOPIC) or loses is False:
        return
    held = f"op messages of up to {settings.transaction_op_batch_interval_ms / 1000:g} s (transactionOpBatchInterval)"
    if loses is None:
        held += f", if the broker is {dotted(OPS_LOST_AT_STOP.since)} or later: add --broker-version"
    yield Finding(store.root, "stop-loses-ops", actual=held)


def next_start_findings(store: Store, settings: BrokerSettings) -> Iterator[Finding]:
    """Return the decided transactions that the broker asks about again after a start, what its check passes, and
    whether that depends on its release.

    Shape: the verdicts are those of `pending`; the place is the first half copy of the first of them.
    Damage: a file that cannot be read is reported elsewhere; then nothing is predicted.
    """
    if store.in_use or not store.has("consumequeue", HALF_TOPIC):
        return
    try:
        found: list[Finding] = []
        rows = open_transactions([store], lambda _: settings, ONE_PROCESS_BYTES_MAX, found)
    except SourceError:
        return
    yield from found
    if rows is None:
        yield Finding(store.root, "start-unforeseen", actual=_UNKNOWN)
        return
    again = rows.filter(pc.or_(_has_flag(rows, "may_be_decided"), pc.not_equal(rows["state"], State.PENDING)))
    again = again.filter(pc.is_valid(again["answer_effect"]))  # what the check discards without asking is not checked
    if not again.num_rows:
        return
    counts = {state: pc.sum(pc.equal(again["state"], state)).as_py() for state in State}
    words = [f"{counts[state]} {state}" for state in State if counts[state] and state != State.PENDING]
    if counts[State.PENDING]:
        words.append(f"{counts[State.PENDING]} PENDING that may have been rolled back before the broker was killed")
    elif pending_count := _perhaps_rolled_back(store, settings, rows):
        words.append(f"{pending_count} PENDING of which some may have been rolled back just before the stop")
    text = ", ".join(words)
    copies = again["half_copies"].combine_chunks().flatten()
    place = pc.min(pc.struct_field(copies, "commit_log_offset")).as_py()
    yield Finding(
        store.root, "start-checks-again", commit_log_offset=place, actual=text,
        meaning=f"the broker checks again: {text}; an answer COMMIT delivers also what was delivered or rolled back",
    )


def _perhaps_rolled_back(store: Store, settings: BrokerSettings, rows: pa.Table) -> int:
    """Return the number of pending transactions, if an orderly stop lost the op messages of COMMIT records."""
    loses = OPS_LOST_AT_STOP.between(settings.version_low, settings.version_high)
    has_lost = pc.any(_has_flag(rows, "commit_without_op")).as_py()
    if store.was_killed or loses is False or not has_lost:
        return 0
    return int(pc.sum(pc.equal(rows["state"], State.PENDING)).as_py())


def _has_flag(rows: pa.Table, name: str) -> pa.Array:
    flags = rows["flags"].combine_chunks()
    owners = pc.list_parent_indices(flags).filter(pc.equal(pc.list_flatten(flags), name))
    return pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=pc.cast(owners, pa.int64()))

"""The facts of a store beside its records, collected for the verdict: cursors, settings, end time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from rmqtx.readers.cursors import CheckCursors, check_cursors, lost_cursor_database
from rmqtx.readers.log.commit_log import scan_segments, written_end
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.identities import UInt64s
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.model.units import time_text
from rmqtx.readers.old_tables.beside_log import BesideLog
from rmqtx.readers.old_tables.beside_tables import beside_log, may_have_rocksdb_halves
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.store.broker_settings import BrokerSettings
from rmqtx.readers.store.checkpoint import flushed_time_ms, impossible_value_findings
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import CHECK_TOPICS, HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.check.check_stops import check_stops
from rmqtx.verdicts.check.window import CheckWindows
from rmqtx.verdicts.claims.log_claims import LogClaims, log_claims
from rmqtx.verdicts.deadlines.predicting import predict_from_files
from rmqtx.verdicts.model.marked_copies import FileCopies, MarkedCopies, SeenCopies
from rmqtx.verdicts.model.predicted import PAST, UNREAD_LOG, Event, Prediction
from rmqtx.verdicts.model.verdict_inputs import (
    CheckStop,
    DoubtfulEnd,
    DoubtfulId,
    HalfNumbers,
    MisdirectedDecision,
    MissingRange,
    StoreView,
    idle_ops,
)
from rmqtx.verdicts.simulation.next_start import known_start, starting_findings
from rmqtx.verdicts.startup.started_queues import queue_reach

FLUSH_LAG_MS_MAX = 10_000

SettingsOf = Callable[[Store], BrokerSettings]


def moment_ms(store: Store) -> int:
    """Return the time that counts as "now" for a store: that of reading. Its check is predicted from there on."""
    return store.taken_time_ms


def past_ms(store: Store, at_ms: int | None, reference_time_ms: int) -> int | None:
    """Return a given time if it lies before the end of a store, so that some of its records did not exist yet.

    After the last record of a broker that does not run nothing changes, so a later time only sets the clock. The end of
    a store is known to the last flush; after a kill, records may be later than that.
    """
    if at_ms is None or store.in_use or at_ms < reference_time_ms + FLUSH_LAG_MS_MAX:
        return at_ms
    return at_ms if store.aborted and _has_records_after(store, at_ms) else None


def _has_records_after(store: Store, time_ms: int) -> bool:
    """Whether a log has later records than a time, or may have: behind what the consume queues have."""
    try:
        begin = queue_reach(store).begin
        if not store.log_begin_offset <= begin < written_end(store).offset:
            begin = store.log_begin_offset
        blocks = scan_segments(store, [], [], from_offset=begin, with_fillers=True)
        return any(bool((block.header("store_time_ms") > time_ms).any()) for block in blocks)
    except SourceError:  # reported by the reader of the file
        return True


@dataclass(slots=True)
class StoreFacts:
    """The facts of one store. `findings` and `missing` grow while its records are read.

    The cursors are read first, before any record: a decision that arrives in between can then only be missed for a half
    that was still open at that moment. The same holds for the RocksDB table of a running broker; `beside` is None until
    the tables beside the log are read. `last_op_offset`: that of the last op message that was read, -1 before any.
    `past_ms`: the time before the end of the store as of which it is judged, if any. `clock_ms`: what counts as "now":
    the time of reading, or a given time after the end of the store. `first_time_ms`: of the first record of the log,
    for a past time; else 0. `future`: what the next start and the check do; None for a past time.
    `has_prepared`: the log has prepared records or ROLLBACK records, of the designs before 4.3. `seen_copies`: what
    rmqtx redelivered, of which the scan of the log searched; None if it did not.
    """

    store: Store
    settings: BrokerSettings
    cursors: CheckCursors
    reference_time_ms: int
    findings: list[Finding] = field(default_factory=list)
    missing: list[MissingRange] = field(default_factory=list)
    misdirected_decisions: list[MisdirectedDecision] = field(default_factory=list)
    doubtful_ends: list[DoubtfulEnd] = field(default_factory=list)
    doubtful_ids: list[DoubtfulId] = field(default_factory=list)
    checks_seen_max: int = 0
    last_op_offset: int = -1
    later_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    later_commit_hashes: UInt64s = field(default_factory=lambda: np.empty(0, np.uint64))
    beside: BesideLog | None = None
    half_numbers: HalfNumbers = field(default_factory=HalfNumbers)
    claims: LogClaims = field(default_factory=LogClaims)
    check_stops: list[CheckStop] = field(default_factory=list)
    past_ms: int | None = None
    first_time_ms: int = 0
    clock_ms: int = 0
    future: Prediction | None = None
    has_prepared: bool = False
    seen_copies: SeenCopies | None = None
    windows: CheckWindows = field(init=False)

    def __post_init__(self) -> None:
        self.clock_ms = self.clock_ms or moment_ms(self.store)
        self.windows = CheckWindows(self.store, self.settings.given)

    @property
    def notes(self) -> list[Note]:
        """Return the notes about the store beside its findings."""
        why = self.claims.note
        notes = [Note(NoteKind.HOW, f"{self.store.root}: {why}")] if why else []
        if self.past_ms is not None and self.past_ms < self.first_time_ms and not self.store.log_begin_offset:
            notes.append(Note(
                NoteKind.WHY,
                f"{self.store.root}: its first record is of {time_text(self.first_time_ms)}: no transaction existed at "
                f"{time_text(self.past_ms)}",
            ))
        elif self.past_ms is not None:
            then = time_text(self.past_ms)
            notes.append(Note(NoteKind.WHY, f"{self.store.root}: the state at {then}: later records are left out"))
        return notes

    def view(self) -> StoreView:
        """Return the facts in the form that the verdict uses."""
        at_ms = self.past_ms
        beyond = self._beyond_end()
        return StoreView(
            store=self.store.root,
            settings=self.settings,
            half_cursors=None if beyond else _from_minimum(self.store, HALF_TOPIC, self.cursors.half),
            op_cursors=_from_minimum(self.store, OP_TOPIC, self.cursors.op),
            log_begin_offset=self.store.log_begin_offset,
            reference_time_ms=self.reference_time_ms if at_ms is None else min(at_ms, self.reference_time_ms),
            at_ms=at_ms,
            now_ms=self.clock_ms if at_ms is None else at_ms,
            checks_seen_max=self.checks_seen_max,
            later_hashes=self.later_hashes,
            later_commit_hashes=self.later_commit_hashes,
            missing=tuple(self.missing),
            misdirected_decisions=tuple(self.misdirected_decisions),
            doubtful_ends=tuple(self.doubtful_ends),
            doubtful_ids=tuple(self.doubtful_ids),
            beside=self.beside or BesideLog(),
            is_interrupted=self.store.in_use or self.store.aborted,
            check_stops=tuple(self.check_stops),
            cursor_doubt=beyond or self._unparsed_cursors(),
            killed_time_ms=self.reference_time_ms if self.store.was_killed else None,
            future=self.future,
            half_numbers=self.half_numbers,
            idle_ops=idle_ops(self.findings),
        )

    def unread(self) -> StoreFacts:
        """Return a copy that does not grow while records are read into this one."""
        return replace(
            self, findings=[*self.findings], missing=[*self.missing], doubtful_ends=[*self.doubtful_ends],
            misdirected_decisions=[*self.misdirected_decisions], doubtful_ids=[*self.doubtful_ids],
        )

    @property
    def copies(self) -> MarkedCopies:
        """The copies that rmqtx redelivered: those that the scan found, else those that the index finds."""
        return FileCopies(self.store, self.past_ms) if self.seen_copies is None else self.seen_copies

    @property
    def predicted(self) -> Prediction:
        """The future of its half copies; without any for a past time."""
        return Prediction(is_running=self.store.in_use, why=PAST) if self.future is None else self.future

    def predict(self) -> None:
        """Play the next start and the check."""
        if self.past_ms is not None:
            return
        self.future = predict_from_files(
            self.store, self.settings, self.cursors, self.clock_ms, windows=self.windows, stops=self.check_stops
        )
        self.findings += future_findings(self.store, self.future)
        if not self.store.in_use:
            self.findings += starting_findings(self.store, self.settings, self.settings.given)

    def has_read_log(self, log_cut: int | None, damaged_at: int | None = None) -> None:
        """Add to the future that the log was read, and where its next start cuts it because of damage.

        `damaged_at`: where damage was found, if the start is not predicted: then its check is not predicted either.
        """
        if self.future is None:
            return
        if log_cut is not None or damaged_at is not None:
            place = damaged_at if log_cut is None else log_cut
            self.windows = CheckWindows(self.store, self.settings.given, log_cut=place)
            self.future = predict_from_files(
                self.store, self.settings, self.cursors, self.clock_ms, windows=self.windows, stops=self.check_stops
            )
        assumed = tuple(name for name in self.future.assumed if name != UNREAD_LOG)
        self.future = replace(self.future, log_cut=log_cut, assumed=assumed)

    def _beyond_end(self) -> str | None:
        """Return why the half cursor proves nothing: it lies beyond its queue, and the next start resets it.

        None if the log has the half messages that the queue lacks: then the queue is rebuilt from the log.
        """
        queue = as_text(self.store.queue_directory(HALF_TOPIC, 0))
        found = next((one for one in self.findings if one.code == "cursor-beyond-end" and one.file == queue), None)
        cursor = (self.cursors.half or {}).get(0)
        if found is None or cursor is None or cursor <= _half_queue_end_by_log(self.store):
            return None
        return f"{cursor} is beyond the end of the queue, {found.expected}"

    def _unparsed_cursors(self) -> str | None:
        """Return that the file of the cursors is damaged, or that a database may have been there; None if the file is
        missing, or was read.
        """
        if self.cursors.half is not None:
            return None
        if any(one.code == "config-damaged" for one in self.cursors.findings):
            return f"config/{self.cursors.name} cannot be parsed"
        database = lost_cursor_database(self.store)
        return None if database is None else f"no {database}, and no config/consumerOffset.json"


def future_findings(store: Store, future: Prediction) -> list[Finding]:
    """Return what is wrong with a future: a start that fails, halves that the check passes, a part of the release."""
    found = [*future.unread, *future.refusals, *future.left_out, *future.cuts]
    for queue_id, numbers in future.fillers.items():
        if len(numbers):
            found.append(Finding(
                store.root, "check-skips", as_text(store.queue_directory(HALF_TOPIC, queue_id)),
                expected="a half message in each slot that the check has not reached",
                actual=f"none in {len(numbers)} slots, from {numbers[0]} to {numbers[-1]}; so the check passes "
                f"{int((future.events == Event.SKIPPED).sum())} of the half messages after them",
            ))
    if future.hidden_until is not None:
        end, until = future.hidden_until
        found.append(Finding(
            store.root, "start-hides-new", as_text(store.queue_directory(HALF_TOPIC, 0)), commit_log_offset=end,
            expected=f"slots that lead to records before {end}, the end of the log",
            actual=f"a slot that leads to {until}: half messages that are written before get no slot",
        ))
    if future.differing:
        found.append(Finding(
            store.root, "start-differs", expected="the same next events of the half copies in each possible release",
            actual="; ".join(future.differing),
        ))
    return found


def _from_minimum(store: Store, topic: str, cursors: dict[int, int] | None) -> dict[int, int] | None:
    """Cursors with queue 0 filled in: without an entry the check starts at the queue's minimum.

    Source: docs/formats/half_and_op.md#check-start.
    """
    if cursors is None or 0 in cursors:
        return cursors
    try:
        with open_queue(store, topic, 0) as queue:
            return {**cursors, 0: queue.min_offset}
    except SourceError:
        return {**cursors, 0: 0}


def _half_queue_end_by_log(store: Store) -> int:
    """Return where the half queue ends after a rebuild from the log, from its last slot on."""
    end = 0
    try:
        with open_queue(store, HALF_TOPIC, 0) as queue:
            last = queue.last_place()
        begin = store.log_begin_offset if last is None else last
        for segment in store.commit_log:
            for block in SegmentScan(segment, from_position=max(begin - segment.base_offset, 0)):
                numbers = block.header("queue_offset")[block.topic_is(HALF_TOPIC)]
                end = max(end, int(numbers.max(initial=-1)) + 1)
    except SourceError:
        pass  # reported by the reader of the log
    return end


def facts_of(
    stores: Iterable[Store], settings_of: SettingsOf, *, at_ms: int | None = None, with_records: bool = False,
    by_samples: bool = False,
) -> dict[str, StoreFacts]:
    """Return the facts of the stores of one audit before any record is read; see `store_facts`."""
    return {
        store.root: store_facts(store, settings_of, at_ms=at_ms, with_records=with_records, by_samples=by_samples)
        for store in stores
    }


def store_facts(
    store: Store, settings_of: SettingsOf, *, at_ms: int | None = None, now_ms: int | None = None,
    with_records: bool = False, by_samples: bool = False,
) -> StoreFacts:
    """Return the facts of a store before its records are read, with the future of its half copies.

    `at_ms`: the time as of which it is judged, or that counts as now. `now_ms`: the moment of reading, if not given by
    the store. `with_records`: keep the half copies that the check will read, in `windows`. `by_samples`: of a remote
    store, samples show where other queues than those of the check end.
    Damage: cursors that cannot be read are unknown and a finding.
    """
    cursors = check_cursors(store)
    known_until = store.taken_time_ms if store.broker_runs else known_until_ms(store)
    past = past_ms(store, at_ms, known_until)
    facts = StoreFacts(
        claims=log_claims(store, cursors, by_samples=by_samples),
        store=store,
        settings=settings_of(store),
        cursors=cursors,
        reference_time_ms=known_until,
        past_ms=past,
        clock_ms=(now_ms or moment_ms(store)) if at_ms is None or past is not None else at_ms,
    )
    if store.in_use and may_have_rocksdb_halves(store):
        facts.beside = beside_log(store, facts.findings, has_prepared=False, has_rocksdb_halves=True)
    facts.findings.extend(store.findings)
    facts.findings.extend(cursors.findings)
    facts.findings.extend(impossible_value_findings(store))
    if past is not None:
        facts.first_time_ms = _first_time_ms(store)
        facts.findings.extend(_before_log(store, past, facts.first_time_ms))
    facts.windows = CheckWindows(store, facts.settings.given, with_records=with_records)
    if past is None:
        facts.cursors = known_start(store, cursors, facts.settings, facts.settings.given)
        facts.check_stops = check_stops(store, facts.settings, facts.cursors, facts.windows, now_ms=facts.clock_ms)
        facts.predict()
    return facts


def _first_time_ms(store: Store) -> int:
    """Return the store time of the first record of a log; 0 without one, or if its file cannot be read."""
    try:
        first = next(scan_segments(store, [], [], from_offset=store.log_begin_offset, with_fillers=True), None)
    except SourceError:  # reported by the reader of the log
        return 0
    return 0 if first is None else int(first.header("store_time_ms")[0])


def _before_log(store: Store, past_ms: int, first_time_ms: int) -> Iterator[Finding]:
    """Return a finding for a time of which the log has no record left."""
    if past_ms < first_time_ms and store.log_begin_offset:
        yield Finding(
            store.root, "at-before-log", store.commit_log[0].file, commit_log_offset=store.log_begin_offset,
            expected=f"a time from {time_text(first_time_ms)} on", actual=time_text(past_ms),
        )


@remembered
def known_until_ms(store: Store) -> int:
    """Return the end time of a stopped store: its last flush, or the last half or op message if that is later.

    After a clean stop everything is flushed, so a record with a much later time is damaged, or was written by rmqtx
    while no broker ran (5.5.0 flushes the checkpoint up to two seconds before its last records).
    """
    flushed = flushed_time_ms(store) or 0
    times = [flushed]
    try:
        with store.log() as log:
            for topic in CHECK_TOPICS:
                with open_queue(store, topic, 0) as queue:
                    last = queue.last_place()
                block = None if last is None else block_at(log, last)
                if block is not None:
                    times.append(int(block.header("store_time_ms")[0]))
    except SourceError:
        pass  # a missing or unreadable queue, reported by its reader
    if flushed and (not store.aborted or store.has_own_abort):
        times = [time for time in times if time <= flushed + FLUSH_LAG_MS_MAX]
    return max(times) or store.taken_time_ms

"""The conclusion after all splits of a store are scanned: coverage, findings, missing bytes, misdirected decisions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.commit_log import remember_unused, span_findings
from rmqtx.readers.log.prepared_records import OldRecords
from rmqtx.readers.log.segment_scan import merged_spans
from rmqtx.readers.log.transaction_records import JUDGED_HALVES, halves_of
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.ranges import LogRanges
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.old_tables.beside_log import ROCKSDB, BesideLog
from rmqtx.readers.old_tables.beside_tables import beside_log
from rmqtx.readers.rocksdb.rocksdb_queues import unread_queues
from rmqtx.readers.rocksdb.rocksdb_transactions import has_entries, no_database
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store, is_bundle
from rmqtx.verdicts.check.check_rules import supposed_version
from rmqtx.verdicts.claims.log_agreement import contradictions, lost_end
from rmqtx.verdicts.compared.checked_queues import checked_queue_findings, ranges_of_log, table_findings
from rmqtx.verdicts.compared.losses import started_check_findings
from rmqtx.verdicts.compared.rocksdb_queues import table_end_findings
from rmqtx.verdicts.ends.doubtful_ends import doubtful_id_findings
from rmqtx.verdicts.ends.end_records import examined_ends
from rmqtx.verdicts.ends.refused_numbers import with_refused, without_shifted
from rmqtx.verdicts.ends.taken_numbers import half_numbers, number_findings, op_number_findings
from rmqtx.verdicts.ends.unfound_entries import evidence_of_entries
from rmqtx.verdicts.evidence.store_facts import StoreFacts
from rmqtx.verdicts.evidence.witness_scan import SplitFacts
from rmqtx.verdicts.missing.check_queue_findings import half_queue_findings, op_queue_findings
from rmqtx.verdicts.missing.hidden_records import bounded
from rmqtx.verdicts.missing.missing_ranges import missing_bytes
from rmqtx.verdicts.missing.split_numbers import joined_numbers
from rmqtx.verdicts.model.marked_copies import SeenCopies
from rmqtx.verdicts.simulation.next_start import still_beyond
from rmqtx.verdicts.startup.log_cut import damage_read, log_cut
from rmqtx.verdicts.startup.queues import QueueFacts

_Place = tuple[Segment, int, int]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The complete facts of a store, and what must still be added to the witnesses.

    Shape: `damaged_halves` JUDGED_HALVES: damaged half copies stay in their chains, so that marks and copies still
           belong to their transaction. `ties`: pairs of identities that are, or may be, one transaction and must be
           judged together: an end with another id than the copy that it names.
    """

    facts: StoreFacts
    coverage: list[Coverage]
    damaged_halves: list[pa.RecordBatch]
    ties: list[tuple[str, str]]


def conclude(
    facts: StoreFacts, scanned: list[SplitFacts], unmatched: tuple[Int64s, Int64s] | None = None
) -> Conclusion:
    """Return the conclusion for a store with its updated facts; the given facts are not changed.

    `scanned`: its splits in log order. `unmatched`: the decisions that name no half copy of their own (their offsets,
    and the offsets they name), if the engine has already matched the others of `scanned`.
    Raises: SourceError if a file that a decision names can no longer be read.
    """
    store, splits = facts.store, _AllSplits(facts.store, scanned)
    offsets, named_offsets = unmatched_of(scanned) if unmatched is None else unmatched
    known = list(facts.findings)
    beside = _tables_beside(facts, splits, known)
    lost = lost_end(store, facts.claims, splits.spans_of)
    placed = with_refused(
        store, facts.settings, joined_numbers(part.numbers for part in scanned), [part.split for part in scanned]
    )
    unfound = without_shifted(placed, (slot for part in scanned for slot in part.unfound))
    missing = missing_bytes(
        store, splits.damaged, [*known, *splits.findings], unfound, None if lost is None else lost.missing
    )
    entries = evidence_of_entries(store, unfound, missing.ranges)
    ranges, hidden_decisions = bounded(
        store, [*facts.missing, *missing.ranges, *entries.ranges], offsets, named_offsets
    )
    unreadable = frozenset(f.file for f in splits.findings if f.code == "unreadable-file" and f.file is not None)
    # The prediction may have met the same file.
    known = [one for one in known if one.code != "unreadable-file" or one.file not in unreadable]
    damaged = [*missing.damaged_halves, *entries.damaged_halves]
    examined = examined_ends(store, offsets, named_offsets, unreadable, ranges, damaged)
    numbers = half_numbers(store, placed, (part.split for part in scanned), (facts.cursors.op or {}).get(0))
    queues = [part.queues for part in scanned if part.queues is not None]
    if splits.has_prepared and not splits.has_halves:  # no cursor decides prepared records
        known = [finding for finding in known if finding.code != "config-missing"]
    concluded = replace(
        facts,
        findings=[
            *known, *splits.findings, *entries.findings, *examined.findings, *([] if lost is None else [lost.finding]),
            *contradictions(store, facts.claims, splits.spans_of, lost), *missing.findings,
            *still_beyond(
                store, facts.settings,
                [
                    *half_queue_findings(store, facts.cursors.half, splits.has_halves, placed),
                    *op_queue_findings(store, facts.cursors.op, has_ops=any(part.has_op_messages for part in scanned)),
                ],
                is_cut=bool(splits.damaged),
            ),
            *number_findings(store, numbers),
            *unread_queues(store),
            *_marks_beyond_end(store, scanned),
        ],
        missing=[*ranges, *examined.missing],
        misdirected_decisions=sorted(
            [*facts.misdirected_decisions, *hidden_decisions, *examined.decisions], key=lambda one: one.final_offset
        ),
        doubtful_ends=[*facts.doubtful_ends, *examined.doubtful],
        doubtful_ids=[*facts.doubtful_ids, *(doubt for part in scanned for doubt in part.doubtful_ids)],
        checks_seen_max=max([facts.checks_seen_max, *(part.checks_seen_max for part in scanned)]),
        last_op_offset=max([facts.last_op_offset, *(part.last_op_offset for part in scanned)]),
        later_hashes=np.concatenate([facts.later_hashes, *(part.later_hashes for part in scanned)]),
        later_commit_hashes=np.concatenate(
            [facts.later_commit_hashes, *(part.later_commit_hashes for part in scanned)]
        ),
        beside=beside,
        half_numbers=numbers,
        has_prepared=splits.has_prepared,
        seen_copies=_joined_copies(scanned),
    )
    checked: list[QueueFacts] = []
    log_end = 0
    if scanned and len(queues) == len(scanned):
        held = _log_ranges(store, scanned)
        log_end = held.end_offset
        concluded.findings += checked_queue_findings(store, queues, held, concluded.findings, checked)
        if splits.has_rocksdb_halves and ROCKSDB in beside.kinds:
            concluded.findings += table_end_findings(
                store, beside.rocksdb_last_offset, log_end, is_complete=not store.aborted
            )
        old = OldRecords.joined(part.old_records for part in scanned)
        concluded.findings += table_findings(store, facts.settings, old, held, concluded.findings)
    if concluded.future is not None:
        version = supposed_version(facts.settings, facts.check_stops)[0]
        cut = log_cut(store, version, facts.settings.given or {}, splits.spans_of, splits.body_breaks_of)
        in_database = store.has_rocksdb_queues and not is_bundle(store)
        concluded.has_read_log(
            None if cut is None or is_bundle(store) else cut,
            damaged_at=damage_read(store, splits.spans_of, splits.body_breaks_of) if in_database else None,
        )
        if cut is None and checked and not concluded.future.refusals:
            conf = facts.settings.given or {}
            skipped = started_check_findings(store, version, conf, checked, log_end)
            concluded.findings += [one for one in skipped if one not in concluded.future.cuts]
    return Conclusion(
        concluded, splits.coverage, [halves_of(block, store.root, JUDGED_HALVES) for block in damaged], examined.ties
    )


def _joined_copies(scanned: list[SplitFacts]) -> SeenCopies | None:
    searched = [part.copies for part in scanned if part.copies is not None]
    are_all = searched and len(searched) == len(scanned)  # of Spark's workers, some may have no accelerator
    return SeenCopies(itertools.chain.from_iterable(searched)) if are_all else None


class _AllSplits:
    """The results of all splits of a store together.

    Shape: `damaged`: bytes of the log that belong to no record. After a clean stop no record was being written, and
           before 5.5.0 no page has foreign bytes, so torn records of designs before 4.3 are included.
    """

    def __init__(self, store: Store, scanned: list[SplitFacts]) -> None:
        self.has_halves = any(part.halves_count for part in scanned)
        self.has_prepared = any(part.prepared_count for part in scanned)
        self.has_rocksdb_halves = any(part.rocksdb_halves_count for part in scanned)
        self.coverage: list[Coverage] = []
        self.findings: list[Finding] = []
        self.damaged: list[_Place] = []
        by_file: dict[str, list[SplitFacts]] = defaultdict(list)
        for part in scanned:
            by_file[part.split.segment.file].append(part)
        self.spans_of = {file: [span for part in parts for span in part.spans] for file, parts in by_file.items()}
        remember_unused(store, self.spans_of)
        self.body_breaks_of = {
            file: np.concatenate([part.body_breaks for part in parts]) for file, parts in by_file.items()
        }
        torn: list[_Place] = []
        for segment in store.commit_log:
            torn += self._add(store, segment, by_file.get(segment.file, []))
        if self.has_prepared and not (self.has_halves or store.aborted or store.in_use):
            self.damaged += torn

    def _add(self, store: Store, segment: Segment, parts: list[SplitFacts]) -> list[_Place]:
        """Add the results for one file; return where it is torn."""
        spans = merged_spans([span for part in parts for span in part.spans])
        self.findings.extend(span_findings(store, segment, spans))
        coverage = Coverage(store.root, segment.file, segment.size_bytes)
        for part in parts:
            coverage.count(part.decoded_bytes, part.spans)
            self.findings.extend(part.findings)
            if part.error is not None:
                self.findings.append(Finding(store.root, "unreadable-file", segment.file, actual=str(part.error)))
            self.findings.extend(doubtful_id_findings(segment, part.doubtful_ids))
        self.coverage.append(coverage)
        places = {
            kind: [(segment, span.position_bytes, span.length_bytes) for span in spans if span.kind in kinds]
            for kind, kinds in (("damaged", ("damaged",)), ("torn", ("torn", "foreign")))
        }
        self.damaged += places["damaged"]
        return places["torn"]


def _log_ranges(store: Store, scanned: list[SplitFacts]) -> LogRanges:
    """Return which parts of the log can contain records."""
    damaged = [
        np.array([(part.split.segment.base_offset + span.position_bytes,
                   part.split.segment.base_offset + span.position_bytes + span.length_bytes)], np.int64)
        for part in scanned for span in part.spans if span.kind == "damaged"
    ]
    damaged += [np.array([part.split.offsets], np.int64) for part in scanned if part.error is not None]
    return ranges_of_log(store, max((part.end_offset for part in scanned), default=0), damaged)


def _marks_beyond_end(store: Store, scanned: list[SplitFacts]) -> Iterator[Finding]:
    """Return op marks whose half queue offset neither the half queue nor the log has."""
    end = 1 + max((part.last_half_number for part in scanned), default=-1)
    rows = np.concatenate([np.empty((0, 2), np.int64), *(part.high_marks for part in scanned)])
    rows = rows[rows[:, 1] >= end]
    return op_number_findings(store, rows[:, 0], rows[:, 1])


def _tables_beside(facts: StoreFacts, splits: _AllSplits, findings: list[Finding]) -> BesideLog:
    """Return the tables beside the log, if the log has half copies for them; adds to the findings."""
    beside = facts.beside
    if beside is None:
        beside = beside_log(
            facts.store, findings, has_prepared=splits.has_prepared, has_rocksdb_halves=splits.has_rocksdb_halves
        )
    if splits.has_rocksdb_halves and ROCKSDB not in beside.kinds and not has_entries(facts.store):
        findings.append(no_database(facts.store))
    return beside


def unmatched_of(scanned: list[SplitFacts]) -> tuple[Int64s, Int64s]:
    """The unmatched decisions of some splits: their offsets, and the offsets they name."""
    empty = np.empty(0, np.int64)
    return (
        np.concatenate([empty, *(part.unmatched_offsets for part in scanned)]),
        np.concatenate([empty, *(part.unmatched_named_offsets for part in scanned)]),
    )


def without_stale(scanned: list[SplitFacts]) -> list[SplitFacts]:
    """Return the splits that count: those after the end of their segment's data contain what a recovery has cut off.

    Order: as given; the splits of a segment are consecutive.
    """
    ended: set[str] = set()
    kept: list[SplitFacts] = []
    for part in scanned:
        if part.split.segment.file in ended:
            continue
        if part.is_segment_ended:
            ended.add(part.split.segment.file)
        kept.append(part)
    return kept

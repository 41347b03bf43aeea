"""What is known of a store when all its splits are scanned: coverage, findings, missing bytes, decisions of others."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from readers.log.commit_log import span_findings
from readers.log.segment_scan import merged_spans
from readers.log.transaction_records import JUDGED_HALVES, halves_of
from readers.model.columns import Int64s
from readers.model.findings import Finding
from readers.model.reading import Coverage
from readers.old_tables.beside_log import ROCKSDB
from readers.old_tables.beside_tables import beside_log
from readers.rocksdb.rocksdb_transactions import has_entries, no_database
from readers.storage.segments import Segment
from verdicts.claims.lost_end import contradictions, lost_end
from verdicts.ends.doubtful_ends import doubtful_id_findings
from verdicts.ends.end_records import examined_ends
from verdicts.ends.unfound_entries import evidence_of_entries
from verdicts.evidence.store_facts import StoreFacts
from verdicts.evidence.witness_scan import Scanned
from verdicts.missing.hidden_records import bounded
from verdicts.missing.missing_ranges import derived_findings, missing_bytes


@dataclass(slots=True)
class Conclusion:
    """The facts of a store, complete; and what must still find its place among the witnesses.

    Shape: `damaged_halves` JUDGED_HALVES: half copies that are damaged stay in their chains, so that marks and copies
           still find their transaction. `ties`: pairs of identities that are one transaction or may be, and so must be
           judged together: an end whose id is not that of the copy it names.
    """

    facts: StoreFacts
    coverage: list[Coverage] = field(default_factory=list)
    damaged_halves: list[pa.RecordBatch] = field(default_factory=list)
    ties: list[tuple[str, str]] = field(default_factory=list)


def conclude(
    facts: StoreFacts, scanned: list[Scanned], strays: tuple[Int64s, Int64s] | None = None
) -> Conclusion:
    """The conclusion for a store; completes its facts.

    `scanned`: its splits in log order. `strays`: the stray decisions (their offsets, and the offsets they name) if the
    engine already knows that others of `scanned` are in order.
    Raises: SourceError if a file that a decision names cannot be read any more.
    """
    store = facts.store
    result = Conclusion(facts)
    coverage = {segment.file: Coverage(store.root, segment.file, segment.size_bytes) for segment in store.commit_log}
    found: list[Finding] = []
    damaged: list[tuple[Segment, int, int]] = []
    torn: list[tuple[Segment, int, int]] = []
    by_file: dict[str, list[Scanned]] = defaultdict(list)
    for part in scanned:
        by_file[part.split.segment.file].append(part)
    for segment in store.commit_log:
        parts = by_file.get(segment.file, [])
        spans = merged_spans([span for part in parts for span in part.spans])
        found.extend(span_findings(store, segment, spans))
        damaged.extend((segment, s.position_bytes, s.length_bytes) for s in spans if s.kind == "damaged")
        torn.extend((segment, s.position_bytes, s.length_bytes) for s in spans if s.kind in ("torn", "foreign"))
        for part in parts:
            coverage[segment.file].count(part.decoded_bytes, part.spans)
            found.extend(part.findings)
            if part.error is not None:
                found.append(Finding(store.root, "unreadable-file", segment.file, actual=str(part.error)))
            facts.checks_seen_max = max(facts.checks_seen_max, part.checks_seen_max)
            facts.doubtful_ids.extend(part.doubtful_ids)
            found.extend(doubtful_id_findings(segment, part.doubtful_ids))
            facts.later_hashes = np.concatenate([facts.later_hashes, part.later_hashes])
    result.coverage = list(coverage.values())
    offsets, prepared_offsets = strays if strays is not None else strays_of(scanned)
    unreadable = frozenset(f.file for f in found if f.code == "unreadable-file" and f.file is not None)
    _ask_tables(facts, scanned)
    unfound = [slot for part in scanned for slot in part.unfound]
    has_halves = any(part.halves_count for part in scanned)
    has_prepared = any(part.prepared_count for part in scanned)
    # Behind a clean stop there is no record that was being written, and before 5.5.0 no page with others' bytes.
    if has_prepared and not (has_halves or store.aborted or store.in_use):
        damaged.extend(torn)
    spans_of = {file: [span for part in parts for span in part.spans] for file, parts in by_file.items()}
    lost = lost_end(store, facts.claims, spans_of)
    missing = missing_bytes(store, damaged, [*facts.findings, *found], unfound,
                            None if lost is None else lost.missing)
    entries = evidence_of_entries(store, unfound, missing.ranges)
    facts.missing.extend([*missing.ranges, *entries.ranges])
    found.extend(entries.findings)
    facts.missing[:], hidden_decisions = bounded(store, facts.missing, offsets, prepared_offsets)
    facts.foreign_decisions.extend(hidden_decisions)
    examined = examined_ends(store, offsets, prepared_offsets, unreadable, facts.missing)
    facts.foreign_decisions.extend(examined.decisions)
    facts.foreign_decisions.sort(key=lambda decision: decision.final_offset)
    facts.doubtful_ends.extend(examined.doubtful)
    facts.missing.extend(examined.missing)
    found.extend(examined.findings)
    result.ties = examined.ties
    if not has_halves and has_prepared:  # no cursor decides anything of those
        facts.findings[:] = [finding for finding in facts.findings if finding.code != "config-missing"]
    if lost is not None:
        found.append(lost.finding)
    found.extend(contradictions(store, facts.claims, spans_of, lost))
    facts.findings.extend([*found, *missing.findings, *derived_findings(store, facts.cursors.half, has_halves)])
    damaged_halves = (*missing.damaged_halves, *entries.damaged_halves)
    result.damaged_halves = [halves_of(block, store.root, JUDGED_HALVES) for block in damaged_halves]
    return result


def _ask_tables(facts: StoreFacts, scanned: list[Scanned]) -> None:
    """What the tables beside the log say, where the log has half copies that they know of."""
    has_prepared = any(part.prepared_count for part in scanned)
    has_rocksdb_halves = any(part.rocksdb_halves_count for part in scanned)
    if facts.beside is None:
        facts.beside = beside_log(
            facts.store, facts.findings, has_prepared=has_prepared, has_rocksdb_halves=has_rocksdb_halves
        )
    if has_rocksdb_halves and ROCKSDB not in facts.beside.kinds and not has_entries(facts.store):
        facts.findings.append(no_database(facts.store))


def strays_of(scanned: list[Scanned]) -> tuple[Int64s, Int64s]:
    """The stray decisions of some splits: where they stand, and the offsets they name."""
    empty = np.empty(0, np.int64)
    return (
        np.concatenate([empty, *(part.stray_offsets for part in scanned)]),
        np.concatenate([empty, *(part.stray_prepared_offsets for part in scanned)]),
    )


def without_stale(scanned: list[Scanned]) -> list[Scanned]:
    """The splits that count: those behind the end of their segment's data hold what a recovery once cut off.

    Order: as given, in which a segment's splits follow one another.
    """
    ended: set[str] = set()
    kept: list[Scanned] = []
    for part in scanned:
        if part.split.segment.file in ended:
            continue
        if part.is_segment_ended:
            ended.add(part.split.segment.file)
        kept.append(part)
    return kept

"""Where the next start of a stopped broker cuts its log, by the damage that a scan has found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.releases import LAST_TO_START_ALIKE, Version
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.remembered import remembered
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.startup.dledger_log import entries_begin, is_too_far_back, walk_entries
from rmqtx.verdicts.startup.log_walk import walk_log
from rmqtx.verdicts.startup.recovery import FILES_BACK, loaded_log, start_file
from rmqtx.verdicts.startup.rules import RecoveryRules, not_predictable, rules_of
from rmqtx.verdicts.startup.started_queues import queue_reach

#: A longer log is not read for damage at which the next start would cut it off.
_SCANNED_BYTES_MAX = 256 << 20
_NO_ROWS = np.empty((0, 2), np.int64)


def log_cut(
    store: Store, version: Version, conf: Mapping[str, str], spans_of: Mapping[str, Sequence[Span]],
    body_breaks_of: Mapping[str, Int64s] | None = None,
) -> int | None:
    """Return the commit-log offset from which a start cuts off sound records; None if it keeps all of them.

    `spans_of`: by file, what a scan found to be no record. `body_breaks_of`: by file, rows [from, to) of the records
    whose body does not match its CRC, as far as they are known.
    Damage: a file that cannot be read is reported elsewhere; then nothing is predicted.
    """
    if store.in_use or not_predictable(store, conf) is not None:
        return None
    if store.is_dledger:  # its recovery compares no CRC of bodies
        breaks = {segment.file: _rows(spans_of.get(segment.file, ())) for segment in store.commit_log}
        return entries_cut(store, _end(store.commit_log, breaks))
    bodies = body_breaks_of or {}
    is_damaged = any(span.kind == "damaged" for spans in spans_of.values() for span in spans)
    is_damaged |= any(len(rows) for rows in bodies.values())
    rules = rules_of(version, conf)
    try:
        segments, left_out_for = loaded_log(store, conf, rules)
        left_out = store.commit_log[len(segments) :] if left_out_for else ()
        loses_file = bool(left_out) and left_out[0].base_offset < written_end(store).offset
        if not segments or not (is_damaged or loses_file):
            return None
        first = _first_file(store, segments, conf, rules)
        spans = {segment.file: _rows(spans_of.get(segment.file, ())) for segment in segments}
        breaks = {file: _with_bodies(rows, bodies.get(file)) for file, rows in spans.items()}
        walk = walk_log(segments, first, breaks, rules, is_abnormal=store.aborted)
    except SourceError:
        return None
    return walk.end_offset if loses_file or walk.end_offset < _end(segments, spans) else None


def damage_read(
    store: Store, spans_of: Mapping[str, Sequence[Span]], body_breaks_of: Mapping[str, Int64s]
) -> int | None:
    """Return the commit-log offset of the first damage that the next start may read; None if it reads none.

    For a start that is not predicted: with queues in RocksDB. Shape: as in `log_cut`.
    """
    begin = earliest_read(store)
    if begin is None:
        return None
    places = [
        segment.base_offset + position
        for segment in store.commit_log if segment.base_offset >= begin
        for position in (
            *(span.position_bytes for span in spans_of.get(segment.file, ()) if span.kind == "damaged"),
            *body_breaks_of.get(segment.file, _NO_ROWS)[:, 0].tolist(),
        )
    ]
    return min(places, default=None)


def scanned_damage(store: Store) -> int | None:
    """Return the same by a scan; None too if that would read too much. Raises: UnreadableFile, FileChanged."""
    begin = earliest_read(store)
    if begin is None or written_end(store).offset - begin > _SCANNED_BYTES_MAX:
        return None
    return damage_read(store, *_scanned(store, begin))


def _scanned(store: Store, begin: int) -> tuple[dict[str, Sequence[Span]], dict[str, Int64s]]:
    """Return what a scan of the files from a place on finds to be no record, and records with a wrong body."""
    last = written_end(store).last_base
    spans_of: dict[str, Sequence[Span]] = {}
    bodies_of: dict[str, Int64s] = {}
    for segment in store.commit_log:
        if begin <= segment.base_offset <= last:
            scan = SegmentScan(segment, is_last=segment.base_offset == last)
            bodies_of[segment.file] = np.concatenate([_NO_ROWS, *(unaccepted_bodies(block) for block in scan)])
            spans_of[segment.file] = scan.spans
    return spans_of, bodies_of


def entries_cut(store: Store, sound_end: int) -> int | None:
    """Return the same for a DLedger log with sound records up to an offset.

    Its start reads the headers of entries only: it ends the log at a wrong one, whatever records follow. None too if
    the broker refuses the start.
    Damage: as in `log_cut`.
    """
    try:
        walk = walk_entries(store)
        if walk is None or walk.end_offset >= sound_end or is_too_far_back(store, walk):
            return None
    except SourceError:
        return None
    return walk.end_offset


def scanned_cuts(store: Store, versions: Sequence[Version], conf: Mapping[str, str]) -> list[int | None]:
    """Return the same for each of these versions by a scan of what their starts read; None too where that is too much.

    Raises: UnreadableFile, FileChanged.
    """
    end = written_end(store).offset
    begins = [read_from(store, version, conf) for version in versions]
    near = [begin for begin in begins if begin is not None and end - begin <= _SCANNED_BYTES_MAX]
    spans_of, bodies_of = _scanned(store, min(near)) if near else ({}, {})
    return [
        log_cut(store, version, conf, spans_of, bodies_of) if begin in near else None
        for version, begin in zip(versions, begins, strict=True)
    ]


def unaccepted_bodies(block: Block) -> Int64s:
    """Return the records whose body a start does not accept, because of its CRC: rows [from, to) of the file.

    Source: store/CommitLog.java checkMessageAndReturnSize.
    """
    wrong = (~block.body_crc_matches() | (block.header("body_crc") < 0)) & (block.body_lengths > 0)
    begins = block.positions[wrong].astype(np.int64)
    found: Int64s = np.stack([begins, begins + block.lengths[wrong]], axis=1)
    return found


def read_from(store: Store, version: Version, conf: Mapping[str, str]) -> int | None:
    """Return the commit-log offset from which the next start of a stopped broker reads its log; None if not known.

    Raises: UnreadableFile, FileChanged.
    """
    rules = rules_of(version, conf)
    segments, _ = loaded_log(store, conf, rules)
    if not segments or store.in_use or not_predictable(store, conf) is not None:
        return None
    if store.is_dledger:
        return entries_begin(store)
    return segments[_first_file(store, segments, conf, rules)].base_offset


@remembered
def earliest_read(store: Store) -> int | None:
    """Return the commit-log offset from which a start of any release may read the log of a stopped broker.

    None for a running broker, or without a file. A configuration with messageIndexSafe can begin earlier.
    Damage: a file that cannot be read is reported elsewhere; then the begin of the log.
    """
    if store.in_use:
        return None
    last = written_end(store).last_base
    segments = [segment for segment in store.commit_log if segment.base_offset <= last]
    if not segments:
        return None
    if not store.aborted:
        return segments[-FILES_BACK:][0].base_offset
    kinds = {rules_of(version) for version in LAST_TO_START_ALIKE}
    try:
        return segments[min(start_file(store, segments, {}, -1, rules) for rules in kinds)].base_offset
    except SourceError:
        return segments[0].base_offset


def _first_file(store: Store, segments: Sequence[Segment], conf: Mapping[str, str], rules: RecoveryRules) -> int:
    reach = -1 if store.aborted else queue_reach(store).as_counted(rules)
    return start_file(store, segments, conf, reach, rules)


def _rows(spans: Sequence[Span]) -> Int64s:
    rows = sorted((span.position_bytes, span.position_bytes + span.length_bytes) for span in spans)
    return np.array(rows, np.int64).reshape(-1, 2)


def _with_bodies(rows: Int64s, bodies: Int64s | None) -> Int64s:
    if bodies is None or not len(bodies):
        return rows
    every = np.concatenate([rows, bodies])
    return every[np.argsort(every[:, 0], kind="stable")]


def _end(segments: Sequence[Segment], breaks: Mapping[str, Int64s]) -> int:
    """Return the commit-log offset past the last record; 0 without any."""
    return max((_sound_end(segment, breaks[segment.file]) for segment in segments), default=0)


def _sound_end(segment: Segment, breaks: Int64s) -> int:
    """Return the commit-log offset past the last record of a file; 0 if it has none."""
    end = segment.size_bytes
    for begin, stop in breaks[::-1].tolist():
        if stop < end:
            break
        end = begin
    return segment.base_offset + end if end else 0

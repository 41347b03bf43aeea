"""The scanned log compared with the claims of other files: they show whether its end, or all of it, is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rmqtx.readers.log.commit_log import last_with_data, written_bytes
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.claims.claim_proofs import DecodedLog, broken_claim, contradicted_claims, contradiction
from rmqtx.verdicts.claims.log_claims import LogClaims
from rmqtx.verdicts.model.verdict_inputs import MissingRange

#: How much of a log before its end is read again for the time of its last record, and how much behind: a record may
#: end there. All that is behind would be a GiB in a file that was just begun.
_BEFORE_END_BYTES, _BEHIND_END_BYTES = 64 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class LostEnd:
    """Records after the end of a log that another file refers to."""

    missing: MissingRange
    finding: Finding


#: Spans without records, by scanned file.
_Spans = Mapping[str, Sequence[Span]]


def lost_end(
    store: Store, claims: LogClaims, spans: _Spans, decoded: DecodedLog | None = None
) -> LostEnd | None:
    """Return what is lost after the end of the decoded log; None if all claims hold.

    `spans`: the spans without records, for every file that was read. `decoded`: the decoded extent, needed if spans
    without loss are not included.
    Units: commit-log offsets in bytes.
    """
    try:
        decoded = decoded or decoded_log(store, spans)
        broken = broken_claim(store, claims, decoded)
    except SourceError:
        return None  # the log can no longer be read, which the scan reports
    if broken is None:
        return None
    reach = broken.reach_offset
    if reach is None:  # unknown extent: up to the end of the files
        reach = max(decoded.end_offset + 1, store.log().end_offset)
    is_empty = decoded.is_empty
    if is_empty and reach <= decoded.end_offset:  # all that is left begins after the newest known record
        end, reach = reach - 1, decoded.end_offset
    else:
        end = _behind_known_damage(store, spans, decoded.end_offset, reach)
    if end >= reach:
        return None
    segment = store.log().segment_at(end)
    state = "has no records" if is_empty else f"ends at {end}"
    what = f"{broken.witness} refers to {broken.words}, but the log {state}"
    return LostEnd(
        MissingRange(store.root, end, reach, what),
        Finding(
            store.root, "log-missing", None if segment is None else segment.file,
            None if segment is None else end - segment.base_offset, reach - end, commit_log_offset=end,
            expected=f"{broken.words}, which {broken.witness} refers to",
            actual="no records" if is_empty else f"no record from {end} on",
        ),
    )  # fmt: skip


def contradictions(store: Store, claims: LogClaims, spans: _Spans, lost: LostEnd | None) -> list[Finding]:
    """Return a finding if other files refer to records at places with other records: they belong to another log.

    `lost`: what is reported as lost after the end.
    """
    try:
        decoded = decoded_log(store, spans)
        holes = _holes(store, spans, decoded.end_offset)
        if lost is not None:
            holes.append((lost.missing.begin_offset, lost.missing.end_offset))
        return contradiction(store, contradicted_claims(store, claims, decoded, holes))
    except SourceError:
        return []  # the log can no longer be read, which the scan reports


def _behind_known_damage(store: Store, spans: _Spans, end: int, reach: int) -> int:
    """Return the first offset from `end` on that is not in reported damage, in a gap or in a blank record."""
    for begin, stop in sorted(_holes(store, spans, reach)):
        if begin <= end:
            end = max(end, stop)
    return end


def _holes(store: Store, spans: _Spans, reach: int) -> list[tuple[int, int]]:
    """Offsets of reported damage, gaps, and blank records at the end of files before `reach`."""
    known = [
        (finding.commit_log_offset, finding.commit_log_offset + finding.length_bytes)
        for finding in store.findings
        if finding.code == "segment-gap" and finding.commit_log_offset is not None and finding.length_bytes
    ]
    for segment in store.commit_log:
        known += [
            (segment.base_offset + span.position_bytes, segment.base_offset + span.position_bytes + span.length_bytes)
            for span in spans.get(segment.file, ())
            if span.kind == "damaged" or (span.kind == "blank" and segment.end_offset < reach)
        ]
    return known


def decoded_log(store: Store, spans: _Spans) -> DecodedLog:
    """Return where the last scanned record ends, and when it was stored.

    Raises: SourceError.
    """
    for segment in reversed(store.commit_log):
        end = _data_end(segment, spans[segment.file]) if segment.file in spans else 0
        if end:
            return DecodedLog(segment.base_offset + end, _last_store_time_ms(segment, end))
    return DecodedLog(store.log_begin_offset, None)


def newest_time_ms(store: Store) -> int | None:
    """Return the store time of the last record of a log, by its last bytes; None without a record there.

    Raises: UnreadableFile, FileChanged.
    """
    last = last_with_data(store.commit_log)
    segment = next((segment for segment in store.commit_log if segment.base_offset == last), None)
    return None if segment is None else _last_store_time_ms(segment, written_bytes(segment)) or None


def _data_end(segment: Segment, spans: Sequence[Span]) -> int:
    """Position past the last record of a segment; 0 if it has none."""
    end = segment.size_bytes
    for span in sorted(spans, key=lambda span: span.position_bytes, reverse=True):
        if span.position_bytes + span.length_bytes < end:
            break
        end = min(end, span.position_bytes)
    return end


def _last_store_time_ms(segment: Segment, end: int) -> int:
    part = replace(segment, size_bytes=min(segment.size_bytes, end + _BEHIND_END_BYTES))
    back_bytes = _BEFORE_END_BYTES
    while True:
        begin = max(0, end - back_bytes)
        scan = SegmentScan(part, from_position=begin, to_position=end)
        for _ in scan:
            pass
        if scan.last_store_time_ms or not begin:
            return scan.last_store_time_ms
        back_bytes *= 8

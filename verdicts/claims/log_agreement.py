"""A log compared with the claims of the other files of its store: at a few places, or as it was scanned.

At a few places nothing is scanned. The scanned log shows whether its end, or all of it, is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rmqtx.readers.log.commit_log import written_end
from rmqtx.readers.log.segment_scan import SegmentScan, Span, misplaced_length, sound_length
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store
from rmqtx.verdicts.claims.claim_proofs import (
    DecodedLog,
    broken_claim,
    broken_claim_findings,
    broken_claims,
    contradicted_claims,
    contradiction,
)
from rmqtx.verdicts.claims.log_claims import QUEUE, LogClaim, LogClaims, of_record
from rmqtx.verdicts.missing.unfound_slots import STALE_RUN_MIN
from rmqtx.verdicts.model.verdict_inputs import MissingRange

#: The most files that are read, the newest first: a log may have thousands. Fewer if each read is a request.
JOINS_MAX = 16
_REMOTE_JOINS_MAX = 2
#: How many slots of the half queue, and of the op queue, are compared with a file that they lead into: the last ones.
_SLOTS_COMPARED = 4
#: How much of a file's end is read for its last record; more if the record or the blank after it is longer.
_END_BYTES = 64 << 10
_END_BYTES_MAX = 64 << 20
#: How much of a log before its end is read again for the time of its last record, and how much behind: a record may
#: end there. All that is behind would be a GiB in a file that was just begun.
_BEFORE_END_BYTES, _BEHIND_END_BYTES = 64 << 10, 1 << 20


def disagreement(store: Store, claims: LogClaims, log: SegmentedLog) -> str | None:
    """Return the first contradiction: a missing record that other files refer to, or files that do not join.

    Raises: UnreadableFile, FileChanged.
    """
    for claim in broken_claims(store, claims, log):
        return f"{claim.witness} refers to a record at commit-log offset {claim.record_offset}, which is missing"
    if claims.newest and not has_data(store):
        return f"{claims.newest[0].witness} refers to {claims.newest[0].words}, but the log is empty"
    return broken_join(store)


def has_data(store: Store) -> bool:
    """Whether the files of a log contain anything but zeros."""
    return written_end(store).has_data


def missing_findings(store: Store, claims: LogClaims) -> list[Finding]:
    """Return one finding if other files refer to records that are not in the log, or if the log is empty.

    A file of zeros after a missing file makes the records of the missing file look expired.
    Raises: SourceError.
    """
    return broken_claim_findings(store, claims) or ([] if has_data(store) else contradiction(store, claims.newest))


def agreement_findings(store: Store, claims: LogClaims) -> list[Finding]:
    """Return these contradictions as findings, and files of the log that the user has no permission to read."""
    findings = []
    for segment in () if store.is_remote else store.commit_log:  # opening a remote file is a request
        try:
            segment.open().close()
        except SourceError as error:
            findings.append(Finding(store.root, "unreadable-file", segment.file, actual=error.message))
    if findings:
        return findings
    try:
        findings = missing_findings(store, claims)
        if not findings and (words := broken_join(store)) is not None:
            findings = [Finding(store.root, "record-damaged", actual=words)]
    except SourceError as error:
        findings = [Finding(store.root, "unreadable-file", error.file, actual=error.message)]
    return findings


# Whether the files of a commit log join: their ends are read, where a lost content shows first.
#
# A broker fills a file to its end (with a blank record if the next record does not fit) before it writes into the
# next file, which begins with a record. So a file of zeros or garbage, or one with shifted content, does not join the
# others, and neither does the file after it. Damage in the middle of a file is not found here. A whole file of another
# log can join: then the slots of the check that lead into it find other records.


def broken_join(store: Store) -> str | None:
    """Return as text where the files of a log do not join; None if those that were read do.

    Shape:  the newest JOINS_MAX files with data are read.
    Raises: UnreadableFile, FileChanged.
    """
    last = written_end(store).last_base
    for segment in _files_to_read(store, last):
        with segment.open() as file:
            begin = segment.frame_bytes
            is_begun = sound_length(file, begin, segment.base_offset) is not None
            if not is_begun and misplaced_length(file, begin, segment, 0) is None:
                return f"{segment.file} does not begin with a record"
        if segment.base_offset < last and not _is_full(segment):
            return f"{segment.file} is not filled with records to its end"
        if not store.is_remote and _is_of_another_log(store, segment):  # each slot and record would be a request
            return f"{segment.file} has other records than the slots of half and op queue that lead into it"
    return None


def _is_of_another_log(store: Store, segment: Segment) -> bool:
    """Whether the last slots of the check's queues that lead into a file all find other records there."""
    claims: list[LogClaim] = []
    for topic in (HALF_TOPIC, OP_TOPIC):
        try:
            with open_queue(store, topic, 0) as queue:
                end = queue.offset_of(segment.end_offset)
                numbers, places, sizes, _ = queue.read(max(queue.min_offset, end - _SLOTS_COMPARED), end)
        except SourceError:
            continue  # its reader reports it
        claims += [
            of_record(QUEUE, topic, place, size, slot=(topic, 0, number))
            for number, place, size in zip(numbers.tolist(), places.tolist(), sizes.tolist(), strict=True)
            if segment.base_offset + segment.frame_bytes < place < segment.end_offset
        ]
    if len(claims) < STALE_RUN_MIN:
        return False
    with store.log() as log:
        return len(broken_claims(store, LogClaims(tuple(claims)), log)) == len(claims)


def _files_to_read(store: Store, last: int) -> list[Segment]:
    """The files to read, newest first; none for a log without data."""
    written = [segment for segment in reversed(store.commit_log) if segment.base_offset <= last]
    if not has_data(store):
        return []
    return written[: _REMOTE_JOINS_MAX if store.is_remote else JOINS_MAX]


def _is_full(segment: Segment) -> bool:
    """Whether the last record of a file, or the blank after it, reaches the end of the file."""
    length = _END_BYTES
    while True:
        begin = max(0, segment.size_bytes - length)
        scan = SegmentScan(segment, from_position=begin, is_last=False)
        if sum(len(block) for block in scan) or scan.spans:
            return all(span.is_filler for span in scan.spans)
        if not begin or length >= _END_BYTES_MAX:
            return False
        length *= 16


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
    state = "has no records" if is_empty else f"ends at {end}"
    what = f"{broken.witness} refers to {broken.words}, but the log {state}"
    return LostEnd(
        MissingRange(store.root, end, reach, what),
        Finding(
            store.root, "log-missing", *store.log().place_of(end), reach - end, commit_log_offset=end,
            expected=f"{broken.words}, which {broken.witness} refers to",
            actual="no records" if is_empty else f"no record from {end} on",
        ),
    )


def contradictions(
    store: Store, claims: LogClaims, spans: _Spans, lost: LostEnd | None, decoded: DecodedLog | None = None
) -> list[Finding]:
    """Return a finding if other files refer to records at places with other records: they belong to another log.

    `lost`: what is reported as lost after the end. `spans` and `decoded`: as for `lost_end`.
    """
    try:
        decoded = decoded or decoded_log(store, spans)
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
    """Return where the last scanned record ends, and when it was stored. Raises: SourceError."""
    for segment in reversed(store.commit_log):
        end = _data_end(segment, spans[segment.file]) if segment.file in spans else 0
        if end:
            return DecodedLog(segment.base_offset + end, _last_store_time_ms(segment, end))
    return DecodedLog(store.log_begin_offset, None)


def newest_time_ms(store: Store) -> int | None:
    """Return the store time of the last record of a log, by its last bytes; None without a record there.

    Raises: UnreadableFile, FileChanged.
    """
    end = written_end(store)
    segment = next((segment for segment in store.commit_log if segment.base_offset == end.last_base), None)
    return None if segment is None else _last_store_time_ms(segment, end.offset - segment.base_offset) or None


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

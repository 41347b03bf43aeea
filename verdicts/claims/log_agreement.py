"""Whether a log and the other files of its store agree at a few places; nothing is scanned."""

from __future__ import annotations

from rmqtx.readers.log.commit_log import last_with_data, written_bytes
from rmqtx.readers.log.segment_scan import SegmentScan, misplaced_length, sound_length
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.claims.claim_proofs import broken_claim_findings, broken_claims, contradiction
from rmqtx.verdicts.claims.log_claims import LogClaims

#: The most files that are read, the newest first: a log may have thousands. Fewer if each read is a request.
JOINS_MAX = 16
_REMOTE_JOINS_MAX = 2
#: How much of a file's end is read for its last record; more if the record or the blank after it is longer.
_END_BYTES = 64 << 10
_END_BYTES_MAX = 64 << 20


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
    last = last_with_data(store.commit_log)
    return any(written_bytes(segment) > 0 for segment in store.commit_log if segment.base_offset == last)


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
# others, and neither does the file after it. Damage in the middle of a file is not found here.


def broken_join(store: Store) -> str | None:
    """Return as text where the files of a log do not join; None if those that were read do.

    Shape:  the newest JOINS_MAX files with data are read.
    Raises: UnreadableFile, FileChanged.
    """
    last = last_with_data(store.commit_log)
    for segment in _files_to_read(store, last):
        with segment.open() as file:
            begin = segment.frame_bytes
            is_begun = sound_length(file, begin, segment.base_offset) is not None
            if not is_begun and misplaced_length(file, begin, segment, 0) is None:
                return f"{segment.file} does not begin with a record"
        if segment.base_offset < last and not _is_full(segment):
            return f"{segment.file} is not filled with records to its end"
    return None


def _files_to_read(store: Store, last: int) -> list[Segment]:
    """The files to read, newest first; none for a log without data."""
    written = [segment for segment in reversed(store.commit_log) if segment.base_offset <= last]
    if not written or not written_bytes(written[0]):
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

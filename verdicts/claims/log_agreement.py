"""Whether a log and the other files of its store agree at a few places; nothing is scanned."""

from __future__ import annotations

from rmqtx.readers.log.commit_log import last_with_data, written_bytes
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.claims.claim_proofs import broken_claim_findings, broken_claims, contradiction
from rmqtx.verdicts.claims.log_claims import LogClaims
from rmqtx.verdicts.claims.segment_joins import broken_join


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

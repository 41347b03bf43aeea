"""Whether a log and the other files of its store agree, as far as a look at few places shows it; nothing is scanned."""

from __future__ import annotations

from readers.log.commit_log import last_with_data, written_bytes
from readers.model.errors import SourceError
from readers.model.findings import Finding
from readers.storage.segments import SegmentedLog
from readers.store.store import Store
from verdicts.claims.claim_proofs import contradiction, unkept_claims, unkept_findings
from verdicts.claims.log_claims import LogClaims
from verdicts.claims.segment_joins import broken_join


def disagreement(store: Store, claims: LogClaims, log: SegmentedLog) -> str | None:
    """The first contradiction: a record that other files know and that is not there, or files that do not join.

    Raises: UnreadableFile, FileChanged.
    """
    for claim in unkept_claims(store, claims, log):
        return f"{claim.witness} knows a record at commit-log offset {claim.record_offset}, and it is not there"
    if claims.newest and not has_data(store):
        return f"{claims.newest[0].witness} knows {claims.newest[0].words}, and the log is empty"
    return broken_join(store)


def has_data(store: Store) -> bool:
    """Whether anything but zeros is in the files of a log."""
    last = last_with_data(store.commit_log)
    return any(written_bytes(segment) > 0 for segment in store.commit_log if segment.base_offset == last)


def missing_findings(store: Store, claims: LogClaims) -> list[Finding]:
    """One finding where other files know records that are not in the log, or know any and the log is empty.

    A file of zeros behind the one that is gone makes those records look expired.
    Raises: SourceError.
    """
    return unkept_findings(store, claims) or ([] if has_data(store) else contradiction(store, claims.newest))


def agreement_findings(store: Store, claims: LogClaims) -> list[Finding]:
    """The same as findings, and files of the log that this user may not read."""
    findings = []
    for segment in () if store.is_remote else store.commit_log:  # there an opening is a request
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

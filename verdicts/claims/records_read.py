"""A reading of the records of a log that reports lost records too: other files of the store refer to them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.claims.log_agreement import missing_findings
from rmqtx.verdicts.claims.log_claims import LogClaims, log_claims


def with_lost_records(reading: Reading, stores: Sequence[Store], to_offset: int | None = None) -> Reading:
    """Return a reading of the logs of some stores that has a finding for each log without records that it must have.

    A log whose end or only file is missing, empty or zero looks whole: nothing in it is damaged. A reading that ends
    early, at a limit, has no finding. `to_offset`: records from this commit-log offset on are not asked for.
    Damage: log-missing.
    """
    claims = [(store, log_claims(store, by_samples=True)) for store in stores]  # before the log: a broker may write
    whole = replace(reading)

    def batches() -> Iterator[pa.RecordBatch]:
        inner = iter(reading)
        try:
            yield from inner
            for store, claimed in claims:
                reading.findings.extend(_lost(store, claimed, to_offset, reading.findings))
        finally:
            if isinstance(inner, Generator):
                inner.close()

    whole.batches = batches()
    return whole


def _lost(store: Store, claims: LogClaims, to_offset: int | None, known: Sequence[Finding]) -> list[Finding]:
    """Return the finding about lost records of one store, unless the reading could not read its files."""
    if any(one.store == store.root and one.code == "unreadable-file" for one in known):
        return []
    try:
        found = missing_findings(store, claims)
    except SourceError:  # reported by the reader of the file
        return []
    return [
        one for one in found
        if to_offset is None or one.commit_log_offset is None or one.commit_log_offset < to_offset
    ]

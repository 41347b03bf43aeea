"""Copies of one broker's log among the stores of a verification, whose rules are for single stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from rmqtx.readers.jobs.workers import ONE_PROCESS_BYTES_MAX
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.model.tables import findings_table
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.log_copies import LogCopies, OpenInCopies, log_copies
from rmqtx.verdicts.audit.lookups import open_transactions
from rmqtx.verdicts.evidence.store_facts import SettingsOf

_NEWEST_BYTES = 64 << 20


def with_copy_findings(
    batches: Iterator[pa.RecordBatch], stores: Sequence[Store], settings_of: SettingsOf, *, is_partial: bool,
    say: Callable[[str], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the findings of a verification, then those about copies of one log: other bytes, and what each one lacks.

    `is_partial`: not the whole logs are read; then only their newest bytes are compared first, and long logs are not
    scanned for pending transactions. `say`: prints what was not compared.
    """
    yield from batches
    groups = log_copies(stores, _NEWEST_BYTES if is_partial else None)
    found = [finding for group in groups for finding in group.findings()]
    for group in groups:
        if group.note is not None:
            say(group.note)
        lacking = _lacking(group, stores, settings_of, is_partial=is_partial)
        if lacking is None:
            names = " ".join(map(quoted, group.roots))
            say(f"which pending transactions only some copies have was not examined: rmqtx pending {names} counts them")
        found += lacking or ()
    if found:
        yield from findings_table(found).to_batches()


def _lacking(
    group: LogCopies, stores: Sequence[Store], settings_of: SettingsOf, *, is_partial: bool
) -> list[Finding] | None:
    """Return what copies lack of the pending transactions of the others; None if that is not known."""
    mine = [store for store in stores if store.root in group.roots]
    try:
        rows = open_transactions(mine, settings_of, ONE_PROCESS_BYTES_MAX if is_partial else None, [])
    except SourceError:  # the verification reports it
        return None
    if rows is None:
        return None
    counted = OpenInCopies([group])
    counted.add(rows)
    return list(counted.findings())

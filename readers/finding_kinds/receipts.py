"""Findings about the journal of receipts."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "receipt-torn": Kind(
        Severity.WARNING,
        "an incomplete line in the journal of receipts",
        "a crash interrupted the write: nothing was sent if the line is the beginning of an act; an act whose "
        "outcome is incomplete is listed as unknown",
        "rmqtx receipts --outcome unknown --recheck",
    ),
    "receipt-unreadable": Kind(
        Severity.WARNING,
        "a line in the journal of receipts that is not a receipt of this version",
        "the act that it records is unknown; the other lines count",
    ),
}

"""Findings about index files."""

from __future__ import annotations

from rmqtx.readers.finding_kinds.kind import Kind, Severity

KINDS: dict[str, Kind] = {
    "index-mismatch": Kind(
        Severity.WARNING,
        "an index entry whose record is missing or does not have its key",
        "a search by key reads a wrong record; the record that the entry should point to may not be found",
    ),
    "index-missing": Kind(
        Severity.WARNING,
        "a record with a key that is not in the index, although the index covers its place",
        "a search by key does not find it: rmqtx show may miss this copy, rmqtx audit does not",
    ),
    "index-damaged": Kind(
        Severity.WARNING,
        "an index file that contradicts its header",
        "the log is scanned for keys instead",
    ),
    "index-off": Kind(
        Severity.WARNING,
        "a live broker without an index (messageIndexEnable=false)",
        "queues are read instead of the index: this takes longer, and `show` finds half copies only",
    ),
    "key-incomplete": Kind(
        Severity.WARNING,
        "a live broker returns only a part of the records with one key and the same time",
        "further records with this key are unknown",
        "search by transaction id, or read the store's files",
    ),
    "index-unproven": Kind(
        Severity.WARNING,
        "a live broker has too many records from before its last start to read them all",
        "if the broker was killed, its index may lack some of them: they may not be found",
        "read the store's files",
    ),
}

"""The page of the documentation about a word of `rmqtx explain`."""

from __future__ import annotations

#: Findings by the page of docs/formats that lists them on its line `Findings:`; a test compares the two.
FINDING_PAGES: dict[str, tuple[str, ...]] = {
    "consume_queues": (
        "queue-missing", "queue-gap", "slot-invalid", "slot-expired", "slot-dangling", "slot-mismatch",
        "slot-tags-mismatch", "slot-missing",
        "slot-pending", "queue-number-missing", "queue-number-taken", "queues-leftover", "queues-unchecked",
        "database-unread", "database-entry", "queue-database-missing",
    ),
    "cursors": (
        "config-missing", "config-backup", "config-damaged", "cursor-beyond-end", "cursor-before-begin",
        "group-cursor-beyond-end", "group-cursor-before-begin", "cursors-twice", "cursors-contradict",
        "cursors-not-loaded",
    ),
    "dledger": ("entry-header",),
    "half_and_op": (
        "half-unreadable", "op-unreadable", "op-without-effect", "op-beyond-end", "check-stopped", "end-names-nothing",
        "half-number-taken",
    ),
    "index": ("index-mismatch", "index-missing", "index-damaged"),
    "prepared_records": (
        "older-design", "table-row-invalid", "table-row-stale", "table-row-missing", "table-row-expired",
        "table-row-unknown", "table-row-group",
    ),
    "record": (
        "record-damaged", "record-body-crc", "record-header", "record-properties", "record-property-crc",
        "body-stream", "body-undecoded", "store-time-backwards", "blank-length", "tail-torn", "tail-foreign",
        "copies-contradict", "words-contradict", "record-left-out", "log-missing",
    ),
    "recovery": (
        "start-refused", "start-endless", "start-cuts-log", "start-deletes-segment", "start-leaves-out",
        "start-deletes-queues", "start-empties-queues", "start-deletes-index", "start-cuts-queue", "start-adds-hole",
        "start-skips", "start-shifts", "start-enters", "start-unforeseen", "start-differs", "check-skips",
        "start-hides-new", "check-max-unknown", "start-checks-again", "stop-loses-ops",
    ),
    "state_table": (
        "table-entry-invalid", "table-gap", "table-slot-mismatch", "table-slot-expired", "table-slot-stale",
        "table-slot-unproved", "table-slot-missing", "table-unanswerable", "table-missing", "redo-log-missing",
        "table-lost", "table-leftover", "table-remade", "redo-entry-mismatch", "redo-entry-missing",
        "table-number-taken",
    ),
    "traces": ("trace-unreadable", "traces-unread"),
    "store": (
        "segment-gap", "segment-overlap", "segment-size", "stray-file", "segment-misnamed", "log-empty",
        "at-before-log", "link-out",
        "unreadable-file", "checkpoint-damaged", "checkpoint-ahead", "epochs-damaged", "half-changed", "undecidable",
        "logs-differ", "logs-share-ids", "copy-lacks-pending",
    ),
}
_OF_FINDINGS = {code: f"docs/formats/{page}.md" for page, codes in FINDING_PAGES.items() for code in codes} | {
    "receipt-torn": "docs/receipts.md", "receipt-unreadable": "docs/receipts.md",
    "rocksdb-transactions": "docs/formats/rocksdb_transactions.md",
}

#: By kind of word; a kind without a page is not listed.
_OF_KINDS = {
    "state of a transaction": "docs/generations.md",
    "flag of a transaction": "docs/runbook.md",
    "advice": "docs/runbook.md",
    "cause": "docs/causes.md",
    "strength of a cause": "docs/causes.md",
    "finding": "docs/remoting.md",  # those of live brokers, which no page of docs/formats lists
    "word of a ledger": "docs/forensics.md",
    "outcome of a comparison with a ledger": "docs/forensics.md",
    "outcome of an act": "docs/receipts.md",
    "standing of a receipt": "docs/receipts.md",
    "effect of cursor set": "docs/offline_acts.md",
    "guard": "docs/safety.md",
    "state of a hold": "docs/runbook.md",
    "setting": "docs/formats/cursors.md",
    "scenario of a probe": "docs/canary.md",
    "step of a probe": "docs/canary.md",
    "table": "docs/tables.md",
    "column": "docs/tables.md",
    "response code": "docs/remoting.md",
    "exit status of check and probe": "docs/runbook.md",
}

#: Words that have another page than their kind.
_OF_WORDS = {
    ("flag of a transaction", "expires_soon"): "docs/deadlines.md",
    ("term", "half message"): "docs/formats/half_and_op.md",
    ("term", "half copy"): "docs/formats/half_and_op.md",
    ("term", "op mark"): "docs/formats/half_and_op.md",
    ("term", "check"): "docs/formats/half_and_op.md",
    ("term", "check cursor"): "docs/formats/cursors.md",
    ("term", "discard copy"): "docs/deadlines.md",
    ("term", "record"): "docs/formats/record.md",
    ("term", "segment"): "docs/formats/store.md",
    ("term", "slot"): "docs/formats/consume_queues.md",
    ("term", "provenance"): "docs/forensics.md",
    ("term", "ledger"): "docs/forensics.md",
    ("term", "stand-in"): "docs/stand_in.md",
    ("term", "canary"): "docs/canary.md",
    ("term", "receipt"): "docs/receipts.md",
    ("term", "journal"): "docs/receipts.md",
    ("term", "guard"): "docs/safety.md",
    ("term", "design"): "docs/generations.md",
    ("term", "prepared record"): "docs/formats/prepared_records.md",
    ("term", "rollback record"): "docs/formats/prepared_records.md",
    ("term", "transaction table"): "docs/old_tables.md",
    ("term", "rocksdb table"): "docs/formats/rocksdb_transactions.md",
    ("term", "state table"): "docs/old_tables.md",
    ("term", "redo log"): "docs/old_tables.md",
    ("term", "plan"): "docs/runbook.md",
    ("exit status", "3"): "docs/forensics.md",
    ("exit status", "11"): "docs/offline_acts.md",
    ("exit status", "12"): "docs/safety.md",
    ("exit status", "13"): "docs/runbook.md",
    ("exit status", "14"): "docs/remoting.md",
    ("exit status", "15"): "docs/remoting.md",
    ("exit status", "17"): "docs/safety.md",
    ("exit status", "18"): "docs/receipts.md",
    ("exit status", "20"): "docs/engines.md",
}
#: Pages of reasons by how the word begins; the other reasons have the page of the states.
_OF_REASONS = {
    "rocksdb_": "docs/formats/rocksdb_transactions.md", "prepared_": "docs/formats/prepared_records.md",
    "dropped_": "docs/deadlines.md", "log_": "docs/forensics.md", "cursor_": "docs/formats/cursors.md",
}


def page_of(word: str, kind: str) -> str | None:
    """Return the page about a word of a kind; None where there is none."""
    if kind == "finding" and word in _OF_FINDINGS:
        return _OF_FINDINGS[word]
    if kind == "reason of a state":
        begins = (page for begin, page in _OF_REASONS.items() if word.startswith(begin))
        return next(begins, "docs/generations.md")
    return _OF_WORDS.get((kind, word), _OF_KINDS.get(kind))

"""The names of all commands, by the sections of `rmqtx --help`: which belong together."""

from __future__ import annotations

#: Every command is in one of them; in the order of the help text.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Transactions": (
        "stores", "pending", "show", "audit", "search", "export", "diff", "reconcile", "check", "simulate",
    ),
    "Settling them, live or in a stopped broker's files": (
        "commit", "rollback", "discard", "resume", "close", "plan", "apply", "undo", "receipts", "answer", "probe",
    ),
    "Files of a store, damaged ones too": (
        "verify", "salvage", "rebuild", "cursor", "bundle", "decode", "transaction-table",
    ),
    "Words": ("explain",),
}  # fmt: skip

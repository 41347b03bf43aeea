"""The names of all commands, by the sections of `rmqtx --help`."""

from __future__ import annotations

#: Each command is in one section; in the order of the help text.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Look": ("pending", "show", "audit", "stores", "search", "simulate", "explain"),
    "Verify and repair": ("verify", "salvage", "rebuild", "cursor", "undo"),
    "Settle": (
        "commit", "rollback", "discard", "resume", "close", "plan", "apply", "answer", "receipts",
    ),
    "Watch": ("check", "probe"),
    "Data": ("export", "diff", "reconcile", "decode", "bundle"),
}  # fmt: skip

#: What most people need, with the arguments that it takes.
MOST_USED: dict[str, str] = {
    "rmqtx pending STORE": "which transactions are open, oldest first",
    "rmqtx show ID --store STORE": "what happened to one transaction, and why",
    "rmqtx audit STORE": "the state of every transaction",
    "rmqtx verify STORE": "whether the store is whole",
    "rmqtx check STORE": "one line for Nagios or Prometheus",
    "rmqtx commit ID -n HOST:PORT": "deliver one transaction on a live broker",
}

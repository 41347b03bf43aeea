"""`rmqtx commit`: deliver a transaction whose producer cannot say so any more."""

from __future__ import annotations

from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = "commit"
SHORT = "deliver a transaction: guarded, proved, with a receipt"
EXAMPLES = (
    Example("rmqtx commit 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711", "look, ask, act, prove"),
    Example("rmqtx commit ORDER-4711 -n 10.0.0.1:9876 --dry-run", "what would be done, and which guard says no"),
    Example("rmqtx commit ID -n 10.0.0.1:9876 --yes --format jsonl", "for a script; the receipt as JSON"),
    Example(
        "rmqtx commit ID --store /data/store --to /data/settled --broker-version 5.3.3",
        "the broker is down: a changed copy, on which it delivers when it comes back",
    ),
)

command = acting_command(
    NAME,
    """Commit transactions: their messages are delivered, each once.

    For what is pending, and for what the broker discarded: its last half copy is committed while the log has it. Every
    witness is looked at again before anything is sent; what is decided already, or may be decided by somebody else at
    the same time, is refused (`rmqtx explain GUARD` says why). Brokers do not look: a second commit delivers twice.
    With --store the same is done to the files of a stopped broker, which delivers when it comes back.
    """,
)

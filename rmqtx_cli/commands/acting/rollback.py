"""`rmqtx rollback`: end a transaction whose producer cannot say so any more; nothing is delivered."""

from __future__ import annotations

from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = "rollback"
SHORT = "end a transaction, delivering nothing: guarded, proved, with a receipt"
EXAMPLES = (
    Example("rmqtx rollback 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711", "look, ask, act, prove"),
    Example("rmqtx rollback ORDER-4711 --group shop -n 10.0.0.1:9876 --yes", "for a script; only if it is shop's"),
)

command = acting_command(
    NAME,
    """Roll transactions back: nothing is delivered, and the broker does not ask for them any more.

    The message stays in the commit log until that expires; `rmqtx discard` keeps a copy beside the receipt. A rollback
    cannot take back what was delivered: that is refused.
    """,
)

"""`rmqtx rollback`: end a transaction whose producer can no longer decide it; nothing is delivered."""

from __future__ import annotations

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = ActKind.ROLLBACK
EXAMPLES = (
    Example(
        "rmqtx rollback 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711",
        "verify, confirm, roll back, prove",
    ),
    Example(
        "rmqtx rollback ORDER-4711 --group shop -n 10.0.0.1:9876 --reason OPS-4711 --yes",
        "for a script, if the group is shop",
    ),
)

command = acting_command(
    NAME,
    """Roll transactions back: nothing is delivered, and the broker no longer checks them.

    The message stays in the commit log until the log expires; `rmqtx discard` keeps a copy beside the receipt. A
    message that was delivered cannot be taken back: that is refused.
    """,
)

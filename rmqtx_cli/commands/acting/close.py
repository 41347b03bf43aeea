"""`rmqtx close`: end the checks of a decided transaction."""

from __future__ import annotations

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = ActKind.CLOSE
EXAMPLES = (
    Example("rmqtx pending -n 10.0.0.1:9876 --all-open", "list decided ones that will be checked again"),
    Example(
        "rmqtx close 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711",
        "write the missing op message",
    ),
)

command = acting_command(
    NAME,
    """Write the missing op message of decided transactions, so that the broker does not check them again.

    Without it the broker asks the producer again, and if the answer is commit again, the message is delivered twice.
    The op message is written by a rollback of the newest half copy: it delivers nothing and takes nothing back.
    """,
)

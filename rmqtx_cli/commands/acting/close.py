"""`rmqtx close`: stop the broker from asking again for what is decided."""

from __future__ import annotations

from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = "close"
SHORT = "stop the broker from asking again for what is decided"
EXAMPLES = (
    Example("rmqtx pending -n 10.0.0.1:9876 --all-open", "what is decided and will be asked again (advice close)"),
    Example("rmqtx close 7F000001000118B4AAC216E2B3E40000 -n 10.0.0.1:9876 --reason OPS-4711", "only the missing op"),
)

command = acting_command(
    NAME,
    """Write the missing op for transactions that are decided but still before the check.

    Without it the broker asks again, and a producer that answers commit again has the message delivered twice. What is
    written is a rollback on the newest half copy: it delivers nothing, and takes nothing back.
    """,
)

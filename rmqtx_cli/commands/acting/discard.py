"""`rmqtx discard`: give a transaction up, keeping a copy of its message."""

from __future__ import annotations

from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = "discard"
SHORT = "give a transaction up, keeping a copy of its message beside the receipt"
EXAMPLES = (
    Example("rmqtx discard ORDER-4711 -n 10.0.0.1:9876 --reason 'duplicate order'", "saved, then rolled back"),
    Example("rmqtx receipts --action discard", "where the saved messages are"),
)

command = acting_command(
    NAME,
    """Give transactions up: a copy of each message is saved beside its receipt, then the transaction is rolled back.

    No broker offers more: a live discard is a rollback, and TRANS_CHECK_MAX_TIME_TOPIC gets no copy. With --store it
    gets one, as when the broker itself gives up (4.5.2 and later).
    """,
)

"""`rmqtx discard`: end a transaction and keep a copy of its message."""

from __future__ import annotations

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = ActKind.DISCARD
EXAMPLES = (
    Example("rmqtx discard ORDER-4711 -n 10.0.0.1:9876 --reason 'duplicate order'", "save the message, then roll back"),
    Example("rmqtx receipts --action discard", "list where the saved messages are"),
)

command = acting_command(
    NAME,
    """Discard transactions: save a copy of each message beside its receipt, then roll the transaction back.

    On a live broker this is a rollback: no broker offers more, and TRANS_CHECK_MAX_TIME_TOPIC gets no copy. With
    --store that topic gets a copy, as when the broker itself discards (4.5.2 and later).
    """,
)

"""`rmqtx resume`: make the broker check a discarded or lost transaction again."""

from __future__ import annotations

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = ActKind.RESUME
EXAMPLES = (
    Example("rmqtx resume ORDER-4711 -n 10.0.0.1:9876 --reason 'shop is back'", "write a new half copy"),
    Example(
        "rmqtx resume ORDER-4711 -n 10.0.0.1:9876 --reason OPS-4711 --wait-for 2m --yes",
        "and watch for its decision",
    ),
)

command = acting_command(
    NAME,
    """Make the broker check discarded or lost transactions again: it asks their producer.

    The receipt has the outcome `accepted` once the new half copy is stored; --wait-for also waits for the producer's
    decision. Brokers before 4.5.2 cannot resume, and brokers before 5.3.2 damage compressed bodies: both are refused.
    With --store a new half copy with the unchanged body is appended, from 4.3.0 on; a compressed body is refused
    before 4.6.0.
    """,
)

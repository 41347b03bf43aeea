"""`rmqtx resume`: have the broker ask the producer again for what it gave up."""

from __future__ import annotations

from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = "resume"
SHORT = "have the broker ask the producer again for what it gave up"
EXAMPLES = (
    Example("rmqtx resume ORDER-4711 -n 10.0.0.1:9876 --reason 'shop is back'", "a new half copy of it"),
    Example("rmqtx resume ORDER-4711 -n 10.0.0.1:9876 --wait-for 2m --yes", "and what became of it"),
)

command = acting_command(
    NAME,
    """Bring discarded or lost transactions back before the check: the broker asks their producer again.

    The receipt says `accepted`: whether it is committed is the producer's word, which --wait-for watches for. Brokers
    before 4.5.2 cannot, and those before 5.3.2 break compressed bodies: both are refused. With --store the new half
    copy is appended for any version, its body as it is.
    """,
)

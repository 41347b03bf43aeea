"""`rmqtx commit`: deliver a transaction whose producer can no longer decide it."""

from __future__ import annotations

from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx_cli.acting.acting import acting_command
from rmqtx_cli.commands import Example

NAME = ActKind.COMMIT
EXAMPLES = (
    Example(
        "rmqtx commit 7F000001000118B4AAC216E2B3E40000 -n NAMESRV --reason OPS-4711",
        "verify, confirm, commit, prove",
    ),
    Example("rmqtx commit ORDER-4711 -n 10.0.0.1:9876 --dry-run", "show what would be done, and which guard refuses"),
    Example(
        "rmqtx commit ID -n 10.0.0.1:9876 --reason OPS-4711 --yes --format jsonl",
        "for a script, with the receipt as JSON",
    ),
    Example(
        "rmqtx commit ID --store /data/store --to /data/settled --broker-version 5.3.3 --reason OPS-4711",
        "the broker is down: commit in a copy of its store, delivered at its start",
    ),
)

command = acting_command(
    NAME,
    """Commit transactions: each message is delivered once.

    For pending, lost and discarded transactions. All records of the transaction are read again before anything is sent.
    A transaction that is decided already, or that may be decided elsewhere at the same time, is refused (see `rmqtx
    explain GUARD`): a broker does not test this, and a second commit delivers twice. With --store the commit is written
    into the files of a stopped broker, which delivers at its next start.
    """,
)

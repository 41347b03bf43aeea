"""`rmqtx decode KIND`: print the structures in a file. One module per kind of file."""

from __future__ import annotations

from rmqtx_cli.commands import epilog
from rmqtx_cli.commands.decode import (
    checkpoint,
    commitlog,
    consumequeue,
    cursors,
    dledger,
    epochs,
    half,
    index,
    op,
    redolog,
    rocksdb,
    statetable,
    trace,
)
from rmqtx_cli.options.command_tree import CommandTree

NAME = "decode"
KINDS = (
    commitlog, consumequeue, half, op, index, checkpoint, cursors, statetable, redolog, rocksdb, dledger, epochs, trace,
)  # fmt: skip

app = CommandTree(
    help="Decode the files of one kind in a store: one row per structure. `rmqtx decode KIND --help` has examples.",
)
for module in KINDS:
    app.command(module.NAME, short_help=module.SHORT, epilog=epilog(module.EXAMPLES))(module.command)

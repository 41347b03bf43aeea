"""`rmqtx transaction-table VERB`: rows of a database table of open transactions (3.2 to 4.2). One module per verb."""

from __future__ import annotations

from rmqtx_cli.commands import epilog
from rmqtx_cli.commands.transaction_table import apply, plan, undo
from rmqtx_cli.options.command_tree import CommandTree
from rmqtx_cli.options.row_options import with_row_options

NAME = "transaction-table"
SHORT = "rows of a broker's t_transaction (3.2 to 4.2), by plan"
KINDS = (plan, apply, undo)

app = CommandTree(
    help="Have rows of a broker's table t_transaction (3.2 to 4.2) say what its log says: plan, apply, undo.",
    short_help=SHORT,
)
for module in KINDS:
    app.command(module.NAME, short_help=module.SHORT, epilog=epilog(module.EXAMPLES))(with_row_options(module.command))

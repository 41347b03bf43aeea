"""Every table that commands, Spark or the library write, by name."""

from __future__ import annotations

from rmqtx.readers.model.tables import ALL_TABLES, LIVE_TRANSACTIONS, VERDICT_CHANGES
from rmqtx.repairs.changes.undo_files import EDITS
from rmqtx.repairs.cursors.cursors import CURSOR_EFFECTS
from rmqtx.verdicts.growing.table_step import VERDICTS
from rmqtx_cli.pages.glossary import RESULT_TABLES

#: Those that `rmqtx explain` explains, and others whose columns other tables have too.
DECLARED_TABLES = {
    **ALL_TABLES, **RESULT_TABLES, "live_transactions": LIVE_TRANSACTIONS, "growing_verdicts": VERDICTS,
    "verdict_changes": VERDICT_CHANGES, "edits": EDITS, "cursor_effects": CURSOR_EFFECTS,
}  # fmt: skip

"""The rows of `rmqtx schema`: the columns of all declared tables."""

from __future__ import annotations

import pyarrow as pa

from rmqtx.readers.model.tables import column
from rmqtx_cli.output.views import ALWAYS, View, plain

#: A column of a table, or a part of a list or struct in it.
COLUMNS = pa.schema(
    [
        column("table", pa.string(), "the table that has the column"),
        column("column", pa.string(), "name of the column; of a part as --fields takes it: half_copies.queue_id"),
        column("type", pa.string(), "type in Arrow; the parts of a struct are rows of their own"),
        column("is_nullable", pa.bool_(), "whether a value can be null, which is unknown or absent"),
        column("unit", pa.string(), "unit of its numbers, which its name ends in; epoch_ms is a time; null: no unit"),
        column("meaning", pa.string(), "the sentence that describes the column"),
        column("values", pa.list_(pa.string()), "every value that it can have, if the list is closed; else null"),
    ]
)


def view() -> View:
    """Return the printed table."""
    return View((
        plain("table", ALWAYS), plain("column", ALWAYS), plain("type", 2), plain("unit", 1),
        plain("is_nullable", 3, "null"), plain("meaning", ALWAYS, wraps=True, least_cells=28),
    ))  # fmt: skip

"""Generate docs/tables.md from the declarations: the data source's options, and every table with its columns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from readers.model.tables import ALL_TABLES
from spark_tasks.session.schemas import spark_schema
from spark_tasks.source.read_options import AUDIT_TABLES, LOG_TABLES, OPTIONS

#: The meaning of one row of each table.
ROWS = {
    "records": "a record of the commit log",
    "queue_slots": "an entry of a consume queue",
    "halves": "a half copy, as its transaction's",
    "ops": "an op message, which settles half copies",
    "transactions": "a transaction: its state, the reason, and all its evidence",
    "findings": "a problem in a store, and what follows for transactions",
    "cursors": "the cursor of a consumer group, or of the broker's check, in a queue",
    "index_entries": "an entry of an index file",
    "checkpoint": "a value of the file `checkpoint`",
    "segments": "a file of the commit log, of a queue or of the index",
    "coverage": "how the bytes of a commit-log file were read",
}

_HEAD = """# Tables

Made by `make man` from `readers/model/tables.py` and `spark_tasks/source/read_options.py`.

One schema for the command line, Parquet and Arrow files, and [Spark](data_source.md). Names end in their unit. Unknown
is null. Times are epoch milliseconds of the clock that is named.

`--timestamps`, and `timestamps` of the data source, give each point in time (a name that ends in `time_ms` or
`_at_ms`, in lists too) as TIMESTAMP in UTC under its name without `_ms`: `half_store_time`. CSV and JSON then have
ISO 8601 alone, where they have both otherwise. Durations stay numbers. A time beyond the years 1 to 9999 is null.

## Options of the data source

| option | goes with | meaning |
|---|---|---|
"""


def page() -> str:
    """Return the page's text."""
    return "\n".join([*_options(), "", *(line for table in ALL_TABLES for line in _table(table))])


def _options() -> Iterator[str]:
    rows = [f"| `{name}` | {_tables_text(tables)} | {sentence} |" for name, (tables, sentence) in OPTIONS.items()]
    yield _HEAD + "\n".join(rows)


def _tables_text(tables: frozenset[str]) -> str:
    return "all" if tables == frozenset(ALL_TABLES) else ", ".join(name for name in ALL_TABLES if name in tables)


def _table(name: str) -> Iterator[str]:
    schema = ALL_TABLES[name]
    more = " One audit over all stores given." if name in AUDIT_TABLES else ""
    more += " Can be streamed." if name in LOG_TABLES else ""
    yield f"## {name}\n\nOne row is {ROWS[name]}.{more}\n"
    yield "| column | Spark type | meaning |\n|---|---|---|"
    for field, spark_field in zip(schema, spark_schema(schema), strict=True):
        inner = _inner(field.type)
        word = "array of structs" if inner else spark_field.dataType.simpleString()
        yield f"| `{field.name}` | {word} | {_meaning(field)} |"
        for part, spark_part in zip(inner, spark_schema(pa.schema(inner)), strict=True):
            yield f"| `{field.name}.{part.name}` | {spark_part.dataType.simpleString()} | {_meaning(part)} |"
    yield ""


def _inner(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a list of structs."""
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return []
    return [kind.value_type.field(number) for number in range(kind.value_type.num_fields)]


def _meaning(field: pa.Field) -> str:
    meaning: str = (field.metadata or {})[b"meaning"].decode()
    return meaning.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")

"""`rmqtx schema`: the declared tables and columns, for people, programs and data catalogues."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import yaml

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.moments import is_time
from rmqtx.readers.model.tables import ALL_TABLES, LIVE_TRANSACTIONS, VERDICT_CHANGES
from rmqtx.repairs.changes.undo_files import EDITS
from rmqtx.repairs.cursors import CURSOR_EFFECTS
from rmqtx.verdicts.growing.table_step import VERDICTS
from rmqtx_cli.commands.declared.data import SchemaCommand, SchemaFormat
from rmqtx_cli.options.columns import closed_values
from rmqtx_cli.options.options import OutputFormat, OutputOptions, RowForm
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.streams import is_special, is_stdout, open_stream
from rmqtx_cli.output.views import COLUMNS_VIEW
from rmqtx_cli.pages.glossary import COLUMNS, RESULT_TABLES, meaning_of
from rmqtx_cli.words.near import did_you_mean
from rmqtx_cli.words.text import count, escaped

#: A document in JSON of version 1 keeps its fields and their meaning; new fields can be added to it.
VERSION = 1
#: Version of the Open Data Contract Standard; later ones of 3 read it too.
ODCS_VERSION = "v3.1.0"
#: Last parts of names that are units, beside those of times.
_UNITS = ("ms", "bytes", "seconds", "count", "share")
_SUFFIXES = {".json": SchemaFormat.JSON, ".yaml": SchemaFormat.ODCS, ".yml": SchemaFormat.ODCS,
             ".txt": SchemaFormat.TABLE}
_PURPOSE = "Transactional messages of Apache RocketMQ, as rmqtx reads them from stores of brokers and live brokers."
_USAGE = "Rows of the commands of rmqtx, of files that they write, of the library and of the data source of Spark."
_LIMITATIONS = "An unknown value is null. Times are epoch milliseconds, unless --timestamps is given."


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """One column of a table, or one part of a struct; `values` and `parts` of a list are those of its elements."""

    field: pa.Field
    values: tuple[str, ...]
    parts: tuple[DeclaredColumn, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.field.name)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return bool(pa.types.is_list(self.field.type))

    @property
    def element(self) -> pa.DataType:
        """The type of its elements, or its own."""
        return self.field.type.value_type if self.is_list else self.field.type

    @property
    def type(self) -> str:
        """The type as text, a struct without its parts."""
        inner = "struct" if self.parts else str(self.element)
        return f"list<{inner}>" if self.is_list else inner

    @property
    def unit(self) -> str | None:
        """The unit that its name ends in; None for none."""
        numbers = pa.types.is_integer(self.element) or pa.types.is_floating(self.element)
        return unit_of(self.name) if numbers else None

    @property
    def meaning(self) -> str:
        """Its sentence."""
        return meaning_of(self.field)

    def with_parts(self, before: str = "") -> Iterator[tuple[str, DeclaredColumn]]:
        """Yield it and its parts, each with its name from the table on."""
        yield before + self.name, self
        for part in self.parts:
            yield from part.with_parts(f"{before}{self.name}.")


def unit_of(name: str) -> str | None:
    """Return the unit that the name of a number ends in: epoch_ms for a time; None for no unit."""
    if is_time(name):
        return "epoch_ms"
    if name.endswith("commit_log_offset"):
        return "bytes"
    last = name.removesuffix("_before").removesuffix("_after").rpartition("_")[2]
    return last if last in _UNITS else None


def columns_of(schema: pa.Schema) -> list[DeclaredColumn]:
    """Return the columns of a table. Order: as declared."""
    return [_declared(field) for field in schema]


def _declared(field: pa.Field) -> DeclaredColumn:
    kind = field.type.value_type if pa.types.is_list(field.type) else field.type
    parts = tuple(_declared(part) for part in kind) if pa.types.is_struct(kind) else ()
    return DeclaredColumn(field, tuple(map(str, closed_values(field))), parts)


def run(options: SchemaCommand) -> int:
    """Run the command; return its exit status."""
    tables = {name: columns_of(schema) for name, schema in _asked(options.tables or []).items()}
    chosen = options.output_format or _by_suffix(options.output)
    if chosen is SchemaFormat.TABLE:
        rows = OutputOptions(output_format=OutputFormat.TABLE, form=RowForm(wide=options.wide), output=options.output)
        listing = Listing(COLUMNS, COLUMNS_VIEW, rows, voice=options.voice)
        found = _rows(tables)
        listing.write(iter(found.to_batches()), answer=lambda: iter([
            f"{count(found.num_rows, 'column')} of {count(len(tables), 'table')}"
        ]))
        return exit_status.DONE
    text = json_text(tables) if chosen is SchemaFormat.JSON else odcs_text(tables)
    with open_stream(options.output) as stream:
        stream.write(text.encode())
    return exit_status.DONE


def _by_suffix(output: Path | None) -> SchemaFormat:
    """Return the format of a file's suffix. Raises: BadRequest for a suffix that names none."""
    if output is None or is_stdout(output) or is_special(output):
        return SchemaFormat.TABLE
    if (suffix := output.suffix.lower()) not in _SUFFIXES:
        raise BadRequest(
            f"-o {output}: the name of a schema ends in {', '.join(_SUFFIXES)}", advice="rename FILE, or add --format"
        )
    return _SUFFIXES[suffix]


def _asked(names: list[str]) -> Mapping[str, pa.Schema]:
    """Return the tables of these names, or all. Raises: BadRequest for a name that no table has."""
    for name in names:
        if name not in DECLARED_TABLES:
            raise BadRequest(f"unknown table {escaped(name)!r}", advice=did_you_mean(name, DECLARED_TABLES))
    return {name: DECLARED_TABLES[name] for name in names or DECLARED_TABLES}


def _rows(tables: Mapping[str, list[DeclaredColumn]]) -> pa.Table:
    rows = [
        {
            "table": table, "column": name, "type": one.type, "is_nullable": one.field.nullable, "unit": one.unit,
            "meaning": one.meaning, "values": one.values or None,
        }
        for table, columns in tables.items() for column in columns for name, one in column.with_parts()
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def json_text(tables: Mapping[str, list[DeclaredColumn]]) -> str:
    """Return the document in JSON."""
    listed = [{"name": name, "columns": [_json(one) for one in columns]} for name, columns in tables.items()]
    document = {"v": VERSION, "rmqtx": version("rmqtx"), "tables": listed}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _json(one: DeclaredColumn) -> dict[str, object]:
    lists: dict[str, object] = {"values": list(one.values)} if one.values else {}
    if one.parts:
        lists["columns"] = [_json(part) for part in one.parts]
    return {
        "name": one.name, "type": one.type, "nullable": one.field.nullable, "unit": one.unit, "meaning": one.meaning,
        **lists,
    }


def odcs_text(tables: Mapping[str, list[DeclaredColumn]]) -> str:
    """Return the contract in YAML, as the Open Data Contract Standard defines it."""
    contract = {
        "apiVersion": ODCS_VERSION, "kind": "DataContract", "id": "rmqtx", "name": "rmqtx",
        "version": version("rmqtx"), "status": "active",
        "description": {"purpose": _PURPOSE, "usage": _USAGE, "limitations": _LIMITATIONS},
        "schema": [
            {
                "name": name, "logicalType": "object", "physicalType": "table",
                "properties": [_property(one) for one in columns],
            }
            for name, columns in tables.items()
        ],
    }
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(contract, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120))


def _property(one: DeclaredColumn) -> dict[str, object]:
    rest = _element(one)
    if one.is_list:
        rest = {"logicalType": "array", "items": {**rest, "physicalType": "struct" if one.parts else str(one.element)}}
    unit = {"customProperties": [{"property": "unit", "value": one.unit}]} if one.unit else {}
    return {
        "name": one.name, "physicalType": one.type, "description": one.meaning, "required": not one.field.nullable,
        **rest, **unit,
    }


def _element(one: DeclaredColumn) -> dict[str, object]:
    """Return what the contract has about a value, or about an element of a list."""
    found: dict[str, object] = {"logicalType": _logical(one.element)}
    if pa.types.is_binary(one.element):
        found["logicalTypeOptions"] = {"format": "binary"}
    if one.parts:
        found["properties"] = [_property(part) for part in one.parts]
    if one.values:
        allowed = {"validValues": list(one.values)}
        found["quality"] = [{"metric": "invalidValues", "arguments": allowed, "mustBe": 0}]
    return found


def _logical(kind: pa.DataType) -> str:
    """Return the type of the standard; a map is an object there, bytes are text."""
    tests = {
        "boolean": pa.types.is_boolean, "integer": pa.types.is_integer, "number": pa.types.is_floating,
        "timestamp": pa.types.is_timestamp, "date": pa.types.is_date,
        "object": lambda one: pa.types.is_struct(one) or pa.types.is_map(one),
    }
    return next((name for name, is_it in tests.items() if is_it(kind)), "string")


#: Those that `rmqtx explain` explains, and others whose columns other tables have too.
DECLARED_TABLES = {
    **ALL_TABLES, **RESULT_TABLES, "live_transactions": LIVE_TRANSACTIONS, "growing_verdicts": VERDICTS,
    "verdict_changes": VERDICT_CHANGES, "edits": EDITS, "cursor_effects": CURSOR_EFFECTS,
}

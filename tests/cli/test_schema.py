"""`rmqtx schema`: what it lists, the contract in YAML, and that no column is renamed or removed without a note."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import rmqtx_cli.commands
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.tables import ALL_TABLES, TRANSACTIONS
from rmqtx.verdicts.model.verdict_words import STATES
from rmqtx_cli.commands import offers
from rmqtx_cli.commands.declared.data import SchemaFormat
from rmqtx_cli.commands.reading.schema import DECLARED_TABLES, columns_of, odcs_text, unit_of
from rmqtx_cli.output.derived_columns import derived_columns
from rmqtx_cli.words.command_names import LINES
from tests.cli.conftest import Run

#: Table → column → type; of a part `half_copies.queue_id`. Written by `--rewrite`.
LIST = Path(__file__).with_name("columns.json")
CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"
REQUIRED = {"apiVersion", "kind", "id", "version", "status"}
LOGICAL = {"string", "date", "timestamp", "time", "number", "integer", "object", "array", "boolean"}

Columns = dict[str, dict[str, str]]


def declared() -> Columns:
    """The columns as they are declared now."""
    return {
        table: {name: one.type for column in columns_of(schema) for name, one in column.with_parts()}
        for table, schema in DECLARED_TABLES.items()
    }


def without_note(before: Columns, now: Columns, notes: str) -> list[str]:
    """The columns that are no longer there, or have another type, and that no line of the changes names."""
    gone = [
        f"{table}.{column}" for table, columns in before.items() for column, kind in columns.items()
        if now.get(table, {}).get(column) != kind
    ]
    return [one for one in gone if f"`{one}`" not in notes]


def test_no_column_goes_without_a_note(request: pytest.FixtureRequest) -> None:
    before, now = json.loads(LIST.read_text("utf-8")), declared()
    missing = without_note(before, now, CHANGELOG.read_text("utf-8"))
    assert not missing, (
        f"scripts rely on {', '.join(missing)}: keep each name and type. If a column has to change, add a line to "
        f"CHANGELOG.md with the old name as `{missing[0]}`, the new one and what a script does; "
        f"then run this test with --rewrite"
    )
    if request.config.getoption("--rewrite"):
        LIST.write_text(json.dumps(now, indent=1) + "\n", "utf-8")
        before = now
    assert before == now, "new columns: run this test with --rewrite, and commit tests/cli/columns.json"


@pytest.mark.parametrize("change", ["renamed", "removed", "type", "table", "part"])
def test_a_column_that_goes_is_found(change: str) -> None:
    before, now = declared(), declared()
    column = now["transactions"]
    if change == "renamed":
        column["status"] = column.pop("state")
    elif change == "removed":
        del column["state"]
    elif change == "type":
        column["state"] = "int8"
    elif change == "table":
        del now["transactions"]
    else:
        del column["half_copies.queue_id"]
    name = "transactions.half_copies.queue_id" if change == "part" else "transactions.state"
    found = without_note(before, now, "nothing")
    assert name in found
    assert (found == [name]) is (change != "table")
    assert without_note(before, now, " ".join(f"`{one}`" for one in found)) == []


def test_the_document_in_json_is_the_declared_schema(rmqtx: Run) -> None:
    result = rmqtx("schema", "--format", "json")
    document = json.loads(result.out)
    assert (result.status, result.err) == (exit_status.DONE, "")
    assert list(document) == ["v", "rmqtx", "tables"]
    assert document["v"] == 1
    assert [table["name"] for table in document["tables"]] == list(DECLARED_TABLES)
    (columns,) = (table["columns"] for table in document["tables"] if table["name"] == "transactions")
    assert [one["name"] for one in columns] == TRANSACTIONS.names
    by_name = {one["name"]: one for one in columns}
    assert by_name["state"]["values"] == list(STATES)
    copies = by_name["half_copies"]
    assert (copies["type"], copies["unit"]) == ("list<struct>", None)
    assert {one["name"]: one["unit"] for one in copies["columns"]}["store_time_ms"] == "epoch_ms"
    assert by_name["born_time_ms"] == {
        "name": "born_time_ms", "type": "int64", "nullable": True, "unit": "epoch_ms",
        "meaning": "producer clock when the message was created",
    }


def test_every_column_has_a_sentence_and_every_amount_its_unit() -> None:
    for table, schema in DECLARED_TABLES.items():
        for column in columns_of(schema):
            for name, one in column.with_parts():
                assert one.meaning, (table, name)
                if name.endswith(("_ms", "_bytes", "_seconds", "_count")):
                    assert one.unit, (table, name)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("half_store_time_ms", "epoch_ms"), ("discard_at_ms", "epoch_ms"), ("cost_ms", "ms"), ("size_bytes", "bytes"),
        ("half_commit_log_offset", "bytes"), ("queue_offset", None), ("immunity_seconds", "seconds"),
        ("op_marks_count_before", "count"), ("queue_id", None), ("state", None),
    ],
)
def test_the_unit_is_the_last_part_of_the_name(name: str, unit: str | None) -> None:
    assert unit_of(name) == unit


def properties(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The properties of a table or of a list of structs, with those in them."""
    own = [*entry.get("properties", ()), *entry.get("items", {}).get("properties", ())]
    return [*own, *(inner for one in own for inner in properties(one))]


def test_the_contract_has_what_the_standard_requires(rmqtx: Run) -> None:
    contract = yaml.safe_load(rmqtx("schema", "--format", "odcs").out)
    assert set(contract) >= REQUIRED
    assert (contract["apiVersion"], contract["kind"]) == ("v3.1.0", "DataContract")
    found = {table["name"]: properties(table) for table in contract["schema"]}
    assert {name: len(listed) for name, listed in found.items()} == {
        name: len(columns) for name, columns in declared().items()
    }
    for listed in found.values():
        for one in listed:
            assert set(one) >= {"name", "logicalType", "physicalType", "description", "required"}
            assert one["logicalType"] in LOGICAL
            assert ("items" in one) is (one["logicalType"] == "array")
    records = {one["name"]: one for one in found["records"]}
    assert records["body"]["logicalTypeOptions"] == {"format": "binary"}
    assert records["properties"]["logicalType"] == "object"
    assert records["body_crc_matches"]["logicalType"] == "boolean"
    flags = next(one for one in found["transactions"] if one["name"] == "flags")
    (rule,) = flags["items"]["quality"]
    assert "redelivered" in rule["arguments"]["validValues"]
    assert "quality" not in flags


def test_a_value_that_is_never_null_is_required() -> None:
    table = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.float64())])
    (entry,) = yaml.safe_load(odcs_text({"t": columns_of(table)}))["schema"]
    assert [(one["required"], one["logicalType"]) for one in entry["properties"]] == [
        (True, "integer"), (False, "number")
    ]


def test_the_contract_is_valid_by_the_schema_of_the_standard(rmqtx: Run) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    spec = importlib.util.find_spec("open_data_contract_standard")
    if spec is None or spec.origin is None:
        pytest.skip("pip install open-data-contract-standard")
    schema = json.loads(Path(spec.origin).with_name("schema.json").read_text("utf-8"))
    contract = yaml.safe_load(rmqtx("schema", "--format", "odcs").out)
    jsonschema.validate(contract, schema)
    del contract["schema"][1:]
    contract["schema"][0]["properties"][0]["logicalType"] = "int64"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(contract, schema)


def test_people_get_a_table(rmqtx: Run) -> None:
    result = rmqtx("schema", "epochs", "transactions")
    assert result.status == exit_status.DONE
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["table", "column", "type", "unit", "null", "meaning"]
    assert [line[:2] for line in lines[1:]] == [
        [table, column] for table in ("epochs", "transactions") for column in declared()[table]
    ]
    assert result.err == f"rmqtx: {len(lines) - 1} columns of 2 tables\n"


@pytest.mark.parametrize(
    ("file", "more", "begin"),
    [
        ("a.json", (), '{\n "v": 1'), ("a.yaml", (), "apiVersion: "), ("a.yml", (), "apiVersion: "),
        ("a.txt", (), "table "), ("a.txt", ("--json",), '{\n "v": 1'), ("a.json", ("--format", "odcs"), "apiVersion: "),
    ],
)
def test_into_a_file(rmqtx: Run, tmp_path: Path, file: str, more: tuple[str, ...], begin: str) -> None:
    result = rmqtx("schema", "epochs", "-o", tmp_path / file, *more)
    assert (result.status, result.out) == (exit_status.DONE, "")
    assert (tmp_path / file).read_text("utf-8").startswith(begin)


def test_a_suffix_without_a_format_is_refused(rmqtx: Run, tmp_path: Path) -> None:
    result = rmqtx("schema", "epochs", "-o", tmp_path / "a.parquet")
    assert result.status == exit_status.USAGE
    assert "a.parquet: the name of a schema ends in .json, .yaml, .yml, .txt - " in result.err
    assert not list(tmp_path.iterdir())


def test_a_table_that_does_not_exist(rmqtx: Run) -> None:
    result = rmqtx("schema", "epochs", "transaction", "--format", "json")
    assert (result.status, result.out) == (exit_status.USAGE, "")
    assert "unknown table 'transaction' - did you mean transactions" in result.err


def test_all_tables_that_commands_list_are_declared() -> None:
    known = {column for columns in declared().values() for column in columns}
    kinds = ("commitlog", "consumequeue", "half", "op", "index", "checkpoint", "cursors", "trace")
    for info in pkgutil.walk_packages(rmqtx_cli.commands.__path__, "rmqtx_cli.commands."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, pa.Schema):
                assert value in DECLARED_TABLES.values(), f"list {info.name}.{name} in DECLARED_TABLES"
    for command in (*LINES, *kinds):
        assert set(offers.columns(command)) - set(derived_columns(TRANSACTIONS)) <= known, command
    assert set(offers.tables()) == set(DECLARED_TABLES) > set(ALL_TABLES)
    assert {one.value for one in SchemaFormat} == {"table", "json", "odcs"}

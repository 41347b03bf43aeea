"""Columns whose values are a closed list: what is mistyped is said, and the lists hold what real stores show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtx.readers.model.tables import ALL_TABLES
from rmqtx_cli.options.columns import closed_values, resolve, value_lists
from rmqtx_cli.options.filters import parse_filter
from rmqtx_cli.pages.glossary import RESULT_TABLES
from tests.cli.conftest import Run

TABLES = {**ALL_TABLES, **RESULT_TABLES}


@pytest.mark.parametrize("option", ["--where", "--fail-on"])
@pytest.mark.parametrize(
    ("condition", "advice"),
    [
        ("state = discarded", "did you mean DISCARDED?"),
        ("state = DISCARDD", "did you mean DISCARDED?"),
        ("causes = decided-only-at-checks", "rmqtx diagnose STORE --where 'cause = decided-only-at-checks'"),
        ("not state != discarded", "did you mean DISCARDED?"),
        ("flags = comit_after_discard", "did you mean commit_after_discard"),
        ("flags != stale", "did you mean stalled"),
        ("keys = x or advice = comit", "did you mean commit?"),
        ("state ~ ^DISCARDD", "no state matches '^DISCARDD'"),
        ("state = null", "'state is null'"),
        ("state_entries.kind = rocks", "did you mean rocksdb?"),
    ],
)
def test_what_no_row_can_ever_be_is_an_error(
    rmqtx: Run, common: Path, option: str, condition: str, advice: str
) -> None:
    result = rmqtx("audit", common, option, condition)
    assert (result.status, result.out) == (2, "")
    assert advice in result.err
    assert result.err.startswith(f"rmqtx: {option}: ")


def test_the_same_of_other_tables(rmqtx: Run, common: Path) -> None:
    assert "did you mean warning?" in rmqtx("verify", common, "--where", "severity = warn").err
    assert "did you mean record-damaged" in rmqtx("verify", common, "--fail-on", "code = record_damaged").err
    assert "there are: single, list" in rmqtx("decode", "op", common, "--where", "body_form = many").err


def closed_columns() -> list[tuple[str, str, tuple[str, ...]]]:
    """Every table's columns that have closed lists, with their values."""
    found = []
    for table, schema in TABLES.items():
        for field in schema:
            inner: Any = field.type.value_type if pa.types.is_list(field.type) else field.type
            parts = [(f"{field.name}.{part.name}", part) for part in inner] if pa.types.is_struct(inner) else []
            for name, one in [(field.name, field), *parts]:
                if closed_values(one):
                    found.append((table, name, closed_values(one)))
    return found


def test_every_value_of_every_list_can_be_asked_for() -> None:
    found = closed_columns()
    assert len(found) > 30
    for table, name, values in found:
        if name.partition(".")[0] == "plan" or not resolvable(name, TABLES[table]):
            continue
        for value in values:
            parse_filter(f"{name} = '{value}'", TABLES[table])


def resolvable(name: str, schema: pa.Schema) -> bool:
    column, _, part = name.partition(".")
    return not part or pa.types.is_list(schema.field(column).type)


def test_every_list_is_named_by_a_column() -> None:
    named = {field.metadata.get(b"words", b"").decode() for schema in TABLES.values() for field in schema}
    assert set(value_lists()) <= named


@pytest.mark.parametrize(
    ("store", "commands"),
    [
        ("common-5.3.3", ["audit", "verify", "decode commitlog", "decode consumequeue", "decode op", "simulate"]),
        ("common-4.3.0", ["audit", "verify", "decode commitlog", "decode op", "simulate"]),
        ("rocksdb-5.5.0", ["audit", "decode op", "decode half"]),
        ("statetable-3.1.4", ["audit", "verify", "decode statetable", "decode redolog", "decode commitlog"]),
        ("killed-5.5.0", ["audit", "verify", "simulate"]),
        ("batchcq-5.3.3", ["decode consumequeue"]),
    ],
)
def test_what_real_stores_show_is_in_the_lists(
    rmqtx: Run, corpus_store: Callable[[str], Path], tmp_path: Path, store: str, commands: list[str]
) -> None:
    seen = 0
    for command in commands:
        file = tmp_path / f"{command}.arrow"
        assert rmqtx(*command.split(), corpus_store(store), "-o", file).status in (0, 1, 3), command
        with pa.ipc.open_stream(file) as stream:
            rows = stream.read_all()
        for field in rows.schema:
            path = resolve(field.name, rows.schema) if not pa.types.is_nested(field.type) else None
            values = closed_values(field)
            assert path is None or path.values == values
            if values:
                column = rows[field.name].combine_chunks()
                flat = column.flatten() if pa.types.is_list(field.type) else column
                assert set(flat.to_pylist()) - {None} <= set(values), (command, field.name)
                seen += len(flat)
    assert seen

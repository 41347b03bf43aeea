"""The names that a printed table shows: they can be asked for, chosen, compared and explained."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest

import rmqtx_cli
from rmqtx.readers.model.tables import LIVE_TRANSACTIONS
from rmqtx.repairs.bundles.bundle import BUNDLED
from rmqtx_cli.commands.all_views import all_views
from rmqtx_cli.output.views import View
from rmqtx_cli.pages.glossary import entries
from rmqtx_cli.pages.stores_table import STORES
from rmqtx_cli.pages.summary import SUMMARY
from tests.cli.conftest import Run


def rows_of(rmqtx: Run, *words: object) -> list[dict[str, object]]:
    result = rmqtx(*words, "--format", "jsonl", "--quiet")
    assert result.status == 0, result.err
    return result.rows


def test_heads_are_names_of_columns(rmqtx: Run, common: Path) -> None:
    rows = rows_of(rmqtx, "pending", common, "--fields", "transaction_id,age,half,log_offset,group,checks")
    assert list(rows[0]) == ["transaction_id", "age_ms", "half", "log_offset", "producer_group", "checks_count"]
    whole = {row["transaction_id"]: row for row in rows_of(rmqtx, "pending", common)}
    for row in rows:
        newest = whole[row["transaction_id"]]["half_copies"][-1]  # type: ignore[index]
        assert (row["half"], row["log_offset"]) == (newest["queue_offset"], newest["commit_log_offset"])
        assert row["producer_group"] == whole[row["transaction_id"]]["producer_group"]
    wanted = max(int(str(row["half"])) for row in rows)
    found = rows_of(rmqtx, "pending", common, "--where", f"half = {wanted} and group = shop")
    assert [row["half_copies"][-1]["queue_offset"] for row in found] == [wanted]  # type: ignore[index]
    assert list(found[0]) == list(next(iter(whole.values()))), "what a condition looks at is not given"
    halves = rows_of(rmqtx, "decode", "half", common, "--where", "half > 280", "--fields", "half")
    assert [row["queue_offset"] for row in halves] == list(range(281, 289))


@pytest.mark.parametrize(("condition", "count"), [("age > 10m", 1), ("age_ms > 1h30m", 0), ("age <= 3600000", 1)])
def test_ages_compare_with_durations_as_of_the_time_asked_about(
    rmqtx: Run, common: Path, condition: str, count: int
) -> None:
    one = rows_of(rmqtx, "pending", common, "--where", "keys ~ pending.7")[0]
    at_ms = int(str(one["half_store_time_ms"])) + 3_600_000
    rows = rows_of(rmqtx, "pending", common, "--at", at_ms, "--where", f"{condition} and keys ~ pending.7")
    assert len(rows) == count
    chosen = rows_of(rmqtx, "audit", common, "--at", at_ms, "--where", "keys ~ pending.7", "--fields", "age")
    assert chosen == [{"age_ms": 3_600_000}]


def test_parts_of_evidence_can_be_chosen(rmqtx: Run, common: Path) -> None:
    whole = rows_of(rmqtx, "audit", common)
    rows = rows_of(rmqtx, "audit", common, "--fields", "half_copies.queue_offset,op_marks.store_time")
    assert [list(row) for row in rows[:1]] == [["half_copies.queue_offset", "op_marks.store_time_ms"]]
    for row, one in zip(rows, whole, strict=True):
        assert row["half_copies.queue_offset"] == [copy["queue_offset"] for copy in one["half_copies"]]  # type: ignore[attr-defined]
    keys = rows_of(rmqtx, "decode", "commitlog", common, "--fields", "keys,properties.KEYS", "--limit", "40")
    assert all(row["keys"] == row["properties.KEYS"] for row in keys)
    assert any(row["keys"] for row in keys)


@pytest.mark.parametrize(
    ("fields", "advice"),
    [("agee", "age"), ("grup", "group"), ("half_copies.queue", "queue_offset"), ("state.x", "'state' has no")],
)
def test_what_is_no_name_is_said_with_what_is_near(rmqtx: Run, common: Path, fields: str, advice: str) -> None:
    result = rmqtx("pending", common, "--fields", fields)
    assert (result.status, result.out) == (2, "")
    assert advice in result.err.replace("state has no", "'state' has no")


def test_every_head_of_every_table_is_explained(rmqtx: Run) -> None:
    known = {entry.word for entry in entries(all_views())}
    heads = {heading for view in all_views() for column in view.columns for heading in column.headings}
    assert len(heads) > 100
    assert {head for head in heads if head not in known and f"{head}_ms" not in known} == set()
    for word in ("age", "half", "since sent", "group"):
        assert "head of a printed column" in rmqtx("explain", word).out


def test_every_view_is_among_those_whose_heads_are_explained() -> None:
    """A view is a constant or made by a function that says so; each is in `all_views`, by its columns or its name."""
    known = {tuple(column.heading for column in view.columns) for view in all_views()}
    source = Path(all_views.__code__.co_filename).read_text("utf-8")
    found = 0
    for info in pkgutil.walk_packages(rmqtx_cli.__path__, "rmqtx_cli."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            views = [value] if isinstance(value, View) else []
            views += [one for one in value.values() if isinstance(one, View)] if isinstance(value, dict) else []
            for view in views:
                found += 1
                assert tuple(column.heading for column in view.columns) in known, (
                    f"name {info.name}.{name} in rmqtx_cli/commands/all_views.py"
                )
            if inspect.isfunction(value) and value.__module__ == info.name and "View" in str(
                value.__annotations__.get("return", "")
            ) and not name.startswith("_") and name not in ("plain_view", "all_views"):
                found += 1
                assert name in source, f"{info.name}.{name} is not among all views"
    assert found > 30


def test_every_column_that_is_shown_has_a_meaning() -> None:
    """Not only a head: the table that it is of is in RESULT_TABLES of rmqtx_cli/pages/glossary.py."""
    heads = [entry for entry in entries(all_views()) if entry.kind == "head of a printed column"]
    explained = {entry.word for entry in entries(all_views())} - {entry.word for entry in heads}
    shown = {line.removeprefix("shows ") for entry in heads for line in entry.lines if line.startswith("shows ")}
    assert shown <= explained
    columns = {name for schema in (STORES, SUMMARY, BUNDLED, LIVE_TRANSACTIONS) for name in schema.names}
    assert columns <= {entry.word for entry in entries(all_views())}


def test_a_plan_takes_the_same_names(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = ("--store", common, "--reason", "r", "-o", plan, "--json")
    result = rmqtx("plan", "rollback", "--where", "age > 10m and half = 269", *made)
    assert [len(step["half_copy"]) > 0 for step in json.loads(result.out)] == [True]


def test_the_head_of_a_column_that_several_tables_have_is_that_of_transactions(rmqtx: Run) -> None:
    assert "checks_count: checks made, the highest count of any copy" in rmqtx("explain", "checks").out

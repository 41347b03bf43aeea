"""What the options of the listing commands do."""

from __future__ import annotations

import importlib
import json
import pkgutil
import shlex
import shutil
import time
from pathlib import Path
from typing import get_type_hints

import pytest
import typer

import rmqtx_cli.commands.declared
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store import open_store
from rmqtx_cli import commands
from rmqtx_cli.commands import Command
from rmqtx_cli.commands.by_name import GROUPS, declared, in_group
from rmqtx_cli.main import app
from rmqtx_cli.words.command_names import LINES, SECTIONS
from rmqtx_cli.words.times import duration_text, parse_duration_ms, parse_moment_ms, parse_time_ms, time_text
from tests.cli.conftest import Run
from tests.forge.stores import copy_of

#: Every command, and those of the groups.
DECLARED = (
    *(declared(name) for name in LINES if name not in GROUPS),
    *(one for name in GROUPS for one in in_group(name)),
)


def ids(result_out: str) -> list[str]:
    return [json.loads(line)["transaction_id"] for line in result_out.splitlines()]


def test_pending_is_the_pending_part_of_audit(rmqtx: Run, common: Path) -> None:
    listed = ids(rmqtx("pending", common, "--format", "jsonl").out)
    audited = ids(rmqtx("audit", common, "--where", "state = PENDING", "--format", "jsonl").out)
    assert sorted(listed) == sorted(audited)
    scanned = ids(rmqtx("pending", common, "--scan", "--format", "jsonl").out)
    assert scanned == listed
    everything = rmqtx("pending", common, "--all-open", "--format", "jsonl").out
    others = [json.loads(line) for line in everything.splitlines() if json.loads(line)["state"] != "PENDING"]
    assert others
    assert all(row["flags"] for row in others)


def test_pending_filters_and_sorts(rmqtx: Run, common: Path) -> None:
    rows = rmqtx("pending", common, "--format", "jsonl").rows
    assert [row["half_store_time_ms"] for row in rows] == sorted(row["half_store_time_ms"] for row in rows)
    topic = rows[0]["topic"]
    chosen = rmqtx("pending", common, "--topic", topic, "--format", "jsonl").out
    assert ids(chosen) == [row["transaction_id"] for row in rows if row["topic"] == topic]
    assert ids(rmqtx("pending", common, "--group", "nobody", "--format", "jsonl").out) == []
    assert ids(rmqtx("pending", common, "--limit", "2", "--format", "jsonl").out) == [
        row["transaction_id"] for row in rows[:2]
    ]
    by_checks = rmqtx("pending", common, "--sort", "checks", "--format", "jsonl").out.splitlines()
    checks = [json.loads(line)["checks_count"] for line in by_checks]
    assert checks == sorted(checks, reverse=True)
    assert ids(rmqtx("pending", common, "--older-than", "5000d", "--format", "jsonl").out) == []
    last = max(row["half_store_time_ms"] for row in rows)
    early = rmqtx("audit", common, "--at", str(last - 1), "--format", "jsonl").out
    assert rows[-1]["transaction_id"] not in ids(early)


def test_a_summary_is_rows_too(rmqtx: Run, common: Path) -> None:
    rows = json.loads(rmqtx("audit", common, "--summary", "--format", "json").out)
    audited = json.loads(rmqtx("audit", common, "--format", "json").out)
    assert sum(row["transactions_count"] for row in rows) == len(audited)
    assert sum(row["half_copies_count"] for row in rows) == sum(len(row["half_copies"]) for row in audited)
    for state in ("PENDING", "COMMITTED", "DISCARDED"):
        assert sum(row[f"{state.lower()}_count"] for row in rows) == sum(row["state"] == state for row in audited)


def test_several_stores_are_one_reading(rmqtx: Run, common: Path, fifteen: Path) -> None:
    one = ids(rmqtx("audit", common, "--format", "jsonl").out)
    other = ids(rmqtx("audit", fifteen, "--format", "jsonl").out)
    assert sorted(ids(rmqtx("audit", common, fifteen, common, "--format", "jsonl").out)) == sorted(one + other)
    assert rmqtx("audit", common, fifteen, "--commitlog", "x").status == 2


def test_stores_are_found_below_a_directory(rmqtx: Run, fifteen: Path, tmp_path: Path) -> None:
    shutil.copytree(fifteen, tmp_path / "a" / "b" / "store")
    shutil.copytree(fifteen, tmp_path / "c")
    rows = json.loads(rmqtx("stores", tmp_path, "--format", "json").out)
    assert [row["store"] for row in rows] == [str(tmp_path / "a" / "b" / "store"), str(tmp_path / "c")]
    assert rows[0]["half_lag"] == 0
    assert rows[0]["is_in_use"] is False


@pytest.mark.parametrize("name", ["busystop-4.9.7", "statetable-3.1.4", "rocksdb-single-5.5.0", "dledger-5.1.4"])
def test_stores_says_no_more_than_it_looked_at(rmqtx: Run, tmp_path: Path, name: str) -> None:
    root = copy_of(name, tmp_path)
    whole = rmqtx("stores", root)
    assert (whole.status, whole.err) == (exit_status.DONE, "")
    assert "lead to records; the log was not read (rmqtx verify)" in whole.out
    segment = Path(open_store(root).commit_log[0].file)
    for content in (bytes(segment.stat().st_size), b"\xff" * segment.stat().st_size, b""):
        segment.write_bytes(content)
        destroyed = rmqtx("stores", root)
        assert (destroyed.status, "damaged: log-missing" in destroyed.out) == (exit_status.INCOMPLETE, True)
        assert "lead to records" not in destroyed.out


def test_a_commit_log_elsewhere(rmqtx: Run, fifteen: Path, tmp_path: Path) -> None:
    shutil.copytree(fifteen, tmp_path / "store")
    (tmp_path / "store" / "commitlog").rename(tmp_path / "log")
    found = ids(rmqtx("audit", tmp_path / "store", "--commitlog", tmp_path / "log", "--format", "jsonl").out)
    assert found == ids(rmqtx("audit", fifteen, "--format", "jsonl").out)


def test_decode_bounds_and_coverage(rmqtx: Run, common: Path) -> None:
    rows = json.loads(rmqtx("decode", "commitlog", common, "--format", "json").out)
    middle = rows[len(rows) // 2]
    after = json.loads(
        rmqtx("decode", "commitlog", common, "--from", middle["commit_log_offset"], "--format", "json").out
    )
    assert after == rows[len(rows) // 2 :]
    until = rmqtx("decode", "commitlog", common, "--to", middle["store_time"], "--format", "jsonl").out.splitlines()
    assert len(until) == sum(row["store_time_ms"] < middle["store_time_ms"] for row in rows)
    for kind in ("commitlog", "consumequeue", "half", "op", "index", "checkpoint", "cursors"):
        result = rmqtx("decode", kind, common, "--coverage", "--format", "json")
        assert result.status == 0
        for file in json.loads(result.out):
            parts = sum(file[f"{part}_bytes"] for part in ("decoded", "filler", "damaged", "unread"))
            assert parts == file["size_bytes"] == Path(file["file"]).stat().st_size
            assert file["unread_bytes"] == 0
    bounded = json.loads(
        rmqtx("decode", "commitlog", common, "--to", "1000", "--coverage", "--format", "json").out
    )
    assert sum(file["unread_bytes"] for file in bounded) > 0


def test_decode_bodies(rmqtx: Run, common: Path) -> None:
    words = ["decode", "commitlog", common, "--topic", "orders", "--decompress", "--check-crc", "--format", "jsonl"]
    texts = rmqtx(*words, "--body", "text").rows
    raw = rmqtx(*words, "--body", "raw").rows
    assert len(texts) == len(raw) > 10
    import base64

    for text, row in zip(texts, raw, strict=True):
        assert base64.b64decode(row["body"]).decode("utf-8", "backslashreplace") == text["body"]
        assert row["body_crc_matches"] is True


def test_decode_where_and_limit(rmqtx: Run, common: Path) -> None:
    words = ["decode", "commitlog", common, "--where", "transaction_type = commit", "--format", "jsonl"]
    rows = rmqtx(*words).rows
    assert rows
    assert all(row["transaction_type"] == "commit" for row in rows)
    assert rmqtx(*words, "--limit", "3").out.splitlines() == rmqtx(*words).out.splitlines()[:3]
    assert rmqtx(*words, "--limit", "0").out == ""
    narrow = rmqtx(*words, "--fields", "keys", "--limit", "1").out
    assert list(json.loads(narrow)) == ["keys"]


@pytest.mark.parametrize("command", DECLARED, ids=lambda command: command.__name__)
def test_the_module_of_a_command_takes_what_is_declared(command: type[Command]) -> None:
    module = importlib.import_module(f"rmqtx_cli.commands.{command.MODULE}")
    hints = get_type_hints(getattr(module, command.FUNCTION))
    assert issubclass(command, hints["options"])
    assert hints["return"] is int


#: Their examples are parsed only: none of them has a value that the command line cannot have.
PARSED = [one for one in DECLARED if one.MODULE.startswith("decode.") or one.NAME in (
    "stores", "pending", "show", "audit", "check", "explain")]


@pytest.mark.parametrize("declaration", PARSED, ids=lambda one: one.__name__)
def test_examples_are_command_lines_that_can_be(declaration: type[Command]) -> None:
    root = typer.main.get_command(app)
    for example in declaration.EXAMPLES:
        words = shlex.split(example.line.partition(" | ")[0])
        assert words[0] == "rmqtx"
        command, rest = root, words[1:]
        while hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context("rmqtx", rest)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("10m", 600_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("90s", 90_000), ("1.5h", 5_400_000), ("5ms", 5)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds
    assert parse_duration_ms(duration_text(milliseconds)) == milliseconds


def test_times() -> None:
    assert parse_time_ms("2026-01-02T03:04:05.678Z") == 1767323045678
    assert parse_time_ms("2026-01-02T11:04:05.678+08:00") == 1767323045678
    assert parse_time_ms("1767323045678") == 1767323045678
    assert parse_time_ms("1767323045") == 1767323045000
    assert time_text(1767323045678) == "2026-01-02T03:04:05.678Z"
    assert time_text(2**62) == str(2**62)
    assert duration_text(-90_000) == "-1m30s"


@pytest.mark.parametrize(
    ("text", "time_ms", "is_relative"),
    [
        ("2026-01-02T03:04:05Z", 1767323045000, False),
        ("2026-01-02Z", 1767312000000, False),
        ("2026-01-02+08:00", 1767283200000, False),
        ("2026-01-02", 1767308400000, True),  # midnight in Paris
        ("2026-07-02 10:00", 1782979200000, True),  # in summer
        ("1767323045678", 1767323045678, False),
        ("@1767323045", 1767323045000, True),
        ("now", 1767323045678, True),
        ("-1h", 1767319445678, True),
        ("+1h30m", 1767328445678, True),
        ("today", 1767308400000, True),
        ("Yesterday", 1767222000000, True),
    ],
)
def test_moments(text: str, time_ms: int, is_relative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Paris")
    time.tzset()
    try:
        assert parse_moment_ms(text, 1767323045678) == (time_ms, is_relative)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["2026-13-01", "last week", "-1", "- 1h", "1h", "99999999999999999"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_moment_ms(text, 1767323045678)


def test_a_time_that_depends_on_this_machine_is_said(rmqtx: Run, common: Path) -> None:
    assert "--at 2026-11-21 is 2026-11-" in rmqtx("pending", common, "--at", "2026-11-21").err
    assert "in the zone of this machine" in rmqtx("decode", "half", common, "--from", "yesterday").err
    assert " is 20" not in rmqtx("pending", common, "--at", "2026-11-21T00:00:00Z").err
    assert " is 20" not in rmqtx("pending", common, "--at", "-1h", "--quiet").err


def test_every_declared_command_and_every_module_that_runs_one_is_used() -> None:
    found = {
        one for info in pkgutil.iter_modules(rmqtx_cli.commands.declared.__path__)
        for one in vars(importlib.import_module(f"rmqtx_cli.commands.declared.{info.name}")).values()
        if isinstance(one, type) and issubclass(one, Command) and hasattr(one, "EXAMPLES")
    }
    assert found == {*DECLARED}, "name it in COMMANDS of its module and in words/command_names.py"
    running = {
        info.name.removeprefix("rmqtx_cli.commands.")
        for info in pkgutil.walk_packages(commands.__path__, "rmqtx_cli.commands.")
        if hasattr(importlib.import_module(info.name), "run")
    }
    assert running <= {one.MODULE for one in DECLARED}


def test_help_lists_every_command_in_one_section(rmqtx: Run) -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    there = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert sorted(listed) == there, "name it in SECTIONS of rmqtx_cli/words/command_names.py"
    lines = rmqtx("--help").out.splitlines()
    assert [line.split()[0] for line in lines if line[:2] == "  " and line[2:].split(" ")[0] in listed] == listed

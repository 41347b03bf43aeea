"""The commands to type next: with the options of the run that names them, and as words that a shell takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.main import app
from rmqtx_cli.options.next_commands import CARRIED, CURRENT, PLACES, carried, with_places
from tests.cli.conftest import Run

Stores = Callable[[str], Path]


def commands(text: str) -> list[str]:
    """The commands of the next lines."""
    return [found.partition("   # ")[0] for found in re.findall(r"next: (rmqtx .*)", text)]


def words_of_bash(text: str) -> list[bytes]:
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, check=True)
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize(
    "text",
    ["plain/store", "two words", "it's", "$HOME `x` \\", "n\nl", "tab\tx", "it's\nit", "b\udcff9", "\x1b[31m", "ü 订单",
     "-n", "\u202e"],
)
def test_a_shell_reads_what_was_quoted(text: str) -> None:
    word = quoted(text)
    assert word.isprintable()
    assert words_of_bash(word) == [os.fsencode(text)]
    assert len(shlex.split(word)) == 1


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "max 2.conf"
    file.write_text("fileReservedTime=100000\ntransactionCheckMax=2\n")
    return file


@pytest.mark.parametrize(
    "words", [["pending"], ["audit"], ["diagnose"], ["verify"], ["simulate"], ["check"], ["report", "-o", "OUT"]],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("name", ["common-5.3.3", "poison-4.5.0"])
def test_next_commands_carry_what_changes_the_answer(
    rmqtx: Run, corpus_store: Stores, conf: Path, tmp_path: Path, words: list[str], name: str
) -> None:
    store, version = corpus_store(name), name.partition("-")[2]
    given = [str(tmp_path / "page.md") if word == "OUT" else word for word in words]
    given += ["--state-dir", str(tmp_path)] if words == ["check"] else []
    result = rmqtx(*given, store, "--broker-conf", conf, "--broker-version", version)
    found = commands(result.out.partition("; oldest")[0] + result.err)
    if words[0] == "report":
        page = (tmp_path / "page.md").read_text()
        found += re.findall(r"^(rmqtx (?:show|diagnose|commit|cursor) .*?)   # ", page, re.MULTILINE)
    assert found or name == "common-5.3.3"
    for command in found:
        if command.split()[1] != "explain":
            typed = shlex.split(command)
            assert typed[typed.index("--broker-conf") + 1] == str(conf)
            assert typed[typed.index("--broker-version") + 1] == version
            assert typed.count("--broker-version") == 1
            assert "X.Y.Z" not in typed


@pytest.mark.parametrize("name", ["common-5.3.3", "common-4.3.0"])
def test_what_is_typed_next_gives_the_same_answer(rmqtx: Run, corpus_store: Stores, conf: Path, name: str) -> None:
    store = corpus_store(name)
    conf.write_text("fileReservedTime=100000\ntransactionCheckMax=1\n")
    rows = json.loads(rmqtx("pending", store, "--broker-conf", conf, "--format", "json").out)
    listed = {row["transaction_id"]: row["advice"] for row in rows}
    show = next(one for one in commands(rmqtx("pending", store, "--broker-conf", conf).err) if " show " in one)
    [row] = json.loads(rmqtx(*shlex.split(show)[1:], "--format", "json").out)
    assert row["advice"] == listed[row["transaction_id"]]
    assert "decide" in listed.values()  # as transactionCheckMax of the file has it, and not the default


def test_a_past_time_is_carried_as_it_was_understood(rmqtx: Run, corpus_store: Stores) -> None:
    store = corpus_store("common-5.3.3")
    for command in ("pending", "audit"):
        asked = rmqtx(command, store, "--at", "-1h")
        found = commands(asked.err)
        shows = [shlex.split(one) for one in found if one.split()[1] == "show"]
        assert shows
        for typed in shows:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", typed[typed.index("--at") + 1])
            assert f"--at -1h is {typed[typed.index('--at') + 1]}" in asked.err
            assert rmqtx(*typed[1:]).status == 0
    # --at of a simulation is a clock: that of a state only where no record is later.
    shown, *others = commands(rmqtx("simulate", corpus_store("poison-4.5.0"), "--at", "+1h").err)
    assert shown.startswith("rmqtx show")
    assert "--at 2" in shown
    assert "--at" not in " ".join(others)
    early = commands(rmqtx("simulate", corpus_store("poison-4.5.0"), "--at", "2026-11-21T05:00Z").err)
    assert early
    assert "--at" not in " ".join(early)


def test_a_log_in_another_directory_is_carried(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    log = Path(shutil.copytree(corpus_store("killed-5.3.3") / "commitlog", tmp_path / "the log"))
    (tmp_path / "empty").mkdir()
    found = commands(rmqtx("audit", tmp_path / "empty", "--commitlog", log, "--summary").err)
    assert found
    for command in found:
        typed = shlex.split(command)
        assert typed[typed.index("--commitlog") + 1] == str(log)
        assert rmqtx(*typed[1:]).status in (0, 3)


def test_a_path_that_no_quotes_can_hold(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    store = Path(shutil.copytree(corpus_store("common-5.3.3"), tmp_path / "n\nl it's"))
    for command in commands(rmqtx("pending", store).err):
        typed = [os.fsdecode(word) for word in words_of_bash(command)]
        assert typed[typed.index("--store") + 1] == str(store)


def test_guards_name_commands_that_act_in_the_same_place(rmqtx: Run, corpus_store: Stores, tmp_path: Path) -> None:
    store = corpus_store("common-5.3.3")
    rows = json.loads(rmqtx("pending", store, "--format", "json").out)
    refused = rmqtx(
        "close", rows[0]["transaction_id"], "--store", store, "--to", tmp_path / "new", "--broker-version", "5.3.3",
        "--reason", "x", "--yes",
    )
    assert f"rmqtx rollback {rows[0]['transaction_id']} --store {store} --broker-version 5.3.3 --to DIR" in refused.err


def test_every_name_is_a_parameter() -> None:
    tree = typer.main.get_command(app)
    context = typer.Context(tree)
    names = {
        parameter.name for command in ("show", "diagnose", "pending", "commit")
        for parameter in tree.get_command(context, command).params  # type: ignore[attr-defined]
    }
    assert {*CARRIED, *PLACES} <= names


def test_without_a_command_line_nothing_is_added() -> None:
    assert CURRENT.get() is None
    assert carried("rmqtx show O'Brien --store x") == "rmqtx show O'Brien --store x"
    assert with_places("decide it: rmqtx commit X; or wait") == "decide it: rmqtx commit X; or wait"

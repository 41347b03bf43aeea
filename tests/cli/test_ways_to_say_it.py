"""The ways in which people say what they mean: short ids, `--store` anywhere, a variable, `help CMD`, `-q`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from rmqtx.repairs.receipts.receipts import whoever
from rmqtx_cli.main import app
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal

WHOLE = "FD0000000000000000000000000000021A584E0E2F2A683849CD0081"


@pytest.mark.parametrize("short", ["9CD0081", "9cd0081", WHOLE[:-1] + "1", "683849CD0081"])
def test_a_unique_part_of_an_id_is_shown(rmqtx: Run, common: Path, short: str) -> None:
    result = rmqtx("show", short, "--store", common)
    assert result.status == 0
    assert result.out.startswith(f"{WHOLE}  PENDING")
    assert ("as short for" in result.err) == (short != WHOLE)


def test_a_part_that_several_ids_have_lists_them(rmqtx: Run, common: Path) -> None:
    result = rmqtx("show", WHOLE[:-4], "--store", common, "--json")
    assert {row["transaction_id"][:-4] for row in json.loads(result.out)} == {WHOLE[:-4]}
    assert "transactions match: " in result.err


@pytest.mark.parametrize("short", ["081", "9CD008", "ZZZZZZZ"])
def test_what_is_no_beginning_or_end_is_no_transaction(rmqtx: Run, common: Path, short: str) -> None:
    assert rmqtx("show", short, "--store", common).status == 16


def test_acting_takes_whole_ids_only(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    acting = ("--store", common, "--to", tmp_path / "new", "--broker-version", "5.3.3", "--dry-run")
    assert rmqtx("rollback", "9CD0081", *acting).status == 2
    plan = ("plan", "rollback", "9CD0081", "--store", common, "--reason", "r", "-o", tmp_path / "p.json")
    assert rmqtx(*plan).status == 16


@pytest.mark.parametrize("words", ["pending", "audit", "verify", "decode half", "stores", "simulate", "check"])
def test_a_store_is_an_option_wherever_it_is_an_argument(rmqtx: Run, common: Path, words: str) -> None:
    plain = rmqtx(*words.split(), common)
    for said in (["--store", common], [f"--store={common}"]):
        given = rmqtx(*words.split(), *said)
        assert (given.status, bool(given.out)) == (plain.status, bool(plain.out))


def test_a_variable_names_the_store_of_commands_that_read(
    rmqtx: Run, common: Path, corpus_store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RMQTX_STORE", str(common))
    assert WHOLE in rmqtx("pending", "-q").out
    assert rmqtx("show", WHOLE, "-q").out.startswith(WHOLE)
    assert WHOLE not in rmqtx("pending", corpus_store("fifteen-5.3.3"), "-q").out
    assert rmqtx("pending", "-n", "127.0.0.1:1").status == 14, "a broker that is named wins"
    assert rmqtx("rollback", WHOLE, "--to", tmp_path / "new").status == 2, "what acts wants it said"
    assert rmqtx("plan", "rollback", WHOLE, "--reason", "r", "-o", tmp_path / "p.json").status == 2


@pytest.mark.parametrize("words", ["pending", "decode half", "cursor set", "decode"])
def test_help_for_a_command(rmqtx: Run, words: str) -> None:
    assert rmqtx("help", *words.split()).out == rmqtx(*words.split(), "--help").out != ""
    assert rmqtx("help", "nonsense").status == 2


def test_quiet_says_nothing(rmqtx: Run, common: Path) -> None:
    result = rmqtx("pending", common, "-q", "--where", "keys = none")
    assert (result.status, result.out, result.err) == (0, "", "")
    assert "left out" in on_terminal([*WARM, "pending", str(common)])[1]
    assert "left out" not in on_terminal([*WARM, "pending", str(common), "-q"])[1]


def test_a_plan_is_readable(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    made = ("--store", common, "--reason", "OPS-1", "-o", plan)
    planned = rmqtx("plan", "rollback", "--where", "keys ~ pending.[0-3]", *made)
    assert planned.status == 0
    following = f"next: rmqtx apply {plan} --store {common} --to NEW --broker-version X.Y.Z\n"
    assert f"plan of 4 steps; {following}" in planned.err
    page = rmqtx("plan", "show", plan)
    assert (page.status, page.err) == (0, "")
    lines = page.out.splitlines()
    assert lines.pop(1) == f"by      {whoever()}"
    assert lines[0].startswith("plan    rollback 4 transactions; made 20")
    assert lines[1:4] == ["why     OPS-1", "of      shop to orders: 3", "of      shop to payments: 1"]
    assert lines[4].startswith(f"from    {common}, as of 20")
    assert lines[5] == f"next    rmqtx apply {plan} --store {common} --to NEW --broker-version X.Y.Z --dry-run"
    next_command = lines[5].removeprefix("next    rmqtx ").replace("NEW", str(tmp_path / "new"))
    assert rmqtx(*next_command.replace("X.Y.Z", "5.3.3").split()).status == 0
    assert [line.split()[1] for line in lines[8:]] == ["rollback"] * 4
    assert len(json.loads(rmqtx("plan", "show", plan, "--json").out)) == 4
    assert rmqtx("plan", "show").status == rmqtx("plan", "show", plan, "--reason", "x").status == 2
    assert rmqtx("plan", "show", tmp_path / "none.json").status == 10
    for lacking in (("--reason", "x"), ("-o", tmp_path / "q.json")):
        assert "is required" in rmqtx("plan", "rollback", "--all", "--store", common, *lacking).err


def test_states_have_colours_on_a_terminal_only(
    rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["audit", str(common), "-q", "--fields", "half,state,keys", "--limit", "5"]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = on_terminal([*WARM, *words])[1]
    assert "\x1b[32mCOMMITTED\x1b[0m" in shown
    plain = rmqtx(*words).out
    assert "\x1b" not in plain
    uncoloured = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert [line.split() for line in uncoloured.splitlines()] == [line.split() for line in plain.splitlines()]
    places = [line.index("COMMITTED") for line in uncoloured.splitlines() if "COMMITTED" in line]
    assert len(set(places)) == 1, "columns stand below each other"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as without:
            without.setenv(name, value)
            assert "\x1b" not in on_terminal([*WARM, *words])[1]
    file = tmp_path / "rows.txt"
    wide = ["audit", str(common), "-q", "--fields", "transaction_id,state,flags,reason,group,topic,keys"]
    on_terminal([*WARM, *wide, "-o", str(file)])
    assert "\x1b" not in file.read_text()
    assert file.read_text() == rmqtx(*wide).out, "a file is not as narrow as the terminal"


ENDLESS = {"exporter": ("--interval", "1ms"), "watch": ("--interval", "1ms")}
"""Commands that go on until they are stopped, with what they refuse: a wrong option."""


def leaves(command: Any, words: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that name it."""
    if not hasattr(command, "commands"):
        return [(words, command)]
    return [leaf for name, one in command.commands.items() for leaf in leaves(one, (*words, name))]


def test_every_command_takes_its_stores_as_options_and_json_as_a_word(rmqtx: Run, tmp_path: Path) -> None:
    """A store that is not there is complained of as one, and never as an option that is not known."""
    named = formatted = 0
    for words, command in leaves(typer.main.get_command(app)):
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        if any(one.metavar in ("STORE", "[STORE]", "PATH", "SIDE") or one.name == "files" for one in arguments):
            named += 1
            refused = ENDLESS.get(words[0], ())
            assert "No such option" not in rmqtx(*words, "--store", tmp_path / "none", *refused).err, words
        if any("--format" in one.opts for one in command.params):
            formatted += 1
            assert "No such option" not in rmqtx(*words, "--json", "--store", tmp_path / "none").err.replace(
                "No such option: --store", ""
            ), words
    assert named >= 20
    assert formatted >= 30

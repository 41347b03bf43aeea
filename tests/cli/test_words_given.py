"""The words of a command line themselves: groups typed bare, and values that are empty."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from rmqtx.readers.model.errors import BadRequest, RmqtxError
from rmqtx_cli.main import app
from tests.cli.conftest import Run
from tests.cli.terminal import on_terminal

GROUPS = [[], ["decode"], ["cursor"]]
PROGRAM = "import sys; {}from rmqtx_cli.main import run; run()"
#: As where Typer was installed alone, which brings what it needs of click with it.
WITHOUT_CLICK = PROGRAM.format("sys.modules['click'] = None; ")
WITH_CLICK = PROGRAM.format("")


@pytest.mark.parametrize("program", [WITH_CLICK, WITHOUT_CLICK], ids=["with_click", "without_click"])
@pytest.mark.parametrize("group", GROUPS, ids=lambda words: "".join(words) or "rmqtx")
def test_a_bare_group_prints_its_help(group: list[str], program: str) -> None:
    words = [sys.executable, "-c", program, *group]
    piped = subprocess.run(words, capture_output=True, text=True, check=False)
    shown = on_terminal(words)
    asked = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True)
    assert (piped.returncode, piped.stdout) == (2, "")
    assert piped.stderr == asked.stdout
    assert shown[0] == 2
    assert "\nCommands:\n" in shown[1] or "\nMost used:\n" in shown[1]
    for text in (piped.stderr, shown[1]):
        assert "\\n" not in text
        assert max(map(len, text.splitlines())) <= 100


def commands(group: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, with its name."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*name, word))
        else:
            yield (*name, word), command


def test_an_empty_value_of_any_option_of_any_command_is_an_error() -> None:
    """As of a variable that is not set: `--where "$CONDITION"`."""
    tried = 0
    for name, command in commands(typer.main.get_command(app)):
        for option in command.params:
            if option.param_type_name == "option" and not option.is_flag:
                for words in ([option.opts[0], ""], [f"{option.opts[0]}="], [option.opts[0], " "]):
                    with pytest.raises(BadRequest, match=f"^{option.opts[0]} is empty"):
                        command.make_context(" ".join(name), words)
                tried += 1
    assert tried > 300


@pytest.mark.parametrize("where", ["", "  "])
def test_a_plan_for_a_condition_that_is_not_set_plans_nothing(
    rmqtx: Run, common: Path, tmp_path: Path, where: str
) -> None:
    plan = tmp_path / "plan.json"
    result = rmqtx("plan", "rollback", "--where", where, "--store", common, "--reason", "test", "-o", plan)
    assert (result.status, result.out) == (2, "")
    assert not plan.exists()


@pytest.mark.parametrize("words", [["pending", ""], ["show", "", "--store", "STORE"], ["commit", "A", ""]])
def test_an_empty_argument_is_an_error(rmqtx: Run, common: Path, words: list[str]) -> None:
    result = rmqtx(*(str(common) if word == "STORE" else word for word in words))
    assert (result.status, result.out) == (2, "")
    assert " is empty" in result.err


def test_a_number_beyond_counting_of_any_option_is_an_error() -> None:
    tried = 0
    for name, command in commands(typer.main.get_command(app)):
        for option in command.params:
            if option.param_type_name == "option" and option.type_descriptor.annotation is int:
                words = [option.opts[0], "99999999999999999999", *required(command, option)]
                with pytest.raises((RmqtxError, typer.TyperException)):
                    command.make_context(" ".join(name), words)
                tried += 1
    assert tried > 40


def required(command: Any, option: Any) -> list[str]:
    """Some word for everything that must be given beside an option."""
    words = []
    for one in command.params:
        if one.required and one is not option:
            words += ["x"] if one.param_type_name == "argument" else [one.opts[0], "x"]
    return words


@pytest.mark.parametrize(
    "words",
    [
        ["pending", "STORE", "--limit", "99999999999999999999"],
        ["pending", "STORE", "--older-than", "999999999999d"],
        ["audit", "STORE", "--limit", "99999999999999999999"],
        ["audit", "STORE", "--at", "99999999999999999999"],
        ["simulate", "STORE", "--at", "99999999999999999999"],
        ["decode", "half", "STORE", "--limit", "99999999999999999999"],
        ["decode", "commitlog", "STORE", "--from", "@99999999999999999999"],
        ["salvage", "STORE", "--to", "NEW", "--segment-size", "99999999999TiB"],
        ["salvage", "STORE", "--to", "NEW", "--segment-size", "2GiB"],
    ],
)
def test_what_is_beyond_all_bounds_is_2_and_one_line(rmqtx: Run, common: Path, words: list[str]) -> None:
    result = rmqtx(*(str(common) if word == "STORE" else word for word in words))
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1


def test_the_largest_number_that_counts_is_taken(rmqtx: Run, common: Path) -> None:
    largest = str(2**63 - 1)
    for command in ("audit", "pending"):
        words = [command, common, "-q", "--fields", "transaction_id,state,advice"]  # ages go on between two runs
        assert rmqtx(*words, "--limit", largest).out == rmqtx(*words).out
    assert rmqtx("pending", common, "--older-than", "36525d", "-q").out == ""


@pytest.mark.parametrize("file", ["json", "x.xlsx", "rows.csv.gz"])
def test_a_file_whose_suffix_names_no_format_is_not_written(
    rmqtx: Run, common: Path, tmp_path: Path, file: str
) -> None:
    result = rmqtx("pending", common, "-o", tmp_path / file, "--quiet")
    assert (result.status, result.out) == (2, "")
    assert ".json .jsonl" in result.err
    assert not (tmp_path / file).exists()
    assert rmqtx("pending", common, "-o", tmp_path / file, "--quiet", "--format", "csv").status == 0
    assert (tmp_path / file).read_text().startswith("store,")


def test_json_for_short(rmqtx: Run, common: Path) -> None:
    for words in (["pending"], ["show", "K-3733-pending.4", "--store"], ["check"], ["decode", "half"]):
        assert rmqtx(*words, common, "--json").out.startswith(("[", "{")), words


@pytest.mark.parametrize(("limit", "said"), [("3", "3 of 16 transactions listed"), ("99", None)])
def test_a_limit_says_of_how_many(rmqtx: Run, common: Path, limit: str, said: str | None) -> None:
    result = rmqtx("pending", common, "--limit", limit)
    assert "rmqtx: 16 pending transactions, " in result.err
    assert (f"rmqtx: {said}" in result.err) if said else ("listed" not in result.err)
    narrower = rmqtx("pending", common, "--limit", "1", "--where", "checks_count > 4")
    assert "rmqtx: 1 of 16" not in narrower.err
    assert "rmqtx: 1 of 2 transactions listed" in narrower.err


def test_a_topic_or_group_that_nothing_has_is_said(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    assert "--topic order: no open transaction has it - did you mean orders?" in rmqtx(
        "pending", common, "--topic", "order").err
    assert "--group zzz: no open transaction has it - there are: " in rmqtx(
        "pending", common, "--group", "zzz").err
    assert "no open transaction" not in rmqtx("pending", common, "--group", "shop", "--topic", "orders").err
    made = ("--store", common, "--reason", "r", "-o", tmp_path / "p.json")
    planned = rmqtx("plan", "rollback", "--group", "shpo", *made)
    assert "did you mean shop?" in planned.err

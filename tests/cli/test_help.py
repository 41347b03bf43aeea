"""The help pages: each line fits 80 columns, examples come before the options, and options have groups."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from rmqtx_cli.commands.by_name import wrapped_command
from rmqtx_cli.main import app
from rmqtx_cli.options.help_page import _ELSEWHERE, GROUPS
from rmqtx_cli.words.command_names import MOST_USED, SECTIONS
from tests.cli.conftest import Run

ROOT: Any = typer.main.get_command(app)


def commands(command: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group, with the words that call it."""
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*words, name))


ALL = dict(commands())


@pytest.fixture
def pages(rmqtx: Run, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, ...], str]:
    """Every help page, by the words that call it."""
    monkeypatch.setenv("COLUMNS", "80")
    return {words: rmqtx(*words, "--help").out for words in ALL}


def test_each_page_fits_80_columns_and_shows_examples_and_groups(pages: dict[tuple[str, ...], str]) -> None:
    for words, page in pages.items():
        assert [line for line in page.splitlines() if len(line) > 80] == [], words
        if hasattr(ALL[words], "commands"):
            continue
        titles = re.findall(r"^(\S.*):$", page, re.MULTILINE)
        assert titles == ["Examples", *(one for one in ("Arguments", "Options", *GROUPS) if one in titles)], words
        assert titles[-1] == "General"
        examples = page.partition("\nExamples:\n")[2].partition("\n\n")[0]
        assert 2 <= len(re.findall(r"^  rmqtx ", examples, re.MULTILINE)) <= 5, words


def test_each_command_is_one_line_of_the_first_page(rmqtx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = rmqtx("--help").out.splitlines()
    names = [name for section in SECTIONS.values() for name in section]
    for name in names:
        (number,) = (at for at, line in enumerate(lines) if line.startswith(f"  {name} "))
        assert not lines[number + 1].startswith("   "), f"{name}: shorten SHORT"
    assert {line.split()[1] for line in MOST_USED} <= set(names)
    assert {"--version", "--install-completion", "--show-completion"} <= {line.split()[0] for line in lines if line}


def test_each_grouped_option_is_one_of_a_command() -> None:
    names = {one.name for command in ALL.values() for one in command.params} | {"help"}
    assert {name for group in GROUPS.values() for name in group} <= names
    assert {(command.name, one.name) for command in ALL.values() for one in command.params} >= set(_ELSEWHERE)


def test_a_long_example_is_continued_as_a_shell_continues_it() -> None:
    line = "rmqtx plan rollback -n 10.0.0.1:9876 --where 'keys ~ a b' --group shop --reason OPS-4711 -o plan.json"
    lines = wrapped_command(line, 40)
    assert len(lines) > 2
    assert max(map(len, lines)) <= 40
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(line)

"""The live options: the same for every command, files or brokers but not both, and no network by surprise."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.commands.by_name import typer_function
from rmqtx_cli.main import app, status_of
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.sources.live_brokers import name_server_addresses, open_live

ADVICE = "give one"


@dataclass(frozen=True, kw_only=True)
class Doing:
    """Do it."""

    context: typer.Context
    ids: Annotated[list[str], typer.Argument()]
    reason: Annotated[str | None, typer.Option("--reason")] = None
    live: LiveOptions


def test_a_command_gets_its_own_and_the_live_ones() -> None:
    seen: list[Doing] = []
    function = typer_function(Doing, seen.append)
    own = typer.Typer()
    own.command()(function)
    line = ["A", "B", "--reason", "x", "-n", "h:1", "--broker", "b", "--broker", "c:2", "--timeout", "3s", "--tls"]
    own(line, prog_name="do", standalone_mode=False)
    assert (seen[0].ids, seen[0].reason, seen[0].context.info_name) == (["A", "B"], "x", "do")
    assert seen[0].live == LiveOptions("h:1", ["b", "c:2"], timeout=3000, tls=True)
    assert list(inspect.signature(function).parameters)[:4] == ["context", "ids", "reason", "namesrv"]
    assert "live" not in inspect.signature(function).parameters
    assert function.__doc__ == "Do it."


@dataclass(frozen=True)
class Inner:
    deep: Annotated[int, typer.Option("--deep")] = 1


@dataclass(frozen=True)
class Outer:
    needed: Annotated[str, typer.Option("--needed")]
    inner: Inner = field(default_factory=Inner)
    timeout: Annotated[int, typer.Option("--other-timeout")] = 3


@dataclass(frozen=True, kw_only=True)
class Grouped:
    first: Annotated[bool, typer.Option("--first")] = False
    outer: Outer
    timeout: Annotated[int, typer.Option("--timeout")] = 5


def test_groups_stand_where_they_are_asked_for_and_leave_alone_what_a_command_has_itself() -> None:
    seen: list[Grouped] = []
    function = typer_function(Grouped, seen.append)
    assert list(inspect.signature(function).parameters) == ["first", "needed", "deep", "timeout", "log_json"]
    own = typer.Typer()
    own.command()(function)
    own(["--needed", "x", "--deep", "2", "--timeout", "7"], prog_name="do", standalone_mode=False)
    assert seen == [Grouped(first=False, outer=Outer("x", Inner(2)), timeout=7)]


def test_a_store_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "h:1")
    assert LiveOptions().instead_of(["store"], ADVICE) is False
    assert LiveOptions().instead_of([], ADVICE) is True
    assert name_server_addresses(LiveOptions(namesrv="h:2")) == ["h:2"]
    assert name_server_addresses(LiveOptions()) == ["h:1"]
    assert name_server_addresses(LiveOptions(broker=["127.0.0.1:1"])) == []
    assert name_server_addresses(LiveOptions(broker=["name"])) == ["h:1"]


@pytest.mark.parametrize(
    ("live", "option"),
    [
        (LiveOptions(namesrv="h:1"), "--namesrv"), (LiveOptions(broker=["b"]), "--broker"),
        (LiveOptions(tls_ca=Path("x")), "--tls-ca"), (LiveOptions(credentials=Path("x")), "--credentials"),
        (LiveOptions(timeout=5), "--timeout"), (LiveOptions(cluster="c"), "--cluster"),
    ],
)
def test_a_store_and_a_live_option_are_one_too_many(live: LiveOptions, option: str) -> None:
    with pytest.raises(BadRequest, match=f"STORE reads files and {option} reads live brokers - leave one out"):
        live.instead_of(["store"], ADVICE)


def test_neither_is_one_too_few() -> None:
    with pytest.raises(BadRequest, match="no store and no live broker given - give one"):
        LiveOptions().instead_of([], ADVICE)
    with pytest.raises(BadRequest, match="no live broker given"), open_live(LiveOptions()):
        pass


def test_an_exported_variable_makes_no_reading_of_files_use_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    monkeypatch.setattr("socket.create_connection", refuse)
    (tmp_path / "commitlog").mkdir()
    assert status_of(["pending", str(tmp_path)]) in (0, 3, 10)
    assert "the network was used" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["pending"], ["audit"], ["show", "ID"], ["commit", "ID", "--yes"]])
def test_who_cannot_be_reached_is_14_and_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of([*words, "-n", "127.0.0.1:1"]) == 14
    assert capsys.readouterr().err == "rmqtx: cannot connect to 127.0.0.1:1: connection refused\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", "nowhere"], "'nowhere' is not an address - give HOST:PORT, for example 10.0.0.1:9876"),
        (["-n", "h:99999"], "is not an address"),
        (["--broker", "name"], "a name needs a name server: -n HOST:PORT"),
        (["-n", "h:1", "--timeout", "0s"], "--timeout must be more than 0"),
        (["-n", "h:1", "--timeout", "5"], "is not a duration"),
        (["-n", "h:1", "--tls-key", "x"], "--tls-key is given without its certificate"),
    ],
)
def test_wrong_options_are_2_and_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["pending", *words]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1


def test_no_command_takes_a_secret_as_an_argument() -> None:
    names = {
        name
        for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
        for parameter in command.params
        for name in parameter.opts
    }
    assert "--namesrv" in names
    assert not [name for name in names if any(word in name for word in ("secret", "password", "access-key", "token"))]

"""The configuration file: what wins over what, stores by name, and one line for whatever is wrong in it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.exit_status import DONE, UNREACHABLE, UNREADABLE, USAGE
from rmqtx_cli.options.configuration import KEYS, configuration
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.sources.live_brokers import name_server_addresses
from tests.cli.conftest import Run

Write = Callable[[str], Path]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a configuration file where it is looked for."""
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))

    def write(text: str) -> Path:
        file = home / "rmqtx" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    return write


def stores_of(text: str) -> set[str]:
    return {json.loads(line)["store"] for line in text.splitlines()}


def test_a_store_has_a_name_wherever_a_store_is_named(
    rmqtx: Run, config: Write, common: Path, fifteen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(f'[stores]\ncommon = "{common}"\nlast = "{os.path.relpath(fifteen, tmp_path / "home" / "rmqtx")}"\n')
    monkeypatch.chdir(tmp_path)
    options = ("--format", "jsonl", "--quiet")
    for words in (("pending", "common"), ("audit", "--store", "common"), ("decode", "half", "common")):
        result = rmqtx(*words, *options)
        assert (result.status, stores_of(result.out)) == (DONE, {str(common)}), result.err
    assert stores_of(rmqtx("audit", "last", "common", *options).out) == {str(common), str(fifteen)}
    by_path = rmqtx("show", "K-3733-pending.0", "--store", common)
    assert rmqtx("show", "K-3733-pending.0", "--store", "common").out.splitlines()[:2] == by_path.out.splitlines()[:2]
    differing = ("--format", "csv", "--fields", "transaction_id")
    assert rmqtx("diff", "common", "last", *differing).out == rmqtx("diff", common, fifteen, *differing).out
    acting = ("--to", tmp_path / "new", "--dry-run", "--broker-version", "5.3.3")
    assert rmqtx("commit", "K-3733-pending.0", "--store", "common", *acting).status == DONE
    monkeypatch.setenv("RMQTX_STORE", "common")
    assert stores_of(rmqtx("pending", *options).out) == {str(common)}


def test_a_path_that_exists_wins_over_a_name(
    rmqtx: Run, config: Write, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(f'[stores]\nbroker = "{common}"\n')
    monkeypatch.chdir(tmp_path)
    assert rmqtx("pending", "broker", "--quiet").status == DONE
    (tmp_path / "broker").mkdir()
    assert rmqtx("pending", "broker", "--quiet").status == UNREADABLE


def test_a_name_that_is_almost_right(rmqtx: Run, config: Write, common: Path) -> None:
    file = config(f'[stores]\nproduction = "{common}"\n')
    result = rmqtx("pending", "prodution")
    assert result.status == USAGE
    assert result.err == (
        f"rmqtx: prodution is not a path, and not the name of a store in {file} - did you mean production?\n"
    )
    assert rmqtx("pending", "elsewhere").status == UNREADABLE


def test_stores_alone_lists_those_that_have_names(rmqtx: Run, config: Write, common: Path, fifteen: Path) -> None:
    config(f'store = "one"\n[stores]\none = "{common}"\ntwo = "{fifteen}"\n')
    result = rmqtx("stores", "--format", "jsonl")
    assert stores_of(result.out) == {str(common), str(fifteen)}
    assert f"rmqtx: two: {fifteen}\n" in result.err
    config("")
    nothing = rmqtx("stores")
    assert nothing.status == USAGE
    assert "no store given" in nothing.err


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    rmqtx: Run, config: Write, common: Path, fifteen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(f'store = "{common}"\nformat = "jsonl"\n[formats]\ndecode = "json"\n')
    assert stores_of(rmqtx("audit", "--quiet").out) == {str(common)}
    monkeypatch.setenv("RMQTX_STORE", str(fifteen))
    assert stores_of(rmqtx("audit", "--quiet").out) == {str(fifteen)}
    assert stores_of(rmqtx("audit", common, "--quiet").out) == {str(common)}
    assert json.loads(rmqtx("decode", "half", "--quiet").out)[0]["store"] == str(fifteen)
    assert rmqtx("audit", "--quiet", "--format", "csv").out.startswith("store,transaction_id,")
    assert rmqtx("audit", "--quiet", "-o", tmp_path / "rows.csv").status == DONE
    assert (tmp_path / "rows.csv").read_text("utf-8").startswith("store,")
    named = tmp_path / "named.toml"
    named.write_text(f'store = "{common}"\n', "utf-8")
    monkeypatch.delenv("RMQTX_STORE")
    monkeypatch.setenv("RMQTX_CONFIG", str(named))
    assert rmqtx("audit", "--quiet").out.startswith("transaction_id "), "its format is the other file's"


def test_an_error_names_where_the_store_came_from(
    rmqtx: Run, config: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = config(f'store = "{tmp_path / "nothing"}"\n')
    assert rmqtx("pending").err == f"rmqtx: {tmp_path / 'nothing'} does not exist (from {file})\n"
    monkeypatch.setenv("RMQTX_STORE", "nowhere")
    for words in (("pending",), ("audit",), ("show", "x"), ("decode", "half")):
        result = rmqtx(*words)
        assert (result.status, result.err) == (UNREADABLE, "rmqtx: nowhere does not exist (from $RMQTX_STORE)\n"), words
    assert rmqtx("pending", "elsewhere").err == "rmqtx: elsewhere does not exist\n"


def test_an_output_that_cannot_be_written_does_not_name_the_origin_of_the_store(
    rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMQTX_STORE", str(common))
    output = tmp_path / "missing" / "rows.json"
    result = rmqtx("pending", "-o", output)
    assert result.status == UNREADABLE
    assert result.err.endswith(f"rmqtx: cannot write {output}: No such file or directory\n")


def test_name_servers_come_from_the_file_last(
    rmqtx: Run, config: Write, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config('namesrv = "127.0.0.1:1"\n')
    assert name_server_addresses(LiveOptions()) == ["127.0.0.1:1"]
    assert rmqtx("pending").status == UNREACHABLE
    assert rmqtx("pending", common, "--quiet").status == DONE
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:2")
    assert name_server_addresses(LiveOptions()) == ["127.0.0.1:2"]
    assert name_server_addresses(LiveOptions(namesrv="127.0.0.1:3")) == ["127.0.0.1:3"]
    config(f'store = "{common}"\n')
    assert rmqtx("pending").status == UNREACHABLE, "NAMESRV_ADDR means live brokers, whatever the file says"


def test_verbose_says_which_file_was_read(rmqtx: Run, config: Write, common: Path) -> None:
    assert "configuration" not in rmqtx("pending", common, "--verbose").err
    file = config("")
    assert rmqtx("pending", common, "--verbose").err.startswith(f"rmqtx: configuration: {file}\n")
    assert "configuration" not in rmqtx("pending", common).err


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("# ours\nstor = 'x'\n", 2, "unknown key 'stor' - did you mean store"),
        ("namesrv = 3\n", 1, "namesrv is a number, expected a text"),
        ("store = ''\n", 1, "store is empty"),
        ("stores = 'x'\n", 1, "stores is a text, expected a table"),
        ("[stores]\na = '/x'\nb = ['/y']\n", 3, "b is a list, expected a text"),
        ("format = 'parquet'\n", 1, "format = 'parquet' is not a format of rows"),
        ("[formats]\naudit = 'jsonn'\n", 2, "did you mean json"),
        ("[formats]\naudi = 'json'\n", 2, "unknown command 'audi' - did you mean audit"),
        ("[stores]\na = 1 2\n", 2, "not TOML"),
        ("\n[stores\n", 2, "not TOML"),
        ("namesrv = 'h:1'\naccessKey = 'hunter2'\n", 2, "and secrets are not allowed here"),
        ("[credentials]\nname = 'hunter2'\n", 1, "credentials looks like a secret"),
        ("[stores]\ns = 's3://me:hunter2@bucket/x'\n", 2, "s looks like a secret"),
        ("stores = { a = '/x', secret_key = 'hunter2' }\n", 1, "secret_key looks like a secret"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(text: str, line: int, told: str, rmqtx: Run, config: Write) -> None:
    file = config(text)
    result = rmqtx("pending")
    assert result.status == USAGE
    assert result.err.startswith(f"rmqtx: {file}:{line}: ")
    assert told in result.err
    assert result.err.count("\n") == 1
    assert "hunter2" not in result.err
    assert rmqtx("explain", "LOST").status == rmqtx("pending", "--help").status == DONE


def test_a_file_that_is_named_must_be_there(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQTX_CONFIG", str(tmp_path / "none.toml"))
    result = rmqtx("pending", tmp_path)
    assert (result.status, "RMQTX_CONFIG names" in result.err) == (USAGE, True)
    (tmp_path / "none.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in rmqtx("pending", tmp_path).err
    monkeypatch.setenv("RMQTX_CONFIG", "")
    assert configuration().file is None


def test_the_page_names_every_key() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text("utf-8")
    assert all(f"`{key}`" in page for key in KEYS)


def test_a_home_directory_that_is_hidden_or_unknown_has_no_file(
    config: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    config('store = "/elsewhere"')
    assert configuration().store == "/elsewhere"

    def refuse(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")  # as is_file raises it below a directory without x

    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_file", refuse)
        assert configuration().store is None

    def unknown(_uid: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert configuration().store is None

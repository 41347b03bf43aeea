"""Stores that come from elsewhere: pipes, names that a terminal obeys, text that leads out, queries as values."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.forge.logs import Forge
from tests.forge.stores import copy_of

COMMANDS = (["audit"], ["verify"], ["pending"], ["check"], ["stores"])


@pytest.mark.parametrize(
    "name", ["lock", "checkpoint", "abort", "config/consumerOffset.json", ".rmqtx-begun", "index/20260101000000000"]
)
def test_a_pipe_is_not_waited_for(common: Path, tmp_path: Path, name: str) -> None:
    """`lock` made every command wait for ever."""
    store = Path(shutil.copytree(common, tmp_path / "store"))
    (store / name).unlink(missing_ok=True)
    os.mkfifo(store / name)
    for words in COMMANDS if name == "lock" else COMMANDS[:1]:
        run = subprocess.run(
            [*WARM, *words, str(store)], capture_output=True, timeout=120, check=False,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        )
        assert run.returncode not in (70, -9), run.stderr


def test_an_act_does_not_wait_for_a_pipe(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    name = json.loads(rmqtx("pending", common, "--format", "json").out)[0]["transaction_id"]
    for place in ("lock", ".rmqtx-begun"):
        store = Path(shutil.copytree(common, tmp_path / place))
        (store / place).unlink(missing_ok=True)
        os.mkfifo(store / place)
        options = ("--broker-version", "5.3.3", "--yes", "--reason", "x")
        result = rmqtx("rollback", name, "--store", store, "--in-place", "--undo", tmp_path / f"u{place}", *options)
        assert result.status in (0, 10, 12), result.err


@pytest.mark.parametrize(
    "place", ["config/consumerOffset.json", "checkpoint", "config/topics.json", "index"]
)
def test_a_link_to_itself_is_named_with_what_to_do(rmqtx: Run, common: Path, tmp_path: Path, place: str) -> None:
    """The directory of the link was named, and no next step."""
    store = Path(shutil.copytree(common, tmp_path / "store"))
    name = json.loads(rmqtx("pending", common, "--format", "json").out)[0]["transaction_id"]
    link = store / place
    shutil.rmtree(link) if link.is_dir() else link.unlink()
    link.symlink_to(link.name)
    for words in (("bundle", store, "--transaction", name), ("salvage", store), ("rebuild", "all", store)):
        result = rmqtx(*words, "--to", tmp_path / "new")
        assert result.status == 10, words
        last = result.err.splitlines()[-1]
        assert last.startswith(f"rmqtx: cannot read {link}: Too many levels of symbolic links - "), words
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", ["config", "commitlog", "consumequeue", "index"])
def test_a_directory_that_is_a_link_to_itself_is_not_missing(
    rmqtx: Run, common: Path, tmp_path: Path, place: str
) -> None:
    """It was `rmqtx: Too many levels of symbolic links: PLACE`, or the directory counted as missing, with status 0."""
    store = Path(shutil.copytree(common, tmp_path / "store"))
    shutil.rmtree(store / place)
    (store / place).symlink_to(place)
    for words in (*COMMANDS[:3], ["stores"], ["decode", "consumequeue"], ["decode", "index"], ["search", "--key", "x"]):
        result = rmqtx(*words, store)
        assert result.status == 10, words
        said = f"rmqtx: cannot read {store / place}: Too many levels of symbolic links - "
        assert result.err.startswith(said) or words == ["stores"], words


def _link_to_itself(place: Path) -> None:
    place.symlink_to(place.name)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _link_to_itself])
@pytest.mark.parametrize("name", ["common-5.3.3", "killed-4.4.0"])
def test_a_checkpoint_in_place_of_which_is_something_else(
    rmqtx: Run, tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    """Each command ended with 0, and the store had stopped cleanly; its broker exits at the start."""
    root = copy_of(name, tmp_path)
    checkpoint = root / "checkpoint"
    checkpoint.unlink()
    make(checkpoint)
    version = ("--broker-version", name.rpartition("-")[2])
    found = rmqtx("verify", root, *version, "--format", "csv", "--fields", "severity,code,file").out
    assert f"error,start-refused,{checkpoint}" in found
    assert f"error,unreadable-file,{checkpoint}" in found
    for words in (("pending",), ("audit",), ("simulate",)):
        assert rmqtx(*words, root, *version).status == 3, words
    assert rmqtx("decode", "checkpoint", root).status == 3


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _link_to_itself])
@pytest.mark.parametrize(
    ("name", "version", "refused"), [("common-5.3.3", "5.3.3", True), ("common-4.9.7", "4.9.7", False)]
)
def test_an_index_file_in_place_of_which_is_something_else(
    rmqtx: Run, tmp_path: Path, name: str, version: str, make: Callable[[Path], object], *, refused: bool
) -> None:
    """It counted as missing: `verify` and `decode index` ended with 0. From 5.1.0 on a broker exits at its start."""
    root = copy_of(name, tmp_path)
    (file,) = (root / "index").iterdir()
    file.unlink()
    make(file)
    found = rmqtx("verify", root, "--broker-version", version, "--format", "csv", "--fields", "severity,code,file")
    assert (found.status, f"error,unreadable-file,{file}" in found.out) == (1, True)
    assert (f"error,start-refused,{file}" in found.out) == refused
    decoded = rmqtx("decode", "index", root)
    assert (decoded.status, f"unreadable-file: {file}" in decoded.err) == (3, True)
    for words in (("pending",), ("audit",), ("simulate",)):
        assert rmqtx(*words, root, "--broker-version", version).status == (3 if refused else 0), words


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _link_to_itself, lambda place: place.symlink_to("nowhere")])
def test_a_queue_file_in_place_of_which_is_something_else(
    rmqtx: Run, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    """A directory counted as missing, with status 0; a link was a file that does not belong there."""
    root = copy_of("common-5.3.3", tmp_path)
    file = root / "consumequeue" / "orders" / "0" / "00000000000000000000"
    file.unlink()
    make(file)
    decoded = rmqtx("decode", "consumequeue", root)
    assert (decoded.status, f"unreadable-file: {file}" in decoded.err) == (3, True)
    assert rmqtx("verify", root).status == 1


def test_nothing_that_a_terminal_obeys_comes_through(rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "st\x1b[31more")
    forge.half("id\x1b]0;title\x07", topic="or\x1b[2Jders\u202e\x9b")
    store = forge.write()
    name = "id\x1b]0;title\x07"
    lines: list[list[object]] = [
        [*words, store, "--format", form] for words in COMMANDS if words != ["check"] for form in ("table", "csv")
    ]
    lines += [["check", store], ["show", name, "--store", store]]
    lines += [["export", "records", store, "--to", tmp_path / "out"]]
    for line in lines:
        result = rmqtx(*line)
        assert result.status != 70
        assert not {"\x1b", "\x07", "\x9b"} & set(result.out + result.err), line


def test_a_topic_leads_to_no_other_directory(rmqtx: Run, tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    for number, topic in enumerate(("../../x", "/etc", "..", "a/../../b", "%2e%2e%2f")):
        forge.half(f"id{number}", topic=topic)
    store = forge.write()
    for table in ("transactions", "records"):
        target = tmp_path / "out" / table
        target.parent.mkdir(exist_ok=True)
        assert rmqtx("export", table, store, "--to", target).status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["records", "transactions"]


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('id')", "state = 'x'; DROP TABLE t", "(" * 5000, "state" + " or state" * 3000, "1e999",
     "state ~ '(a+)+$'", "state = '\ud800'", "not " * 5000 + "state = 'x'", "checks_count > 9" + "9" * 5000],
)
def test_conditions_and_columns_run_nothing(rmqtx: Run, common: Path, text: str) -> None:
    for option in ("--where", "--fields", "--fail-on"):
        result = rmqtx("pending", common, option, text)
        assert result.status in (0, 1, 2), result.err[:500]
        assert result.err.count("\n") == 1 or result.status != 2


def test_names_of_tables_and_columns_are_quoted(rmqtx: Run, tmp_path: Path) -> None:
    from tests.brokers.corpus import unpack

    store = unpack("prepared-4.2.0", tmp_path / "s")
    file = tmp_path / "t.db"
    hostile = 'x"; DROP TABLE kept; --'
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE kept(a)")
        connection.execute("CREATE TABLE t_transaction(offset NUMERIC, producerGroup TEXT)")
        quoted = hostile.replace('"', '""')
        connection.execute(f'CREATE TABLE "{quoted}" ("{quoted}" NUMERIC, "group" TEXT)')
        connection.commit()
    for more in (["--table", hostile], ["--table", hostile, "--offset-column", hostile, "--group-column", "group"],
                 ["--offset-column", hostile], ["--table", "kept' OR '1'='1"]):
        result = rmqtx("verify", store, "--transaction-table", f"sqlite:///{file}", *more)
        assert result.status in (0, 1, 2, 3, 10), result.err
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'kept'").fetchone() == (1,)


def test_a_password_is_not_repeated(rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "hunter2secret"
    monkeypatch.setenv("RMQTX_LEDGER_USER", "someone")
    monkeypatch.setenv("RMQTX_LEDGER_PASSWORD", secret)
    match = ("--match", "transaction_id=id", "--done", "a = 1", "--not-done", "a = 0")
    for location in (
        f"mysql+pymysql://u:{secret}@127.0.0.1:9/db", f"jdbc:mysql://127.0.0.1:9/db?password={secret}",
        "mysql+pymysql://127.0.0.1:9/db", f"s3://key:{secret}@bucket/x", f"sqlite:///x?password={secret}",
    ):
        lines: list[list[object]] = [
            ["reconcile", common, "--ledger", location, "--ledger-table", "t", *match],
            ["pending", common, "--transaction-table", location],
        ]
        if not location.startswith("jdbc:"):
            lines.append(["audit", location])
        for words in lines:
            result = rmqtx(*words)
            assert result.status not in (0, 70), (words, result.err)
            assert secret not in result.out + result.err, words
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")]

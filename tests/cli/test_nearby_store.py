"""A store that nobody named: where it is looked for, and that a job without a terminal never gets one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtx_cli.options import nearby_store
from rmqtx_cli.options.configuration import OwnStore, own_store
from tests.cli.conftest import Run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A terminal, a home directory without a store, and no broker that runs."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("RMQTX_STORE", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(nearby_store, "is_typed", lambda: True)
    monkeypatch.setattr(nearby_store, "_of_running_brokers", lambda: iter(()))
    monkeypatch.chdir(home)
    return home


def _store(root: Path) -> Path:
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / ("0" * 20)).write_bytes(b"")
    return root


@pytest.mark.parametrize("below", ["", "commitlog"])
def test_the_directory_and_the_one_above(
    typed: Path, tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(typed / "store")
    here = _store(tmp_path / "here")
    monkeypatch.chdir(here / below)
    assert own_store() == OwnStore(str(here), None)


def test_the_store_of_a_broker_without_configuration(typed: Path) -> None:
    assert own_store() is None
    _store(typed / "store")
    assert own_store() == OwnStore(str(typed / "store"), None)


def test_a_running_broker_comes_before_the_home_directory(
    typed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _store(typed / "store")
    root = _store(tmp_path / "data")
    conf = f"brokerName=a\nstorePathRootDir = {root}\n"
    monkeypatch.setattr(nearby_store, "_of_running_brokers", lambda: nearby_store._roots(conf))
    assert own_store() == OwnStore(str(root), None)


def test_a_directory_without_a_log_is_none(typed: Path) -> None:
    (typed / "commitlog").mkdir()
    assert own_store() is None


def test_what_is_set_takes_precedence(typed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _store(typed)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    assert own_store() is None
    monkeypatch.setenv("RMQTX_STORE", "elsewhere")
    assert own_store() == OwnStore("elsewhere", "$RMQTX_STORE")


@pytest.mark.usefixtures("typed")
def test_a_job_gets_no_store(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_store, "is_typed", lambda: False)
    monkeypatch.chdir(_store(tmp_path / "here"))
    done = rmqtx("pending")
    assert done.status == 2
    assert "no store and no live broker given" in done.err


@pytest.mark.usefixtures("typed")
def test_the_line_names_the_store(rmqtx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = _store(tmp_path / "here")
    monkeypatch.chdir(here)
    assert f"{here}: this store was found, as none was given" in rmqtx("verify").err
    assert rmqtx("commit", "ID", "--reason", "x").status == 2, "an act names its store"

"""`rmqtx check` over what its last run remembers: transactions and ends that are gone, at no great cost."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.index.index_search import Index
from rmqtx.readers.model.errors import UnreadableFile
from rmqtx.verdicts.audit import local_audit
from rmqtx_cli.monitoring.judge import CRITICAL, OK, UNKNOWN
from tests.cli.conftest import Run
from tests.forge.damage import log_files, zero_bytes
from tests.forge.stores import copy_of

NAME = "common-4.9.7"
AGES = ("--warning", "9000d", "--critical", "9999d")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_of(NAME, tmp_path / "brokers")


@pytest.fixture
def check(rmqtx: Run, root: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a check whose thresholds no age passes; gives its JSON."""

    def run(*words: str) -> dict[str, Any]:
        result = rmqtx("check", root, "--state-dir", tmp_path / "state", "--format", "json", *AGES, *words)
        outcome: dict[str, Any] = json.loads(result.out)
        assert outcome["exit_status"] == result.status
        return outcome

    return run


def left_by(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    [file] = (tmp_path / "state").glob("check-*.json")
    return file, json.loads(file.read_text())


def change_memory(tmp_path: Path, **values: Any) -> None:
    file, left = left_by(tmp_path)
    file.write_text(json.dumps(left | values | {"taken_time_ms": left["taken_time_ms"] - 1_000}))


def place(root: object, offset: int) -> dict[str, Any]:
    return {"store": str(root), "commit_log_offset": offset}


def reasons(outcome: dict[str, Any]) -> str:
    return "; ".join(reason["reason"] for reason in outcome["reasons"])


def test_an_unmounted_commit_log_stays_critical(check: Callable[..., dict[str, Any]], root: Path) -> None:
    assert check()["exit_status"] == OK
    for file in log_files(root):
        file.unlink()
    first = check()
    assert first["exit_status"] == CRITICAL
    assert len(first["newly_vanished"]) == 16
    assert "the log files ended at byte 262144 and end at 0 now" in reasons(first)
    again = check()
    assert again["exit_status"] == CRITICAL
    assert again["newly_vanished"] == []


def test_nothing_but_the_memory_knows_what_was_there(check: Callable[..., dict[str, Any]], root: Path) -> None:
    check()
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()
    (root / "commitlog").mkdir()
    for _ in range(2):
        outcome = check()
        assert outcome["exit_status"] == CRITICAL
        assert "the half queue ended at 279 and ends at 0 now" in reasons(outcome)


def test_a_store_that_grows_past_its_old_end_is_well_again(
    check: Callable[..., dict[str, Any]], tmp_path: Path, root: Path
) -> None:
    check()
    _, left = left_by(tmp_path)
    for numbers in left["stores"].values():
        numbers["half_max_offset"] += 1  # of a broker that lost its last half in a crash
    change_memory(tmp_path, stores=left["stores"])
    assert "ends at 279 now" in reasons(check())
    assert "ends at 279 now" in reasons(check())
    _, left = left_by(tmp_path)
    left["stores"][str(root)]["half_max_offset"] = 279  # and has written one more since
    change_memory(tmp_path, stores=left["stores"])
    assert check()["exit_status"] == OK


def test_what_expired_is_not_gone(check: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    check()
    _, left = left_by(tmp_path)
    left["stores"] = {name: numbers | {"half_max_offset": 9_999, "half_last_commit_log_offset": -1}
                      for name, numbers in left["stores"].items()}
    change_memory(tmp_path, stores=left["stores"], hanging=["GONE"],
                  places={"GONE": place(next(iter(left["stores"])), -1)})
    outcome = check()
    assert (outcome["exit_status"], outcome["newly_vanished"]) == (OK, [])


@pytest.mark.parametrize("with_places", [True, False])
def test_many_that_are_gone_cost_one_look_up(
    check: Callable[..., dict[str, Any]], tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch,
    with_places: bool,
) -> None:
    """A scan for each, up to 64, and a memory that was not rewritten, kept the check from ever answering again."""
    check()
    if with_places:
        file = log_files(root)[0]
        zero_bytes(file, 0, file.stat().st_size)
    names = [f"{number:032X}" for number in range(900)]
    places = {name: place(root, 200 * number) for number, name in enumerate(names)} if with_places else {}
    change_memory(tmp_path, hanging=names, places=places)
    scans, look_ups = counted(monkeypatch, local_audit.audit, local_audit, "audit"), counted_finds(monkeypatch)
    outcome = check()
    assert outcome["exit_status"] == CRITICAL
    assert len(outcome["newly_vanished"]) == 900
    assert len(scans) <= 2  # the one for what is pending, and one for all that is gone
    assert sum(len(keys) > 2 for keys in look_ups) <= 2  # of all that is gone, and of copies that redeliver sent of it
    assert len(look_ups) < 10
    assert not set(left_by(tmp_path)[1]["hanging"]) & set(names)
    scans.clear()
    check()
    assert len(scans) <= 1


def counted(
    monkeypatch: pytest.MonkeyPatch, really: Callable[..., Any], where: Any, name: str
) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def call(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        return really(*arguments, **more)

    monkeypatch.setattr(where, name, call)
    return calls


def counted_finds(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    keys: list[list[bytes]] = []
    really = Index.find

    def find(self: Index, wanted: list[bytes], *more: Any) -> Any:
        keys.append(wanted)
        return really(self, wanted, *more)

    monkeypatch.setattr(Index, "find", find)
    return keys


def time_out(*_: object) -> None:
    signal.raise_signal(signal.SIGALRM)


def fail(*_: object) -> None:
    raise UnreadableFile("cannot read some file", file="some file")


@pytest.mark.parametrize(("failure", "why"), [(time_out, "no answer within 60s"), (fail, "cannot read some file")])
def test_a_look_up_that_fails_is_unknown_once(
    check: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    failure: Callable[..., None], why: str,
) -> None:
    check()
    change_memory(tmp_path, hanging=["GONE"], places={})
    monkeypatch.setattr("rmqtx_cli.sources.files.lookup", failure)
    outcome = check()
    assert outcome["exit_status"] == UNKNOWN
    assert why in reasons(outcome)
    assert outcome["pending_count"] == 16
    assert "GONE" not in left_by(tmp_path)[1]["hanging"]
    assert check()["exit_status"] == OK


@pytest.mark.parametrize("places", [{"GONE": 7}, {"GONE": ["/s"]}, {"GONE": {"store": 1}}, [], "places"])
def test_a_memory_with_strange_places_is_no_memory(
    check: Callable[..., dict[str, Any]], tmp_path: Path, places: object
) -> None:
    check()
    change_memory(tmp_path, hanging=["GONE"], places=places)
    outcome = check()
    assert (outcome["exit_status"], outcome["newly_vanished"]) == (OK, [])

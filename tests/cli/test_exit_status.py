"""One register of exit statuses, and the split between stdout and stderr."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqtx.readers.model import exit_status
from rmqtx.repairs.receipts.act_words import ActOutcome
from rmqtx_cli import main
from rmqtx_cli.acting.confirmed_acts import status_of_answers
from tests.cli.conftest import Run
from tests.forge.stores import copy_of


def test_numbers_are_an_interface() -> None:
    assert (exit_status.DONE, exit_status.FINDINGS, exit_status.USAGE, exit_status.INCOMPLETE) == (0, 1, 2, 3)
    assert (exit_status.UNREADABLE, exit_status.NO_SUCH_TRANSACTION) == (10, 16)
    assert (exit_status.BUG, exit_status.INTERRUPTED) == (70, 130)
    assert all(exit_status.MEANINGS[number] for number in exit_status.MEANINGS)


@pytest.mark.parametrize("verb", ["pending", "audit", "stores", "decode commitlog", "decode half", "decode cursors"])
def test_what_is_no_store_is_10_and_one_line(rmqtx: Run, tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "missing", tmp_path / "file", tmp_path / "empty"):
        result = rmqtx(*verb.split(), path)
        assert (result.status, result.out) == (10, ""), path
        assert result.err.count("\n") == 1
        assert result.err.startswith("rmqtx: ")
        assert str(path) in result.err


def test_the_commit_log_itself_is_named_as_no_store(rmqtx: Run, common: Path) -> None:
    result = rmqtx("pending", common / "commitlog")
    assert result.status == 10
    assert str(common) in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["pendin"],
        ["pending"],
        ["pending", "STORE", "--nonsense"],
        ["pending", "STORE", "--format", "xml"],
        ["pending", "STORE", "--older-than", "10"],
        ["pending", "STORE", "--at", "2026-13-02"],
        ["pending", "STORE", "--where", "topik = orders"],
        ["pending", "STORE", "--where", "topic = "],
        ["pending", "STORE", "--where", "keys ~ ("],
        ["pending", "STORE", "--fields", "nonsense"],
        ["audit", "STORE", "--summary", "--findings"],
        ["decode", "commitlog", "STORE", "--from", "last week"],
        ["decode", "nonsense", "STORE"],
        ["decode", "commitlog", "STORE", "--coverage", "--limit", "1"],
        ["explain", "nonsense"],
        ["show", "ID"],
    ],
)
def test_usage_is_2_and_one_line(rmqtx: Run, common: Path, arguments: list[str]) -> None:
    result = rmqtx(*(str(common) if word == "STORE" else word for word in arguments))
    assert (result.status, result.out) == (2, ""), arguments
    lines = [line for line in result.err.splitlines() if not line.startswith(f"rmqtx: {common}: stopped")]
    assert len(lines) == 1


def test_no_such_transaction_is_16(rmqtx: Run, common: Path) -> None:
    result = rmqtx("show", "NO-SUCH-KEY", "--store", common)
    assert (result.status, result.out) == (16, "")


def test_missing_evidence_is_3_and_rows_still_come(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(common, store)
    log = next((store / "commitlog").iterdir())
    with log.open("r+b") as file:
        file.seek(60_000)
        file.write(b"\xff" * 100)
    result = rmqtx("audit", store, "--format", "jsonl")
    assert result.status == 3
    assert len(result.out.splitlines()) > 50
    assert "record-damaged" in result.err
    listed = rmqtx("audit", store, "--findings", "--format", "jsonl")
    assert '"code":"record-damaged"' in listed.out


def test_fail_on_is_1(rmqtx: Run, common: Path) -> None:
    assert rmqtx("pending", common, "--fail-on", "state = PENDING").status == 1
    assert rmqtx("pending", common, "--fail-on", "checks_count > 1000").status == 0


def test_a_bug_is_70_with_one_line(rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr("rmqtx_cli.sources.files.pending", fail)
    result = rmqtx("pending", common, "--quiet")
    assert result.status == 70
    assert result.err.count("\n") == 1
    assert "ZeroDivisionError: seven" in result.err
    assert "RMQTX_DEBUG=1" in result.err
    monkeypatch.setenv("RMQTX_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.status_of(["pending", str(common)])


def test_ctrl_c_is_130(rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rmqtx_cli.sources.files.pending", interrupt)
    assert rmqtx("pending", common).status == 130


def test_ctrl_c_while_a_module_makes_its_classes_is_no_bug(
    rmqtx: Run, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 raises a RuntimeError for it; modules of a command load after it began."""

    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def load(*_: object, **__: object) -> None:
        type("Loaded", (), {"field": Interrupted()})

    monkeypatch.setattr("rmqtx_cli.sources.files.pending", load)
    result = rmqtx("pending", common, "--quiet")
    assert (result.status, result.err) == (130, "rmqtx: interrupted\n")


def test_results_are_on_stdout_and_everything_else_on_stderr(rmqtx: Run, common: Path) -> None:
    loud = rmqtx("pending", common, "--format", "jsonl", "--verbose")
    quiet = rmqtx("pending", common, "--format", "jsonl", "--quiet")
    assert loud.out == quiet.out
    assert all(line.startswith("{") for line in loud.out.splitlines())
    assert loud.err
    assert quiet.err == ""


def test_an_output_file_appears_whole_or_not_at_all(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    target.write_text("before")
    assert rmqtx("audit", common, "--where", "keys = NONSENSE", "-o", target).status == 0
    assert target.read_text() == ""
    target.write_text("before")
    assert rmqtx("audit", tmp_path / "missing", "-o", target).status == 10
    assert target.read_text() == "before"
    assert rmqtx("audit", common, "-o", tmp_path / "no" / "such" / "rows.jsonl").status == 10
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("verb", [["pending"], ["audit"], ["stores"], ["decode", "half"]])
def test_nothing_is_written_into_a_store(rmqtx: Run, common: Path, verb: list[str]) -> None:
    result = rmqtx(*verb, common, "-o", common / "commitlog" / "rows.csv")
    assert result.status == 2
    assert "inside the store" in result.err
    assert not (common / "commitlog" / "rows.csv").exists()


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ((), exit_status.DONE),
        ((ActOutcome.PROVED,), exit_status.DONE),
        ((ActOutcome.REFUSED_BY_GUARD,), exit_status.SOME_REFUSED),
        ((ActOutcome.PROVED, ActOutcome.NOT_SENT), exit_status.SOME_REFUSED),
        ((ActOutcome.PROVED, ActOutcome.REFUSED_BY_BROKER, ActOutcome.UNKNOWN), exit_status.UNKNOWN_OUTCOME),
        ((ActOutcome.PROVED, ActOutcome.CONTRADICTED), exit_status.UNKNOWN_OUTCOME),  # a second COMMIT record
        ((ActOutcome.PROVED, ActOutcome.ACCEPTED), exit_status.UNKNOWN_OUTCOME),  # its effect was not seen
    ],
)
def test_answers_end_as_other_acts_do(outcomes: tuple[ActOutcome, ...], status: int) -> None:
    assert status_of_answers(outcomes, is_late=False) == status
    assert status_of_answers(outcomes, is_late=True) == (status or exit_status.SOME_REFUSED)


def test_a_plan_is_stale_if_nothing_of_it_was_done() -> None:
    done, refused, stale = exit_status.DONE, exit_status.REFUSED_BY_GUARD, exit_status.STALE_PLAN
    assert exit_status.combined([]) == exit_status.combined([done, done]) == done
    assert exit_status.combined([refused, stale]) == exit_status.combined([stale]) == stale
    assert exit_status.combined([done, stale]) == exit_status.combined([done, refused]) == exit_status.SOME_REFUSED
    assert exit_status.combined([done, stale, exit_status.UNKNOWN_OUTCOME]) == exit_status.UNKNOWN_OUTCOME


@pytest.mark.parametrize(("name", "status"), [("common-5.3.3", exit_status.INCOMPLETE), ("empty-4.3.0", 0)])
def test_cursors_without_their_file_are_unknown_if_the_broker_got_a_message(
    rmqtx: Run, tmp_path: Path, name: str, status: int
) -> None:
    """It was 0, with the warning that the cursors are unknown."""
    root = copy_of(name, tmp_path)
    shutil.rmtree(root / "config")
    result = rmqtx("decode", "cursors", root)
    assert (result.status, result.out) == (status, "")
    assert "config-missing" in result.err

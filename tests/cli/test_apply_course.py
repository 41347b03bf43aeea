"""`apply` on its way: progress on a terminal, an interruption, and how far `receipts --plan` says that it is."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.exit_status import DONE, INTERRUPTED, SOME_REFUSED, USAGE
from rmqtx.repairs.acts import wait_for_effect
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.plans.draft_plan import drafted, plan_of
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import read_plan
from rmqtx.repairs.receipts.receipts import Receipt, whoever
from rmqtx_cli.commands.settling import apply
from rmqtx_cli.words.say import Voice
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import on_terminal
from tests.cli.test_progress import screen
from tests.repairs.forge import STORE, FakeMedium, final, mark, place, row, situation
from tests.repairs.test_steps import live_store

COUNT = 12


def facts(number: int, **more: Any) -> dict[str, Any]:
    return row(transaction_id=f"T{number}", half_copies=[place(number, 100 * number, checks_count=None)], **more)


@dataclass
class Acted:
    """What `acted_on` opens: a broker in this process."""

    medium: FakeMedium
    warning: str = "a test"

    @property
    def roots(self) -> list[str]:
        return [STORE]

    def earlier(self, receipts: list[Receipt]) -> list[Receipt]:
        return receipts

    def say_result(self, voice: Voice) -> None:
        pass


def decided(medium: FakeMedium, word: str, queue_offset: int) -> None:
    one = medium.rows[f"T{queue_offset}"]
    one["op_marks"] = [*one["op_marks"], mark(queue_offset, len(one["op_marks"]))]
    one["final_records"] = [*one["final_records"], final(len(one["final_records"]))] if word == "commit" else []
    one["state"] = "COMMITTED" if one["final_records"] else "ROLLED_BACK"


@pytest.fixture
def medium(monkeypatch: pytest.MonkeyPatch) -> FakeMedium:
    """A broker with transactions T0 to T11, on which `apply` acts."""
    made = FakeMedium({f"T{number}": facts(number) for number in range(COUNT)}, on_act=decided)

    @contextmanager
    def opened(*_: object) -> Iterator[Acted]:
        yield Acted(made)

    monkeypatch.setattr(apply, "acted_on", opened)
    monkeypatch.setattr(wait_for_effect, "_PAUSES_SECONDS", (0.001,))
    return made


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of T0 to T11."""
    situations = [situation(facts(number)) for number in range(COUNT)]
    file = tmp_path / "plan.json"
    file.write_text(plan_of(drafted(situations, ActRequest(ActKind.COMMIT), "why", "me"), [live_store()], {}, 1).text())
    return file


def acts_at(number: int, then: Callable[[], object]) -> Callable[[FakeMedium, str, int], None]:
    def act(medium: FakeMedium, word: str, queue_offset: int) -> None:
        decided(medium, word, queue_offset)
        if len(medium.acts) == number:
            then()

    return act


def interrupt(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_run_is_finished_and_nothing_is_repeated(
    rmqtx: Run, medium: FakeMedium, plan: Path, number: signal.Signals
) -> None:
    assert rmqtx("receipts", "--plan", plan).err.splitlines()[-2:] == [
        f"rmqtx: {plan}: 12 steps: 12 not begun", f"rmqtx: next: rmqtx apply {plan} -n HOST:PORT",
    ]
    medium.on_act = acts_at(5, lambda: interrupt(number))
    first = rmqtx("apply", plan, "--yes", "--format", "csv", "--fields", "transaction_id,outcome")
    assert first.status == INTERRUPTED
    assert first.out.splitlines()[1:] == [f"T{one},proved" for one in range(5)]
    assert f"interrupted: 7 transactions left, of 12 - next: rmqtx apply {plan} -n HOST:PORT --continue" in first.err
    printed = rmqtx("receipts", "--plan", plan, "--format", "csv", "--fields", "transaction_id")
    assert (printed.status, len(printed.out.splitlines())) == (DONE, 6)
    assert printed.err.splitlines()[-3:] == [
        f"rmqtx: {plan}: 12 steps: 5 done, 7 not begun",
        f"rmqtx: written by {', '.join(sorted({'me', whoever()}))}; applied by {whoever()}",
        f"rmqtx: next: rmqtx apply {plan} -n HOST:PORT --continue",
    ]
    second = rmqtx("apply", plan, "--yes", "--continue")
    assert second.status == DONE, second.err
    assert "5 steps done by an earlier run, skipped" in second.err
    assert sorted(one for _, one in medium.acts) == list(range(COUNT))
    assert rmqtx("receipts", "--plan", plan).err.splitlines()[-2] == f"rmqtx: {plan}: 12 steps: 12 done"
    assert "nothing left to do" in rmqtx("apply", plan, "--yes", "--continue").err
    assert len(medium.acts) == COUNT


def test_two_interrupts_end_at_once_and_the_open_act_is_looked_up_first(
    rmqtx: Run, medium: FakeMedium, plan: Path
) -> None:
    def twice() -> None:
        interrupt()
        interrupt()

    medium.on_act = acts_at(3, twice)
    first = rmqtx("apply", plan, "--yes")
    assert first.status == INTERRUPTED
    assert f"the last outcomes may be unknown - next: rmqtx apply {plan} -n HOST:PORT --continue" in first.err
    assert "12 steps: 3 with an unknown outcome, 9 not begun" in rmqtx("receipts", "--plan", plan).err
    second = rmqtx("apply", plan, "--yes", "--continue")
    assert second.status == DONE, second.err
    assert "3 of them had an unknown outcome: the effect is in the store" in second.err
    assert sorted(number for _, number in medium.acts) == list(range(COUNT))
    assert "12 steps: 12 done" in rmqtx("receipts", "--plan", plan).err


def test_an_interrupt_before_the_first_request_sends_nothing(rmqtx: Run, medium: FakeMedium, plan: Path) -> None:
    medium.on_look = lambda one: interrupt() if one.looks == 1 else None
    assert rmqtx("apply", plan, "--yes").status == INTERRUPTED
    assert (medium.acts, Journal().read().receipts) == ([], [])
    assert rmqtx("apply", plan, "--yes", "--continue").status == USAGE


def test_only_a_run_of_the_same_text_is_continued(rmqtx: Run, medium: FakeMedium, plan: Path) -> None:
    result = rmqtx("apply", plan, "--yes", "--continue")
    assert (result.status, medium.acts) == (USAGE, [])
    assert "nothing to continue" in result.err
    medium.on_act = acts_at(5, interrupt)
    assert rmqtx("apply", plan, "--yes").status == INTERRUPTED
    plan.write_text(plan.read_text().replace('"why"', '"because"'))
    assert rmqtx("apply", plan, "--yes", "--continue").status == USAGE
    assert len(medium.acts) == 5
    printed = rmqtx("receipts", "--plan", plan).err
    assert f"rmqtx: {plan}: 12 steps: 12 not begun" in printed
    assert "5 receipts of a plan of this name with another text: the file was written again since" in printed


def test_refused_steps_are_counted_apart(rmqtx: Run, medium: FakeMedium, plan: Path) -> None:
    medium.surroundings = situation().conditions
    medium.on_look = lambda one: one.rows["T4"].update(flags=["immune"]) if one.looks == 2 else None
    medium.on_act = decided
    result = rmqtx("apply", plan, "--yes")
    assert result.status == SOME_REFUSED, result.err
    assert "12 steps: 11 done, 1 refused or not sent" in rmqtx("receipts", "--plan", plan).err


def test_files_stay_as_they_are_after_an_interruption(
    rmqtx: Run, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmqtx.repairs.acts.file_medium import FileMedium

    store, file = Path(shutil.copytree(common, tmp_path / "store")), tmp_path / "files.json"
    where = ("--store", store, "--broker-version", "5.3.3")
    assert rmqtx("plan", "commit", "--all", *where, "--reason", "x", "-o", file).status == DONE
    usual = FileMedium.decide

    def decide(self: FileMedium, *arguments: Any) -> Any:
        interrupt()
        return usual(self, *arguments)

    monkeypatch.setattr(FileMedium, "decide", decide)
    result = rmqtx("apply", file, *where, "--to", tmp_path / "new", "--yes")
    assert result.status == INTERRUPTED, result.err
    assert f"interrupted: {(count := len(read_plan(file).steps))} transactions left, of {count}" in result.err
    assert not (tmp_path / "new").exists()
    assert {one.outcome for one in Journal().read().receipts} == {"not_sent"}
    monkeypatch.setattr(FileMedium, "decide", usual)
    assert rmqtx("apply", file, *where, "--to", tmp_path / "new", "--yes").status == DONE
    assert f"{count} steps: {count} done" in rmqtx("receipts", "--plan", file).err


def test_a_bar_counts_on_a_terminal_and_is_gone_afterwards(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    where = ("--store", str(common), "--broker-version", "5.3.3")
    assert rmqtx("plan", "rollback", "--all", *where, "--reason", "x", "-o", file).status == DONE
    words = [*WARM, "apply", str(file), *where, "--to", str(tmp_path / "new"), "--yes"]
    status, text = on_terminal(words)
    assert status == DONE, text
    assert "proving: " in text
    assert " done, 0 refused" in text
    assert not [line for line in screen(text) if "━" in line or "proving: " in line]
    assert "━" not in on_terminal([*words[:-2], str(tmp_path / "other"), "--yes", "--quiet"])[1]


def test_a_plan_of_a_live_broker_is_shown_as_one(rmqtx: Run, plan: Path) -> None:
    shown = rmqtx("plan", "show", plan)
    assert f"from    {STORE}, as of 1970-01-01T00:00:00.001Z: a live broker" in shown.out
    assert "no broker was running" not in shown.out

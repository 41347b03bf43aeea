"""`rmqtx triage` on a terminal: questions, keys, answers that outlive interruptions, and the plan of them."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.errors import BadRequest, BadText
from rmqtx.readers.model.exit_status import DONE, INTERRUPTED, SOME_REFUSED, USAGE
from rmqtx.repairs.plans.triage import AnswersFile, GivenAnswer, Triage, draft_of
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.plan_file import read_plan
from tests.brokers import corpus
from tests.cli.conftest import Run
from tests.cli.program import WARM
from tests.cli.terminal import Dialogue
from tests.forge.logs import Forge
from tests.repairs.forge import mark, place, row, situation

VERSION = ("--broker-version", "5.3.3")
FORGED = ("--broker-version", "4.9.7")
KEYS, GROUP_KEYS, ALL_KEYS = "h help: ", "o one by one, u undo, q quit, h help: ", "Return goes back: "
HOSTILE = "till\x1b]0;owned\x07\u202e[bold]"


@pytest.fixture
def thirty(tmp_path: Path) -> Path:
    """A store with 30 pending transactions: 16 of shop to orders, 8 of shop to refunds, 6 of a hostile group."""
    forge = Forge(tmp_path / "store", segment_bytes=1 << 16)
    for number in range(16):
        forge.half(f"ORDER-{number:02d}")
    for number in range(8):
        forge.half(f"REFUND-{number}", topic="refunds")
    for number in range(6):
        forge.half(f"TILL-{number}", group=HOSTILE, topic="receipts")
    root = forge.write()
    (tmp_path / "broker.conf").write_text("fileReservedTime=1000000\n")
    topics = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for name in ("orders", "refunds", "receipts", "TRANS_CHECK_MAX_TIME_TOPIC")
    }
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    return root


def where(store: Path) -> list[str]:
    return [*FORGED, "--broker-conf", str(store.parent / "broker.conf")]


def started(store: Path, *more: str, state: str = "") -> Dialogue:
    words = ["triage", str(store), "-o", "plan.json", "--reason", "OPS-1", *where(store), *more]
    environment = {"RMQTX_STATE_DIR": str(store.parent / "state"), "TERM": "xterm", "NO_COLOR": "1"}
    return Dialogue([*WARM, *words], store.parent, **environment)


def flat(shown: str) -> str:
    """Notes that are wrapped, in one line."""
    return shown.replace("\n  ", " ")


def asked(shown: str) -> str:
    """The transaction of the newest question."""
    found = re.findall(r"^(?:transaction )?([A-Z]+-\d+)(?:  |, state )PENDING$", shown, re.MULTILINE)
    return str(found[-1])


@pytest.mark.slow
def test_thirty_transactions_interrupted_killed_resumed_and_applied(rmqtx: Run, thirty: Path, tmp_path: Path) -> None:
    given: dict[str, str] = {}
    cycle = ["c", "r", "d", "s"]
    words = {"c": "commit", "r": "rollback", "d": "discard"}

    def answer(talk: Dialogue, key: str) -> None:
        name = asked(talk.until(KEYS))
        talk.type(key)
        if key in words:
            given[name] = words[key]

    talk = started(thirty)
    for number in range(7):
        answer(talk, cycle[number % 4])
    talk.until(KEYS)
    talk.press(b"\x03")
    assert talk.end() == INTERRUPTED
    assert "plan.json.answers keeps the answers; no plan was written" in flat(talk.shown)
    assert not (tmp_path / "plan.json").exists()

    talk = started(thirty)
    assert "6 answers of an earlier run, 24 of 30 left" in flat(talk.until(KEYS))
    talk.type("x")
    assert "type one of the letters" in talk.until(KEYS)
    talk.type("commit")
    given[asked(talk.shown)] = "commit"
    answer(talk, "d")
    talk.until(KEYS)
    talk.kill()

    talk = started(thirty)
    left: Any = 30 - len(given)
    while left > 14:
        answer(talk, "r")
        left -= 1
    talk.until(KEYS)
    name = asked(talk.shown)
    talk.type("u")  # the last one again, and otherwise
    talk.until(KEYS)
    again = asked(talk.shown)
    assert (given[again], again != name) == ("rollback", True)
    talk.type("c")
    given[again] = "commit"
    # All that are left of its group, one more question, and the rest by its groups.
    talk.until(KEYS)
    group = asked(talk.shown).split("-")[0]
    talk.type("a")
    printed = talk.until(ALL_KEYS)
    ids = list(given)
    talk.type("r")
    given |= {one: "rollback" for one in _names(group) if one not in ids}
    while len(given) < 30:
        answer(talk, "d")
    assert talk.end() == DONE, talk.shown
    assert re.search(r"\d+ transactions of group", printed)

    steps = {step.transaction_id: str(step.action) for step in read_plan(tmp_path / "plan.json").steps}
    assert steps == given
    assert len(steps) == 30
    assert set(given.values()) == {"commit", "rollback", "discard"}
    assert "\x1b" not in talk.shown
    assert "\u202e" not in talk.shown
    assert max(len(line) for line in talk.shown.splitlines() if "plan.json" not in line) <= 80

    new = tmp_path / "new"
    applied = rmqtx("apply", tmp_path / "plan.json", "--store", thirty, "--to", new, *where(thirty), "--yes",
                    "--format", "jsonl")
    assert applied.status == DONE, applied.err
    assert Counter(json.loads(line)["action"] for line in applied.out.splitlines()) == Counter(given.values())
    rows = rmqtx("audit", new, *where(thirty), "--format", "jsonl", "-q").out.splitlines()
    states = {one["transaction_id"]: one["state"] for one in map(json.loads, rows)}
    ends = {"commit": "COMMITTED", "rollback": "ROLLED_BACK", "discard": "ROLLED_BACK"}  # an op message
    assert states == {name: ends[action] for name, action in given.items()}


def _names(group: str) -> list[str]:
    count = {"ORDER": 16, "REFUND": 8, "TILL": 6}[group]
    return [f"{group}-{number:02d}" if group == "ORDER" else f"{group}-{number}" for number in range(count)]


def test_group_by_group_and_why_and_body(thirty: Path, tmp_path: Path) -> None:
    talk = started(thirty, "--by-group", "--plain")
    shown = talk.until(GROUP_KEYS)
    assert "16 transactions of group shop, topic orders" in shown
    assert "ids     ORDER-00 ORDER-01 ORDER-02 and 13 more" in shown
    talk.type("e")  # nothing to resume: the guards say why, and the group is asked about again
    assert "not planned: 16 transactions (16 by still-open)" in flat(talk.until(GROUP_KEYS))
    talk.type("c")
    assert "8 transactions of group shop, topic refunds" in talk.until(GROUP_KEYS)
    talk.type("o")
    shown = talk.until(KEYS)
    assert "transaction REFUND-0, state PENDING" in shown
    assert re.search(r"^event 1: born, 20", shown, re.MULTILINE)
    assert "since sent" not in shown, "no table"
    talk.type("w")
    shown = talk.until(KEYS)
    assert "commit   the guards allow it now" in shown
    assert "resume   refused by still-open" in shown
    talk.type("b")
    assert "body, 8 B:\nREFUND-0\n" in talk.until(KEYS)
    talk.type("h")
    assert "rmqtx apply carries it out" in talk.until(KEYS)
    talk.press(b"\x04")  # the end of the input quits
    assert talk.end() == DONE
    plan = read_plan(tmp_path / "plan.json")
    assert {(step.action, step.topic) for step in plan.steps} == {(ActKind.COMMIT, "orders")}
    assert {(step.reason, step.reason_from) for step in plan.steps} == {("OPS-1", plan.steps[0].reason_from)}
    assert plan.made_from["command"] == "triage"
    assert ((tmp_path / "plan.json.answers").stat().st_mode & 0o777) == 0o600
    assert "16 commit, 14 left" in talk.shown


def test_skipped_ones_are_asked_about_again_at_the_end(thirty: Path) -> None:
    talk = started(thirty, "--topic", "refunds")
    talk.until(KEYS)
    talk.type("s")
    talk.until(KEYS)
    assert asked(talk.shown) == "REFUND-1"
    talk.type("q")
    assert talk.end() == DONE
    assert "no plan written: no answer is an act" in talk.shown
    talk = started(thirty, "--topic", "refunds")
    seen = []
    for _ in range(8):
        talk.until(KEYS)
        seen.append(asked(talk.shown))
        talk.type("r")
    assert talk.end() == DONE
    assert seen == [*_names("REFUND")[1:], "REFUND-0"]


def test_what_the_ledger_has_is_printed_and_contradicted_only_after_a_question(
    rmqtx: Run, common: Path, tmp_path: Path
) -> None:
    rows = [one for one in corpus.expected("common-5.3.3") if one["case"] in ("pending.0", "pending.1")]
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger:
        ledger.execute("create table orders (order_id text, status text)")
        words = zip(rows, ("PAID", "CANCELLED"), strict=True)
        ledger.executemany("insert into orders values (?, ?)", [(one["keys"], status) for one, status in words])
        ledger.commit()
    ids = {one["transaction_id"]: status for one, status in zip(rows, ("commit", "rollback"), strict=True)}
    talk = Dialogue([
        *WARM, "triage", str(common), "-o", str(tmp_path / "plan.json"), "--reason", "x", *VERSION,
        "--ledger", f"sqlite:///{tmp_path}/ledger.db", "--ledger-table", "orders", "--match", "keys = order_id",
        "--done", "status = PAID", "--not-done", "status = CANCELLED",
    ], TERM="xterm", NO_COLOR="1")
    given: dict[str, str] = {}
    while len(given) < 2:
        shown = talk.until(KEYS)
        name = re.findall(r"^(\w{56})  PENDING$", shown, re.MULTILINE)[-1]
        if name not in ids:
            assert "ledger  no answer: " in shown
            talk.type("s")
            continue
        assert f"ledger  {ids[name]}: outcome in the ledger" in shown
        other = "rollback" if ids[name] == "commit" else "commit"
        talk.type(other)
        assert f"{other} contradicts the ledger in 1 of 1 transaction" in talk.until("[y/N] ")
        talk.type("")
        talk.until(KEYS)
        talk.type(ids[name])
        given[name] = ids[name]
    talk.until(KEYS)
    talk.type("q")
    talk.end()
    assert {step.transaction_id: step.action for step in read_plan(tmp_path / "plan.json").steps} == given


def test_it_needs_a_terminal_and_a_plan_file_of_its_own(rmqtx: Run, common: Path, tmp_path: Path) -> None:
    result = rmqtx("triage", common, "-o", tmp_path / "plan.json", "--reason", "x")
    assert (result.status, result.err.count("\n")) == (USAGE, 1)
    assert "cannot ask: standard input is not a terminal" in result.err
    assert list(tmp_path.glob("plan.json*")) == []


def test_watch_starts_it_for_the_selected_group(thirty: Path, tmp_path: Path) -> None:
    environment = {"RMQTX_STATE_DIR": str(tmp_path / "state"), "TERM": "xterm", "NO_COLOR": "1"}
    talk = Dialogue([*WARM, "watch", str(thirty), *where(thirty)], tmp_path, **environment)
    talk.until("30 pending")
    talk.press(b"j")  # from shop and orders, which has most, to shop and refunds
    talk.press(b"t")
    talk.until("triage of group shop, topic refunds")
    talk.until("(Return: triage.json): ") if "(Return" not in talk.shown else None
    talk.type("")
    talk.until("nothing is done): ")
    talk.type("OPS-2")
    shown = talk.until(KEYS)
    assert "8 of 8 left, 8 transactions of group shop, topic refunds" in shown
    talk.type("a")
    talk.until(ALL_KEYS)
    talk.type("r")
    assert talk.end() == DONE
    plan = read_plan(tmp_path / "triage.json")
    assert {(step.action, step.topic, step.reason) for step in plan.steps} == {(ActKind.ROLLBACK, "refunds", "OPS-2")}


# -- answers and drafts without a terminal


def triage(tmp_path: Path, *names: str) -> Triage:
    found = {name: situation(row(transaction_id=name)) for name in names}
    return Triage(found, AnswersFile(tmp_path / "plan.json"), ["s"], "why")


def test_an_answer_that_a_guard_refuses_is_not_taken(tmp_path: Path) -> None:
    one = triage(tmp_path, "T1", "T2")
    done = situation(row("ROLLED_BACK", transaction_id="T2", op_marks=[mark(7)]))
    one.situations = {**one.situations, "T2": done}
    draft = one.answer(["T1", "T2"], "commit")
    assert [(name, refusal.guard) for name, refusal in draft.refused] == [("T2", "already-decided")]
    assert one.left() == ["T2"]
    assert one.file.read(["s"]).keys() == {"T1"}


def test_what_was_decided_since_is_left_out(tmp_path: Path) -> None:
    one = triage(tmp_path, "T1", "T2", "T3")
    one.answer(["T1", "T2", "T3"], "commit")
    now = {"T1": situation(row(transaction_id="T1", half_copies=[place(7, 700), place(9, 900)])),
           "T2": situation(row("ROLLED_BACK", transaction_id="T2", op_marks=[mark(7)]))}
    draft, gone = draft_of(one.answers.values(), now)
    assert [(step.transaction_id, step.half_copy.queue_offset if step.half_copy else 0) for step in draft.steps] == [
        ("T1", 9)
    ]
    assert [name for name, _ in draft.refused] == ["T2"]
    assert gone == ["T3"]


def test_answers_taken_back_are_as_before(tmp_path: Path) -> None:
    one = triage(tmp_path, "T1", "T2")
    one.answer(["T1"], "commit")
    one.answer(["T1", "T2"], "rollback")
    assert one.take_back() == ["T1", "T2"]
    assert (one.left(), one.answers["T1"].answer) == (["T2"], "commit")
    assert {name: given.answer for name, given in one.file.read(["s"]).items()} == {"T1": "commit", "T2": "open"}
    assert one.take_back() == ["T1"]
    assert one.take_back() == []
    assert one.left() == ["T1", "T2"]


def test_a_torn_file_of_answers_loses_only_what_is_torn(tmp_path: Path) -> None:
    file, given = AnswersFile(tmp_path / "plan.json"), GivenAnswer("T1", "commit", "why", "me", 1)
    file.path.write_bytes(b'{"answers_ver')
    assert file.read(["s"]) == {}
    file.add([given], ["s"])
    whole = file.path.read_bytes()
    file.path.write_bytes(whole + b'{"transaction_id": "T2", "ans')
    assert file.read(["s"]) == {"T1": given}
    file.add([replace(given, transaction_id="T3")], ["s"])
    assert file.read(["s"]).keys() == {"T1", "T3"}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"transaction_id": "T1", "answer": "perhaps", "reason": "", "user": "", "answered_time_ms": 1}\n', BadText),
        (b'{"transaction_id": "T1", "answer": "commit"}\n', BadText),
        (b"nonsense\n", BadText),
    ],
)
def test_what_is_no_answer_is_an_error(tmp_path: Path, line: bytes, error: type[Exception]) -> None:
    file = AnswersFile(tmp_path / "plan.json")
    file.add([], ["s"])
    file.path.write_bytes(file.path.read_bytes() + line)
    with pytest.raises(error):
        file.read(["s"])
    with pytest.raises(BadRequest):
        file.read(["another"])


def test_an_answer_of_now_is_refused_by_now_and_that_is_a_status(thirty: Path, tmp_path: Path, rmqtx: Run) -> None:
    """The store that is read at the end is not the one of the questions: one transaction was rolled back meanwhile."""
    talk = started(thirty, "--topic", "refunds")
    talk.until(KEYS)
    talk.type("a")
    talk.until(ALL_KEYS)
    assert rmqtx(
        "rollback", "REFUND-3", "--store", thirty, "--in-place", "--undo", tmp_path / "undo", *where(thirty), "--yes"
    ).status == DONE
    talk.type("c")
    assert talk.end() == SOME_REFUSED
    assert "REFUND-3: not planned: its state is not PENDING now" in talk.shown
    assert len(read_plan(tmp_path / "plan.json").steps) == 7

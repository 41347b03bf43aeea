"""Runs the commands on a store in this process, as a shell would, and compares the answers with the truth.

The truth is the answers of the same commands for the undamaged store. An answer is silently wrong if its exit status
promises that all evidence was read, and it differs from the truth.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from rmqtx.readers.model import exit_status
from rmqtx_cli import main
from tests.brokers import corpus
from tests.forge.stores import copy_of
from tests.fuzz.rounds import TookTooLong, alarm

SECONDS_MAX = 60
#: Limits above every age in the corpus, so that `check` is CRITICAL only because of damage.
AGELESS = ("--warning", "9000d", "--critical", "9999d")
SIMULATED_FROM = "2026-12-01T00:00:00Z"
EVIDENCE = ("half_copies", "op_marks", "final_records", "discard_copies")
#: Statuses that promise that all evidence was read.
_PROMISING = (exit_status.DONE, exit_status.FINDINGS)

Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The exit status, stdout and stderr of a command."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Row]:
        """The rows of JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer, in words; `kind`: crash, silent, acted or certain."""

    kind: str
    question: str
    what: str


@dataclass(frozen=True)
class Truth:
    """The answers for an undamaged store."""

    name: str
    root: Path
    options: tuple[str, ...]
    version: str
    states: dict[str, str]
    open: dict[str, str]
    ends: dict[str, str]
    counts: dict[str, Any]
    #: Transactions by the commit-log offsets of their records.
    by_offset: dict[int, str]
    #: The findings of `verify --full`, notes too, without their places.
    verified: frozenset[str]
    statuses: dict[str, int] = field(default_factory=dict)


def ask(arguments: Sequence[str], seconds: int | None = SECONDS_MAX) -> Answer:
    """Run a command line and return its answer; status 70 also if it takes too long.

    `seconds`: None for a command with an alarm of its own.
    """
    rows, words = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(to, "utf-8", "surrogateescape", write_through=True) for to in (rows, words))
    try:
        with (
            contextlib.nullcontext() if seconds is None else alarm(seconds),
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
        ):
            status = main.status_of(list(arguments))
    except TookTooLong as error:
        return Answer(exit_status.BUG, "", str(error))
    return Answer(status, *(written.getvalue().decode("utf-8", "surrogateescape") for written in (rows, words)))


@cache
def home() -> Path:
    """A directory of this process; in RMQTX_CAMPAIGN_HOME, if set, which the parent process removes."""
    directory = Path(tempfile.mkdtemp(prefix="rmqtx-campaign-", dir=os.environ.get("RMQTX_CAMPAIGN_HOME")))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    os.environ["XDG_STATE_HOME"] = str(directory / "state")  # where receipts go
    return directory


@cache
def root_of(name: str) -> Path:
    """A store of the corpus, unpacked into a directory of this process."""
    return copy_of(name, home() / name)


@cache
def truth_of(name: str) -> Truth:
    """The answers for an undamaged store of the corpus."""
    recipe = corpus.recipe(name)
    root = root_of(name)
    conf = home() / f"{name}.conf"
    conf.write_text(corpus.broker_conf(name), encoding="utf-8")
    version = str(recipe.get("upgrade", recipe["version"]))
    truth = Truth(name, root, ("--broker-conf", str(conf), "--broker-version", version), version, {}, {}, {}, {}, {},
                  frozenset(map(_without_place, verify(root, version).rows)))
    for question in ("audit", "pending", "simulate"):
        answer = ask([*COMMANDS[question], str(root), *truth.options])
        truth.statuses[question] = answer.status
        getattr(truth, {"audit": "states", "pending": "open", "simulate": "ends"}[question]).update(
            _words(question, answer)
        )
        if question == "audit":
            truth.by_offset.update({
                entry["commit_log_offset"]: row["transaction_id"]
                for row in answer.rows for kind in EVIDENCE for entry in row[kind]
            })
    truth.counts.update(_counts(check(truth)))
    return truth


#: Command lines without store and settings.
COMMANDS: dict[str, tuple[str, ...]] = {
    "audit": ("audit", "--quiet", "--format", "jsonl"),
    "followed": ("follow", "--quiet", "--until-idle", "--format", "jsonl"),
    "pending": ("pending", "--quiet", "--all-open", "--format", "jsonl"),
    "scanned": ("pending", "--quiet", "--all-open", "--scan", "--format", "jsonl"),
    "simulate": ("simulate", "--quiet", "--show", "transactions", "--at", SIMULATED_FROM, "--format", "jsonl"),
}


def verify(root: Path, version: str, *more: str) -> Answer:
    """Run `verify --full`."""
    return ask(["verify", str(root), *(more or ("--full",)), "--broker-version", version, "--format", "jsonl"])


def check(truth: Truth) -> Answer:
    """Run `check` without a memory of earlier runs."""
    with tempfile.TemporaryDirectory(dir=home()) as memory:
        arguments = ["check", str(truth.root), *truth.options, *AGELESS, "--format", "json", "--state-dir", memory]
        return ask(arguments, seconds=None)


#: Findings whose text counts the half messages that the check does not reach. A damaged cursor changes the count, and
#: the broker or `rmqtx cursor set` could have written the same cursor: another count contradicts nothing.
_COUNTS_WHAT_IS_OPEN = frozenset({"check-stopped"})


def _without_place(row: Row) -> str:
    keys = ["code", "severity", "file"]
    if row["code"] not in _COUNTS_WHAT_IS_OPEN:
        keys += ["position_bytes", "expected", "actual"]
    return json.dumps([row[key] for key in keys])


#: Predictions of the next start: their counts differ if the log has lost its beginning, and contradict nothing.
_PREDICTED = frozenset({"table-remade"})


def contradictions(truth: Truth) -> list[Row]:
    """The errors and warnings of `verify --full` that the undamaged store does not have; a crash is one too."""
    answer = verify(truth.root, truth.version)
    if answer.status not in _PROMISING:
        return [{"code": f"status {answer.status}", "severity": "error", "meaning": answer.err[-500:]}]
    return [
        row for row in answer.rows
        if row["severity"] != "note" and row["code"] not in _PREDICTED and _without_place(row) not in truth.verified
    ]


def _words(question: str, answer: Answer) -> dict[str, str]:
    """The state or end of each transaction in an answer."""
    if question == "simulate":
        return {str(row["transaction_id"]): str(row["end"]) for row in answer.rows}
    return {row["transaction_id"]: row["state"] for row in answer.rows}


def _counts(answer: Answer) -> dict[str, Any]:
    found = json.loads(answer.out) if answer.out.startswith("{") else {}
    return {key: found.get(key) for key in ("pending_count", "oldest_transaction_id", "commit_without_op_count")}


# ---- the questions


def listed(truth: Truth, question: str) -> Iterator[WrongAnswer]:
    """Rows by transaction: audit, followed, pending, scanned, simulate."""
    answer = ask([*COMMANDS[question], str(truth.root), *truth.options])
    right = {"audit": truth.states, "followed": truth.states, "simulate": truth.ends}.get(question, truth.open)
    if answer.status == exit_status.BUG:
        yield WrongAnswer("crash", question, answer.err[-800:])
        return
    found = _words(question, answer) if answer.status in (*_PROMISING, exit_status.INCOMPLETE) else {}
    wrong = _differences(right, found)
    if wrong and answer.status in _PROMISING:
        yield WrongAnswer("silent", question, f"status {answer.status}: {wrong}")
    elif answer.status == exit_status.INCOMPLETE and question in ("audit", "pending"):
        certain = _differences(
            {name: state for name, state in truth.states.items() if name in found},
            {name: state for name, state in found.items() if state != "UNDECIDABLE"},
            is_all=False,
        )
        if certain:
            yield WrongAnswer("certain", question, f"status 3: {certain}")


def compared(truth: Truth) -> Iterator[WrongAnswer]:
    """Compare the undamaged store with this one by `diff`: a difference must not be silent."""
    answer = ask(["diff", str(_pristine(truth.name)), str(truth.root), *truth.options, "--quiet", "--format", "jsonl"])
    if answer.status == exit_status.BUG:
        yield WrongAnswer("crash", "diff", answer.err[-800:])
    elif answer.status in _PROMISING and answer.out:
        changes = Counter(row["change"] for row in answer.rows)
        yield WrongAnswer("silent", "diff", f"status {answer.status}: {dict(changes)}")


@cache
def _pristine(name: str) -> Path:
    return copy_of(name, home() / "undamaged" / name)


def exported(truth: Truth) -> Iterator[WrongAnswer]:
    """Compare the states that `export transactions` writes."""
    with tempfile.TemporaryDirectory(dir=home()) as directory:
        arguments = ["export", "transactions", str(truth.root), "--to", f"{directory}/out", "--format", "jsonl"]
        answer = ask([*arguments, *truth.options, "--quiet"])
        if answer.status == exit_status.BUG:
            yield WrongAnswer("crash", "export", answer.err[-800:])
        elif answer.status in _PROMISING:
            parts = [file.read_text(encoding="utf-8") for file in sorted(Path(directory).rglob("part-*"))]
            wrong = _differences(truth.states, _words("export", replace(answer, out="".join(parts))))
            if wrong:
                yield WrongAnswer("silent", "export", f"status {answer.status}: {wrong}")


def _differences(right: dict[str, str], found: dict[str, str], *, is_all: bool = True) -> str:
    """`COMMITTED -> PENDING 3 (ID), ...`: the number of each change, and the first transaction."""
    changes: dict[str, list[str]] = {}
    for name in [*right, *(name for name in found if name not in right)]:
        before, now = right.get(name, "invented"), found.get(name, "gone")
        if before != now and (is_all or now != "gone"):
            changes.setdefault(f"{before} -> {now}", []).append(name)
    firsts = ((change, len(names), ascii(names[0]).strip("'")[:40]) for change, names in sorted(changes.items()))
    return ", ".join(f"{change} {number} ({first})" for change, number, first in firsts)


def shown(truth: Truth, identity: str, *more: str) -> Iterator[WrongAnswer]:
    """Compare the state that `show` prints for a transaction."""
    answer = ask(["show", identity, "--store", str(truth.root), *truth.options, *more, "--quiet", "--format", "jsonl"])
    right = truth.states[identity]
    question = " ".join(["show", *more])
    if answer.status == exit_status.BUG:
        yield WrongAnswer("crash", question, answer.err[-800:])
    elif answer.status == exit_status.NO_SUCH_TRANSACTION:
        yield WrongAnswer("silent", question, f"status 16: {right} -> no such transaction ({identity})")
    elif answer.status in _PROMISING:
        found = {row["state"] for row in answer.rows if row["transaction_id"] == identity}
        if found != {right}:
            yield WrongAnswer("silent", question, f"status {answer.status}: {right} -> {sorted(found)} ({identity})")


def checked(truth: Truth, *, is_destroyed: bool) -> Iterator[WrongAnswer]:
    """Run `check`: wrong are OK or WARNING with other numbers, and OK for a destroyed log."""
    answer = check(truth)
    if answer.status in (2, 3):
        if "a bug:" in answer.out:
            yield WrongAnswer("crash", "check", answer.out[-800:])
        return
    # A warning outranks UNKNOWN, by the guidelines for plug-ins; the line still has the reason.
    if any(reason["status"] == "UNKNOWN" for reason in json.loads(answer.out)["reasons"]):
        return
    found = _counts(answer)
    wrong = {key: f"{value} -> {found[key]}" for key, value in truth.counts.items() if found[key] != value}
    if wrong:
        yield WrongAnswer("silent", "check", f"status {answer.status}: {wrong}")
    elif is_destroyed and answer.status == 0:
        yield WrongAnswer("silent", "check", "OK for a destroyed log")


def described(truth: Truth, *, is_end_destroyed: bool) -> Iterator[WrongAnswer]:
    """Run `stores`: status 0 for a log whose end is destroyed is wrong; it does not read the middle of a log."""
    answer = ask(["stores", str(truth.root), *truth.options])
    if answer.status == exit_status.BUG:
        yield WrongAnswer("crash", "stores", answer.err[-800:])
    elif is_end_destroyed and answer.status == exit_status.DONE:
        yield WrongAnswer("silent", "stores", "status 0 for a log whose end is destroyed")


def acted(truth: Truth, identity: str, act: str) -> Iterator[WrongAnswer]:
    """Try to decide a decided transaction again, in a copy: this must be refused."""
    with tempfile.TemporaryDirectory(dir=home()) as directory:
        answer = ask([
            act, identity, "--store", str(truth.root), "--to", f"{directory}/copy", *truth.options, "--yes",
            "--reason", "campaign", "--quiet",
        ])
    if answer.status == exit_status.BUG:
        yield WrongAnswer("crash", act, answer.err[-800:])
    elif answer.status == exit_status.DONE:
        yield WrongAnswer("acted", act, f"status 0: {act} of what is {truth.states[identity]} ({identity})")


Question = Callable[[], Iterable[WrongAnswer]]


def while_damaged(
    truth: Truth, write: Callable[[], object], restore: Callable[[], object], questions: Iterable[Question]
) -> tuple[list[WrongAnswer], list[Row]]:
    """Ask while a store is damaged; return the wrong answers and, if there are any, what `verify --full` finds."""
    wrong_answers: list[WrongAnswer] = []
    found: list[Row] = []
    try:
        write()
        for question in questions:
            wrong_answers += question()
        if any(one.kind in ("silent", "acted") for one in wrong_answers):
            found = contradictions(truth)
    finally:
        restore()
    return wrong_answers, found

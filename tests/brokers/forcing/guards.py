"""Each guard refuses on a real broker, and is then overridden."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field

from tests.brokers.forcing.naive import op_numbers
from tests.brokers.forcing.stage import Stage
from tests.brokers.forcing.tool import Ran, Tool
from tests.brokers.transaction import Transaction

REFUSED = 12


@dataclass
class Case:
    """A command that one guard must refuse, and the expected result when that guard is overridden.

    `says`: pattern of the guard's sentence; `deliveries`: after the override.
    """

    guard: str
    action: str
    one: Transaction
    says: str
    deliveries: int
    words: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ("proved",)
    also: tuple[str, ...] = ()
    """Further guards that refuse, and must be overridden too."""
    refused: Ran | None = None
    passed: Ran | None = None
    wrong: list[str] = field(default_factory=list)


def cases(stage: Stage) -> list[Case]:
    """The cases that can be played on one broker at the same time."""
    shop = stage.shop("g-main")
    names = ("delivered", "rolled-back", "older", "in-flight", "group", "immune", "open", "closed")
    groups = {name: shop.join(f"g-{name}") for name in names}

    def begin(name: str, **wanted: object) -> Transaction:
        return shop.begin(f"guard-{name}", 0, group=groups[name], **wanted)

    older = begin("older")
    shop.until_decided()
    stage.put_back([older], 1)
    delivered, rolled_back = begin("delivered", first="COMMIT"), begin("rolled-back", first="ROLLBACK")
    closed = begin("closed", first="COMMIT")
    in_flight, group, still_open = begin("in-flight"), begin("group"), begin("open")
    immune = begin("immune", **{"p.CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"})
    shop.until_decided()
    # The client sends without waiting for an answer: killed too early, it has sent nothing.
    stage.until_delivered([delivered, closed])
    stage.until("the rollback is recorded", lambda: rolled_back.original[0] in op_numbers(stage.broker))
    shop.kill()
    stage.until_gone(groups["older"])
    alive = stage.shop("g-alive")
    connected = alive.begin_all("guard-alive", 1)[0]
    return [
        Case("already-delivered", "commit", delivered, r"COMMIT record in orders queue \d", 2,
             outcomes=("contradicted", "proved")),
        Case("already-decided", "commit", rolled_back, r"rolled back: the op message at queue offset \d", 1,
             outcomes=("contradicted", "proved")),
        Case("younger-copy", "commit", older, r"half copy \d+ is newer than", 1,
             words=("--copy", str(older.original[0]))),
        Case("producer-connected", "commit", connected, r"a producer of group g-alive is connected \(.*g-alive", 1),
        Case("decision-in-flight", "commit", in_flight, r"the wait was only 0 s", 1, words=("--settle", "0s")),
        Case("wrong-group", "commit", group, r"its producer group is g-group, not somebody", 1,
             words=("--group", "somebody")),
        Case("immunity", "commit", immune, r"CHECK_IMMUNITY_TIME_IN_SECONDS", 1),
        Case("still-open", "resume", still_open, r"the check will still reach half copy \d+", 0,
             outcomes=("accepted",)),
        Case("not-open", "close", closed, r"it is COMMITTED, and the check will not reach a copy", 1),
    ]


def play(tool: Tool, found: list[Case]) -> None:
    """Play all cases at the same time: first without, then with their overrides."""
    for case in found:
        case.refused = None
    refused = [_start(tool, case, ()) for case in found]
    for case, process in zip(found, refused, strict=True):
        case.refused = tool.end(process)
    passed = [_start(tool, case, (case.guard, *case.also)) for case in found]
    for case, process in zip(found, passed, strict=True):
        case.passed = tool.end(process)


def _start(tool: Tool, case: Case, overrides: tuple[str, ...]) -> subprocess.Popen[str]:
    words = [word for name in overrides for word in ("--override", name)]
    return tool.start(
        case.action, case.one.id, *case.words, *words, "--reason", f"test of {case.guard}", "--yes", "--format", "jsonl"
    )


def judge(stage: Stage, found: list[Case]) -> dict[str, list[str]]:
    """Return what is wrong, by guard."""
    stage.until_consumed()
    for case in found:
        case.wrong = [*_refused_wrongly(case), *_passed_wrongly(stage, case)]
    return {case.guard: case.wrong for case in found if case.wrong}


def _refused_wrongly(case: Case) -> list[str]:
    ran = case.refused
    assert ran is not None
    sentence = next((line for line in ran.stderr.splitlines() if f" {case.guard}: " in line), None)
    told = []
    if ran.status != REFUSED or sentence is None:
        return [f"not refused by it: {ran}"]
    if not re.search(case.says, sentence):
        told.append(f"does not say {case.says!r}: {sentence}")
    if " - " not in sentence:
        told.append(f"does not say what to do instead: {sentence}")
    if [row["outcome"] for row in ran.rows] != ["refused_by_guard"] or ran.rows[0]["requests"]:
        told.append(f"receipt: {ran.stdout}")
    return told


def _passed_wrongly(stage: Stage, case: Case) -> list[str]:
    ran = case.passed
    assert ran is not None
    told = []
    if [row["outcome"] for row in ran.rows] not in [[outcome] for outcome in case.outcomes]:
        return [f"with the override: {ran}"]
    if case.guard not in ran.rows[0]["overrides"]:
        told.append("the receipt does not name the override")
    if stage.delivered(case.one) != case.deliveries:
        told.append(f"delivered {stage.delivered(case.one)} times, not {case.deliveries}: {ran}")
    return told

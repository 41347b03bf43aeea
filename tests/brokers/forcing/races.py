"""Races: the producer decides just before rmqtx, the check puts copies back meanwhile, a second rmqtx does the same.

Each race is played the same way with rmqtx and with naive forcing; the deliveries to the consumer show which was right.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.brokers.forcing import naive
from tests.brokers.forcing.stage import Shop, Stage, soon_ms
from tests.brokers.forcing.tally import Done, Tally, done_of
from tests.brokers.forcing.tool import Ran, Row, Tool
from tests.brokers.rig import COMMIT, ROLLBACK
from tests.brokers.transaction import Transaction

SPAN_MS = 5000
"""Longest time between the producer's decision and the forced one."""
LAST_WORD_MS = 150
"""Time from the producer's last decision to its kill: the decision must have left the process, to be certain."""
AT_ONCE = 20
"""Transactions of one command; each command has its own producer group."""
DECISIONS = {"commit": COMMIT, "rollback": ROLLBACK}
OPTIONS = ("--reason", "a race", "--yes", "--format", "jsonl")

Force = Callable[[Stage, list[Transaction], str], dict[str, Done]]


@dataclass(frozen=True)
class Size:
    """The number of transactions of a race, and of one batch."""

    transactions: int = 200
    batch: int = 3 * AT_ONCE

    def batches(self) -> Iterator[int]:
        """Numbers of the batches."""
        return iter(range(-(-self.transactions // self.batch)))


def guarded(tool: Tool) -> Force:
    """Forcing with `rmqtx`: one command for each group, all at the same time."""

    def force(stage: Stage, begun: list[Transaction], action: str) -> dict[str, Done]:
        return done_of(_rows(stage, tool, _started(tool, begun, action)), begun)

    return force


def _started(tool: Tool, begun: list[Transaction], action: str, *options: str) -> list[subprocess.Popen[str]]:
    groups: dict[str, list[str]] = {}
    for one in begun:
        groups.setdefault(str(one.known["producer_group"]), []).append(one.id)
    return [tool.start(action, *ids, *OPTIONS, *options) for ids in groups.values()]


def _rows(stage: Stage, tool: Tool, processes: list[subprocess.Popen[str]]) -> list[Row]:
    rows: list[Row] = []
    for process in processes:
        ran = tool.end(process)
        rows += ran.rows
        _tell_if_odd(stage, ran)
    return rows


def _tell_if_odd(stage: Stage, ran: Ran) -> None:
    if ran.status not in (0, 12, 17):
        lines = [line for line in ran.stderr.splitlines() if "refused" not in line]
        stage.logged(f"exit {ran.status}: {' / '.join(lines[-6:])[:2000]}")


def unguarded(look: str) -> Force:
    """Forcing without rmqtx, after one lookup."""

    def force(stage: Stage, begun: list[Transaction], action: str) -> dict[str, Done]:
        sent = naive.force(stage, begun, DECISIONS[action], look)
        return {one.case: Done("proved" if one.case in sent else "refused_by_guard", look) for one in begun}

    return force


def _action(number: int, tally: Tally) -> str:
    """Every third batch is rolled back; naive forcing only commits, because commits show its errors."""
    return "rollback" if number % 3 == 2 and tally.is_guarded else "commit"


def producer_decides(stage: Stage, tally: Tally, force: Force, size: Size, undecided_share: float = 2 / 3) -> None:
    """Race a: a producer decides 0 to 5 s before the forced decision, or not at all, and is killed."""
    for number in size.batches():
        action = _action(number, tally)
        shop = stage.shop()
        begun = _deciding(stage, shop, f"a-{tally.slug}-{number}", size.batch, undecided_share)
        shop.kill()
        began = time.monotonic()
        done = force(stage, begun, action)
        tally.seconds += time.monotonic() - began
        _settle(stage)
        tally.count(stage, begun, done, action)


def _deciding(stage: Stage, shop: Shop, name: str, count: int, undecided_share: float) -> list[Transaction]:
    rng = Random(f"{stage.script.seed}/{stage.script.version}/{name}")
    groups = [shop.join(f"{shop.group}-{part}") for part in range(-(-count // AT_ONCE))]
    for part, group in enumerate(groups):  # opens the connection, so that the next ones are fast
        shop.begin(f"{name}-warm", part, first="ROLLBACK", group=group)
    shop.until_decided()
    begin_ms = soon_ms(2 + count / 100)
    begun = []
    for number in range(count):
        is_undecided = rng.random() < undecided_share
        decision = "UNKNOWN" if is_undecided else rng.choice(("COMMIT", "ROLLBACK"))
        at = None if is_undecided else begin_ms + rng.randrange(SPAN_MS - LAST_WORD_MS)
        begun.append(shop.begin(name, number, first=decision, at=at, group=groups[number // AT_ONCE]))
    stage.until_sent(begun)
    shop.until_decided()
    time.sleep(max(0.0, (begin_ms + SPAN_MS) / 1000 - time.time(), LAST_WORD_MS / 1000))
    return begun


def check_puts_back(stage: Stage, tally: Tally, force: Force, size: Size) -> None:
    """Race b: the check puts a copy back every second during forcing; then a producer starts that answers COMMIT."""
    for number in size.batches():
        action = _action(number, tally)
        begun = _orphans(stage, f"b-{tally.slug}-{number}", size.batch)
        with stage.checks():
            time.sleep(1 + stage.rng.random())
            began = time.monotonic()
            done = force(stage, begun, action)
            tally.seconds += time.monotonic() - began
            back = _returned(stage, begun)
            time.sleep(4)
        _settle(stage)
        back.kill()
        tally.count(stage, begun, done, action)


def _orphans(stage: Stage, name: str, count: int) -> list[Transaction]:
    """Undecided transactions of several groups whose producer is dead."""
    shop = stage.shop()
    groups = [shop.join(f"{shop.group}-{part}") for part in range(-(-count // AT_ONCE))]
    begun = [shop.begin(name, number, group=groups[number // AT_ONCE]) for number in range(count)]
    shop.until_decided()
    shop.kill()
    for group in groups:
        stage.until_gone(group)
    return begun


def _returned(stage: Stage, begun: list[Transaction]) -> Shop:
    """Start their producer again; it answers every check with COMMIT."""
    groups = sorted({str(one.known["producer_group"]) for one in begun})
    back = stage.shop(groups[0], strangers="COMMIT")
    for group in groups[1:]:
        back.join(group, strangers="COMMIT")
    for number, group in enumerate(groups):  # a producer that has sent nothing gets no checks
        back.begin(f"back-{groups[0]}", number, first="ROLLBACK", group=group)
    back.until_decided()
    return back


def two_at_once(stage: Stage, tally: Tally, tools: tuple[Tool, Tool], size: Size) -> None:
    """Race c: two rmqtx with their own state directories force the same transactions at the same time."""
    for number in size.batches():
        actions = (("commit", "commit"), ("commit", "rollback"))[number % 2]
        begun = _orphans(stage, f"c-{number}", size.batch)
        began = time.monotonic()
        started = [_started(tool, begun, action) for tool, action in zip(tools, actions, strict=True)]
        rows = [_rows(stage, tool, processes) for tool, processes in zip(tools, started, strict=True)]
        tally.seconds += time.monotonic() - began
        _settle(stage)
        found = [done_of(some, begun) for some in rows]
        for one in begun:
            mine = [(done.get(one.case, Done("missing")), action) for done, action in zip(found, actions, strict=True)]
            acted = [(done, action) for done, action in mine if done.acted]
            if len(acted) > 1:
                tally.wrong.append(f"{one.case}: both acted: {mine}")
            tally.both_acted += len(acted) > 1
            done, action = acted[0] if acted else mine[0]
            tally.count(stage, [one], {one.case: done}, action)


@dataclass
class After:
    """Race d: the forced decision, the producer's later one, and whether rmqtx reported it."""

    ours: str
    theirs: str
    transactions: int = 0
    delivered: int = 0
    delivered_twice: int = 0
    contradicted: int = 0
    flagged_by_audit: int = 0


def decision_after_ours(stage: Stage, tool: Tool, count: int = AT_ONCE) -> list[After]:
    """Race d: a producer decides after the forced decision. This cannot be prevented, but must be reported."""
    found = []
    for ours, theirs in itertools.product(("commit", "rollback"), ("COMMIT", "ROLLBACK")):
        shop = stage.shop()
        name = f"d-{ours}-{theirs.lower()}"
        begun = [shop.begin(name, number, first=f"{theirs}@1000000") for number in range(count)]
        stage.until_sent(begun)
        known = {one.id for one in begun}
        (process,) = _started(tool, begun, ours, "--override", "producer-connected", "--wait-for", "12s")
        stage.until("all acted on", lambda known=known: known <= _journalled(tool), 120)  # type: ignore[misc]
        time.sleep(1)
        for one in begun:
            shop.agent.do("release", id=one.id)
        shop.until_decided()
        done = done_of(_rows(stage, tool, [process]), begun)
        _settle(stage)
        shop.kill()
        flags = {row["transaction_id"]: row["flags"] for row in tool.run("audit", "--format", "jsonl").rows}
        after = After(ours, theirs.lower(), len(begun))
        after.delivered = sum(stage.delivered(one) > 0 for one in begun)
        after.delivered_twice = sum(stage.delivered(one) > 1 for one in begun)
        after.contradicted = sum(done[one.case].outcome == "contradicted" for one in begun)
        odd = {"duplicate_commit", "conflict"}
        after.flagged_by_audit = sum(bool(odd & set(flags.get(one.id, ()))) for one in begun)
        found.append(after)
    return found


def _journalled(tool: Tool) -> set[str]:
    """The ids in the journal: a line is written before the request is sent."""
    return {str(row["transaction_id"]) for row in tool.journal() if "transaction_id" in row}


def _settle(stage: Stage) -> None:
    time.sleep(1)
    stage.until_consumed()
    stage.settle(quiet=0.5)

"""Races: somebody decides just before us, the check puts copies back under our hands, a second rmqtx does the same.

Each race is played the same way for the guarded tool and for naive forcing; who is right is told by the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.brokers.forcing import naive
from tests.brokers.forcing.stage import Shop, Stage, soon_ms
from tests.brokers.forcing.tally import Done, Tally, done_of
from tests.brokers.forcing.tool import Tool
from tests.brokers.rig import COMMIT, ROLLBACK
from tests.brokers.stage import Transaction

SPAN_MS = 5000
"""The producer decides at most so long before us."""
LAST_WORD_MS = 150
"""Between its last decision and its death: what it said has left its machine, else nobody could say what it decided."""
DECISIONS = {"commit": COMMIT, "rollback": ROLLBACK}

Force = Callable[[Stage, list[Transaction], str], dict[str, Done]]


@dataclass
class Size:
    """How many transactions a race has, and how many at once."""

    transactions: int = 200
    batch: int = 50


def guarded(tool: Tool) -> Force:
    """Forcing by `rmqtx`, a plan for all at once."""

    def force(stage: Stage, begun: list[Transaction], action: str) -> dict[str, Done]:
        ran = apply(tool, begun, action)
        found = done_of(ran.rows, begun)
        if ran.status not in (0, 12, 17) or len(found) != len(begun):
            stage.logged(str(ran)[-2000:])
        return found

    return force


def apply(tool: Tool, begun: list[Transaction], action: str):  # type: ignore[no-untyped-def]
    """One command for all."""
    return tool.act(action, *(one.id for one in begun), "--reason", "race")


def unguarded(look: str) -> Force:
    """Forcing as one does it without rmqtx, after one look."""

    def force(stage: Stage, begun: list[Transaction], action: str) -> dict[str, Done]:
        sent = naive.force(stage, begun, DECISIONS[action], look)
        return {one.case: Done("proved" if one.case in sent else "refused_by_guard", look) for one in begun}

    return force


def producer_decides(stage: Stage, tally: Tally, force: Force, size: Size, undecided_share: float = 0.5) -> None:
    """Race a: a producer decides 0 to 5 s before us, or not at all, and is killed; then we force, half and half."""
    for number in range(-(-size.transactions // size.batch)):
        action = "commit" if number % 2 == 0 else "rollback"
        shop = stage.shop()
        name = f"a-{tally.how.replace(' ', '-')}-{number}"
        begun = _deciding(stage, shop, name, size.batch, undecided_share)
        shop.kill()
        began = time.monotonic()
        done = force(stage, begun, action)
        tally.seconds += time.monotonic() - began
        _settle(stage)
        tally.count(stage, begun, done, action)


def _deciding(stage: Stage, shop: Shop, name: str, count: int, undecided_share: float) -> list[Transaction]:
    first = shop.begin(f"{name}-warm", 0, first="ROLLBACK")  # the connection is made: what follows is quick
    shop.until_decided()
    assert first.sent is not None
    begin_ms = soon_ms(2 + count / 100)
    begun = []
    for number in range(count):
        luck = stage.rng.random()
        decision = "UNKNOWN" if luck < undecided_share else ("COMMIT", "ROLLBACK")[number % 2]
        at = begin_ms + stage.rng.randrange(SPAN_MS - LAST_WORD_MS)
        begun.append(shop.begin(name, number, first=decision, at=None if decision == "UNKNOWN" else at))
    stage.until_sent(begun)
    shop.until_decided()
    time.sleep(max(0.0, begin_ms / 1000 + SPAN_MS / 1000 - time.time(), LAST_WORD_MS / 1000))
    return begun


def check_puts_back(stage: Stage, tally: Tally, force: Force, size: Size) -> None:
    """Race b: the check puts a copy back every second while we force; then a producer comes that commits if asked."""
    for number in range(-(-size.transactions // size.batch)):
        action = "commit" if number % 2 == 0 else "rollback"
        begun = stage.orphans(f"b-{tally.how.replace(' ', '-')}-{number}", size.batch)
        with stage.checks():
            time.sleep(1 + stage.rng.random())
            began = time.monotonic()
            done = force(stage, begun, action)
            tally.seconds += time.monotonic() - began
            back = stage.shop(str(begun[0].known["producer_group"]), strangers="COMMIT")
            back.begin_all(f"back-{number}", 1, first="ROLLBACK")  # one that has sent nothing is not asked either
            time.sleep(4)
        _settle(stage)
        back.kill()
        tally.count(stage, begun, done, action)


def two_at_once(stage: Stage, tally: Tally, tools: tuple[Tool, Tool], size: Size) -> None:
    """Race c: two people, on machines of their own, force the same transactions at the same moment."""
    for number in range(-(-size.transactions // size.batch)):
        actions = (("commit", "commit"), ("commit", "rollback"))[number % 2]
        begun = stage.orphans(f"c-{number}", size.batch)
        words = [one.id for one in begun]
        began = time.monotonic()
        processes = [
            tool.start(action, *words, "--reason", "race", "--yes", "--format", "jsonl")
            for tool, action in zip(tools, actions, strict=True)
        ]
        ran = [tool.end(process) for tool, process in zip(tools, processes, strict=True)]
        tally.seconds += time.monotonic() - began
        _settle(stage)
        found = [done_of(one.rows, begun) for one in ran]
        for one in begun:
            mine = [(done.get(one.case, Done("missing")), action) for done, action in zip(found, actions, strict=True)]
            acted = [(done, action) for done, action in mine if done.acted]
            if len(acted) > 1:
                tally.wrong.append(f"{one.case}: both acted: {mine}")
            done, action = acted[0] if acted else mine[0]
            tally.count(stage, [one], {one.case: done}, action)


def _settle(stage: Stage) -> None:
    time.sleep(1)
    stage.until_consumed()
    stage.settle(quiet=0.5)

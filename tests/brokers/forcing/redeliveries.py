"""`python -m tests.brokers.forcing.redeliveries`: redeliveries that are killed, and that race with another decision.

Kills: `rmqtx redeliver` is ended by SIGKILL at a random moment, half of them just after its receipt was begun; then the
same command is run again. Races: a second rmqtx with a journal of its own redelivers the same transaction, or the
producer decides in the last seconds before it is killed. The official consumer counts: nothing may arrive twice, and a
delivery by rmqtx has a receipt. Prints a row of a Markdown table for each version.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.brokers import maven
from tests.brokers.forcing.conftest import quick
from tests.brokers.forcing.naive import op_numbers
from tests.brokers.forcing.stage import Shop, Stage, soon_ms
from tests.brokers.forcing.tally import decision_of
from tests.brokers.forcing.tool import Ran, Row, Tool
from tests.brokers.transaction import Transaction

VERSIONS = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
AT_ONCE = 8
"""Commands that run at the same time: each acts on a producer group of its own, and mostly waits."""
BATCH = 24
TRIES_MAX = 4
SPAN_MS, LAST_WORD_MS = 5000, 300
WORDS = ("--reason", "a race", "--yes", "--format", "jsonl")
REFUSED, DONE = 12, 0


@dataclass
class Counts:
    """What was counted on one version."""

    version: str
    kills: int = 0
    killed_after_begun: int = 0
    seconds_commands: int = 0
    late_decisions: int = 0
    deliveries: Counter[int] = field(default_factory=Counter)
    twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    without_receipt: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.twice or self.lost or self.without_receipt)

    @property
    def line(self) -> str:
        """A row of a table."""
        return (
            f"| {self.version} | {self.kills} ({self.killed_after_begun} after the receipt was begun) | "
            f"{self.seconds_commands} | {self.late_decisions} | {len(self.twice)} | {len(self.lost)} | "
            f"{len(self.without_receipt)} |"
        )

    def count(self, stage: Stage, one: Transaction, tools: list[Tool], ran: list[Ran]) -> None:
        """Add a transaction whose deliveries have happened."""
        times = stage.delivered(one)
        self.deliveries[times] += 1
        begun = [row for tool in tools for row in tool.journal() if row["transaction_id"] == one.id and is_begun(row)]
        decision = decision_of(one)
        where = f"{one.case} {one.id}: {decision}, delivered {times} times, {[str(part) for part in ran]}"
        if times > 1:
            self.twice.append(where)
        is_ours = decision != "COMMIT"
        proved = any(row["outcome"] == "proved" for part in ran for row in part.rows)
        if proved and not times:
            self.lost.append(where)
        if is_ours and times and not begun:
            self.without_receipt.append(where)


def is_begun(row: Row) -> bool:
    """Whether a line of the journal was written just before the request."""
    return str(row["line"]) == "begun"


def rolled_back(stage: Stage, name: str, count: int) -> list[Transaction]:
    """Transactions that their producer rolled back before it was killed, each of a group of its own."""
    shop = stage.shop()
    groups = [shop.join(f"{shop.group}-{number}") for number in range(count)]
    ones = [shop.begin(name, number, first="ROLLBACK", group=group) for number, group in enumerate(groups)]
    shop.until_decided()
    numbers = {one.original[0] for one in ones}
    stage.until("the rollbacks are recorded", lambda: numbers <= op_numbers(stage.broker))
    shop.kill()
    for group in groups:
        stage.until_gone(group)
    return ones


def killed(stage: Stage, one: Transaction, tool: Tool, seconds: float, counts: Counts) -> list[Ran]:
    """Kill a redelivery at a random moment, and run the command again until it is done or refused."""
    process = tool.start("redeliver", one.id, *WORDS)
    at_begun = stage.rng.random() < 0.5
    end = time.monotonic() + (60 if at_begun else stage.rng.uniform(0, seconds))
    while process.poll() is None and time.monotonic() < end:
        if at_begun and tool.journal():
            time.sleep(stage.rng.uniform(0, 0.03))
            break
        time.sleep(0.002)
    counts.kills += process.poll() is None
    process.kill()
    process.communicate()
    counts.killed_after_begun += any(map(is_begun, tool.journal()))
    ran = []
    for _ in range(TRIES_MAX):
        ran.append(tool.run("redeliver", one.id, *WORDS))
        if ran[-1].status == DONE or "already-delivered" in ran[-1].stderr:
            break
    return ran


def two(stage: Stage, one: Transaction, tools: list[Tool]) -> list[Ran]:
    """Two redeliveries of the same transaction, begun within some seconds."""
    first = tools[0].start("redeliver", one.id, *WORDS)
    time.sleep(stage.rng.uniform(0, 3))
    second = tools[1].start("redeliver", one.id, *WORDS)
    return [tools[0].end(first), tools[1].end(second)]


def late(stage: Stage, name: str, count: int) -> list[Transaction]:
    """Transactions that a producer decides in the last seconds before it is killed."""
    shop: Shop = stage.shop()
    groups = [shop.join(f"{shop.group}-{number}") for number in range(count)]
    for number, group in enumerate(groups):  # opens the connection, so that the next ones are fast
        shop.begin(f"{name}-warm", number, first="ROLLBACK", group=group)
    shop.until_decided()
    begin_ms = soon_ms(2 + count / 20)
    ones = [
        shop.begin(
            name, number, first=stage.rng.choice(("COMMIT", "ROLLBACK", "ROLLBACK")), group=group,
            at=begin_ms + stage.rng.randrange(SPAN_MS - LAST_WORD_MS),
        )
        for number, group in enumerate(groups)
    ]
    stage.until_sent(ones)
    shop.until_decided()
    time.sleep(max(0.0, (begin_ms + SPAN_MS) / 1000 - time.time()))
    shop.kill()
    return ones


def batches(count: int) -> Iterator[tuple[int, int]]:
    """Number and size of each batch."""
    for number in itertools.count():
        if count <= 0:
            return
        yield number, min(BATCH, count)
        count -= BATCH


def play(version: str, kills: int, races: int, seed: int) -> Counts:
    """Play all on one broker."""
    counts = Counts(version)
    out = Path(tempfile.mkdtemp(prefix=f"redeliveries-{version}-"))

    def rounds(
        stage: Stage, ones: list[Transaction], act: Callable[[Transaction, list[Tool]], list[Ran]], tools_count: int
    ) -> None:
        tools = [[stage.tool() for _ in range(tools_count)] for _ in ones]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ran = list(pool.map(act, ones, tools))
        stage.until_consumed()
        for one, mine, results in zip(ones, tools, ran, strict=True):
            counts.count(stage, one, mine, results)
        stage.logged(f"{counts.line} {dict(counts.deliveries)}")

    with Stage(version, out, quick(version), seed) as stage:
        samples = rolled_back(stage, "sample", AT_ONCE)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ran = pool.map(lambda one: stage.tool().run("redeliver", one.id, *WORDS).seconds, samples)
        seconds = max(ran) * 1.1
        stage.logged(f"a redelivery takes up to {seconds / 1.1:.1f} s, {AT_ONCE} at once")
        for number, size in batches(kills):
            ones = rolled_back(stage, f"kills-{number}", size)
            rounds(stage, ones, lambda one, tools: killed(stage, one, tools[0], seconds, counts), 1)
        for number, size in batches(races // 2):
            ones = rolled_back(stage, f"two-{number}", size)
            rounds(stage, ones, lambda one, tools: two(stage, one, tools), 2)
            counts.seconds_commands += size
        for number, size in batches(races - races // 2):
            ones = late(stage, f"late-{number}", size)
            rounds(stage, ones, lambda one, tools: [tools[0].run("redeliver", one.id, *WORDS)], 1)
            counts.late_decisions += size
    if counts.is_clean:
        shutil.rmtree(out, ignore_errors=True)
    return counts


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.forcing.redeliveries", description=__doc__)
    parser.add_argument("--versions", nargs="*", default=list(VERSIONS))
    parser.add_argument("--kills", type=int, default=50, help="of each version (default 50)")
    parser.add_argument("--races", type=int, default=50, help="of each version (default 50)")
    parser.add_argument("--seed", type=int, default=7043)
    options = parser.parse_args()
    reason = maven.why_not()
    if reason is not None:
        print(f"no broker can be run here: {reason}", file=sys.stderr)
        return 2
    found = [play(version, options.kills, options.races, options.seed) for version in options.versions]
    heads = "version", "killed by SIGKILL", "two rmqtx at once", "decided just before", "twice", "lost", "no receipt"
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for counts in found:
        print(counts.line)
        for wrong in (*counts.twice, *counts.lost, *counts.without_receipt):
            print(wrong, file=sys.stderr)
    return 0 if all(counts.is_clean for counts in found) else 1


if __name__ == "__main__":
    sys.exit(main())

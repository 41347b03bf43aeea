"""Orderly stops of a broker under load, with and without `rmqtx drain` before, and what follows after its start.

A producer sends transactions and decides them until the broker has stopped. Counted are those that were decided before
the stop: which of them the broker asks again, and what the official consumer receives of them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.brokers.forcing.stage import Shop, Stage
from tests.brokers.forcing.tool import Ran, Tool
from tests.brokers.rig import HALF_TOPIC
from tests.brokers.store_files import log_end
from tests.brokers.transaction import Transaction

#: The waits of a broker by default, but for the interval of its check.
CONF = {"transactionTimeOut": "6000", "transactionCheckInterval": "5000", "transactionCheckMax": "100"}
LOAD_SECONDS = 5.0
#: After a start: some rounds of the check, and a producer that has connected again.
AFTER_SECONDS = 12.0
BETWEEN_SECONDS = 0.03
#: Of ten transactions: decided at once, or at the first check.
FIRSTS = (*("COMMIT",) * 5, *("ROLLBACK",) * 4, "UNKNOWN")


class Load:
    """A producer that sends a transaction every 30 ms and decides nine of ten at once; it answers each check COMMIT."""

    def __init__(self, stage: Stage, shop: Shop, plan: str) -> None:
        self.stage, self.shop, self.plan = stage, shop, plan
        self.begun: list[Transaction] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for reference in self.shop.under_way():
            with contextlib.suppress(RuntimeError, TimeoutError):  # refused, or the broker was stopped
                self.shop.agent.wait(reference, 60)

    def _send(self) -> None:
        for number, first in zip(itertools.count(), itertools.cycle(FIRSTS)):
            if self._stop.wait(BETWEEN_SECONDS):
                return
            self.begun.append(self.shop.begin(self.plan, number, first=first, checks="COMMIT"))


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the transactions of one stop that were sent.

    Shape: `decided_count`: decided before the stop; of them, after the start: `asked` again, delivered `twice`,
           `wrong`: delivered although rolled back, `missing`: committed and not delivered. `open_count`: undecided at
           the stop.
    """

    sent_count: int
    decided_count: int
    open_count: int
    asked: tuple[str, ...]
    twice: tuple[str, ...]
    wrong: tuple[str, ...]
    missing: tuple[str, ...]
    drain: Ran | None = None


class Stops:
    """A broker that is stopped under load again and again."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.tool: Tool = stage.tool()
        self.shop = stage.shop("f-load", strangers="COMMIT")
        self._numbers = itertools.count(1)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of rmqtx that name the broker."""
        return "--broker", self.stage.rig.address

    def play(self, *, drained: bool) -> Counts:
        """Stop the broker under load, start it again, wait for some rounds of its check, and count."""
        stage, drain = self.stage, None
        plan = f"{'drain' if drained else 'twin'}{next(self._numbers)}"
        with Load(stage, self.shop, plan) as load:
            time.sleep(LOAD_SECONDS)
            if drained:
                drain = self.tool.run("drain", *self.options, "--for", "2m", "--yes", "--format", "jsonl", live=False)
                assert drain.status == 0, str(drain)
            stage.rig.stop("broker")
            before = self._decided(load)
        sent = [one for one in load.begun if one.sent is not None]
        end = log_end(stage.rig.store)
        stage.rig.start_as_left()
        started = time.monotonic()
        stage.rig.wait_broker(stage.agent)
        while time.monotonic() - started < AFTER_SECONDS:
            time.sleep(0.5)
        found = self._count(sent, before, end, drain)
        if drained:
            released = self.tool.run("release", *self.options, "--yes", "--format", "jsonl", live=False)
            assert released.status == 0, str(released)
        return found

    @staticmethod
    def _decided(load: Load) -> dict[str, str]:
        """The decision of each transaction that has one, by case: at once, or at a check."""
        found = {}
        for one in list(load.begun):
            words = [str(event["what"]) for event in one.decisions] + [str(event["answer"]) for event in one.checks]
            if one.sent is not None and words:
                found[one.case] = words[0]
        return found

    def _count(
        self, sent: list[Transaction], before: Mapping[str, str], end: int, drain: Ran | None
    ) -> Counts:
        stage = self.stage
        stage.until_consumed()
        put_back = {
            record["transaction_id"] for record in stage.rig.pull(stage.agent, HALF_TOPIC)
            if record["commit_log_offset"] >= end
        }
        decided = [one for one in sent if one.case in before]
        asked = [one.case for one in decided if one.id in put_back]
        commits = [one for one in decided if before[one.case].startswith("COMMIT")]
        rollbacks = [one for one in decided if before[one.case].startswith("ROLLBACK")]
        return Counts(
            len(sent), len(decided), len(sent) - len(decided), tuple(asked),
            tuple(one.case for one in decided if stage.delivered(one) > 1),
            tuple(one.case for one in rollbacks if stage.delivered(one)),
            tuple(one.case for one in commits if not stage.delivered(one)), drain,
        )


def row(version: str, what: str, counts: list[Counts]) -> str:
    """Return the counts of several stops as a row of the table in docs/drains.md."""

    def of(name: str) -> str:
        numbers = [len(getattr(one, name)) for one in counts]
        stops = sum(1 for number in numbers if number)
        return f"{sum(numbers)}" + (f" (in {stops} stops)" if stops else "")

    seconds = [round(one.drain.seconds) for one in counts if one.drain is not None]
    took = " to ".join(str(one) for one in sorted({min(seconds), max(seconds)})) + " s" if seconds else ""
    decided = sum(one.decided_count for one in counts)
    cells = (
        version, what, len(counts), decided, of("asked"), of("twice"), of("wrong"), of("missing"), took,
        time.strftime("%Y-%m-%d", time.gmtime()),
    )
    return f"| {' | '.join(map(str, cells))} |"


#: The table of docs/drains.md.
HEAD = (
    "| broker | before the stop | stops | transactions decided | asked again | delivered twice | rolled back and "
    "delivered | committed and not delivered | rmqtx drain took | date |\n|---|---|---|---|---|---|---|---|---|---|\n"
)


def write_row(page: Path, text: str) -> None:
    """Replace the row of a broker in the table of a page, or add it. Order: broker, drained before not drained."""
    before, _, table = page.read_text("utf-8").partition(HEAD)
    rows = {tuple(line.split("|")[1:3]): line for line in [*table.splitlines(), text] if line}
    page.write_text(before + HEAD + "".join(f"{rows[key]}\n" for key in sorted(rows)), "utf-8")


def main() -> None:
    """Play stops of each version, and print a row for each; a failure ends the series of its version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--twins", type=int, help="stops without a drain; default: as many")
    parser.add_argument("--page", type=Path, help="write the rows into the table of this page")
    parser.add_argument("versions", nargs="+")
    given = parser.parse_args()
    for version in given.versions:
        with tempfile.TemporaryDirectory() as out, Stage(version, Path(out), CONF) as stage:
            stops = Stops(stage)
            series = ((True, given.stops), (False, given.stops if given.twins is None else given.twins))
            for drained, number in series:
                counts: list[Counts] = []
                for _ in range(number):
                    counts.append(stops.play(drained=drained))
                    text = row(version, "drained" if drained else "not drained", counts)
                    print(text, file=sys.stderr, flush=True)
                if counts:
                    print(text, flush=True)
                if counts and given.page is not None:
                    write_row(given.page, text)


if __name__ == "__main__":
    main()

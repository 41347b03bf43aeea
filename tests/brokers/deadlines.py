"""Compare when real brokers discard transactions with the predicted times; `python -m tests.brokers.deadlines`.

A broker receives transactions that are never decided, some with their own immunity time. Their discard times are
predicted four times: over the network, from the files of the running broker, from a copy after a clean stop, and from
a copy after a kill. The actual time is the store time of the copy in the discard topic.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from rmqtx.readers.model import clock
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups
from rmqtx.verdicts.audit.lookups import pending
from tests.brokers.histories import IMMUNITY
from tests.brokers.rig import DISCARD_TOPIC
from tests.brokers.script import Script
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction
from tests.conftest import MOMENT

#: The compared settings; short, so that a transaction is soon discarded.
SETTINGS: dict[str, dict[str, str]] = {
    "2s-3": {"transactionCheckInterval": "2000", "transactionCheckMax": "3", "transactionTimeOut": "1000"},
    "5s-5": {"transactionCheckInterval": "5000", "transactionCheckMax": "5", "transactionTimeOut": "3000"},
}
VERSIONS = ("4.9.7", "5.1.4", "5.3.3")
_OTHERS = {"transactionOpBatchInterval": "300", "fileReservedTime": "48"}
#: Longer than a start and all checks take, even on a busy machine.
_DISCARDED_SECONDS = 120.0

Times = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One transaction: its predicted discard time, and the actual one.

    Units: epoch milliseconds. `read_ms`: time of the prediction; for a stopped broker, time of its next start.
    """

    version: str
    setting: str
    source: str
    plan: str
    read_ms: int
    predicted_ms: int | None
    discarded_ms: int

    @property
    def late_ms(self) -> int | None:
        """The actual time after the predicted one."""
        return None if self.predicted_ms is None else self.discarded_ms - self.predicted_ms

    @property
    def interval_ms(self) -> int:
        """The check's interval."""
        return int(SETTINGS[self.setting]["transactionCheckInterval"])


def outcomes(version: str, setting: str, out: Path) -> list[Outcome]:
    """Every transaction of one broker, predicted from each of the four sources."""
    conf = _OTHERS | SETTINGS[setting]
    interval_seconds = int(conf["transactionCheckInterval"]) / 1000
    play = Play(Script(version, 15, {}, conf=conf, topics={"orders": 2}), out, say=lambda _line: None)
    rng = Random(f"{version} {setting}")
    found: list[Outcome] = []
    with play.rig as rig, Client() as client:
        rig.start_names()
        play.boot()
        play.send_all("committed", 2, rng, first="COMMIT")
        while not (rig.store / "config" / "consumerOffset.json").exists():  # a new broker writes it after ten seconds
            time.sleep(0.1)
        sent = _send(play, "running", rng, interval_seconds)
        broker = Broker(client, rig.address, "broker-a", "rmqtx", 0)
        predicted = {"live": (clock.now_ms(), _times_live(broker))}
        predicted["files of the running broker"] = clock.now_ms(), _times_of_files(rig.store, conf, version)
        found += _compared(play, version, setting, predicted, sent)
        for how in ("clean", "kill"):
            sent = _send(play, how, rng, interval_seconds)
            play.halt("clean" if how == "clean" else "kill")
            copy = out / f"copy-{how}"
            shutil.copytree(rig.store, copy)
            play.boot()
            started_ms = _started_ms(out)
            times = _times_of_files(copy, conf, version, started_ms)
            word = "files after a clean stop" if how == "clean" else "files of a killed broker"
            found += _compared(play, version, setting, {word: (started_ms, times)}, sent)
        play.halt("clean")
    return found


def _send(play: Play, plan: str, rng: Random, interval_seconds: float) -> list[Transaction]:
    """Send transactions that stay undecided: at once, after half a round, and after one and a half; two are immune."""
    sent = play.send_all(f"{plan}", 3, rng)
    sent += play.send_all(f"{plan}, immune", 2, rng, **{f"p.{IMMUNITY}": round(1.5 * interval_seconds)})
    time.sleep(0.5 * interval_seconds)
    sent += play.send_all(f"{plan}, later", 2, rng)
    time.sleep(interval_seconds)
    return sent + play.send_all(f"{plan}, last", 2, rng)


def _started_ms(out: Path) -> int:
    """When the broker had started: it writes its last line to broker.log then."""
    log = out / "broker.log"
    while not log.read_text(errors="replace").rstrip().rpartition("\n")[2].startswith("The broker["):
        time.sleep(0.1)
    return log.stat().st_mtime_ns // 1_000_000


def _times_live(broker: Broker) -> Times:
    rows = lookups.pending([broker]).table()
    return dict(zip(rows["transaction_id"].to_pylist(), rows["discard_at_ms"].to_pylist(), strict=True))


def _times_of_files(root: Path, conf: Mapping[str, str], version: str, started_ms: int | None = None) -> Times:
    """`started_ms`: the actual start of its broker; None: predict from the time of reading."""
    store = open_store(root)
    settings = broker_settings(store, conf=conf, version=version)
    with pytest.MonkeyPatch.context() as patch:
        if started_ms is not None:
            patch.setattr(MOMENT, lambda _: started_ms)
        rows = pending([store], lambda _: settings).table()
    return dict(zip(rows["transaction_id"].to_pylist(), rows["discard_at_ms"].to_pylist(), strict=True))


def _compared(
    play: Play, version: str, setting: str, predicted: Mapping[str, tuple[int, Times]], sent: list[Transaction]
) -> Iterator[Outcome]:
    """Wait until all transactions are discarded; yield their outcomes."""
    play.until_discarded(sent, seconds=_DISCARDED_SECONDS)
    copies = {one["transaction_id"]: one["store_time_ms"] for one in play.rig.pull(play.agent, DISCARD_TOPIC)}
    for source, (read_ms, times) in predicted.items():
        for one in sent:
            yield Outcome(version, setting, source, one.plan, read_ms, times.get(one.id), copies[one.id])


def table(rows: list[Outcome]) -> str:
    """The table of predicted and actual times of docs/deadlines.md; times in seconds."""
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for row in rows:
        groups.setdefault((row.version, row.setting, row.source), []).append(row)
    lines = [
        "| broker | interval, checks | predicted from | transactions | predicted after | discarded after | late by |",
        "|---|---|---|---|---|---|---|",
    ]
    for (version, setting, source), some in groups.items():
        predicted = [(row.predicted_ms or 0) - row.read_ms for row in some]
        real = [row.discarded_ms - row.read_ms for row in some]
        late = [row.late_ms or 0 for row in some]
        interval, checks = setting.split("-")
        lines.append(
            f"| {version} | {interval.removesuffix('s')} s, {checks} | {source} | {len(some)} | {_span(predicted)} |"
            f" {_span(real)} | {_span(late)} |"
        )
    return "\n".join(lines)


def _span(times_ms: list[int]) -> str:
    low, high = min(times_ms) / 1000, max(times_ms) / 1000
    return f"{low:.1f} to {high:.1f} s"


def main() -> None:
    """Compare brokers with their predictions, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--setting", choices=SETTINGS, action="append")
    arguments = parser.parse_args()
    rows: list[Outcome] = []
    for version in arguments.versions:
        for setting in arguments.setting or SETTINGS:
            with tempfile.TemporaryDirectory() as directory:
                found = outcomes(version, setting, Path(directory))
                rows += found
                for one in found:
                    print(one, one.late_ms, file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

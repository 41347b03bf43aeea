"""Plays transactions of producers with message trace while a proxy swallows decisions, and compares what rmqtx finds.

`make traces` runs it, one broker at a time; SEED chooses the decisions and what is swallowed, COUNT how many
transactions each release gets. It writes the table of docs/formats/traces.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.readers.traces import scan_traces
from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.remoting.protocol.frames import Frame
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.diagnosing import diagnosed_each
from tests.brokers import maven
from tests.brokers.proxy import Direction, Fault, FaultProxy
from tests.brokers.rig import PATIENCE_SECONDS, Rig

VERSIONS = ("4.9.7", "5.1.4", "5.3.3", "5.5.0")
CONF = {
    "traceTopicEnable": "true", "transactionCheckMax": "3", "transactionCheckInterval": "2500",
    "transactionTimeOut": "1000", "mappedFileSizeCommitLog": str(8 << 20), "maxIndexNum": "20000",
    "maxHashSlotNum": "5000",
}
GROUP, TOPIC = "pay_tx", "PayOrder"
#: Decisions of a transaction: the first one, then the answers to checks, of which the last is given again and again.
PLANS = ("C", "C", "C", "R", "R", "U", "UC", "UR", "UUC", "CU")
#: Of so many transactions one gets all its decisions swallowed, and one its first decision only.
OUT_OF = 4
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "traces.md"
MARK = "<!-- played -->"
#: After the last transaction is sent: its checks, the discard, and the traces (5 s).
SETTLE_SECONDS = 25


class Names(FaultProxy):
    """A name server that gives clients the address of another proxy for the broker. Both have five digits."""

    def __init__(self, target: str, broker: str, instead: str) -> None:
        assert len(broker) == len(instead)
        self._words = broker.encode(), instead.encode()
        super().__init__(target)

    def changed(self, direction: Direction, piece: bytes) -> bytes:
        """The answers, with the other address."""
        return piece.replace(*self._words) if direction == "response" else piece


class Swallowing(FaultProxy):
    """Swallows the decisions of some transactions, chosen by a seed and their ids: all of them, or the first one.

    Shape: `passed`, `swallowed`: the decisions (COMMIT, ROLLBACK, UNKNOWN) of each transaction, in order.
    """

    def __init__(self, target: str, seed: int) -> None:
        self.seed = seed
        self.passed: dict[str, list[str]] = {}
        self.swallowed: dict[str, list[str]] = {}
        super().__init__(target)

    def fate(self, identity: str) -> int:
        """0: all are swallowed; 1: the first one; else none."""
        return hashlib.sha256(f"{self.seed}/{identity}".encode()).digest()[0] % OUT_OF

    def _fault(self, direction: Direction, frame: Frame, codes: dict[int, int]) -> Fault | None:
        fault = super()._fault(direction, frame, codes)
        if direction == "request" and not frame.is_response and frame.code == RequestCode.END_TRANSACTION:
            identity = frame.fields.get("msgId") or frame.fields["transactionId"]
            what = {"8": "COMMIT", "12": "ROLLBACK"}.get(frame.fields["commitOrRollback"], "UNKNOWN")
            is_first = frame.fields.get("fromTransactionCheck", "false") != "true"
            fate = self.fate(identity)
            if fate == 0 or (fate == 1 and is_first):
                self.swallowed.setdefault(identity, []).append(what)
                return Fault("drop", "request")
            self.passed.setdefault(identity, []).append(what)
        return fault


@dataclass(slots=True)
class Played:
    """What one client reported, and what passed its proxy.

    Shape: `said`: by transaction, (decision, whether it answers a check).
    """

    version: str
    said: dict[str, list[tuple[str, bool]]] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    passed: dict[str, list[str]] = field(default_factory=dict)


def play(version: str, count: int, seed: int, out: Path) -> Played:
    """Play transactions on a broker of a version; its store is below `out`."""
    chance = random.Random(f"{seed}/{version}")
    played = Played(version)
    with Rig(version, out, CONF) as rig:
        rig.start_names()
        rig.start_broker()
        broker = Swallowing(rig.address, seed)
        with broker, Names(rig.name_server, rig.address, broker.address) as names:
            client = _client(rig, names.address)
            assert client.stdin is not None
            assert client.stdout is not None
            ready = threading.Event()
            reader = threading.Thread(target=_read, args=(client.stdout, played, ready), daemon=True)
            reader.start()
            assert ready.wait(PATIENCE_SECONDS)
            for number in range(count):
                client.stdin.write(f"K{number}\t{chance.choice(PLANS)}\n")
                client.stdin.flush()
                time.sleep(chance.random() / 10)
            end = time.monotonic() + PATIENCE_SECONDS
            while len(played.sent) < count and time.monotonic() < end:
                time.sleep(0.2)
            time.sleep(SETTLE_SECONDS)
            client.stdin.close()
            client.wait(PATIENCE_SECONDS)
            reader.join(10)
            played.passed = broker.passed
        rig.stop("broker")
    assert len(played.sent) == count
    return played


def _client(rig: Rig, names: str) -> subprocess.Popen[str]:
    with (rig.out / "client.log").open("ab") as log:
        return subprocess.Popen(
            ["java", "-Xmx256m", *rig.options, f"-Duser.home={rig.home}", "-cp", maven.trace_classpath(rig.version),
             "TraceScenario", names, GROUP, TOPIC],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=rig.out,
        )


def _read(lines: Any, played: Played, ready: threading.Event) -> None:
    for line in lines:
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        if event["event"] == "ready":
            ready.set()
        elif event["event"] == "sent":
            played.sent.add(event["id"])
        else:
            played.said.setdefault(event["id"], []).append((event["decision"], event["is_answer"]))


@dataclass(slots=True)
class Compared:
    """One release: numbers of transactions, and what is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def compare(played: Played, root: Path) -> Compared:
    """Compare the traces, states and causes of a store with what its client reported and what passed the proxy."""
    store, found = open_store(root), Compared()
    traces: dict[str, list[tuple[str, bool]]] = {}
    for row in sorted(scan_traces(store).table().to_pylist(), key=lambda row: int(row["time_ms"])):
        if row["kind"] == "decided":
            traces.setdefault(row["transaction_id"], []).append((row["decision"], row["is_check_answer"]))
    reading = audit([store], lambda one: broker_settings(one, conf=CONF, version=played.version))
    table = reading.table()
    causes = dict(zip(table["transaction_id"].to_pylist(), diagnosed_each(table, reading.evidence), strict=True))
    rows = {row["transaction_id"]: row for row in table.to_pylist()}
    for identity in sorted(played.sent):
        said, passed = played.said[identity], played.passed.get(identity, [])
        if traces.get(identity) != said:
            found.wrong.append(f"{identity}: said {said}, the trace has {traces.get(identity)}")
        decided = next((one for one in passed if one != "UNKNOWN"), None)
        state = {"COMMIT": "COMMITTED", "ROLLBACK": "ROLLED_BACK", None: "DISCARDED"}[decided]
        if rows[identity]["state"] != state:
            found.wrong.append(f"{identity}: {rows[identity]['state']} instead of {state}; {passed}")
        last = said[-1][0]
        strengths = {one["cause"]: one["strength"] for one in causes[identity]}
        kind, expected = _expected(decided, last)
        found.counts[kind] += 1
        got = {word: strengths.get(word) for word in ("decision-lost-on-the-way", "producer-answered-unknown")}
        if kind == "rollback lost" and got["decision-lost-on-the-way"] == "could_explain":
            found.counts["rollback lost, could explain"] += 1
            got["decision-lost-on-the-way"] = "explains"
        if got != expected or {"producer-not-connected", "answered-otherwise"} & set(strengths):
            found.wrong.append(f"{identity}: {kind}: {strengths}; said {said}, passed {passed}")
    return found


def _expected(decided: str | None, last: str) -> tuple[str, dict[str, str | None]]:
    """What was played, and the causes that it must have."""
    lost = "explains" if decided is None and last != "UNKNOWN" else None
    unknown = "explains" if decided is None and last == "UNKNOWN" else None
    kind = "recorded" if decided is not None else f"{last.lower()} lost" if lost else "answered unknown"
    return kind, {"decision-lost-on-the-way": lost, "producer-answered-unknown": unknown}


def table_lines(results: dict[str, Compared]) -> list[str]:
    """The table of the page."""
    lines = [
        "| release | transactions | decision recorded | COMMIT lost | ROLLBACK lost (explained) | answered UNKNOWN | "
        "outcome or cause wrong |", "|---|---|---|---|---|---|---|",
    ]
    for version, one in results.items():
        counts = one.counts
        total = sum(counts[name] for name in ("recorded", "commit lost", "rollback lost", "answered unknown"))
        explained = counts["rollback lost"] - counts["rollback lost, could explain"]
        lines.append(
            f"| {version} | {total} | {counts['recorded']} | {counts['commit lost']} | {counts['rollback lost']} "
            f"({explained}) | {counts['answered unknown']} | {len(one.wrong)} |"
        )
    return lines


def main() -> int:
    """Play, compare, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--count", type=int, default=75)
    parser.add_argument("--seed", type=int, default=36)
    parser.add_argument("--page", action="store_true", help="write the table of docs/formats/traces.md")
    parser.add_argument("--keep", type=Path, help="directory for the stores")
    asked = parser.parse_args()
    results: dict[str, Compared] = {}
    with tempfile.TemporaryDirectory() as name:
        for version in asked.versions.split(","):
            out = (asked.keep or Path(name)) / version
            played = play(version, asked.count, asked.seed, out)
            results[version] = compare(played, out / "store")
            print(version, dict(results[version].counts), *results[version].wrong, sep="\n  ", flush=True)
    if asked.page:
        text = PAGE.read_text("utf-8")
        begin, _, rest = text.partition(MARK)
        _, _, end = rest.partition(MARK)
        table = "\n".join(table_lines(results))
        PAGE.write_text(f"{begin}{MARK}\n\n{table}\n\n{MARK}{end}", "utf-8")
    return 1 if any(one.wrong for one in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

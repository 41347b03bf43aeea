"""Compare what real brokers do next with what was said before; `python -m tests.brokers.next_events`.

A copy of a store of the corpus, in some cases damaged, is read by `audit`, `pending` and `show` with the configuration
that its broker gets. Then the broker starts on the copy, with producers of the store's groups that answer UNKNOW, and
runs two rounds of its check. What happened to each transaction is taken from the broker and its clients alone: new
half copies, discard copies, checks that the producers got, the half cursor, and the records that are left in the log.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from rmqtx.readers.model import clock
from tests.brokers import corpus, maven
from tests.brokers.rig import CHECK_GROUP, DISCARD_TOPIC, HALF_TOPIC, Event, Rig
from tests.brokers.rocks_stage import DROPPED
from tests.brokers.staged_broker import LOGGED
from tests.brokers.starts.__main__ import today
from tests.brokers.starts.compare import OF_THIS_MACHINE
from tests.brokers.test_check_loop import logged_cursors
from tests.forge import damage

VERSIONS = ("4.4.0", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
#: Long enough that producers are connected before the first round, also on a busy machine.
INTERVAL_MS = 12_000
ROUNDS, ROUND_SECONDS, PATIENCE_SECONDS = 2, 4.0, 150.0
#: No half is young, none too old, none has used up its checks.
ALL_ASKED = {
    "transactionTimeOut": "1000", "transactionCheckInterval": str(INTERVAL_MS), "transactionCheckMax": "100",
    "fileReservedTime": "100000",
}
TOO_OLD = ALL_ASKED | {"fileReservedTime": "1"}
ONE_CHECK = ALL_ASKED | {"transactionCheckMax": "1"}
SLOT = struct.Struct(">qiq")
FILLER = SLOT.pack(0, 0x7FFFFFFF, 0)
RANDOM_BYTES = 3_000
ZEROED = 4
#: Not compared: the commands say that they do not know.
UNKNOWN = "unknown"

Row = dict[str, Any]


def _newest(row: Row) -> Row:
    """The newest half copy of a row of `audit`."""
    found: Row = max(row["half_copies"], key=lambda copy: copy["commit_log_offset"])
    return found


def _as_is(_root: Path, _rows: list[Row]) -> str:
    return ""


def _fillers(root: Path, rows: list[Row]) -> str:
    """Put fillers into a half queue slot in the middle of the open ones, and into the next slot."""
    places = sorted(_newest(row)["queue_offset"] for row in rows)
    first = places[len(places) // 2]
    for place in (first, first + 1):
        damage.write_bytes(damage.queue_files(root, HALF_TOPIC)[0], place * SLOT.size, FILLER)
    return f", fillers in half queue slots {first} and {first + 1}"


def _random_bytes(root: Path, rows: list[Row]) -> str:
    """Overwrite a part of the log before the later ones of the open halves."""
    places = sorted(_newest(row)["commit_log_offset"] for row in rows)
    end = places[len(places) // 2]
    file = next(file for file in reversed(damage.log_files(root)) if int(file.name) <= end)
    within = end - int(file.name)
    begin = next(place for place, _ in damage.records_in(file) if place >= within - RANDOM_BYTES)
    damage.write_bytes(file, begin, Random(30).randbytes(within - begin))
    return f", {within - begin} random bytes from {int(file.name) + begin} of the log on"


def _no_last_slots(root: Path, rows: list[Row]) -> str:
    """Zero the last slots of the half queue: their records are only in the log, and the next start enters them."""
    end = max(_newest(row)["queue_offset"] for row in rows) + 1
    damage.zero_bytes(damage.queue_files(root, HALF_TOPIC)[-1], (end - ZEROED) * SLOT.size, ZEROED * SLOT.size)
    return f", half queue slots {end - ZEROED} to {end - 1} zeroed"


def _short_log_file(root: Path, _rows: list[Row]) -> str:
    """Append an empty page after the last file of the log: releases from 4.5.0 on do not start on another length."""
    last = damage.log_files(root)[-1]
    name = f"{int(last.name) + last.stat().st_size:020d}"
    (last.parent / name).write_bytes(bytes(4096))
    return f", a log file {int(name)} of 4096 bytes"


def _other_word(old: bytes, new: bytes) -> Callable[[Path, list[Row]], str]:
    """Rename a property of the newest open half, which the broker then lacks."""

    def change(root: Path, rows: list[Row]) -> str:
        newest = max((_newest(row) for row in rows), key=lambda copy: copy["commit_log_offset"])
        file = next(f for f in reversed(damage.log_files(root)) if int(f.name) <= newest["commit_log_offset"])
        place = file.read_bytes().index(old + b"\x01", newest["commit_log_offset"] - int(file.name))
        damage.write_bytes(file, place, new)
        return f", half {newest['queue_offset']} without {old.decode()}"

    return change


@dataclass(frozen=True)
class Case:
    """A store of the corpus, the settings that its broker gets, and what is done to the store before."""

    store: str
    conf: dict[str, str]
    change: Callable[[Path, list[Row]], str] = _as_is

    @property
    def settings(self) -> str:
        """The settings that decide between the events."""
        return f"{self.conf['transactionCheckMax']}, {self.conf['fileReservedTime']}"


def cases(version: str) -> Iterator[Case]:
    """The cases of a release."""
    if version == "4.4.0":
        yield Case("poison-4.4.0", ALL_ASKED)
        return
    yield Case(f"killed-{version}", ALL_ASKED)
    yield Case(f"common-{version}", TOO_OLD)
    yield Case(f"common-{version}", ONE_CHECK)
    yield Case(f"common-{version}", ALL_ASKED, _fillers)
    yield Case(f"common-{version}", ALL_ASKED, _random_bytes)
    yield Case(f"common-{version}", ALL_ASKED, _no_last_slots)
    yield Case(f"common-{version}", ALL_ASKED, _other_word(b"PGROUP", b"PGROUX"))
    yield Case(f"common-{version}", ALL_ASKED, _other_word(b"REAL_TOPIC", b"REAL_TOPIX"))
    yield Case(f"common-{version}", ALL_ASKED, _short_log_file)
    if version == "5.5.0":
        yield Case("noroom-5.5.0", ALL_ASKED)
        yield Case("noroom-5.5.0", TOO_OLD)
        yield Case("rocksdb-5.5.0", ALL_ASKED)
        yield Case("rocksdb-5.5.0", ONE_CHECK)


def said_by(command: str, root: Path, conf: Path, version: str, *more: str) -> list[Row]:
    """The rows of a command of rmqtx, as its user gets them."""
    arguments = [command, *more, "--broker-conf", str(conf), "--broker-version", version, "--format", "json"]
    where = ["--store", str(root)] if command == "show" else [str(root)]
    program = Path(sys.executable).with_name("rmqtx")
    found = subprocess.run([program, *arguments, *where], capture_output=True, check=False)
    rows: list[Row] = json.loads(found.stdout)
    return rows


def _name(copy: Event) -> str:
    """The transaction id of a copy, else its key: a half from a client without ids has only that."""
    found: str = copy["properties"].get("UNIQ_KEY") or copy["properties"].get("KEYS", "")
    return found


@dataclass(frozen=True)
class Seen:
    """What a broker did on a store.

    Shape: `asked`: the transactions that its producers got checks of. `written`: its half and discard copies since its
           start, in the order of the log. `discarded`: what it logged as discarded, with the number of checks: a copy
           without room for its properties, or of a release before 4.5.2, is not written. `dropped`: what it logged as
           dropped from RocksDB. `begin` and `end`: its half cursor before the start and at the end. `left`: where the
           records of its log begin.
    """

    asked: set[str]
    written: list[Event]
    discarded: dict[str, int]
    dropped: set[str]
    begin: int
    end: int
    left: set[int]

    def event(self, row: Row, checks_max: int) -> str:
        """What happened first to a transaction, in the words of `next_event`.

        If nothing happened to a transaction without an end, it is `cut` if its newest half is not in the log any more,
        `skipped` if the check has passed this half now, `stopped` if it has not.
        """
        names, newest = {row["transaction_id"], row["keys"]}, _newest(row)
        first = next((one for one in self.written if _name(one) in names), None)
        if first is None and names & self.discarded.keys():
            return "discarded" if self.discarded[(names & self.discarded.keys()).pop()] >= checks_max else "expired"
        if first is not None and first["topic"] == DISCARD_TOPIC:
            checks = int(first["properties"].get("TRANSACTION_CHECK_TIMES", 0))
            return "discarded" if checks >= checks_max else "expired"
        if names & self.asked:
            return "asked"
        if first is not None:
            return "put_back"
        if names & self.dropped:
            return "dropped"
        has_end = row["state"] not in ("PENDING", "LOST") and row["next_event"] == "none"
        if has_end or newest["queue_offset"] < self.begin:
            return "none"
        if newest["commit_log_offset"] not in self.left:
            return "cut"
        return "skipped" if self.end > newest["queue_offset"] else "stopped"


def observed(rig: Rig, rows: list[Row]) -> Seen:
    """Start a broker on its store, let it check for two rounds, and stop it; nothing happens if it does not start."""
    checks: list[Event] = []
    half_end = max((copy["queue_offset"] + 1 for row in rows for copy in row["half_copies"]), default=0)
    topic = next(row["topic"] for row in rows if row["topic"])
    begin_ms, begin = clock.now_ms(), _stored_half_cursor(rig.store)
    rig.start_names()
    agent = rig.agent(on_event=lambda event: checks.append(event) if event["event"] == "check" else None)
    try:
        rig.start_broker()
    except RuntimeError as error:
        if "ended with" not in str(error):
            raise
        agent.kill()
        return Seen(set(), [], {}, set(), begin, begin, _records_left(rig.store))
    rig.wait_broker(agent)
    for group in sorted({row["producer_group"] for row in rows if row["producer_group"]}):
        agent.do("producer", group=group, topic=topic)
        # a 5.x client tells a broker of its group only after it has sent something there
        agent.start("send", group=group, topic=topic, kind="ordinary", case="hello", plan="hello", body="aGVsbG8=")
    end = time.monotonic() + PATIENCE_SECONDS
    if rig.conf.get("transRocksDBEnable") == "true":  # its check logs no cursors, and begins at once
        end = time.monotonic() + ROUNDS * INTERVAL_MS / 1_000
    while len(logged_cursors(rig.out)) < ROUNDS and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(ROUND_SECONDS)
    # Where fillers hinder the reading of the older slots, the new ones are read from the old end on.
    places = ((HALF_TOPIC, 0), (HALF_TOPIC, half_end), (DISCARD_TOPIC, 0))
    copies = {one["commit_log_offset"]: one for topic, offset in places for one in rig.pull(agent, topic, 0, offset)}
    cursor = rig.cursor(agent, HALF_TOPIC) or 0
    rig.stop("broker")
    agent.kill()
    text = "".join(log.read_text(encoding="utf-8", errors="replace") for log in sorted(rig.out.rglob("*.log")))
    asked = {one["transaction_id"] or _name(copies[one["commit_log_offset"]]) for one in checks}
    written = [copies[place] for place in sorted(copies) if copies[place]["store_time_ms"] >= begin_ms]
    return Seen(
        asked, written, dict(_discards_in(text)),
        {found[3] for found in DROPPED.finditer(text)}, begin, cursor, _records_left(rig.store),
    )


def _records_left(root: Path) -> set[int]:
    """Where the records of a log begin."""
    return {int(file.name) + place for file in damage.log_files(root) for place, _ in damage.records_in(file)}


def _discards_in(text: str) -> Iterator[tuple[str, int]]:
    """Transactions that a broker logs as discarded, and their number of checks."""
    for line in text.splitlines():
        name, checks = LOGGED["uniq"].search(line), LOGGED["checks"].search(line)
        if "has been checked too many times" in line and name is not None:
            yield name[1], int(checks[1]) if checks is not None else 0


def _stored_half_cursor(root: Path) -> int:
    """The half cursor in the configuration of a stopped broker; 0 if it has none."""
    file = root / "config" / "consumerOffset.json"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = re.search(f'"{HALF_TOPIC}@{CHECK_GROUP}":\\s*\\{{\\s*"?0"?:\\s*(\\d+)', text)
    return int(found[1]) if found else 0


@dataclass
class Result:
    """A case of a release.

    Shape: `counts`: transactions by what was said, and of these, by what happened. `differences`: sentences.
    """

    version: str
    case: Case
    made: str
    counts: dict[tuple[str, str], Counter[str]]
    differences: list[str]


def compare(version: str, case: Case, out: Path) -> Result:
    """Read a store, start its broker on it, and compare."""
    root = corpus.unpack(case.store, out)
    conf = {k: v for k, v in corpus.recipe(case.store)["broker_conf"].items() if k not in OF_THIS_MACHINE} | case.conf
    result = Result(version, case, "", defaultdict(Counter), [])
    with Rig(version, out, conf) as rig:
        given = out / "given.conf"
        given.write_text("".join(f"{name}={value}\n" for name, value in rig.full_conf().items()))
        before = said_by("audit", root, given, version)
        result.made = case.change(root, [row for row in before if row["state"] == "PENDING"])
        rows = said_by("audit", root, given, version)
        looked_up = {row["transaction_id"]: row for row in said_by("pending", root, given, version)}
        shown = {row["next_event"]: row for row in rows}
        for row in shown.values():
            (one,) = said_by("show", root, given, version, row["transaction_id"])
            _differ(result, "show", row, one)
        for row in rows:
            _differ(result, "pending", row, looked_up.get(row["transaction_id"], row))
            if row["state"] == "PENDING" and row["transaction_id"] not in looked_up:
                result.differences.append(f"pending does not have {row['transaction_id']}")
        seen = observed(rig, rows)
    for row in rows:
        if row["next_event"] == UNKNOWN:
            continue
        happened = seen.event(row, int(case.conf["transactionCheckMax"]))
        result.counts[row["next_event"], f"{row['state']} {row['advice']}"][happened] += 1
        if happened != row["next_event"]:
            what = f"{row['transaction_id']} {row['state']}, half queue offset {_newest(row)['queue_offset']}"
            result.differences.append(f"{what}: {row['next_event']} said, {happened} happened")
    return result


def _differ(result: Result, command: str, row: Row, other: Row) -> None:
    for name in ("state", "next_event", "advice", "answer_effect", "flags"):
        if row[name] != other[name]:
            where = f"{row['transaction_id']}: {name}"
            result.differences.append(f"{where} {row[name]} in audit, {other[name]} in {command}")


def table(results: list[Result]) -> str:
    """The table of docs/deadlines.md."""
    lines = [
        f"Compared on {today()}.", "",
        "| broker | store | checks, hours | forecast | transactions | `PENDING` | happened so |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in results:
        for said in sorted({said for said, _ in one.counts}):
            happened: Counter[str] = Counter()
            pending = 0
            for (word, what), counts in one.counts.items():
                if word == said:
                    happened += counts
                    pending += counts.total() * what.startswith("PENDING")
            others = "".join(f", `{word}` {count}" for word, count in sorted(happened.items()) if word != said)
            cells = (one.version, one.case.store + one.made, one.case.settings, f"`{said}`", str(happened.total()),
                     str(pending or ""), f"{happened[said]}{others}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Compare, and print the table; exit status 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.next_events", description=__doc__)
    parser.add_argument("--versions", nargs="+", choices=VERSIONS, default=VERSIONS)
    parser.add_argument("--only", type=int, nargs="+", help="only the cases with these numbers, from 0")
    options = parser.parse_args()
    why_not = maven.why_not()
    if why_not is not None:
        print(f"no broker can be run: {why_not}", file=sys.stderr)
        return 1
    results = []
    for version in options.versions:
        for number, case in enumerate(cases(version)):
            if options.only is not None and number not in options.only:
                continue
            with tempfile.TemporaryDirectory(prefix="rmqtx-next-events-") as directory:
                one = compare(version, case, Path(directory))
            results.append(one)
            print(version, number, case.store, one.made, dict(one.counts), file=sys.stderr)
            print(*one.differences, sep="\n", file=sys.stderr, flush=True)
    print(table(results))
    return 1 if any(one.differences for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())

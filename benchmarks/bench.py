"""What all measurements share: the stores, the turns, and the commands whose answers are compared with the truth."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import big_store, rocketmq
from benchmarks.measure import Command, CommandFailed, Measured, in_turns

#: The folders of a checkout with the packages of the library that commands import.
LIBRARY_FOLDERS = ("readers", "verdicts", "remoting", "repairs", "spark_tasks")
#: Programs that run longer than about 20 s run at most this number of times, and one disturbed turn is repeated.
LONG_TURNS = 3


class Bench:
    """Shared by all measurements: the stores, the number of turns, a place for results, a line for progress."""

    def __init__(self, stores: Path, turns: int, patience_s: float, retries: int, scratch: Path) -> None:
        self.stores = stores
        self.turns = turns
        self.patience_s = patience_s
        self.retries = retries
        self.scratch = scratch
        self.began = time.monotonic()
        self.shares: list[float] = []  # of other processes, of each measured command

    def say(self, text: str) -> None:
        """One line of progress."""
        print(f"[{time.monotonic() - self.began:6.0f} s] {text}", file=sys.stderr, flush=True)

    def store(self, name: str) -> Path:
        """Return the path of a store."""
        return self.stores / name

    def truth(self, name: str) -> big_store.Truth:
        """Return the truth of a store."""
        return big_store.truth_of(self.store(name))

    def measure(self, commands: Sequence[Command], turns: int | None = None, warm_up: int = 1) -> list[Measured]:
        """Run the commands in turns, as `measure.in_turns`, and record the disturbance of each."""
        return self._measured(commands, turns or self.turns, warm_up, self.retries)

    def measure_long(self, commands: Sequence[Command], turns: int = LONG_TURNS) -> list[Measured]:
        """Run commands that take long in turns, without a warm-up: at most LONG_TURNS times."""
        return self._measured(commands, min(turns, self.turns), 0, min(self.retries, 1))

    def _measured(self, commands: Sequence[Command], turns: int, warm_up: int, retries: int) -> list[Measured]:
        measured = in_turns(
            commands, turns, warm_up=warm_up, patience_s=self.patience_s, retries=retries, say=self.say
        )
        self.shares += [one.others_share for one in measured if one.runs]
        return measured

    def pending(self, name: str, place: str | None = None, environment: Mapping[str, str] | None = None) -> Command:
        """Return `rmqtx pending STORE`, with its answer compared with the truth. `place`: where, if not on disk."""
        expected = self.truth(name).pending_ids

        def check(output: str) -> None:
            rows = [json.loads(line) for line in output.splitlines()]
            found = {row["transaction_id"] for row in rows if row["state"] == "PENDING"}
            if found != expected:
                raise CommandFailed(
                    f"pending {name}: {len(expected - found)} missing, {len(found - expected)} too many"
                )

        words = [*rmqtx(), "pending", place or str(self.store(name)), "--format", "jsonl"]
        return Command(f"rmqtx pending {name}", words, check, environment)

    def show(self, name: str) -> Command:
        """Return `rmqtx show` of the middle one of the pending transactions, compared with the truth."""
        copies = self.truth(name).open_copies
        identity = list(copies)[len(copies) // 2]

        def check(output: str) -> None:
            (row,) = [json.loads(line) for line in output.splitlines()]
            places = [copy["commit_log_offset"] for copy in row["half_copies"]]
            found = (row["transaction_id"], row["state"], (min(places), max(places)))
            if found != (identity, "PENDING", copies[identity]):
                raise CommandFailed(f"show {name}: {found}, the truth is PENDING at {copies[identity]}")

        words = [*rmqtx(), "show", identity, "--store", str(self.store(name)), "--format", "jsonl"]
        return Command(f"rmqtx show {name}", words, check)

    def check(self, name: str) -> Command:
        """Return `rmqtx check STORE`, compared with the truth; from its second run on nothing is new."""
        truth = self.truth(name)

        def check(output: str) -> None:
            answer: dict[str, Any] = json.loads(output)
            (store,) = answer["stores"]
            found = (answer["pending_count"], store["half_next_offset"], store["discard_max_offset"])
            if found != (truth.pending, truth.half_cursor, truth.discarded):
                raise CommandFailed(f"check {name}: {found}, not the truth")
            if answer["newly_lost"] or answer["newly_vanished"] or answer["newly_discarded_count"]:
                raise CommandFailed(f"check {name} reports a change of a store that has not changed")

        state = str(self.scratch / "state")
        words = [*rmqtx(), "check", str(self.store(name)), "--format", "json", "--state-dir", state]
        # Its oldest transaction is old, so it is CRITICAL.
        return Command(f"rmqtx check {name}", words, check, statuses=(0, 1, 2))

    def java_pending(self, name: str, work: str = "pending") -> Command:
        """Return the Java loop over the log, with its answer compared with the truth."""
        expected = self.truth(name).pending_ids
        out = self.scratch / f"java-{work}-{name}.tsv"

        def check(_: str) -> None:
            found = {line.split("\t", 1)[0] for line in out.read_text().splitlines()[1:]}
            if found != expected:
                raise CommandFailed(f"JavaScan {work} {name}: not the truth")

        return Command(f"Java loop, {work}, {name}", rocketmq.java("JavaScan", self.store(name), work, out), check)

    def audit(self, name: str, suffix: str, *options: str, with_accelerator: bool = True) -> Command:
        """Return `rmqtx audit` of a store into a file, with the count of each state compared with the truth."""
        expected = {state: count for state, count in self.truth(name).states().items() if count}
        out = self.scratch / f"audit.{suffix}"

        def check(_: str) -> None:
            counter = [sys.executable, "-m", "benchmarks.count_states", str(out)]
            found = json.loads(subprocess.run(counter, capture_output=True, text=True, check=True).stdout)
            out.unlink()
            if found != expected:
                raise CommandFailed(f"audit {name}: {found}, the truth is {expected}")

        title = f"rmqtx audit {name}, {suffix}" + "".join(f" {option}" for option in options)
        title += "" if with_accelerator else ", no accelerator"
        start = [*rmqtx(with_accelerator=with_accelerator), "audit", str(self.store(name)), "--format", suffix]
        return Command(title, [*start, "-o", str(out), *options], check)

    def api_audit(self, name: str) -> Command:
        """Return `audit` of a store by the library into a file, as `audit`; with the same check."""
        command = self.audit(name, "parquet")
        return replace(
            command, name=f"rmqtx.open({name!r}).audit() to parquet",
            words=[sys.executable, "-m", "benchmarks.api_audit", *map(str, (self.store(name), command.words[-1]))],
        )

    def api_rows(self, name: str) -> Command:
        """Return the iteration over all typed rows of an audit by the library, compared with the truth."""
        expected = {state: count for state, count in self.truth(name).states().items() if count}

        def check(output: str) -> None:
            if json.loads(output) != expected:
                raise CommandFailed(f"rows of {name}: {output}, the truth is {expected}")

        words = [sys.executable, "-m", "benchmarks.api_audit", str(self.store(name))]
        return Command(f"for row in rmqtx.open({name!r}).audit()", words, check)

    def audit_summary(self, name: str) -> Command:
        """Return `rmqtx audit --summary`, with the sums of its counts compared with the truth."""
        expected = self.truth(name).states()

        def check(output: str) -> None:
            rows = json.loads(output)
            found = {state: sum(row[f"{state.lower()}_count"] for row in rows) for state in expected}
            if found != expected:
                raise CommandFailed(f"audit {name} --summary: {found}, the truth is {expected}")

        words = [*rmqtx(), "audit", str(self.store(name)), "--summary", "--format", "json"]
        return Command(f"rmqtx audit {name} --summary", words, check)


def rmqtx(*, with_accelerator: bool = True) -> list[str]:
    """Return the command that starts rmqtx with this interpreter: the installed script, else the module it calls.

    Without the accelerator it runs as if numba were not installed.
    """
    script = Path(sys.executable).with_name("rmqtx")
    if script.exists() and with_accelerator:
        return [str(script)]
    hidden = "" if with_accelerator else "sys.modules['numba'] = None; "
    start = "sys.argv[0] = 'rmqtx'; from rmqtx_cli.main import run; run()"
    return [sys.executable, "-c", f"import sys; {hidden}{start}"]


def imports(*modules: str) -> Command:
    """Return an interpreter that only imports modules."""
    program = f"import {', '.join(modules)}" if modules else "pass"
    return Command(f"python -c '{program}'", [sys.executable, "-c", program])


def compile_modules() -> None:
    """Compile rmqtx's modules: a start that compiles them takes twice as long.

    An interpreter with PYTHONDONTWRITEBYTECODE compiles them at each start, and others after each change.
    """
    # Each by itself: compileall follows no links.
    names = ("rmqtx", *(f"rmqtx.{one}" for one in LIBRARY_FOLDERS), "rmqtx_cli", "benchmarks")
    found = [importlib.util.find_spec(name) for name in names]
    places = [place for spec in found if spec is not None for place in spec.submodule_search_locations or ()]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *places], check=True)


def has_package(name: str) -> bool:
    """Whether a distribution is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True

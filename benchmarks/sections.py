"""The measurements: each returns a table, its targets, and remarks.

Every timed answer is compared with the truth of its store: a fast wrong answer fails the measurement.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from benchmarks import big_store, mqadmin, rocketmq
from benchmarks.measure import Command, CommandFailed, Measured, fill_page_cache, in_turns, ratio

SLOW_IMPORTS = ("numpy", "pyarrow", "pandas", "pyspark", "numba")
MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """One target: what is measured, its bound, the measured value, and whether it meets the bound."""

    what: str
    bound: str
    value: str
    kept: bool


@dataclass
class Section:
    """One table of the report, with its targets and remarks."""

    title: str
    intro: str
    header: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Bench:
    """Shared by all measurements: the stores, the number of turns, a place for results, a line for progress."""

    def __init__(self, stores: Path, turns: int, patience_s: float, retries: int, scratch: Path) -> None:
        self.stores = stores
        self.turns = turns
        self.patience_s = patience_s
        self.retries = retries
        self.scratch = scratch
        self.began = time.monotonic()
        self.others_share = 0.0

    def say(self, text: str) -> None:
        """One line of progress."""
        print(f"[{time.monotonic() - self.began:6.0f} s] {text}", file=sys.stderr, flush=True)

    def store(self, name: str) -> Path:
        """Return the path of a store."""
        return self.stores / name

    def measure(
        self, commands: Sequence[Command], turns: int | None = None, warm_up: int = 1
    ) -> list[Measured]:
        """Run the commands in turns, as `measure.in_turns`; keep the worst disturbance of all."""
        measured = in_turns(
            commands,
            turns or self.turns,
            warm_up=warm_up,
            patience_s=self.patience_s,
            retries=self.retries,
            say=self.say,
        )
        self.others_share = max(self.others_share, *(one.others_share for one in measured))
        return measured

    def pending(self, name: str, *options: str) -> Command:
        """Return `rmqtx pending STORE`, with its answer compared with the truth."""
        expected = big_store.truth_of(self.store(name)).pending_ids

        def check(output: str) -> None:
            rows = [json.loads(line) for line in output.splitlines()]
            found = {row["transaction_id"] for row in rows if row["state"] == "PENDING"}
            if found != expected:
                raise CommandFailed(
                    f"pending {name}: {len(expected - found)} missing, {len(found - expected)} too many"
                )

        words = [*rmqtx(), "pending", str(self.store(name)), "--format", "jsonl", *options]
        return Command(" ".join(["rmqtx pending", name, *options]), words, check)

    def java_pending(self, name: str, work: str) -> Command:
        """Return the Java loop over the log, with its answer compared with the truth."""
        expected = big_store.truth_of(self.store(name)).pending_ids
        out = self.scratch / f"java-{work}-{name}.tsv"

        def check(_: str) -> None:
            found = {line.split("\t", 1)[0] for line in out.read_text().splitlines()[1:]}
            if found != expected:
                raise CommandFailed(f"JavaScan {work} {name}: not the truth")

        return Command(
            f"Java loop, {work}, {name}", rocketmq.java("JavaScan", self.store(name), work, out), check
        )


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


PROCESS_HEADER = ("process", "wall median", "wall best", "CPU", "peak RSS", "peak anonymous", "others")


def process_rows(measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    """A table's rows about whole processes."""
    return [
        (
            one.name,
            seconds(one.wall_s),
            seconds(one.best_wall_s),
            seconds(one.cpu_s),
            mebibytes(one.peak_rss_bytes),
            mebibytes(one.peak_anonymous_bytes),
            f"{one.others_share:.0%}",
        )
        for one in measured
    ]


def seconds(value: float) -> str:
    """Return seconds as text, with the significant digits."""
    return f"{value:.3f} s" if value < 1 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def mebibytes(value: float) -> str:
    """Bytes as text in MiB."""
    return f"{value / MIB:,.0f} MiB"


def at_most(what: str, measured: float, bound: float, show: Callable[[float], str]) -> Target:
    """Return a target with an upper bound."""
    return Target(what, f"≤ {show(bound)}", show(measured), measured <= bound)


def at_least(what: str, measured: float, bound: float, show: Callable[[float], str]) -> Target:
    """Return a target with a lower bound."""
    return Target(what, f"≥ {show(bound)}", show(measured), measured >= bound)


def times(value: float) -> str:
    """A ratio as text."""
    return f"{value:.2f} ×"


def rate(value: float) -> str:
    """Bytes of log per second of processor time as text, in MB."""
    return f"{value / 1e6:,.0f} MB/s"


def start_up(bench: Bench) -> Section:
    """`rmqtx --help` and what it imports."""
    intro = "`rmqtx --help`, compared with an interpreter that imports Typer, and with one that does nothing."
    section = Section("Start-up", intro, PROCESS_HEADER)
    commands = [Command("rmqtx --help", [*rmqtx(), "--help"]), imports("typer"), imports()]
    measured = bench.measure(commands, turns=max(bench.turns, 9), warm_up=2)
    section.rows = process_rows(measured)
    ours, typer, _ = measured
    section.targets.append(at_most("`rmqtx --help` to `import typer`, CPU", ratio(ours, typer, "cpu_s"), 1.6, times))
    loaded = ", ".join(imported_by_help()) or "none"
    watched = ", ".join(SLOW_IMPORTS)
    section.targets.append(Target(f"imports of {watched}", "none", loaded, loaded == "none"))
    return section


def imports(*modules: str) -> Command:
    """Return an interpreter that only imports modules."""
    program = f"import {', '.join(modules)}" if modules else "pass"
    return Command(f"python -c '{program}'", [sys.executable, "-c", program])


def imported_by_help() -> list[str]:
    """Return the slow modules that `rmqtx --help` imports."""
    program = (
        "import sys, atexit\n"
        f"slow = {SLOW_IMPORTS!r}\n"
        "say = lambda: print('loaded', *[name for name in slow if name in sys.modules], file=sys.stderr)\n"
        "atexit.register(say)\n"
        "sys.argv = ['rmqtx', '--help']\n"
        "from rmqtx_cli.main import run\n"
        "run()\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return result.stderr.splitlines()[-1].split()[1:]


def pending_small(bench: Bench) -> Section:
    """Measure `pending` on a small store and mqadmin."""
    section = Section(
        "`pending` on a small store",
        "The whole process, compared with RocketMQ's own command line: alone (its list of subcommands) and with the "
        "cheapest request to a broker. mqadmin cannot list transactions at all.",
        PROCESS_HEADER,
    )
    with (
        tempfile.TemporaryDirectory(prefix="rmqtx-mqadmin-") as directory,
        mqadmin.running(Path(directory)) as one,
    ):
        commands = [bench.pending("S"), imports("numpy", "pyarrow"), one.help(), one.broker_status()]
        measured = bench.measure(commands)
    section.rows = process_rows(measured)
    small, libraries, alone, status = measured
    what = "`pending` on S to `import numpy, pyarrow`, CPU"
    section.targets.append(at_most(what, ratio(small, libraries, "cpu_s"), 2.5, times))
    section.targets.append(at_most("`pending` on S, resident memory", small.peak_rss_bytes, 80 * MIB, mebibytes))
    section.notes.append(
        f"`mqadmin` alone takes {times(ratio(alone, small))} as long as rmqtx with its answer, "
        f"`mqadmin brokerStatus` {times(ratio(status, small))}: it prints its answer after "
        f"{seconds(status.answered_s)}, then waits for its own threads to end. rmqtx has printed after "
        f"{seconds(small.answered_s)}."
    )
    return section


def pending_large(bench: Bench) -> Section:
    """Measure `pending` by the derived files and the Java loop over the log."""
    section = Section(
        "`pending` by the derived files",
        "Whole processes, page cache warm. The Java loop reads the log with the official MessageDecoder on "
        "one thread and keeps half messages without an op message; *pendingpeek* decodes only records of the system "
        "topics.",
        PROCESS_HEADER,
    )
    for name, turns in (("M", bench.turns), ("L", max(1, bench.turns // 2))):
        fill_page_cache(bench.store(name))
        ours, decoding, peeking = bench.measure(
            [
                bench.pending(name),
                bench.java_pending(name, "pending"),
                bench.java_pending(name, "pendingpeek"),
            ],
            turns=turns,
            warm_up=1 if name == "M" else 0,
        )
        section.rows += process_rows([ours, decoding, peeking])
        bound = 5 if name == "M" else 8
        section.targets.append(at_least(f"faster than the Java loop, {name}", ratio(decoding, ours), bound, times))
        memory = f"`pending` on {name}, anonymous memory"
        section.targets.append(at_most(memory, ours.peak_anonymous_bytes, 150 * MIB, mebibytes))
        section.notes.append(f"The loop *pendingpeek* takes {times(ratio(peeking, ours))} as long on {name}.")
    return section


def pending_flat(bench: Bench) -> Section:
    """`pending` with the same open transactions in a short and in a long log."""
    section = Section(
        "`pending` is flat in the log",
        "1,000 open transactions and the same check passes in 50,000 transactions (F50k) and in 5,000,000: "
        "in R5M the open transactions are among the newest 50,000 as in F50k, in F5M they and their copies "
        "are spread over the whole log.",
        PROCESS_HEADER,
    )
    names = ("F50k", "R5M", "F5M")
    for name in names:
        fill_page_cache(bench.store(name))
    measured = bench.measure([bench.pending(name) for name in names])
    section.rows = process_rows(measured)
    section.targets.append(at_most("R5M to F50k", ratio(measured[1], measured[0]), 2, times))
    section.targets.append(at_most("F5M to F50k", ratio(measured[2], measured[0]), 1.5, times))
    return section


class _DecodeRates(NamedTuple):
    """The rates of one run of a decoder: medians over the later half of its passes; `first_pass_s` is wall time."""

    bytes_per_cpu_s: float
    bytes_per_thread_cpu_s: float
    records_per_cpu_s: float
    first_pass_s: float


def _decode_rates(program: str, output: str, records_count: int) -> _DecodeRates:
    """Return the rates that a run printed, one JSON line per pass.

    Raises: CommandFailed if a pass decoded another number of records.
    """
    lines = [json.loads(line) for line in output.splitlines()]
    if any(line["records"] != records_count for line in lines):
        raise CommandFailed(f"{program}: not all {records_count} records decoded")
    warm = lines[len(lines) // 2 :]
    cpu = statistics.median(line["process_cpu_s"] for line in warm)
    thread = statistics.median(line.get("thread_cpu_s", line["process_cpu_s"]) for line in warm)
    log_bytes, records = warm[0]["bytes"], warm[0]["records"]
    return _DecodeRates(log_bytes / cpu, log_bytes / thread, records / cpu, lines[0]["wall_s"])


def decode(bench: Bench) -> Section:
    """Measure the full decode per core, warm, and a warmed-up Java loop."""
    section = Section(
        "Full decode per core, warm",
        "Bytes of commit log (M) per second of processor time, all threads of the process counted: header "
        "columns, topic and six properties of every record as Arrow; for Java, the official decoder's object "
        "for every record, body left out. Passes repeat in one process; the median of the later half counts.",
        (
            "program",
            "per CPU second",
            "per thread CPU second",
            "records per CPU second",
            "first pass, wall",
            "others",
        ),
    )
    fill_page_cache(bench.store("M"))
    passes = 10
    decoder = [sys.executable, "-m", "benchmarks.decode_rate", str(bench.store("M")), "--passes", str(passes)]
    commands = [
        Command("Java decoder", rocketmq.java("JavaScan", bench.store("M"), "nobody", "-", str(passes))),
        Command("rmqtx, reference", [*decoder, "--engine", "reference"]),
    ]
    engines = subprocess.run([*decoder[:3], "--engines"], capture_output=True, text=True, check=True).stdout.split()
    has_accelerator = "fast" in engines
    if has_accelerator:
        commands.append(Command("rmqtx, accelerator", [*decoder, "--engine", "fast"]))
    expected = big_store.truth_of(bench.store("M"))
    medians: dict[str, list[float]] = {}
    for measured in bench.measure(commands, turns=3, warm_up=0):
        rates = [_decode_rates(measured.name, run.output, expected.records) for run in measured.runs]
        medians[measured.name] = [one.bytes_per_cpu_s for one in rates]
        middle = _DecodeRates(*(statistics.median(column) for column in zip(*rates, strict=True)))
        row = (
            measured.name,
            rate(middle.bytes_per_cpu_s),
            rate(middle.bytes_per_thread_cpu_s),
            f"{middle.records_per_cpu_s:,.0f}",
            seconds(middle.first_pass_s),
        )
        section.rows.append((*row, f"{measured.others_share:.0%}"))

    def turns_ratio(name: str) -> float:
        pairs = zip(medians[name], medians["Java decoder"], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    reference = statistics.median(medians["rmqtx, reference"])
    slower = times(turns_ratio("rmqtx, reference"))
    section.notes.append(f"The reference path decodes {rate(reference)}, {slower} the warm Java decoder's rate.")
    if has_accelerator:
        fast = statistics.median(medians["rmqtx, accelerator"])
        to_java = turns_ratio("rmqtx, accelerator")
        section.targets.append(at_least("all columns as text, to warm Java", to_java, 0.7, times))
        section.notes.append(f"The accelerator decodes {rate(fast)}.")
    else:
        section.notes.append("No accelerator here: its targets were not measured.")
    return section


def audit(bench: Bench) -> Section:
    """`audit` of the large store."""
    section = Section(
        "`audit` of 5,000,000 transactions",
        "Every transaction's state with its evidence, from 7 GB of log (L), written to a file. The Java loop keeps "
        "only pending transactions.",
        PROCESS_HEADER,
    )
    fill_page_cache(bench.store("L"))
    commands = [bench.java_pending("L", "pending"), *audit_commands(bench, "L")]
    if has_package("numba"):
        commands.append(audit_command(bench, "L", "parquet", with_accelerator=False))
    measured = bench.measure(commands, turns=max(1, bench.turns // 2), warm_up=0)
    section.rows = process_rows(measured)
    java, parquet, jsonl, summary = measured[:4]
    section.targets += [
        at_most("`audit` of L to Parquet, to the Java loop", ratio(parquet, java), 1.3, times),
        at_most("the same, CPU", ratio(parquet, java, "cpu_s"), 2.2, times),
        at_most("the same, anonymous memory", parquet.peak_anonymous_bytes, 400 * MIB, mebibytes),
        at_most("JSON lines to Parquet", ratio(jsonl, parquet), 1.8, times),
        at_most("`--summary` to Parquet", ratio(summary, parquet), 0.7, times),
    ]
    return section


def audit_commands(bench: Bench, store: str) -> list[Command]:
    """Return `rmqtx audit` of a store to Parquet, to JSON lines, and as a summary."""
    words = [*rmqtx(), "audit", str(bench.store(store)), "--summary"]
    summary = Command(f"rmqtx audit {store} --summary", words)
    return [audit_command(bench, store, "parquet"), audit_command(bench, store, "jsonl"), summary]


def audit_command(bench: Bench, store: str, suffix: str, *, with_accelerator: bool = True) -> Command:
    """Return `rmqtx audit` of a store into a file, with the count of each state compared with the truth."""
    states = big_store.truth_of(bench.store(store)).states()
    expected = {state: count for state, count in states.items() if count}
    out = bench.scratch / f"audit.{suffix}"

    def check(_: str) -> None:
        counter = [sys.executable, "-m", "benchmarks.count_states", str(out)]
        found = json.loads(subprocess.run(counter, capture_output=True, text=True, check=True).stdout)
        out.unlink()
        if found != expected:
            raise CommandFailed(f"audit {store}: {found}, the truth is {expected}")

    name = f"rmqtx audit {store}, {suffix}" + ("" if with_accelerator else ", no accelerator")
    start = rmqtx(with_accelerator=with_accelerator)
    return Command(name, [*start, "audit", str(bench.store(store)), "--format", suffix, "-o", str(out)], check)


def has_package(name: str) -> bool:
    """Whether a distribution is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


#: The measurements by the names that `--only` takes, and the stores that each needs.
SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "help": start_up,
    "small": pending_small,
    "large": pending_large,
    "flat": pending_flat,
    "decode": decode,
    "audit": audit,
}
STORES_OF = {
    "help": (),
    "small": ("S",),
    "large": ("M", "L"),
    "flat": ("F50k", "R5M", "F5M"),
    "decode": ("M",),
    "audit": ("L",),
}

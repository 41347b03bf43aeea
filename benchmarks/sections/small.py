"""What a command costs before it reads much: start-up, small stores, a check without news."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import mqadmin
from benchmarks.bench import Bench, imports, rmqtx
from benchmarks.measure import Command, ratio
from benchmarks.section import MIB, PROCESS_HEADER, Section, Target, mebibytes, seconds, times

SLOW_IMPORTS = ("numpy", "pyarrow", "pandas", "pyspark", "numba")
#: Of the CPU time that importing numpy and pyarrow takes.
SMALL_MAX = 2.5
SMALL_RESIDENT_BYTES_MAX = 80 * MIB


def start_up(bench: Bench) -> Section:
    """`rmqtx --help` and what it imports."""
    intro = "`rmqtx --help`, compared with an interpreter that imports Typer, and with one that does nothing."
    section = Section("Start-up", intro, PROCESS_HEADER)
    commands = [Command("rmqtx --help", [*rmqtx(), "--help"]), imports("typer"), imports()]
    measured = bench.measure(commands, turns=max(bench.turns, 9), warm_up=2)
    section.add_processes(measured)
    ours, typer, _ = measured
    section.at_most("`rmqtx --help` to `import typer`, CPU", ratio(ours, typer, "cpu_s"), 1.6, times)
    loaded = ", ".join(_imported_by_help()) or "none"
    watched = ", ".join(SLOW_IMPORTS)
    section.targets.append(Target(f"imports of {watched}", "none", loaded, loaded == "none"))
    return section


def _imported_by_help() -> list[str]:
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


def small_store(bench: Bench) -> Section:
    """Measure `pending`, `show` and `check` on a small store, and a `check` of a large one that has no news."""
    section = Section(
        "A small store, and a check without news",
        "`pending`, `show` and `check` on S, and `check` on L whose previous run found the same, compared with an "
        "interpreter that only imports numpy and pyarrow.",
        PROCESS_HEADER,
    )
    commands = [bench.pending("S"), bench.show("S"), bench.check("S"), bench.check("L")]
    # The warm-up is also the first run of each check, after which nothing is new.
    *measured, libraries = bench.measure([*commands, imports("numpy", "pyarrow")], turns=max(bench.turns, 7))
    section.add_processes([*measured, libraries])
    for one in measured[:3]:
        name = f"`{one.name.removeprefix('rmqtx ').split()[0]}` on S"
        section.at_most(f"{name} to `import numpy, pyarrow`, CPU", ratio(one, libraries, "cpu_s"), SMALL_MAX, times)
        section.at_most(f"{name}, resident memory", one.peak_rss_bytes, SMALL_RESIDENT_BYTES_MAX, mebibytes)
    what = "`check` on L without news"
    to_libraries = ratio(measured[3], libraries, "cpu_s")
    section.at_most(f"{what} to `import numpy, pyarrow`, CPU", to_libraries, SMALL_MAX, times)
    section.at_most(f"{what}, resident memory", measured[3].peak_rss_bytes, SMALL_RESIDENT_BYTES_MAX, mebibytes)
    return section


def mqadmin_alone(bench: Bench) -> Section:
    """Measure `pending` on a small store and mqadmin, which needs a running broker."""
    section = Section(
        "RocketMQ's command line",
        "`pending` on S, compared with `mqadmin` alone (its list of subcommands) and with the cheapest request to a "
        "broker. mqadmin cannot list transactions at all.",
        PROCESS_HEADER,
    )
    with (
        tempfile.TemporaryDirectory(prefix="rmqtx-mqadmin-") as directory,
        mqadmin.running(Path(directory)) as one,
    ):
        commands = [bench.pending("S"), one.help(), one.broker_status()]
        measured = bench.measure(commands, turns=min(3, bench.turns))
    section.add_processes(measured)
    small, alone, status = measured
    section.notes.append(
        f"`mqadmin` alone takes {times(ratio(alone, small))} as long as rmqtx with its answer, "
        f"`mqadmin brokerStatus` {times(ratio(status, small))}: it prints its answer after "
        f"{seconds(status.answered_s)}, then waits for its own threads to end. rmqtx has printed after "
        f"{seconds(small.answered_s)}."
    )
    return section

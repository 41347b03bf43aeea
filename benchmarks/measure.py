"""Measure whole processes: wall time, processor time and memory, with their children.

Two programs are compared by running them in turns (A B A B ...), so that a disturbance affects both, and by the
ratio within each turn. The share of other processes is measured too: a disturbed turn is repeated, and turns that
remained disturbed are reported.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.01
#: The kernel counts busy time in ticks: a smaller difference may be an error of measurement.
CLOCK_ERROR_SECONDS = 0.05
#: Runs longer than this are reported at their end.
LONG_SECONDS = 3.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CORES = os.cpu_count() or 1


#: No command of a report runs longer than this.
TIMEOUT_SECONDS = 900.0


class CommandFailed(RuntimeError):
    """A measured command ended with another status than expected, did not end, or gave a wrong answer."""


@dataclass(frozen=True)
class Run:
    """One process from its start to its end. Times in seconds, memory in bytes, children included."""

    wall_s: float
    answered_s: float  # until the last output, which may be well before the process ends
    cpu_s: float
    peak_rss_bytes: int
    peak_anonymous_bytes: int
    others_cpu_s: float
    others_share: float  # of the machine: 0 is none, 1 is all cores
    output: str


@dataclass(frozen=True)
class Command:
    """A command to run: its name in the report, its arguments, and the check of its output.

    `prepare`: called before each run, outside the measured time. `merges_errors`: stderr is a part of the output.
    """

    name: str
    words: Sequence[str]
    check: Callable[[str], None] | None = None
    environment: Mapping[str, str] | None = None
    statuses: tuple[int, ...] = (0,)
    prepare: Callable[[], None] | None = None
    merges_errors: bool = False
    timeout_s: float = TIMEOUT_SECONDS


@dataclass(frozen=True)
class Measured:
    """The runs of one command, in the order in which they were made.

    Shape: `failure` is the reason for the lack of runs; every number is then NaN.
    """

    name: str
    runs: tuple[Run, ...]
    failure: str = ""

    @property
    def wall_s(self) -> float:
        """Median wall time."""
        return self._over(statistics.median, "wall_s")

    @property
    def answered_s(self) -> float:
        """Median time until the last output."""
        return self._over(statistics.median, "answered_s")

    @property
    def best_wall_s(self) -> float:
        """Shortest wall time."""
        return self._over(min, "wall_s")

    @property
    def cpu_s(self) -> float:
        """Median processor time, user and system."""
        return self._over(statistics.median, "cpu_s")

    @property
    def peak_rss_bytes(self) -> float:
        """The largest resident memory of any run, mapped files included."""
        return self._over(max, "peak_rss_bytes")

    @property
    def peak_anonymous_bytes(self) -> float:
        """The largest anonymous memory of any run, which the kernel cannot drop."""
        return self._over(max, "peak_anonymous_bytes")

    @property
    def others_share(self) -> float:
        """The largest share of the machine that other processes used during any run."""
        return self._over(max, "others_share")

    def _over(self, choose: Callable[[Iterable[float]], float], name: str) -> float:
        return choose([getattr(run, name) for run in self.runs]) if self.runs else math.nan


def ratio(first: Measured, second: Measured, what: str = "wall_s") -> float:
    """Return how many times longer `first` took than `second`: the median over the turns of both.

    Shape: NaN if one of them failed. `what`: the field of `Run` that is compared.
    """
    if not first.runs or not second.runs:
        return math.nan
    pairs = zip(first.runs, second.runs, strict=True)
    return statistics.median(float(getattr(a, what) / getattr(b, what)) for a, b in pairs)


def run(command: Command) -> Run:
    """Run a command once and return its times and memory.

    Raises: CommandFailed for another status than expected, and after its `timeout_s`; any exception of `check`.
    """
    environment = {**os.environ, **command.environment} if command.environment else None
    if command.prepare is not None:
        command.prepare()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        busy = _busy_seconds()
        own = time.process_time()  # of the watcher, and of a server for the command
        began = time.perf_counter()
        process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out if command.merges_errors else err,
            env=environment,
            start_new_session=True,
        )
        watcher = _Watcher(process.pid, out.fileno(), began)
        watcher.start()
        timeout = threading.Timer(command.timeout_s, os.killpg, (process.pid, signal.SIGKILL))
        timeout.daemon = True
        timeout.start()
        try:
            # wait4, not Popen.wait: it gives this process's own times, and its children's.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            wall = time.perf_counter() - began
            timeout.cancel()
            watcher.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
        # Spark's workers are not waited for by processes of the tree: the watcher's values of them are added.
        cpu = max(usage.ru_utime + usage.ru_stime, watcher.tree_cpu_s)
        window = time.perf_counter() - began
        others = max(0.0, _busy_seconds() - busy - cpu - (time.process_time() - own))
        out.seek(0)
        err.seek(0)
        output = out.read().decode(errors="replace")
        if wall >= command.timeout_s:
            raise CommandFailed(f"{command.name}: not finished after {command.timeout_s:.0f} s")
        if process.returncode not in command.statuses:
            errors = err.read().decode(errors="replace")
            raise CommandFailed(f"{command.name}: exit {process.returncode}\n{(errors or output)[-2000:]}")
    if command.check is not None:
        command.check(output)
    return Run(
        wall_s=wall,
        answered_s=min(watcher.answered_s, wall),
        cpu_s=cpu,
        peak_rss_bytes=watcher.peak_rss,
        peak_anonymous_bytes=watcher.peak_anonymous,
        others_cpu_s=others,
        others_share=others / (window * CORES),
        output=output,
    )


def in_turns(
    commands: Sequence[Command],
    turns: int,
    *,
    warm_up: int = 1,
    patience_s: float = 30,
    share_max: float = 0.10,
    retries: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> list[Measured]:
    """Run the commands in turns and return the runs of each.

    `warm_up` turns are not counted: they fill the page cache and the caches of compiled code. A turn in which other
    processes used more than `share_max` of the machine is repeated, up to `retries` times in all; then it counts
    anyway. A command that fails once is not run again; the others are.
    """
    turn = _Turn(commands, say)
    for _ in range(warm_up):
        turn.take(reports=False)
    kept: list[list[Run | None]] = []
    while len(kept) < turns:
        wait_until_quiet(patience_s, say)
        runs = turn.take()
        made = [one for one in runs if one is not None]
        share = max((one.others_share for one in made if one.others_cpu_s > CLOCK_ERROR_SECONDS), default=0.0)
        if share > share_max and retries > 0:
            retries -= 1
            say(f"others used {share:.0%} of the machine: again")
            continue
        kept.append(runs)
        if made:
            say("  ".join(f"{c.name} {r.wall_s:.2f} s" for c, r in zip(commands, runs, strict=True) if r is not None))
    return [
        Measured(command.name, (), turn.failures[number])
        if number in turn.failures
        else Measured(command.name, tuple(run for runs in kept if (run := runs[number]) is not None))
        for number, command in enumerate(commands)
    ]


class _Turn:
    """Runs each command once, except those that have failed before."""

    def __init__(self, commands: Sequence[Command], say: Callable[[str], None]) -> None:
        self._commands = commands
        self._say = say
        self.failures: dict[int, str] = {}

    def take(self, *, reports: bool = True) -> list[Run | None]:
        """Return the run of each command; None for a command that failed."""
        return [self._run(number, command, reports) for number, command in enumerate(self._commands)]

    def _run(self, number: int, command: Command, reports: bool) -> Run | None:
        if number in self.failures:
            return None
        try:
            made = run(command)
        except Exception as error:  # a check may raise anything; the other commands are still useful
            lines = str(error).splitlines()
            self.failures[number] = lines[0] if lines else type(error).__name__
            self._say(f"{command.name} failed: {error}")
            return None
        if reports and made.wall_s > LONG_SECONDS:
            self._say(f"{command.name} {made.wall_s:.1f} s")
        return made


def wait_until_quiet(
    patience_s: float, say: Callable[[str], None] = lambda _: None, share_max: float = 0.05
) -> bool:
    """Wait until all processes together use little of the machine; return whether this happened in time."""
    until = time.monotonic() + patience_s
    told = False
    while True:
        busy = _busy_seconds()
        began = time.perf_counter()
        time.sleep(0.5)
        share = (_busy_seconds() - busy) / ((time.perf_counter() - began) * CORES)
        if share <= share_max:
            return True
        if time.monotonic() >= until:
            return False
        if not told:
            say(f"waiting for a quiet machine ({share:.0%} in use)")
            told = True


def _busy_seconds() -> float:
    """Return the busy seconds of all cores since boot."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, system_nice, system, _idle, _iowait, irq, soft_irq, steal = (int(field) for field in fields[:8])
    return (user + system_nice + system + irq + soft_irq + steal) / TICKS_PER_SECOND


class _Watcher:
    """Samples a process, its descendants and its output every few milliseconds."""

    def __init__(self, pid: int, output: int, began: float) -> None:
        self._pid = pid
        self._output = output
        self._began = began
        self._written = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_rss = 0
        self.peak_anonymous = 0
        self.answered_s = 0.0
        self._cpu_s: dict[int, float] = {}

    @property
    def tree_cpu_s(self) -> float:
        """Processor time of every process of the tree, at its last sample."""
        return sum(self._cpu_s.values())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self._look_at_output()

    def _watch(self) -> None:
        while not self._ended.is_set():
            processes = descendants(self._pid)
            states = [_memory_of(pid) for pid in processes]
            for pid in processes:
                self._cpu_s[pid] = max(self._cpu_s.get(pid, 0.0), _cpu_seconds_of(pid))
            # The high-water mark of one process is complete between samples; several marks cannot be added.
            high = max((state[2] for state in states), default=0)
            self.peak_rss = max(self.peak_rss, sum(state[0] for state in states), high)
            self.peak_anonymous = max(self.peak_anonymous, sum(state[1] for state in states))
            self._look_at_output()
            self._ended.wait(POLL_SECONDS)

    def _look_at_output(self) -> None:
        written = os.fstat(self._output).st_size
        if written > self._written:
            self._written = written
            self.answered_s = time.perf_counter() - self._began


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found.extend(int(child) for child in (task / "children").read_text().split())
        except OSError:
            continue  # it ended meanwhile
    return found


def _cpu_seconds_of(pid: int) -> float:
    """Processor time of one process without its children; 0 when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def _memory_of(pid: int) -> tuple[int, int, int]:
    """Resident, anonymous and highest resident bytes of one process; zeros when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0, 0
    wanted = ("VmRSS", "RssAnon", "VmHWM")
    values = {line.split(":", 1)[0]: line.split()[1] for line in lines if line.startswith(wanted)}
    return (
        int(values.get("VmRSS", 0)) * 1024,
        int(values.get("RssAnon", 0)) * 1024,
        int(values.get("VmHWM", 0)) * 1024,
    )

"""Processes that run tasks, and do not outlive who asked for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from readers.jobs.workers import Workers

PROGRAM = """
import os, sys, time
from readers.jobs.workers import Workers

def pid(_):
    time.sleep(0.2)
    return os.getpid()

if __name__ == "__main__":
    with Workers(2) as workers:
        print(*sorted(set(workers.run(pid, range(4)))), flush=True)
        time.sleep(60)
"""


def test_results_come_in_the_order_of_the_tasks() -> None:
    with Workers(1) as here, Workers(2) as there:
        assert list(here.run(abs, range(-3, 3))) == list(there.run(abs, range(-3, 3))) == [3, 2, 1, 0, 1, 2]


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_they_end_when_who_asked_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment) as asking:
        assert asking.stdout is not None
        processes = [int(word) for word in asking.stdout.readline().split()]
        assert len(processes) == 2
        assert all(map(is_alive, processes))
        asking.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 300
    while any(map(is_alive, processes)):
        assert time.monotonic() < deadline, "they are still there"
        time.sleep(0.05)

"""Processes that run tasks, and do not outlive who asked for them."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from rmqtx.readers.jobs.workers import Workers

TASK = """
import os, time

def pid(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    while len(os.listdir(folder)) < 2:  # until the other process has a task too
        time.sleep(0.01)
    return os.getpid()
"""
#: As a user writes it in a script: whatever imports it runs it.
PROGRAM = """
import sys, time
from rmqtx.readers.jobs.workers import Workers
from task import pid

print("begun", file=sys.stderr, flush=True)
with Workers(2) as workers:
    print(*sorted(set(workers.run(pid, [sys.argv[1]] * 4))), flush=True)
    time.sleep(float(sys.argv[2]))
"""


def test_results_come_in_the_order_of_the_tasks() -> None:
    with Workers(1) as here, Workers(2) as there:
        assert list(here.run(abs, range(-3, 3))) == list(there.run(abs, range(-3, 3))) == [3, 2, 1, 0, 1, 2]


def allocator(_: int) -> str:
    name: str = pa.default_memory_pool().backend_name
    return name


def test_memory_that_tasks_freed_is_not_kept_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    try:
        with Workers(2) as outer:
            with Workers(1) as inner:  # as of another thread
                assert list(inner.run(allocator, range(2))) == ["system"] * 2
            assert set(outer.run(allocator, range(8))) == {"system"}
        assert allocator(0) == "mimalloc"
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")  # the user's choice
        with Workers(2) as chosen:
            assert set(chosen.run(allocator, range(8))) == {"mimalloc"}
    finally:
        pa.set_memory_pool(before)


def test_cycles_are_looked_for_less_often_until_the_last_part_ends() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        with Workers(1), Workers(1):
            assert gc.get_threshold()[0] > 10_000
        assert gc.get_threshold() == (700, 10, 10)
        gc.set_threshold(0, 10, 10)  # the host looks for none
        with Workers(1):
            assert gc.get_threshold() == (0, 10, 10)
    finally:
        gc.set_threshold(*before)


def not_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_an_error_is_raised_after_the_results_of_the_tasks_before(processes: int) -> None:
    with Workers(processes) as workers:
        results = workers.run(not_three, range(8))
        assert list(itertools.islice(results, 3)) == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(results)


def process_of(folder: Path) -> int:
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 2:  # until the other process has a task too
        time.sleep(0.01)
    return os.getpid()


def test_this_process_is_one_of_them(tmp_path: Path) -> None:
    with Workers(2) as workers:
        found = set(workers.run(process_of, [tmp_path] * 8))
    assert os.getpid() in found
    assert len(found) == 2


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def program_of_two_processes(folder: Path, seconds: float) -> tuple[list[str], dict[str, str]]:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "task.py").write_text(TASK)
    (folder / "processes").mkdir()
    words = [sys.executable, str(folder / "program.py"), str(folder / "processes"), str(seconds)]
    return words, os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    words, environment = program_of_two_processes(tmp_path, 0)
    ran = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120, check=True)
    assert len(ran.stdout.split()) == 2
    assert ran.stderr == "begun\n"


def test_a_module_without_a_guard_runs_once(tmp_path: Path) -> None:
    words, environment = program_of_two_processes(tmp_path, 0)
    words[1:2] = ["-m", "program"]
    ran = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120, check=True, cwd=tmp_path)
    assert len(ran.stdout.split()) == 2
    assert ran.stderr == "begun\n"


def test_they_end_when_who_asked_is_killed(tmp_path: Path) -> None:
    words, environment = program_of_two_processes(tmp_path, 60)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as asking:
        assert asking.stdout is not None
        processes = [int(word) for word in asking.stdout.readline().split()]
        assert len(processes) == 2
        assert all(map(is_alive, processes))
        asking.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 300
    while any(map(is_alive, processes)):
        assert time.monotonic() < deadline, "they are still there"
        time.sleep(0.05)


@pytest.mark.parametrize("task_s", [0.0, 30.0])
def test_they_end_at_ctrl_c_without_a_word(task_s: float, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED.format(task_s=task_s))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    ) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == "begun\n"
        os.killpg(asking.pid, signal.SIGINT)  # as a terminal does
        out, errors = asking.communicate(timeout=120)
    assert (out, errors) == ("interrupted\n", "")


INTERRUPTED = """
import time
from rmqtx.readers.jobs.workers import Workers

if __name__ == "__main__":
    try:
        with Workers(3) as workers:
            list(workers.run(time.sleep, [0.2] * 9))
            print("begun", flush=True)
            list(workers.run(time.sleep, [{task_s}] * 9))
            time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted")
"""

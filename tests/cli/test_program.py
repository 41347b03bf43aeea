"""The program as a fork (`WARM`) is the program: streams, status, directory, environment, signals."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import RMQTX, WARM
from tests.cli.test_outputs_arrive import closing

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")


@pytest.mark.parametrize("words", [["--version"], ["explain", "NOTHING"], ["--frob"]])
def test_a_fork_says_what_a_process_of_its_own_says(words: list[str]) -> None:
    one, other = (subprocess.run([*way, *words], capture_output=True, check=False) for way in (RMQTX, WARM))
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


def test_a_fork_has_the_directory_the_environment_and_the_mask_of_its_caller(common: Path, tmp_path: Path) -> None:
    words = [*WARM, "pending", str(common), "-o", "rows.csv"]
    subprocess.run(words, cwd=tmp_path, umask=0o77, check=True, capture_output=True)
    assert (tmp_path / "rows.csv").stat().st_mode & 0o777 == 0o600
    asked = {"_RMQTX_COMPLETE": "complete_bash", "COMP_WORDS": "rmqtx pen", "COMP_CWORD": "1"}
    done = subprocess.run([*WARM], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["pending"]


def test_a_signal_reaches_a_fork_and_a_killed_caller_ends_it(common: Path) -> None:
    for sent, status in ((signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        words = [*WARM, "watch", str(common), "--plain"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(sent)
            process.stdout.read()  # until all processes have closed it
            assert process.wait(120) == status


def test_a_stream_that_its_caller_closed_is_closed() -> None:
    done = subprocess.run([*WARM, "--version"], stderr=subprocess.PIPE, preexec_fn=closing(1), check=False)
    assert done.returncode == 10
    assert done.stderr == b"rmqtx: cannot write the results: standard output is closed\n"

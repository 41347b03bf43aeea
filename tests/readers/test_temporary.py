"""Temporary folders and files of runs that were killed are removed by the next run, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtx.readers.storage import temporary
from rmqtx.readers.storage.temporary import RunFolder, is_dead, owner, temporary_beside

PROGRAM = """
import sys, time
from pathlib import Path
from rmqtx.readers.storage.temporary import RunFolder, owner, temporary_beside
folder = RunFolder("spark", sys.argv[1])
(Path(folder.name) / "part").write_text("half")
temporary_beside(Path(sys.argv[1]) / "rows.parquet").write_text("half")
print(owner(), flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="owners are found in /proc")


@pytest.fixture
def killed(tmp_path: Path) -> str:
    """The owner of a folder and of a file of a process that was killed."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.readline().strip()
        assert not is_dead(text)
        with RunFolder("spark", str(tmp_path)):
            temporary_beside(tmp_path / "rows.parquet")
            assert len(list(tmp_path.iterdir())) == 3, "a process that runs loses nothing"
        os.kill(process.pid, signal.SIGKILL)
    assert is_dead(text)
    return text


def test_a_killed_run_is_tidied_by_the_next(tmp_path: Path, killed: str) -> None:
    assert len(list(tmp_path.iterdir())) == 2
    with RunFolder(directory=str(tmp_path)) as folder:
        found = [path for path in tmp_path.iterdir() if path != Path(folder)]
        assert [path.suffix for path in found] == [".tmp"]
    temporary_beside(tmp_path / "other.parquet")
    assert list(tmp_path.iterdir()) == found
    temporary_beside(tmp_path / "rows.parquet")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_certainly_dead_stays(tmp_path: Path, killed: str) -> None:
    place, process, start = killed.split("-")
    names = [
        f"rmqtx-00000000-{process}-{start}-abcd",  # of another boot, or another container
        f"rmqtx-{place}-{process}-0-abcd",  # of a system without start times
        f"rmqtx-{killed}",
        f"other-{killed}-abcd",
        "rmqtx-abcd",
    ]
    for name in names:
        (tmp_path / name).mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "evidence").touch()
    (tmp_path / f"rmqtx-{killed}-link").symlink_to(outside)
    with RunFolder(directory=str(tmp_path)):
        left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert {*names, "outside", f"rmqtx-{killed}-link"} <= left
    assert (outside / "evidence").exists()


def test_a_number_that_another_process_has_now_is_dead() -> None:
    place, process, start = owner().split("-")
    assert not is_dead(owner())
    assert is_dead(f"{place}-{process}-{int(start) + 1}")
    assert not is_dead(f"{place}-{process}-0")
    assert not is_dead("")


def test_without_proc_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "_start_of", lambda process: None)
    temporary._own_start.cache_clear()
    (tmp_path / f"rmqtx-{owner()}-abcd").mkdir()
    with RunFolder(directory=str(tmp_path)):
        assert (tmp_path / f"rmqtx-{owner()}-abcd").exists()
    assert owner().endswith("-0")
    temporary._own_start.cache_clear()

"""Changing a store in place, by processes that are killed, are several, or are another user's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import StoreInUse
from rmqtx.repairs.changes.execution import execute, resume, undo
from tests.repairs.crash_states import snapshot
from tests.repairs.small_store import ROLL_OVER, SCATTERED, lay_out_store

FOREIGN = """
import os, sys
from pathlib import Path
from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.repairs.changes.change_sets import ChangeSet, CreateFile, ReplaceFile, WriteAt
from rmqtx.repairs.changes.execution import execute
os.setgroups([])
os.setegid(65534)
os.seteuid(65534)
for step in (WriteAt("checkpoint", 0, b"x"), ReplaceFile("checkpoint", b"x"), CreateFile("abort", 0)):
    try:
        execute(ChangeSet((step,)), Path(sys.argv[1]), Path(sys.argv[2]))
    except UnwritableFile as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_what_the_broker_could_not_write_to_is_refused_before_anything_is_done(mode: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # others' temporary directories are closed to nobody
        store, kept = lay_out_store(Path(directory) / "store"), Path(directory) / "kept"
        kept.mkdir()
        for path in (Path(directory), kept):
            path.chmod(0o777)
        store.chmod(mode)
        (store / "lock").chmod(0o666)
        before = snapshot(store)
        command = [sys.executable, "-c", FOREIGN, str(store), str(kept / "undo")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.count("run the command as the broker's user, or as root") == 3
        assert snapshot(store) == before
        assert list(kept.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_belongs_to_the_broker(store: Path, kept: Path) -> None:
    for path in [store, *store.rglob("*")]:
        os.chown(path, 1234, 2345)
    (store / "lock").unlink()
    execute(ROLL_OVER, store, kept)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in [store, *store.rglob("*")]} == {(1234, 2345)}
    undo(kept)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in [store, *store.rglob("*")]} == {(1234, 2345)}


KILLED = """
import sys
from pathlib import Path
from rmqtx.repairs.changes.execution import execute
from rmqtx.repairs.changes.file_operations import FileOperations
from tests.repairs.small_store import SCATTERED

class Slow(FileOperations):
    def sync_file(self, path):
        super().sync_file(path)
        print(path, flush=True)
        sys.stdin.readline()  # until the test has looked

execute(SCATTERED, Path(sys.argv[1]), Path(sys.argv[2]), files=Slow())
"""


@pytest.mark.parametrize("syncs_count", [1, 3, 5, 6])
@pytest.mark.parametrize("act", [undo, resume])
def test_a_killed_process_leaves_no_lock_and_a_way_on(
    store: Path, kept: Path, syncs_count: int, act: Callable[..., object]
) -> None:
    before = snapshot(store)
    command = [sys.executable, "-c", KILLED, str(store), str(kept)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for number in range(syncs_count):
            if number:
                process.stdin.write("go on\n")
                process.stdin.flush()
            assert process.stdout.readline()
        if syncs_count == 3:
            with pytest.raises(StoreInUse):
                act(kept)
        process.kill()
    if syncs_count == 1 and not kept.exists():
        assert snapshot(store) == before
        return
    act(kept)
    assert (snapshot(store) == before) == (act is undo)


BACK_AND_FORTH = """
import sys
from rmqtx.readers.model.errors import StoreInUse
from rmqtx.repairs.changes.execution import resume, undo
done = refused = 0
while done < 8:
    try:
        (undo if (done + int(sys.argv[2])) % 2 else resume)(sys.argv[1])
        done += 1
    except StoreInUse:
        refused += 1
print(refused)
"""


def test_several_at_once_take_turns(store: Path, kept: Path) -> None:
    before = snapshot(store)
    execute(SCATTERED, store, kept)
    commands = [[sys.executable, "-c", BACK_AND_FORTH, str(kept), str(number)] for number in range(3)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    refused = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum(refused) > 0
    undo(kept)
    assert snapshot(store) == before


def test_one_undo_file_is_one_change_of_one_store(tmp_path: Path, kept: Path) -> None:
    program = (
        "import sys; from rmqtx.repairs.changes.execution import execute\n"
        "from tests.repairs.small_store import ROLL_OVER\n"
        "execute(ROLL_OVER, sys.argv[1], sys.argv[2])"
    )
    stores = [lay_out_store(tmp_path / f"store{number}") for number in range(4)]
    before = snapshot(stores[0])
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(store), str(kept)], stderr=subprocess.PIPE, text=True)
        for store in stores
    ]
    said = [process.communicate()[1] for process in processes]
    changed = [store for store in stores if snapshot(store) != before]
    assert [process.returncode for process in processes].count(0) == len(changed) == 1
    assert sum("already exists" in text for text in said) == 3
    assert undo(kept).root == str(changed[0])
    assert snapshot(changed[0]) == before


@pytest.mark.parametrize("act", [undo, resume])
def test_the_lock_that_a_killed_process_made_is_removed_by_the_next(
    store: Path, kept: Path, act: Callable[..., object]
) -> None:
    (store / "lock").unlink()
    before = snapshot(store)
    command = [sys.executable, "-c", KILLED, str(store), str(kept)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for _ in range(4):
            assert process.stdout.readline()
            process.stdin.write("go on\n")
            process.stdin.flush()
        process.kill()
    assert kept.exists()
    assert (store / "lock").exists()
    act(kept)
    assert not (store / "lock").exists()
    assert (snapshot(store) == before) == (act is undo)
    undo(kept)
    assert snapshot(store) == before

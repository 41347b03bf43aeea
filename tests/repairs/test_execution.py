"""Changing a store in place: what is refused, what an error leaves, what the undo file stands for."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest, StoreChanged, StoreInUse, UnwritableFile
from rmqtx.repairs.changes.change_sets import Barrier, ChangeSet, CreateFile, RemoveFile, ReplaceFile, WriteAt
from rmqtx.repairs.changes.execution import Interrupted, execute, resume, state_and_differences, undo
from rmqtx.repairs.changes.undo_files import APPLIED, APPLYING, UNDONE
from tests.repairs.broker_lock import locked_by_a_broker
from tests.repairs.crash_states import Unsynced, snapshot
from tests.repairs.small_store import CHANGE_SETS, CURSORS, NEXT, ROLL_OVER, SCATTERED, SEGMENT, facts, lay_out_store


def file_facts(store: Path) -> dict[str, object]:
    return {path: fact for path, fact in facts(store).items() if (store / path).is_file()}


@pytest.mark.parametrize("name", CHANGE_SETS)
def test_there_and_back_and_there_again(store: Path, kept: Path, name: str) -> None:
    for path in ("checkpoint", CURSORS, SEGMENT):
        (store / path).chmod(0o640)
        os.utime(store / path, ns=(1, 1_600_000_000_000_000_001))
    before = file_facts(store)
    assert execute(CHANGE_SETS[name], store, kept, about=["commit 7F"]).state == APPLIED
    after = snapshot(store)
    assert after.keys() != before.keys()
    assert undo(kept).state == UNDONE
    assert file_facts(store) == before, "content, permissions and times"
    assert undo(kept).state == UNDONE
    assert resume(kept).state == APPLIED
    assert snapshot(store) == after
    undo_file, differing = state_and_differences(kept)
    assert (undo_file.about, differing) == (("commit 7F",), [])


def test_what_the_steps_say_is_what_is_there(store: Path, kept: Path) -> None:
    execute(ROLL_OVER, store, kept)
    assert (store / SEGMENT).read_bytes() == b"\xaa" * 3000 + b"\xcb" * 1096
    assert (store / NEXT).read_bytes() == b"\xda" * 900 + bytes(4096 - 900)
    assert b"HALF_TOPIC" in (store / CURSORS).read_bytes()
    assert (store / "abort").read_bytes() == b""
    assert sorted(path.name for path in (store / "commitlog").iterdir()) == [Path(SEGMENT).name, Path(NEXT).name]
    assert (store / NEXT).stat().st_mode & 0o777 == store.stat().st_mode & 0o666


# -- refused before anything is done


@pytest.mark.parametrize(
    "steps",
    [
        (WriteAt("../other", 0, b"x"),), (WriteAt("/etc/x", 0, b"x"),), (WriteAt("a//b", 0, b"x"),),
        (ReplaceFile("lock", b"x"),), (ReplaceFile("etc/passwd", b"x"),), (CreateFile("authorized_keys", 1),),
        (WriteAt(SEGMENT, -1, b"x"),), (CreateFile("abort", 1, b"xx"),),
        (WriteAt(SEGMENT, 0, b"xx"), WriteAt(SEGMENT, 1, b"y")), (RemoveFile("abort"), CreateFile("abort", 0)),
    ],
)
def test_steps_that_contradict_themselves_are_no_change_set(steps: tuple[WriteAt, ...]) -> None:
    with pytest.raises(BadRequest):
        ChangeSet(steps)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((WriteAt(SEGMENT, 4095, b"xx"),), "has 4096 bytes"), ((WriteAt("abort", 0, b"x"),), "is missing"),
        ((CreateFile("checkpoint", 3),), "already exists"), ((RemoveFile("abort"),), "is missing"),
        ((CreateFile("config/no/where", 3),), "is not a directory"),
        ((ReplaceFile("consumequeue/T", b""),), "is not a file"),
    ],
)
def test_a_store_that_is_not_as_the_steps_suppose_is_refused(
    store: Path, kept: Path, steps: tuple[WriteAt, ...], why: str
) -> None:
    before = facts(store)
    with pytest.raises(StoreChanged, match=why):
        execute(ChangeSet((WriteAt(SEGMENT, 0, b"x"), Barrier(), *steps)), store, kept)
    assert facts(store) == before
    assert not kept.exists()


def test_a_running_broker_and_a_bad_place_for_the_undo_file_are_refused(store: Path, kept: Path) -> None:
    before = facts(store)
    with pytest.raises(BadRequest, match="inside the store"):
        execute(ROLL_OVER, store, store / "config" / "undo")
    kept.write_bytes(b"precious")
    with pytest.raises(UnwritableFile, match="already exists"):
        execute(ROLL_OVER, store, kept)
    with pytest.raises(UnwritableFile, match="No such file"):
        execute(ROLL_OVER, store, kept.parent / "none" / "undo")
    with locked_by_a_broker(store), pytest.raises(StoreInUse):
        execute(ROLL_OVER, store, kept.with_name("other"))
    assert kept.read_bytes() == b"precious"
    assert facts(store) == before
    assert sorted(path.name for path in kept.parent.iterdir()) == ["kept.undo", "store"]


# -- what came since


def touch_times(store: Path) -> None:
    os.utime(store / "config" / "topics.json", ns=(1, 1))


def append_a_record(store: Path) -> None:
    """As a broker does: behind what we wrote, through a mapping, and the time as it was at worst."""
    status = (store / NEXT).stat()
    with (store / NEXT).open("r+b") as file:
        file.seek(900)
        file.write(b"\xda")
    os.utime(store / NEXT, ns=(status.st_atime_ns, status.st_mtime_ns))


SINCE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a broker stopped": (lambda store: (store / "abort").unlink(), "abort is missing"),
    "a broker crashed": (lambda store: (store / "abort").write_bytes(b"4711"), "abort has changed"),
    "a record came": (append_a_record, "has changed"),
    "a segment came": (lambda store: (store / "commitlog/00000000000000008192").touch(), "is new"),
    "cursors moved": (lambda store: (store / CURSORS).write_bytes(b"{}"), "consumerOffset.json has changed"),
    "a queue went": (lambda store: shutil.rmtree(store / "consumequeue" / "T"), "is missing"),
    "a file was written": (touch_times, "has another time"),
    "a segment was cut": (lambda store: os.truncate(store / SEGMENT, 4000), "has changed|bytes and has"),
}


@pytest.mark.parametrize("what", SINCE)
def test_what_came_since_is_not_lost(store: Path, kept: Path, what: str) -> None:
    execute(ROLL_OVER, store, kept)
    change, why = SINCE[what]
    change(store)
    before = facts(store)
    for act in (undo, resume):
        with pytest.raises(StoreChanged, match=why):
            act(kept)
    assert facts(store) == before


@pytest.mark.parametrize("where", [2950, 2999])
def test_a_record_behind_what_was_written_is_seen_whatever_its_time(store: Path, kept: Path, where: int) -> None:
    execute(ChangeSet((WriteAt(SEGMENT, 2900, b"x" * 50),)), store, kept)
    with (store / SEGMENT).open("r+b") as file:
        file.seek(where)
        file.write(b"\0")
    with pytest.raises(StoreChanged, match="has changed"):
        undo(kept, times=False)


def test_a_copy_has_other_times(store: Path, kept: Path, tmp_path: Path) -> None:
    before = snapshot(store)
    execute(SCATTERED, store, kept)
    moved = tmp_path / "moved"
    shutil.copytree(store, moved, copy_function=shutil.copyfile)
    with pytest.raises(StoreChanged, match="has another time"):
        undo(kept, moved)
    undo(kept, moved, times=False)
    assert snapshot(moved) == before


# -- what the system refuses


class Failing(Unsynced):
    """Fails at its nth operation, and at every later one of the same kind."""

    def __init__(self, number: int, code: int) -> None:
        self.left, self.code, self.said = number, code, ""

    def does_not_stop(self, act: Callable[[Failing], object]) -> bool:
        try:
            act(self)
        except UnwritableFile as error:
            self.said = str(error)
        return not self.said

    def _count(self, path: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise UnwritableFile(f"cannot write {path}: {os.strerror(self.code)}", file=path, advice="free some space")

    def create(self, path: Path, size_bytes: int) -> None:
        self._count(path)
        super().create(path, size_bytes)

    def write(self, path: Path, position_bytes: int, data: bytes) -> None:
        self._count(path)
        super().write(path, position_bytes, data)

    def rename(self, old: Path, new: Path) -> None:
        self._count(new)
        super().rename(old, new)

    def sync_file(self, path: Path) -> None:
        self._count(path)
        super().sync_file(path)


def test_a_disk_that_fills_up_at_any_point_leaves_a_way_back_and_a_way_on(tmp_path: Path) -> None:
    steps, half_done = 0, 0
    for steps in range(100):
        top = tmp_path / str(steps)
        store, kept = lay_out_store(top / "store"), top / "undo"
        before = snapshot(store)
        failing = Failing(steps, errno.ENOSPC)
        if failing.does_not_stop(lambda files: execute(ROLL_OVER, store, kept, files=files)):  # noqa: B023
            break
        if kept.exists():
            half_done += 1
            undo_file, differing = state_and_differences(kept)
            assert undo_file.state in (APPLYING, APPLIED)
            assert differing == []
            assert f"to revert the changes: rmqtx undo {kept}" in failing.said
            undo(kept, files=Unsynced())
        assert "No space left" in failing.said
        assert "\n" not in failing.said
        assert snapshot(store) == before
    assert 10 < steps < 100
    assert half_done > 5


def test_a_read_only_file_and_a_vanished_one_are_one_line(
    store: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("os.pwrite", refuse)
    with pytest.raises(UnwritableFile, match=r"Read-only file system.* mounted read-only"):
        execute(ROLL_OVER, store, kept)
    monkeypatch.undo()

    class Vanishing(Unsynced):
        def write(self, path: Path, position_bytes: int, data: bytes) -> None:
            if path == store / SEGMENT:
                path.rename(kept.with_name("taken"))
            super().write(path, position_bytes, data)

    with pytest.raises(UnwritableFile, match=r"No such file.*rmqtx undo"):
        execute(ROLL_OVER, store, kept, files=Vanishing())
    with pytest.raises(StoreChanged, match="its log is empty"):
        undo(kept)
    kept.with_name("taken").rename(store / SEGMENT)
    undo(kept)


def test_who_interrupts_is_told_the_way_back(store: Path, kept: Path) -> None:
    before = snapshot(store)

    class Stopped(Unsynced):
        def rename(self, old: Path, new: Path) -> None:
            if new.name == Path(CURSORS).name:
                raise KeyboardInterrupt
            super().rename(old, new)

    with pytest.raises(Interrupted, match=f"to revert the changes: rmqtx undo {kept}"):
        execute(ROLL_OVER, store, kept, files=Stopped())
    assert snapshot(store) != before
    undo(kept)
    assert snapshot(store) == before


@pytest.mark.parametrize("mode", [0o2664, 0o1664, *([0] if os.geteuid() == 0 else [])])
def test_a_change_of_files_with_unusual_permissions_can_be_undone(store: Path, kept: Path, mode: int) -> None:
    """As after `chmod -R g+s`: its undo file was refused, so that nothing could be reverted or completed."""
    for path in (SEGMENT, CURSORS):
        (store / path).chmod(mode)
    before = facts(store)
    execute(ROLL_OVER, store, kept)
    undo(kept)
    after = facts(store)
    assert after[SEGMENT] == before[SEGMENT]
    assert (store / CURSORS).stat().st_mode & 0o777 == mode & 0o777
    assert after.keys() == before.keys()


def test_a_log_on_another_disk(store: Path, kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as other:
        if Path(other).stat().st_dev == store.stat().st_dev:
            pytest.skip("there is no other disk")
        (store / "commitlog").rename(store / "moving")
        shutil.move(store / "moving", Path(other) / "log")
        (store / "commitlog").symlink_to(Path(other) / "log")
        before = snapshot(store) | snapshot(Path(other))
        execute(ROLL_OVER, store, kept)
        assert (store / NEXT).read_bytes() == b"\xda" * 900 + bytes(4096 - 900)
        undo(kept)
        assert snapshot(store) | snapshot(Path(other)) == before


def test_somebody_who_writes_meanwhile_is_found(store: Path, kept: Path) -> None:
    class Disturbed(Unsynced):
        def rename(self, old: Path, new: Path) -> None:
            super().rename(old, new)
            if new.name == Path(CURSORS).name:
                (store / SEGMENT).write_bytes(bytes(4096))

    with pytest.raises(StoreChanged, match="another process writes"):
        execute(ROLL_OVER, store, kept, files=Disturbed())

"""A copy of a store: the same in everything that counts, or not there at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import BadRequest, FileChanged, StoreInUse, UnwritableFile
from rmqtx.repairs.changes.change_sets import ChangeSet, CreateFile, WriteAt
from rmqtx.repairs.changes.clones import cloned
from rmqtx.repairs.changes.execution import execute_on_copy
from tests.repairs.broker_lock import locked_by_a_broker
from tests.repairs.small_store import SEGMENT, facts, lay_out_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = lay_out_store(tmp_path / "store")
    with (root / SEGMENT).open("r+b") as file:  # a segment as brokers make it: mostly a hole
        file.truncate(1 << 26)
    (root / "compaction").mkdir()
    (root / "config").chmod(0o2750)
    (root / "checkpoint").chmod(0o640)
    for number, path in enumerate(sorted(root.rglob("*"))):
        os.utime(path, ns=(1_700_000_000_000_000_000 + number, 1_600_000_000_123_456_789 + number))
    return root


def test_a_copy_is_the_same_and_the_original_is_untouched(store: Path, tmp_path: Path) -> None:
    before = facts(store)
    seen: list[tuple[int, int]] = []
    with cloned(store, tmp_path / "copy", progress=lambda done, total: seen.append((done, total))) as copy:
        assert not (tmp_path / "copy").exists()
        assert copy.exists()
    assert facts(tmp_path / "copy") == before == facts(store)
    assert (tmp_path / "copy" / SEGMENT).stat().st_blocks * 512 < 1 << 20, "holes stay holes"
    assert seen[-1][0] == seen[-1][1] == sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "store"]


def test_only_what_is_changed_differs(store: Path, tmp_path: Path) -> None:
    before = facts(store)
    with cloned(store, tmp_path / "copy") as copy:
        execute_on_copy(ChangeSet((WriteAt(SEGMENT, 10, b"!"), CreateFile("abort", 0))), copy)
    after = facts(tmp_path / "copy")
    assert {path for path in after if after[path] != before.get(path)} == {SEGMENT, "abort"}
    assert facts(store) == before


def test_an_error_leaves_nothing(store: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="midway"), cloned(store, tmp_path / "copy"):
        raise RuntimeError("midway")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_another_of_us_makes_is_left_alone(store: Path, tmp_path: Path) -> None:
    with cloned(store, tmp_path / "copy"):
        with pytest.raises(BadRequest, match="another rmqtx process is writing it"), cloned(store, tmp_path / "copy"):
            pass
        assert (tmp_path / "copy.unfinished" / SEGMENT).exists()
    assert (tmp_path / "copy" / SEGMENT).exists()


def test_an_empty_directory_may_be_the_target_and_nothing_else_that_is_there(store: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with cloned(store, tmp_path / "empty"):
        pass
    assert (tmp_path / "empty" / SEGMENT).exists()
    for target in (tmp_path / "empty", store, store / "inside", tmp_path, store / "checkpoint", tmp_path / "no" / "x"):
        with pytest.raises(BadRequest), cloned(store, target):
            pass


def test_a_store_that_is_written_to_meanwhile_is_no_copy(store: Path, tmp_path: Path) -> None:
    def write(done: int, total: int) -> None:
        if done == total:
            (store / "checkpoint").write_bytes(b"new")

    with pytest.raises(FileChanged, match="checkpoint"), cloned(store, tmp_path / "copy", progress=write):
        pass
    assert not list(tmp_path.glob("copy*"))


def test_a_running_broker_is_not_copied(store: Path, tmp_path: Path) -> None:
    with locked_by_a_broker(store), pytest.raises(StoreInUse), cloned(store, tmp_path / "copy"):
        pass
    assert not list(tmp_path.glob("copy*"))


def test_a_log_from_outside_comes_into_the_copy(store: Path, tmp_path: Path) -> None:
    outside = tmp_path / "disk2" / "log"
    outside.mkdir(parents=True)
    (outside / "00000000000067108864").write_bytes(b"next")
    (tmp_path / "linked").mkdir()
    (store / "index").symlink_to(tmp_path / "linked")
    (tmp_path / "linked" / "20260101000000000").write_bytes(b"index")
    with cloned(store, tmp_path / "copy", commit_log_directories=[str(store / "commitlog"), str(outside)]):
        pass
    assert (tmp_path / "copy" / "commitlog" / "00000000000067108864").read_bytes() == b"next"
    assert (tmp_path / "copy" / "commitlog" / Path(SEGMENT).name).exists()
    assert not (tmp_path / "copy" / "index").is_symlink()
    assert (tmp_path / "copy" / "index" / "20260101000000000").read_bytes() == b"index"


@pytest.mark.parametrize("offered", ["in the kernel", "by hand"])
def test_bytes_are_copied_where_blocks_cannot_be_shared(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: str
) -> None:
    monkeypatch.setattr("rmqtx.repairs.changes.clones._shared", lambda reading, writing: False)
    if offered == "by hand":
        monkeypatch.delattr("os.copy_file_range")
    before = facts(store)
    with cloned(store, tmp_path / "copy"):
        pass
    assert facts(tmp_path / "copy") == before


def test_a_full_disk_is_one_line_and_leaves_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rmqtx.repairs.changes.clones._copy_range", full)
    with pytest.raises(UnwritableFile, match="No space left"), cloned(store, tmp_path / "copy"):
        pass
    assert not list(tmp_path.glob("copy*"))


def test_it_has_its_name_when_all_of_it_is_on_the_disk(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    sync = os.fsync

    def noted(descriptor: int) -> None:
        assert not (tmp_path / "copy").exists() or os.fstat(descriptor).st_ino == tmp_path.stat().st_ino
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr("os.fsync", noted)
    with cloned(store, tmp_path / "copy") as copy:
        execute_on_copy(ChangeSet((WriteAt(SEGMENT, 10, b"!"), CreateFile("abort", 0))), copy)
    wanted = [tmp_path, tmp_path / "copy", *(tmp_path / "copy").rglob("*")]
    assert {path.name for path in wanted if path.stat().st_ino not in synced} == set()

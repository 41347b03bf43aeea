"""Parts of changes in place on files of some bytes: what an undo restores and compares, and what a failure leaves."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from rmqtx.readers.model.errors import StoreChanged, UnsafeStore, UnwritableFile
from rmqtx.readers.store.store import BEGUN_MARK
from rmqtx.repairs.changes import apply_edits, clones
from rmqtx.repairs.changes.apply_edits import _whole
from rmqtx.repairs.changes.change_sets import ChangeSet, ReplaceFile, WriteAt
from rmqtx.repairs.changes.edits import Edit, FileImage, GivenImage, planned
from rmqtx.repairs.changes.execution import Interrupted, execute, resume, undo
from rmqtx.repairs.changes.file_operations import FileOperations, attributes_of, attributes_of_new, open_lock_file
from rmqtx.repairs.changes.fingerprints import _digest, _surroundings
from rmqtx.repairs.changes.in_progress_mark import put_mark, require_nothing_begun
from rmqtx.repairs.changes.store_lock import leave_no_lock, store_locked
from rmqtx.repairs.changes.undo_files import KeptImage, UndoFile
from tests.forge.stores import contents
from tests.repairs.small_store import CURSORS, ROLL_OVER


class Recording(FileOperations):
    """Notes what is renamed; `fails`: the disk is full as soon as anything must be synced."""

    def __init__(self, *, fails: bool = False) -> None:
        self.renamed: list[tuple[Path, Path]] = []
        self.fails = fails

    def rename(self, path: Path, target: Path) -> None:
        self.renamed.append((path, target))
        super().rename(path, target)

    def sync_file(self, path: Path) -> None:
        if self.fails:
            raise UnwritableFile("no space is left", file=path)
        super().sync_file(path)


class Interrupting(FileOperations):
    """Stops before the cursors get their name."""

    def rename(self, path: Path, target: Path) -> None:
        if target.name == Path(CURSORS).name:
            raise KeyboardInterrupt
        super().rename(path, target)


def test_an_undo_restores_a_part_behind_the_begin_of_a_file_as_it_was(tmp_path: Path) -> None:
    kept = tmp_path / "undo"
    kept.write_bytes(b"headABCDEF")
    image = KeptImage(kept, 12, ((3, 6, 4),))
    assert image.read(0, 12) == b"\0\0\0ABCDEF\0\0\0"
    assert image.read(5, 11) == b"CDEF\0\0"
    assert image.read(12, 20) == b""


def test_a_file_that_became_shorter_is_copied_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes, as on a system without copies in the kernel."""
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"abc")
    with source.open("rb") as reading, target.open("wb") as writing:
        clones._copy_range(reading.fileno(), writing.fileno(), 0, 10, source)
    assert target.read_bytes() == b"abc"


def test_a_half_changed_store_is_refused_also_if_its_files_have_other_times(store: Path, kept: Path) -> None:
    """As after `cp -r`: the store is still half changed, and another act would be based on that."""
    with pytest.raises(Interrupted):
        execute(ROLL_OVER, store, kept, files=Interrupting())
    for file in store.rglob("*"):
        os.utime(file, ns=(1, 1))
    with pytest.raises(UnsafeStore, match="were begun and not completed"):
        require_nothing_begun(store)


def test_a_half_changed_store_takes_no_other_change(store: Path, kept: Path) -> None:
    """Else the undo file of the second change keeps half of the first one as the state before."""
    with pytest.raises(Interrupted):
        execute(ROLL_OVER, store, kept, files=Interrupting())
    before = contents(store)
    with pytest.raises(UnsafeStore, match="were begun and not completed"):
        execute(ChangeSet((WriteAt(CURSORS, 0, b"!"),)), store, kept.with_name("other.undo"))
    assert contents(store) == before
    assert not kept.with_name("other.undo").exists()


def test_times_that_were_accepted_once_are_those_of_the_next_undo(store: Path, kept: Path) -> None:
    """A change below was made again, so that `abort` has a new time; --ignore-times would be asked for at each undo."""
    later = kept.with_name("later.undo")
    execute(ChangeSet((ReplaceFile("abort", b""),)), store, kept)
    execute(ChangeSet((WriteAt(CURSORS, 0, b"!"),)), store, later)
    undo(later)
    undo(kept)
    resume(kept)
    with pytest.raises(StoreChanged, match="abort has another time"):
        resume(later)
    resume(later, times=False)
    undo(later)
    resume(later)
    os.utime(store / "abort", ns=(1, 1))
    with pytest.raises(StoreChanged, match="abort has another time"):
        undo(later)


def test_the_times_of_a_copy_that_were_accepted_once_are_those_of_the_next_undo(store: Path, kept: Path) -> None:
    execute(ChangeSet((WriteAt(CURSORS, 0, b"!"),)), store, kept)
    copy = store.with_name("copy")
    shutil.copytree(store, copy, copy_function=shutil.copyfile)
    with pytest.raises(StoreChanged, match="another time"):
        undo(kept, copy)
    undo(kept, copy, times=False)
    resume(kept, copy)
    (copy / "config" / "new").touch()
    with pytest.raises(StoreChanged, match="config/new is new"):
        undo(kept, copy)


@pytest.mark.parametrize(("content", "stays"), [(b"", False), (b"lock", True)])
def test_a_lock_that_a_broker_wrote_stays_after_an_undo(tmp_path: Path, content: bytes, stays: bool) -> None:
    place = tmp_path / "lock"
    place.write_bytes(content)
    leave_no_lock(tmp_path)  # not locked by this process: nothing to leave
    with store_locked(tmp_path):
        leave_no_lock(tmp_path)
    assert place.exists() == stays


def test_a_file_that_vanished_from_a_half_changed_store_is_named(store: Path, kept: Path) -> None:
    """The interrupted change did not leave it, so the undo file does not describe this store."""
    with pytest.raises(Interrupted):
        execute(ROLL_OVER, store, kept, files=Interrupting())
    (store / CURSORS).unlink()
    with pytest.raises(StoreChanged, match=f"{CURSORS} is missing"):
        undo(kept)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_change_that_another_user_could_not_finish_is_refused_before_it_begins() -> None:
    """Also where the directory is for all: the broker could not write to a file of that user."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder) / "store"
        (root / "config").mkdir(parents=True)
        (root / CURSORS).write_bytes(b"{}")
        Path(folder).chmod(0o755)
        root.chmod(0o755)
        (root / "config").chmod(0o777)
        written, replaced = ChangeSet((WriteAt(CURSORS, 0, b"!"),)), ChangeSet((ReplaceFile(CURSORS, b"[]"),))
        assert [len(planned(one, root)) for one in (written, replaced)] == [1, 1]
        os.seteuid(12_345)
        try:
            with pytest.raises(UnwritableFile, match="permission denied"):
                planned(written, root)
            with pytest.raises(UnwritableFile, match="belongs to user 0, and the new file would"):
                planned(replaced, root)
        finally:
            os.seteuid(0)


def test_a_mark_that_could_not_be_written_is_removed(tmp_path: Path) -> None:
    undo_file = UndoFile(tmp_path / "undo", "one", str(tmp_path), None, (), "", "", 0, (), [], [])
    with pytest.raises(UnwritableFile):
        put_mark(tmp_path, undo_file, Recording(fails=True))
    assert not (tmp_path / BEGUN_MARK).exists()


def test_a_sync_keeps_no_descriptor_open(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    before = list(Path("/proc/self/fd").iterdir())
    FileOperations().sync_file(file)
    FileOperations().sync_directory(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_lock_that_root_makes_belongs_to_the_user_of_the_store(tmp_path: Path) -> None:
    os.chown(tmp_path, 12_345, 12_346)
    descriptor, is_new = open_lock_file(tmp_path / "lock")
    os.close(descriptor)
    status = (tmp_path / "lock").stat()
    assert (is_new, status.st_uid, status.st_gid) == (True, 12_345, 12_346)


@pytest.mark.parametrize(("directory", "file"), [
    (0o700, 0o600), (0o755, 0o644), (0o770, 0o660), (0o777, 0o666), (0o761, 0o600), (0o716, 0o600), (0o707, 0o606),
    (0o2775, 0o664),
])
def test_a_new_file_is_for_the_users_of_its_directory_and_no_others(tmp_path: Path, directory: int, file: int) -> None:
    """A broker of another user of the group must be able to write it, and others must not be able to read it."""
    tmp_path.chmod(directory)
    assert attributes_of_new(tmp_path).mode == file


def test_a_given_image_ends_where_it_is_asked_to_and_at_its_size() -> None:
    image = GivenImage(b"abc", 6)
    assert [image.read(0, 2), image.read(2, 4), image.read(3, 9)] == [b"ab", b"c\0", b"\0\0\0"]


@pytest.mark.parametrize(("place", "is_compared"), [
    (999, True), (1_000, False), (1_009, False), (1_010, True),
    (0, True), (199_999 - (64 << 10), True), (199_999, True), (200_009 + (1 << 20), True), (200_010 + (1 << 20), False),
])
def test_an_undo_is_refused_if_bytes_directly_around_its_change_are_others(
    tmp_path: Path, place: int, is_compared: bool
) -> None:
    """64 KiB before a change and 1 MiB behind it, or up to the next change."""
    file = tmp_path / "file"
    file.write_bytes(bytes(2 << 20))
    ten = GivenImage(b"x" * 10, 10)
    edits = [Edit("write", "file", 0, begin, ten, ten, None) for begin in (1_000, 200_000)]
    before = _digest(_surroundings(file, edits, 2 << 20))
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(b"\1")
    assert (_digest(_surroundings(file, edits, 2 << 20)) != before) is is_compared
    first, _ = _surroundings(file, edits[1:], 2 << 20)
    assert (first.position_bytes, first.size_bytes) == (200_000 - (64 << 10), 64 << 10)


def test_a_file_of_the_log_is_written_in_the_root_and_renamed(tmp_path: Path) -> None:
    """A broker would load a temporary file beside it; in place, a kill would leave a half of it."""
    file, waiting, files = tmp_path / "commitlog" / f"{0:020}", tmp_path / ".rmqtx-new", Recording()
    file.parent.mkdir()
    edit = Edit("create", f"commitlog/{0:020}", 0, None, None, GivenImage(b"new", 3), attributes_of(tmp_path))
    _whole(edit, file, waiting, files, forward=True)
    assert files.renamed == [(waiting, file)]
    assert file.read_bytes() == b"new"
    assert FileImage(file, 1, 2).read(0, 2) == b"ew"


def test_a_file_in_a_file_system_of_its_own_is_not_replaced_and_a_torn_new_one_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no place for a temporary file; written in place, a kill would leave neither the old nor the new one."""
    monkeypatch.setattr(apply_edits, "_is_same_disk", lambda *_: False)
    file, files = tmp_path / "commitlog" / f"{0:020}", FileOperations()
    file.parent.mkdir()
    file.write_bytes(b"old")
    old, new, attributes = GivenImage(b"old", 3), GivenImage(b"new", 3), attributes_of(tmp_path)
    replaced = Edit("replace", f"commitlog/{0:020}", 0, None, old, new, attributes)
    with pytest.raises(UnwritableFile, match="a file system of its own"):
        _whole(replaced, file, tmp_path / ".rmqtx-new", files, forward=True)
    assert file.read_bytes() == b"old"
    file.write_bytes(b"ne")
    created = Edit("create", f"commitlog/{0:020}", 0, None, None, new, attributes)
    _whole(created, file, tmp_path / ".rmqtx-new", files, forward=True)
    assert file.read_bytes() == b"new"

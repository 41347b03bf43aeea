"""Every state in which a crash can leave files: what was done is written down, then replayed with losses.

The model is stricter than a journaling file system: any operation that was not made durable may be missing, whatever
came after it. Content is made durable by syncing the file, names by syncing their directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqtx.repairs.changes.file_operations import Attributes, FileOperations

SECTOR = 512


@dataclass(frozen=True)
class Operation:
    kind: str  # link, unlink, rename: names; size, write: content; sync_file, sync_directory
    path: str
    inode: int = 0
    new_path: str = ""
    number: int = 0
    data: bytes = b""

    def directories(self) -> set[str]:
        return {str(Path(path).parent) for path in (self.path, self.new_path) if path}


class Unsynced(FileOperations):
    """As the real ones, but nothing waits for the disk: tests look at what is done, not at whether it survives."""

    def sync_file(self, path: Path) -> None:
        assert path.is_file()

    def sync_directory(self, path: Path) -> None:
        assert path.is_dir()


class Recorder(Unsynced):
    """Does everything, and writes it down."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.base = snapshot(top)
        self.times = {path: (top / path).stat().st_mtime_ns for path in self.base}
        self.inodes = {path: number for number, path in enumerate(self.base)}
        self.next_inode = len(self.inodes)
        self.directories = [path.relative_to(top) for path in sorted(top.rglob("*")) if path.is_dir()]
        self.operations: list[Operation] = []

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.top))

    def create(self, path: Path, size_bytes: int) -> None:
        super().create(path, size_bytes)
        name, inode = self._name(path), self.next_inode
        self.next_inode += 1
        self.inodes[name] = inode
        self.operations += [Operation("link", name, inode), Operation("size", name, inode, number=size_bytes)]

    def write(self, path: Path, position_bytes: int, data: bytes) -> None:
        super().write(path, position_bytes, data)
        name = self._name(path)
        self.operations.append(Operation("write", name, self.inodes[name], number=position_bytes, data=data))

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        inode = self.inodes.pop(self._name(old))
        self.inodes[self._name(new)] = inode
        self.operations.append(Operation("rename", self._name(old), inode, new_path=self._name(new)))

    def remove(self, path: Path) -> None:
        super().remove(path)
        name = self._name(path)
        self.operations.append(Operation("unlink", name, self.inodes.pop(name)))

    def set_attributes(self, path: Path, attributes: Attributes) -> None:
        super().set_attributes(path, attributes)

    def sync_file(self, path: Path) -> None:
        super().sync_file(path)
        name = self._name(path)
        self.operations.append(Operation("sync_file", name, self.inodes[name]))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.operations.append(Operation("sync_directory", self._name(path)))

    def states(self) -> Iterator[State]:
        """Every state that a crash can leave, each once."""
        final = {path: (content, (self.top / path).stat().st_mtime_ns) for path, content in snapshot(self.top).items()}
        seen: set[int] = set()
        for length in range(len(self.operations) + 1):
            done = self.operations[:length]
            for what, lost, torn in _losses(done):
                content = self._replayed(done, lost, torn)
                key = hash(tuple(sorted(content.items())))
                if key not in seen:
                    seen.add(key)
                    what = f"after {length} operations, {what}"
                    yield State(what, content, self.base, self.times, final, self.directories)

    def replayed(self) -> dict[str, bytes]:
        """The files as they are if nothing is lost."""
        return self._replayed(self.operations, set(), None)

    def _replayed(self, done: list[Operation], lost: set[int], torn: int | None) -> dict[str, bytes]:
        names = {path: number for number, path in enumerate(self.base)}
        untouched = dict(enumerate(self.base.values()))
        inodes: dict[int, bytearray] = {}
        for number, one in enumerate(done):
            if number in lost:
                continue
            if one.kind == "link":
                names[one.path] = one.inode
            elif one.kind == "unlink" and names.get(one.path) == one.inode:
                del names[one.path]
            elif one.kind == "rename":
                if names.get(one.path) == one.inode:
                    del names[one.path]
                names[one.new_path] = one.inode
            elif one.kind in ("size", "write"):
                content = inodes.setdefault(one.inode, bytearray(untouched.get(one.inode, b"")))
                data = one.data if torn is None or number != len(done) - 1 else one.data[:torn]
                end = one.number + len(data)
                if one.kind == "size":
                    del content[end:]
                content.extend(bytes(max(0, end - len(content))))
                content[one.number : end] = data
        kept = {inode: bytes(content) for inode, content in inodes.items()}
        return {path: kept.get(inode, untouched.get(inode, b"")) for path, inode in names.items()}


def _losses(done: list[Operation]) -> Iterator[tuple[str, set[int], int | None]]:
    """What can be missing: nothing, any one, all that is not durable; and of the last write what is behind a sector."""
    open_ones = [number for number in range(len(done)) if not _is_durable(done, number)]
    yield "nothing lost", set(), None
    for number in open_ones:
        yield f"operation {number} lost", {number}, None
    yield "all lost", set(open_ones), None
    if done and done[-1].kind == "write":
        first = SECTOR - done[-1].number % SECTOR
        cuts = list(range(first, len(done[-1].data), SECTOR))
        for cut in {*cuts[:2], *cuts[len(cuts) // 2 : len(cuts) // 2 + 1], *cuts[-1:]}:
            yield f"torn at {cut}", set(), cut
            yield f"torn at {cut}, all before lost", {number for number in open_ones if number != len(done) - 1}, cut


def _is_durable(done: list[Operation], number: int) -> bool:
    one = done[number]
    if one.kind.startswith("sync"):
        return True
    later = done[number + 1 :]
    if one.kind in ("size", "write"):
        return any(other.kind == "sync_file" and other.inode == one.inode for other in later)
    return one.directories() <= {other.path for other in later if other.kind == "sync_directory"}


@dataclass
class State:
    """Files as a crash left them."""

    what: str
    content: dict[str, bytes]
    base: dict[str, bytes] = field(repr=False)
    times: dict[str, int] = field(repr=False)
    final: dict[str, tuple[bytes, int]] = field(repr=False)
    directories: list[Path] = field(repr=False)

    def lay_out(self, top: Path) -> None:
        """Put the files below a directory; those that are as at the beginning, or at the end, have that time."""
        for directory in self.directories:
            (top / directory).mkdir(parents=True, exist_ok=True)
        for path, data in self.content.items():
            file = top / path
            file.write_bytes(data)
            if self.base.get(path) == data:
                os.utime(file, ns=(0, self.times[path]))
            elif path in self.final and self.final[path][0] == data:
                os.utime(file, ns=(0, self.final[path][1]))


def snapshot(top: Path) -> dict[str, bytes]:
    """Every file below a directory but the lock, with its content."""
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in sorted(top.rglob("*")) if path.is_file() and path.name != "lock"
    }

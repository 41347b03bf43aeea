"""Changes of the files of a store: an ordered list of steps, as data.

A change set is planned first, as a whole, and carried out by `rmqtx.repairs.changes.execution`, in place or on a clone:

    execute(change_set, root, undo_path)     in place; before-images and steps are durable in the undo file first
    undo(undo_path, root)                    restores the files as they were before, also after a crash at any instant
    resume(undo_path, root)                  completes the changes, also after a crash at any instant
    with cloned(root, target) as copy:       a copy that gets its name when it is complete; `cloned` is in
        execute_on_copy(change_set, copy)    rmqtx.repairs.changes.clones

Files are named by their path below the store's root, with slashes: `commitlog/00000000000000000000`, `abort`.
The order of the steps is the order on disk only where a `Barrier` stands between them: everything before it is durable
before anything after it begins. Undo reverses the order, including the barriers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rmqtx.readers.model.declared_json import shown
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.store.store_roots import is_own_path

#: Directories in which a broker loads every file: no temporary file may be in them.
#: Source: store/MappedFileQueue.java load; a foreign file in commitlog/ keeps 4.5.1 and later from starting.
SEGMENT_DIRECTORIES = ("commitlog", "consumequeue", "batchconsumequeue", "index", "transaction")


@dataclass(frozen=True, slots=True)
class WriteAt:
    """Overwrites bytes within an existing file; the file keeps its length.

    Units: `position_bytes` within the file, not in the log.
    """

    path: str
    position_bytes: int
    data: bytes

    @property
    def end_bytes(self) -> int:
        """Position in the file after the last byte."""
        return self.position_bytes + len(self.data)


@dataclass(frozen=True, slots=True)
class CreateFile:
    """A new file: `data` at its begin, zeros to its size. It appears atomically under its name."""

    path: str
    size_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ReplaceFile:
    """A file with new content of any length, replaced atomically. The file need not exist before."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file to remove."""

    path: str


@dataclass(frozen=True, slots=True)
class Barrier:
    """Everything before it is durable before anything after it begins."""


Change = WriteAt | CreateFile | ReplaceFile | RemoveFile
Step = Change | Barrier


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Steps in their order.

    Shape: a file is named by one CreateFile, ReplaceFile or RemoveFile, or by WriteAt steps that do not overlap; all
           content of a new file is in its CreateFile.
    Raises: BadRequest where the steps contradict each other or name something outside the store.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        written: dict[str, list[WriteAt]] = {}
        whole: set[str] = set()
        for step in self.changes():
            check_path(step.path)
            if step.path in whole or (step.path in written and not isinstance(step, WriteAt)):
                raise BadRequest(f"two steps that contradict each other change {step.path}")
            if not isinstance(step, WriteAt):
                whole.add(step.path)
                if isinstance(step, CreateFile) and len(step.data) > step.size_bytes:
                    raise BadRequest(f"{step.path} has {step.size_bytes} bytes, and {len(step.data)} bytes are given")
                continue
            if step.position_bytes < 0:
                raise BadRequest(f"{step.path} has no byte {step.position_bytes}")
            written.setdefault(step.path, []).append(step)
        for path, steps in written.items():
            _check_apart(path, steps)

    def changes(self) -> Iterator[Change]:
        """The steps that change something."""
        return (step for step in self.steps if not isinstance(step, Barrier))

    def groups(self) -> list[list[Change]]:
        """The changes between barriers; no group is empty."""
        groups: list[list[Change]] = [[]]
        for step in self.steps:
            if isinstance(step, Barrier):
                groups.append([])
            else:
                groups[-1].append(step)
        return [group for group in groups if group]


def check_path(path: str) -> None:
    """Refuse a path that is not one of a broker's own files in a store: nothing else is ever changed.

    Raises: BadRequest.
    """
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BadRequest(f"{shown(path)} names no file below the root of a store")
    if path == "lock":
        raise BadRequest("the file lock belongs to the process that uses the store: rmqtx never changes it")
    if not is_own_path(path):
        raise BadRequest(f"{shown(path)} is not a file of a broker's store: rmqtx changes no other files")


def is_segment_path(path: str) -> bool:
    """Whether a file is in, or below, a directory in which a broker loads every file."""
    return "/" in path and path.startswith(SEGMENT_DIRECTORIES)


def _check_apart(path: str, steps: list[WriteAt]) -> None:
    ordered = sorted(steps, key=lambda step: step.position_bytes)
    for one, other in itertools.pairwise(ordered):
        if other.position_bytes < one.end_bytes:
            raise BadRequest(f"{path} is written twice at byte {other.position_bytes}")

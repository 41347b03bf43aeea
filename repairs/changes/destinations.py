"""Where a changed store goes: to a new directory, or in place, with the undo file on disk first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.store.store import Store
from rmqtx.repairs.changes.change_sets import ChangeSet
from rmqtx.repairs.changes.clones import COMMIT_LOG, cloned
from rmqtx.repairs.changes.execution import execute, execute_on_copy


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the changed store goes: to `copy`, a new directory, or in place, with an undo file `undo_file`."""

    copy: Path | None = None
    undo_file: Path | None = None

    @property
    def is_untouched(self) -> bool:
        """Whether there is no sign that a change was begun."""
        return self.undo_file is None or not self.undo_file.exists()


def carried_out(
    changes: ChangeSet, store: Store, destination: Destination, about: Sequence[str], receipts: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Change a store, and return the root of the changed store and the directories of its log.

    `about`: lines for people that describe the purpose of the changes; `receipts`: ids of the receipts of the changes.
    Raises: StoreInUse, StoreChanged, UnwritableFile, UnreadableFile, BadRequest.
    """
    directories = store.commit_log_directories
    if destination.copy is not None:
        with cloned(store.root, destination.copy, commit_log_directories=directories) as copy:
            execute_on_copy(changes, copy)
        root = str(destination.copy.absolute())
        return root, _copied(directories, store.root, root)
    assert destination.undo_file is not None
    execute(changes, store.root, destination.undo_file, about=about, receipts=receipts)
    return store.root, directories


def _copied(directories: Sequence[str], source: str, target: str) -> tuple[str, ...]:
    """Places of the directories of a log in a copy of its store."""
    root, copy = Path(source).resolve(), Path(target)
    places = [Path(directory).resolve() for directory in directories]
    found = [copy / (place.relative_to(root) if place.is_relative_to(root) else COMMIT_LOG) for place in places]
    return tuple(dict.fromkeys(str(place) for place in found))

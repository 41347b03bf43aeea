"""The damages, by name: each is done to a copy of a store that a broker of the version wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.queues.consume_queue import SLOT
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from tests.forge import damage
from tests.forge.damage import log_files, queue_files, records_in

SLOT_BYTES = 20
#: Stores of one file, stopped cleanly, and stores of many, killed.
CLEAN, KILLED = "common", "killed"


@dataclass(frozen=True)
class Case:
    """One damage to one store. `is_abnormal`: whether the broker finds an `abort` file."""

    name: str
    store: str
    is_abnormal: bool
    wound: Callable[[Path], object]


def _record(root: Path, file: int, share: float) -> tuple[Path, int, int]:
    """A record by the number of its file and where about in it."""
    path = log_files(root)[file]
    found = records_in(path)
    place, length = found[min(len(found) - 1, int(len(found) * share))]
    return path, place, length


def _body(file: int, share: float) -> Callable[[Path], object]:
    def wound(root: Path) -> object:
        path, place, _ = _record(root, file, share)
        return damage.flip_byte(path, place + 90)

    return wound


def _field(name: str, file: int, share: float) -> Callable[[Path], object]:
    def wound(root: Path) -> object:
        path, place, _ = _record(root, file, share)
        return damage.flip_byte(path, place + AT[name] + 3, 0x40)

    return wound


def _head(file: int, share: float) -> Callable[[Path], object]:
    def wound(root: Path) -> object:
        path, place, _ = _record(root, file, share)
        return damage.zero_bytes(path, place, 8)

    return wound


def _used(file: Path) -> int:
    return -(-len(file.read_bytes().rstrip(b"\0")) // SLOT_BYTES)


def _slots(topic: str, first: int, count: int) -> Callable[[Path], object]:
    """Slots become zeros; `first` counts from the end where it is negative."""

    def wound(root: Path) -> object:
        file = queue_files(root, topic)[-1]
        begin = first if first >= 0 else _used(file) + first
        return damage.zero_bytes(file, begin * SLOT_BYTES, count * SLOT_BYTES)

    return wound


def _slot_beyond(root: Path) -> object:
    file = queue_files(root, HALF_TOPIC)[-1]
    return damage.write_bytes(
        file, (_used(file) - 1) * SLOT_BYTES, SLOT.pack(commit_log_offset=1 << 40, record_length_bytes=300, tags_code=0)
    )


def _drop_queue(topic: str) -> Callable[[Path], object]:
    return lambda root: damage.drop(root / "consumequeue" / topic)


def _torn(root: Path) -> object:
    return damage.torn_tail(root, 50)


def _no_blank(root: Path) -> object:
    """The blank record at the end of the last file but one that is full is gone."""
    path = [file for file in log_files(root) if b"\xcb\xd4\x31\x94" in file.read_bytes()][-1]
    return damage.zero_bytes(path, path.read_bytes().rindex(b"\xcb\xd4\x31\x94") - 4, 8)


def _last_file_gone(root: Path) -> object:
    return damage.drop([file for file in log_files(root) if records_in(file)][-1])


def _middle_file_gone(root: Path) -> object:
    return damage.drop(log_files(root)[len(log_files(root)) // 2])


def _short_queue_file(root: Path) -> object:
    return damage.truncate(queue_files(root, OP_TOPIC)[-1], 10_000)


def _no_checkpoint(root: Path) -> object:
    return damage.drop(root / "checkpoint")


def _both(*wounds: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda root: [wound(root) for wound in wounds]


def _bad_cursors(root: Path) -> object:
    file = root / "config" / "consumerOffset.json"
    damage.truncate(file, 30)
    return shutil.copyfile(file, file.with_name(f"{file.name}.bak"))


def _nothing(_root: Path) -> object:
    return None


CASES = (
    Case("untouched", CLEAN, False, _nothing),
    Case("untouched, killed", KILLED, True, _nothing),
    Case("body in the middle", CLEAN, False, _body(0, 0.5)),
    Case("half slot zeroed", CLEAN, False, _slots(HALF_TOPIC, 20, 1)),
    Case("last half slots zeroed", CLEAN, False, _slots(HALF_TOPIC, -4, 4)),
    Case("no blank record, clean", KILLED, False, _no_blank),
    Case("a middle file gone", KILLED, True, _middle_file_gone),
    Case("half queue gone", CLEAN, False, _drop_queue(HALF_TOPIC)),
    Case("record head zeroed", KILLED, True, _head(-3, 0.3)),
    Case("a stray file", CLEAN, False, lambda root: damage.foreign_file(root / "commitlog")),
    Case("last half slot points beyond the log", CLEAN, False, _slot_beyond),
    Case("all queues gone, killed", KILLED, True, lambda root: damage.drop(root / "consumequeue")),
    Case("a record's own offset", CLEAN, False, _field("commit_log_offset", 0, 0.6)),
    Case("a record's length", CLEAN, False, _field("length_bytes", 0, 0.6)),
    Case("last file gone", KILLED, True, _last_file_gone),
    Case("half slot zeroed, abort", CLEAN, True, _both(_slots(HALF_TOPIC, 20, 1), _no_checkpoint)),
    Case("last half slots zeroed, killed", KILLED, True, _slots(HALF_TOPIC, -4, 4)),
    Case("torn tail", CLEAN, False, _torn),
    Case("a short queue file", CLEAN, False, _short_queue_file),
    Case("all queues gone", CLEAN, False, lambda root: damage.drop(root / "consumequeue")),
    Case("body, abort", CLEAN, True, _both(_body(0, 0.8), _no_checkpoint)),
    Case("record head zeroed, four files back, clean", KILLED, False, _head(-6, 0.5)),
    Case("record head zeroed, last file, clean", KILLED, False, _head(-2, 0.3)),
    Case("torn tail, killed", KILLED, True, _torn),
    Case("no blank record, abort", KILLED, True, _both(_no_blank, _no_checkpoint)),
    Case("last file gone, clean", KILLED, False, _last_file_gone),
    Case("last op slots zeroed", CLEAN, False, _slots(OP_TOPIC, -3, 3)),
    Case("half queue gone, abort", CLEAN, True, _both(_drop_queue(HALF_TOPIC), _no_checkpoint)),
    Case("half queue gone, killed", KILLED, True, _drop_queue(HALF_TOPIC)),
    Case("no checkpoint, killed", KILLED, True, _no_checkpoint),
    Case("cursors and their backup cut", CLEAN, False, _bad_cursors),
)


def prepared(case: Case, root: Path) -> None:
    """Do a case's damage to a store, and say how its broker stopped."""
    case.wound(root)
    abort = root / "abort"
    if case.is_abnormal:
        abort.touch()
    else:
        abort.unlink(missing_ok=True)

"""What happens to the files of a stopped broker: by name and a place from 0 to 1, so that it can be repeated."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC
from tests.forge import damage

_SLOT = struct.Struct(">qiq")
_FILLER = _SLOT.pack(0, 0x7FFFFFFF, 0)
_HEAD = struct.Struct(">iI")
_MAGICS = (0xDAA320A7, 0xDAA320AB)
#: Where a record has its own commit-log offset.
_OWN_PLACE_AT = 28
_STORE_TIME_AT = 56
_GROUP = "CID_RMQ_SYS_TRANS"
#: 4.x writes numbers as keys without quotes.
_UNQUOTED = re.compile(r"([{,]\s*)(\d+)\s*:")


def _used(file: Path) -> int:
    """The bytes of a file before its last zeros."""
    return len(file.read_bytes().rstrip(b"\0"))


def _flip_log(root: Path, place: float) -> None:
    files = [file for file in damage.log_files(root) if _used(file)]
    if files:
        file = files[int(place * len(files))]
        damage.flip_byte(file, int(place * 7 % 1 * _used(file)))


def _records(file: Path) -> list[int]:
    """Where the records of a file begin."""
    data, place, found = file.read_bytes(), 0, []
    while place + _HEAD.size <= len(data):
        length, magic = _HEAD.unpack_from(data, place)
        if magic not in _MAGICS or length <= 0:
            break
        found.append(place)
        place += length
    return found


def _damage_own_place(root: Path, place: float) -> None:
    """Change one byte of the commit-log offset in the header of a record."""
    records = [(file, begin) for file in damage.log_files(root) for begin in _records(file)]
    if records:
        file, begin = records[int(place * len(records))]
        damage.flip_byte(file, begin + _OWN_PLACE_AT + int(place * 1000) % 8)


def _slots(root: Path, topic: str) -> tuple[list[Path], int]:
    """The files of a queue, and the number of its slots."""
    files = damage.queue_files(root, topic)
    return files, sum(-(-_used(file) // _SLOT.size) for file in files)


def slots_end(root: Path, topic: str) -> int:
    """The number after the last slot in the files of a queue; 0 without files."""
    files, count = _slots(root, topic)
    return int(files[0].name) // _SLOT.size + count if files else 0


def _in_queue(topic: str, data: Callable[[int], bytes], *, at_end: bool) -> Callable[[Path, float], None]:
    def act(root: Path, place: float) -> None:
        files, count = _slots(root, topic)
        if not count:
            return
        per_file = files[0].stat().st_size // _SLOT.size
        first = int(files[0].name) // _SLOT.size
        length = 1 + int(place * 4)
        begin = max(0, count - length) if at_end else int(place * count)
        for slot in range(begin, min(count, begin + length)):
            file = files[slot // per_file]
            damage.write_bytes(file, (first + slot) % per_file * _SLOT.size, data(slot))

    return act


def _drop(pattern: str) -> Callable[[Path, float], None]:
    def act(root: Path, _place: float) -> None:
        for path in sorted(root.glob(pattern)):
            damage.drop(path)

    return act


def _drop_first_log_file(root: Path, _place: float) -> None:
    files = [file for file in damage.log_files(root) if _used(file)]
    if len(files) > 1:
        damage.drop(files[0])


def _set_cursor(topic: str) -> Callable[[Path, float], None]:
    def act(root: Path, place: float) -> None:
        file = root / "config" / "consumerOffset.json"
        if not file.exists():
            return
        text = file.read_text()
        table = json.loads(_UNQUOTED.sub(r'\1"\2":', text))
        _, count = _slots(root, topic)
        table.setdefault("offsetTable", {}).setdefault(f"{topic}@{_GROUP}", {})["0"] = int(place * (count + 2))
        file.write_text(json.dumps(table))

    return act


def _touch_abort(root: Path, _place: float) -> None:
    (root / "abort").write_bytes(b"")


DAMAGES: dict[str, Callable[[Path, float], None]] = {
    "flipped byte of the log": _flip_log,
    "fillers in the half queue": _in_queue(HALF_TOPIC, lambda _: _FILLER, at_end=False),
    "fillers in the op queue": _in_queue(OP_TOPIC, lambda _: _FILLER, at_end=False),
    "zeroed end of the half queue": _in_queue(HALF_TOPIC, lambda _: bytes(_SLOT.size), at_end=True),
    "zeroed end of the op queue": _in_queue(OP_TOPIC, lambda _: bytes(_SLOT.size), at_end=True),
    "no half queue": _drop(f"consumequeue/{HALF_TOPIC}"),
    "no op queue": _drop(f"consumequeue/{OP_TOPIC}"),
    "no queues": _drop("consumequeue"),
    "no cursors": _drop("config/consumerOffset.json*"),
    "no checkpoint": _drop("checkpoint"),
    "abort": _touch_abort,
    "no abort": _drop("abort"),
    "first log file deleted": _drop_first_log_file,
    "half cursor set": _set_cursor(HALF_TOPIC),
    "op cursor set": _set_cursor(OP_TOPIC),
}

def _empty_only_file(root: Path, _place: float) -> None:
    """Leave only the last file of the half queue, and no slot in it."""
    *others, last = [file for file in damage.queue_files(root, HALF_TOPIC) if _used(file)]
    for file in others:
        damage.drop(file)
    last.write_bytes(bytes(last.stat().st_size))




def _drop_last_queue_file(topic: str) -> Callable[[Path, float], None]:
    """Delete the last file with slots: the queue ends earlier, or has no file."""
    def act(root: Path, _place: float) -> None:
        files = [file for file in damage.queue_files(root, topic) if _used(file)]
        if files:
            damage.drop(files[-1])

    return act


def _set_checkpoint_back(root: Path, place: float) -> None:
    """Give the checkpoint the store time of an earlier record, as an older copy has."""
    file = root / "checkpoint"
    records = [(log, begin) for log in damage.log_files(root) for begin in _records(log)]
    if file.exists() and records:
        log, begin = records[int(place * len(records))]
        time = log.read_bytes()[begin + _STORE_TIME_AT : begin + _STORE_TIME_AT + 8]
        damage.write_bytes(file, 0, time * 3)


#: Those that only newer seeds draw.
NEWER_DAMAGES: dict[str, Callable[[Path, float], None]] = {"own place of a record": _damage_own_place}

#: Those that only the newest seeds draw, and often.
NEWEST_DAMAGES: dict[str, Callable[[Path, float], None]] = {
    "zeroed slots of the half queue": _in_queue(HALF_TOPIC, lambda _: bytes(_SLOT.size), at_end=False),
    "zeroed slots of the op queue": _in_queue(OP_TOPIC, lambda _: bytes(_SLOT.size), at_end=False),
    "last file of the half queue deleted": _drop_last_queue_file(HALF_TOPIC),
    "last file of the op queue deleted": _drop_last_queue_file(OP_TOPIC),
    "no index": _drop("index"),
    "older checkpoint": _set_checkpoint_back,
}

#: Those that no seed draws.
OTHER_DAMAGES: dict[str, Callable[[Path, float], None]] = {"only an empty half queue file": _empty_only_file}

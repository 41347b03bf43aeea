"""Damages by name for a copy of a store: the same seed does the same damage.

Every damage takes the store's root and returns a sentence about what it changed, so that a failure can be repeated.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE_BYTES = 4096
SLOT_BYTES = 20
_READ_BYTES = 1 << 20


# ---- exact damages


def flip_byte(file: Path, position: int, mask: int = 0xFF) -> str:
    """Change one byte. `mask`: which of its bits."""
    with file.open("r+b") as opened:
        opened.seek(position)
        (value,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([value ^ mask]))
    return f"byte {position} of {file.name}: {value:#04x} became {value ^ mask:#04x}"


def write_bytes(file: Path, position: int, data: bytes) -> str:
    """Overwrite bytes."""
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)
    return f"{len(data)} bytes from byte {position} of {file.name} were overwritten"


def zero_bytes(file: Path, position: int, length: int) -> str:
    """Zero bytes, as after a lost page."""
    write_bytes(file, position, bytes(length))
    return f"{length} bytes from byte {position} of {file.name} became zeros"


def truncate(file: Path, size: int) -> str:
    """Cut a file."""
    before = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(size)
    return f"{file.name} was cut from {before} to {size} bytes"


def lengthen(file: Path, extra: bytes) -> str:
    """Append bytes to a file."""
    with file.open("ab") as opened:
        opened.write(extra)
    return f"{file.name} got {len(extra)} more bytes"


def drop(path: Path) -> str:
    """Remove a file, or a directory with its contents."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return f"{path.name} was removed"


def swap(one: Path, other: Path) -> str:
    """Exchange two files by renames, so that holes stay holes."""
    if one != other:
        aside = one.with_name(f"{one.name}.aside")
        one.rename(aside)
        other.rename(one)
        aside.rename(other)
    return f"{one.name} and {other.name} were exchanged"


def foreign_file(directory: Path, name: str = "notes.txt", data: bytes = b"not of this store\n") -> str:
    """Add a file that no broker writes there."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(data)
    return f"{name} was put into {directory.name}"


def torn_tail(root: Path, bytes_left: int) -> str:
    """End the log inside its last record: only its first `bytes_left` bytes are kept."""
    file, position, length = last_record(root)
    zero_bytes(file, position + bytes_left, length - bytes_left)
    return f"of the last record, at byte {position} of {file.name}, {bytes_left} of {length} bytes were written"


# ---- places


def log_files(root: Path) -> list[Path]:
    """The files of the commit log, in offset order."""
    return sorted(root.glob("commitlog*/" + "[0-9]" * 20), key=lambda file: file.name)


def queue_files(root: Path, topic: str = "*", queue: str = "*") -> list[Path]:
    """The files of consume queues."""
    return sorted(root.glob(f"consumequeue/{topic}/{queue}/" + "[0-9]" * 20))


def records_in(file: Path) -> list[tuple[int, int]]:
    """Position and length of the records of a commit-log file, one after another, as recovery walks them."""
    found, position = [], 0
    with file.open("rb", buffering=0) as opened:
        while (head := os.pread(opened.fileno(), 8, position))[4:7] == b"\xda\xa3\x20" and len(head) == 8:
            length = int.from_bytes(head[:4], "big")
            found.append((position, length))
            position += length
    return found


def last_record(root: Path) -> tuple[Path, int, int]:
    """File, position and length of the last record of the log."""
    for file in reversed(log_files(root)):
        found = records_in(file)
        if found:
            return file, *found[-1]
    raise AssertionError(f"{root} has no record")


# ---- random damages


Damage = Callable[[Path, random.Random], str]


def _some(files: list[Path], chance: random.Random) -> Path | None:
    filled = [file for file in files if file.is_file() and file.stat().st_size]
    return chance.choice(filled) if filled else None


def _written(file: Path) -> int:
    """End of a file's data, at least 1: most of a preallocated file is unused zeros.

    Only the end of the data is read, so that a file may be larger than the memory.
    """
    with file.open("rb", buffering=0) as opened:
        for begin, end in reversed(list(_data_ranges(opened.fileno()))):
            while begin < end:
                place = max(begin, end - _READ_BYTES)
                written = len(os.pread(opened.fileno(), end - place, place).rstrip(b"\0"))
                if written:
                    return place + written
                end = place
    return 1


def _data_ranges(descriptor: int) -> Iterator[tuple[int, int]]:
    """Begin and end of the parts of a file that are no holes."""
    end, size = 0, os.fstat(descriptor).st_size
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # only a hole is left
            return
        end = os.lseek(descriptor, begin, os.SEEK_HOLE)
        yield begin, end


def _files(root: Path, kind: str) -> list[Path]:
    if kind == "log":
        return log_files(root)
    if kind == "queue":
        return queue_files(root)
    if kind == "own-queue":
        return queue_files(root, "RMQ_SYS_TRANS_*")
    if kind == "config":
        return sorted(root.glob("config/*.json*"))
    if kind == "any":
        return sorted(path for path in root.rglob("*") if path.is_file())
    return sorted(root.glob(f"{kind}/*")) if kind == "index" else [root / kind]


def _flip(kind: str, most: int) -> Damage:
    def damage(root: Path, chance: random.Random) -> str:
        file = _some(_files(root, kind), chance)
        if file is None:
            return f"no {kind} file"
        reach = min(_written(file) + 64, file.stat().st_size)
        places = [chance.randrange(reach) for _ in range(chance.randint(1, most))]
        return "; ".join(flip_byte(file, place, chance.randint(1, 255)) for place in places)

    return damage


def _overwrite(kind: str) -> Damage:
    def damage(root: Path, chance: random.Random) -> str:
        file = _some(_files(root, kind), chance)
        if file is None:
            return f"no {kind} file"
        size = _written(file)
        place = chance.randrange(size)
        length = chance.choice((1, 2, 4, 8, 20, 100, 512, PAGE_BYTES))
        length = min(length, file.stat().st_size - place)
        if chance.random() < 0.4:
            return zero_bytes(file, place, length)
        if chance.random() < 0.4:
            return write_bytes(file, place, chance.choice((b"\xff", b"\x7f", b"\x80", b"\x01", b"\x02")) * length)
        return write_bytes(file, place, chance.randbytes(length))

    return damage


def _page(root: Path, chance: random.Random) -> str:
    file = _some(_files(root, chance.choice(("log", "own-queue", "index"))), chance)
    if file is None:
        return "no file"
    place = chance.randrange(-(-_written(file) // PAGE_BYTES)) * PAGE_BYTES
    return zero_bytes(file, place, min(PAGE_BYTES, file.stat().st_size - place))


def _copy_block(root: Path, chance: random.Random) -> str:
    """Copy bytes of the log to another place: records whose stored offset is not their place."""
    one, other = _some(log_files(root), chance), _some(log_files(root), chance)
    if one is None or other is None:
        return "no log"
    length = chance.randrange(1, 2 * PAGE_BYTES)
    begin = chance.randrange(_written(one))
    place = chance.randrange(_written(other))
    with one.open("rb", buffering=0) as opened:
        data = os.pread(opened.fileno(), length, begin)
    return write_bytes(other, place, data[: other.stat().st_size - place])


def _number(kind: str) -> Damage:
    """Write an extreme or nearby integer at a place where a field may be."""

    def damage(root: Path, chance: random.Random) -> str:
        file = _some(_files(root, kind), chance)
        if file is None or file.stat().st_size < 8:
            return f"no {kind} file"
        width = chance.choice((2, 4, 8))
        value = chance.choice((0, 1, -1, 2 ** (8 * width - 1) - 1, -(2 ** (8 * width - 1)), chance.randint(0, 32_000)))
        place = chance.randrange(max(1, min(_written(file), file.stat().st_size - width)))
        return write_bytes(file, place, value.to_bytes(width, "big", signed=True))

    return damage


def _truncate(kind: str) -> Damage:
    def damage(root: Path, chance: random.Random) -> str:
        file = _some(_files(root, kind), chance)
        return f"no {kind} file" if file is None else truncate(file, chance.randrange(file.stat().st_size))

    return damage


def _lengthen(root: Path, chance: random.Random) -> str:
    file = _some(_files(root, chance.choice(("log", "queue", "index", "checkpoint"))), chance)
    if file is None:
        return "no file"
    return lengthen(file, chance.choice((bytes, chance.randbytes))(chance.randint(1, 3 * PAGE_BYTES)))


def _drop(kind: str) -> Damage:
    def damage(root: Path, chance: random.Random) -> str:
        file = _some(_files(root, kind), chance)
        return f"no {kind} file" if file is None else drop(file)

    return damage


def _drop_directory(root: Path, chance: random.Random) -> str:
    found = sorted(path for path in root.rglob("*") if path.is_dir() and not path.name.startswith("commitlog"))
    return drop(chance.choice(found)) if found else "no directory"


def _swap(kind: str) -> Damage:
    def damage(root: Path, chance: random.Random) -> str:
        one, other = _some(_files(root, kind), chance), _some(_files(root, kind), chance)
        return f"no {kind} file" if one is None or other is None else swap(one, other)

    return damage


def _foreign(root: Path, chance: random.Random) -> str:
    directory = chance.choice([root, *(path for path in sorted(root.rglob("*")) if path.is_dir())])
    name = chance.choice(("notes.txt", "0" * 20, "9" * 20, f"{chance.randrange(1 << 40):020d}", "abort", "CURRENT"))
    if (directory / name).is_dir():
        return "nothing"
    return foreign_file(directory, name, chance.randbytes(chance.choice((0, 1, 20, 5000))))


def _rename(root: Path, chance: random.Random) -> str:
    file = _some(_files(root, chance.choice(("log", "queue", "index"))), chance)
    if file is None:
        return "no file"
    width = len(file.name)
    name = str(chance.randrange(10 ** chance.randint(1, width))).rjust(width, "0")
    file.rename(file.with_name(name))
    return f"{file.name} became {name}"


def _cursor(root: Path, chance: random.Random) -> str:
    """Change numbers in the cursors, as an edit by hand does."""
    file = root / "config" / "consumerOffset.json"
    if not file.is_file():
        return "no cursors"
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    if not digits:
        return "no number"
    place = chance.choice(digits)
    value = chance.choice(("", "-", "9", "99999999999999999999", "1.5", "null", '"x"', "e"))
    file.write_text(text[:place] + value + text[place + 1 :], encoding="utf-8", errors="surrogateescape")
    return f"character {place} of {file.name} became {value!r}"


RANDOM: dict[str, Damage] = {
    "flip_log": _flip("log", 4),
    "flip_many_log": _flip("log", 400),
    "flip_queue": _flip("queue", 4),
    "flip_own_queue": _flip("own-queue", 4),
    "flip_index": _flip("index", 4),
    "flip_checkpoint": _flip("checkpoint", 2),
    "flip_config": _flip("config", 2),
    "overwrite_log": _overwrite("log"),
    "overwrite_own_queue": _overwrite("own-queue"),
    "overwrite_index": _overwrite("index"),
    "overwrite_config": _overwrite("config"),
    "overwrite_any": _overwrite("any"),
    "number_in_log": _number("log"),
    "number_in_queue": _number("own-queue"),
    "number_in_index": _number("index"),
    "zero_page": _page,
    "copy_block": _copy_block,
    "truncate_log": _truncate("log"),
    "truncate_queue": _truncate("queue"),
    "truncate_any": _truncate("any"),
    "lengthen": _lengthen,
    "drop_segment": _drop("log"),
    "drop_queue_file": _drop("queue"),
    "drop_any": _drop("any"),
    "drop_directory": _drop_directory,
    "swap_segments": _swap("log"),
    "swap_queues": _swap("queue"),
    "swap_any": _swap("any"),
    "foreign_file": _foreign,
    "rename": _rename,
    "cursor": _cursor,
}
"""Random damages by name."""


def _emptied(root: Path, chance: random.Random) -> str:
    file = _weighed(root, chance)
    return "no file" if file is None else truncate(file, 0)


def _zeroed(root: Path, chance: random.Random) -> str:
    file = _weighed(root, chance)
    return "no file" if file is None else zero_bytes(file, 0, file.stat().st_size)


def _weighed(root: Path, chance: random.Random) -> Path | None:
    """A file with bytes, of a kind that is drawn first."""
    return _some(_files(root, chance.choice(("log", "own-queue", "queue", "config", "checkpoint", "any"))), chance)


def _slot(root: Path, chance: random.Random) -> str:
    file = _some(_files(root, "own-queue"), chance)
    if file is None:
        return "no own-queue file"
    return zero_bytes(file, chance.randrange(-(-_written(file) // SLOT_BYTES)) * SLOT_BYTES, SLOT_BYTES)


def _doubled(root: Path, chance: random.Random) -> str:
    """Copy a file of the log or of a queue under the name of the file that would follow it."""
    file = _some(_files(root, chance.choice(("log", "own-queue", "queue"))), chance)
    if file is None or not file.name.isdecimal():
        return "no file"
    name = f"{int(file.name) + file.stat().st_size:020d}"
    shutil.copyfile(file, file.with_name(name))
    return f"{name} is a copy of {file.name}"


def _expired(root: Path, chance: random.Random) -> str:
    """Delete the first files of the log, as a broker does after fileReservedTime; sometimes those of a queue."""
    files = log_files(root)
    if chance.random() < 0.3:
        queues: dict[Path, list[Path]] = {}
        for file in queue_files(root):
            queues.setdefault(file.parent, []).append(file)
        several = [found for found in queues.values() if len(found) > 1]
        files = chance.choice(several) if several else []
    if len(files) < 2:
        return "one file"
    return "; ".join(map(drop, files[: chance.randrange(1, len(files))]))


def _aborted(root: Path, _chance: random.Random) -> str:
    abort = root / "abort"
    return drop(abort) if abort.exists() else foreign_file(root, "abort", b"")


def _other_content(root: Path, chance: random.Random) -> str:
    """Give a file of settings or cursors another content that may still be read."""
    file = _some(_files(root, "config"), chance)
    if file is None:
        return "no config file"
    text = chance.choice(("", "{}", "[]", "null", "{", "\ufeff{}", '{"offsetTable":{}}', '{"offsetTable":null}'))
    file.write_text(text, encoding="utf-8")
    return f"{file.name} became {text!r}"


def _unreadable(root: Path, chance: random.Random) -> str:
    """Put a directory, or a link that leads nowhere, in place of a file: neither can be read, also by root."""
    file = _weighed(root, chance)
    if file is None:
        return "no file"
    file.unlink()
    if chance.random() < 0.5:
        file.mkdir()
        return f"{file.name} became a directory"
    file.symlink_to(file.with_name("nowhere"))
    return f"{file.name} became a link that leads nowhere"


#: Further damages, of whole files; the rounds of `tests.fuzz` draw from `RANDOM` alone.
MORE: dict[str, Damage] = {
    "abort": _aborted,
    "double": _doubled,
    "empty": _emptied,
    "expire": _expired,
    "other_content": _other_content,
    "unreadable": _unreadable,
    "zero_file": _zeroed,
    "zero_slot": _slot,
}

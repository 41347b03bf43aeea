"""The record campaign: one field of one record, slot, entry or cursor gets another value, then the commands run.

The kind of file is drawn first, then the field, so that rare fields are hit as often as bodies.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from rmqtx.readers.index.index import HEADER as INDEX_HEADER
from rmqtx.readers.log.record_layout import COMMIT, PREPARED, ROLLBACK, TRANSACTION_MASK
from rmqtx.readers.log.segment_scan import SegmentScan
from rmqtx.readers.model.layout import Layout
from rmqtx.readers.old_tables.redo_log import REDO_ENTRY
from rmqtx.readers.old_tables.redo_log import TOPIC as REDO_TOPIC
from rmqtx.readers.old_tables.state_table import STATE_SLOT
from rmqtx.readers.queues.consume_queue import BATCH_SLOT, SLOT
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, open_store
from tests.forge.comparing import parts_of
from tests.fuzz import asking
from tests.fuzz.asking import Question, Truth
from tests.fuzz.meaningless import used_bytes
from tests.fuzz.outcomes import UNCHANGED, Case, Played, played

#: Number of cases of a store: a case takes longer in a large store.
_CASES_MIN, _CASES_MAX = 40, 400
_BYTES_AT_MOST = 20_000
_TOPIC_NAMES = {HALF_TOPIC: "half", OP_TOPIC: "op", DISCARD_TOPIC: "discard copy"}
_KIND_NAMES = {COMMIT: "final", PREPARED: "prepared", ROLLBACK: "rollback"}
#: Files of equal units without a header, by pattern.
_UNIT_FILES: dict[str, tuple[str, Layout]] = {
    "half queue": (f"consumequeue/{HALF_TOPIC}/*/*", SLOT),
    "op queue": (f"consumequeue/{OP_TOPIC}/*/*", SLOT),
    "discard queue": (f"consumequeue/{DISCARD_TOPIC}/*/*", SLOT),
    "other queue": ("consumequeue/[a-z]*/*/*", SLOT),
    "batch queue": ("batchconsumequeue/*/*/*", BATCH_SLOT),
    "state table": ("transaction/statetable/*", STATE_SLOT),
    "redo log": (f"transaction/redolog/{REDO_TOPIC}/*/*", REDO_ENTRY),
    "checkpoint": ("checkpoint", CHECKPOINT_FIELDS),
}
#: Files of which any byte may be damaged.
_WHOLE_FILES = {
    "RocksDB transactions": "rocksdbstore/*", "RocksDB queues": "consumequeue/*.*", "RocksDB cursors": "config/*/*.sst",
}


@dataclass(frozen=True)
class Site:
    """Bytes to damage: `part` is their name; `offset` that of their record, if they belong to one."""

    file: Path
    part: str
    begin: int
    length: int
    offset: int | None = None


def _flip(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def _byte(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + chance.randbytes(1) + data[place + 1 :]


def _one_more(data: bytes, chance: random.Random) -> bytes:
    number = int.from_bytes(data[-8:], "big") + chance.choice((-1, 1))
    size = min(8, len(data))
    return data[:-size] + (number % (1 << 8 * size)).to_bytes(size, "big")


def _digits(before: bytes, chance: random.Random) -> bytes:
    """Another number, with one digit fewer, the same number of digits, or one more."""
    return str(chance.randrange(10 ** (len(before) + chance.randint(-1, 1)))).encode()


Damage = Callable[[bytes, random.Random], bytes]
DAMAGES: dict[str, Damage] = {
    "bit": _flip, "byte": _byte, "one more or less": _one_more,
    "zeros": lambda data, _: bytes(len(data)), "0xff": lambda data, _: b"\xff" * len(data),
    "random": lambda data, chance: chance.randbytes(len(data)), "digits": _digits,
}
#: What a whole area of text, a body or a name suffers: no number is in it.
_TEXT_DAMAGES = ("bit", "bit", "byte", "byte", "random")
_NUMBER_DAMAGES = ("bit", "byte", "one more or less", "zeros", "0xff", "random")


@cache
def _sites(root: Path) -> dict[str, dict[str, list[Site]]]:
    """The bytes that can be damaged, by kind of file, then by part."""
    found: dict[str, dict[str, list[Site]]] = {}

    def add(kind: str, site: Site) -> None:
        if site.length:
            found.setdefault(kind, {}).setdefault(site.part, []).append(site)

    for site in _record_sites(root):
        add(site.part.split(": ")[0], site)
    for kind, (pattern, layout) in _UNIT_FILES.items():
        for file in (file for file in root.glob(pattern) if file.is_file()):
            for site in _units(kind, file, layout):
                add(kind, site)
    for file in root.glob("index/*"):
        for site in _index_sites(file):
            add("index", site)
    cursors = root / "config/consumerOffset.json"
    if cursors.exists():
        for number in re.finditer(rb"(?<=:)\d+", cursors.read_bytes()):
            add("cursors", Site(cursors, "cursors: number", number.start(), len(number.group())))
    for kind, pattern in _WHOLE_FILES.items():
        for file in (file for file in root.glob(pattern) if file.is_file()):
            add(kind, Site(file, f"{kind}: {file.suffix or file.name.split('-')[0]}", 0, file.stat().st_size))
    return found


def _record_sites(root: Path) -> Iterator[Site]:
    for segment in open_store(root).commit_log:
        data = Path(segment.file).read_bytes()
        for block in SegmentScan(segment):
            columns = (block.positions.tolist(), block.lengths.tolist(), block.commit_log_offsets.tolist(),
                       block.sys_flag.tolist(), block.topic_texts().to_pylist())
            for place, length, offset, flag, topic in zip(*columns, strict=True):
                kind = _TOPIC_NAMES.get(topic) or _KIND_NAMES.get(flag & TRANSACTION_MASK, "other message")
                for name, part in parts_of(data[place : place + length]).items():
                    yield Site(Path(segment.file), f"{kind}: {name}", place + part.start, len(part), offset)


def _units(kind: str, file: Path, layout: Layout) -> Iterator[Site]:
    data = file.read_bytes()
    for place in range(0, len(data) - layout.size_bytes + 1, layout.size_bytes):
        if any(data[place : place + layout.size_bytes]):
            yield from _fields(kind, file, layout, place)
        if kind == "checkpoint":
            return


def _fields(kind: str, file: Path, layout: Layout, place: int) -> Iterator[Site]:
    for part in layout.fields:
        yield Site(file, f"{kind}: {part.name}", place + layout.offsets[part.name], part.size_bytes)


def _index_sites(file: Path) -> Iterator[Site]:
    yield from _fields("index header", file, INDEX_HEADER, 0)
    data = np.frombuffer(file.read_bytes(), np.uint8)
    for place in np.flatnonzero(data).tolist():
        if place >= INDEX_HEADER.size_bytes:
            yield Site(file, "index: slots and entries", place, 1)


def cases_of(name: str, seed: int) -> Iterator[Case]:
    """Cases of a store; none for a store without data."""
    if not _sites(asking.root_of(name)):
        return iter(())
    used = sum(used_bytes(Path(segment.file).read_bytes()) for segment in open_store(asking.root_of(name)).commit_log)
    count = max(_CASES_MIN, min(_CASES_MAX, _CASES_MAX * _BYTES_AT_MOST // max(used, 1)))
    return (Case(name, "", str(number), seed) for number in range(count))


def drawn(root: Path, chance: random.Random) -> Site | None:
    """A place to damage; None for a store without data."""
    sites = _sites(root)
    if not sites:
        return None
    parts = sites[chance.choice(sorted(sites))]
    return chance.choice(parts[chance.choice(sorted(parts))])


def damaged(site: Site, data: bytes, chance: random.Random) -> tuple[str, bytes, bytes]:
    """Draw a damage for a place in a file: its name, and the bytes there before and after."""
    before = data[site.begin : site.begin + site.length]
    damages = ("digits",) if site.part.startswith("cursors") else _TEXT_DAMAGES if site.length > 8 else _NUMBER_DAMAGES
    damage = chance.choice(damages)
    return damage, before, DAMAGES[damage](before, chance)


def play(case: Case) -> Played:
    """Damage the bytes, run the commands, and restore the bytes."""
    truth = asking.truth_of(case.store)
    chance = random.Random(f"{case} {case.seed}")
    site = drawn(truth.root, chance)
    assert site is not None
    data = site.file.read_bytes()
    damage, before, after = damaged(site, data, chance)
    file = site.file.relative_to(truth.root.parent)
    what = f"{case} {site.part} at {site.begin} of {file}: {damage}, {hex_text(before, after)}"
    if after == before:
        return Played(what, case.store, site.part, UNCHANGED)
    changed = data[: site.begin] + after + data[site.begin + site.length :]
    return played(
        what, case.store, site.part,
        *asking.while_damaged(
            truth, partial(_put, site.file, changed), partial(_put, site.file, data),
            _questions(truth, site, chance),
        ),
    )


def _put(file: Path, data: bytes) -> None:
    """Write a file and keep its times: of two cursor files the newer one is read."""
    entry = file.stat()
    file.write_bytes(data)
    os.utime(file, ns=(entry.st_atime_ns, entry.st_mtime_ns))


def hex_text(before: bytes, after: bytes) -> str:
    """A change of bytes in words."""
    if len(before) != len(after):
        return f"{before!r} -> {after!r}"
    places = [place for place in range(len(before)) if before[place] != after[place]]
    if not places:
        return "unchanged"
    begin, end = places[0], min(places[-1], places[0] + 15) + 1
    return f"+{begin} {before[begin:end].hex()} -> {after[begin:end].hex()}"


def _questions(truth: Truth, site: Site, chance: random.Random) -> Iterator[Question]:
    yield partial(asking.listed, truth, "audit")
    yield partial(asking.listed, truth, "pending")
    identity = truth.by_offset.get(site.offset) if site.offset is not None else None
    if truth.states and (identity is not None or chance.random() < 0.3):
        yield partial(asking.shown, truth, identity or chance.choice(sorted(truth.states)))
    if chance.random() < 0.2:
        yield partial(asking.listed, truth, "simulate")
        yield partial(asking.checked, truth, is_destroyed=False)
        yield partial(asking.described, truth, is_end_destroyed=False)
    if identity is not None and truth.states[identity] in ("COMMITTED", "ROLLED_BACK") and chance.random() < 0.3:
        yield partial(asking.acted, truth, identity, chance.choice(["commit", "rollback"]))

"""The file campaign: any file of a store is damaged, then `verify --full`, `audit` and `pending` are compared.

All designs get the same number of damages; of a store, each kind of file. A damage is one of `file_damages`, or one
field of a record, slot or entry as in `single_records`, or the whole file.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
from tests.brokers import corpus
from tests.fuzz import asking, single_records
from tests.fuzz.asking import WrongAnswer
from tests.fuzz.file_damages import DAMAGES, change_text, place_in
from tests.fuzz.heeded import Heeded, heeded, undamaged
from tests.fuzz.left_out import Reason
from tests.fuzz.meaningless import used_bytes
from tests.fuzz.outcomes import CRASH, REPORTED, SILENT, UNCHANGED, Case, Played

if TYPE_CHECKING:
    from tests.fuzz.agreement import Expected

#: Cases of one design; a campaign draws from them.
CASES_OF_DESIGN = 2_000
PLACES = ("head", "middle", "tail")
_TOPICS = {
    HALF_TOPIC: "half queue", OP_TOPIC: "op queue", DISCARD_TOPIC: "discard queue",
    ROCKSDB_HALF_TOPIC: "half queue of RocksDB", ROCKSDB_OP_TOPIC: "op queue of RocksDB",
}
#: Share of the damages that change one field, and of those that change a whole file.
_FIELD_SHARE, _WHOLE_SHARE = 0.35, 0.1


def design_of(name: str) -> str:
    """The design that a store is counted for."""
    recipe = corpus.recipe(name)
    known = str(recipe.get("design", corpus.HALF_TOPIC_DESIGN))
    if name.startswith("empty"):
        return "empty"
    if name.startswith("rocksdb-configs"):
        return "RocksDB configs"
    if known in ("half", "half_topic", corpus.HALF_TOPIC_DESIGN):
        return "half topics"
    words = {
        "prepared_records": "prepared records", "state_table": "state table", "rocksdb": "RocksDB transactions",
        "rocksdb_queues": "RocksDB queues", "dledger": "DLedger", "controller": "controller",
    }
    return words.get(known, known)


@cache
def _stores() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in corpus.all_names():
        found.setdefault(design_of(name), []).append(name)
    return found


def kind_of(path: Path) -> str:
    """The kind of a file, from its path in the store."""
    parts = path.parts
    if parts[0].startswith("dledger-"):
        return f"DLedger {parts[1]}"
    if "consumequeue" in parts[0] and len(parts) > 2:
        return _TOPICS.get(parts[1], "other queue")
    name = re.sub(r"\d+", "N", parts[-1])
    if re.fullmatch(r"N|N\.\w+", name) or parts[0] in ("index", "timerwheel", "timerlog"):
        name = name if "." in name else ""
    return "/".join(filter(None, (*(re.sub(r"\d+", "N", part) for part in parts[:-1]), name))) or str(path)


@cache
def _files(root: Path) -> dict[str, list[Path]]:
    """The files with data, by kind."""
    found: dict[str, list[Path]] = {}
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink() and any(file.read_bytes()):
            found.setdefault(kind_of(file.relative_to(root)), []).append(file)
    return found


def cases_of(name: str, seed: int) -> Iterator[Case]:
    """Cases of a store: its share of those of its design."""
    design = design_of(name)
    count = -(-CASES_OF_DESIGN // len(_stores()[design]))
    return (Case(name, "", str(number), seed) for number in range(count))


@dataclass(frozen=True)
class Change:
    """A file and its bytes before and after; None: the file is deleted. `kind`: of file and damage, in words."""

    file: Path
    before: bytes
    after: bytes | None
    kind: str
    what: str


def change_of(case: Case) -> Change | None:
    """The damage of a case; None for a store without data."""
    root = asking.root_of(case.store)
    chance = random.Random(f"{case} {case.seed}")
    files = _files(root)
    if not files:
        return None
    if chance.random() < _FIELD_SHARE and (site := single_records.drawn(root, chance)) is not None:
        data = site.file.read_bytes()
        damage, before, after = single_records.damaged(site, data, chance)
        what = f"{site.part} at {site.begin}: {damage}, {single_records.hex_text(before, after)}"
        changed = data[: site.begin] + after + data[site.begin + site.length :]
        return Change(site.file, data, changed, kind_of(site.file.relative_to(root)), what)
    kind = chance.choice(sorted(files))
    file = chance.choice(files[kind])
    data = file.read_bytes()
    if chance.random() < _WHOLE_SHARE:
        whole = chance.choice(("zeros", "empty", "deleted", "random"))
        contents = {"zeros": bytes(len(data)), "empty": b"", "deleted": None, "random": chance.randbytes(len(data))}
        return Change(file, data, contents[whole], kind, f"the whole file: {whole}")
    damage = chance.choice(sorted(DAMAGES))
    changed_data = DAMAGES[damage](data, place_in(used_bytes(data), chance.choice(PLACES), chance), chance)
    return Change(file, data, changed_data, kind, f"{damage}: {change_text(data, changed_data)}")


def play(case: Case) -> Played:
    """Damage a file, compare the three commands, and restore the file."""
    root = asking.root_of(case.store)
    base = undamaged(root, case.store)
    change = change_of(case)
    group = design_of(case.store)
    if change is None or change.after == change.before:
        return Played(str(case), case.store, group, UNCHANGED)
    what = f"{case} {change.file.relative_to(root)}: {change.what}"
    entry = change.file.stat()

    def put(data: bytes | None) -> None:
        if data is None:
            change.file.unlink()
            return
        change.file.write_bytes(data)
        os.utime(change.file, ns=(entry.st_atime_ns, entry.st_mtime_ns))

    try:
        put(change.after)
        found = heeded(root, case.store, base)
    finally:
        put(change.before)
    return compared_case(case, what, group, change.kind, found)


def compared_case(case: Case, what: str, group: str, kind: str, found: Heeded) -> Played:
    """A case with its outcome. `group`: what it is counted for; `kind`: of file or damage."""
    wrong = [WrongAnswer("unheeded", "verify", text) for text in found.silent[:5]]
    if found.crash:
        wrong = [WrongAnswer("crash", "verify", found.crash)]
    outcome = CRASH if found.crash else SILENT if found.silent else REPORTED
    return Played(what, case.store, group, outcome, tuple(wrong), tuple(name for name, _ in found.left_out), kind)


def reasons_table(every: list[Played], reasons: Sequence[Reason | Expected]) -> Iterator[str]:
    """In how many cases each reason was needed, as Markdown."""
    counts = Counter(name for one in every for name in one.codes)
    yield "| reason | cases | why no report is needed |"
    yield "|---|---:|---|"
    for reason in reasons:
        yield f"| {reason.name} | {counts[reason.name] or ''} | {reason.why} |"

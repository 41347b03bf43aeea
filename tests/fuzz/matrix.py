"""The damage matrix: each kind of file × flip, zero, truncate, duplicate, drop, swap, grow × head, middle, tail.

A verification must find every case, unless all changed bytes are listed in docs/meaningless_bytes.md. No record outside
the damage may be lost, no verdict may be wrong, and the findings must count the lost half messages, op messages and
other records. `python -m tests.fuzz.matrix_run --cases N` plays N cases.
"""

from __future__ import annotations

import atexit
import itertools
import random
import shutil
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.store.store import HALF_TOPIC, OP_TOPIC, Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.verify.verify import FULL, Verify
from tests.forge.stores import copy_of, settings_of
from tests.fuzz.file_damages import DAMAGES, change_text, changed_range, place_in
from tests.fuzz.losses import changed_verdicts, uncounted_losses
from tests.fuzz.meaningless import Record, is_meaningless, records_of, used_bytes
from tests.fuzz.rounds import TookTooLong, alarm

STORES = ("common-4.3.0", "common-4.9.7", "common-5.3.3", "killed-4.4.0", "killed-5.1.4", "killed-5.5.0")
KINDS: dict[str, str] = {
    "log": "commitlog/*",
    "half queue": f"consumequeue/{HALF_TOPIC}/*/*",
    "op queue": f"consumequeue/{OP_TOPIC}/*/*",
    "other queue": "consumequeue/[a-z]*/*/*",
    "index": "index/*",
    "checkpoint": "checkpoint",
    "cursors": "config/consumerOffset.json",
    "topics": "config/topics.json",
    "backup": "config/*.bak",
}
#: Files of other designs than half topics.
OTHER_KINDS: dict[str, str] = {
    "old log": "commitlog/*",
    "state table": "transaction/statetable/*",
    "redo log": "transaction/redolog/*/*/*",
    "DLedger log": "dledger-*/data/*",
    "DLedger's half queue": KINDS["half queue"],
}
OTHERS = (
    ("statetable-3.1.4", "old log"), ("statetable-3.1.4", "state table"), ("statetable-3.1.4", "redo log"),
    ("prepared-4.2.0", "old log"), ("dledger-5.1.4", "DLedger log"), ("dledger-5.1.4", "DLedger's half queue"),
)
LOGS = ("log", "old log", "DLedger log")
PLACES = ("head", "middle", "tail")
#: Processor time; a case that takes ten times as long on the clock is ended.
SECONDS_MAX = 20
CELLS = tuple(itertools.product(STORES, KINDS, DAMAGES, PLACES))
OTHER_CELLS = tuple((*store, damage, place) for store, damage, place in itertools.product(OTHERS, DAMAGES, PLACES))
FOUND, MEANINGLESS, UNCHANGED, WRONG = "found", "meaningless", "unchanged", "wrong"

Row = dict[str, Any]


@dataclass(frozen=True)
class Baseline:
    """An undamaged store: its findings, its records, and its verdicts by id."""

    root: Path
    rows: frozenset[str]
    records: frozenset[Record]
    verdicts: dict[str, Row]
    is_aborted: bool


@dataclass(frozen=True)
class Played:
    """One case: the damage, the outcome, and the violations (empty: none)."""

    number: int
    cell: tuple[str, str, str, str]
    done: str
    outcome: str
    wrong: str = ""


def _rows(store: Store) -> list[Row]:
    rows: list[Row] = run_job(Verify(FULL), plan_splits([store]), processes=1).table().to_pylist()
    return rows


def _verdicts(store: Store, name: str) -> dict[str, Row]:
    return {row["transaction_id"]: row for row in audit([store], settings_of(name)).table().to_pylist()}


@cache
def baseline(name: str) -> Baseline:
    """A store of the corpus in a directory of this process."""
    directory = Path(tempfile.mkdtemp(prefix="rmqtx-matrix-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    root = copy_of(name, directory)
    store = open_store(root)
    return Baseline(
        root, frozenset(map(str, _rows(store))), frozenset(records_of(store)), _verdicts(store, name), store.aborted
    )


@dataclass(frozen=True)
class DamageCase:
    """One damage of one file; `file` is None where the store has no such file. `done`: the damage in words."""

    cell: tuple[str, str, str, str]
    base: Baseline
    file: Path | None
    before: bytes
    after: bytes | None
    done: str


def case_of(number: int, seed: int, cells: tuple[tuple[str, str, str, str], ...]) -> DamageCase:
    """The case with a number; the number and the seed determine everything in it."""
    cell = cells[number % len(cells)]
    chance = random.Random(f"{seed} {number}")
    name, kind, damage, where = cell
    base = baseline(name)
    found = sorted(base.root.glob((KINDS | OTHER_KINDS)[kind]))
    files = [file for file in found if file.stat().st_size and any(file.read_bytes())]
    if not files:
        return DamageCase(cell, base, None, b"", b"", "no such file")
    file = chance.choice(files)
    before = file.read_bytes()
    after = DAMAGES[damage](before, place_in(used_bytes(before), where, chance), chance)
    return DamageCase(cell, base, file, before, after, f"{file.relative_to(base.root)}: {change_text(before, after)}")


def play(number: int, seed: int = 0, cells: tuple[tuple[str, str, str, str], ...] = CELLS) -> Played:
    """Play the case with a number; the number and the seed determine everything in it."""
    case = case_of(number, seed, cells)
    cell, base, done = case.cell, case.base, case.done
    name, kind, *_ = cell
    before, after = case.before, case.after
    if case.file is None or after == before:
        return Played(number, cell, done, UNCHANGED)
    file = case.file
    try:
        _write(file, after)
        with alarm(SECONDS_MAX):
            store = open_store(base.root)
            new = [row for row in _rows(store) if str(row) not in base.rows]
            now = set(records_of(store))
            verdicts = _verdicts(store, name)
    except TookTooLong as error:
        return Played(number, cell, done, WRONG, str(error))
    except Exception as error:
        return Played(number, cell, done, WRONG, "".join(traceback.format_exception(error)))
    finally:
        _write(file, before)
    touched = _touched(base, file, before, after) if kind in LOGS else set()
    is_of = "log" if kind in LOGS else kind
    is_excused = is_meaningless(is_of, file, before, after)
    wrong_ones = [f"undamaged and lost: {record}" for record in base.records - now - touched]
    offsets = {record.commit_log_offset for record in touched}
    codes = {row["code"] for row in new}
    wrong_ones += changed_verdicts(
        base.verdicts, verdicts, offsets, kind=is_of, is_meaningless=is_excused, codes=codes
    )
    if not base.is_aborted and kind != "old log":  # since 4.3 a clean stop leaves all records in queues
        wrong_ones += [uncounted_losses(new, Counter(record.kind for record in base.records - now)) or ""]
    if not new and not is_excused:
        wrong_ones.append("not found, and not on the list of meaningless bytes")
    wrong = "\n  ".join(filter(None, wrong_ones[:5]))
    return Played(number, cell, done, WRONG if wrong else FOUND if new else MEANINGLESS, wrong)


def _touched(base: Baseline, file: Path, before: bytes, after: bytes | None) -> set[Record]:
    """The records in the changed range of a file."""
    first, last = changed_range(before, after)
    return {
        one for one in base.records
        if one.file == str(file) and one.position_bytes <= last and one.position_bytes + one.length_bytes > first
    }


def _write(file: Path, data: bytes | None) -> None:
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)

"""`python -m tests.fuzz.holes [STORE ...]`: holes in logs, and how many verdicts they make UNDECIDABLE.

The truth is the audit of the undamaged store. Holes: each eighth of the records (zeros, and 0xff), single records and
pairs of neighbours (zeros), and each file except the first, removed.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.store.store import open_store
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus
from tests.forge.stores import copy_of, settings_of

Row = dict[str, Any]
EIGHTHS = 8
#: Number of places in each log where a record, and a pair of records, is removed.
PLACES = 5


def main(names: list[str]) -> int:
    """One line for each store; exit status 1 if any certain state differs from the truth."""
    total: Counter[str] = Counter()
    for name in names or corpus.all_names():
        with tempfile.TemporaryDirectory(prefix="rmqtx-holes-") as home:
            counts = of_store(name, copy_of(name, Path(home)))
        total += counts
        print(f"{name:<30} {_line(counts)}", flush=True)
    print(f"{'all':<30} {_line(total)}")
    return int(total["wrong"] > 0)


def _line(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in ("holes", "undecidable", "same", "gone", "wrong"))


def of_store(name: str, root: Path) -> Counter[str]:
    """Count the verdicts of a store for all its holes, compared with the truth."""
    truth = _states(name, root)
    counts: Counter[str] = Counter()
    for what, hole in _holes(root):
        with hole:
            now = _states(name, root)
        counts["holes"] += 1
        for identity, state in truth.items():
            found = now.get(identity)
            word = {None: "gone", state: "same", "UNDECIDABLE": "undecidable"}.get(found, "wrong")
            counts[word] += 1
            if word == "wrong":
                print(f"  {name}: {what}: {identity}: {state} -> {found}")
    return counts


def _states(name: str, root: Path) -> dict[str, str]:
    rows = audit([open_store(root)], settings_of(name), processes=1).table().to_pylist()
    return {row["transaction_id"]: row["state"] for row in rows}


def _holes(root: Path) -> Iterator[tuple[str, Any]]:
    records = scan_records(open_store(root)).table().to_pylist()
    for number in range(EIGHTHS if records else 0):
        part = records[number * len(records) // EIGHTHS : (number + 1) * len(records) // EIGHTHS]
        for byte in (b"\0", b"\xff"):
            yield f"eighth {number} is {byte!r}", overwritten(part, byte)
    for first in range(0, len(records) - 1, max(1, len(records) // PLACES)):
        yield f"record {first}", overwritten(records[first : first + 1])
        yield f"records {first} and {first + 1}", overwritten(records[first : first + 2])
    for file in sorted({record["file"] for record in records})[1:]:
        yield f"{Path(file).name} is gone", _removed(Path(file))


@contextmanager
def overwritten(records: list[Row], byte: bytes = b"\0") -> Iterator[None]:
    """Overwrite some records with one byte value while the block runs."""
    before = []
    for record in records:
        with Path(record["file"]).open("r+b") as file:
            file.seek(record["position_bytes"])
            before.append(file.read(record["length_bytes"]))
            file.seek(record["position_bytes"])
            file.write(byte * record["length_bytes"])
    yield
    for record, content in zip(records, before, strict=True):
        with Path(record["file"]).open("r+b") as file:
            file.seek(record["position_bytes"])
            file.write(content)


@contextmanager
def _removed(file: Path) -> Iterator[None]:
    aside = file.rename(file.parents[2] / "aside")
    yield
    aside.rename(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

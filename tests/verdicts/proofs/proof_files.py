"""Proofs of stores of the corpus, altered by seeds, and the independent checker in this process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rmqtx.api.opening import StoreSettings, opened_stores
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.proofs.proof_file import as_line, opened_proof
from rmqtx.verdicts.proofs.proving import Asked, Row, prove
from rmqtx.verdicts.proofs.writing import PROOF_COLUMNS, ProofWriter

CHECKER = Path(__file__).parents[3] / "examples" / "check_proof.py"
Json = dict[str, Any]


def made(store: Path, file: Path, at_ms: int | None = None) -> Path:
    """Write the proof of an audit of a store, as of a time if one is given."""
    stores, settings_of = opened_stores([store], StoreSettings())
    with file.open("wb") as stream:
        writer = ProofWriter(stream, stores, settings_of, "audit", at_ms, is_whole=True)
        reading = audit(stores, settings_of, at_ms=at_ms, columns=PROOF_COLUMNS)
        for _ in writer.watching(reading, reading.batches, lambda rows: rows):
            pass
        writer.finish(reading)
    return file


def proved(file: Path, store: Path, asked: Asked | None = None) -> list[Row]:
    """What `prove` finds."""
    stores, settings_of = opened_stores([store], StoreSettings())
    with opened_proof(file) as reader:
        return list(prove(reader, stores, settings_of, asked or Asked()))


def _checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_proof", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_CHECK = _checker()


def checked(*arguments: object) -> tuple[int, str]:
    """Exit status and output of the independent checker."""
    out, given = io.StringIO(), sys.argv
    sys.argv = ["check_proof.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out):
            status = _CHECK.main()
    finally:
        sys.argv = given
    return status, out.getvalue()


@dataclass(slots=True)
class Parts:
    """A proof as values, to be altered and sealed again."""

    head: Json
    verdicts: list[Json]
    segments: list[Json]
    end: Json

    @classmethod
    def of(cls, file: Path) -> Parts:
        """Read a proof: it is one JSON object too."""
        whole = json.loads(file.read_text("ascii"))
        lists = ("verdicts", "segments")
        ends = ("merkle_root", "verdicts_count")
        head = {name: value for name, value in whole.items() if name not in (*lists, *ends, "digest")}
        return cls(head, whole["verdicts"], whole["segments"], {name: whole[name] for name in ends})

    def sealed(self, file: Path) -> Path:
        """Write it with the digest of its bytes, as a forger does."""
        text = b",\n".join(map(as_line, self.verdicts))
        data = as_line(self.head)[:-1] + b',"verdicts":[' + (b"\n" + text if text else b"") + b'\n],"segments":['
        data += b"\n" + b",\n".join(map(as_line, self.segments)) + b"\n],\n" + as_line(self.end)[1:-1] + b",\n"
        file.write_bytes(data + b'"digest":"' + hashlib.sha256(data).hexdigest().encode() + b'"}\n')
        return file


@contextmanager
def altered_byte(file: Path, position: int, bits: int) -> Iterator[None]:
    """A file with one other byte for the time of a block."""
    with file.open("r+b", buffering=0) as stream:
        stream.seek(position)
        before = stream.read(1)
        stream.seek(position)
        stream.write(bytes([before[0] ^ bits]))
        try:
            yield
        finally:
            stream.seek(position)
            stream.write(before)


def copied(store: Path, to: Path) -> Path:
    """A copy of a store."""
    return Path(shutil.copytree(store, to))


#: Values of a verdict, with another value for each.
OTHER_VALUES: dict[str, Callable[[random.Random, Any], Any]] = {
    "state": lambda draw, old: draw.choice(
        [one for one in ("COMMITTED", "ROLLED_BACK", "PENDING", "DISCARDED", "LOST") if one != old]
    ),
    "checks_count": lambda draw, old: (old or 0) + draw.choice((1, 7)),
    "half_store_time_ms": lambda draw, old: (old or 0) + draw.choice((-1, 1, 60_000)),
    "decided_time_ms": lambda draw, old: 1 if old is None else draw.choice((None, old + 1)),
    "producer_group": lambda draw, old: f"{old}x",
    "topic": lambda draw, old: f"{old}x",
    "keys": lambda draw, old: f"{old}x",
    "transaction_id": lambda draw, old: old[:-1] + ("0" if old[-1] != "0" else "1"),
}


def alter_verdict(draw: random.Random, verdict: Json) -> str:
    """Alter one value of a verdict; return its name."""
    name = draw.choice(sorted(OTHER_VALUES))
    verdict[name] = OTHER_VALUES[name](draw, verdict[name])
    return name


def alter_evidence(draw: random.Random, verdict: Json) -> str:
    """Alter what a verdict has about one of its witnesses, or remove it; return what."""
    number = draw.randrange(len(verdict["witnesses"]))
    one = verdict["witnesses"][number]
    what = draw.choice(("sha256", "position_bytes", "length_bytes", "kind", "half_queue_offset", "removed"))
    if what == "removed":
        del verdict["witnesses"][number]
    elif what == "sha256":
        one[what] = hashlib.sha256(one[what].encode()).hexdigest()
    elif what == "kind":
        kinds = ("half_copy", "op_mark", "final_record", "discard_copy")
        one[what] = draw.choice([kind for kind in kinds if kind != one["kind"]])
    elif what == "half_queue_offset" and one["kind"] != "op_mark":
        one["length_bytes"] += 1
    else:
        one[what] += draw.choice((-1, 1))
    return f"{what} of witness {number}"


#: Settings that the checker derives itself; release and role it takes from the proof (docs/proofs.md).
DERIVED_SETTINGS = (
    "transaction_time_out_ms", "transaction_check_max", "transaction_check_interval_ms",
    "transaction_op_batch_interval_ms", "file_reserved_time_hours", "max_hash_slots", "max_index_entries",
    "writes_discard_copy", "batches_ops",
)


def alter_setting(draw: random.Random, head: Json, names: Sequence[str]) -> str:
    """Alter one setting; return its name."""
    name = draw.choice(sorted(names))
    one = draw.choice(head["stores"])["settings"][name]
    one["value"] = (
        "5.9.9" if name.startswith("version") else "SLAVE" if name == "broker_role"
        else (not one["value"] if isinstance(one["value"], bool) else (one["value"] or 0) + draw.choice((1, 1_000)))
    )
    return name

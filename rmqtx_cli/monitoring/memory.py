"""The file in which one run of `rmqtx check` stores its numbers for the next: replaced whole, under a lock file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from rmqtx.readers.model.declared_json import JsonForm, list_of, needed, struct_of
from rmqtx.readers.model.errors import BadText
from rmqtx.readers.storage.places import identity_of
from rmqtx_cli.monitoring.numbers import Memory, StoreNumbers
from rmqtx_cli.output.streams import written_whole

_FORM = 1
_STORE = pa.struct([one.with_nullable(True) for one in struct_of(StoreNumbers)])
_PLACE = pa.struct([needed("store", pa.string()), needed("commit_log_offset", pa.int64())])
_MEMORY = JsonForm(
    "memory of rmqtx check",
    pa.struct(
        [
            needed("form", pa.int64()), needed("taken_time_ms", pa.int64()), needed("hanging", list_of(pa.string())),
            needed("stores", pa.map_(pa.string(), pa.field("store", _STORE, nullable=False))),
            pa.field("places", pa.map_(pa.string(), pa.field("place", _PLACE, nullable=False))),
        ]
    ),
    is_open=True,
)


def memory_file(directory: Path, stores: list[str]) -> Path:
    """The file for a set of stores, independent of their order."""
    names = "\0".join(sorted(identity_of(store) for store in stores))
    return directory / f"check-{hashlib.sha256(names.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.json"


def recall(file: Path) -> Memory | None:
    """The numbers of the last run; None on the first run, or if the file has another format.

    Raises: OSError if it exists and cannot be read.
    """
    try:
        found: Memory = _MEMORY.read(file.read_bytes(), str(file))
    except (FileNotFoundError, BadText):
        return None
    return found if found["form"] == _FORM else None


def remember(file: Path, numbers: Memory) -> None:
    """Store the numbers for the next run, unless a run that began later already did.

    Raises: OSError, UnwritableFile if the directory cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file.with_suffix(".lock")):
        before = recall(file)
        if before is not None and before.get("taken_time_ms", 0) > numbers["taken_time_ms"]:
            return
        with written_whole(file) as stream:
            stream.write(json.dumps({"form": _FORM} | numbers).encode())


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

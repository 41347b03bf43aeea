"""Provenance: what a result was made from and how, so that another person can repeat it and see what has changed.

A store is identified by its segments, each with its length and a digest: of head, tail and length, which takes two
reads, or of all its bytes. The small files that verdicts depend on (cursors, checkpoint) are digested completely. The
same command over the same bytes has the same provenance, except for times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import pyarrow as pa

from rmqtx.readers.log.commit_log import written_bytes, written_end
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import as_text
from rmqtx.readers.storage.open_file import OpenFile
from rmqtx.readers.storage.places import name_of
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.paths import CURSOR_FILES
from rmqtx.readers.store.store import Store

PROVENANCE_VERSION = 1
#: The key of the provenance in the schema metadata of Parquet and Arrow files.
METADATA_KEY = b"rmqtx"
#: How much of a segment's head and tail goes into its digest.
EDGE_BYTES = 64 << 10
_READ_BYTES = 4 << 20
_SMALL_FILE_BYTES_MAX = 64 << 20
#: Small files beside the log that verdicts depend on.
_SMALL_FILES = (
    "checkpoint", *(f"config/{one.name}{end}" for one in CURSOR_FILES for end in ("", ".bak")),
    "config/transactionMetrics", "config/topics.json",
)
EDGES, WHOLE = "head, tail and length", "all bytes"


class _Digested(TypedDict):
    """A file that cannot be read has a null digest and the cause in `unreadable`."""

    file: str
    digest: str | None
    digest_of: str
    unreadable: NotRequired[str | None]


class FileProvenance(_Digested):
    """A file that a result was made from, other than a segment."""

    size_bytes: int | None


class SegmentProvenance(_Digested):
    """A segment of a commit log that a result was made from."""

    base_offset: int
    size_bytes: int


class StoreTaken(TypedDict):
    """A store and when it was read: all that is known of the store of a live broker."""

    store: str
    taken_time_ms: int


class StoreProvenance(StoreTaken):
    """The state of the files of a store when they were read."""

    broker_process: int | None
    aborted: bool
    commit_log_bytes: int
    digest: str
    segments: list[SegmentProvenance]
    files: list[FileProvenance]


class EngineValues(TypedDict):
    """The JSON object of `EngineFacts`."""

    name: str
    split_bytes: int | None
    splits_count: int | None


class Provenance(TypedDict):
    """What a result was made from and how: the JSON object beside it."""

    custody_version: int
    made_by: str
    made_time_ms: int
    command: str
    options: dict[str, object]
    engine: EngineValues
    stores: list[StoreTaken]
    inputs: list[FileProvenance]


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The engine: its name, and how the bytes were split among its tasks. Units: bytes."""

    name: str
    split_bytes: int | None = None
    splits_count: int | None = None

    def facts(self) -> EngineValues:
        """Return the values of a JSON object."""
        return {"name": self.name, "split_bytes": self.split_bytes, "splits_count": self.splits_count}


@cache
def tool() -> str:
    """The name and version of this program."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"rmqtx {version('rmqtx')}"
    except PackageNotFoundError:  # run from a source directory without installation
        return "rmqtx"


def provenance(
    stores: Sequence[StoreTaken], *, command: str, options: Mapping[str, object], engine: EngineFacts,
    made_time_ms: int, inputs: Sequence[FileProvenance] = (),
) -> Provenance:
    """Return what a result is made from and how, as the values of a JSON object.

    Shape:  `stores` are results of `store_provenance`; `inputs`, results of `file_provenance`, are files beside the
            stores, for example a ledger. `options` must contain no secret: they are written unchanged.
    Units:  epoch milliseconds. Only keys that end in `time_ms` differ between two runs over the same bytes.
    """
    return {
        "custody_version": PROVENANCE_VERSION,
        "made_by": tool(),
        "made_time_ms": made_time_ms,
        "command": command,
        "options": dict(sorted(options.items())),
        "engine": engine.facts(),
        "stores": list(stores),
        "inputs": list(inputs),
    }


def store_provenance(store: Store, *, hash_all: bool = False) -> StoreProvenance:
    """Return the facts of one store: its state when it was read, its segments and small files, each with a digest.

    Shape:  if a broker holds the lock, `broker_process` is set, and the log may have grown since.
    Units:  bytes.
    Order:  segments by offset.
    Damage: a file that cannot be read has a null digest and the cause in `unreadable`.
    """
    last = written_end(store).last_base
    segments = [
        _segment_facts(segment, hash_all=hash_all, is_open_ended=segment.base_offset >= last)
        for segment in store.commit_log
    ]
    small = small_file_facts(store)
    return {
        "store": store.root,
        "taken_time_ms": store.taken_time_ms,
        "broker_process": store.used_by_process,
        "aborted": store.aborted,
        "commit_log_bytes": sum(segment.size_bytes for segment in store.commit_log),
        "digest": _digest_of_all(segments, small),
        "segments": segments,
        "files": small,
    }


def small_file_facts(store: Store) -> list[FileProvenance]:
    """Return the facts of the small files beside the log that verdicts depend on, with a digest of all their bytes.

    Damage: as `store_provenance`.
    """
    return [facts for name in _SMALL_FILES if (facts := _small_file_facts(store, name)) is not None]


def file_provenance(file: Path) -> FileProvenance:
    """Return the facts of a local file that a result was made from, with a digest of all its bytes.

    Damage: a file that cannot be read has a null digest and the cause in `unreadable`.
    """
    facts: FileProvenance = {"file": as_text(file), "size_bytes": None, "digest": None, "digest_of": WHOLE}
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            return {**facts, "size_bytes": stream.tell(), "digest": f"sha256:{digest}"}
    except OSError as error:
        return {**facts, "unreadable": error.strerror}


def as_json(facts: Mapping[str, Any]) -> str:
    """Return facts as JSON text; equal facts give equal text."""
    return json.dumps(facts, ensure_ascii=True, separators=(",", ":"))


def with_provenance(schema: pa.Schema, facts: Mapping[str, Any]) -> pa.Schema:
    """Return a schema with the provenance in its metadata."""
    return schema.with_metadata({**(schema.metadata or {}), METADATA_KEY: as_json(facts).encode()})


def segment_digest(segment: Segment, *, hash_all: bool = False, is_open_ended: bool = True) -> str:
    """Return `sha256:` and the digest of a segment: of its length and first and last EDGE_BYTES, or of all its bytes.

    `is_open_ended`: the segment may end in preallocated zeros; then the tail is that of the written data, found by some
    twenty small reads, so the digest changes when the log grows.
    Raises: SourceError.
    """
    with segment.open() as file:
        if hash_all:
            return _whole_digest(file)
        tail = max(0, segment.size_bytes - EDGE_BYTES)
        digest = hashlib.sha256(f"{segment.size_bytes}\n".encode())
        digest.update(file.read(0, EDGE_BYTES))
        last = file.read(tail, EDGE_BYTES)
        digest.update(last)
        if is_open_ended and not last.strip(b"\0"):
            written = written_bytes(segment)
            digest.update(file.read(max(0, written - EDGE_BYTES), EDGE_BYTES))
        return f"sha256:{digest.hexdigest()}"


def _whole_digest(file: OpenFile) -> str:
    digest = hashlib.sha256()
    for position in range(0, file.size_bytes, _READ_BYTES):
        digest.update(file.read(position, _READ_BYTES))
    return f"sha256:{digest.hexdigest()}"


def _segment_facts(segment: Segment, *, hash_all: bool, is_open_ended: bool) -> SegmentProvenance:
    facts: SegmentProvenance = {
        "file": segment.file, "base_offset": segment.base_offset, "size_bytes": segment.size_bytes,
        "digest": None, "digest_of": WHOLE if hash_all else EDGES,
    }
    try:
        facts["digest"] = segment_digest(segment, hash_all=hash_all, is_open_ended=is_open_ended)
    except SourceError as error:
        facts["unreadable"] = str(error)
    return facts


def _small_file_facts(store: Store, name: str) -> FileProvenance | None:
    place = store.place(*name.split("/"))
    facts: FileProvenance = {"file": place, "size_bytes": None, "digest": None, "digest_of": WHOLE}
    try:
        content = store.files.content(place, _SMALL_FILE_BYTES_MAX)
    except (OSError, SourceError) as error:
        return {**facts, "unreadable": str(error)}
    if content is None:
        return None
    if len(content) > _SMALL_FILE_BYTES_MAX:
        return {**facts, "unreadable": f"longer than {_SMALL_FILE_BYTES_MAX} bytes"}
    return {**facts, "size_bytes": len(content), "digest": f"sha256:{hashlib.sha256(content).hexdigest()}"}


def _digest_of_all(segments: list[SegmentProvenance], small: list[FileProvenance]) -> str:
    """Return one digest for a whole store, which does not depend on its directory."""
    digest = hashlib.sha256()
    for segment in segments:
        digest.update(f"{segment['base_offset']} {segment['size_bytes']} {segment['digest']}\n".encode())
    for facts in small:
        digest.update(f"{name_of(facts['file'])} {facts['size_bytes']} {facts['digest']}\n".encode())
    return f"sha256:{digest.hexdigest()}"

"""The content of an export directory: one manifest for each range of a log with complete files.

A range is exported if its manifest exists: files without one were left by a killed run, and the next run removes them.
So a run continues where the last one stopped, a later one adds only what is new in the log, and no row is there twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from rmqtx.readers.model.declared_json import ANYTHING, JsonForm, list_of, needed, shown
from rmqtx.readers.model.errors import BadRequest, SourceError, UnwritableFile
from rmqtx.readers.model.findings import few
from rmqtx.readers.storage.places import identity_of
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.export.folder import (
    STATE_DIRECTORY,
    TEMPORARY_SUFFIX,
    half_written,
    is_own_name,
    locked,
    on_disk,
    write_json,
)
from rmqtx.verdicts.export.partition_files import WrittenFile

_MANIFESTS, _SETTINGS = "manifests", "export.json"
_BEGIN_BYTES = 4096
_RANGE = JsonForm(
    "manifest of an export",
    pa.struct(
        [
            needed("store", pa.string()), *(needed(name, pa.int64()) for name in ("base_offset", "from_position")),
            needed("to_position", pa.int64()), pa.field("last_position", pa.int64()), needed("rows_count", pa.int64()),
            needed("begin_bytes", pa.int64()), needed("begin_digest", pa.string()),
            needed("files", list_of(pa.struct([needed("name", pa.binary()), needed("rows_count", pa.int64())]))),
        ]
    ),
)
_SETTINGS_FORM = JsonForm("list of an export's settings", pa.map_(pa.string(), ANYTHING))


class RangeFile(TypedDict):
    """A data file of a range."""

    name: str
    rows_count: int


@dataclass(frozen=True, slots=True)
class Range:
    """An exported range of a segment.

    Units: positions in the file, bytes, the upper one excluded. `last_position`: where its last record begins, None if
    it has none. `begin_digest`: the digest of the first `begin_bytes` bytes of the segment.
    """

    store: str
    base_offset: int
    from_position: int
    to_position: int
    last_position: int | None
    rows_count: int
    begin_bytes: int
    begin_digest: str
    files: tuple[RangeFile, ...] = ()

    @property
    def name(self) -> str:
        """The manifest's name."""
        return f"{self.store}-{self.base_offset:020d}-{self.from_position}-{self.to_position}.json"


@dataclass(frozen=True, slots=True)
class Done:
    """The exported ranges of some stores, by store and segment."""

    ranges: dict[tuple[str, int], list[Range]] = field(default_factory=dict)

    def gaps(self, store: str, base_offset: int, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Return the parts of a range that are not exported yet: from, to, and where to begin reading.

        Reading begins at a known record before `from` if there is one, to recognise records that a recovery cut off.

        Units: positions in the file, in bytes.
        """
        before: int | None = None
        for known in self.ranges.get((store, base_offset), ()):
            if known.to_position <= begin:
                before = known.last_position if known.to_position == begin else None
                continue
            if known.from_position >= end:
                break
            if known.from_position > begin:
                yield begin, known.from_position, begin if before is None else before
            begin = max(begin, known.to_position)
            before = known.last_position
        if begin < end:
            yield begin, end, begin if before is None else before


def store_id(store: Store) -> str:
    """Return the id of a store in file names: twelve digits derived from its path."""
    return hashlib.sha256(identity_of(store.root).encode()).hexdigest()[:12]


def begin_of(segment: Segment, length_bytes: int = _BEGIN_BYTES) -> tuple[int, str]:
    """Return the number of a segment's first bytes and their digest, which shows a replaced file.

    Raises: SourceError.
    """
    with segment.open() as file:
        data = file.read(0, length_bytes)
    return len(data), hashlib.sha256(data).hexdigest()


def write_manifest(directory: Path, done: Range, files: list[WrittenFile]) -> None:
    """Rename a range's files to their final names, then write its manifest. Raises: UnwritableFile."""
    manifests = directory / STATE_DIRECTORY / _MANIFESTS
    try:
        for file in files:
            (directory / file.temporary).replace(directory / file.name)
        for place in {(directory / file.name).parent for file in files}:
            on_disk(place)
        write_json(manifests / done.name, asdict(done))
    except OSError as error:
        raise UnwritableFile(f"cannot write into {directory}: {error.strerror}", file=directory) from error


def replace_manifests(directory: Path, done: Range, files: list[WrittenFile]) -> None:
    """Remove all files of the directory, then rename the new ones to their final names.

    The old manifests are removed first: without them their files are leftovers, which the next run can remove.
    Raises: OSError, UnwritableFile.
    """
    manifests = sorted((directory / STATE_DIRECTORY / _MANIFESTS).glob("[!.]*.json"))
    names = [file["name"] for path in manifests for file in _read_range(path).files]
    for path in [*manifests, *(directory / name for name in names)]:
        path.unlink(missing_ok=True)
    write_manifest(directory, done, files)


@contextmanager
def opened_directory(directory: Path, settings: Mapping[str, object], stores: list[Store]) -> Iterator[Done]:
    """Open and lock an export directory; return its exported ranges after removing incomplete files.

    `settings`: all that determines the rows (table, columns, format); every run must have the same.
    Raises: BadRequest for a directory that is not an export of this kind, or in use; BadText; UnwritableFile.
    """
    state = directory / STATE_DIRECTORY
    with ExitStack() as stack:
        try:
            _refuse_foreign(directory, state)
            (state / _MANIFESTS).mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(directory, BadRequest(f"another export into {directory} is running")))
            _same_settings(state / _SETTINGS, settings)
            ranges = [_read_range(path) for path in sorted((state / _MANIFESTS).glob("[!.]*.json"))]
            _remove_half_done(directory, {file["name"] for done in ranges for file in done.files})
        except OSError as error:
            raise UnwritableFile(f"cannot use {directory}: {error.strerror or error}", file=directory) from error
        try:
            yield _of_stores(ranges, stores)
        finally:
            _remove_temporary(directory)


def _refuse_foreign(directory: Path, state: Path) -> None:
    if directory.is_dir() and not state.is_dir() and any(directory.iterdir()):
        raise BadRequest(f"{directory} is not empty and not an export by rmqtx", advice="give a new directory")
    if directory.exists() and not directory.is_dir():
        raise BadRequest(f"{directory} is a file", advice="an export needs a directory")


def _same_settings(path: Path, settings: Mapping[str, object]) -> None:
    if not path.exists():
        write_json(path, settings)
        return
    before = _SETTINGS_FORM.read(path.read_bytes(), str(path))
    for name, value in settings.items():
        if before.get(name) != value:
            raise BadRequest(
                f"{path.parent.parent} contains an export with {_other(name, before.get(name), value)}",
                advice="give the same options, or a new directory",
            )


def _other(name: str, before: Any, value: Any) -> str:
    """The difference between a setting of the export and one of the command line."""
    if not isinstance(before, list) or not isinstance(value, list):
        return f"{name} {_word(before)}, not {_word(value)}"
    more, less = ([_word(one) for one in a if one not in b] for a, b in ((before, value), (value, before)))
    parts = [f"also {few(more)}"] if more else []
    parts += [f"not {few(less)}"] if less else []
    return f"other {name} ({'; '.join(parts) or 'in another order'})"


def _word(value: Any) -> str:
    return value if isinstance(value, str) and value.isidentifier() and len(value) < 40 else shown(value)


def _read_range(path: Path) -> Range:
    """Read a manifest. Its files are removed later, so only files of an export below the directory are accepted.

    Raises: BadText; OSError.
    """
    facts = _RANGE.read(path.read_bytes(), str(path))
    for number, file in enumerate(facts["files"]):
        if not is_own_name(file["name"]):
            raise _RANGE.bad(str(path), f"files[{number}].name", "a file of an export", shown(file["name"]))
    done = Range(**{**facts, "files": tuple(facts["files"])})
    if done.name != path.name:
        raise _RANGE.bad(str(path), "store", "the value in the file name", shown(done.name))
    return done


def _remove_half_done(directory: Path, names: set[str]) -> None:
    """Remove files without a manifest, and what a killed run left in the state directory."""
    from pyarrow.fs import LocalFileSystem  # `explain` imports this module for the columns of an export

    for path in half_written(LocalFileSystem(), str(directory), names):
        Path(path).unlink()
    for leftover in (directory / STATE_DIRECTORY).rglob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink()


def _remove_temporary(directory: Path) -> None:
    """Remove temporary files: of ranges after the end of a log's data, and those left by an error."""
    for leftover in directory.rglob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def _of_stores(ranges: list[Range], stores: list[Store]) -> Done:
    """Return the ranges of these stores; the first bytes of a segment must be unchanged."""
    by_segment: dict[tuple[str, int], list[Range]] = {}
    for done in sorted(ranges, key=lambda one: one.from_position):
        by_segment.setdefault((done.store, done.base_offset), []).append(done)
    for store in stores:
        for segment in store.commit_log:
            for done in by_segment.get((store_id(store), segment.base_offset), ())[:1]:
                _refuse_another(segment, done)
    return Done(by_segment)


def _refuse_another(segment: Segment, done: Range) -> None:
    try:
        found = begin_of(segment, done.begin_bytes)
    except SourceError:
        return  # the scan reports unreadable files
    if found != (done.begin_bytes, done.begin_digest):
        raise BadRequest(
            f"{segment.file} is not the file that was exported here: its first bytes differ",
            advice="export another store into another directory",
        )

"""A table of verdicts as Parquet files with a manifest, on a disk or in an object store.

A step writes new files, then the manifest. Files never change: a step that ends or replaces a row of a file writes its
other rows again. So that this costs little, current rows that are about to change are in files of their own, which are
small; other files keep their size, and small ones are joined as they add up.

One run writes at a time: on a disk a lock ensures that. An object store has no lock; a run that finds another manifest
than it began with does not commit.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest, FileChanged, UnwritableFile
from rmqtx.readers.storage.places import is_uri, joined
from rmqtx.readers.storage.remote_systems import opened as opened_system
from rmqtx.verdicts.export.folder import STATE_DIRECTORY, half_written, locked, on_disk, reading, writing
from rmqtx.verdicts.export.partitions import UNKNOWN
from rmqtx.verdicts.follow.change_log import KEY
from rmqtx.verdicts.growing.table_manifest import (
    NAME,
    RETENTION_MS,
    RetiredFile,
    TableFile,
    TableManifest,
    read_manifest,
    write_manifest,
)
from rmqtx.verdicts.growing.table_step import (
    CURRENT,
    VALID_SINCE,
    VERDICTS,
    TableStep,
    are_unsettled,
    continued,
    key_texts,
    table_differs,
)

#: The number of files of about one size, and of files of unsettled rows, that a step joins.
_JOINED_MIN, _OPEN_JOINED_MIN = 8, 4
#: Sizes are about the same if they differ by a factor below 8.
_SIZE_BITS = 3
#: The columns that find the current row of a transaction.
_KEYS = (*KEY, "valid_to")
#: The most rows of a file.
ROWS_MAX = 250_000
_HELD_BYTES_MAX = 128 << 20
_Part = tuple[str | None, bool, str]


@dataclass(slots=True)
class ParquetTable:
    """The table at `place`, an absolute path or a URI; make it with `opened`."""

    place: str
    system: fs.FileSystem
    top: str
    manifest: TableManifest = field(default_factory=TableManifest)

    def step_of(self, store: str) -> int | None:
        """Return the token of the last step of a store."""
        return self.manifest.steps.get(store)

    def current(self, stores: Sequence[str]) -> pa.Table:
        """Return the current rows of some stores (CURRENT)."""
        with writing(self.place):
            parts = [self._read(file, [*CURRENT.names, "valid_to"]) for file in self.manifest.files]
        found = [
            rows.filter(pc.and_(pc.is_null(rows["valid_to"]), pc.is_in(rows["store"], value_set=pa.array(stores))))
            for rows in parts
        ]
        return pa.concat_tables([CURRENT.empty_table(), *(rows.select(CURRENT.names) for rows in found)])

    def apply(self, step: TableStep) -> None:
        """Commit a step. Raises: FileChanged if the table lacks rows that the step ends; UnwritableFile."""
        with writing(self.place):
            self._remove_leftovers()
            writer = PartWriter(self.system, self.top, self.place, self.manifest.version + 1)
            ended = step.ended()
            valid_since, retired = self._end_rows(step, ended, writer)
            states = Counter(self.manifest.states)
            states.subtract(_counted(ended["before_state"]))
            for added in step.rows():
                states.update(_counted(added["state"]))
                writer.write(continued(added, valid_since))
            retired |= self._join(writer, retired)
            self._commit(step, writer.finish(), retired, +states)

    def _end_rows(
        self, step: TableStep, ended: pa.Table, writer: PartWriter
    ) -> tuple[pa.Table, set[TableFile]]:
        """Write the files with ended rows again; return keys and beginnings of the replaced rows, and the files."""
        valid_since: list[pa.Table] = [VALID_SINCE.empty_table()]
        retired: set[TableFile] = set()
        found_count = 0
        days = ended["before_day"].cast(pa.string())
        for file in self.manifest.files:
            is_here = pc.and_(_are_equal(days, file.day), pc.equal(ended["was_unsettled"], file.is_open))
            some = ended.filter(is_here)
            keys = key_texts(some)
            if not some.num_rows or not pc.any(_are_current(self._read(file, _KEYS), keys)).as_py():
                continue
            kept, ends_here, replaced = step.end(self._read(file), some)
            writer.write(kept, apart="" if file.is_open else file.name)
            writer.write(ends_here)
            valid_since.append(replaced)
            found_count += ends_here.num_rows + replaced.num_rows
            retired.add(file)
        if found_count != ended.num_rows:
            raise table_differs(self.place, ended.num_rows - found_count)
        return pa.concat_tables(valid_since), retired

    def _join(self, writer: PartWriter, retired: set[TableFile]) -> set[TableFile]:
        """Write files again that have become many, of the days that the step writes."""
        days = writer.days()
        groups: dict[tuple[str | None, bool, int], list[TableFile]] = {}
        for file in self.manifest.files:
            if file.day in days and file not in retired and file.rows_count <= ROWS_MAX // 2:
                size = 0 if file.is_open else max(file.rows_count, 1).bit_length() // _SIZE_BITS
                groups.setdefault((file.day, file.is_open, size), []).append(file)
        joined: set[TableFile] = set()
        for (_, is_open, _), files in groups.items():
            if len(files) >= (_OPEN_JOINED_MIN if is_open else _JOINED_MIN):
                for file in files:
                    writer.write(self._read(file))
                joined.update(files)
        return joined

    def _commit(
        self, step: TableStep, files: Sequence[TableFile], retired: set[TableFile], states: Counter[str]
    ) -> None:
        before, now_ms = self.manifest, clock.now_ms()
        expired = [file for file in before.retired if now_ms - file.since_ms > RETENTION_MS]
        manifest = TableManifest(
            before.version + 1, now_ms, before.steps | dict.fromkeys(step.stores, step.token),
            dict(sorted(states.items())),
            (*(file for file in before.files if file not in retired), *files),
            (*(file for file in before.retired if file not in expired),
             *(RetiredFile(file.name, now_ms) for file in sorted(retired, key=lambda one: one.name))),
        )
        if is_uri(self.place):
            self._require_same()
        write_manifest(self.system, self.top, self.place, manifest)
        self.manifest = manifest
        for file in expired:  # if this is interrupted, they are leftovers
            self.system.delete_file(f"{self.top}/{file.name}")

    def _require_same(self) -> None:
        now = read_manifest(self.system, self.top, self.place) or TableManifest()
        if (now.version, now.made_at_ms) != (self.manifest.version, self.manifest.made_at_ms):
            raise FileChanged(
                f"{self.place} was changed by another run while this one wrote", file=self.place,
                advice="run again, and run one at a time",
            )

    def _remove_leftovers(self) -> None:
        """Remove files of runs that were killed before their commit; in an object store only old ones.

        There another run can be writing, and its files are not in the manifest that this run has read.
        """
        before_ns = time.time_ns() - RETENTION_MS * 1_000_000 if is_uri(self.place) else None
        names = {file.name for file in self.manifest.files} | {file.name for file in self.manifest.retired}
        for path in half_written(self.system, self.top, names, before_ns):
            if path.removeprefix(f"{self.top}/").startswith("day="):
                self.system.delete_file(path)

    # -- files ------------------------------------------------------------------------------------------------------

    def _read(self, file: TableFile, names: Sequence[str] = VERDICTS.names) -> pa.Table:
        """Return some columns of a file; one that the version of rmqtx that wrote it did not have is null."""
        path = f"{self.top}/{file.name}"
        with self.system.open_input_file(path) as stream, pq.ParquetFile(stream) as parquet:
            known = set(parquet.schema_arrow.names)
            rows = parquet.read([name for name in names if name in known])
        columns = [
            rows[name].cast(VERDICTS.field(name).type) if name in known
            else pa.nulls(rows.num_rows, VERDICTS.field(name).type)
            for name in names
        ]
        return pa.table(columns, schema=pa.schema([VERDICTS.field(name) for name in names]))


def _are_current(rows: pa.Table, keys: pa.Array) -> pa.ChunkedArray:
    """Return which rows are the current ones of some keys."""
    return pc.and_(pc.is_null(rows["valid_to"]), pc.is_in(key_texts(rows), value_set=keys))


def _are_equal(values: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    return pc.is_null(values) if value is None else pc.fill_null(pc.equal(values, value), False)


def _counted(states: pa.ChunkedArray) -> dict[str, int]:
    return {one["values"]: one["counts"] for one in pc.value_counts(states).to_pylist()}


def read_files(place: str) -> list[str]:
    """Return the files of the present version of a table.

    Raises: BadRequest if it is not a table of verdicts; BadText; UnreadableFile.
    """
    with reading(place):
        return [joined(place, file.name) for file in _present(*opened_system(place), place).files]


def _present(system: fs.FileSystem, top: str, place: str) -> TableManifest:
    manifest = read_manifest(system, top, place)
    if manifest is None:
        raise BadRequest(f"{place} is not a table of verdicts", advice="write it: rmqtx table STORE --into TABLE")
    return manifest


@contextmanager
def opened(place: str) -> Iterator[ParquetTable]:
    """Open a table for a block, or begin a new one. `place`: an absolute path, or a URI.

    Raises: BadRequest if the folder has other files, or another run writes; BadText; UnwritableFile.
    """
    with ExitStack() as stack:
        try:
            system, top = opened_system(place)
            if not is_uri(place):
                _refuse_foreign(Path(place))
                refused = BadRequest(f"another rmqtx writes into {place}", advice="wait for its end")
                stack.enter_context(locked(Path(place), refused))
            manifest = read_manifest(system, top, place)
        except (OSError, pa.ArrowException) as error:
            raise UnwritableFile(f"cannot use {place}: {' '.join(str(error).split())}", file=place) from error
        yield ParquetTable(place, system, top, manifest or TableManifest())


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadRequest(f"{folder} is a file", advice="a table needs a folder")
    if folder.is_dir() and not (folder / STATE_DIRECTORY / NAME).exists():
        names = {path.name for path in folder.iterdir()} - {STATE_DIRECTORY}
        if any(not name.startswith("day=") for name in names) or (folder / STATE_DIRECTORY / "export.json").exists():
            raise BadRequest(f"{folder} is not empty and not a table of verdicts", advice="give a new folder")


@dataclass(slots=True)
class PartWriter:
    """The new files of version `version` of the table at `place`. `files`: those that are complete, and on the disk."""

    system: fs.FileSystem
    top: str
    place: str
    version: int
    files: list[TableFile] = field(default_factory=list)
    _held: dict[_Part, list[pa.Table]] = field(default_factory=dict)

    def write(self, rows: pa.Table, apart: str = "") -> None:
        """Write some rows of VERDICTS. `apart`: rows with different texts are in different files."""
        opens = pc.and_(pc.is_null(rows["valid_to"]), are_unsettled(rows["state"], rows["flags"]))
        parts = pa.table({"day": rows["day"].cast(pa.string()), "open": opens})
        for part in parts.group_by(["day", "open"]).aggregate([]).to_pylist():
            day, is_open = part["day"], part["open"]
            are_of_day = pc.is_null(parts["day"]) if day is None else pc.fill_null(pc.equal(parts["day"], day), False)
            chosen = rows.filter(pc.and_(are_of_day, pc.equal(opens, is_open)))
            key = day, is_open, apart
            self._held.setdefault(key, []).append(chosen)
            while sum(one.num_rows for one in self._held.get(key, ())) >= ROWS_MAX:
                self._flush(key)
        while sum(one.nbytes for some in self._held.values() for one in some) > _HELD_BYTES_MAX:
            self._flush(max(self._held, key=lambda key: sum(one.nbytes for one in self._held[key])))

    def days(self) -> set[str | None]:
        """Return the days of which there are new rows."""
        return {part[0] for part in self._held} | {file.day for file in self.files}

    def finish(self) -> list[TableFile]:
        """Write what is held; return the files."""
        while self._held:
            self._flush(next(iter(self._held)))
        if not is_uri(self.place):
            for folder in {Path(self.top, file.name).parent for file in self.files}:
                on_disk(folder)
            on_disk(Path(self.top))
        return self.files

    def _flush(self, part: _Part) -> None:
        held = pa.concat_tables(self._held.pop(part))
        rows = held.slice(0, ROWS_MAX)
        if held.num_rows > ROWS_MAX:
            self._held[part] = [held.slice(ROWS_MAX)]
        day, is_open, _ = part
        folder = f"day={day or UNKNOWN}"
        name = f"{folder}/part-{self.version:08}-{len(self.files):04}-{uuid.uuid4().hex[:8]}.parquet"
        path = f"{self.top}/{name}"
        if not is_uri(self.place):
            self.system.create_dir(f"{self.top}/{folder}")
        with self.system.open_output_stream(path) as stream:
            pq.write_table(rows.select(VERDICTS.names), stream, compression="zstd")
        if not is_uri(self.place):
            on_disk(Path(path))
        size_bytes = self.system.get_file_info(path).size
        self.files.append(TableFile(name, day, is_open, rows.num_rows, size_bytes))

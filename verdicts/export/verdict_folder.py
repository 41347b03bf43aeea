"""A folder of verdicts as Parquet: written by many processes at once, and finished by one.

    DIR/transactions/day=2026-01-31/state=PENDING/part-0007-….parquet
    DIR/findings.parquet   DIR/coverage.parquet   DIR/provenance.json   DIR/_SUCCESS

Until the end everything is below `DIR/_unfinished`, which readers of Parquet skip. On a disk all parts get their names
by one rename; an object store has no rename, so its objects are copied one by one. `_SUCCESS` is always the last file.
`_unfinished` also names the process that writes: what a killed run left is removed by the next one.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from rmqtx.readers.model.errors import BadRequest, UnwritableFile
from rmqtx.readers.model.moments import with_timestamps
from rmqtx.readers.model.parquet import parquet_options
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.storage.places import is_uri, normalised
from rmqtx.readers.storage.temporary import is_dead, owner
from rmqtx.verdicts.export.folder import writing
from rmqtx.verdicts.export.partitions import days_of

#: What folders can be named by: the UTC day of the first half copy, or a column of TRANSACTIONS.
PARTITION_NAMES = ("day", "state", "topic", "producer_group", "store")
#: Written last: a folder without this file is not complete.
SUCCESS = "_SUCCESS"
_UNFINISHED, _TRANSACTIONS = "_unfinished", "transactions"
#: The process that writes, so that a later run removes what it left if it was killed.
_OWNER = f"{_UNFINISHED}/_owner"
_RESULTS = ("findings.parquet", "coverage.parquet", "provenance.json")
_FOLDERS_MAX = 100_000
_MOVES_AT_ONCE = 16
#: Rows that one process holds before it writes them.
_ROWS_OF_A_FILE = 200_000


@dataclass(frozen=True, slots=True)
class Written:
    """What one process wrote: the size of each file by its name below `transactions`, and the rows of each state."""

    files_bytes: dict[str, int]
    states: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class VerdictFolder:
    """A new folder of verdicts, made by `verdict_folder`. It can be pickled, so that tasks write into it.

    `place`: an absolute path, or a URI that `pyarrow.fs` opens. `partition_by`: some of PARTITION_NAMES.
    """

    place: str
    partition_by: tuple[str, ...] = ()
    has_timestamps: bool = False

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Make the folder for the block; if the block fails, remove what was written.

        Raises: BadRequest if the folder has files, UnwritableFile.
        """
        with writing(self.place):
            self._make()
        try:
            yield
        except BaseException:
            self._abandon()
            raise

    def _make(self) -> None:
        system, top = self._opened()
        found = system.get_file_info(fs.FileSelector(top, allow_not_found=True))
        names = sorted(info.base_name for info in found)
        if _UNFINISHED in names and SUCCESS not in names:
            names = self._without_dead_run(system, top, names)
        if names:
            raise BadRequest(f"{self.place} is not empty: it holds {names[0]}", advice="give a new folder")
        system.create_dir(f"{top}/{_UNFINISHED}", recursive=True)
        with system.open_output_stream(f"{top}/{_OWNER}") as stream:
            stream.write(owner().encode())

    def _without_dead_run(self, system: fs.FileSystem, top: str, names: list[str]) -> list[str]:
        """Remove what a run that was killed on this machine left; return the names of what is still there.

        Raises: BadRequest if that run may still write.
        """
        if not is_dead(_text(system, f"{top}/{_OWNER}")):
            raise BadRequest(
                f"{self.place} holds an audit that is not finished",
                advice="wait for its end; if it was killed on another machine, remove the folder",
            )
        for name in sorted({*names} & {*_RESULTS}):
            system.delete_file(f"{top}/{name}")
        if _TRANSACTIONS in names:
            system.delete_dir(f"{top}/{_TRANSACTIONS}")
        system.delete_dir(f"{top}/{_UNFINISHED}")
        return sorted({*names} - {*_RESULTS, _TRANSACTIONS, _UNFINISHED})

    def write(self, number: int, verdicts: pa.Table) -> Written:
        """Write some verdicts; a task that is repeated writes other files, and only those of one attempt are kept.

        Raises: UnwritableFile.
        """
        import pyarrow.dataset as ds

        states = Counter({one["values"]: one["counts"] for one in pc.value_counts(verdicts["state"]).to_pylist()})
        files_bytes: dict[str, int] = {}
        with writing(self.place):
            system, top = self._opened()
            base = f"{top}/{_UNFINISHED}/{_TRANSACTIONS}"
            rows = self._rows(verdicts)
            parquet = ds.ParquetFileFormat()
            ds.write_dataset(
                rows, base, filesystem=system, format=parquet, create_dir=not is_uri(self.place),
                file_options=parquet.make_write_options(**parquet_options(rows.drop_columns(list(self.partition_by)))),
                basename_template=f"part-{number:05}-{uuid.uuid4().hex}-{{i}}.parquet",
                partitioning=ds.partitioning(
                    pa.schema([rows.schema.field(name) for name in self.partition_by]), flavor="hive"
                ),
                existing_data_behavior="overwrite_or_ignore", max_partitions=_FOLDERS_MAX, use_threads=False,
                file_visitor=lambda file: files_bytes.update({file.path.partition(base + "/")[2]: file.size}),
            )
        return Written(files_bytes, states)

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> list[Written]:
        """Write batches of verdicts from one process. Raises: UnwritableFile."""
        written: list[Written] = []
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch.select(TRANSACTIONS.names))
            if sum(one.num_rows for one in held) >= _ROWS_OF_A_FILE:
                written.append(self.write(len(written), pa.Table.from_batches(held)))
                held = []
        if held:
            written.append(self.write(len(written), pa.Table.from_batches(held)))
        return written

    def finish(
        self, written: Sequence[Written], findings: pa.Table, coverage: pa.Table, facts: Mapping[str, Any]
    ) -> None:
        """Give all files their names, then write `_SUCCESS`, with the number of files and rows.

        Raises: UnwritableFile, also if a task wrote to the disk of another machine.
        """
        import pyarrow.parquet as pq

        files_bytes = {name: size for one in written for name, size in one.files_bytes.items()}
        with writing(self.place):
            system, top = self._opened()
            self._keep_only(system, f"{top}/{_UNFINISHED}/{_TRANSACTIONS}", files_bytes)
            for name, table in (("findings", findings), ("coverage", coverage)):
                with system.open_output_stream(f"{top}/{name}.parquet") as stream:
                    pq.write_table(table, stream, **parquet_options(table))
            _write_json(system, f"{top}/provenance.json", facts)
            if is_uri(self.place):
                _move_all(system, f"{top}/{_UNFINISHED}/{_TRANSACTIONS}", f"{top}/{_TRANSACTIONS}", files_bytes)
            elif files_bytes:
                system.move(f"{top}/{_UNFINISHED}/{_TRANSACTIONS}", f"{top}/{_TRANSACTIONS}")
            else:
                system.create_dir(f"{top}/{_TRANSACTIONS}")
            states = sum((one.states for one in written), Counter())
            _write_json(
                system, f"{top}/{SUCCESS}",
                {"files_count": len(files_bytes), "size_bytes": sum(files_bytes.values()),
                 "rows_count": states.total(), "states": dict(sorted(states.items()))},
            )
            system.delete_dir(f"{top}/{_UNFINISHED}")

    def _abandon(self) -> None:
        """Remove what an audit that failed has written, if that is possible."""
        with suppress(OSError, pa.ArrowException):
            system, top = self._opened()
            system.delete_dir(f"{top}/{_UNFINISHED}")
            if not is_uri(self.place):
                Path(top).rmdir()  # if it is empty

    def _keep_only(self, system: fs.FileSystem, base: str, files_bytes: Mapping[str, int]) -> None:
        """Remove files of tasks that were repeated; check that all others are here."""
        found = system.get_file_info(fs.FileSelector(base, allow_not_found=True, recursive=True))
        sizes = {info.path.partition(base + "/")[2]: info.size for info in found if info.is_file}
        for name, size_bytes in files_bytes.items():
            if sizes.get(name) != size_bytes:
                raise UnwritableFile(
                    f"{self.place}: a file that a task wrote is not here: {name}",
                    advice="give a folder that all executors share, or an object store",
                )
        for name in sizes.keys() - files_bytes.keys():
            system.delete_file(f"{base}/{name}")

    def _rows(self, verdicts: pa.Table) -> pa.Table:
        day = days_of(verdicts["half_store_time_ms"]).cast(pa.string())
        if self.has_timestamps:
            batches = [with_timestamps(batch) for batch in verdicts.to_batches()]
            verdicts = pa.Table.from_batches(batches) if batches else verdicts
        return verdicts.append_column("day", day) if "day" in self.partition_by else verdicts

    def _opened(self) -> tuple[fs.FileSystem, str]:
        """Return the file system, and the folder's path in it."""
        if not is_uri(self.place):
            return fs.LocalFileSystem(), self.place
        from rmqtx.readers.storage.remote_systems import opened

        return opened(self.place)


def _text(system: fs.FileSystem, path: str) -> str:
    """Return the content of a small file; "" if it does not exist."""
    try:
        with system.open_input_stream(path) as stream:
            return str(stream.read().decode(errors="replace"))
    except FileNotFoundError:
        return ""


def _write_json(system: fs.FileSystem, path: str, value: Mapping[str, Any]) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(json.dumps(value, indent=1).encode())


def _move_all(system: fs.FileSystem, before: str, after: str, names: Iterable[str]) -> None:
    with ThreadPoolExecutor(_MOVES_AT_ONCE) as pool:
        list(pool.map(lambda name: system.move(f"{before}/{name}", f"{after}/{name}"), names))


def verdict_folder(
    place: str | PathLike[str], partition_by: Iterable[str] = (), *, has_timestamps: bool = False
) -> VerdictFolder:
    """Return a folder that is not made yet. Tasks have other working directories, so a relative path becomes absolute.

    Raises: BadRequest for a name that is not in PARTITION_NAMES, or twice, and for a malformed URI.
    """
    names = tuple(partition_by)
    for name in names:
        if name not in PARTITION_NAMES:
            raise BadRequest(f"cannot partition by {name!r}", advice=f"possible: {', '.join(PARTITION_NAMES)}")
    if len(set(names)) < len(names):
        raise BadRequest(f"{', '.join(names)}: a name is given twice")
    known = normalised(place).rstrip("/")
    return VerdictFolder(known if is_uri(known) else str(Path(known or "/").absolute()), names, has_timestamps)

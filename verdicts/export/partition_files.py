"""Files of an export while they are written: under temporary names, a bounded number open, a bounded amount waiting."""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from rmqtx.readers.model.errors import UnwritableFile
from rmqtx.verdicts.export.folder import TEMPORARY_SUFFIX, on_disk
from rmqtx.verdicts.export.partitions import Partition, Partitioning

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_WAITING_BYTES_MAX = 32 << 20
_OPEN_FILES_MAX = 64


class RowsFile(Protocol):
    """A file that batches of one schema are written to."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Write some more rows."""

    def finish(self) -> None:
        """Write the end of the file and close it. Everything written is then on the disk."""


class FileForm(Protocol):
    """A kind of file."""

    @property
    def suffix(self) -> str:
        """The suffix of its names, without a dot."""

    def open(self, path: Path, schema: pa.Schema) -> RowsFile:
        """Open a new file."""


@dataclass(frozen=True, slots=True)
class ParquetForm:
    """Parquet, zstd."""

    suffix: str = "parquet"

    def open(self, path: Path, schema: pa.Schema) -> RowsFile:
        """Open a new file."""
        import pyarrow.parquet as pq

        return _ArrowFile(path, pq.ParquetWriter(str(path), schema, compression="zstd"))


@dataclass(frozen=True, slots=True)
class ArrowForm:
    """Arrow IPC files."""

    suffix: str = "arrow"

    def open(self, path: Path, schema: pa.Schema) -> RowsFile:
        """Open a new file."""
        return _ArrowFile(path, pa.ipc.new_file(str(path), schema))


@dataclass(slots=True)
class _ArrowFile:
    path: Path
    writer: pq.ParquetWriter | pa.ipc.RecordBatchFileWriter

    def write(self, rows: pa.RecordBatch) -> None:
        self.writer.write_batch(rows)

    def finish(self) -> None:
        self.writer.close()
        on_disk(self.path)


@dataclass(slots=True)
class WrittenFile:
    """A complete file that does not have its final name yet. Units: bytes."""

    temporary: str
    name: str
    topic: str | None
    day: str | None
    rows_count: int
    size_bytes: int = 0


@dataclass(slots=True)
class _Open:
    file: RowsFile
    written: WrittenFile


@dataclass(slots=True)
class PartitionFiles:
    """The files of one range of a log, or of one snapshot: `write` rows, then `close`, or `abort`.

    `stem` names them; `name`s are relative to `directory`.
    """

    directory: Path
    stem: str
    form: FileForm
    schema: pa.Schema
    partitioning: Partitioning
    written: list[WrittenFile] = field(default_factory=list)
    _open: OrderedDict[Partition, _Open] = field(default_factory=OrderedDict)
    _waiting: dict[Partition, list[pa.RecordBatch]] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _files_of: dict[Partition, int] = field(default_factory=dict)

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; columns that are not in the schema only determine the partition and are not written."""
        for partition, part in self.partitioning.split(rows):
            chosen = part.select(self.schema.names)
            self._waiting.setdefault(partition, []).append(chosen)
            self._waiting_bytes += chosen.nbytes
        if self._waiting_bytes >= _WAITING_BYTES_MAX:
            self._flush()

    def close(self) -> list[WrittenFile]:
        """Return the files, complete and on the disk.

        Order: of their names.
        Raises: UnwritableFile if one cannot be written.
        """
        self._flush()
        while self._open:
            self._finish(next(iter(self._open)))
        return sorted(self.written, key=lambda file: file.name)

    def abort(self) -> None:
        """Remove what was written."""
        for file in [*self.written, *(one.written for one in self._open.values())]:
            (self.directory / file.temporary).unlink(missing_ok=True)

    def _flush(self) -> None:
        for partition, parts in self._waiting.items():
            table = pa.Table.from_batches(parts).combine_chunks()
            opened = self._opened(partition)
            for batch in table.to_batches():
                try:
                    opened.file.write(batch)
                except OSError as error:
                    raise _cannot_write(self.directory / opened.written.temporary, error) from error
            opened.written.rows_count += table.num_rows
        self._waiting, self._waiting_bytes = {}, 0

    def _opened(self, partition: Partition) -> _Open:
        found = self._open.get(partition)
        if found is not None:
            self._open.move_to_end(partition)
            return found
        if len(self._open) >= _OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        number = self._files_of.get(partition, 0)
        self._files_of[partition] = number + 1
        name = f"part-{self.stem}{f'-{number}' if number else ''}.{self.form.suffix}"
        place = [partition.directory] if partition.levels else []
        temporary = "/".join([*place, f".{name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"])
        path = self.directory / temporary
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Keys and bodies are private: create the file with its permissions before it is opened by name.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            file = self.form.open(path, self.schema)
        except OSError as error:
            raise _cannot_write(path, error) from error
        written = WrittenFile(temporary, "/".join([*place, name]), partition.topic, partition.day_text, 0)
        opened = self._open[partition] = _Open(file, written)
        return opened

    def _finish(self, partition: Partition) -> None:
        opened = self._open.pop(partition)
        path = self.directory / opened.written.temporary
        self.written.append(opened.written)
        try:
            opened.file.finish()
            opened.written.size_bytes = path.stat().st_size
        except OSError as error:
            raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> UnwritableFile:
    return UnwritableFile(f"cannot write {path}: {error.strerror or error}", file=path)

"""Writes the rows of a step as Parquet, by day: a bounded number of rows is held, and each file is written once."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from rmqtx.readers.storage.places import is_uri
from rmqtx.verdicts.export.partition_files import on_disk
from rmqtx.verdicts.export.partitions import UNKNOWN
from rmqtx.verdicts.growing.table_manifest import TableFile
from rmqtx.verdicts.growing.verdict_rows import VERDICTS, are_unsettled

#: The most rows of a file.
ROWS_MAX = 250_000
_HELD_BYTES_MAX = 128 << 20
_Part = tuple[str | None, bool, str]


@dataclass(slots=True)
class PartWriter:
    """The new files of version `version` of the table at `place`.

    `files`: those that are complete, and on the disk.
    """

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

"""Exports the rows of a log as files by topic and day: each split writes its own files, and only missing rows.

Engine and split size may change the files; the rows are always the same, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtx.readers.jobs.body_decoder import DECODED, DECODED_FIELD, BodyDecoder
from rmqtx.readers.jobs.job_runner import SplitResult
from rmqtx.readers.log.commit_log import record_columns, span_findings
from rmqtx.readers.log.op_messages import op_findings, ops_of
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.segment_scan import Span
from rmqtx.readers.log.splits import Split, is_behind_end
from rmqtx.readers.log.transaction_records import are_halves, are_ops, halves_of
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.errors import SourceError, UnwritableFile
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import ALL_TABLES, column
from rmqtx.readers.store.store import Store
from rmqtx.readers.traces import traces_of
from rmqtx.verdicts.audit.provenance import Provenance, with_provenance
from rmqtx.verdicts.export.export_manifest import (
    Done,
    Range,
    RangeFile,
    begin_of,
    replace_manifests,
    store_id,
    write_manifest,
)
from rmqtx.verdicts.export.partition_files import FileForm, PartitionFiles, WrittenFile
from rmqtx.verdicts.export.partitions import PARTITIONINGS

#: One file that an export wrote.
EXPORTED = pa.schema(
    [
        column("store", pa.string(), "root directory of the store the rows were read from"),
        column("table", pa.string(), "name of the table of its rows"),
        column("segment", pa.string(), "file of the commit log that they were read from"),
        column("from_position", pa.int64(), "position in the segment of the first byte of their range"),
        column("to_position", pa.int64(), "position in the segment after the range"),
        column("topic", pa.string(), "topic of the rows"),
        column("day", pa.string(), "day of the rows' store time, UTC"),
        column("rows_count", pa.int64(), "number of rows in the file"),
        column("size_bytes", pa.int64(), "length of the file"),
        column("file", pa.string(), "the file, relative to the export's directory"),
    ]
)
_BATCH_RECORDS_MAX = 16_384


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Export records, halves, ops or traces (a ScanJob). Its rows, EXPORTED, are the files that it wrote.

    `columns`: those of the table that the files get. `decompress`: bodies as the producer made them.
    `decoder`: the command line of a filter that makes the column `body_decoded`, one process for each range.
    `provenance` is written into each file, together with the range of the log that the file covers. A range at the end
    of a log gets its files after all splits before it are read: only then is the end of the log's data known.
    """

    table: str
    columns: tuple[str, ...]
    directory: str
    form: FileForm
    done: Done
    decompress: bool = False
    decoder: tuple[str, ...] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows."""
        return EXPORTED

    def of_split(self, split: Split) -> SplitResult:
        """Export the part of a split that is not exported yet."""
        result = SplitResult(carried=[])
        begin, end = split.from_position, split.to_position
        identity = store_id(split.store)
        for first, last, read_from in self.done.gaps(identity, split.segment.base_offset, begin, end):
            part = replace(split, from_position=read_from, to_position=last)
            try:
                waiting = self._export(part, first, result)
            except SourceError as error:
                result.findings.append(
                    Finding(split.store.root, "unreadable-file", split.segment.file, actual=str(error))
                )
                break
            if waiting is None:
                continue
            if split.is_last:
                result.carried.append((split.segment.file, waiting))
            else:
                result.rows.extend(self._commit(split.store, split.segment.file, waiting))
        return result

    def of_store(self, store: Store, carried: list[Any]) -> SplitResult:
        """Rename the files from the end of a store's log to their final names."""
        result = SplitResult()
        for file, waiting in (one for split in carried for one in split):
            result.rows.extend(self._commit(store, file, waiting))
        return result

    def _export(self, part: Split, first: int, result: SplitResult) -> _Waiting | None:
        """Write the records that begin at `first` or later; None if the range has no result."""
        files = self._files(part, first)
        scan = part.scan()
        make = _MAKERS[self.table]
        rows_count, decoded_bytes, last_position = 0, 0, None
        decoder = BodyDecoder(self.decoder)
        try:
            for block in scan:
                if not decoded_bytes and self._is_stale(part, first, block):
                    files.abort()
                    return None
                own = block.take(np.flatnonzero(block.positions >= first))
                decoded_bytes += int(own.lengths.sum())
                last_position = int(block.positions[-1]) if len(block) else last_position
                for rows in make(self, own, part.store, result.findings):
                    files.write(_with_decoded(rows, decoder) if self.decoder else rows)
                    rows_count += rows.num_rows
                    if self.table == "ops":
                        result.findings.extend(op_findings(rows, part.store.root))
            written = files.close()
        except BaseException:
            files.abort()
            decoder.close(is_orderly=False)
            raise
        decoder.close()
        if (note := decoder.note()) is not None:
            file = part.segment.file
            result.findings.append(Finding(part.store.root, "body-undecoded", file, first, actual=note))
        spans = [span for span in scan.spans if span.position_bytes >= first]  # others are reported already
        result.spans.extend(spans)
        result.decoded_bytes += decoded_bytes
        result.findings.extend(span_findings(part.store, part.segment, spans))
        end = _covered_end(part, scan.spans, last_position)
        if end <= first:
            return None
        begin_bytes, digest = begin_of(part.segment, min(_BEGIN_BYTES, end))
        done = Range(
            store_id(part.store), part.segment.base_offset, first, end, last_position, rows_count, begin_bytes, digest,
            tuple(RangeFile(name=file.name, rows_count=file.rows_count) for file in written),
        )
        return _Waiting(done, written)

    @staticmethod
    def _is_stale(part: Split, first: int, block: Block) -> bool:
        """Whether the first records of a range were cut off by a recovery.

        At the end of a log the engine skips a split of this kind, so its files never get their final names.
        """
        begins_blind = part.from_position == first > 0
        return not part.is_last and begins_blind and len(block) > 0 and is_behind_end(part, int(block.positions[0]))

    def _files(self, part: Split, first: int) -> PartitionFiles:
        stem = f"{store_id(part.store)}-{part.segment.base_offset:020d}-{first}"
        schema = pa.schema([_field(self.table, name) for name in self.columns])
        made_from = {
            **self.provenance, "store": part.store.root, "segment": part.segment.file,
            "base_offset": part.segment.base_offset, "from_position": first,
        }
        return PartitionFiles(
            Path(self.directory), stem, self.form, with_provenance(schema, made_from), PARTITIONINGS[self.table]
        )

    def _commit(self, store: Store, segment: str, waiting: _Waiting) -> list[pa.RecordBatch]:
        done = waiting.done
        write_manifest(Path(self.directory), done, waiting.files)
        rows = [
            {
                "store": store.root, "table": self.table, "segment": segment, "from_position": done.from_position,
                "to_position": done.to_position, "topic": file.topic, "day": file.day, "rows_count": file.rows_count,
                "size_bytes": file.size_bytes, "file": file.name,
            }
            for file in waiting.files
        ]
        return [pa.RecordBatch.from_pylist(rows, schema=EXPORTED)] if rows else []


_BEGIN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A range with complete files that do not have their final names yet."""

    done: Range
    files: list[WrittenFile]


def _covered_end(part: Split, spans: list[Span], last_position: int | None) -> int:
    """Return where the exported range ends: at the end of a log with its sound records, because the rest may change."""
    if not part.is_last:
        return part.to_position
    if last_position is None and not spans:
        return 0  # no record begins here yet
    end = part.segment.size_bytes
    for span in sorted(spans, key=lambda one: one.position_bytes, reverse=True):
        if span.kind == "blank" or span.position_bytes + span.length_bytes != end:
            break
        end = span.position_bytes
    return min(end, part.to_position)


def _field(table: str, name: str) -> pa.Field:
    return DECODED_FIELD if name == DECODED else ALL_TABLES[table].field(name)


def _with_decoded(rows: pa.RecordBatch, decoder: BodyDecoder) -> pa.RecordBatch:
    """Return the rows with the texts of a filter; the writer takes the columns of the files."""
    texts = pa.array(decoder.decoded(rows["body"].to_pylist()), pa.string())
    return rows.append_column(DECODED_FIELD, texts)


def _record_rows(
    job: ExportJob, block: Block, store: Store, _findings: list[Finding]
) -> list[pa.RecordBatch]:
    stored = [name for name in job.columns if name != DECODED]
    names = list(dict.fromkeys([*stored, *PARTITIONINGS["records"].columns, *(["body"] if job.decoder else [])]))
    schema = pa.schema([ALL_TABLES["records"].field(name) for name in names])
    found = []
    for first in range(0, len(block), _BATCH_RECORDS_MAX):
        part = block.take(np.arange(first, min(first + _BATCH_RECORDS_MAX, len(block))))
        arrays = record_columns(part, store.root, names, decompress=job.decompress)
        found.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return found


def _rows_where(are_chosen: Callable[[Block], Bools], make: Callable[[Block, str], pa.RecordBatch]) -> _Maker:
    def rows(_job: ExportJob, block: Block, store: Store, _findings: list[Finding]) -> list[pa.RecordBatch]:
        chosen = block.take(are_chosen(block))
        return [make(chosen, store.root)] if len(chosen) else []

    return rows


def _trace_rows(
    _job: ExportJob, block: Block, store: Store, findings: list[Finding]
) -> list[pa.RecordBatch]:
    chosen = block.take(block.topic_is(store.trace_topic))
    return [traces_of(chosen, store.root, findings)] if len(chosen) else []


_Maker = Callable[[ExportJob, Block, Store, list[Finding]], list[pa.RecordBatch]]
_MAKERS: dict[str, _Maker] = {
    "records": _record_rows,
    "halves": _rows_where(are_halves, halves_of),
    "ops": _rows_where(are_ops, ops_of),
    "traces": _trace_rows,
}


# Exports verdicts as files by topic and day. Verdicts change as the log grows, so each run replaces the last export.
#
# The new files are complete before the old ones are removed, and get their final names after that. A reader between
# these two steps sees fewer rows, but none twice. After a kill between them the next run removes the new files and
# writes all rows again.


def export_snapshot(
    batches: Iterable[pa.RecordBatch], table: str, columns: tuple[str, ...], directory: Path, form: FileForm,
    made_from: Provenance,
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a table, then replace the content of the directory; return rows of EXPORTED.

    `made_from`: the provenance in each file.
    Raises: UnwritableFile; errors of reading the batches. The directory is then unchanged.
    """
    schema = with_provenance(pa.schema([ALL_TABLES[table].field(name) for name in columns]), made_from)
    files = PartitionFiles(directory, f"{made_from['made_time_ms']}", form, schema, PARTITIONINGS[table])
    try:
        for batch in batches:
            files.write(batch)
        written = files.close()
    except BaseException:
        files.abort()
        raise
    listed = tuple(RangeFile(name=file.name, rows_count=file.rows_count) for file in written)
    rows_count = sum(file.rows_count for file in written)
    done = Range("snapshot", 0, 0, 0, None, rows_count, 0, "", listed)
    try:
        replace_manifests(directory, done, written)
    except OSError as error:
        raise UnwritableFile(f"cannot write into {directory}: {error.strerror}", file=directory) from error
    if written:
        yield pa.RecordBatch.from_pylist([_row(table, file) for file in written], schema=EXPORTED)


def _row(table: str, file: WrittenFile) -> dict[str, object]:
    return {
        "table": table, "topic": file.topic, "day": file.day, "rows_count": file.rows_count,
        "size_bytes": file.size_bytes, "file": file.name,
    }

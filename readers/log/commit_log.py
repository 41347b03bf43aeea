"""The commit log as rows of RECORDS: all of it or a range, with the requested columns, and losses as findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqtx.readers.log import compression
from rmqtx.readers.log.header_rules import OWN_PLACE, broken_rules
from rmqtx.readers.log.properties import CHECK_TIMES, KEYS, PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC, TAGS, UNIQ_KEY
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMPRESSED, TRANSACTION_MASK
from rmqtx.readers.log.segment_scan import SegmentScan, Span
from rmqtx.readers.model.columns import nulls
from rmqtx.readers.model.errors import BadRequest, SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.reading import WHOLE, Bounds, Coverage, Reading
from rmqtx.readers.model.tables import RECORDS
from rmqtx.readers.storage.segments import Segment
from rmqtx.readers.store.remembered import remembered, unused_rests
from rmqtx.readers.store.store import Store, is_bundle

_TYPE_NAMES = ("none", "prepared", "commit", "rollback")
_TYPES = {field.name: field.type for field in RECORDS}


def record_columns(block: Block, store: str, columns: list[str], *, decompress: bool = False) -> list[pa.Array]:
    """Return the named columns of RECORDS for the records of a block.

    Shape: one array per name. `body` is as stored, or decompressed with `decompress`; `body_crc_matches` computes CRCs.
    """
    arrays = []
    for name in columns:
        if name == "store":
            column = _constant(store, len(block))
        elif name == "body":
            column = _body(block, decompress=decompress)
        else:
            column = _COLUMNS[name](block)
        arrays.append(column if column.type == _TYPES[name] else column.cast(_TYPES[name]))
    return arrays


def _body(block: Block, *, decompress: bool) -> pa.Array:
    bodies = block.bodies().cast(pa.binary())
    if not decompress or not (block.sys_flag & COMPRESSED).any():
        return bodies
    pairs = zip(bodies.to_pylist(), block.sys_flag.tolist(), strict=True)
    return pa.array([compression.inflate(body, flag) for body, flag in pairs], pa.binary())


_Column = Callable[[Block], pa.Array]


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)


def _number(name: str) -> _Column:
    return lambda block: pa.array(block.header(name))


def _property(name: str) -> _Column:
    return lambda block: block.properties.text(name)


_COLUMNS: dict[str, _Column] = {
    "file": lambda block: _constant(block.file, len(block)),
    "position_bytes": lambda block: pa.array(block.positions),
    "length_bytes": _number("length_bytes"),
    "commit_log_offset": lambda block: pa.array(block.commit_log_offsets),
    "format_version": lambda block: pa.array(np.where(block.is_v2, 2, 1)),
    "topic": lambda block: block.topic_texts(),
    "queue_id": _number("queue_id"),
    "queue_offset": _number("queue_offset"),
    "transaction_id": _property(UNIQ_KEY),
    "keys": _property(KEYS),
    "tags": _property(TAGS),
    "born_time_ms": _number("born_time_ms"),
    "store_time_ms": _number("store_time_ms"),
    "born_host": lambda block: block.born_hosts(),
    "store_host": lambda block: block.store_hosts(),
    "message_id": lambda block: block.message_ids(),
    "flag": _number("flag"),
    "sys_flag": lambda block: pa.array(block.sys_flag),
    "transaction_type": lambda block: pa.array(_TYPE_NAMES).take(pa.array((block.sys_flag & TRANSACTION_MASK) >> 2)),
    "reconsume_times": _number("reconsume_times"),
    "prepared_transaction_offset": _number("prepared_transaction_offset"),
    "producer_group": _property(PRODUCER_GROUP),
    "real_topic": _property(REAL_TOPIC),
    "real_queue_id": _property(REAL_QUEUE_ID),
    "checks": _property(CHECK_TIMES),
    "body_length_bytes": _number("body_length_bytes"),
    "body_crc": _number("body_crc"),
    "body_crc_matches": lambda block: pa.array(block.body_crc_matches()),
    "properties": lambda block: block.properties.maps(),
}


def scan_segments(
    store: Store, findings: list[Finding], coverage: list[Coverage], *, from_offset: int | None = None,
    to_offset: int | None = None, with_fillers: bool = False,
) -> Iterator[Block]:
    """Yield every block of the commit log, or of a range of it; findings and coverage are complete at the end.

    `with_fillers`: include the fillers of `rmqtx salvage`, which are records for a broker.
    Units: commit-log offsets in bytes; a record belongs to the range if it begins in it.
    Order: commit-log offset ascending.
    Damage: one finding per span that is not a record; a file that cannot be read is one finding, its bytes are unread.
    """
    last = written_end(store).last_base
    for segment in store.commit_log:
        begin = max(0, (from_offset or 0) - segment.base_offset)
        end = segment.size_bytes if to_offset is None else min(segment.size_bytes, to_offset - segment.base_offset)
        part = Coverage(store.root, segment.file, segment.size_bytes)
        coverage.append(part)
        if begin >= end:
            continue
        scan = SegmentScan(
            segment, from_position=begin, to_position=end, is_last=segment.base_offset >= last,
            with_fillers=with_fillers,
        )
        scan.unused = unused_rests(store)
        try:
            yield from scan
        except SourceError as error:
            findings.append(
                Finding(store.root, "unreadable-file", segment.file, error.position_bytes, actual=str(error))
            )
        part.count(scan.decoded_bytes, scan.spans)
        findings.extend(span_findings(store, segment, scan.spans))
        for block in scan.misplaced:
            findings.extend(broken_rules(block, store.root, (OWN_PLACE,)))


def remember_unused(store: Store, spans_of: Mapping[str, Iterable[Span]]) -> None:
    """Note the unused rests that scans of other processes found, so that this process does not search them again.

    `spans_of`: the spans of whole files, by file.
    """
    rests = unused_rests(store)
    for file, spans in spans_of.items():
        for span in spans:
            if span.kind == "preallocated":
                rests[file] = min(span.position_bytes, rests.get(file, span.position_bytes))


class WrittenEnd(NamedTuple):
    """Where the data of a log ends: the base offset of the last segment with data, and the approximate offset.

    Without data both are the begin of the log.
    """

    last_base: int
    offset: int

    @classmethod
    def of(cls, segments: tuple[Segment, ...]) -> WrittenEnd:
        """Return the end of some segments; brokers create the next file in advance."""
        for segment in reversed(segments):
            if written := written_bytes(segment):
                return cls(segment.base_offset, segment.base_offset + written)
        begin = segments[0].base_offset if segments else 0
        return cls(begin, begin)

    @property
    def has_data(self) -> bool:
        """Whether the last segment has data."""
        return self.offset > self.last_base


@remembered
def written_end(store: Store) -> WrittenEnd:
    """Return where the data of a store's log ends; many questions about a store begin with it."""
    return WrittenEnd.of(store.commit_log)


def last_with_data(segments: tuple[Segment, ...]) -> int:
    """Return the base offset of the last segment with data."""
    return WrittenEnd.of(segments).last_base


def data_end_offset(store: Store) -> int:
    """Return the approximate commit-log offset where a store's log ends; the log of a bundle has holes."""
    if is_bundle(store):
        return max(one.end_offset for one in store.commit_log)
    return written_end(store).offset


def log_bytes(segments: tuple[Segment, ...]) -> int:
    """Return the approximate number of written bytes of a log: all files before the last one with data are full."""
    last = last_with_data(segments)
    return sum(
        segment.size_bytes if segment.base_offset < last else written_bytes(segment)
        for segment in segments
        if segment.base_offset <= last
    )


def written_bytes(segment: Segment) -> int:
    """Return the approximate number of written bytes of a segment, by a few reads; a log is written from its begin."""
    try:
        with segment.open() as file:
            low, high = 0, -(-segment.size_bytes // _PROBE_BYTES)
            step = 0
            while low < high:
                if file.is_remote and step % _PROBE_STEPS == 0:
                    file.prepare((place * _PROBE_BYTES, _PROBE_BYTES) for place in _next_probes(low, high))
                step += 1
                middle = (low + high) // 2
                if file.read(middle * _PROBE_BYTES, _PROBE_BYTES).strip(b"\0"):
                    low = middle + 1
                else:
                    high = middle
            return min(low * _PROBE_BYTES, segment.size_bytes)
    except SourceError:  # the scan itself reports it
        return segment.size_bytes


def _next_probes(low: int, high: int) -> set[int]:
    """Return the places that the next steps of a binary search can examine."""
    ranges, places = [(low, high)], set[int]()
    for _ in range(_PROBE_STEPS):
        ranges = [one for one in ranges if one[0] < one[1]]
        middles = [(low + high) // 2 for low, high in ranges]
        places.update(middles)
        lower = [(low, middle) for (low, _), middle in zip(ranges, middles, strict=True)]
        ranges = lower + [(middle + 1, high) for (_, high), middle in zip(ranges, middles, strict=True)]
    return places


def span_findings(store: Store, segment: Segment, spans: list[Span]) -> list[Finding]:
    """Return one finding for each span that is damaged, torn or foreign."""
    codes = {"torn": "tail-torn", "foreign": "tail-foreign"}
    return [
        Finding(
            store.root, codes.get(span.kind, "record-damaged"), segment.file, span.position_bytes, span.length_bytes,
            commit_log_offset=segment.base_offset + span.position_bytes,
        )
        for span in spans
        if not span.is_filler
    ]


def scan_records(
    store: Store, bounds: Bounds = WHOLE, *, columns: list[str] | None = None, topic: str | None = None,
    with_body: bool = False, decompress: bool = False, check_crc: bool = False,
) -> Reading:
    """Return the commit log's records as rows of RECORDS.

    Shape:  batches of at most one window's records; only the requested columns are decoded, the others are null.
    Units:  offsets in bytes of the commit log, times in milliseconds of the store time; upper bounds excluded.
    Order:  commit-log offset ascending.
    Damage: findings and coverage of the reading; with `check_crc` a damaged body is a finding and still a row.
    Raises: BadRequest for a column that is not in RECORDS.
    """
    wanted = [name for name in (columns or RECORDS.names) if name not in _ON_DEMAND]
    unknown = [name for name in wanted if name not in RECORDS.names]
    if unknown:
        raise BadRequest(f"no column {unknown[0]} in records", advice=f"columns: {', '.join(RECORDS.names)}")
    wanted += ["body"] * with_body + ["body_crc_matches"] * check_crc
    findings, coverage = list(store.findings), []  # type: list[Finding], list[Coverage]

    def batches() -> Iterator[pa.RecordBatch]:
        for block in scan_segments(
            store, findings, coverage, from_offset=bounds.from_offset, to_offset=bounds.to_offset
        ):
            chosen = block if topic is None else block.take(block.topic_is(topic))
            chosen = chosen.within(bounds.from_time_ms, bounds.to_time_ms)
            for first in range(0, len(chosen), _BATCH_RECORDS_MAX):
                part = chosen.take(np.arange(first, min(first + _BATCH_RECORDS_MAX, len(chosen))))
                values = dict(zip(wanted, record_columns(part, store.root, wanted, decompress=decompress), strict=True))
                if check_crc:
                    findings.extend(crc_findings(store, part, values["body_crc_matches"]))
                arrays = [values.get(field.name, nulls(len(part), field.type)) for field in RECORDS]
                yield pa.RecordBatch.from_arrays(arrays, schema=RECORDS)

    return Reading(RECORDS, batches(), findings, coverage)


_ON_DEMAND = ("body", "body_crc_matches")
_BATCH_RECORDS_MAX = 65_536
_PROBE_BYTES = 4096
#: Steps of a binary search whose places are fetched together from a remote file: 1 + 2 + 4 for the time of one.
_PROBE_STEPS = 3


def crc_findings(store: Store, block: Block, matches: pa.Array) -> Iterator[Finding]:
    """Return one finding for each record whose body does not match the stored CRC."""
    for row in np.flatnonzero(~matches.to_numpy(zero_copy_only=False)).tolist():
        offset = int(block.commit_log_offsets[row])
        yield Finding(
            store.root, "record-body-crc", block.file, int(block.positions[row]),
            int(block.lengths[row]), commit_log_offset=offset, expected=f"CRC {block.header('body_crc')[row]}",
        )

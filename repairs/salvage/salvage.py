"""A clean store made from records wherever they lie: their own offsets say where each belongs.

The new log has every record at its own offset, in segments of the broker's length, and fillers where records were lost;
queues, index and checkpoint are made from it. The files that are read are not changed.
"""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from readers.log.commit_log import scan_segments
from readers.model.errors import BadRequest, NotAStore
from readers.model.findings import Finding, as_text
from readers.model.reading import Coverage
from readers.queues.slot_files import SIMPLE
from readers.storage.segments import is_dledger
from readers.store.store import ROCKSDB_HALF_TOPIC, Store, open_store
from repairs.changes.file_copies import copy_tree
from repairs.changes.fingerprints import require_links_inside
from repairs.changes.new_stores import UNFINISHED_SUFFIX, Progress, new_store, write_at
from repairs.rebuild.queues import QueueBuilder
from repairs.rebuild.rebuild import PARTS, DerivedBuilder, Rebuilt
from repairs.records.fillers import BLANK_BYTES, FILLER_BYTES_MIN, FillerModel, Lost, filled, filler, stand_in
from repairs.records.record_writer import blank_head
from repairs.records.store_sizes import StoreSizes, with_log_files_of
from repairs.salvage.choose_records import ChosenRecords, OpenSources, Piece, chosen_pieces
from repairs.salvage.queue_ends import discards_go_on, known_ends
from repairs.salvage.scan_for_records import FoundRuns, Run, SalvageSource, sources_of
from verdicts.verify.state_table import has_tables

#: Commit-log offset → a record for that place.
Maker = Callable[[int], bytes]
_COPIED_BYTES = 8 << 20
#: Blank records say their length in 31 bits; broken ones have no common measure that is long.
_SEGMENT_BYTES_MIN, _SEGMENT_BYTES_MAX = 4096, (1 << 31) - 1
_SCRATCH = "queues-being-counted"


@dataclass(slots=True)
class Salvaged:
    """What became of the files and of the log.

    Shape: `lost_bytes` lie between records of the new log; `lost_numbers_count` numbers of queues have no record, and
           `stand_ins_count` of them are borne by a filler. `has_state_table`: those of 3.0 and 3.1 were copied;
           `lacks_rocksdb`: the half topic of transactions in RocksDB was there, and its database is not taken.
    Units: `segment_bytes` is the length of the new log's files.
    """

    chosen: ChosenRecords
    coverage: list[Coverage]
    findings: list[Finding]
    made: Rebuilt = field(default_factory=Rebuilt)
    records_count: int = 0
    segments_count: int = 0
    segment_bytes: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    lost_bytes: int = 0
    lost_numbers_count: int = 0
    stand_ins_count: int = 0
    has_state_table: bool = False
    lacks_rocksdb: bool = False


@dataclass(frozen=True, slots=True)
class _LogHole:
    """A range of the log without records, within one segment. `ends_segment`: nothing follows it there."""

    begin: int
    end: int
    store_time_ms: int
    ends_segment: bool


def salvage(
    paths: list[Path],
    target: Path,
    sizes: StoreSizes,
    *,
    config: Path | None = None,
    with_tags: bool = False,
    old_store: Store | None = None,
    infers_segments: bool = False,
    progress: Progress | None = None,
) -> Salvaged:
    """A store at `target` with all records that are found in files, devices and directories.

    `config`: a broker's directory config/, copied. `old_store`: the damaged store, whose queues say how far they went;
    its state table and redo log (3.0, 3.1) are copied.
    `infers_segments`: the log's files are as long as blank records say, if any is found; else as `sizes` says.
    Raises: BadRequest, NotAStore where no record is found, UnreadableFile, FileChanged, UnwritableFile.
    """
    _refuse(paths, target, config)
    if old_store is not None:
        require_links_inside(old_store.root)
    sources = sources_of(paths)
    runs: list[Run] = []
    coverage: list[Coverage] = []
    findings: list[Finding] = []
    borders: set[int] = set()
    total, done = sum(source.size_bytes for source in sources), 0
    for number, source in enumerate(sources):
        scan = FoundRuns(number, source)
        for run in scan:
            runs.append(run)
            if progress is not None:
                progress(done + run.position_bytes + run.length_bytes, total)
        done += source.size_bytes
        coverage.append(scan.coverage)
        findings.extend(scan.findings)
        borders |= scan.borders
    if infers_segments:
        sizes = with_log_files_of(sizes, _segment_bytes(borders, sources))
    files = OpenSources(sources)
    try:
        chosen = chosen_pieces(runs, files, sizes.log_file_bytes)
        if not chosen.pieces:
            raise NotAStore("no record was found in what was given", advice="is it the commit log of a broker?")
        result = Salvaged(chosen, coverage, findings, segment_bytes=sizes.log_file_bytes)
        findings.extend(chosen.findings)
        with new_store(target) as root:
            if config is not None:
                copy_tree(config, root / "config")
            if old_store is not None:
                _copy_tables(old_store, root, result)
            _write_log(root, files, result, sizes, old_store)
            _derive(root, result, sizes, with_tags=with_tags)
    finally:
        files.close()
    return result


def _segment_bytes(borders: set[int], sources: list[SalvageSource]) -> int | None:
    """The length of segments that end where blank records say; None where they say nothing that can be.

    A whole loose file is as long as a segment: what it says then is no multiple of that.
    """
    border = math.gcd(*borders)
    lengths = [source.size_bytes for source in sources if source.size_bytes and border % source.size_bytes == 0]
    length = min((one for one in lengths if one >= _SEGMENT_BYTES_MIN), default=border)
    return length if _SEGMENT_BYTES_MIN <= length <= _SEGMENT_BYTES_MAX else None


def _refuse(paths: list[Path], target: Path, config: Path | None) -> None:
    place = target.resolve()
    for path in [*paths, *([] if config is None else [config])]:
        if path.is_dir() and place.is_relative_to(path.resolve()):
            raise BadRequest(f"{target} lies in {path}, which is read", advice="--to names a directory elsewhere")
        directories = (path.resolve(), path.resolve().parent, path.resolve() / "data")
        if any(is_dledger(str(directory)) for directory in directories) or any(path.glob("dledger-*/data")):
            raise BadRequest(
                f"{path} is a DLedger log, and a store without its entries is none that its broker reads",
                advice="start the member empty: it copies the log from the others of its group",
            )
    if config is not None and not config.is_dir():
        raise BadRequest(f"{config} is no directory", advice="give the broker's directory config/")


def _copy_tables(old_store: Store, root: Path, result: Salvaged) -> None:
    """Copy state table and redo log as they are: their entries name records by offsets, which the new log keeps.

    The database of transactions in RocksDB is none to be copied beside another log: a broker does not take in halves
    before the largest offset that the database knows.
    """
    result.has_state_table = has_tables(old_store)
    if result.has_state_table:
        old = Path(old_store.root)
        copy_tree(old / "transaction", root / "transaction", root=old)
    result.lacks_rocksdb = old_store.has("consumequeue", ROCKSDB_HALF_TOPIC) and old_store.has("rocksdbstore")


# --- the log ----------------------------------------------------------------------------------------------------------


def _write_log(
    root: Path, files: OpenSources, result: Salvaged, sizes: StoreSizes, old_store: Store | None
) -> None:
    """The pieces at their places, then what stands in the holes between them, and behind the last one."""
    pieces, size = result.chosen.pieces, sizes.log_file_bytes
    log = root / "commitlog"
    first, last = pieces[0].offset // size, pieces[-1].offset // size
    for number in range(first, last + 1):
        write_at(log / f"{number * size:020d}", size, 0, b"")
    for piece in pieces:
        _copy(log, files, piece, size)
    result.records_count = sum(piece.records_count for piece in pieces)
    result.begin_offset, result.end_offset = pieces[0].offset, pieces[-1].end_offset
    holes = _holes(pieces, size)
    result.lost_bytes = _lost_bytes(holes, pieces, files)
    wanted, behind = _lost_numbers(root, sizes, holes, result, old_store)
    for hole in holes:
        result.stand_ins_count += _fill(log, hole, wanted[hole.begin], size)
    near = FillerModel(pieces[-1].last_time_ms)
    makers: list[Maker] = [partial(stand_in, lost=one, near=near) for one in behind]
    if not makers and discards_go_on(old_store, result.end_offset):
        makers = [partial(filler, length_bytes=FILLER_BYTES_MIN, near=near)]  # readers see that something was lost here
    result.end_offset = _append(log, result.end_offset, makers, size)
    result.stand_ins_count += len(behind)
    result.segments_count = (result.end_offset - 1) // size - first + 1


def _append(log: Path, end: int, makers: list[Maker], size: int) -> int:
    """Write records behind the last one; gives the new end of the log."""
    for make in makers:
        base = end - end % size
        left = base + size - end
        record = make(end)
        if len(record) + BLANK_BYTES > left:
            write_at(log / f"{base:020d}", size, end - base, blank_head(left))
            end = base = base + size
            record = make(end)
        write_at(log / f"{base:020d}", size, end - base, record)
        end += len(record)
    return end


def _copy(log: Path, files: OpenSources, piece: Piece, size: int) -> None:
    base = piece.offset - piece.offset % size
    with (log / f"{base:020d}").open("r+b") as file:
        file.seek(piece.offset - base)
        for begin in range(0, piece.length_bytes, _COPIED_BYTES):
            length = min(_COPIED_BYTES, piece.length_bytes - begin)
            file.write(files.read(piece.source, piece.position_bytes + begin, length))


def _holes(pieces: list[Piece], size: int) -> list[_LogHole]:
    """What lies between the pieces, cut at segments; the log begins with the first piece's segment.

    Order: commit-log offset ascending.
    """
    holes: list[_LogHole] = []
    end = pieces[0].offset - pieces[0].offset % size
    time_ms = pieces[0].first_time_ms
    for piece in pieces:
        while end < piece.offset:
            border = end - end % size + size
            if border <= piece.offset:
                holes.append(_LogHole(end, border, time_ms, ends_segment=True))
            else:
                holes.append(_LogHole(end, piece.offset, time_ms, ends_segment=False))
            end = min(border, piece.offset)
        end, time_ms = piece.end_offset, piece.last_time_ms
    return holes


def _lost_bytes(holes: list[_LogHole], pieces: list[Piece], files: OpenSources) -> int:
    """What the holes held, without the blanks that brokers end files with.

    A broker ends a file where the next record does not fit, so a rest is a blank if it is too short for the record that
    the next file begins with. Where that record is not here, the rest counts as lost with it.
    """
    by_offset = {piece.offset: piece for piece in pieces}
    lost = 0
    for hole in holes:
        following = by_offset.get(hole.end) if hole.ends_segment else None
        if following is not None:
            length = int.from_bytes(files.read(following.source, following.position_bytes, 4), "big")
            if hole.end - hole.begin < length + BLANK_BYTES:
                continue
        lost += hole.end - hole.begin
    return lost


def _fill(log: Path, hole: _LogHole, wanted: list[Lost], size: int) -> int:
    """Write what stands in a hole; gives how many lost numbers it bears.

    A segment's rest ends in a blank record; one without any record begins with a filler, for brokers look at the first
    record of a segment to choose where to recover from (docs/formats/recovery.md#crash).
    """
    near = FillerModel(hole.store_time_ms)
    base = hole.begin - hole.begin % size
    path = log / f"{base:020d}"
    end = hole.end
    if hole.ends_segment:
        end = hole.begin
        for lost in wanted:
            length = len(stand_in(0, lost, near))
            if end + length + BLANK_BYTES > hole.end:
                break
            end += length
        if end == base:
            end += FILLER_BYTES_MIN
    borne = 0
    for offset, record, number in filled(hole.begin, end, wanted, near) if end > hole.begin else ():
        write_at(path, size, offset - base, record)
        borne += number is not None
    if hole.ends_segment:
        write_at(path, size, end - base, blank_head(hole.end - end))
    return borne


# --- lost numbers -----------------------------------------------------------------------------------------------------


def _lost_numbers(
    root: Path, sizes: StoreSizes, holes: list[_LogHole], result: Salvaged, old_store: Store | None
) -> tuple[dict[int, list[Lost]], list[Lost]]:
    """The numbers that stand-ins must bear, by the hole (its begin) that they go into, and those behind all records.

    A number is lost in a hole between the records that have its neighbours. In most queues nothing needs to stand in:
    an entry before the log's begin makes a broker go on (docs/formats/consume_queues.md#slot). But the check reads
    halves one by one and takes the next one in a lost one's place; and in a log that begins at 0 no place is before its
    begin.
    """
    store = open_store(root)
    scratch = root / _SCRATCH
    builder = QueueBuilder(store, scratch, sizes)
    for block in scan_segments(store, [], []):
        builder.add(block)
    wanted: dict[int, list[Lost]] = defaultdict(list)
    room = {hole.begin: hole.end - hole.begin for hole in holes}
    for name, queue in builder.finish().items():
        ranges = list(queue.lost)
        # a queue of one record may be one that a damaged header made up
        if queue.first and queue.slots_count > 1 and result.begin_offset < sizes.log_file_bytes:
            ranges.insert(0, (0, queue.first, -1, queue.first_offset))
        result.lost_numbers_count += sum(high - low for low, high, _, _ in ranges)
        for low, high, before, after in ranges if not queue.is_batch else ():
            lost = [Lost(name[1], name[2], number) for number in range(low, min(high, low + _STAND_INS_MAX))]
            if lost[0].is_own_topic or after < sizes.log_file_bytes:
                _distribute(lost, [hole for hole in holes if before < hole.begin < after], wanted, room)
    target = as_text(root).removesuffix(UNFINISHED_SUFFIX)
    result.findings.extend(replace(finding, store=target) for finding in builder.findings)
    shutil.rmtree(scratch, ignore_errors=True)
    behind = _lost_behind(builder, known_ends(store, old_store))
    result.lost_numbers_count += len(behind)
    return wanted, behind


def _lost_behind(builder: QueueBuilder, ends: dict[tuple[bytes, int], int]) -> list[Lost]:
    """Numbers that were given and whose records are lost at the log's end: of very many the last one is enough.

    Of a queue without any record too: what comes first in it then has the number that follows.
    """
    lost: list[Lost] = []
    for (topic, queue_id), end in sorted(ends.items()):
        queue = builder.queues.get((SIMPLE, topic, queue_id))
        first = end - 1 if queue is None else queue.end
        if end - first > _BEHIND_MAX:
            first = end - 1
        lost += [Lost(topic, queue_id, number) for number in range(first, end)]
    return lost


#: Of one range of lost numbers; each takes a record.
_STAND_INS_MAX = 1 << 20
_BEHIND_MAX = 1 << 16


def _distribute(lost: list[Lost], holes: list[_LogHole], wanted: dict[int, list[Lost]], room: dict[int, int]) -> None:
    """Numbers go into the first holes that have room, in their order."""
    rest = list(reversed(lost))
    for hole in holes:
        while rest:
            length = len(stand_in(0, rest[-1], FillerModel(0)))
            spare = BLANK_BYTES if hole.ends_segment else 0
            if length + spare > room[hole.begin]:
                break
            room[hole.begin] -= length
            wanted[hole.begin].append(rest.pop())


# --- derived files ----------------------------------------------------------------------------------------------------


def _derive(root: Path, result: Salvaged, sizes: StoreSizes, *, with_tags: bool) -> None:
    """Queues, index and checkpoint of the new log, stand-ins included: brokers take them for records."""
    store: Store = open_store(root)
    builder = DerivedBuilder(frozenset(PARTS), store, root, sizes, with_tags)
    for block in scan_segments(store, [], [], with_fillers=True):
        builder.add(block)
    result.made = builder.finish()

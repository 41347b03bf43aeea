"""A clean store made from records in any files: each record contains its offset in the log.

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

from rmqtx.readers.finding_kinds.kind import Severity
from rmqtx.readers.jobs.job_runner import run_job
from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.record_layout import HEAD_BYTES, number_at
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.model.errors import BadRequest, NotAStore
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.model.reading import Coverage
from rmqtx.readers.old_tables.beside_tables import has_tables
from rmqtx.readers.queues.slot_files import SIMPLE
from rmqtx.readers.storage.segments import is_dledger
from rmqtx.readers.store.store import ROCKSDB_HALF_TOPIC, Store, open_store
from rmqtx.repairs.changes.clones import copy_file, copy_tree
from rmqtx.repairs.changes.file_operations import UNFINISHED_SUFFIX
from rmqtx.repairs.changes.fingerprints import require_links_inside
from rmqtx.repairs.changes.new_stores import Progress, new_store, write_at
from rmqtx.repairs.rebuild.queues import QueueBuilder
from rmqtx.repairs.rebuild.rebuild import PARTS, DerivedBuilder, Rebuilt
from rmqtx.repairs.records.fillers import BLANK_BYTES, FILLER_BYTES_MIN, FillerModel, Lost, filled, filler, placeholder
from rmqtx.repairs.records.record_writer import blank_head
from rmqtx.repairs.records.store_sizes import StoreSizes, with_log_files_of
from rmqtx.repairs.salvage.choose_records import ChosenRecords, OpenSources, Piece, chosen_pieces
from rmqtx.repairs.salvage.queue_ends import discards_go_on, known_ends
from rmqtx.repairs.salvage.scan_for_records import FoundRuns, Run, SalvageSource, sources_of
from rmqtx.verdicts.verify.verify import Verify

#: Commit-log offset → a record for that place.
Maker = Callable[[int], bytes]
_COPIED_BYTES = 8 << 20
#: Ends from damaged blank records have only small common divisors. The length of a blank record has 31 bits, so no
#: segment is longer.
_SEGMENT_BYTES_MIN, _SEGMENT_BYTES_MAX = 4096, (1 << 31) - 1
_SCRATCH = "queues-being-counted"

#: What is copied as it is, because it names records by their offsets, or shows whose store it is.
_COPIED = (
    "abort", "epochFileCheckpoint", "epochFileCheckpoint.bak", "brokerIdentity", "timerlog", "timerwheel", "compaction",
)
#: What the lines about the salvage report already: fillers count as damage, and a missing config/ has a note.
_TOLD = frozenset({"record-damaged", "config-missing"})


@dataclass(slots=True)
class Salvaged:
    """The result of a salvage.

    Shape: `lost_bytes`: between records of the new log; `lost_numbers_count`: queue offsets without a record;
           `placeholders_count`: those of them that a placeholder has. `has_state_table`: state table and redo log
           of 3.0 and 3.1 were copied; `lacks_rocksdb`: there was a half topic of transactions in RocksDB, and its
           database is not copied; `is_of_killed`: its broker was killed; `lacks_timers`: the
           configuration has the place of the timer, and the messages in its wheel are not copied.
    Units: `segment_bytes`: length of the new log's files.
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
    placeholders_count: int = 0
    has_state_table: bool = False
    lacks_rocksdb: bool = False
    is_of_killed: bool = False
    lacks_timers: bool = False


@dataclass(slots=True)
class _ReadFiles:
    """The records in the given files. `borders`: ends of segments that blank records show, as commit-log offsets."""

    runs: list[Run] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    borders: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _LogHole:
    """A range of the log without records, within one segment. `ends_segment`: no record follows it in the segment."""

    begin: int
    end: int
    store_time_ms: int
    ends_segment: bool


def salvage(
    paths: list[Path], target: Path, sizes: StoreSizes, *, config: Path | None = None, with_tags: bool = False,
    old_store: Store | None = None, progress: Progress | None = None,
) -> Salvaged:
    """Make a store at `target` with all records that are found in files, devices and directories, and verify it.

    `config`: a broker's directory config/, copied. `old_store`: the damaged store, whose queues show their ends; its
    state table and redo log (3.0, 3.1) are copied, and its `abort`, timers, and identity at a controller.
    The length of the log's files is taken from blank records if `sizes` has a guess, and there are any.
    Raises: BadRequest, NotAStore if no record is found, UnreadableFile, FileChanged, UnwritableFile.
    """
    _refuse(paths, target, config)
    if old_store is not None:
        require_links_inside(old_store.root)
    sources = sources_of(paths)
    read = _read(sources, progress)
    if sizes.is_log_file_guessed:
        sizes = with_log_files_of(sizes, _segment_bytes(read.borders, sources))
    files = OpenSources(sources)
    try:
        chosen = chosen_pieces(read.runs, files, sizes.log_file_bytes)
        if not chosen.pieces:
            raise NotAStore("the given files contain no record", advice="give files of a broker's commit log")
        findings = [*read.findings, *chosen.findings]
        result = Salvaged(chosen, read.coverage, findings, segment_bytes=sizes.log_file_bytes)
        with new_store(target) as root:
            if config is not None:
                copy_tree(config, root / "config")
            if old_store is not None:
                _copy_tables(old_store, root, result)
                _copy_marks(old_store, root, result)
            result.lacks_timers = (root / "config" / "timercheck").exists() and not (root / "timerlog").exists()
            _write_log(root, files, result, sizes, old_store)
            _derive(root, result, sizes, old_store, with_tags=with_tags)
            result.findings.extend(verified(root, target, result.findings))
    finally:
        files.close()
    return result


def _read(sources: list[SalvageSource], progress: Progress | None) -> _ReadFiles:
    """Find the records in all files. `progress` receives bytes."""
    read = _ReadFiles()
    total, done = sum(source.size_bytes for source in sources), 0
    for number, source in enumerate(sources):
        scan = FoundRuns(number, source)
        for run in scan:
            read.runs.append(run)
            if progress is not None:
                progress(done + run.position_bytes + run.length_bytes, total)
        done += source.size_bytes
        read.coverage.append(scan.coverage)
        read.findings.extend(scan.findings)
        read.borders |= scan.borders
    return read


def _segment_bytes(borders: set[int], sources: list[SalvageSource]) -> int | None:
    """Return the length of segments that matches the ends in blank records; None if no plausible length matches.

    A complete single file is as long as a segment: a smaller divisor of the ends is not the length then.
    """
    border = math.gcd(*borders)
    lengths = [source.size_bytes for source in sources if source.size_bytes and border % source.size_bytes == 0]
    length = min((one for one in lengths if one >= _SEGMENT_BYTES_MIN), default=border)
    return length if _SEGMENT_BYTES_MIN <= length <= _SEGMENT_BYTES_MAX else None


def _refuse(paths: list[Path], target: Path, config: Path | None) -> None:
    place = target.resolve()
    for path in [*paths, *([] if config is None else [config])]:
        if path.is_dir() and place.is_relative_to(path.resolve()):
            raise BadRequest(f"{target} is inside {path}, which is read", advice="give a directory elsewhere: --to DIR")
        directories = (path.resolve(), path.resolve().parent, path.resolve() / "data")
        if any(is_dledger(str(directory)) for directory in directories) or any(path.glob("dledger-*/data")):
            raise BadRequest(
                f"cannot salvage {path}: it is a DLedger log, and its broker cannot read records without their entries",
                advice="start the member with an empty store: it copies the log from the other members of its group",
            )
    if config is not None and not config.is_dir():
        raise BadRequest(f"{config} is not a directory", advice="give the broker's directory config/")


def _copy_tables(old_store: Store, root: Path, result: Salvaged) -> None:
    """Copy state table and redo log as they are: their entries name records by offsets, which the new log keeps.

    The database of transactions in RocksDB must not be copied beside another log: a broker does not add halves before
    the largest offset in the database.
    """
    result.has_state_table = has_tables(old_store)
    if result.has_state_table:
        old = Path(old_store.root)
        copy_tree(old / "transaction", root / "transaction", root=old)
    result.lacks_rocksdb = old_store.has("consumequeue", ROCKSDB_HALF_TOPIC) and old_store.has("rocksdbstore")


def _copy_marks(old_store: Store, root: Path, result: Salvaged) -> None:
    """Copy what shows how the broker stopped and which controller manages it, and the messages that wait for a time.

    What was in the memory of a killed broker is not in the new store either; an act on the store of a controller's
    replica is refused; and the timer does not read again what it has taken into its wheel.
    """
    old = Path(old_store.root)
    for name in _COPIED:
        place = old / name
        if place.is_dir():
            copy_tree(place, root / name, root=old)
        elif place.is_file() and not place.is_symlink():
            copy_file(place, root / name, place.stat())
    result.is_of_killed = old_store.was_killed


# --- the log ----------------------------------------------------------------------------------------------------------


def _write_log(
    root: Path, files: OpenSources, result: Salvaged, sizes: StoreSizes, old_store: Store | None
) -> None:
    """Write the pieces at their offsets, then the fillers in the holes between them, and after the last piece."""
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
        result.placeholders_count += _fill(log, hole, wanted[hole.begin], size)
    near = FillerModel(pieces[-1].last_time_ms)
    makers: list[Maker] = [partial(placeholder, lost=one, near=near) for one in behind]
    if not makers and discards_go_on(old_store, result.end_offset):
        makers = [partial(filler, length_bytes=FILLER_BYTES_MIN, near=near)]  # marks the loss for readers
    result.end_offset = _append(log, result.end_offset, makers, size)
    result.placeholders_count += len(behind)
    result.segments_count = (result.end_offset - 1) // size - first + 1


def _append(log: Path, end: int, makers: list[Maker], size: int) -> int:
    """Append records, and return the new end of the log."""
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
    """The holes between the pieces, split at segment ends; the log begins with the first piece's segment.

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
    """Number of lost bytes in the holes, without the blanks with which brokers close files.

    A broker closes a file if the next record does not fit, so the rest of a file is a blank if it is too short for the
    first record of the next file. If that record was not found, the rest counts as lost too.
    """
    by_offset = {piece.offset: piece for piece in pieces}
    lost = 0
    for hole in holes:
        following = by_offset.get(hole.end) if hole.ends_segment else None
        if following is not None:
            length = number_at(files.read(following.source, following.position_bytes, HEAD_BYTES), "length_bytes")
            if hole.end - hole.begin < length + BLANK_BYTES:
                continue
        lost += hole.end - hole.begin
    return lost


def _fill(log: Path, hole: _LogHole, wanted: list[Lost], size: int) -> int:
    """Fill a hole, and return the number of lost queue offsets that placeholders in it have.

    The rest of a segment ends with a blank record; a segment without any record begins with a filler, because brokers
    read the first record of a segment to choose where recovery starts (docs/formats/recovery.md#crash).
    """
    near = FillerModel(hole.store_time_ms)
    base = hole.begin - hole.begin % size
    path = log / f"{base:020d}"
    end = hole.end
    if hole.ends_segment:
        end = hole.begin
        for lost in wanted:
            length = len(placeholder(0, lost, near))
            if end + length + BLANK_BYTES > hole.end:
                break
            end += length
        if end == base:
            end += FILLER_BYTES_MIN
    placed_count = 0
    for offset, record, number in filled(hole.begin, end, wanted, near) if end > hole.begin else ():
        write_at(path, size, offset - base, record)
        placed_count += number is not None
    if hole.ends_segment:
        write_at(path, size, end - base, blank_head(hole.end - end))
    return placed_count


# --- lost numbers -----------------------------------------------------------------------------------------------------


def _lost_numbers(
    root: Path, sizes: StoreSizes, holes: list[_LogHole], result: Salvaged, old_store: Store | None
) -> tuple[dict[int, list[Lost]], list[Lost]]:
    """Return the lost queue offsets that need placeholders, by their hole's begin, and those after all records.

    A queue offset was lost in a hole between the records with its neighbours. Most queues need no placeholder: a broker
    skips an entry before the log's begin (docs/formats/consume_queues.md#slot). But the check reads halves one by one
    and would use the next half in a lost one's place; and in a log that begins at 0 no offset is before its begin.
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
        # a queue with one record may exist only by a damaged header
        if queue.first and queue.slots_count > 1 and result.begin_offset < sizes.log_file_bytes:
            ranges.insert(0, (0, queue.first, -1, queue.first_offset))
        result.lost_numbers_count += sum(high - low for low, high, _, _ in ranges)
        for low, high, before, after in ranges if not queue.is_batch else ():
            lost = [Lost(name[1], name[2], number) for number in range(low, min(high, low + _PLACEHOLDERS_MAX))]
            if lost[0].is_own_topic or after < sizes.log_file_bytes:
                _distribute(lost, [hole for hole in holes if before < hole.begin < after], wanted, room)
    target = as_text(root).removesuffix(UNFINISHED_SUFFIX)
    result.findings.extend(replace(finding, store=target) for finding in builder.findings)
    shutil.rmtree(scratch, ignore_errors=True)
    behind = _lost_behind(builder, known_ends(store, old_store))
    result.lost_numbers_count += len(behind)
    return wanted, behind


def _lost_behind(builder: QueueBuilder, ends: dict[tuple[bytes, int], int]) -> list[Lost]:
    """Queue offsets that were used and whose records are lost at the log's end; of very many only the last one.

    Also for a queue without any record, so that its next record gets the following queue offset.
    """
    lost: list[Lost] = []
    for (topic, queue_id), end in sorted(ends.items()):
        queue = builder.queues.get((SIMPLE, topic, queue_id))
        first = end - 1 if queue is None else queue.end
        if end - first > _BEHIND_MAX:
            first = end - 1
        lost += [Lost(topic, queue_id, number) for number in range(first, end)]
    return lost


#: Most placeholders for one range of lost queue offsets; each is a record.
_PLACEHOLDERS_MAX = 1 << 20
_BEHIND_MAX = 1 << 16


def _distribute(lost: list[Lost], holes: list[_LogHole], wanted: dict[int, list[Lost]], room: dict[int, int]) -> None:
    """Assign lost queue offsets, in their order, to the first holes that have room."""
    rest = list(reversed(lost))
    for hole in holes:
        while rest:
            length = len(placeholder(0, rest[-1], FillerModel(0)))
            spare = BLANK_BYTES if hole.ends_segment else 0
            if length + spare > room[hole.begin]:
                break
            room[hole.begin] -= length
            wanted[hole.begin].append(rest.pop())


# --- derived files ----------------------------------------------------------------------------------------------------


def _derive(root: Path, result: Salvaged, sizes: StoreSizes, old_store: Store | None, *, with_tags: bool) -> None:
    """Build queues, index and checkpoint of the new log, including placeholders, which are records for brokers."""
    store: Store = open_store(root)
    builder = DerivedBuilder(frozenset(PARTS), store, root, sizes, with_tags, made_from=old_store)
    for block in scan_segments(store, [], [], with_fillers=True):
        builder.add(block)
    result.made = builder.finish()


def verified(root: Path, target: Path, known: list[Finding]) -> list[Finding]:
    """Return the errors and warnings of `rmqtx verify` about a new store, with the names that it gets.

    `root`: where it was built; `target`: its later place; `known`: findings that need not be repeated.
    Order: as those of a verification.
    Raises: UnreadableFile, FileChanged.
    """
    reading = run_job(Verify(), plan_splits([open_store(root)]))
    rows = reading.table().to_pylist()
    places = {(one.code, one.commit_log_offset) for one in known if one.commit_log_offset is not None}
    built, name = as_text(root), as_text(target)

    def renamed(text: str | None) -> str | None:
        return None if text is None else text.replace(built, name)

    found = [*reading.findings, *(replace(Finding.of(row), advice=None) for row in rows)]
    return [
        replace(
            one, store=name, file=renamed(one.file), expected=renamed(one.expected), actual=renamed(one.actual),
            meaning=renamed(one.meaning),
        )
        for one in dict.fromkeys(found)
        if one.kind.severity is not Severity.NOTE
        and one.code not in _TOLD
        and (one.code, one.commit_log_offset) not in places
    ]



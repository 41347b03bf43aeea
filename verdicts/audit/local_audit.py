"""Runs the audit over stores on this machine: in this process for small stores, in one per core for large ones.

Memory is bounded for any length of the log: witnesses are written to files by transaction (`spool.py`), and judged
partition by partition. The rules are in `judge.py`; the fast path uses the same function.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rmqtx.readers.jobs.job_runner import shown_to
from rmqtx.readers.jobs.spool import Spool, taken_batches
from rmqtx.readers.jobs.workers import ONE_PROCESS_BYTES_MAX, Progress, Workers, show_phase
from rmqtx.readers.log.commit_log import log_bytes
from rmqtx.readers.log.kernels import ACCELERATED_BYTES_MIN, is_accelerator_installed, use_accelerator
from rmqtx.readers.log.splits import BY_ENGINE, SPLIT_BYTES, Split, SplitPlan, WorkDivision, plan_splits
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.identities import identities, identity_hashes, partition_of
from rmqtx.readers.model.reading import Note, NoteKind
from rmqtx.readers.model.tables import MARKS, TRANSACTIONS
from rmqtx.readers.storage.temporary import RunFolder
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.log_copies import NEEDED_OF_SHARED, with_log_copies
from rmqtx.verdicts.audit.mark_partitions import HalfPlaces, spread_marks, store_marks
from rmqtx.verdicts.causes.judging import Judging, report_begun, report_concluded
from rmqtx.verdicts.evidence.store_conclusion import Conclusion, conclude, without_stale
from rmqtx.verdicts.evidence.store_facts import SettingsOf, StoreFacts, facts_of
from rmqtx.verdicts.evidence.witness_scan import IDENTIFIED, SplitFacts, scan_witnesses
from rmqtx.verdicts.model.group_habits import Habits
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.witnesses import Witnesses, tied_groups
from rmqtx.verdicts.transactions.judge import chosen_schema

#: Log bytes whose transactions are judged at once.
PARTITION_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Scan:
    """How splits are scanned, and where their witnesses are written."""

    partitions_count: int
    directory: Path | None
    past_ms: Mapping[str, int | None]
    is_accelerated: bool


@dataclass(slots=True)
class _SetAside:
    """The facts of one split, its witnesses by partition, and the partitions of its halves."""

    scanned: SplitFacts
    spool: Spool
    places: HalfPlaces

    @property
    def stem(self) -> str:
        """The stem of the split's file names."""
        return f"{self.scanned.split.number:08d}"


def _scan_split(scan: _Scan, split: Split) -> _SetAside:
    """Scan one split and write its witnesses to files."""
    use_accelerator(scan.is_accelerated)
    found = scan_witnesses(split, scan.past_ms[split.store.root])
    spool = Spool(scan.partitions_count, scan.directory)
    numbers = {name: partition_of(found.hashes[name], scan.partitions_count) for name in IDENTIFIED}
    result = _SetAside(found.facts, spool, HalfPlaces.of(found.halves, numbers["halves"]))
    for name in IDENTIFIED:
        rows = getattr(found, name)
        if rows:
            spool.add(name, rows, numbers[name], result.stem)
    if found.marks:
        store_marks(spool, found.marks, result.places, result.stem)
    return result


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Partitions to judge together: one, or several that are tied by a final with another id than its copy."""

    spool: Spool
    numbers: tuple[int, ...]
    judging: Judging

    def witnesses(self) -> Witnesses:
        """Return their witnesses, in log order."""
        halves, marks, finals, discards, offset_marks = (
            [batch for number in self.numbers for batch in self.spool.part(name, number)]
            for name in ("halves", "marks", "finals", "discards", "offset_marks")
        )
        if len(self.numbers) > 1:  # a mark that names halves in two partitions is in both
            table = pa.Table.from_batches(marks, MARKS)
            marks = table.group_by(MARKS.names, use_threads=False).aggregate([]).cast(MARKS).to_batches()
        return Witnesses.of(halves, marks, finals, discards, offset_marks)


def _judge_partition(task: _Verdict) -> tuple[list[pa.RecordBatch], Habits, list[Finding]]:
    """Return the verdicts, what producer groups have in common, and what could not be read of traces."""
    judging = task.judging
    rows = judging.judged(task.witnesses())
    found, habits = judging.with_causes_and_habits(rows)
    return found.combine_chunks().to_batches(), habits, judging.unread_traces


def _judge_somewhere(task: _Verdict) -> tuple[Path | list[pa.RecordBatch], Habits, list[Finding]]:
    """Return the verdicts, from another process as a file."""
    import multiprocessing

    batches, habits, unread = _judge_partition(task)
    if multiprocessing.parent_process() is None:
        return batches, habits, unread
    assert task.spool.directory is not None
    path = task.spool.directory / f"verdicts-{task.numbers[0]}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, chosen_schema(task.judging.columns)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path, habits, unread


def audit(
    stores: list[Store], settings_of: SettingsOf, *, at_ms: int | None = None, processes: int | None = None,
    work: WorkDivision = BY_ENGINE, progress: Progress | None = None, columns: Collection[str] = TRANSACTIONS.names,
) -> VerdictReading:
    """Return the verdict on every transaction of the stores as one audit: copies and decisions join across stores.

    Shape:  batches of TRANSACTIONS, with the given columns only, in the order of the table; and of MEASURES, if given.
            `processes`: the maximum; None is one per core, and one for small stores.
    Order:  of the first witness, within a partition; a store below ONE_PROCESS_BYTES_MAX is one partition.
    Damage: findings; transactions that damage makes unknowable are UNDECIDABLE.
    Raises: SourceError if nothing can be read.
    """
    schema = chosen_schema(columns)
    reading = VerdictReading(schema, [])
    plan = plan_splits(stores, split_bytes=work.split_bytes or SPLIT_BYTES)
    begun = functools.partial(facts_of, stores, settings_of, at_ms=at_ms)
    # The schema is passed on: a caller can set another one in the reading before the batches are made.
    batches = _audit(reading, schema, plan, begun, _How(processes, work.temporary_directory, progress))
    reading.batches = with_log_copies(batches, stores, reading, columns=schema.names)
    return reading


def audit_of(
    facts: dict[str, StoreFacts], columns: Collection[str], progress: Progress | None = None, *,
    processes: int | None = None, with_copies: bool = True,
) -> VerdictReading:
    """Return what `audit` returns, by facts that were read already (`facts_of`).

    `with_copies`: with the findings about copies of one log.
    """
    stores = [one.store for one in facts.values()]
    schema = chosen_schema(columns)
    reading = VerdictReading(schema, [])
    how = _How(processes, progress=progress)
    batches = _audit(reading, schema, plan_splits(stores), lambda: dict(facts), how)
    reading.batches = with_log_copies(batches, stores if with_copies else (), reading, columns=schema.names)
    return reading


@dataclass(frozen=True, slots=True)
class _How:
    processes: int | None = None
    temporary_directory: str | None = None
    progress: Progress | None = None


def _audit(
    reading: VerdictReading, schema: pa.Schema, plan: SplitPlan, begun: Callable[[], dict[str, StoreFacts]], how: _How
) -> Iterator[pa.RecordBatch]:
    stores = plan.stores
    facts = begun()
    report_begun(reading, facts.values())
    total = sum(log_bytes(store.commit_log) for store in stores)
    workers = how.processes or os.cpu_count() or 1
    is_small = total <= ONE_PROCESS_BYTES_MAX
    fast = total >= ACCELERATED_BYTES_MIN * workers and is_accelerator_installed()
    reading.notes.append(Note(NoteKind.HOW, f"scanned by {'the accelerator' if fast else 'the reference path'}"))
    with nullcontext() if is_small else RunFolder(directory=how.temporary_directory) as name:
        directory = None if name is None else Path(name)
        count = 1 if is_small else max(2, -(-total // PARTITION_BYTES))
        past = {root: one.past_ms for root, one in facts.items()}
        scan = functools.partial(_scan_split, _Scan(count, directory, past, fast))
        with Workers(1 if is_small else workers) as pool:
            spool = Spool(count, directory)
            parts = _set_aside(pool.run(scan, plan), plan, how.progress)
            for part in parts:
                spool.merge(part.spool)
            ties = _concluded(reading, facts, parts, spool)
            judging = Judging.of(facts, schema.names)
            if any(view.log is not None for view in judging.views.values()):
                judging = replace(judging, columns=tuple(chosen_schema({*schema.names, *NEEDED_OF_SHARED}).names))
            reading.missing.extend(one for view in judging.views.values() for one in view.missing)
            judging.report(reading)
            tasks = [_Verdict(spool, numbers, judging) for numbers in tied_partitions(ties, count)]
            if directory is None:
                batches, habits, _ = _judge_partition(tasks[0])
                reading.habits.update(habits)
                reading.add_trace_findings()
                yield from batches
            else:
                for number, (judged, habits, unread) in enumerate(pool.run(_judge_somewhere, tasks)):
                    reading.habits.update(habits)
                    reading.add_findings(unread)
                    show_phase(how.progress, "judging", number + 1, len(tasks))
                    yield from taken_batches(judged) if isinstance(judged, Path) else judged
                    del judged  # its memory is free while the next rows are made


def _concluded(
    reading: VerdictReading, facts: dict[str, StoreFacts], parts: list[_SetAside], spool: Spool
) -> list[tuple[str, str]]:
    """Conclude each store from its splits, and replace its facts; return pairs of identities to judge together."""
    ties: list[tuple[str, str]] = []
    for root in facts:
        mine = [part for part in parts if part.scanned.split.store.root == root]
        conclusion = conclude(facts[root], [part.scanned for part in mine])
        report_concluded(reading, conclusion)
        facts[root] = conclusion.facts
        ties.extend(conclusion.ties)
        damaged = _damaged_halves(conclusion, mine[0].stem, spool) if mine else []
        places = HalfPlaces.joined([*(part.places for part in mine), *damaged])
        spread_marks(spool, [(part.spool, part.stem) for part in mine], places)
    return ties


def _set_aside(found: Iterable[_SetAside], plan: SplitPlan, progress: Progress | None) -> list[_SetAside]:
    """Collect the results of all splits, except those with records that a recovery cut off; reports progress."""
    parts: list[_SetAside] = []
    with shown_to(progress, plan) as read:
        for part in found:
            parts.append(part)
            if read is not None:
                read.ended(part.scanned.split)
    kept = {id(part) for part in without_stale([part.scanned for part in parts])}
    return [part for part in parts if id(part.scanned) in kept]


def tied_partitions(ties: list[tuple[str, str]], partitions_count: int) -> list[tuple[int, ...]]:
    """Return the groups of partitions that are judged together: a chain of ties connects them; most are alone.

    Order: of the lowest number.
    """
    pairs = [tuple(partition_of(identity_hashes(pa.array(pair)), partitions_count).tolist()) for pair in ties]
    groups = tied_groups((one, other) for one, other in pairs)
    whole = [groups.get(number, frozenset((number,))) for number in range(partitions_count)]
    return [tuple(sorted(numbers)) for numbers in dict.fromkeys(whole)]


def _damaged_halves(conclusion: Conclusion, file_stem: str, spool: Spool) -> list[HalfPlaces]:
    """Add the damaged half copies of a store to the others; return their places."""
    rows = conclusion.damaged_halves
    if not rows:
        return []
    hashes = np.concatenate([identity_hashes(identities(row)) for row in rows])
    numbers = partition_of(hashes, spool.partitions_count)
    spool.add("halves", rows, numbers, f"{file_stem}-damaged")
    return [HalfPlaces.of(rows, numbers)]

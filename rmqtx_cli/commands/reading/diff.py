"""`rmqtx diff`: transactions that differ between two audits."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtx.readers.log.record_at import first_record_of
from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, NotAStore
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.storage.places import identity_of, normalised
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.log_copies import lacking_finding, log_copies
from rmqtx.verdicts.evidence.same_log import logs_of, uncompared_logs
from rmqtx.verdicts.model.verdict_words import State
from rmqtx.verdicts.transactions.diff import DIFFERENCES, differences, read_verdicts, verdict_file
from rmqtx_cli.commands.declared.data import DiffCommand, SidesOptions
from rmqtx_cli.options.options import OutputFormat, StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import DIFFERENCES_VIEW
from rmqtx_cli.sources.engine_port import StoreEngine
from rmqtx_cli.sources.engine_run import EngineRun, engine_run
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_header
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Formats of `audit -o` that only people and other programs read.
_OTHER_FORMATS = (".csv", ".jsonl", ".json")


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of the comparison: a store as of a time, or a file written by audit."""

    place: str
    at_ms: int | None = None

    @property
    def file(self) -> Path | None:
        """The file, if it is one."""
        return verdict_file(self.place)


#: Differences that are held until a common transaction is seen.
_WAITING_ROWS_MAX = 200_000


def run(options: DiffCommand) -> int:
    """Run the command; return its exit status."""
    named = _named(options.asked, options.voice)
    listing = Listing(
        DIFFERENCES, DIFFERENCES_VIEW, options.output, options.where, options.fail_on, options.limit, options.voice,
        options.provenance.with_meta,
    )
    paths = list(dict.fromkeys(side.place for side in named if side.file is None))
    try:
        opened = open_stores(paths, StoreOptions(None, options.broker_conf, options.broker_version))
    except NotAStore as error:
        raise _with_usable_advice(error) from error
    files = tuple(side.file for side in named if side.file is not None)
    refuse_inside(options.output.output, opened.stores)
    say_header(opened, options.voice)
    with engine_run(
        options.context, "comparing", opened.stores, listing, options.engine, options.provenance, inputs=files
    ) as run:
        comparison = _DiffRun(run, opened, named, listing)
        reading, is_withheld = comparison.written()
    status = listing.conclude(reading, has_undecidable=comparison.counted.undecidable_count > 0)
    has_some = is_withheld or listing.rows_count > 0
    return exit_status.FINDINGS if options.exit_code and has_some and status == exit_status.DONE else status


def _named(asked: SidesOptions, voice: Voice) -> tuple[_Side, _Side]:
    """Return the two sides. Raises: BadRequest."""
    places = asked.sides
    for place in places:
        if place.lower().endswith(_OTHER_FORMATS) and Path(place).is_file():
            raise BadRequest(
                f"{place}: a result of audit in this format is not read",
                advice="rmqtx audit STORE -o FILE.parquet (or .arrow), and give that file",
            )
    if len(places) == 1:
        if asked.at is None:
            raise BadRequest(
                "only one side was given", advice="give a second one, or --at TIME and, if not now, --and-at TIME"
            )
        at_ms = asked_time_ms("--at", asked.at, voice, is_of_state=True)
        and_at_ms = asked_time_ms("--and-at", asked.and_at, voice, is_of_state=True)
        sides = _Side(places[0], at_ms), _Side(places[0], and_at_ms)
        if sides[0].file is not None:
            raise BadRequest(f"{places[0]} is the result of one audit: --at needs a store")
        return sides
    if len(places) != 2:
        raise BadRequest(f"{len(places)} sides given, expected 2")
    if asked.at is not None or asked.and_at is not None:
        raise BadRequest("--at and --and-at compare two times of one store, and two sides are given")
    return _Side(places[0]), _Side(places[1])


def _with_usable_advice(error: NotAStore) -> NotAStore:
    """The error with a way that works here: an audit takes --commitlog, a comparison does not."""
    option = (error.advice or "").removeprefix("add ")
    if error.file is None or option == error.advice or not option.startswith("--commitlog"):
        return error
    advice = f"compare its audit: rmqtx audit {quoted(error.file)} {option} -o FILE.parquet, then give FILE.parquet"
    return NotAStore(error.message, file=error.file, advice=advice)


def _say_unrelated(sides: tuple[_Side, _Side], *, is_withheld: bool, voice: Voice) -> None:
    """Print that the sides have no transaction in common, and whether one broker wrote their logs."""
    before, after = sides
    voice.note(f"{before.place} and {after.place} have no transaction in common: are they from the same broker?")
    if before.file is None and after.file is None and before.place != after.place:
        is_same = first_record_of(before.place) == first_record_of(after.place)
        how = "with the same record: one broker wrote both, at distant times" if is_same else "with different records"
        stores = [open_store(side.place) for side in sides]
        if not is_same and any(uncompared_logs(stores, logs_of(stores)).values()):
            voice.note("their logs have no part in common: whether one broker wrote both is unknown; a store that has "
                       "parts of both shows it")
        else:
            voice.note(f"their logs begin {how}")
    if is_withheld:
        voice.note("every transaction of both is a difference, none is listed; to list them: --format csv")


def _differing() -> Differing:
    return Differing()


@dataclass(frozen=True, slots=True)
class _DiffRun:
    """One comparison, by either engine."""

    run: EngineRun
    opened: Opened
    sides: tuple[_Side, _Side]
    listing: Listing
    counted: Differing = field(default_factory=_differing)

    def written(self) -> tuple[Reading, bool]:
        """Write the differences; returns their reading, and whether rows were withheld.

        A table without any choice of rows is withheld where the sides have no transaction in common.
        """
        listing, counted = self.listing, self.counted
        asked = listing.asked
        is_chosen = any((asked.output, listing.where, listing.fail_on, asked.fields, listing.limit))
        reading = self.run.engine.compared(self)
        rows = counted.begun(reading)
        is_withheld = counted.is_unrelated and listing.format is OutputFormat.TABLE and not is_chosen
        if counted.is_unrelated:
            _say_unrelated(self.sides, is_withheld=is_withheld, voice=listing.voice)
        if is_withheld:
            listing.voice.note(counted.line())
        else:
            listing.write(rows, to_the_end=True, answer=counted.lines)
            listing.say_limit("difference")
        # That copies of a log differ is part of the answer, and no reason to doubt it: it does not change the status.
        for group in log_copies(self.opened.stores):
            if group.note is not None:
                listing.voice.note(group.note)
            lacking = zip([self._store(side).root for side in self.sides], counted.lacking, strict=True)
            listing.voice.findings([
                *group.findings(), *(lacking_finding(group, root, number) for root, number in lacking if number),
            ])
        return reading, is_withheld

    def here(self, engine: StoreEngine) -> Reading:
        """See `StoreComparison`: rows of DIFFERENCES."""
        whole = Reading(DIFFERENCES, [])
        before, after = (self._verdicts(engine, number, whole) for number in range(2))
        whole.batches = differences(before, after, temporary_directory=engine.options.temporary_directory)
        return whole

    def _verdicts(self, engine: StoreEngine, number: int, whole: Reading) -> Iterator[pa.RecordBatch]:
        for batch in self._verdicts_of(engine, self.sides[number], whole):
            self.counted.sizes[number] += batch.num_rows
            yield batch

    def _verdicts_of(self, engine: StoreEngine, side: _Side, whole: Reading) -> Iterator[pa.RecordBatch]:
        if side.file is not None:
            yield from read_verdicts(side.file)
            return
        reading = engine.audit(
            [self._store(side)], self.opened.settings_of, at_ms=side.at_ms, progress=self.run.progress
        )
        yield from reading
        whole.findings.extend(finding for finding in reading.findings if finding not in whole.findings)
        whole.notes.extend(reading.notes)

    def _store(self, side: _Side) -> Store:
        """Return the store of a side; opened once, even if both sides are the same store."""
        wanted = identity_of(normalised(side.place))
        return next(store for store in self.opened.stores if identity_of(store.root) == wanted)

    def by_spark(self, engine: StoreEngine, spark: SparkSession) -> Reading:
        """See `StoreComparison`; a side that is a file is compared on this machine."""
        if any(side.file is not None for side in self.sides):
            return self.here(engine)
        from rmqtx.spark_tasks.jobs.diff import differences as differences_by_spark  # PySpark

        before, after = (([self._store(side)], side.at_ms) for side in self.sides)
        return differences_by_spark(
            spark, before, after, self.opened.settings_of,
            split_bytes=engine.split_bytes_for(self.opened.stores), sizes=self.counted.sizes,
        )


@dataclass(slots=True)
class Differing:
    """Counts of differences as they pass: by kind, and those with the state UNDECIDABLE on one side.

    `sizes`: transactions of each side; complete when all differences are read. `lacking`: pending transactions of the
    other side that each one does not have.
    """

    changes: Counter[str] = field(default_factory=Counter)
    undecidable_count: int = 0
    sizes: list[int] = field(default_factory=lambda: [0, 0])
    lacking: list[int] = field(default_factory=lambda: [0, 0])

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self.changes.update(batch["change"].to_pylist())
            states = list(zip(batch["state_before"].to_pylist(), batch["state_after"].to_pylist(), strict=True))
            self.undecidable_count += sum(State.UNDECIDABLE in pair for pair in states)
            self.lacking[0] += states.count((None, State.PENDING))
            self.lacking[1] += states.count((State.PENDING, None))
            yield batch

    def begun(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, read ahead until a common transaction is seen, the end, or a maximum number of rows."""
        passing = self.watching(batches)
        waiting, rows_count = [], 0
        for batch in passing:
            waiting.append(batch)
            rows_count += batch.num_rows
            if self.changes["changed"] or rows_count > _WAITING_ROWS_MAX:
                break
        return itertools.chain(waiting, passing)

    @property
    def is_unrelated(self) -> bool:
        """Whether both sides have transactions, but none in common."""
        return all(self.sizes) and [self.changes["vanished"], self.changes["appeared"]] == self.sizes

    def line(self) -> str:
        """The number of differences, in all and of each kind."""
        kinds = ", ".join(f"{number} {change}" for change, number in sorted(self.changes.items()))
        return f"{count(self.changes.total(), 'difference')}: {kinds}"

    def lines(self) -> Iterator[str]:
        """The line above a list of differences; none without differences."""
        if self.changes:
            yield self.line()

"""`rmqtx simulate`: predict the broker's next checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from rmqtx.readers.cursors import CheckCursors
from rmqtx.readers.model import clock
from rmqtx.readers.model.reading import Reading
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.simulated import ROUNDS, changed_settings, configurations_of, cursors_of, simulated_store
from rmqtx.verdicts.check.check_rules import Round
from rmqtx.verdicts.check.timers_without_copies import AskingRound
from rmqtx.verdicts.evidence.store_facts import known_until_ms, past_ms
from rmqtx.verdicts.model.predicted import ROUNDS_MAX
from rmqtx.verdicts.simulation.simulation import Simulated, SimulatedCheck
from rmqtx.verdicts.simulation.simulation_tables import (
    SIMULATED_CHECKS,
    SIMULATED_ROUNDS,
    SIMULATED_TRANSACTIONS,
    check_rows,
    round_rows,
    transaction_rows,
)
from rmqtx_cli.commands.declared.survey import RunOptions, Shown, SimulateCommand
from rmqtx_cli.options.next_commands import next_lines
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import View
from rmqtx_cli.pages.headlines import check_lines
from rmqtx_cli.pages.simulation_views import (
    SimulationCounts,
    asking_line,
    checks_view,
    endless_line,
    ends_line,
    fates_view,
    round_line,
    rounds_view,
    stuck_line,
    table_name,
)
from rmqtx_cli.sources.opening import Opened, open_stores, refuse_inside, say_header
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.times import asked_time_ms, time_text

#: Sort order in which the rows of both configurations follow each other.
_SORT_ORDER = {
    Shown.CHECKS: ("design", "table_file", "queue_id", "round", "half_queue_offset"),
    Shown.ROUNDS: ("design", "table_file", "queue_id", "round"),
    Shown.TRANSACTIONS: ("design", "table_file", "queue_id", "half_queue_offset"),
}


def run(options: SimulateCommand) -> int:
    """Run the command; return its exit status."""
    asked_ms = asked_time_ms("--at", options.run.at, options.voice)
    now_ms = clock.now_ms() if asked_ms is None else asked_ms
    changed = changed_settings(options.run.changes or [])
    opened = open_stores(options.store, options.files)
    schema, view = _table(options.run.show, with_store=len(opened.stores) > 1, with_configuration=bool(changed))
    listing = Listing(schema, view, options.output, options.where, options.fail_on, options.limit, options.voice)
    refuse_inside(options.output.output, opened.stores)
    cursors = _cursors(opened, options.run)
    say_header(opened, options.voice)
    _say_begin(options.run, opened.stores, cursors, now_ms, options.voice)
    reading = Reading(schema, ())
    counted = SimulationCounts(
        reading.findings, has_half_queues=any(known is not None for known in cursors.values())
    )
    batches = _Simulation(
        options.run, options.files, changed, now_ms, reading, counted, options.voice
    ).batches(opened.stores, cursors)
    listing.write(counted.watching(batches), answer=counted.lines)
    for finding in reading.findings:
        if finding.advice is not None:
            for line in next_lines(finding.advice):
                options.voice.note(line)
    return listing.conclude(reading)


def _say_begin(
    run: RunOptions, stores: Sequence[Store], cursors: Mapping[str, CheckCursors | None], now_ms: int, voice: Voice
) -> None:
    if run.half_cursor is not None or run.op_cursor is not None:
        for root in (root for root, known in cursors.items() if known is None):
            voice.note(f"{root}: its check has no cursors, --half-cursor and --op-cursor have no effect")
    what = "a broker that does not run starts at"
    if len({store.in_use for store in stores}) == 1:
        what = "the clock is" if stores[0].in_use else "the broker starts at"
    voice.note(f"assumed: {what} {time_text(now_ms)}{'' if run.at else ' (now)'}, and no producer answers")
    for store in stores:
        if run.at and not store.in_use and now_ms < (end_ms := known_until_ms(store)):
            voice.note(
                f"{store.root}: the store ends at {time_text(end_ms)}, after --at: the rows include records that "
                "did not exist yet; rmqtx audit --at shows the states of that time"
            )


@dataclass(frozen=True, slots=True)
class _Simulation:
    """A simulation of several stores; findings are added to `reading` as stores are read."""

    run: RunOptions
    files: StoreOptions
    changed: dict[str, str]
    now_ms: int
    reading: Reading
    counted: SimulationCounts
    voice: Voice

    def batches(self, stores: list[Store], cursors: Mapping[str, CheckCursors | None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each store; with --with, those of both configurations following each other."""
        for one in stores:
            conf = {} if self.files.broker_conf is None else read_broker_conf(self.files.broker_conf)
            configurations = configurations_of(one, conf, self.files.broker_version, self.changed)
            own = cursors[one.root]
            simulated_here = simulated_store(one, configurations, own, self.now_ms)
            found, notes, stops = simulated_here.checks, simulated_here.notes, simulated_here.stops
            self.reading.findings += simulated_here.findings
            if not simulated_here.starts:
                self.voice.note(
                    f"{one.root}: the broker does not start on this store, so it checks nothing; the rounds are "
                    "those after a repair that changes no record"
                )
            if own is not None:
                # Where the records of the time of this clock are other ones, the next commands read all records.
                is_past = past_ms(one, self.now_ms, known_until_ms(one)) is not None
                notes += check_lines(stops, None, at_ms=None if is_past or self.run.at is None else self.now_ms)
            if one.in_use and any(stop.is_readable and not stop.lacks_room for stop in stops):
                notes.append(f"{one.root}: the running broker checks nothing; the rounds are those after its restart")
            for note in notes:
                self.voice.note(note)
            if not self.changed:
                for simulated in found:
                    yield from _rows(self.run, simulated, self.counted, self.voice, with_name=False)
                continue
            rows = [
                batch for simulated in found
                for batch in _rows(self.run, simulated, self.counted, self.voice, with_name=True)
            ]
            table = pa.Table.from_batches(rows, self.reading.schema)
            yield from table.sort_by([(name, "ascending") for name in _SORT_ORDER[self.run.show]]).to_batches()


def _cursors(opened: Opened, run: RunOptions) -> dict[str, CheckCursors | None]:
    """Return the cursors where the check of each store begins; None if its check has none. Raises: BadText."""
    return {
        one.root: cursors_of(one, opened.settings_of(one), run.half_cursor, run.op_cursor) for one in opened.stores
    }


def _table(show: Shown, *, with_store: bool, with_configuration: bool) -> tuple[pa.Schema, View]:
    schema, view = {
        Shown.CHECKS: (SIMULATED_CHECKS, checks_view),
        Shown.ROUNDS: (SIMULATED_ROUNDS, rounds_view),
        Shown.TRANSACTIONS: (SIMULATED_TRANSACTIONS, fates_view),
    }[show]
    return schema, view(with_store=with_store, with_configuration=with_configuration)


def _rows(
    run: RunOptions, simulated: SimulatedCheck, counted: SimulationCounts, voice: Voice, *, with_name: bool
) -> Iterator[pa.RecordBatch]:
    prefix = f"{simulated.configuration}: " if with_name else ""
    if not isinstance(simulated, Simulated):
        prefix += f"{table_name(simulated)}: "
    if run.show is Shown.TRANSACTIONS:
        rows = transaction_rows(simulated, ROUNDS_MAX if run.rounds is None else run.rounds)
        yield rows
        if not isinstance(simulated, Simulated) and simulated.settings is None:
            voice.note(prefix + endless_line(rows))
            return
        ends, times = rows["end"].to_pylist(), [one for one in rows["end_time_ms"].to_pylist() if one is not None]
        last = simulated.last if isinstance(simulated, Simulated) else None
        stuck = None if last is None else stuck_line(last)
        if stuck is not None:
            voice.note(prefix + stuck)
        if ends:  # else one line of the counts reports it
            voice.note(prefix + ends_line(ends, max(times, default=None), sum(rows["written_bytes"].to_pylist())))
        return
    played: list[Round | AskingRound] = []
    every: Iterator[Round | AskingRound] = simulated.rounds()
    for one in islice(every, run.rounds or ROUNDS):
        played.append(one)
        line = asking_line(len(played), one) if isinstance(one, AskingRound) else round_line(len(played), one)
        (voice.note if run.show is Shown.CHECKS else voice.detail)(prefix + line)
    counted.add_rounds(len(played))
    yield from check_rows(simulated, played) if run.show is Shown.CHECKS else [round_rows(simulated, played)]

"""`rmqtx verify`: whether a store is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from readers.model.errors import BadRequest
from readers.model.findings import KINDS
from rmqtx_cli.commands import Example
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    FailOnOption,
    LimitOption,
    OutputOptions,
    ProvenanceOptions,
    StoreArguments,
    StoreOptions,
    VoiceOptions,
    WhereOption,
)
from rmqtx_cli.sources.transaction_tables import DatabaseOptions
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import SEVERITIES
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    import pyarrow as pa

    from readers.old_tables.transaction_table import TransactionTable
    from readers.store.store import Store
    from verdicts.verify.verify import Verify

NAME = "verify"
SHORT = "whether a store is whole: log, queues, index, checkpoint, cursors"
EXAMPLES = (
    Example("rmqtx verify STORE", "every record, slot and index entry against each other"),
    Example("rmqtx verify STORE --quick", "headers and the ends of the derived files only"),
    Example("rmqtx verify STORE --where 'code ~ start-' --broker-version 5.3.3", "what a start would destroy"),
    Example("rmqtx verify STORE --where 'severity = error' --format jsonl", "what is lost, for a script"),
    Example("rmqtx verify STORE --max-duration 10m", "nightly from cron: all of a large store in some nights"),
    Example("rmqtx verify STORE --fail-on 'code = record-body-crc'", "only this is a failure"),
    Example("rmqtx verify s3://evidence/broker-a/store --engine spark", "many cores, nothing downloaded"),
)

QuickOption = Annotated[
    bool, typer.Option(
        "--quick",
        help="Headers and the ends of the derived files only: no cross-check and no body CRC (which may end a start).",
    ),
]
FullOption = Annotated[
    bool, typer.Option("--full", help="Also inflate compressed bodies and read every property.")
]
MaxDurationOption = Annotated[
    str | None,
    typer.Option(
        "--max-duration", metavar="DURATION",
        help="Begin no file of the log that would not be read within this time; those checked longest ago come first.",
    ),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE",
        help="Where a run with --max-duration keeps which file was checked when; else in $RMQTX_STATE_DIR or "
        "$XDG_STATE_HOME/rmqtx.",
    ),
]


@dataclass(frozen=True, slots=True)
class DepthOptions:
    """How much of a store is looked at."""

    quick: QuickOption = False
    full: FullOption = False
    max_duration: MaxDurationOption = None
    state: StateOption = None

    def check(self) -> None:
        """Refuse what contradicts itself.

        Raises: BadRequest.
        """
        if self.quick and self.full:
            raise BadRequest("--quick and --full are two depths: ask for one")
        if self.state is not None and self.max_duration is None:
            raise BadRequest("--state is for runs that end in time: give --max-duration too")

    @property
    def level(self) -> str:
        """The depth, as `Verify` takes it."""
        from verdicts.verify.verify import DEFAULT, FULL, QUICK

        return QUICK if self.quick else FULL if self.full else DEFAULT


@with_option_groups
def command(
    context: typer.Context,
    store: StoreArguments,
    *,
    depth: DepthOptions,
    where: WhereOption = None,
    limit: LimitOption = None,
    fail_on: FailOnOption = None,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    files: StoreOptions,
    voice: VoiceOptions,
    database: DatabaseOptions,
) -> int:
    """Verify the stores: the chain of records, CRCs, and log, queues, index, checkpoint and cursors against each other.

    Each row is something wrong, where, and what it means for transactions; also what the broker's next start would
    truncate, skip or delete, by the rules of its version (--broker-version, else what the store tells of it). Exits
    with 1 where any of it is an error or a warning, or with --fail-on where a row fulfils that; notes are no failure.
    """
    from readers.model.tables import FINDINGS
    from rmqtx_cli.monitoring.verify_state import within_budget
    from rmqtx_cli.output.accounting import accounting
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import VIEWS, View
    from rmqtx_cli.sources.engine_run import engine_run
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_consistency
    from verdicts.verify.verify import NOT_LOOKED_AT

    depth.check()
    _refuse_unfit(depth, files, database)
    engine = database.engine_of(engine)
    view = View(VIEWS["findings"].columns, "" if where is None else "no finding fulfils the condition")
    listing = Listing(FINDINGS, view, output, where, fail_on, limit, voice, provenance.with_meta)
    opened = open_stores(store, StoreOptions(files.commit_log))
    refuse_inside(output.output, opened.stores)
    state = _state_file(depth, opened.stores)
    say_consistency(opened.stores, voice)
    counted = _FindingCounts()
    with engine_run(context, "verifying", opened.stores, listing, engine, provenance) as run:
        job = _job(depth, files, database.read(opened.stores, run.engine))
        if depth.max_duration is None or state is None:
            reading = run.engine.run_job(job, opened.stores, progress=run.progress)
        else:
            reading = within_budget(job, opened.stores, run.engine, depth.max_duration, state, voice, run.progress)
        listing.write(
            counted.watching(reading), to_the_end=True,
            answer=lambda: counted.lines(NOT_LOOKED_AT[depth.level], is_partial=depth.max_duration is not None),
        )
    listing.say_limit("finding")
    if (amounts := accounting(reading)) is not None:
        voice.note(amounts)
    is_failure = listing.has_failed if fail_on is not None else counted.is_failure
    return exit_status.FINDINGS if is_failure else exit_status.DONE


def _refuse_unfit(depth: DepthOptions, files: StoreOptions, database: DatabaseOptions) -> None:
    """Refuse, before hours of reading, what cannot be.

    Raises: BadRequest.
    """
    from readers.model.releases import parse_version

    if files.broker_version is not None:
        parse_version(files.broker_version)
    if database.address is not None and (depth.quick or depth.max_duration is not None):
        advice = "leave out --quick and --max-duration"
        raise BadRequest("--transaction-table is compared with the whole log", advice=advice)


def _state_file(depth: DepthOptions, stores: list[Store]) -> Path | None:
    """Where a run that ends in time keeps what it has read; None for one that does not.

    Raises: BadRequest for a place inside a store.
    """
    from rmqtx_cli.monitoring.verify_state import state_file
    from rmqtx_cli.sources.opening import refuse_inside

    if depth.max_duration is None:
        return None
    state = depth.state or state_file(stores)
    refuse_inside(state, stores)
    return state


def _job(depth: DepthOptions, files: StoreOptions, table: TransactionTable | None) -> Verify:
    from readers.store.broker_conf import read_broker_conf
    from verdicts.verify.verify import Verify

    settings = tuple(sorted(read_broker_conf(files.broker_conf).items())) if files.broker_conf else ()
    return Verify(depth.level, files.broker_version, settings, table)


@dataclass(slots=True)
class _FindingCounts:
    """Findings seen so far, by severity and code."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: What findings say of themselves, beyond what their kind says, by code.
    commands: dict[str, str] = field(default_factory=dict)

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            codes = batch["code"].to_pylist()
            self.kinds.update(zip(batch["severity"].to_pylist(), codes, strict=True))
            for code, advice in zip(codes, batch["advice"].to_pylist(), strict=True):
                if advice != (KINDS[code].advice or None):
                    self.commands.setdefault(code, advice)
            yield batch

    @property
    def is_failure(self) -> bool:
        """Whether anything was more than a note."""
        return any(severity != "note" for severity, _ in self.kinds)

    def lines(self, not_looked_at: str, *, is_partial: bool) -> Iterator[str]:
        """What was found, worst first; of what was not looked at nothing is claimed."""
        if not self.is_failure and (not_looked_at or is_partial):
            where = " in the files of the log that were read" if is_partial else ""
            left = f"; not looked at: {not_looked_at} (--full)" if not_looked_at else ""
            yield f"{'no error' if self.kinds else 'nothing'} found{where}{left}"
        elif not self.kinds:
            yield "nothing is wrong"
        for wanted in SEVERITIES:
            codes = {code: number for (severity, code), number in sorted(self.kinds.items()) if severity == wanted}
            if codes:
                said = ", ".join(f"{number} {code}" for code, number in codes.items())
                yield f"{count(sum(codes.values()), wanted)}: {said}"
        yield from (f"next: {command}   # {code}" for code, command in self.commands.items())

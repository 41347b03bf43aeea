"""`rmqtx show`: one transaction, with every witness."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.live import LiveOptions, with_live_options
from rmqtx_cli.options.options import (
    AtOption,
    BrokerConfOption,
    BrokerVersionOption,
    CommitLogOption,
    FormatOption,
    OutputFormat,
    OutputOption,
    QuietOption,
    RateOption,
    VerboseOption,
)
from rmqtx_cli.output.pager import NoPagerOption
from rmqtx_cli.sources.transaction_tables import DatabaseOptions, with_database_options, with_entries
from rmqtx_cli.words import exit_status
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import stored_text
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from verdicts.audit.timeline import Surroundings
    from verdicts.model.reading import VerdictReading

NAME = "show"
SHORT = "one transaction's timeline with every witness"
EXAMPLES = (
    Example("rmqtx show 7F000001000118B4AAC216E2B3E40000 --store STORE", "by its id (UNIQ_KEY)"),
    Example("rmqtx show 0A00000100002A9F0000000000012D68 --store STORE", "by any copy's message id"),
    Example("rmqtx show ORDER-4711 --store STORE --format json", "by business key, for a script"),
    Example("rmqtx show ORDER-4711 -n 10.0.0.1:9876", "on live brokers"),
)

IdArgument = Annotated[
    str,
    typer.Argument(
        parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Transaction id, message id of any of its records, or a business key."
    ),
]
MoreStores = Annotated[list[str] | None, typer.Argument(metavar="STORE", help="The same as --store.")]
StoreOption = Annotated[
    list[str] | None, typer.Option("--store", metavar="STORE", help="Root of a broker's store; may be repeated.")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Read the whole log instead of following queues and index.")]


@with_live_options
@with_database_options
def command(
    identity: IdArgument,
    more: MoreStores = None,
    store: StoreOption = None,
    at: AtOption = None,
    scan: ScanOption = False,
    output_format: FormatOption = None,
    output: OutputOption = None,
    no_pager: NoPagerOption = False,
    commit_log: CommitLogOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    rate: RateOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    live: LiveOptions,
    database: DatabaseOptions,
) -> int:
    """Show one transaction: its timeline with every witness, and which consumer groups are past its final.

    If several transactions have the key, they are listed.
    """
    from readers.model.tables import LIVE_TRANSACTIONS, TRANSACTIONS
    from rmqtx_cli.sources.live_reading import arguments, live_source, refuse_with_live, refuse_without_live
    from rmqtx_cli.sources.opening import open_stores, refuse_inside, say_header
    from rmqtx_cli.words.progress import shown
    from verdicts.audit.lookups import show
    from verdicts.audit.timeline import StoreSurroundings

    paths = [*(store or []), *(more or [])]
    advice = f"rmqtx show {identity} --store STORE, or rmqtx show {identity} -n HOST:PORT"
    voice = Voice(verbose, quiet)
    at_ms = asked_time_ms("--at", at, voice)
    is_live = live.instead_of(paths, advice)
    page = _Page(output_format, output, at_ms, voice, arguments(live) if is_live else None, is_paged=not no_pager)
    if is_live:
        refuse_with_live({
            "--at": at, "--scan": scan, "--commitlog": commit_log, "--broker-conf": broker_conf,
            "--broker-version": broker_version, "--transaction-table": database.address,
        })
        with live_source(live, voice, rate) as source:
            return page.write(source.show(identity), LIVE_TRANSACTIONS, source.surroundings())
    refuse_without_live(rate)
    opened = open_stores(paths, commit_log, broker_conf, broker_version)
    refuse_inside(output, opened.stores)
    say_header(opened, voice)
    table = database.read(opened.stores)
    with shown("searching", voice) as progress:
        reading = show(
            opened.stores, opened.settings_of, identity, at_ms=at_ms, scan=scan, short=True, progress=progress
        )
    reading.batches = with_entries(reading.batches, table)
    return page.write(reading, TRANSACTIONS, [StoreSurroundings(one) for one in opened.stores])


@dataclass(frozen=True, slots=True)
class _Page:
    """How what was found is written."""

    format: OutputFormat | None
    output: Path | None
    at_ms: int | None
    voice: Voice
    live: str | None
    is_paged: bool

    def write(self, reading: VerdictReading, schema: pa.Schema, places: Sequence[Surroundings]) -> int:
        """One transaction as a page, several as a list; gives the status."""
        from rmqtx_cli.output.listing import Listing
        from rmqtx_cli.output.pager import paged
        from rmqtx_cli.output.port import chosen_format
        from rmqtx_cli.output.views import transactions_view
        from rmqtx_cli.pages.check_alive import check_lines
        from rmqtx_cli.pages.drawing import draw, with_events
        from verdicts.deadlines.discard_times import deadline_of

        is_page = chosen_format(self.format, self.output) is OutputFormat.TABLE
        rows = reading.table()
        found = rows.to_pylist()
        shown = {row["store"] for row in found}
        for line in check_lines([stop for stop in reading.check_stops if stop.store in shown], None, self.live):
            self.voice.note(line)
        table = rows if is_page else with_events(found, places, schema, reading.foretold)
        now_ms = self.at_ms if self.at_ms is not None else time.time_ns() // 1_000_000
        view = transactions_view(now_ms, with_state=True, with_store=len(places) > 1)
        listing = Listing(table.schema, view, self.format, self.output, voice=self.voice)
        if is_page and len(found) == 1:
            with paged(self.output, is_wanted=self.is_paged) as stream:
                draw(found[0], places, stream, deadline_of(found[0], reading.foretold), now_ms)
        else:
            if len(found) > 1:
                self.voice.note(f"{len(found)} transactions have this name: show one of them by its transaction id")
            listing.write(iter(table.to_batches()))
        status = listing.conclude(reading)
        if status == exit_status.DONE and any(row["state"] == "UNDECIDABLE" for row in found):
            return exit_status.INCOMPLETE
        return status

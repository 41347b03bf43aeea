"""`rmqtx show`: one transaction in full."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtx.verdicts.model.state import State
from rmqtx_cli.commands import Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.bodies import DecoderOption, decoder_words
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    AtOption,
    FormatOption,
    OutputFormat,
    OutputOption,
    OutputOptions,
    ProxyConfOption,
    RowForm,
)
from rmqtx_cli.output.pager import NoPagerOption
from rmqtx_cli.sources.broker_logs import LogOptions
from rmqtx_cli.sources.source import SourceOptions
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped, stored_text
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.sources.broker_logs import BrokerLogs
    from rmqtx_cli.sources.source import Source

NAME = "show"
EXAMPLES = (
    Example("rmqtx show 7F000001000118B4AAC216E2B3E40000 --store STORE", "by transaction id (UNIQ_KEY), or message id"),
    Example("rmqtx show half:342 --store STORE", "by half queue offset; at:327446 is a byte of the commit log"),
    Example("rmqtx show 'offset=342 commitLogOffset=327446' --store STORE", "by a line of a broker's log"),
    Example(
        "rmqtx show ORDER-4711 --store STORE --broker-logs ~/logs/rocketmqlogs", "with the lines of the broker's logs"
    ),
    Example("rmqtx show ORDER-4711 -n 10.0.0.1:9876", "by business key, on live brokers"),
)

IdArgument = Annotated[
    str,
    typer.Argument(
        parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Transaction id, message id of any of its records, business key, or place: half:N, op:N, at:N, final:N",
    ),
]
MoreStores = Annotated[list[str] | None, typer.Argument(metavar="STORE", help="The same as --store")]
StoreOption = Annotated[
    list[str] | None, typer.Option("--store", metavar="STORE", help="Root of a broker's store; repeatable")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Read the whole commit log instead of queues and index")]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How one transaction is printed."""

    no_pager: NoPagerOption = False
    body_decoder: DecoderOption = None

    @property
    def decoder(self) -> list[str] | None:
        """The words of the filter for bodies; None without one.

        Raises: BadRequest.
        """
        return None if self.body_decoder is None else decoder_words(self.body_decoder)


@with_option_groups
def command(
    identity: IdArgument,
    more: MoreStores = None,
    store: StoreOption = None,
    at: AtOption = None,
    scan: ScanOption = False,
    proxy_conf: ProxyConfOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    *,
    page: PageOptions,
    form: RowForm,
    logs: LogOptions,
    source: SourceOptions,
) -> int:
    """Show what happened to one transaction: state, reason, advice, and a timeline of all its records.

    The last lines show which consumer groups have read its message. If several transactions have the key, they are
    listed.

    A place is half:N or op:N (number in the half or op queue), at:N (the record that covers a byte of the commit log)
    or final:N (the same, a COMMIT record). STORE/ or BROKER/ in front of a place names one of several. A line of a
    broker's log with commitLogOffset= or offset= is a place too. Several keys name the transaction that has them all.
    For half:N and op:N the log is scanned: several records can have one number, and all are listed. A live broker
    returns only the record to which its queue leads now, and finds a record only by its first byte.

    --body-decoder CMD prints what a filter makes of the message's body, as rmqtx search does.
    """
    identity = identity.strip()
    advice = f"rmqtx show {identity} --store STORE, or rmqtx show {identity} -n HOST:PORT"
    logs.check()
    at_ms = asked_time_ms("--at", at, source.voice, is_of_state=True)
    opener = source.opener([*(store or []), *(more or [])], advice, {"--at": at, "--scan": scan})
    written = _TransactionPage(
        output_format, form, output, at_ms, source.voice, logs, proxy_conf, is_paged=not page.no_pager,
        decoder=page.decoder,
    )
    with opener.opened(output) as opened:
        return written.write(
            opened.show(identity, at_ms=at_ms, scan=scan, with_causes=False), opener.schema, opened
        )


@dataclass(frozen=True, slots=True)
class _TransactionPage:
    """How the transaction is printed."""

    format: OutputFormat | None
    form: RowForm
    output: Path | None
    at_ms: int | None
    voice: Voice
    logs: LogOptions
    proxy_conf: Path | None
    is_paged: bool
    decoder: list[str] | None = None

    def write(self, reading: VerdictReading, schema: pa.Schema, source: Source) -> int:
        """Print one transaction as a page, several as a list; return the exit status."""
        import pyarrow as pa

        from rmqtx.readers.jobs.body_decoder import DECODED_FIELD
        from rmqtx.verdicts.causes.strengths import with_causes
        from rmqtx.verdicts.deadlines.deadline import deadline_of
        from rmqtx_cli.output.listing import Listing
        from rmqtx_cli.output.page import write_lines
        from rmqtx_cli.output.pager import paged
        from rmqtx_cli.output.port import chosen_format
        from rmqtx_cli.output.views import transactions_view
        from rmqtx_cli.pages.check_alive import check_lines
        from rmqtx_cli.pages.drawing import draw, with_events

        places = source.surroundings()
        is_page = chosen_format(self.format, self.output) is OutputFormat.TABLE
        rows = reading.table()
        found = rows.to_pylist()
        shown = {row["store"] for row in found}
        stops = [stop for stop in reading.check_stops if stop.store in shown]
        for line in check_lines(stops, None, source.live, {row["transaction_id"] for row in found}):
            self.voice.note(line)
        logs = self.logs.read(source.names, self.voice, found)
        causes = self._causes(rows, reading, logs)
        logged = [logs.events_of(number) for number in range(len(found))]
        if is_page:
            table = with_causes(rows, reading.evidence) if len(found) > 1 else rows
        else:
            table = with_events(found, places, schema, reading.predicted, causes, logged)
        texts = self._bodies(found, source)
        if texts is not None and not is_page:
            table = table.append_column(DECODED_FIELD, pa.array(texts, pa.string()))
        # "if the broker starts now" is the moment that the prediction begins with: reading takes no time away from it
        starts = [one.start_ms for one in reading.predicted.values() if one.start_ms]
        now_ms = min(starts, default=time.time_ns() // 1_000_000) if self.at_ms is None else self.at_ms
        view = transactions_view(now_ms, with_state=True, with_store=len(places) > 1)
        asked = OutputOptions(output_format=self.format, form=self.form, output=self.output)
        listing = Listing(table.schema, view, asked, voice=self.voice)
        if is_page and len(found) == 1:
            with paged(self.output, is_wanted=self.is_paged) as stream:
                draw(
                    found[0], places, stream, deadline_of(found[0], reading.predicted), now_ms, causes[0], logged[0],
                    is_wide=self.form.wide,
                )
                if texts is not None:
                    body = texts[0] or "no text: the body cannot be read, or the filter printed none"
                    write_lines(stream, ["", f"body    {escaped(body)}"], len("body    "))
        else:
            if len(found) > 1:
                self.voice.note(f"{len(found)} transactions match: show one of them by its transaction id")
            listing.write(iter(table.to_batches()))
        reading.add_trace_findings(*(place.traces for place in places))
        is_incomplete = any(row["state"] == State.UNDECIDABLE for row in found) or any(map(logs.is_missed, causes))
        return listing.conclude(reading, has_undecidable=is_incomplete)

    def _bodies(self, found: list[dict[str, Any]], source: Source) -> list[str | None] | None:
        """For each transaction its body by the filter; None without a filter."""
        from rmqtx.readers.jobs.body_decoder import BodyDecoder
        from rmqtx_cli.sources.message_bodies import message_body

        if self.decoder is None:
            return None
        with BodyDecoder(self.decoder) as decoder:
            texts = decoder.decoded([message_body(row, source) for row in found])
        if (note := decoder.note()) is not None:
            self.voice.note(note)
        return texts

    def _causes(self, rows: pa.Table, reading: VerdictReading, logs: BrokerLogs) -> list[list[dict[str, Any]]]:
        """For each transaction the causes that explain it, or could; none for a past time, whose facts are unknown."""
        from rmqtx.readers.store.broker_conf import read_expire_ms
        from rmqtx.verdicts.causes.diagnosing import diagnosed_each

        if not set(rows["store"].to_pylist()) <= set(reading.evidence):
            return [[] for _ in range(rows.num_rows)]
        keeps_ms = None if self.proxy_conf is None else read_expire_ms(self.proxy_conf)
        return diagnosed_each(rows, logs.with_logs(reading.evidence), keeps_ms)

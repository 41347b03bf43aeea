"""`rmqtx show`: one transaction in full."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmqtx.readers.jobs.body_decoder import DECODED_FIELD, BodyDecoder
from rmqtx.readers.log.record_values import message_of
from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.store.broker_conf import read_expire_ms
from rmqtx.verdicts.causes.diagnosing import CauseRow, diagnosed_each
from rmqtx.verdicts.causes.evidence import Evidence
from rmqtx.verdicts.causes.strengths import with_causes
from rmqtx.verdicts.model.predicted import deadline_of
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.commands.declared.look import PageOptions, ShowCommand
from rmqtx_cli.options.bodies import decoder_words
from rmqtx_cli.options.options import OutputFormat, OutputOptions, RowForm
from rmqtx_cli.options.source_options import LogOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.page import paged, write_lines
from rmqtx_cli.output.port import chosen_format
from rmqtx_cli.output.views import transactions_view
from rmqtx_cli.pages.drawing import Known, PageForm, draw, with_events
from rmqtx_cli.pages.headlines import check_lines
from rmqtx_cli.sources.broker_logs import BrokerLogs, check_logs, read_logs
from rmqtx_cli.sources.proofs import Proving
from rmqtx_cli.sources.source import Source, opener_of
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import escaped
from rmqtx_cli.words.times import asked_time_ms


def run(options: ShowCommand) -> int:
    """Run the command; return its exit status."""
    identity = options.identity
    identity = identity.strip()
    advice = f"rmqtx show {identity} --store STORE, or rmqtx show {identity} -n HOST:PORT"
    check_logs(options.logs)
    at_ms = asked_time_ms("--at", options.at, options.source.voice, is_of_state=True)
    opener = opener_of(
        options.source, [*(options.store or []), *(options.more or [])], advice,
        {"--at": options.at, "--scan": options.scan, "--proof": options.proof},
    )
    written = _TransactionPage(
        options.output_format, options.form, options.output, at_ms, options.source.voice, options.logs,
        options.proxy_conf, is_paged=not options.page.no_pager,
        decoder=_decoder(options.page),
    )
    with opener.opened(options.output) as opened:
        reading = opened.show(identity, at_ms=at_ms, scan=options.scan, with_causes=False)
        with Proving(options.proof, "show", at_ms, options.scan, options.source.voice).of(reading, opened):
            return written.write(reading, opener.schema, opened)


def _decoder(page: PageOptions) -> list[str] | None:
    """The words of the filter for bodies; None without one. Raises: BadRequest."""
    return None if page.body_decoder is None else decoder_words(page.body_decoder)


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
        places = source.surroundings()
        is_page = chosen_format(self.format, self.output) is OutputFormat.TABLE
        rows = reading.table()
        found = rows.to_pylist()
        shown = {row["store"] for row in found}
        stops = [stop for stop in reading.check_stops if stop.store in shown]
        for line in check_lines(stops, None, source.live, {row["transaction_id"] for row in found}):
            self.voice.note(line)
        logs = read_logs(self.logs, source.names, self.voice, found)
        causes = self._causes(rows, reading, logs)
        logged = [logs.events_of(number) for number in range(len(found))]
        if is_page:
            table = with_causes(Evidence(rows, reading.evidence)) if len(found) > 1 else rows
        else:
            table = with_events(found, places, schema, reading.predicted, causes, logged)
        texts = self._bodies(found, source)
        if texts is not None and not is_page:
            table = table.append_column(DECODED_FIELD, pa.array(texts, pa.string()))
        # "if the broker starts now" is the moment that the prediction begins with: reading takes no time away from it
        starts = [one.start_ms for one in reading.predicted.values() if one.start_ms]
        now_ms = min(starts, default=clock.now_ms()) if self.at_ms is None else self.at_ms
        view = transactions_view(now_ms, with_state=True, with_store=len(places) > 1)
        asked = OutputOptions(output_format=self.format, form=self.form, output=self.output)
        listing = Listing(table.schema, view, asked, voice=self.voice)
        if is_page and len(found) == 1:
            with paged(self.output, is_wanted=self.is_paged) as stream:
                known = Known(places, deadline_of(found[0], reading.predicted), now_ms, causes[0], logged[0])
                draw(found[0], known, stream, PageForm(is_wide=self.form.wide))
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
        if self.decoder is None:
            return None
        with BodyDecoder(self.decoder) as decoder:
            texts = decoder.decoded([message_body(row, source) for row in found])
        if (note := decoder.note()) is not None:
            self.voice.note(note)
        return texts

    def _causes(self, rows: pa.Table, reading: VerdictReading, logs: BrokerLogs) -> list[list[CauseRow]]:
        """For each transaction the causes that explain it, or could; none for a past time, whose facts are unknown."""
        if not set(rows["store"].to_pylist()) <= set(reading.evidence):
            return [[] for _ in range(rows.num_rows)]
        keeps_ms = None if self.proxy_conf is None else read_expire_ms(self.proxy_conf)
        return diagnosed_each(rows, logs.with_logs(reading.evidence), keeps_ms)


#: Records with the body, in the order in which they are read.
_WITH_BODY = ("half_copies", "final_records", "discard_copies")


def message_body(transaction: Mapping[str, Any], source: Source) -> bytes | None:
    """Return the body, decompressed; None if no record of it can be read or decompressed."""
    return next(_bodies(transaction, source), None)


def body_of(record: bytes) -> bytes | None:
    """Return the body of a record, decompressed; None if that is not possible."""
    try:
        message = message_of(record)
    except FormatError:
        return None
    return base64.b64decode(message["body_base64"]) if message["body_is_readable"] else None


def _bodies(transaction: Mapping[str, Any], source: Source) -> Iterator[bytes]:
    for column in _WITH_BODY:
        for copy in reversed(transaction[column]):
            record = source.record(copy["store"], copy["commit_log_offset"])
            body = None if record is None else body_of(record)
            if body is not None:
                yield body

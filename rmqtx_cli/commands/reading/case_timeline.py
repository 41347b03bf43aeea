"""`rmqtx case timeline`: all events of some transactions in one order."""

from __future__ import annotations

import pyarrow as pa

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.repairs.receipts.case_events import CASE_COLUMNS, CASE_EVENTS, case_events
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx_cli.commands.declared.case import TimelineCommand
from rmqtx_cli.options.options import OutputOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import CASE_EVENTS_VIEW, transactions_view
from rmqtx_cli.sources.broker_logs import check_logs, read_logs
from rmqtx_cli.sources.files import FileOpener, FileSource
from rmqtx_cli.words.progress import shown


def run(options: TimelineCommand) -> int:
    """Run the command; return its exit status."""
    if (options.where is None) == (options.transaction is None):
        raise BadRequest("give --transaction ID, or --where CONDITION", advice="all unusual ones: --where 'flags ~ .'")
    check_logs(options.logs)
    listing = Listing(CASE_EVENTS, CASE_EVENTS_VIEW, options.output, voice=options.voice)
    opener = FileOpener(options.store, options.files, DatabaseOptions(), options.voice)
    with opener.opened(options.output.output) as source:
        reading = VerdictReading(TRANSACTIONS, [])
        rows = _chosen(options, source, reading)
        logs = read_logs(options.logs, source.names, options.voice, rows)
        places = source.surroundings()
        book = Journal(options.journal).read()
        events = case_events(rows, places, [logs.events_of(number) for number in range(len(rows))], book.receipts)
        reading.add_trace_findings(*(place.traces for place in places))
        reading.findings.extend(book.findings)
        listing.write(iter(events.to_batches()))
    is_incomplete = any(row["state"] == "UNDECIDABLE" for row in rows) or logs.has_problems
    return listing.conclude(reading, has_undecidable=is_incomplete)


def _chosen(options: TimelineCommand, source: FileSource, whole: VerdictReading) -> list[dict[str, object]]:
    """Return the transactions of the case, each once; the findings of their readings are added."""
    found: dict[tuple[str, str], dict[str, object]] = {}
    for identity in dict.fromkeys(options.transaction or ()):
        reading = source.show(identity, with_causes=False)
        for row in reading.table().select(CASE_COLUMNS).to_pylist():
            found.setdefault((row["store"], row["transaction_id"]), row)
        whole.add_account_of(reading)
    if options.where is not None:
        view = transactions_view(clock.now_ms(), with_state=True, with_store=True)
        listing = Listing(TRANSACTIONS, view, OutputOptions(fields="store"), options.where)
        with shown("auditing", options.voice) as progress:
            columns = {*CASE_COLUMNS, *listing.needed}
            reading = audit(source.stores, source.settings_of, progress=progress, columns=columns)
            for batch in reading:
                rows = listing.fulfilling(pa.Table.from_batches([batch])).select(CASE_COLUMNS)
                found.update({(row["store"], row["transaction_id"]): row for row in rows.to_pylist()})
        whole.add_account_of(reading)
    return list(found.values())

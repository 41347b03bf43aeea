"""`rmqtx show`: one transaction, with every witness."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from readers.errors import BadRequest
from rmqtx_cli import exit_status
from rmqtx_cli.commands import Example
from rmqtx_cli.options import (
    AtOption,
    BrokerConfOption,
    BrokerVersionOption,
    CommitLogOption,
    FormatOption,
    OutputFormat,
    OutputOption,
    QuietOption,
    VerboseOption,
)
from rmqtx_cli.say import Voice
from rmqtx_cli.text import stored_text
from rmqtx_cli.times import parse_time_ms

NAME = "show"
SHORT = "one transaction's timeline with every witness"
EXAMPLES = (
    Example("rmqtx show 7F000001000118B4AAC216E2B3E40000 --store STORE", "by its id (UNIQ_KEY)"),
    Example("rmqtx show 0A00000100002A9F0000000000012D68 --store STORE", "by any copy's message id"),
    Example("rmqtx show ORDER-4711 --store STORE --format json", "by business key, for a script"),
)

IdArgument = Annotated[
    str,
    typer.Argument(
        parser=stored_text, metavar="ID", help="Transaction id, message id of any of its records, or a business key."
    ),
]
MoreStores = Annotated[list[str] | None, typer.Argument(metavar="STORE", help="The same as --store.")]
StoreOption = Annotated[
    list[str] | None, typer.Option("--store", metavar="STORE", help="Root of a broker's store; may be repeated.")
]
ScanOption = Annotated[bool, typer.Option("--scan", help="Read the whole log instead of following queues and index.")]


def command(
    identity: IdArgument,
    more: MoreStores = None,
    store: StoreOption = None,
    at: AtOption = None,
    scan: ScanOption = False,
    output_format: FormatOption = None,
    output: OutputOption = None,
    commit_log: CommitLogOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Show one transaction: its timeline with every witness, and which consumer groups are past its final.

    If several transactions have the key, they are listed.
    """
    from readers.questions import show
    from readers.tables import TRANSACTIONS
    from rmqtx_cli.drawing import draw, with_events
    from rmqtx_cli.listing import Listing
    from rmqtx_cli.opening import open_stores, refuse_inside, say_header
    from rmqtx_cli.output.port import chosen_format, open_stream
    from rmqtx_cli.progress import shown
    from rmqtx_cli.views import transactions_view

    paths = [*(store or []), *(more or [])]
    if not paths:
        raise BadRequest("no store is given", advice=f"rmqtx show {identity} --store STORE")
    voice = Voice(verbose, quiet)
    at_ms = None if at is None else parse_time_ms(at)
    is_page = chosen_format(output_format, output) is OutputFormat.TABLE
    opened = open_stores(paths, commit_log, broker_conf, broker_version)
    refuse_inside(output, opened.stores)
    say_header(opened, voice)
    with shown("searching", voice) as progress:
        reading = show(opened.stores, opened.settings_of, identity, at_ms=at_ms, scan=scan, progress=progress)
        rows = reading.table()
    found = rows.to_pylist()
    table = rows if is_page else with_events(found, opened.stores, TRANSACTIONS)
    now_ms = at_ms if at_ms is not None else time.time_ns() // 1_000_000
    view = transactions_view(now_ms, with_state=True, with_store=len(opened.stores) > 1)
    listing = Listing(table.schema, view, output_format, output, voice=voice)
    if is_page and len(found) == 1:
        with open_stream(output) as stream:
            draw(found[0], opened.stores, stream)
    else:
        listing.write(iter(table.to_batches()))
    if len(found) > 1:
        voice.note(f"{len(found)} transactions have this name: show one of them by its transaction id")
    status = listing.conclude(reading)
    if status == exit_status.DONE and any(row["state"] == "UNDECIDABLE" for row in found):
        return exit_status.INCOMPLETE
    return status

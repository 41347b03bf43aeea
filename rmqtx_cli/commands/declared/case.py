"""Commands about a case: some transactions, with all that is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.options import OutputOptions, StoreArguments, TracedStoreOptions, VoiceOptions, WhereOption
from rmqtx_cli.options.source_options import LogOptions
from rmqtx_cli.words.text import stored_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineCommand(Command):
    """List all events of a case in one order: records, lines of broker logs, message traces, receipts.

    A case is the transactions that --transaction names, or those that meet the condition of --where. The columns
    message, datetime and timestamp_desc are those that Timesketch and Plaso read, as CSV or JSON lines. The events of
    the case are in memory at once, its stores are not.
    """

    NAME = "timeline"
    SHORT = "list records, log lines, traces and receipts in one order"
    MODULE = "reading.case_timeline"
    EXAMPLES = (
        Example("rmqtx case timeline STORE --transaction ORDER-4711 -o case.csv", "one transaction, for Timesketch"),
        Example(
            "rmqtx case timeline STORE --where 'state = LOST' --broker-logs ~/logs/rocketmqlogs -o case.jsonl",
            "all lost ones, with the lines of the broker's logs",
        ),
    )

    store: StoreArguments
    transaction: Annotated[
        list[str] | None,
        typer.Option(
            "--transaction", parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
            help="Transaction id, message id of any of its records, or business key; repeatable",
        ),
    ] = None
    where: WhereOption = None
    journal: Annotated[
        Path | None,
        typer.Option("--journal", metavar="FILE", help="Read the receipts of this journal; default: the own one"),
    ] = None
    output: OutputOptions
    logs: LogOptions
    files: TracedStoreOptions
    voice: VoiceOptions


GROUP_HELP = "Put together what is known about the transactions of a case."
IN_GROUP: tuple[type[Command], ...] = (TimelineCommand,)
COMMANDS: tuple[type[Command], ...] = ()

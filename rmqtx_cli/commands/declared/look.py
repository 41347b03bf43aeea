"""Commands that find and explain transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from rmqtx_cli.commands import Command, Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.command_tree import OwnStore
from rmqtx_cli.options.options import (
    AtOption,
    DecoderOption,
    FailOnOption,
    FormatOption,
    GroupOption,
    LimitOption,
    OlderThanOption,
    OptionalStoreArguments,
    OutputOption,
    OutputOptions,
    ProofOption,
    ProxyConfOption,
    RowForm,
    TopicOption,
    WhereOption,
)
from rmqtx_cli.options.source_options import LogOptions, NoPagerOption, SourceOptions
from rmqtx_cli.words.text import stored_text

ScanOption = Annotated[bool, typer.Option("--scan", help="Read the whole commit log instead of queues and index")]


@dataclass(frozen=True, slots=True)
class PendingOptions:
    """Which transactions to list, as of when, and how to find them."""

    older_than: OlderThanOption = None
    group: GroupOption = None
    topic: TopicOption = None
    where: WhereOption = None
    deadline_within: Annotated[
        str | None,
        typer.Option(
            "--deadline-within", metavar="DURATION",
            help="Only transactions that the broker discards within this time, like 10m",
        ),
    ] = None
    limit: LimitOption = None
    all_open: Annotated[
        bool,
        typer.Option("--all-open", help="Also list decided or discarded transactions that the broker will check again"),
    ] = False
    at: AtOption = None
    scan: ScanOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCommand(Command):
    """List the pending transactions: not decided, not discarded, and not passed by the check.

    Each row contains the offsets that prove it. The time grows with the number of open transactions, not with the size
    of the log; if queues or index cannot be used, the whole log is read. For live brokers the rows also show whether a
    producer of the group is connected, which would answer the broker's checks.
    """

    NAME = "pending"
    MODULE = "reading.pending"
    EXAMPLES = (
        Example("rmqtx pending STORE", "all pending transactions, oldest first"),
        Example(
            "rmqtx pending STORE --older-than 10m --group shop --sort checks", "older than 10 minutes, of one group"
        ),
        Example("rmqtx pending STORE --deadline-within 10m --sort deadline", "which ones the broker discards next"),
        Example("rmqtx pending STORE --format jsonl | jq -r .transaction_id", "the ids, for a script"),
        Example(
            "rmqtx pending -n 10.0.0.1:9876 --all-open", "live brokers; also decided ones that will be checked again"
        ),
    )

    context: typer.Context
    store: OptionalStoreArguments = None
    asked: PendingOptions
    fail_on: FailOnOption = None
    output: OutputOptions
    source: SourceOptions


@dataclass(frozen=True, slots=True)
class PageOptions:
    """How one transaction is printed."""

    no_pager: NoPagerOption = False
    body_decoder: DecoderOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCommand(Command):
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

    NAME = "show"
    MODULE = "reading.show"
    OWN_STORE = OwnStore.AS_OPTION
    EXAMPLES = (
        Example(
            "rmqtx show 7F000001000118B4AAC216E2B3E40000 --store STORE", "by transaction id (UNIQ_KEY), or message id"
        ),
        Example("rmqtx show half:342 --store STORE", "by half queue offset; at:327446 is a byte of the commit log"),
        Example("rmqtx show 'offset=342 commitLogOffset=327446' --store STORE", "by a line of a broker's log"),
        Example(
            "rmqtx show ORDER-4711 --store STORE --broker-logs ~/logs/rocketmqlogs",
            "with the lines of the broker's logs"
        ),
        Example("rmqtx show ORDER-4711 -n 10.0.0.1:9876", "by business key, on live brokers"),
    )

    identity: Annotated[
        str,
        typer.Argument(
            parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
            help="Transaction id, message id of any of its records, business key, or place: half:N, op:N, at:N, "
            "final:N",
        ),
    ]
    more: Annotated[list[str] | None, typer.Argument(metavar="STORE", help="The same as --store")] = None
    store: Annotated[
        list[str] | None, typer.Option("--store", metavar="STORE", help="Root of a broker's store; repeatable")
    ] = None
    at: AtOption = None
    scan: ScanOption = False
    proxy_conf: ProxyConfOption = None
    output_format: FormatOption = None
    output: OutputOption = None
    page: PageOptions
    proof: ProofOption = None
    form: RowForm
    logs: LogOptions
    source: SourceOptions


COMMANDS: tuple[type[Command], ...] = (PendingCommand, ShowCommand)

"""`rmqtx diagnose`: name the causes of what is unusual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx_cli.commands import Example
from rmqtx_cli.options import completion
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.options import (
    AtOption,
    FailOnOption,
    LimitOption,
    OptionalStoreArguments,
    OutputOptions,
    ProvenanceOptions,
    ProxyConfOption,
    WhereOption,
)
from rmqtx_cli.sources.broker_logs import LogOptions
from rmqtx_cli.sources.source import SourceOptions
from rmqtx_cli.words.text import stored_text
from rmqtx_cli.words.times import asked_time_ms

if TYPE_CHECKING:
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.sources.source import Source

NAME = "diagnose"
EXAMPLES = (
    Example("rmqtx diagnose STORE", "the causes of all unusual transactions, most transactions first"),
    Example("rmqtx diagnose STORE --transaction ORDER-4711", "the causes of one transaction"),
    Example(
        "rmqtx diagnose STORE --broker-version 4.9.7 --broker-logs ~/logs/rocketmqlogs",
        "with the release, if the store does not show it, and with the broker's logs",
    ),
    Example("rmqtx diagnose STORE --where 'strength = explains' --format json", "for a script"),
    Example("rmqtx diagnose -n 10.0.0.1:9876", "of live brokers"),
)

TransactionOption = Annotated[
    str | None,
    typer.Option(
        "--transaction", parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Only this transaction: its id, the message id of any of its records, or its business key",
    ),
]


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """Which transactions are diagnosed, and which causes are listed."""

    transaction: TransactionOption = None
    where: WhereOption = None
    limit: LimitOption = None
    fail_on: FailOnOption = None
    at: AtOption = None
    proxy_conf: ProxyConfOption = None


@with_option_groups
def command(
    context: typer.Context,
    store: OptionalStoreArguments = None,
    *,
    asked: DiagnoseOptions,
    output: OutputOptions,
    engine: EngineOptions,
    provenance: ProvenanceOptions,
    logs: LogOptions,
    source: SourceOptions,
) -> int:
    """Name the causes of unusual transactions: why checked again, delivered twice, discarded, never checked.

    A cause explains transactions only if their records show it, the release of the broker is known to behave so, and no
    other cause leaves the same records; else it could explain them, and would_decide names what is missing. Causes that
    fit the records but not the release are ruled out. Reads what audit reads, or with --transaction what show reads.
    Some causes show only in the logs of the broker: --broker-logs reads them.
    """
    from rmqtx.readers.store.broker_conf import read_expire_ms
    from rmqtx.verdicts.causes.diagnosing import DIAGNOSES, Diagnosis
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.pages.causes import causes_view, counts_lines, next_lines

    logs.check()
    at_ms = asked_time_ms("--at", asked.at, source.voice, is_of_state=True)
    opener = source.opener(
        store or [], "rmqtx diagnose STORE, or rmqtx diagnose -n HOST:PORT", {"--at": asked.at}
    )
    keeps_ms = None if asked.proxy_conf is None else read_expire_ms(asked.proxy_conf)
    engine = source.database.engine_of(engine)
    several = opener.live is not None or len(store or []) > 1
    listing = Listing(
        DIAGNOSES, causes_view(with_store=several), output, asked.where, asked.fail_on, asked.limit, source.voice,
        provenance.with_meta,
    )
    with opener.opened(output.output) as opened:
        _require_known_time(opened.stores, at_ms)
        read = logs.read(opened.names, source.voice)
        with _reading(context, opened, listing, asked.transaction, engine, provenance, at_ms) as reading:
            found = Diagnosis(read.with_logs(reading.evidence), keeps_ms)
            for batch in reading:
                found.add(batch)
            reading.add_trace_findings()
            rows = found.table()
            chosen = listing.fulfilling(rows)
            listing.write(iter(chosen.to_batches()), are_chosen=True, answer=lambda: counts_lines(found))
            for line in next_lines(chosen, opened.arguments):
                source.voice.note(line)
            is_incomplete = found.undecidable_count > 0 or read.is_missed(rows.to_pylist())
            return listing.conclude(reading, has_undecidable=is_incomplete)


def _require_known_time(stores: Sequence[Store], at_ms: int | None) -> None:
    """Require that the time is not before the end of a store: what causes need of that time is in no file.

    Raises: BadRequest.
    """
    from rmqtx.readers.model.errors import BadRequest
    from rmqtx.readers.model.units import time_text
    from rmqtx.verdicts.evidence.store_facts import known_until_ms, past_ms

    for store in stores:
        until_ms = known_until_ms(store)
        if past_ms(store, at_ms, until_ms) is not None:
            raise BadRequest(
                f"{store.root}: --at is before the last record, of {time_text(until_ms)}: the cursors and settings of "
                "that time, which causes need, are in no file",
                advice="rmqtx show ID --at TIME has the records of one transaction until then",
            )


@contextmanager
def _reading(
    context: typer.Context, opened: Source, listing: Listing, identity: str | None, engine: EngineOptions,
    provenance: ProvenanceOptions, at_ms: int | None,
) -> Iterator[VerdictReading]:
    """Read all transactions, or one."""
    from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS

    if identity is not None:
        reading = opened.show(identity, at_ms=at_ms)
        if listing.carries_meta:
            opened.add_provenance(context, listing)
        yield reading
        return
    with opened.audited(context, listing, engine, provenance, at_ms, NEEDED_COLUMNS) as reading:
        yield reading

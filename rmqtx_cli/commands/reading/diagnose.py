"""`rmqtx diagnose`: name the causes of what is unusual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.units import time_text
from rmqtx.readers.store.broker_conf import read_expire_ms
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.causes.diagnosing import DIAGNOSES, Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS
from rmqtx.verdicts.evidence.store_facts import known_until_ms, past_ms
from rmqtx.verdicts.model.reading import VerdictReading
from rmqtx_cli.commands.declared.survey import DiagnoseCommand
from rmqtx_cli.options.engine import EngineOptions
from rmqtx_cli.options.options import ProvenanceOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.pages.causes import causes_view, counts_lines, next_lines
from rmqtx_cli.sources.broker_logs import check_logs, read_logs
from rmqtx_cli.sources.source import Source, opener_of
from rmqtx_cli.words.times import asked_time_ms


def run(options: DiagnoseCommand) -> int:
    """Run the command; return its exit status."""
    engine = options.engine
    check_logs(options.logs)
    at_ms = asked_time_ms("--at", options.asked.at, options.source.voice, is_of_state=True)
    opener = opener_of(
        options.source, options.store or [], "rmqtx diagnose STORE, or rmqtx diagnose -n HOST:PORT",
        {"--at": options.asked.at},
    )
    keeps_ms = None if options.asked.proxy_conf is None else read_expire_ms(options.asked.proxy_conf)
    engine = options.source.database.engine_of(engine)
    several = opener.live is not None or len(options.store or []) > 1
    listing = Listing(
        DIAGNOSES, causes_view(
            with_store=several
        ), options.output, options.asked.where, options.asked.fail_on, options.asked.limit, options.source.voice,
        options.provenance.with_meta,
    )
    with opener.opened(options.output.output) as opened:
        _require_known_time(opened.stores, at_ms)
        read = read_logs(options.logs, opened.names, options.source.voice)
        with _reading(
            options.context, opened, listing, options.asked.transaction, engine, options.provenance, at_ms
        ) as reading:
            found = Diagnosis(read.with_logs(reading.evidence), keeps_ms)
            rows = found.add_all(reading)
            chosen = listing.fulfilling(rows)
            listing.write(iter(chosen.to_batches()), are_chosen=True, answer=lambda: counts_lines(found))
            for line in next_lines(chosen, opened.arguments):
                options.source.voice.note(line)
            is_incomplete = found.undecidable_count > 0 or read.is_missed(rows.to_pylist())
            return listing.conclude(reading, has_undecidable=is_incomplete)


def _require_known_time(stores: Sequence[Store], at_ms: int | None) -> None:
    """Require that the time is not before the end of a store: what causes need of that time is in no file.

    Raises: BadRequest.
    """
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
    if identity is not None:
        reading = opened.show(identity, at_ms=at_ms)
        if listing.carries_meta:
            opened.add_provenance(context, listing)
        yield reading
        return
    with opened.audited(context, listing, engine, provenance, at_ms, NEEDED_COLUMNS) as reading:
        yield reading

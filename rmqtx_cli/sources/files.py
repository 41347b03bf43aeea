"""Stores in files as a source of transactions."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.transaction_records import scan_halves, scan_ops
from rmqtx.readers.model.identities import NameForms
from rmqtx.readers.model.tables import TRANSACTIONS
from rmqtx.readers.storage.file_systems import expand
from rmqtx.verdicts.audit.lookups import Scan, lookup, pending, show
from rmqtx.verdicts.audit.timeline import StoreTimelineSource, TimelineSource
from rmqtx.verdicts.claims.records_read import with_lost_records
from rmqtx_cli.options.options import ProvenanceOptions, StoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.output.views import View, transactions_view
from rmqtx_cli.sources.check_queues import CheckQueue, check_queues_of_files
from rmqtx_cli.sources.opening import (
    Opened,
    conf_lines,
    header_lines,
    open_stores,
    read_database,
    refuse_inside,
    say_consistency,
    say_header,
    with_entries,
)
from rmqtx_cli.sources.provenance import MetaCarrier, add_provenance
from rmqtx_cli.words.progress import shown
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from rmqtx.readers.model.reading import Bounds, Reading
    from rmqtx.readers.store.broker_settings import BrokerSettings
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.options.engine import EngineOptions


@dataclass
class FileOpener:
    """See `SourceOpener`."""

    paths: Sequence[str]
    options: StoreOptions
    database: DatabaseOptions
    voice: Voice
    live: None = None

    @functools.cached_property
    def places(self) -> list[str]:
        """The paths and patterns, expanded."""
        return expand(self.paths)

    @property
    def schema(self) -> pa.Schema:
        """See `SourceOpener`."""
        return TRANSACTIONS

    def view(self, now_ms: int, *, with_state: bool, with_deadline: bool = False) -> View:
        """See `SourceOpener`."""
        return transactions_view(
            now_ms, with_state=with_state, with_store=len(self.places) > 1, with_deadline=with_deadline
        )

    @contextmanager
    def opened(self, *written: Path | None) -> Iterator[FileSource]:
        """See `SourceOpener`."""
        opened = open_stores(self.places, self.options)
        for file in written:
            refuse_inside(file, opened.stores)
        say_header(opened, self.voice)
        yield FileSource(opened, self.database, self.voice)

    def looked_up(self) -> AbstractContextManager[FileSource]:
        """See `SourceOpener`."""
        return self.opened()

    @contextmanager
    def tables(self, *written: Path | None) -> Iterator[FileTables]:
        """See `SourceOpener`. The stores are opened when their queues are read."""
        yield FileTables(self, written)


@dataclass(frozen=True, slots=True)
class FileSource:
    """Opened stores, and the database table of their transactions, if one is given. See `Source`."""

    opened: Opened
    database: DatabaseOptions
    voice: Voice
    live: None = None

    @property
    def stores(self) -> list[Store]:
        """See `Source`."""
        return self.opened.stores

    @property
    def names(self) -> list[str]:
        """See `Source`."""
        return [store.root for store in self.stores]

    @property
    def arguments(self) -> str:
        """See `Source`."""
        return self.opened.arguments

    def settings_of(self, store: Store) -> BrokerSettings:
        """The settings of a store's broker."""
        return self.opened.settings_of(store)

    def pending(
        self, *, at_ms: int | None = None, scan: bool = False, with_causes: bool = True
    ) -> VerdictReading:
        """See `Source`."""
        table = read_database(self.database, self.stores)
        with shown("reading", self.voice) as progress:
            reading = pending(
                self.stores, self.opened.settings_of, at_ms=at_ms, scan=scan, progress=progress, with_causes=with_causes
            )
            rows = reading.table()
        reading.batches = with_entries(rows.to_batches(), table)
        return reading

    def show(
        self, identity: str, *, at_ms: int | None = None, scan: bool = False, with_causes: bool = True
    ) -> VerdictReading:
        """See `Source`."""
        table = read_database(self.database, self.stores)
        with shown("searching", self.voice) as progress:
            reading = show(
                self.stores, self.opened.settings_of, identity, scan=Scan.asked(at_ms, scan=scan),
                forms=NameForms.PLACES, progress=progress, with_causes=with_causes,
            )
        reading.batches = with_entries(reading.batches, table)
        return reading

    def lookup(self, ids: Sequence[str]) -> VerdictReading:
        """See `Source`."""
        return lookup(self.stores, self.opened.settings_of, ids)

    @contextmanager
    def audited(
        self, context: typer.Context, listing: MetaCarrier, engine: EngineOptions, provenance: ProvenanceOptions,
        at_ms: int | None, columns: Collection[str],
    ) -> Iterator[VerdictReading]:
        """See `Source`."""
        from rmqtx_cli.sources.engine_run import engine_run  # engines: look-ups need none

        with engine_run(context, "auditing", self.stores, listing, engine, provenance) as run:
            table = read_database(self.database, self.stores, run.engine)
            reading = run.engine.audit(
                self.stores, self.opened.settings_of, at_ms=at_ms, progress=run.progress,
                columns=columns if table is None else {*TRANSACTIONS.names, *columns},
            )
            reading.batches = with_entries(reading.batches, table)
            yield reading

    def add_provenance(self, context: typer.Context, listing: MetaCarrier) -> None:
        """See `Source`."""
        if listing.carries_meta:
            add_provenance(context, listing, self.stores)

    def record(self, store: str, commit_log_offset: int) -> bytes | None:
        """See `Source`."""
        with next(one for one in self.stores if one.root == store).log() as log:
            block = block_at(log, commit_log_offset)
        if block is None:
            return None
        begin = int(block.starts[0])
        return bytes(block.raw[begin : begin + int(block.lengths[0])])

    def surroundings(self) -> Sequence[TimelineSource]:
        """See `Source`."""
        return [StoreTimelineSource(one, self.opened.settings_of(one)) for one in self.stores]

    def describe(self) -> list[str]:
        """See `Source`."""
        return header_lines(self.opened)

    def conf_lines(self) -> list[str]:
        """See `Source`."""
        return conf_lines(map(self.opened.settings_of, self.stores))

    def check_queues(self) -> list[CheckQueue]:
        """See `Source`."""
        return [queue for store in self.stores for queue in check_queues_of_files(store)]

    def say_producers(self, rows: pa.Table) -> None:
        """See `Source`. Files do not show which producers are connected."""

    def present_conf(self, store: str) -> Mapping[str, str] | None:  # noqa: ARG002
        """See `Source`. Files do not have the settings of a running broker."""
        return None


@dataclass(frozen=True, slots=True)
class FileTables:
    """The half and op queues of stores. See `Tables`."""

    opener: FileOpener
    written: tuple[Path | None, ...]

    def halves(self, bounds: Bounds) -> list[Reading]:
        """See `Tables`."""
        return [with_lost_records(scan_halves(store, bounds), [store], bounds.to_offset) for store in self._opened()]

    def ops(self, bounds: Bounds) -> list[Reading]:
        """See `Tables`."""
        return [with_lost_records(scan_ops(store, bounds), [store], bounds.to_offset) for store in self._opened()]

    def _opened(self) -> list[Store]:
        stores = open_stores(self.opener.places, self.opener.options).stores
        for file in self.written:
            refuse_inside(file, stores)
        say_consistency(stores, self.opener.voice)
        return stores

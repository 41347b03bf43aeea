"""Where transactions are read from: stores in files, or live brokers. One port, and the choice between the two doors.

A door is chosen by what the command line names, and refuses what only the other one knows. What it leads to is asked
inside a `with` block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from readers.model.errors import BadRequest
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import RateOption, StoreOptions, VoiceOptions
from rmqtx_cli.sources.transaction_tables import DatabaseOptions
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from readers.model.reading import Reading
    from readers.store.store import Store
    from rmqtx_cli.options.bounds import Bounds
    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.options.options import ProvenanceOptions
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import View
    from verdicts.audit.timeline import TimelineSource
    from verdicts.model.reading import VerdictReading


class Source(Protocol):
    """Stores or brokers, opened."""

    @property
    def stores(self) -> list[Store]:
        """The stores, where these are files."""

    @property
    def names(self) -> list[str]:
        """What each store or broker is remembered by."""

    @property
    def arguments(self) -> str:
        """The options that name the same for a command on one transaction, as a shell takes them."""

    @property
    def live(self) -> str | None:
        """The same for live brokers; None for files."""

    def pending(self, *, at_ms: int | None = None, scan: bool = False) -> VerdictReading:
        """What hangs, all rows read."""

    def show(self, identity: str, *, at_ms: int | None = None, scan: bool = False) -> VerdictReading:
        """What became of one transaction."""

    def lookup(self, ids: Sequence[str]) -> VerdictReading:
        """What became of some transactions."""

    def audited(
        self, context: typer.Context, listing: Listing, engine: EngineOptions, provenance: ProvenanceOptions,
        at_ms: int | None,
    ) -> AbstractContextManager[VerdictReading]:
        """What became of all transactions; rows are read while the block lasts."""

    def add_provenance(self, context: typer.Context, listing: Listing) -> None:
        """Give a listing its custody, where its output carries one and there are files that it is of."""

    def surroundings(self) -> Sequence[TimelineSource]:
        """What stands around the witnesses in each store, or at each broker."""

    def say_producers(self, rows: pa.Table) -> None:
        """Say of which groups no producer is connected, where that can be known."""


class Tables(Protocol):
    """The queues of transactions, as they lie there."""

    def halves(self, bounds: Bounds) -> list[Reading]:
        """Half copies, store by store or broker by broker."""

    def ops(self, bounds: Bounds) -> list[Reading]:
        """Op messages, store by store or broker by broker."""


class Door(Protocol):
    """What is known before anything is opened."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of transactions."""

    @property
    def live(self) -> str | None:
        """The options that lead to the same live brokers; None for files."""

    def view(self, now_ms: int, *, with_state: bool, with_deadline: bool = False) -> View:
        """How transactions look in a table."""

    def opened(self, *written: Path | None) -> AbstractContextManager[Source]:
        """The stores or brokers, with a line about each. `written`: files that must not lie inside a store.

        Raises: BadRequest, NotAStore, UnreadableFile; Unreachable, NoAnswer, Refused.
        """

    def looked_up(self) -> AbstractContextManager[Source]:
        """What is opened only to look up some transactions. Raises: the same."""

    def tables(self, *written: Path | None) -> AbstractContextManager[Tables]:
        """Their queues. Raises: the same."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a command line says of stores and brokers, beside which stores."""

    files: StoreOptions = field(default_factory=StoreOptions)
    rate: RateOption = None
    voice: VoiceOptions = field(default_factory=VoiceOptions)
    database: DatabaseOptions = field(default_factory=DatabaseOptions)
    live: LiveOptions = field(default_factory=LiveOptions)

    def door(self, stores: Sequence[str], advice: str, files_only: Mapping[str, Any]) -> Door:
        """The way to what is named; see `chosen_door`."""
        return chosen_door(
            stores, self.live, self.files, self.voice, advice, rate=self.rate, database=self.database,
            files_only=files_only,
        )


def chosen_door(
    stores: Sequence[str], live: LiveOptions, files: StoreOptions, voice: Voice, advice: str, *,
    rate: float | None = None, database: DatabaseOptions | None = None, files_only: Mapping[str, Any] | None = None,
) -> Door:
    """The way to stores or to live brokers, of which exactly one must be named.

    `files_only`: options that live brokers have no use for, by what they are called.
    Raises: BadRequest, with the advice where both or neither is named, and for options that the other way knows.
    """
    from rmqtx_cli.sources.brokers import BrokerDoor
    from rmqtx_cli.sources.files import FileDoor

    database = database or DatabaseOptions()
    if not live.instead_of(stores, advice):
        if rate is not None:
            raise BadRequest("--max-requests-per-second is for live brokers", advice="name them with -n or --broker")
        return FileDoor(stores, files, database, voice)
    refuse_file_options(files, {**(files_only or {}), "--transaction-table": database.address})
    return BrokerDoor(live, voice, rate)


def refuse_file_options(files: StoreOptions, more: Mapping[str, Any] | None = None) -> None:
    """Refuse options that only files have a use for; `more`: further ones by name.

    Raises: BadRequest.
    """
    unfit = {
        **(more or {}), "--commitlog": files.commit_log, "--broker-conf": files.broker_conf,
        "--broker-version": files.broker_version,
    }
    for name, value in unfit.items():
        if value not in (None, False, [], ()):
            raise BadRequest(f"{name} is for files: live brokers report their own configuration and version")

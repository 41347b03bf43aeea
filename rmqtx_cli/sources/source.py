"""The interface for reading transactions from store files or live brokers, and the choice between the two.

A `SourceOpener` opens a `Source` for the duration of a `with` block: `FileOpener` store files, `BrokerOpener` live
brokers. The command line decides which of the two is used; each refuses options that only the other one supports.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rmqtx.readers.model.errors import BadRequest
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import ProvenanceOptions, StoreOptions, TracedStoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions, SourceOptions
from rmqtx_cli.sources.files import FileOpener
from rmqtx_cli.sources.opening import table_asked
from rmqtx_cli.words.say import Voice

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from rmqtx.readers.model.reading import Bounds, Reading
    from rmqtx.readers.store.store import Store
    from rmqtx.verdicts.audit.timeline import TimelineSource
    from rmqtx.verdicts.model.reading import VerdictReading
    from rmqtx_cli.options.engine import EngineOptions
    from rmqtx_cli.output.views import View
    from rmqtx_cli.sources.check_queues import CheckQueue
    from rmqtx_cli.sources.provenance import MetaCarrier


class Source(Protocol):
    """Stores or brokers, opened."""

    @property
    def stores(self) -> list[Store]:
        """The stores, where these are files."""

    @property
    def names(self) -> list[str]:
        """Names of the stores or brokers, the same in each run."""

    @property
    def arguments(self) -> str:
        """The options that open the same source for a command on one transaction, quoted for a shell."""

    @property
    def live(self) -> str | None:
        """The same options for live brokers; None for files."""

    def pending(
        self, *, at_ms: int | None = None, scan: bool = False, with_causes: bool = True
    ) -> VerdictReading:
        """The transactions that `rmqtx pending --all-open` lists, all rows read. `with_causes`: with that column."""

    def show(
        self, identity: str, *, at_ms: int | None = None, scan: bool = False, with_causes: bool = True
    ) -> VerdictReading:
        """One transaction by id, message id or key. `with_causes`: with that column."""

    def lookup(self, ids: Sequence[str]) -> VerdictReading:
        """Some transactions by id."""

    def audited(
        self, context: typer.Context, listing: MetaCarrier, engine: EngineOptions, provenance: ProvenanceOptions,
        at_ms: int | None, columns: Collection[str],
    ) -> AbstractContextManager[VerdictReading]:
        """All transactions; their rows are read inside the block. `columns`: those that are read."""

    def add_provenance(self, context: typer.Context, listing: MetaCarrier) -> None:
        """Add the provenance to a listing whose output contains one; live brokers have none."""

    def record(self, store: str, commit_log_offset: int) -> bytes | None:
        """The record at a commit-log offset of a store or broker, as in the log; None if it cannot be read."""

    def surroundings(self) -> Sequence[TimelineSource]:
        """For each store or broker the records, cursors and settings around the evidence, for timelines."""

    def describe(self) -> list[str]:
        """A line about each store or broker: its state and its version."""

    def conf_lines(self) -> list[str]:
        """A line for each line of the configuration of its brokers that they do not take as written."""

    def check_queues(self) -> list[CheckQueue]:
        """The half queue and the op queue of each store or broker, with the cursor of the check."""

    def say_producers(self, rows: pa.Table) -> None:
        """Print the groups without a connected producer; only live brokers can report that."""

    def present_conf(self, store: str) -> Mapping[str, str] | None:
        """Return the configuration that a broker reports now; None for files, and for a broker that is not read."""


class Tables(Protocol):
    """The half and op queues as they are stored."""

    def halves(self, bounds: Bounds) -> list[Reading]:
        """Half copies, store by store or broker by broker."""

    def ops(self, bounds: Bounds) -> list[Reading]:
        """Op messages, store by store or broker by broker."""


class SourceOpener(Protocol):
    """A source that is not opened yet: what is known of it before, and the ways to open it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of transactions."""

    @property
    def live(self) -> str | None:
        """The options that connect to the same live brokers; None for files."""

    def view(self, now_ms: int, *, with_state: bool, with_deadline: bool = False) -> View:
        """The view of transactions in a table."""

    def opened(self, *written: Path | None) -> AbstractContextManager[Source]:
        """Open the stores or brokers and print a line about each. `written`: files that must not be inside a store.

        Raises: BadRequest, NotAStore, UnreadableFile; Unreachable, NoAnswer, Refused.
        """

    def looked_up(self) -> AbstractContextManager[Source]:
        """Open the stores or brokers only to look up transactions. Raises: the same."""

    def tables(self, *written: Path | None) -> AbstractContextManager[Tables]:
        """Open their queues. Raises: the same."""


def opener_of(
    options: SourceOptions, stores: Sequence[str], advice: str, files_only: Mapping[str, Any]
) -> SourceOpener:
    """The opener of the given stores or brokers; see `chosen_opener`."""
    asked = AskedSource(stores, options.live, options.files, options.rate, options.database)
    return chosen_opener(asked, options.voice, advice, files_only)


@dataclass(frozen=True, slots=True)
class AskedSource:
    """The stores or the live brokers that a command line names, with the options of each."""

    stores: Sequence[str]
    live: LiveOptions
    files: StoreOptions
    rate: float | None = None
    database: DatabaseOptions = field(default_factory=DatabaseOptions)


def chosen_opener(
    asked: AskedSource, voice: Voice, advice: str, files_only: Mapping[str, Any] | None = None
) -> SourceOpener:
    """The opener of stores or of live brokers; exactly one of the two must be given.

    `files_only`: values of the options that live brokers do not support, by option name.
    Raises: BadRequest, with the advice where both or neither is given, and for options of the other one.
    """
    files = asked.files
    if not asked.live.instead_of(asked.stores, advice):
        if asked.rate is not None:
            raise BadRequest("--max-requests-per-second is for live brokers", advice="add -n or --broker")
        return FileOpener(asked.stores, files, asked.database, voice)
    refuse_file_options(files, {**(files_only or {}), "--transaction-table": table_asked(asked.database)})
    from rmqtx_cli.sources.brokers import BrokerOpener  # connections: files need none of them

    trace_topic = files.trace_topic if isinstance(files, TracedStoreOptions) else None
    return BrokerOpener(asked.live, voice, asked.rate, trace_topic)


def refuse_file_options(files: StoreOptions, more: Mapping[str, Any] | None = None) -> None:
    """Refuse options that only files have a use for; `more`: further ones by name. Raises: BadRequest."""
    unfit = {
        **(more or {}), "--commitlog": files.commit_log, "--broker-conf": files.broker_conf,
        "--broker-version": files.broker_version,
    }
    for name, value in unfit.items():
        if value not in (None, False, [], ()):
            raise BadRequest(f"{name} is for files, not for live brokers")

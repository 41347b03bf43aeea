"""Opens the stores that the arguments name, and prints a line about the consistency of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rmqtx.api.opening import given_settings, opened_stores
from rmqtx.readers.model.shell_words import quoted
from rmqtx.readers.store.broker_conf import conf_notes, read_broker_conf
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.outputs import refuse_inside as refuse_inside
from rmqtx.readers.store.store import Store
from rmqtx.readers.store.store_roots import unnamed_logs
from rmqtx_cli.options.options import StoreOptions, TracedStoreOptions
from rmqtx_cli.options.source_options import DatabaseOptions
from rmqtx_cli.words import say
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from rmqtx.readers.old_tables.transaction_table import TransactionTable
    from rmqtx.readers.store.store import Store
    from rmqtx_cli.sources.database_table import DatabaseTable
    from rmqtx_cli.sources.engine_port import StoreEngine


@dataclass(frozen=True, slots=True)
class Opened:
    """Opened stores, and a function that returns the broker settings of each."""

    stores: list[Store]
    settings_of: Callable[[Store], BrokerSettings]

    @property
    def names(self) -> str:
        """The roots of the stores, quoted for a shell."""
        return " ".join(quoted(store.root) for store in self.stores)

    @property
    def arguments(self) -> str:
        """The stores as `--store` options, quoted for a shell."""
        return " ".join(f"--store {quoted(store.root)}" for store in self.stores)


def open_stores(paths: Sequence[str | os.PathLike[str]], files: StoreOptions | None = None) -> Opened:
    """The stores at the paths, URIs and patterns, each once.

    Raises: NotAStore, UnreadableFile for the first path without a store; BadRequest for `--commitlog` with several.
    """
    files = files or StoreOptions()
    trace_topic = files.trace_topic if isinstance(files, TracedStoreOptions) else None
    settings = given_settings(files.broker_conf, files.broker_version, files.commit_log or (), trace_topic)
    stores, settings_of = opened_stores(paths, settings)
    return Opened(stores, settings_of)


def consistency(store: Store) -> str:
    """The state of the store while it is read, in a few words: copy, in use, stopped cleanly or not."""
    taken = time_text(store.taken_time_ms)
    if store.is_remote:  # a copied lock file proves nothing
        ended = "ran, or had not stopped cleanly" if store.aborted else "had stopped cleanly"
        return f"a copy as of {taken}, not locked here; when it was copied, the broker {ended}"
    if store.in_use and not store.broker_runs:
        return f"in use by another rmqtx: a snapshot of {taken}"
    if store.in_use:
        return f"the broker is running (process {store.used_by_process}): a snapshot of {taken}"
    if store.aborted and not store.was_killed:
        return "changed by rmqtx, which left the file abort: the next start recovers the log"
    if store.aborted:
        return "the broker did not stop cleanly"
    if not store.commit_log:
        options = unnamed_logs(store.files, store.root)
        advice = "" if options is None else f" - add {options}"
        return f"no commit log: no transaction can be read{advice}"
    return "stopped cleanly" if store.has_clean_end else "no checkpoint: unknown whether the broker stopped cleanly"


def say_consistency(stores: Sequence[Store], voice: say.Voice) -> None:
    """Print one line about each store, without broker settings."""
    for store in stores:
        voice.note(f"{store.root}: {consistency(store)}")


def say_header(opened: Opened, voice: say.Voice) -> None:
    """Print one line about each store: consistency and broker version, with --verbose all settings."""
    for line in header_lines(opened, verbose=voice.verbose):
        voice.note(line)


def header_lines(opened: Opened, *, verbose: bool = False) -> list[str]:
    """A line about each store: consistency and broker version; `verbose`: all settings. Then those of `conf_lines`."""
    lines = []
    for store in opened.stores:
        settings = opened.settings_of(store)
        known = settings.describe() if verbose else settings.describe_briefly()
        lines.append(f"{store.root}: {consistency(store)}; {known}")
    return lines + conf_lines(map(opened.settings_of, opened.stores))


def conf_lines(settings: Iterable[BrokerSettings], *, is_reported: bool = False) -> list[str]:
    """A line for each line of broker.conf that the brokers do not take as written, with the value in force.

    `is_reported`: the brokers report it themselves.
    """
    given = (one for one in settings if one.given)
    return list(dict.fromkeys(note for one in given for note in conf_notes(one, is_reported=is_reported)))


def say_conf_notes(stores: Sequence[Store], files: StoreOptions, voice: say.Voice) -> None:
    """Print the lines of `conf_lines` for stores with the given configuration."""
    if files.broker_conf is not None:
        conf = read_broker_conf(files.broker_conf)
        for line in conf_lines(broker_settings(store, conf=conf, version=files.broker_version) for store in stores):
            voice.note(line)


def table_asked(options: DatabaseOptions) -> DatabaseTable | None:
    """Return the table that the options name; None without --transaction-table.

    Raises: BadRequest for a user or password in the address, and for the other options without a table.
    """
    if options == DatabaseOptions():  # as nearly always
        return None
    from rmqtx_cli.sources.database_table import DatabaseTable

    return DatabaseTable.of(options)


def read_database(
    options: DatabaseOptions, stores: Sequence[Store], engine: StoreEngine | None = None
) -> TransactionTable | None:
    """Return the rows of the table, which belongs to one broker; None without --transaction-table.

    Raises: BadRequest, UnreadableFile.
    """
    table = table_asked(options)
    return None if table is None else table.read(stores, engine)


def with_entries(batches: Iterable[pa.RecordBatch], table: TransactionTable | None) -> Iterator[pa.RecordBatch]:
    """The same transactions with their entries of the table; unchanged without a table."""
    if table is None:
        yield from batches
        return
    for batch in batches:
        yield table.with_entries(batch)

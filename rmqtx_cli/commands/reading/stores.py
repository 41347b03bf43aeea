"""`rmqtx stores`: list stores and their properties."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, NotAStore, SourceError
from rmqtx.readers.storage.file_systems import expand, files_of
from rmqtx.readers.storage.places import FileSystem, joined, unreadable
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.readers.store.store_roots import is_below_others_without_log, log_directories
from rmqtx_cli.commands.declared.survey import StoresCommand
from rmqtx_cli.options.configuration import configuration
from rmqtx_cli.options.options import OutputFormat, StoreOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.streams import open_stream
from rmqtx_cli.pages.stores_table import (
    STORES,
    STORES_VIEW,
    StoreRow,
    compared_copies,
    draw_stores,
    is_doubt,
    is_incomplete,
    store_row,
    stores_table,
)
from rmqtx_cli.sources.opening import refuse_inside, say_conf_notes
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice


def run(options: StoresCommand) -> int:
    """Run the command; return its exit status."""
    paths = options.paths
    paths = paths or _configured(options.voice)
    if options.files.commit_log and len(paths) > 1:
        raise BadRequest("--commitlog is for one store, and several paths are given")
    listing = Listing(STORES, STORES_VIEW, options.output, options.where, voice=options.voice)
    conf = None if options.files.broker_conf is None else read_broker_conf(options.files.broker_conf)
    stores, worst = _found(paths, options.files)
    if not stores:
        return exit_status.UNREADABLE
    refuse_inside(options.output.output, stores)
    say_conf_notes(stores, options.files, options.voice)
    pairs = [
        store_row(store, broker_settings(store, conf=conf, version=options.files.broker_version)) for store in stores
    ]
    findings = [*compared_copies([row for row, _ in pairs], stores), *(one for _, found in pairs for one in found)]
    _write([row for row, _ in pairs], listing)
    options.voice.findings(findings)
    if worst:
        return worst
    if any(map(is_doubt, findings)) or any(is_incomplete(row) for row, _ in pairs):
        return exit_status.INCOMPLETE
    return exit_status.DONE


def _write(rows: list[StoreRow], listing: Listing) -> None:
    """Draw the stores for people, unless a format, columns or a condition is asked for."""
    if listing.format is OutputFormat.TABLE and listing.asked.fields is None and listing.where is None:
        with open_stream(listing.asked.output) as stream:
            draw_stores(rows, stream)
    else:
        listing.write(iter(stores_table(rows).to_batches()))


def _found(paths: list[str], files: StoreOptions) -> tuple[list[Store], int]:
    """Return the stores at and below some paths, and the status of what could not be read, which is printed."""
    stores: list[Store] = []
    worst = exit_status.DONE
    for path in paths:
        try:
            for place in expand([path]):
                found, refused = stores_below(place, tuple(files.commit_log or ()))
                stores += found
                for error in refused:
                    say.error(str(error))
                    worst = max(worst, exit_status.INCOMPLETE)
        except SourceError as error:
            say.error(str(error))
            worst = exit_status.UNREADABLE
    return stores, worst


def _configured(voice: Voice) -> list[str]:
    """Return the places of the stores in the configuration file. Raises: BadRequest if it contains none."""
    known = configuration()
    if not known.stores:
        raise BadRequest("no store given", advice="rmqtx stores PATH; or name stores in ~/.config/rmqtx/config.toml")
    for name, place in known.stores.items():
        voice.note(f"{name}: {place}")
    return list(known.stores.values())


_DEPTH_MAX = 6
#: Directories inside a store, which contain no other store.
_INSIDE = frozenset({"consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config"})


def stores_below(place: str, commit_logs: tuple[str, ...] = ()) -> tuple[list[Store], list[SourceError]]:
    """The store at a place, or all stores below it, and why others below it cannot be read.

    Order: by path. Links are not followed, so that no store is found twice.
    Raises: NotAStore if there is none; UnreadableFile if the place cannot be read.
    """
    try:
        return [open_store(place, commit_logs)], []
    except NotAStore:
        stores: list[Store] = []
        refused: list[SourceError] = []
        for root in _roots(files_of(place, time.time_ns()), place, _DEPTH_MAX, refused):
            try:
                stores.append(open_store(root))
            except SourceError as error:
                refused.append(error)
        if not stores and not refused:
            raise
        return stores, refused


def _roots(files: FileSystem, directory: str, depth: int, refused: list[SourceError]) -> Iterator[str]:
    try:
        names = [entry.name for entry in files.entries(directory) if entry.is_directory and not entry.is_link]
        is_root = bool(log_directories(files, directory, names)) or is_below_others_without_log(files, directory)
    except (FileNotFoundError, NotADirectoryError):  # also a directory that was removed meanwhile
        return
    except OSError as error:
        refused.append(unreadable(directory, error))
        return
    except SourceError as error:
        refused.append(error)
        return
    if is_root:
        yield directory
        return
    if depth == 0:
        return
    for name in names:
        if name not in _INSIDE:
            yield from _roots(files, joined(directory, name), depth - 1, refused)

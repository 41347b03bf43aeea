"""From arguments to stores: opens what was named, finds what lies below, and says how consistent the reading is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from readers.model.errors import BadRequest
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.words import say
from rmqtx_cli.words.times import time_text

if TYPE_CHECKING:
    from readers.store.broker_settings import BrokerSettings
    from readers.store.store import Store


@dataclass(frozen=True, slots=True)
class Opened:
    """Stores that were opened, and where each one's broker settings come from."""

    stores: list[Store]
    settings_of: Callable[[Store], BrokerSettings]

    @property
    def names(self) -> str:
        """The stores as a shell takes them."""
        import shlex

        return " ".join(shlex.quote(store.root) for store in self.stores)

    @property
    def arguments(self) -> str:
        """The options that name the stores for a command on one transaction, as a shell takes them."""
        import shlex

        return " ".join(f"--store {shlex.quote(store.root)}" for store in self.stores)


def open_stores(paths: Sequence[str | os.PathLike[str]], files: StoreOptions | None = None) -> Opened:
    """The stores at the paths, URIs and patterns, each once.

    Raises: NotAStore, UnreadableFile for the first that is none; BadRequest for `--commitlog` with several stores.
    """
    from readers.storage.file_systems import expand
    from readers.storage.places import identity_of
    from readers.store.broker_conf import read_broker_conf
    from readers.store.broker_settings import broker_settings
    from readers.store.store import open_store

    files = files or StoreOptions()
    directories = tuple(files.commit_log or ())
    places = expand(paths)
    if directories and len(places) > 1:
        raise BadRequest("--commitlog says where one store's log is, and several stores are given")
    distinct = {identity_of(place): place for place in places}
    stores = [open_store(place, directories) for place in distinct.values()]
    conf = None if files.broker_conf is None else read_broker_conf(files.broker_conf)
    found: dict[str, BrokerSettings] = {}

    def settings_of(store: Store) -> BrokerSettings:
        if store.root not in found:
            found[store.root] = broker_settings(store, conf=conf, version=files.broker_version)
        return found[store.root]

    return Opened(stores, settings_of)


def consistency(store: Store) -> str:
    """How the store stood while it was read, in a few words."""
    taken = time_text(store.taken_time_ms)
    if store.is_remote:  # its lock is a file like any other
        ended = "its broker ran, or had not stopped cleanly" if store.aborted else "its broker had stopped cleanly"
        return f"a copy as of {taken}, not locked here; when it was copied, {ended}"
    if store.in_use and store.used_by_process == -1:  # a lock that belongs to an open file: no broker takes such a one
        return f"another rmqtx works on it: a snapshot of {taken}"
    if store.in_use:
        return f"its broker runs (process {store.used_by_process}): a snapshot of {taken}"
    if store.aborted:
        return "its broker did not stop cleanly"
    return "stopped cleanly" if store.commit_log else "there is no commit log, so no transaction can be seen"


def say_consistency(stores: Sequence[Store], voice: say.Voice) -> None:
    """One line per store, for what asks no broker's settings."""
    for store in stores:
        voice.note(f"{store.root}: {consistency(store)}")


def say_header(opened: Opened, voice: say.Voice) -> None:
    """One line per store: how consistent the reading is, which broker wrote it, and its settings with --verbose.

    What is not the default of its release stands there in any case.
    """
    for store in opened.stores:
        settings = opened.settings_of(store)
        known = settings.describe() if voice.verbose else settings.describe_briefly()
        voice.note(f"{store.root}: {consistency(store)}; {known}")


def refuse_inside(output: Path | None, stores: Sequence[Store]) -> None:
    """Nothing is ever written into a store: one stray file in commitlog/ keeps a broker from starting.

    Raises: BadRequest.
    """
    if output is None or str(output) == "-":
        return
    from readers.storage.places import is_uri

    target = Path(os.path.realpath(output))
    for store in stores:
        for directory in (store.root, *store.commit_log_directories):
            if not is_uri(directory) and target.is_relative_to(os.path.realpath(directory)):
                raise BadRequest(f"{output} lies inside the store {store.root}", advice="write it somewhere else")

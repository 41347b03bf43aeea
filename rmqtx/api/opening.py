"""Opens the stores that paths name, each once, with the settings of their brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.storage.places import identity_of
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_all

Paths = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What is given beside the paths.

    Shape: `conf`: the configuration of the broker; None if it is not given; `conf_file`: its file.
    """

    conf: Mapping[str, str] | None = None
    broker_version: str | None = None
    commit_log: tuple[str, ...] = ()
    trace_topic: str | None = None
    conf_file: str | None = None

    def asked(self) -> dict[str, object]:
        """The settings as options of a command, for the provenance of a plan."""
        given = {
            "broker_conf": self.conf_file, "broker_version": self.broker_version, "commit_log": list(self.commit_log),
        }
        return {name: value for name, value in given.items() if value}


def given_settings(
    broker_conf: Paths | None, broker_version: str | None, commit_log: Sequence[Paths], trace_topic: str | None
) -> StoreSettings:
    """Return what is given beside the paths, with the contents of `broker_conf`. Raises: UnreadableFile, BadText."""
    conf = None if broker_conf is None else read_broker_conf(Path(broker_conf))
    conf_file = None if broker_conf is None else fspath(broker_conf)
    return StoreSettings(conf, broker_version, tuple(fspath(place) for place in commit_log), trace_topic, conf_file)


def opened_stores(
    paths: Sequence[Paths], settings: StoreSettings
) -> tuple[list[Store], Callable[[Store], BrokerSettings]]:
    """Return the stores at paths, URIs and patterns, each once, and a function that returns the settings of each.

    Raises: NotAStore, UnreadableFile for the first path without a store; BadRequest for `commit_log` with several.
    """
    places = expand(paths)
    if settings.commit_log and len(places) > 1:
        raise BadRequest("--commitlog is for one store, and several are given")
    distinct = {identity_of(place): place for place in places}
    stores = open_all(list(distinct.values()), settings.commit_log)
    if settings.trace_topic is not None:
        stores = [replace(store, trace_topic=settings.trace_topic) for store in stores]
    found: dict[str, BrokerSettings] = {}

    def settings_of(store: Store) -> BrokerSettings:
        if store.root not in found:
            found[store.root] = broker_settings(store, conf=settings.conf, version=settings.broker_version)
        return found[store.root]

    return stores, settings_of

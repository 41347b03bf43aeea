"""From the options of a query to stores: globs expanded, each store once, and where its broker's settings come from."""

from __future__ import annotations

from dataclasses import dataclass, field

from readers.model.errors import BadRequest
from readers.storage.file_systems import expand
from readers.storage.places import identity_of
from readers.store.broker_conf import read_broker_conf
from readers.store.broker_settings import BrokerSettings, broker_settings
from readers.store.store import Store, open_store
from spark_tasks.source.read_options import ReadOptions


def opened(options: ReadOptions) -> list[Store]:
    """A snapshot of each store that the options name. Reads directories, no file of a log.

    Order:  as named; what a pattern names by name.
    Raises: NotAStore, UnreadableFile; BadRequest for `commitlog` with several stores.
    """
    roots = {identity_of(path): path for path in expand(options.paths)}
    if options.commit_logs and len(roots) > 1:
        raise BadRequest("option 'commitlog' says where one store's log is, and several stores are given")
    return [open_store(path, options.commit_logs) for path in roots.values()]


@dataclass
class Settings:
    """The settings of each store's broker, as `verdicts.audit.local_audit.audit` asks for them; survives pickling."""

    options: ReadOptions
    _found: dict[str, BrokerSettings] = field(default_factory=dict)

    def __call__(self, store: Store) -> BrokerSettings:
        """The settings of one store's broker."""
        if store.root not in self._found:
            conf = None if self.options.broker_conf is None else read_broker_conf(self.options.broker_conf)
            self._found[store.root] = broker_settings(store, conf=conf, version=self.options.broker_version)
        return self._found[store.root]

"""Open the stores of a query's options: patterns expanded, each store once, with its broker's settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.storage.file_systems import expand
from rmqtx.readers.storage.places import identity_of
from rmqtx.readers.store.broker_conf import read_broker_conf
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_all
from rmqtx.spark_tasks.source.read_options import ReadOptions


def opened(options: ReadOptions) -> list[Store]:
    """Return a snapshot of each store in the options. Reads directories, no file of a log.

    Order:  as given; the matches of a pattern by name.
    Raises: NotAStore, UnreadableFile; BadRequest for `commitlog` with several stores.
    """
    roots = {identity_of(path): path for path in expand(options.paths)}
    if options.commit_logs and len(roots) > 1:
        raise BadRequest("option 'commitlog' is for one store, and several stores are given")
    return open_all(list(roots.values()), options.commit_logs)


@dataclass
class Settings:
    """Returns the settings of each store's broker, for `rmqtx.verdicts.audit.local_audit.audit`; it can be pickled."""

    options: ReadOptions
    _found: dict[str, BrokerSettings] = field(default_factory=dict)

    def __call__(self, store: Store) -> BrokerSettings:
        """Return the settings of one store's broker."""
        if store.root not in self._found:
            conf = None if self.options.broker_conf is None else read_broker_conf(self.options.broker_conf)
            self._found[store.root] = broker_settings(store, conf=conf, version=self.options.broker_version)
        return self._found[store.root]

"""What live brokers say over the wire is what their files say: stores of the corpus, each served by its own version.

The broker is held still (its check never comes to run) while both readings are made. `RMQTX_BROKER_VERSIONS` names the
versions (default: one), `RMQTX_LIVE_STORES` the stores of the corpus that each of them serves.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqtx.readers.model.tables import FUTURE_COLUMNS
from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.connections.client import Client
from rmqtx.remoting.live import lookups as live_lookups
from rmqtx.verdicts.audit import lookups
from rmqtx.verdicts.audit.local_audit import audit
from tests.brokers import corpus, maven
from tests.brokers.rig import Rig
from tests.brokers.test_live import VERSIONS

WHY_NOT = maven.why_not()
STORES = os.environ.get("RMQTX_LIVE_STORES", "killed").split()
#: No check, no expiry.
STILL = {"transactionCheckInterval": "100000000", "fileReservedTime": "1000000"}
OF_THIS_MACHINE = ("storePathRootDir", "storePathCommitLog", "namesrvAddr", "listenPort")

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

Row = dict[str, Any]


@dataclass
class Served:
    """A store of the corpus with its broker."""

    broker: Broker
    store: Store
    settings: BrokerSettings

    def settings_of(self, _store: Store) -> BrokerSettings:
        return self.settings


@contextmanager
def served(name: str, out: Path) -> Iterator[Served]:
    recipe = corpus.recipe(name)
    corpus.unpack(name, out)
    conf = {key: value for key, value in recipe["broker_conf"].items() if key not in OF_THIS_MACHINE} | STILL
    with Rig(recipe["version"], out, conf) as rig, Client() as client:
        rig.start_names()
        rig.start_broker()
        store = open_store(str(rig.store))
        settings = broker_settings(store, conf=rig.full_conf(), version=recipe["version"])
        yield Served(Broker(client, rig.address, "broker-a", "rmqtx", 0), store, settings)


def comparable(rows: list[Row], root: str) -> list[Row]:
    """Rows without what only one of the two can say: who is asked, what is alive, what a broker may still hold back."""
    plain = []
    for row in rows:
        left_out = ("producer_alive", "asked_through", *FUTURE_COLUMNS, "causes")
        kept = {name: value for name, value in row.items() if name not in left_out}
        kept["reason"] = re.sub(r"; a rollback of the last [^;]* in the broker's memory", "", row["reason"])
        plain.append(json.loads(json.dumps(kept).replace(json.dumps(root)[1:-1], "ROOT")))
    return plain


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_live_broker_gives_the_rows_of_its_files(kind: str, version: str, tmp_path: Path) -> None:
    name = f"{kind}-{version}"
    if name not in corpus.corpus_names():
        pytest.skip(f"the corpus has no {name}")
    with served(name, tmp_path) as one:
        root = str(one.store.root)
        files = comparable(audit([one.store], one.settings_of).table().to_pylist(), root)
        live = live_lookups.audit([one.broker])
        assert comparable(live.table().to_pylist(), one.broker.root) == files
        assert [finding.line() for finding in live.findings] == []
        pending = live_lookups.pending([one.broker]).table().to_pylist()
        in_files = lookups.pending([one.store], one.settings_of).table().to_pylist()
        assert comparable(pending, one.broker.root) == comparable(in_files, root)
        assert len(pending) == sum(row["state"] == "PENDING" or row["advice"] in ("close", "wait") for row in files)
        assert files
        ids = [row["transaction_id"] for row in files]
        found = comparable(live_lookups.lookup([one.broker], ids).table().to_pylist(), one.broker.root)
        assert sorted(found, key=str) == sorted(files, key=str)
        for row in files[::10]:
            shown = live_lookups.show([one.broker], row["transaction_id"]).table().to_pylist()
            assert comparable(shown, one.broker.root) == [row]

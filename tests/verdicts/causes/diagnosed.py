"""What `rmqtx diagnose` finds in the stores of the corpus."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.causes.cause import PROVES
from rmqtx.verdicts.causes.diagnosing import Diagnosis
from rmqtx.verdicts.causes.evidence import NEEDED_COLUMNS, Evidence
from rmqtx.verdicts.causes.strengths import CAUSES
from tests.brokers import corpus
from tests.forge.stores import opened

#: Stores whose broker's configuration is given: a cause needs it.
CONFIGURED = ("pool-", "oplate-")


def settings_of(store: Store, name: str, version: str | None = None) -> BrokerSettings:
    """The settings of the broker of a store of the corpus."""
    conf = corpus.recipe(name)["broker_conf"] if name.startswith(CONFIGURED) else None
    return broker_settings(store, conf=conf, version=version)


def diagnosis_of(store: Store, settings: BrokerSettings, **options: Any) -> Diagnosis:
    """The causes found in a store. `options`: of the audit."""
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS, **options)
    found = Diagnosis(reading.evidence)
    for batch in reading:
        found.add(batch)
    return found


def diagnosed(name: str, version: str | None = None) -> tuple[Diagnosis, list[dict[str, Any]]]:
    """The causes found in a store of the corpus, and the rows of the table of causes."""
    store = opened(name)
    found = diagnosis_of(store, settings_of(store, name, version))
    return found, found.table().to_pylist()


def strengths(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """The number of transactions of each cause with each strength."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        found[row["cause"]][row["strength"]] = row["transactions_count"]
    return found


def version_of(name: str) -> str | None:
    """The release that wrote a store of the corpus; None where several did."""
    return None if name.startswith(("upgraded-", "downgraded-")) else corpus.recipe(name)["version"]


def proven(word: str, name: str) -> list[dict[str, Any]]:
    """The transactions whose records prove a cause, with their plans."""
    store = opened(name)
    settings = settings_of(store, name)
    reading = audit([store], lambda _: settings, columns=NEEDED_COLUMNS)
    rows = reading.table()
    plans = {row["transaction_id"]: row["plan"] for row in corpus.expected(name)}
    chosen = CAUSES[word].rule(Evidence(rows, reading.evidence)) == PROVES
    return [row | {"plan": plans[row["transaction_id"]]} for row in rows.filter(pa.array(chosen)).to_pylist()]

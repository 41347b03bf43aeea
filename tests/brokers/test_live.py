"""A broker started for the occasion, with a seed that the corpus does not have: what it did is what is found.

`RMQTX_BROKER_VERSIONS` names the versions (default: one; `make test-brokers` runs all), `RMQTX_BROKER_SEED` the seed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from tests.brokers import make, maven, recipes
from tests.brokers.script import Script, Stop
from tests.verdicts.truth import differences

VERSIONS = os.environ.get("RMQTX_BROKER_VERSIONS", "5.3.3").split()
SEED = int(os.environ.get("RMQTX_BROKER_SEED", "7041"))
WHY_NOT = maven.why_not()
#: A broker that is killed is for where versions are named (`make test-brokers`); the corpus has stores of such.
STOPS: list[Stop] = ["clean", "kill"] if "RMQTX_BROKER_VERSIONS" in os.environ else ["clean"]

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_fresh_store_is_judged_as_its_client_saw_it(version: str, stop: Stop, tmp_path: Path) -> None:
    histories = recipes.common(version) if stop == "clean" else recipes.halved(recipes.common(version))
    live = make.live(Script(version, SEED, histories, stop=stop), tmp_path)
    print(f"{version}, {stop}, seed {SEED}: {len(live.rows)} transactions")
    store = open_store(live.store)

    def settings(store: Store) -> BrokerSettings:
        return broker_settings(store, conf=live.broker_conf, version=version)

    found = audit([store], settings).table().to_pylist()
    rows = {row["transaction_id"]: row for row in found}
    wrong = {
        f"{wanted['plan']} {wanted['transaction_id']}": told
        for wanted in live.rows
        if (told := differences(rows.get(wanted["transaction_id"]), wanted))
    }
    assert wrong == {}
    assert sorted(set(rows) - {wanted["transaction_id"] for wanted in live.rows}) == []
    listed = pending([store], settings).table().to_pylist()
    assert listed == [row for row in found if row["state"] == "PENDING" or row["advice"] in ("close", "wait")]

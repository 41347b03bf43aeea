"""What `verify --start-with` predicts of the open transactions of a store, and what a broker of that release does."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.other_release import UNSEEN, with_release
from rmqtx.verdicts.model.verdict_words import NextEvent
from tests.brokers import corpus, maven
from tests.brokers.rig import Rig
from tests.brokers.starts.compare import OF_THIS_MACHINE
from tests.cli.test_start_with import PAIRS
from tests.representatives import rest_is_slow

WHY_NOT = maven.why_not()
MORE = [
    ("common-4.9.7", "5.3.3"), ("common-4.9.7", "4.4.0"), ("common-4.4.0", "4.9.7"), ("common-4.3.0", "5.1.4"),
    ("common-5.3.3", "5.1.4"), ("common-5.1.4", "5.5.0"),
]
PLAYED = [*((name, version) for name, version, _ in PAIRS), *MORE]
#: Everything is checked as soon as a round comes, nothing is discarded.
CHECKING = {
    "transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "1000000",
    "fileReservedTime": "1000000", "transactionMetricFlushInterval": "100000",
}
ROUNDS_SECONDS = 12

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]


def copies(root: Path, conf: dict[str, str], version: str | None) -> dict[str, int]:
    """The number of half copies of each transaction of a store."""
    def settings(store: Store) -> BrokerSettings:
        return broker_settings(store, conf=conf, version=version, is_next=version is not None)

    rows = audit([open_store(root)], settings).table().to_pylist()
    return {row["transaction_id"]: len(row["half_copies"]) for row in rows}


@pytest.mark.parametrize(("name", "version"), rest_is_slow(PLAYED, quick=1, slow=0))
def test_a_broker_of_another_release_does_what_was_predicted(name: str, version: str, tmp_path: Path) -> None:
    root = corpus.unpack(name, tmp_path)
    conf = {k: v for k, v in corpus.recipe(name)["broker_conf"].items() if k not in OF_THIS_MACHINE} | CHECKING
    store = open_store(root)
    own = broker_settings(store, conf=conf)
    other = broker_settings(store, conf=conf, version=version, is_next=True)
    assert other.version_low is not None
    found = with_release(store, own, other, other.version_low)
    counts = {theirs: sum(n for (_, one), n in found.counts.items() if one == theirs) for _, theirs in found.counts}
    before = copies(root, conf, None)
    with Rig(version, tmp_path, conf) as rig:
        rig.start_broker()
        time.sleep(ROUNDS_SECONDS)
        rig.stop("broker")
    after = copies(root, conf, version)
    put_back = {one for one, count in after.items() if count > before.get(one, 0)}
    print(f"{name} with {version}: predicted {counts}, put back {len(put_back)}")
    shutil.rmtree(root)
    assert found.is_known
    assert len(put_back) == counts.get(NextEvent.ASKED, 0)
    assert counts.get(UNSEEN, 0) == 0 or not put_back

"""While a 5.5.0 with transactions in RocksDB runs, `pending` reads its store again and again: right, and unnoticed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest

from rmqtx.readers.store.broker_settings import BrokerSettings, broker_settings
from rmqtx.readers.store.store import Store, open_store
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.audit.lookups import pending
from tests.brokers import maven
from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB, RocksPlay
from tests.brokers.script import Script

pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
WHY_NOT = maven.why_not()

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

READS = 10
OF_A_DATABASE = ("CURRENT", "IDENTITY", "LOCK", "LOG", "MANIFEST", "OPTIONS", ".sst", ".log", ".dbtmp")


def test_pending_beside_a_running_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = tmp_path / "temporary"
    folders.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    conf = {**TRANSACTIONS_IN_ROCKSDB, "transactionTimeOut": "600000"}  # nothing is checked, so nothing dropped
    play, rng = RocksPlay(Script("5.5.0", 7, {}, conf=conf, design="rocksdb"), tmp_path), Random(7)

    def settings(store: Store) -> BrokerSettings:
        return broker_settings(store, conf={name: str(value) for name, value in play.rig.conf.items()})

    with play.rig:
        play.rig.start_names()
        play.boot()
        ended = play.send_all("commit", 4, rng, first="COMMIT") + play.send_all("rollback", 3, rng, first="ROLLBACK")
        waiting = play.send_all("pending", 5, rng)
        play.until_delivered(ended[:4])
        play.settle()
        for number in range(READS):
            store = open_store(play.rig.store)
            assert store.in_use
            reading = pending([store], settings)
            rows = reading.table().to_pylist()
            assert sorted(row["transaction_id"] for row in rows) == sorted(one.id for one in waiting)
            assert {row["state"] for row in rows} == {"PENDING"}
            assert [found.line() for found in reading.findings if found.kind.severity == "error"] == []
            if number == READS // 2:
                waiting += play.send_all("pending", 2, rng)
                play.settle()
        assert play.agent.failed == []
        names = {path.name for path in (play.rig.store / "rocksdbstore").iterdir()}
        assert {name for name in names if not any(part in name for part in OF_A_DATABASE)} == set()
        assert list(folders.glob("rmqtx-rocksdb-*")) == []
        play.halt("clean")
    rows = audit([open_store(play.rig.store)], settings).table().to_pylist()
    states = {row["transaction_id"]: row["state"] for row in rows}
    wanted = dict.fromkeys((one.id for one in ended[:4]), "COMMITTED")
    wanted |= dict.fromkeys((one.id for one in ended[4:]), "ROLLED_BACK")
    assert states == wanted | dict.fromkeys((one.id for one in waiting), "PENDING")

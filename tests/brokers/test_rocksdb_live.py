"""A running 5.5.0 with transactions in RocksDB, and its store read again and again beside it: nobody notices."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from rmqtx.readers.log.commit_log import scan_records
from rmqtx.readers.rocksdb.rocksdb_transactions import rocksdb_entries
from rmqtx.readers.store.store import open_store
from tests.brokers import maven
from tests.brokers.rocks_stage import ROCKSDB_HALF_TOPIC, TRANSACTIONS_IN_ROCKSDB, RocksPlay
from tests.brokers.script import Script

pytest.importorskip("rocksdict", reason="rocksdict is not installed: pip install 'rmqtx[rocksdb]'")
WHY_NOT = maven.why_not()

pytestmark = [pytest.mark.broker, pytest.mark.skipif(WHY_NOT is not None, reason=f"no broker can be run: {WHY_NOT}")]

READS = 30
IS_SHORT = "RMQTX_ROCKSDB_VERSIONS" not in os.environ
OF_A_DATABASE = ("CURRENT", "IDENTITY", "LOCK", "LOG", "MANIFEST", "OPTIONS", ".sst", ".log", ".dbtmp")


@pytest.mark.skipif(IS_SHORT, reason="takes too long for every day beside test_pending_in_rocksdb: make test-brokers")
def test_a_store_in_use_is_read_repeatedly_and_undisturbed(tmp_path: Path) -> None:
    script = Script("5.5.0", 7, {}, conf=TRANSACTIONS_IN_ROCKSDB, design="rocksdb")
    play, rng = RocksPlay(script, tmp_path), Random(7)
    with play.rig:
        play.rig.start_names()
        play.boot()
        committed = play.send_all("commit", 4, rng, first="COMMIT")
        waiting = play.send_all("pending", 5, rng)
        lengths = []
        for number in range(READS):
            store = open_store(play.rig.store)
            assert store.in_use
            found = rocksdb_entries(store)
            assert found.findings == []
            assert not found.is_complete  # what is new is in the broker's memory
            rows = scan_records(store, columns=["commit_log_offset", "topic"], topic=ROCKSDB_HALF_TOPIC).table()
            lengths.append(rows.num_rows)
            if number % 10 == 5:
                committed.append(play.send("commit", number + 100, rng, first="COMMIT"))
        play.until_delivered(committed)
        assert lengths == sorted(lengths)
        assert lengths[0] >= len(waiting)
        names = {path.name for path in (play.rig.store / "rocksdbstore").iterdir()}
        assert {name for name in names if not any(part in name for part in OF_A_DATABASE)} == set()
        assert play.agent.failed == []
        play.halt("clean")
    store = open_store(play.rig.store)
    found = rocksdb_entries(store)
    assert found.entries is not None
    assert found.is_complete
    dropped = {one.case for one in waiting if one.discards}
    wanted = {one.original[1]: len(one.checks) for one in waiting if one.case not in dropped}
    checks = {row["half_commit_log_offset"]: row["checks_count"] for row in found.entries.to_pylist()}
    assert set(checks) == set(wanted)
    assert all(checks[place] >= seen for place, seen in wanted.items())
    assert {len(one.deliveries) for one in committed} == {1}

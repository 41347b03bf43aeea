"""The stores of the corpus with parts in RocksDB or DLedger: for each name the version and the histories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.brokers.rocks_stage import TRANSACTIONS_IN_ROCKSDB

ROCKSDB: Mapping[str, int] = {
    "commit": 12,
    "rollback": 6,
    "commit_at_check_1": 3,
    "commit_at_check_2": 2,
    "rollback_at_check_1": 2,
    "rollback_at_check_2": 2,
    "local_transaction_throws": 1,
    "never_answered": 3,
    "producer_group_gone": 2,
    "immunity": 4,
    "compressed": 4,
    "compressed_checked": 2,
    "bare": 4,
    "foreign_words": 6,
    "many_keys": 3,
    "ordinary": 8,
    "batch": 2,
    "without_id": 2,
    "answered_late": 4,
    "dropped_then_late_commit": 2,
    "double_commit": 2,
    "triple_commit": 1,
    "commit_after_rollback": 2,
    "rollback_after_commit": 1,
    "commit_after_discard": 2,
    "rollback_after_discard": 1,
    "resumed_then_commit": 2,
    "resumed_then_discarded": 1,
    "pending_resumed": 2,
    "pending": 8,
    "pending_immune": 2,
    "pending_after_drop": 2,
    "pending_once_checked": 3,
    "pending_without_id": 1,
}
"""The histories of transactions in RocksDB."""
CLASSIC: Mapping[str, int] = {
    "commit": 6,
    "rollback": 3,
    "commit_at_check_1": 2,
    "rollback_at_check_1": 2,
    "never_answered": 2,
    "compressed": 2,
    "foreign_words": 6,
    "ordinary": 6,
    "late_commit": 1,
    "double_commit": 1,
    "pending": 6,
}
"""The histories of a store that shows a file format."""
FEW: Mapping[str, int] = {"commit": 4, "rollback": 2, "commit_at_check_1": 2, "ordinary": 4, "pending": 4}
MIXED: Mapping[str, int] = {
    **{name: count for name, count in CLASSIC.items() if name not in ("pending", "ordinary")},
    "pending_before_restart": 2,
    "after_restart": 6,
    "pending": 6,
}
VERSIONS = ("5.4.0", "5.5.0")
QUEUES_IN_ROCKSDB: Mapping[str, str] = {"storeType": "defaultRocksDB"}
SINGLE: Mapping[str, str] = {**QUEUES_IN_ROCKSDB, "useSingleRocksDBForAllConfigs": "true"}
COMBINED: Mapping[str, str] = {
    "combineCQLoadingCQTypes": "default;defaultRocksDB",
    "rocksdbCQDoubleWriteEnable": "true",
}
SEPARATE: Mapping[str, str] = {
    **COMBINED,
    "useSeparateStorePathForRocksdbCQ": "true",
    "combineCQUseRocksdbForLmq": "true",
}
"""5.5.0 with double writing exits at the start unless the last one is set."""
DLEDGER: Mapping[str, str] = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "broker-a",
    "dLegerSelfId": "n0",
    "dLegerPeers": "n0-127.0.0.1:{dledger_port}",
}
"""One member, which elects itself."""


CONTROLLED: Mapping[str, str] = {
    "enableControllerMode": "true",
    "controllerAddr": "127.0.0.1:{controller_port}",
    "brokerId": "-1",
}
"""One replica, which the controller makes the master."""
Made = tuple[str, str, str, Mapping[str, int], dict[str, Any]]
RESTARTED = "Transactions in RocksDB (transRocksDBEnable), one clean restart in between; "
BOTH = "Half topic first, then transactions in RocksDB: both designs in one store."
QUEUES: tuple[tuple[str, str, Mapping[str, int], Mapping[str, str]], ...] = (
    ("queues-5.5.0", "Consume queues and configurations in RocksDB.", CLASSIC, QUEUES_IN_ROCKSDB),
    ("queues-killed-5.5.0", "The same; killed (SIGKILL).", CLASSIC, QUEUES_IN_ROCKSDB),
    ("combined-5.4.0", "Consume queues in files and in RocksDB, one directory.", FEW, COMBINED),
    ("separate-5.5.0", "Consume queues in files and in RocksDB, two directories.", FEW, SEPARATE),
    ("single-5.5.0", "All configurations in one RocksDB database.", FEW, SINGLE),
    ("configs-5.5.0", "Configurations in RocksDB, second version.", FEW, {"configManagerVersion": "v2"}),
)


def rocks_recipes() -> list[Made]:
    """Name, description, version, histories and other settings of their scripts."""
    made: list[Made] = []
    for version in VERSIONS:
        more: dict[str, Any] = {"design": "rocksdb", "conf": TRANSACTIONS_IN_ROCKSDB, "restart": {}}
        clean = {**ROCKSDB, "pending_never_checked": 3}
        killed = more | {"stop": "kill"}
        made.append((f"rocksdb-{version}", RESTARTED + "stopped cleanly.", version, clean, more))
        made.append((f"rocksdb-killed-{version}", RESTARTED + "killed (SIGKILL).", version, ROCKSDB, killed))
    with_slave = {"design": "rocksdb", "conf": {**TRANSACTIONS_IN_ROCKSDB, "brokerIP2": "127.0.0.1"}}
    what = "Transactions in RocksDB that only the slave dropped; beside it the slave's store."
    made.append(("rocksdb-slave-5.5.0", what, "5.5.0", {"dropped_by_slave": 4}, with_slave))
    upgraded = {"design": "rocksdb", "restart": TRANSACTIONS_IN_ROCKSDB}
    made.append(("rocksdb-both-5.5.0", BOTH, "5.5.0", MIXED, upgraded))
    for name, about, histories, conf in QUEUES:
        stop = "kill" if "killed" in name else "clean"
        more = {"design": "rocksdb_queues", "conf": conf, "stop": stop}
        made.append((f"rocksdb-{name}", about, name[-5:], histories, more))
    for version in ("4.9.7", "5.1.4"):
        more = {"design": "dledger", "conf": DLEDGER}
        made.append((f"dledger-{version}", "A DLedger commit log of one member.", version, CLASSIC, more))
    killed = {"design": "dledger", "conf": DLEDGER, "stop": "kill"}
    what = "A DLedger commit log of one member; killed (SIGKILL)."
    made.append(("dledger-killed-5.1.4", what, "5.1.4", CLASSIC, killed))
    controlled = {"design": "controller", "conf": CONTROLLED}
    made.append(("controller-5.1.4", "One replica under a controller.", "5.1.4", CLASSIC, controlled))
    return made

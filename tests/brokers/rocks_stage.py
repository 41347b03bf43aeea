"""A run whose broker keeps transactions in RocksDB (5.4.0 and later), or has done so for a part of its life."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.brokers.rig import HALF_TOPIC, Agent
from tests.brokers.script import Script
from tests.brokers.stage import Play
from tests.brokers.transaction import Transaction

ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANSACTIONS_IN_ROCKSDB: Mapping[str, str] = {
    "transRocksDBEnable": "true",
    "transWriteOriginTransHalfEnable": "false",
}
"""Both are needed: with the first alone halves still go to the classic topic."""
DROPPED = re.compile(r"checkTransRecordsStatus checkTimes > (\d+), need delete, checkTimes: (\d+), msgId: (\w+)")
"""What the broker logs when it forgets a transaction; it writes nothing into the store."""


class RocksPlay(Play):
    """One run on one store."""

    def __init__(self, script: Script, out: Path) -> None:
        super().__init__(script, out)
        self.log_file = self.rig.home / "logs" / "rocketmqlogs" / "transaction.log"
        self.system_topics += ((ROCKSDB_HALF_TOPIC, 1), (ROCKSDB_OP_TOPIC, 1))

    @property
    def checks_max(self) -> int:
        """One more CHECK is sent than transactionCheckMax says."""
        return super().checks_max + 1

    def last_copy(self, transaction: Transaction, topic: str = HALF_TOPIC) -> tuple[int, int]:
        """Queue offset and commit-log offset of the newest half; there are no put-back and no discard copies."""
        del topic
        return super().last_copy(transaction, ROCKSDB_HALF_TOPIC)

    def join_after(self, agent: Agent, group: str) -> None:
        """Start a producer of the second run and have it send something: before that, 5.5.0's sends no heartbeats.

        In the half topic's design put-back copies tell what is open; here only being asked does.
        """
        super().join_after(agent, group)
        agent.do("send", case="after", kind="ordinary", group=group, topic=next(iter(self.script.topics)), body="eA==")

    def read_log(self) -> None:
        """Note what the broker has dropped."""
        for line in self.new_log_lines():
            found = DROPPED.search(line)
            if found is not None:
                transaction = self.ids.get(found.group(3))
                self.record(
                    "discard_logged",
                    case=None if transaction is None else transaction.case,
                    transaction_id=found.group(3),
                    checks_count=found.group(2),
                )

"""Ops, finals and resumed halves of transactions in RocksDB, written again and compared byte for byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtx.readers.log.op_messages import TRANS_OFFSET
from rmqtx.readers.log.properties import CHECK_TIMES, TRANSACTION_ID, UNIQ_KEY
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.store.store import HALF_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, WAITING_TOPICS, open_store
from rmqtx.repairs.records.record_writer import draft_of, property_values
from rmqtx.repairs.records.rocksdb_records import checks_in_table, rocksdb_final_of, rocksdb_half_of, rocksdb_op_of
from tests.brokers.corpus import recipe
from tests.forge.records import Message
from tests.forge.stores import copy_of
from tests.repairs.forge import transaction
from tests.repairs.log_records import at_its_place, number, records, rules_of

NAMES = ("rocksdb-5.4.0", "rocksdb-5.5.0", "rocksdb-killed-5.4.0", "rocksdb-killed-5.5.0")


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_written_as_its_broker_wrote_it(name: str, tmp_path: Path) -> None:
    store = open_store(copy_of(name, tmp_path / name))
    seen = list(records(store))
    rules = rules_of(store, recipe(name)["version"], seen)
    halves: dict[int, bytes] = {}
    newest: dict[bytes, bytes] = {}
    counts: Counter[str] = Counter()
    for record in seen:
        draft = draft_of(record)
        words = property_values(draft.properties)
        if draft.topic == ROCKSDB_HALF_TOPIC:
            identity = words[TRANSACTION_ID.encode()]
            if words.get(CHECK_TIMES.encode()) == b"0":
                again = rocksdb_half_of(newest[identity])
                if again.body == draft.body:  # 5.4.0 inflates it, and leaves the flag that says compressed
                    assert at_its_place(again, rules, record) == record
                    counts["resumed"] += 1
            halves[number(record, "commit_log_offset", 8)] = newest[identity] = record
        elif draft.topic == ROCKSDB_OP_TOPIC:
            half = halves[int(words[TRANS_OFFSET.encode()])]
            op = rocksdb_op_of(
                half, unique_key=words[UNIQ_KEY.encode()].decode(), broker_host=draft.store_host,
                now_ms=draft.born_time_ms,
            )
            assert at_its_place(op, rules, record) == record
            counts["op"] += 1
        elif draft.sys_flag & TRANSACTION_MASK == COMMIT and draft.topic not in (HALF_TOPIC, *WAITING_TOPICS):
            half = halves[draft.prepared_transaction_offset]
            checks = words.get(CHECK_TIMES.encode())
            final = rocksdb_final_of(half, rules, None if checks is None else int(checks))
            assert at_its_place(final, rules, record) == record
            counts["final"] += 1
            counts["checked"] += checks is not None
    assert counts["op"] > 50
    assert counts["final"] > 40
    assert counts["checked"] > 10
    assert counts["resumed"] > 2 or "killed" in name


def test_a_half_that_no_key_can_be_made_of_has_no_op() -> None:
    half = Message(topic=ROCKSDB_HALF_TOPIC, properties=(("REAL_TOPIC", "orders"), ("REAL_QID", "1"))).record(0)
    with pytest.raises(FormatError, match="__transactionId__"):
        rocksdb_op_of(half, unique_key="A" * 32, broker_host=bytes(8), now_ms=1)


def test_the_checks_are_those_of_the_halfs_own_key() -> None:
    keys = [("70@orders@T1", "4"), ("700@orders@T1", "2"), ("lastOffsetPy", "9")]
    entry = {"store": "s", "kind": "rocksdb", "position_bytes": None}
    facts = transaction(state_entries=[{**entry, "key": key, "value": value} for key, value in keys])
    assert checks_in_table(facts, 700) == 2
    assert checks_in_table(facts, 7) is None

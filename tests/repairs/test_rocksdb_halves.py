"""Acts on halves in RocksDB: what ends which half, by the records of real brokers, and what a look proves."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.named_copies import copies_left, fresh_offset_marks
from rmqtx.repairs.acts.proof import Seen, proof_of
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.transaction import Transaction
from tests.brokers import corpus
from tests.forge.stores import copy_of, settings_of
from tests.repairs.forge import mark, place, record, transaction

NAMED = record(5, 700).place()
MARK = {**mark(0), "half_queue_offset": None}


@pytest.mark.parametrize("name", ["rocksdb-5.4.0", "rocksdb-5.5.0", "rocksdb-both-5.5.0"])
def test_the_halves_that_are_left_are_those_that_no_op_names(name: str, tmp_path: Path) -> None:
    store = open_store(copy_of(name, tmp_path))
    ended = left = 0
    with closing(store.log()) as log:

        def record_at(root: str, offset: int) -> bytes | None:
            assert root == store.root
            block = block_at(log, offset)
            return None if block is None else block.raw[: int(block.lengths[0])]

        found_rows = audit([store], settings_of(name)).table().to_pylist()
        transactions = {one["transaction_id"]: Transaction.of(one) for one in found_rows}
        for expected in corpus.expected(name):
            found = transactions[expected["transaction_id"]]
            named = {one.get("half_commit_log_offset") for one in expected["op_marks"]}
            wanted = [one for one in found.half_copies if one.commit_log_offset not in named]
            assert copies_left(found, record_at) == wanted
            left += len(wanted)
            ended += len(named)
    assert left > 3
    assert ended > 10


def test_an_op_that_was_not_there_before_proves_what_ended_a_half() -> None:
    before = transaction("PENDING")
    for action in (ActKind.ROLLBACK, ActKind.DISCARD, ActKind.CLOSE):
        proof = proof_of(action, NAMED, before, transaction("ROLLED_BACK", op_marks=[MARK]), 0, is_in_rocksdb=True)
        assert proof.seen is Seen.WHOLE
    waiting = proof_of(ActKind.ROLLBACK, NAMED, before, before, 0, is_in_rocksdb=True)
    assert (waiting.seen, waiting.open_queue_offsets) == (Seen.NOT_YET, ())
    assert "TRANS_OFFSET 700" in str(waiting.lacking)


def test_the_op_of_another_half_proves_nothing() -> None:
    halves = [place(1, 100), place(5, 700)]
    before = transaction("PENDING", op_marks=[MARK], half_copies=halves)
    assert fresh_offset_marks(before, before) == []
    assert proof_of(ActKind.ROLLBACK, NAMED, before, before, 0, is_in_rocksdb=True).seen is Seen.NOT_YET
    final = place(0, 8_000, topic="orders")
    without_op = transaction("PENDING", op_marks=[MARK], half_copies=halves, final_records=[final])
    no_op = proof_of(ActKind.COMMIT, NAMED, before, without_op, 0, is_in_rocksdb=True)
    assert no_op.seen is Seen.NOT_YET
    mine = {**MARK, "commit_log_offset": 9_999}
    done = transaction("PENDING", op_marks=[MARK, mine], half_copies=halves, final_records=[final])
    assert proof_of(ActKind.COMMIT, NAMED, before, done, 0, is_in_rocksdb=True).seen is Seen.WHOLE

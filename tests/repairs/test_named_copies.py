"""A plan made from a ledger names the same copy as one made from ids: the newest that can be read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.file_situations import file_situations
from rmqtx.repairs.plans.draft_plan import Planner
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.transaction import Transaction
from tests.forge import damage
from tests.forge.logs import Forge


def test_a_copy_that_cannot_be_read_is_not_named(tmp_path: Path) -> None:
    forge = Forge(tmp_path / "store")
    first, last = forge.half("T"), forge.half("T", checks=1)
    store = open_store(forge.write(half_cursor=0))
    (row,) = audit([store], broker_settings).table().to_pylist()
    for damaged, named in ((None, last), (last, first)):
        if damaged is not None:
            damage.flip_byte(damage.log_files(forge.root)[0], damaged + 84)  # the length of its body
        (situation,) = file_situations([store], broker_settings, [Transaction.of(row)])
        assert situation.half_copy is not None
        with closing(store.log()) as log:
            step = Planner([store], "ledger")._step({**row, "advice": "commit", "ledger_row": None}, {store.root: log})
        assert step.half_copy is not None
        assert step.half_copy == situation.half_copy.place()
        assert step.half_copy.commit_log_offset == named

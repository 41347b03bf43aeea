"""Acts in place on a stopped store, undo and redo in any order, and receipts that are looked at again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rmqtx.readers.model.errors import RmqtxError, StoreChanged
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import open_store
from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.changes.execution import Destination, resume, undo
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.receipts.recheck import rechecked
from rmqtx.verdicts.audit.local_audit import audit
from rmqtx.verdicts.model.transaction import Transaction
from tests.forge.stores import copy_of
from tests.repairs.acting import CONF, act, content, medium_of, rows_of

ACTS = (ActKind.COMMIT, ActKind.ROLLBACK, ActKind.DISCARD, ActKind.RESUME, ActKind.CLOSE)
#: What an act of each kind leaves where it is proved.
ENDS = {ActKind.COMMIT: "COMMITTED", ActKind.ROLLBACK: "ROLLED_BACK", ActKind.DISCARD: "ROLLED_BACK"}
#: Columns that tell what happened to a transaction; others tell of times and of what follows.
RECORDED = ("state", "half_copies", "op_marks", "final_records", "discard_copies")
_NOTHING_DONE = {ActOutcome.REFUSED_BY_GUARD, ActOutcome.NOT_SENT}


class OfflineActs(RuleBasedStateMachine):
    """One store; `images` are its files before each change that stands, with the undo file of the change."""

    name, version = "common-5.1.4", "5.1.4"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="rmqtx-machine-"))
        self.root = copy_of(self.name, self.folder / "store")
        self.rows = rows_of(self.root, self.version)
        self.ids = sorted(self.rows)
        self.images: list[tuple[Path, dict[str, bytes], dict[str, dict[str, Any]]]] = []
        self.undone: list[tuple[Path, dict[str, bytes]]] = []
        self.made_again_below: set[Path] = set()
        self.below_other_times: set[Path] = set()
        self.journal = Journal(self.folder / "journal")
        self.receipts: list[Receipt] = []

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(kind=st.sampled_from(ACTS), number=st.integers(0, 10_000))
    def decide(self, kind: ActKind, number: int) -> None:
        """One act on one transaction: it is refused and nothing changes, or that transaction alone changes."""
        undecided = [one for one in self.ids if self.rows[one]["state"] in ("PENDING", "DISCARDED", "LOST")]
        among = undecided if undecided and number % 4 else self.ids  # of the others most acts are refused
        identity = among[number % len(among)]
        before, image = self.rows, content(self.root)
        undo_file = self.folder / f"undo-{len(self.images)}-{len(self.receipts)}"
        medium = medium_of(self.root, self.version, Destination(undo_file=undo_file))
        (receipt,) = act(medium, self.journal, {identity: kind}, Conduct(overrides=("immunity",)))
        self.rows = rows_of(self.root, self.version)
        if receipt.outcome in _NOTHING_DONE:
            assert _files(self.root) == _without_lock(image)
            return
        assert receipt.outcome in {ActOutcome.PROVED, ActOutcome.ACCEPTED}, receipt.outcome
        assert before[identity]["state"] != "COMMITTED" or kind is not ActKind.COMMIT, "delivered twice"
        assert ENDS.get(kind, self.rows[identity]["state"]) == self.rows[identity]["state"]
        changed = [one for one in self.ids if _recorded(before[one]) != _recorded(self.rows[one])]
        assert changed == [identity]
        self.images.append((undo_file, image, before))
        self.undone.clear()
        self.receipts.append(receipt)

    @precondition(lambda self: self.images)
    @rule()
    def take_back(self) -> None:
        """The last change is undone: each byte is as before it.

        Below a change that was made again over other times, files may have the times from before: refused, until times
        are ignored.
        """
        undo_file, image, rows = self.images.pop()
        after = content(self.root)
        refused: StoreChanged | None = None
        try:
            undo(undo_file, self.root)
        except StoreChanged as error:
            refused = error
        if refused is not None:
            assert undo_file in self.below_other_times
            assert "--ignore-times" in (refused.advice or "")
            assert _files(self.root) == _without_lock(after)
            undo(undo_file, self.root, times=False)
        assert _files(self.root) == _without_lock(image)
        self.rows = rows
        self.undone.append((undo_file, after))
        self.made_again_below.discard(undo_file)

    @precondition(lambda self: self.undone)
    @rule()
    def redo(self) -> None:
        """The change that was undone last is done again.

        Over a change that was made again since, the files have other times: refused, until times are ignored.
        """
        undo_file, after = self.undone.pop()
        before = content(self.root), self.rows
        times = undo_file not in self.made_again_below
        if not times:
            with pytest.raises(StoreChanged) as refused:
                resume(undo_file, self.root)
            assert "--ignore-times" in (refused.value.advice or "")
            assert _files(self.root) == _without_lock(before[0])
            self.below_other_times.add(self.images[-1][0])
        resume(undo_file, self.root, times=times)
        self.made_again_below |= {one for one, _ in self.undone}
        assert _files(self.root) == _without_lock(after)
        self.rows = rows_of(self.root, self.version)
        self.images.append((undo_file, *before))

    @precondition(lambda self: len(self.images) > 1)
    @rule(number=st.integers(0, 10_000))
    def take_back_an_older_one(self, number: int) -> None:
        """The undo file of a change before the last is refused, and nothing changes."""
        undo_file = self.images[number % (len(self.images) - 1)][0]
        before = _files(self.root)
        try:
            undo(undo_file, self.root)
        except RmqtxError:
            assert _files(self.root) == before
        else:
            raise AssertionError("a change under a later one was undone")

    @precondition(lambda self: self.receipts)
    @rule()
    def look_again(self) -> None:
        """No receipt of a change that stands is contradicted; one that was undone does not stand."""
        transactions = {row["transaction_id"]: Transaction.of(row) for row in self._audited()}
        for receipt, standing in rechecked(self.receipts, lambda ids: [transactions[one] for one in ids]):
            assert receipt.transaction_id is not None
            assert standing.word != "contradicted" or self._was_settled_again(receipt), (receipt, standing)

    def _was_settled_again(self, receipt: Receipt) -> bool:
        return sum(one.transaction_id == receipt.transaction_id for one in self.receipts) > 1

    def _audited(self) -> list[dict[str, Any]]:
        reading = audit([open_store(self.root)], lambda store: broker_settings(store, conf=CONF, version=self.version))
        rows: list[dict[str, Any]] = reading.table().to_pylist()
        return rows

    @invariant()
    def every_transaction_is_there(self) -> None:
        assert sorted(self.rows) == self.ids


def _recorded(row: dict[str, Any]) -> list[Any]:
    return [row[name] for name in RECORDED]


def _without_lock(image: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in image.items() if name not in ("lock", "abort")}


def _files(root: Path) -> dict[str, bytes]:
    return _without_lock(content(root))

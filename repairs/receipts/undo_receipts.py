"""Recording an undo in the receipts of the changes it reverts; without this they would still count as done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.recheck import Standing, record_recheck
from rmqtx.repairs.receipts.standing_word import StandingWord


@dataclass(frozen=True, slots=True)
class UpdatedReceipts:
    """The number of receipts that were updated, and the ids of those that are in another journal."""

    count: int
    missing: tuple[str, ...]


def update_receipts(
    names: Sequence[str], root: str, file: str, journal: Journal, *, is_undone: bool
) -> UpdatedReceipts:
    """Record in the journal that the changes of an undo file were undone, or made again.

    `names`: ids of the undo file's receipts; `root`: its store, since only receipts of that store are updated; `file`:
    its name.
    Raises: UnwritableFile, UnreadableFile.
    """
    standing = (
        Standing(StandingWord.UNDONE, f"rmqtx undo {file} reverted it") if is_undone
        else Standing(StandingWord.STANDS, f"rmqtx undo {file} --resume completed it or made it again")
    )  # fmt: skip
    if not names:
        return UpdatedReceipts(0, ())
    known = {
        receipt.receipt_id: receipt for receipt in journal.read().receipts
        if receipt.is_of_files and os.path.realpath(receipt.store) == os.path.realpath(root)
    }
    mine = [known[name] for name in names if name in known]
    updated = 0
    for receipt in mine:
        if receipt.rechecks and receipt.rechecks[-1].standing_reason == standing.reason:
            continue  # recorded by the same command before
        record_recheck(journal, receipt, standing)
        updated += 1
    return UpdatedReceipts(updated, tuple(name for name in names if name not in known))


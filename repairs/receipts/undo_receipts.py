"""What an undo means for the receipts of what it takes back: without a word in the journal they would read as done."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from repairs.receipts.journal import Journal
from repairs.receipts.recheck import Standing, write_down

#: How the lines of an undo file name the receipt of what they say.
_NAMED = re.compile(r"\(receipt ([0-9A-Z.]+Z-[0-9a-f]{6})\)")


@dataclass(frozen=True, slots=True)
class Told:
    """How many receipts were told, and the ids of those that are in another journal."""

    count: int
    missing: tuple[str, ...]


def tell_receipts(about: Sequence[str], root: str, file: str, journal: Journal, *, is_undone: bool) -> Told:
    """Write into the journal that what an undo file's receipts say was taken back, or made again.

    `about`: the undo file's lines for people; `root`: the store that it is of, for it says nothing of others' receipts;
    `file`: its name.
    Raises: UnwritableFile, UnreadableFile.
    """
    names = list(dict.fromkeys(name for line in about for name in _NAMED.findall(line)))
    standing = (
        Standing("undone", f"rmqtx undo {file} took it back") if is_undone
        else Standing("stands", f"rmqtx undo {file} --resume completed it or made it again")
    )  # fmt: skip
    return tell_named(names, standing, journal, root)


def tell_named(names: Sequence[str], standing: Standing, journal: Journal, root: str | None = None) -> Told:
    """The same of receipts that are named; `root`: of those that changed files, only what was done to this store.

    Raises: UnwritableFile, UnreadableFile.
    """
    if not names:
        return Told(0, ())
    known = {
        receipt.receipt_id: receipt for receipt in journal.read().receipts
        if root is None or (receipt.is_of_files and os.path.realpath(receipt.store) == os.path.realpath(root))
    }
    mine = [known[name] for name in names if name in known]
    for receipt in mine:
        if receipt.rechecks and receipt.rechecks[-1]["standing_reason"] == standing.reason:
            continue  # the same command again
        write_down(journal, receipt, standing)
    return Told(len(mine), tuple(name for name in names if name not in known))

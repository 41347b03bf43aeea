"""The receipt for setting cursors: on disk before the files are changed, as for any act."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rmqtx.readers.model.errors import RmqtxError
from rmqtx.readers.store.store import CHECK_GROUP, Store
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.repairs.changes.destinations import Destination
from rmqtx.repairs.cursors.cursors import Move
from rmqtx.repairs.receipts.act_kind import ActKind
from rmqtx.repairs.receipts.act_outcome import ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import SET_CURSOR, Receipt


@contextmanager
def receipt_of_moves(
    journal: Journal, store: Store, moves: Sequence[Move], destination: Destination, *, reason: str | None,
    overrides: Sequence[str] = (),
) -> Iterator[Receipt]:
    """A receipt that is recorded before the block, and completed after it: proved if the block raises no error.

    Raises: UnwritableFile before the block: then the change must not be made.
    """
    receipt = Receipt(
        ActKind.CURSOR_SET, None, store.root, producer_group=CHECK_GROUP, reason=reason, overrides=list(overrides)
    )
    entries = [
        receipt.asked(SET_CURSOR, {"topic": move.topic, "queueId": 0, "before": move.before, "after": move.after})
        for move in moves
    ]
    journal.begin(receipt)
    try:
        yield receipt
    except RmqtxError as error:
        receipt.outcome = ActOutcome.NOT_SENT if destination.is_untouched else ActOutcome.UNKNOWN
        receipt.notes.append(f"{'nothing was written' if destination.is_untouched else 'interrupted'}: {error}")
        journal.end(receipt)
        raise
    for entry in entries:
        entry.answered(ResponseCode.SUCCESS, "written")
    receipt.outcome = ActOutcome.PROVED
    journal.end(receipt)

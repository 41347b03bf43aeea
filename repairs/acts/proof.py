"""What a look-up after an act proves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rmqtx.repairs.acts.named_copies import fresh_offset_marks
from rmqtx.repairs.receipts.act_words import DELIVERING, ActKind
from rmqtx.repairs.receipts.plan_file import RecordPlace
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import State

#: Flags that an act must not cause: decided more than once, or on the number of another half message.
_CONTRADICTIONS = {
    "duplicate_commit": "there is a second COMMIT record: consumers get the message twice",
    "number_taken": "the slot with its half queue offset belongs to another half message by now, which the check skips "
    "for this decision",
    "commit_after_rollback": "a COMMIT record was written after the rollback: consumers get the message",
}


class Seen(Enum):
    """How much of the effect was seen."""

    WHOLE = "whole"
    NOT_YET = "not yet"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a look-up.

    Shape: `lacking`: what was not seen yet. `open_queue_offsets`: other half copies that the check will still reach:
           copies put back after the decision, or older ones, where a broker was killed and its cursor lags. They are
           still open and must be closed, or the broker checks the transaction again.
    """

    seen: Seen
    lacking: str | None = None
    contradiction: str | None = None
    open_queue_offsets: tuple[int, ...] = ()


def proof_of(
    action: ActKind, named: RecordPlace, before: Transaction, after: Transaction,
    half_cursor: int | None = None, *, is_in_rocksdb: bool = False, is_prepared: bool = False,
) -> Proof:
    """Return what the row of a transaction after an act proves.

    `named`: the record that the act named; `before` and `after` are rows of TRANSACTIONS. `half_cursor`: the next half
    queue offset that the check reads, if known. `is_in_rocksdb`: the named record is a half in RocksDB, which an op
    message settles by its commit-log offset and no check puts back. `is_prepared`: it is a prepared record (before
    4.3), which no op message settles and no check puts back.
    """
    contradiction = _contradiction(action, named, before, after)
    if contradiction is not None:
        return Proof(Seen.CONTRADICTED, contradiction=contradiction)
    if action == ActKind.RESUME:
        if len(after.half_copies) > len(before.half_copies):
            return Proof(Seen.WHOLE)
        return Proof(Seen.NOT_YET, "no new half copy is in the half queue yet")
    if action in DELIVERING and len(after.final_records) <= len(before.final_records):
        return Proof(Seen.NOT_YET, "no COMMIT record yet")
    if is_prepared:
        if action in DELIVERING or len(after.op_marks) > len(before.op_marks):
            return Proof(Seen.WHOLE)
        return Proof(Seen.NOT_YET, "no ROLLBACK record yet")
    if fresh_offset_marks(before, after):
        return Proof(Seen.WHOLE)
    if is_in_rocksdb:
        return Proof(Seen.NOT_YET, f"no op message with TRANS_OFFSET {named.commit_log_offset} yet")
    left = _open_copies(named, after, half_cursor)
    if after.state == State.UNDECIDABLE and before.state != State.UNDECIDABLE:
        return Proof(Seen.NOT_YET, f"it is UNDECIDABLE now: {after.reason}")
    if named.queue_offset not in {mark.half_queue_offset for mark in after.op_marks}:
        lacking = f"no op message with half queue offset {named.queue_offset} yet"
        return Proof(Seen.NOT_YET, lacking, open_queue_offsets=left)
    if left:
        is_new = left[-1] > named.queue_offset
        why = "which the check put back meanwhile" if is_new else "which the check will still reach"
        return Proof(Seen.NOT_YET, f"half copy {left[-1]}, {why}, is not closed yet", open_queue_offsets=left)
    return Proof(Seen.WHOLE)


def _open_copies(named: RecordPlace, after: Transaction, half_cursor: int | None) -> tuple[int, ...]:
    """The other half copies that the check will reach, ascending; the newest one counts always."""
    copies = [copy.queue_offset for copy in after.half_copies if copy.store == named.store]
    newest = max(copies, default=named.queue_offset)
    return tuple(
        copy for copy in after.copies_without_op(store=named.store)
        if (copy == newest and copy > named.queue_offset)
        or (half_cursor is not None and copy >= half_cursor and copy != named.queue_offset)
    )


def _contradiction(
    action: ActKind, named: RecordPlace, before: Transaction, after: Transaction
) -> str | None:
    fresh = set(after.flags) - set(before.flags)
    is_redelivered = action == ActKind.REDELIVER and before.state == State.ROLLED_BACK
    # LOST, or hidden from the check: by the op message of another one.
    if is_redelivered or (action in DELIVERING and (before.state == State.LOST or "masked" in before.flags)):
        fresh.discard("commit_after_rollback")  # what was asked for
    for flag, sentence in _CONTRADICTIONS.items():
        if flag in fresh:
            return sentence
    if action == ActKind.REDELIVER and len(after.final_records) > len(before.final_records) + 1:
        return "there is more than one delivery since: consumers get the message twice"
    more = len(after.final_records) > len(before.final_records)
    if more and action in (ActKind.ROLLBACK, ActKind.DISCARD, ActKind.CLOSE):
        final = after.final_records[-1]
        return (
            f"a COMMIT record appeared at commit-log offset {final.commit_log_offset}: another client committed the "
            "transaction, and consumers get the message"
        )
    if action == ActKind.COMMIT and "conflict" in fresh:
        if any(mark.half_queue_offset is None for mark in after.op_marks):
            return "there is a ROLLBACK record too: its producer rolled it back, and consumers get the message"
        return (
            f"a second op message settles half copy {named.queue_offset}, and there is no second COMMIT record: its "
            "producer rolled it back, and consumers get the message"
        )
    return None

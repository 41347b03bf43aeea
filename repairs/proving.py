"""After an act: looks until its effect shows, and closes what the check put back between the last look and the act."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from remoting.codes import ROLLBACK
from remoting.errors import RemotingError
from repairs.deeds import Deed, witnesses_of
from repairs.journal import Journal
from repairs.medium import Medium
from repairs.proof import Proof, Seen, proof_of
from repairs.situation import NamedRecord

_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
#: How often the half queue's end is looked at: a copy that is closed so early that its op is written before the next
#: pass of the check is not put back again.
_TAIL_SECONDS = 0.05


def prove(
    deeds: Sequence[Deed], medium: Medium, journal: Journal, *, prove_ms: int, watch_ms: int,
    tell: Callable[[str], None],
) -> None:
    """Look for the effects of some acts, and end their receipts.

    Units: milliseconds; each effect is looked for at most `prove_ms`, and all are watched at least `watch_ms`, so that
           a decision that somebody else sends after ours is seen.
    """
    if not deeds:
        return
    tell("looking for the effect")
    start = time.monotonic()
    number = 0
    while True:
        problem = _look(deeds, medium, journal)
        waited_ms = (time.monotonic() - start) * 1000
        is_open = any(deed.proof is None or deed.proof.seen is Seen.NOT_YET for deed in deeds)
        if waited_ms >= (max(prove_ms, watch_ms) if is_open else watch_ms):
            break
        _watch_tail(deeds, medium, journal, _PAUSES_SECONDS[min(number, len(_PAUSES_SECONDS) - 1)])
        number += 1
    for deed in deeds:
        _end(deed, journal, problem)


def _look(deeds: Sequence[Deed], medium: Medium, journal: Journal) -> str | None:
    """One look at all; gives why there was none."""
    try:
        rows = {row["transaction_id"]: row for row in medium.look([deed.order.transaction_id for deed in deeds])}
        for deed in deeds:
            row = rows.get(deed.order.transaction_id)
            if row is None or deed.named is None:
                continue
            deed.proof = proof_of(deed.order.wish.action, deed.named.place(), deed.situation.row, row)
            receipt = deed.begun()
            receipt.state_after, receipt.flags_after = row["state"], list(row["flags"])
            receipt.witnesses_after = witnesses_of(row)
            younger = deed.proof.younger_queue_offset
            if younger is not None and younger not in deed.closed:
                copies = replace(deed.situation, row={**deed.situation.row, "half_copies": row["half_copies"]})
                _close(deed, younger, medium.record(copies, younger), medium, journal)
    except RemotingError as error:
        return error.message
    return None


def _watch_tail(deeds: Sequence[Deed], medium: Medium, journal: Journal, seconds: float) -> None:
    """For some time close at once whatever the check puts back of what is decided."""
    by_id = {deed.order.transaction_id: deed for deed in deeds if _is_decided(deed)}
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _TAIL_SECONDS))
        try:
            for name, record in medium.fresh_copies(by_id) if by_id else ():
                deed = by_id[name]
                assert deed.named is not None
                if record.queue_offset > deed.named.queue_offset and record.queue_offset not in deed.closed:
                    _close(deed, record.queue_offset, record, medium, journal)
        except RemotingError:
            return  # the next look says what is wrong


def _is_decided(deed: Deed) -> bool:
    """Whether a rollback on a younger copy can only close it: a commit must be known to have arrived."""
    action = deed.order.wish.action
    if action == "resume" or deed.named is None:
        return False
    return action != "commit" or deed.begun().outcome == "accepted"


def _close(deed: Deed, queue_offset: int, record: NamedRecord | None, medium: Medium, journal: Journal) -> None:
    """Close a copy that the check put back before our decision was known: nothing is delivered by that."""
    receipt = deed.begun()
    deed.closed.add(queue_offset)
    if record is None:
        receipt.notes.append(f"half copy {queue_offset}, which the check put back, cannot be read and was not closed")
        return
    receipt.notes.append(f"the check had put back half copy {queue_offset} meanwhile: it was closed too")
    journal.go_on(receipt)
    answer = medium.decide(record, deed.situation, ROLLBACK, receipt)
    if not answer.is_success:
        receipt.notes.append(f"closing it was refused: code {answer.code}: {answer.remark or 'no remark'}")


def _end(deed: Deed, journal: Journal, problem: str | None) -> None:
    receipt = deed.begun()
    proof = deed.proof or Proof(Seen.NOT_YET, "the transaction was not found")
    if proof.seen is Seen.CONTRADICTED:
        receipt.outcome = "contradicted"
        receipt.notes.append(str(proof.contradiction))
    elif proof.seen is Seen.WHOLE:
        receipt.outcome = "accepted" if deed.order.wish.action == "resume" else "proved"
        if receipt.outcome == "accepted":
            receipt.notes.append("a new half copy is in the half queue: the broker asks the producer again")
            if receipt.state_after != "PENDING":
                receipt.notes.append(f"while it was watched it became {receipt.state_after}")
    else:
        receipt.notes.append(problem or str(proof.lacking))
        if proof.younger_queue_offset is not None:
            receipt.notes.append(f"look again, and stop the asking: rmqtx close {deed.order.transaction_id}")
    journal.end(receipt)

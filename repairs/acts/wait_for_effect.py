"""After an act: looks until its effect shows for good, and closes what the check puts back of it meanwhile.

An op message that shows is not the end of it. A pass of the check that read the ops before may still put the copy
back, and that younger copy would be asked for, and perhaps be delivered again. So an effect counts when the check's
cursor has passed the newest copy, or when no copy of anything was put back for a while after the op could be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from remoting.protocol.codes import ROLLBACK
from remoting.protocol.errors import RemotingError
from repairs.acts.medium import Medium
from repairs.acts.orders import Deed
from repairs.acts.proof import Proof, Seen, proof_of
from repairs.acts.rocksdb_halves import is_in_rocksdb
from repairs.acts.situation import NamedRecord
from repairs.receipts.journal import Journal
from repairs.receipts.planner import witnesses_of

_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
#: How often the half queue's end is looked at: a copy that is closed so early that its op is written before the next
#: pass of the check is not put back again.
_TAIL_SECONDS = 0.05
#: A pass goes on from put-back to put-back without a pause; after this long without any it is over.
_QUIET_SECONDS = 2.0


def prove(
    deeds: Sequence[Deed], medium: Medium, journal: Journal, *, prove_ms: int, watch_ms: int,
    tell: Callable[[str], None],
) -> None:
    """Look for the effects of some acts, and end their receipts.

    Units: milliseconds; each effect is looked for at most `prove_ms`, and all are watched at least `watch_ms`, so that
           a decision that somebody else sends after ours is seen.
    """
    if deeds:
        tell("looking for the effect")
        _Watch(deeds, medium, journal).run(prove_ms, watch_ms)


class _Watch:
    """Some acts whose effects are looked for."""

    def __init__(self, deeds: Sequence[Deed], medium: Medium, journal: Journal) -> None:
        self._deeds = deeds
        self._medium = medium
        self._journal = journal
        self._problem: str | None = None
        self._busy_until = 0.0

    def run(self, prove_ms: int, watch_ms: int) -> None:
        """Watch for as long as it takes, or as is allowed."""
        start = time.monotonic()
        number = 0
        while True:
            self._look()
            waited_ms = (time.monotonic() - start) * 1000
            is_over = all(deed.settled or _is_contradicted(deed) for deed in self._deeds)
            if waited_ms >= (watch_ms if is_over else max(prove_ms, watch_ms)):
                break
            self._watch_tail(_PAUSES_SECONDS[min(number, len(_PAUSES_SECONDS) - 1)])
            number += 1
        for deed in self._deeds:
            self._end(deed)

    def _look(self) -> None:
        """One look at all; what stands against it is kept for the receipts."""
        medium = self._medium
        self._problem = None
        try:
            cursors = medium.check_cursors()  # before the looks: what a pass put back stands before it moves the cursor
            rows = {row["transaction_id"]: row for row in medium.look([d.order.transaction_id for d in self._deeds])}
            for deed in self._deeds:
                row = rows.get(deed.order.transaction_id)
                if row is None or deed.named is None:
                    continue
                deed.proof = proof_of(
                    deed.order.wish.action, deed.named.place(), deed.situation.row, row, cursors.get(deed.named.store),
                    is_in_rocksdb=is_in_rocksdb(deed.named),
                    is_prepared=deed.named.is_prepared,
                )
                receipt = deed.begun()
                receipt.state_after, receipt.flags_after = row["state"], list(row["flags"])
                receipt.witnesses_after = witnesses_of(row)
                for left in deed.proof.open_queue_offsets:
                    if left not in deed.closed:
                        copies = replace(deed.situation, row={**deed.situation.row, "half_copies": row["half_copies"]})
                        self._close(deed, left, medium.record(copies, left))
                self._settle(deed, cursors)
        except RemotingError as error:
            self._problem = error.message

    def _settle(self, deed: Deed, cursors: dict[str, int]) -> None:
        """Whether the effect is there for good."""
        now = time.monotonic()
        assert deed.proof is not None
        assert deed.named is not None
        if deed.proof.seen is not Seen.WHOLE:
            deed.settled, deed.whole_since = False, None
            return
        if deed.whole_since is None:
            deed.whole_since = now
        newest = max(
            (w["queue_offset"] for w in deed.begun().witnesses_after if w["kind"] == "half_copy"),
            default=deed.named.queue_offset,
        )
        is_past = cursors.get(deed.named.store, -1) > newest
        is_quiet = now - max(deed.whole_since, self._busy_until) >= _QUIET_SECONDS
        is_lasting = deed.order.wish.action == "resume" or deed.named.is_prepared  # no check puts these back
        deed.settled = is_lasting or is_past or is_quiet or self._medium.is_still

    def _watch_tail(self, seconds: float) -> None:
        """For some time close at once whatever the check puts back of what is decided."""
        by_id = {deed.order.transaction_id: deed for deed in self._deeds if _is_decided(deed)}
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _TAIL_SECONDS))
            try:
                tail = self._medium.tail(by_id)
                if tail.put_backs_count:
                    self._busy_until = time.monotonic()
                for name, record in tail.copies:
                    deed = by_id[name]
                    assert deed.named is not None
                    if record.queue_offset > deed.named.queue_offset and record.queue_offset not in deed.closed:
                        deed.settled, deed.whole_since = False, None
                        self._close(deed, record.queue_offset, record)
            except RemotingError:
                return  # the next look says what is wrong

    def _close(self, deed: Deed, queue_offset: int, record: NamedRecord | None) -> None:
        """Close a copy that the check will come to though the transaction is decided: nothing is delivered by that."""
        receipt = deed.begun()
        assert deed.named is not None
        deed.closed.add(queue_offset)
        if record is None:
            receipt.notes.append(f"half copy {queue_offset}, which the check comes to, cannot be read: it stays open")
            return
        if queue_offset > deed.named.queue_offset:
            receipt.notes.append(f"the check had put back half copy {queue_offset} meanwhile: it was closed too")
        else:
            receipt.notes.append(f"the check had the older half copy {queue_offset} before it too: it was closed")
        self._journal.go_on(receipt)
        answer = self._medium.decide(record, deed.situation, ROLLBACK, receipt)
        if not answer.is_success:
            receipt.notes.append(f"closing it was refused: code {answer.code}: {answer.remark or 'no remark'}")

    def _end(self, deed: Deed) -> None:
        receipt = deed.begun()
        proof = deed.proof or Proof(Seen.NOT_YET, "the transaction was not found")
        if proof.seen is Seen.CONTRADICTED:
            receipt.outcome = "contradicted"
            receipt.notes.append(str(proof.contradiction))
        elif proof.seen is Seen.WHOLE:
            receipt.outcome = "accepted" if deed.order.wish.action == "resume" else "proved"
            receipt.notes += _remarks(deed)
        else:
            if receipt.outcome == "accepted":
                receipt.outcome = "unknown"
                receipt.notes.append("the broker accepted it, and then its effect could not be seen")
            receipt.notes.append(self._problem or str(proof.lacking))
            if proof.open_queue_offsets:
                receipt.notes.append(f"look again, and stop the asking: rmqtx close {deed.order.transaction_id}")
        self._journal.end(receipt)


def _remarks(deed: Deed) -> list[str]:
    """What else is to be known of an effect that was seen."""
    if deed.order.wish.action == "resume":
        state = deed.begun().state_after
        became = [f"while it was watched it became {state}"] if state != "PENDING" else []
        return ["a new half copy is in the half queue: the broker asks the producer again", *became]
    if not deed.settled:
        return ["the check was busy to the end: rmqtx receipts --recheck says whether it put the copy back again"]
    return []


def _is_contradicted(deed: Deed) -> bool:
    return deed.proof is not None and deed.proof.seen is Seen.CONTRADICTED


def _is_decided(deed: Deed) -> bool:
    """Whether a rollback on a younger copy can only close it: a commit must be known to have arrived."""
    action = deed.order.wish.action
    if action == "resume" or deed.named is None:
        return False
    return action != "commit" or deed.begun().outcome == "accepted"

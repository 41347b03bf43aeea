"""After an act: wait until its effect is final, and close copies that the check puts back meanwhile.

A visible op message is not final. A pass of the check that read the op queue earlier may still put the copy back; the
broker would check that newer copy, and could deliver it again. So an effect is final when the check's cursor has passed
the newest copy, or when no copy of any transaction was put back for a while after the op message could be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rmqtx.remoting.protocol.codes import ROLLBACK
from rmqtx.remoting.protocol.errors import RemotingError
from rmqtx.repairs.acts.guard_rules import resume_too_old
from rmqtx.repairs.acts.medium import Medium
from rmqtx.repairs.acts.named_copies import is_in_rocksdb
from rmqtx.repairs.acts.orders import CheckedAct
from rmqtx.repairs.acts.proof import Proof, Seen, proof_of
from rmqtx.repairs.acts.situation import NamedRecord
from rmqtx.repairs.receipts.act_words import DELIVERING, ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_rows import witnesses_of
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import NextEvent, State

_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8)
#: Interval for reading the half queue's end: a copy is not put back again if it is closed early enough for its op to be
#: written before the next round of the check.
_TAIL_SECONDS = 0.05
#: A pass makes its put-backs without pauses; after this long without any put-back it is over.
_QUIET_SECONDS = 2.0


def prove(
    acts: Sequence[CheckedAct], medium: Medium, journal: Journal, *, prove_ms: int, watch_ms: int,
    note: Callable[[str], None],
) -> None:
    """Look for the effects of some acts, and complete their receipts.

    Units: milliseconds; each effect is looked for at most `prove_ms`, and all are watched at least `watch_ms`, so that
           a later decision of another client is seen.
    """
    if acts:
        note("verifying the effect")
        _Watch(acts, medium, journal).run(prove_ms, watch_ms)


class _Watch:
    """Some acts whose effects are looked for."""

    def __init__(self, acts: Sequence[CheckedAct], medium: Medium, journal: Journal) -> None:
        self._acts = acts
        self._medium = medium
        self._journal = journal
        self._problem: str | None = None
        self._busy_until = 0.0

    def run(self, prove_ms: int, watch_ms: int) -> None:
        """Watch until all effects are final, or the time is over."""
        start = time.monotonic()
        number = 0
        while True:
            closed_count = self._closed_count()
            self._look()
            waited_ms = (time.monotonic() - start) * 1000
            is_over = all(act.is_effect_final or _is_contradicted(act) for act in self._acts)
            if waited_ms >= (watch_ms if is_over else max(prove_ms, watch_ms)):
                break
            if self._medium.is_exclusive and self._problem is None and closed_count == self._closed_count():
                break  # no other process changes these files: the next look would show the same
            self._watch_tail(_PAUSES_SECONDS[min(number, len(_PAUSES_SECONDS) - 1)])
            number += 1
        for act in self._acts:
            self._end(act)

    def _closed_count(self) -> int:
        return sum(len(act.closed) for act in self._acts)

    def _look(self) -> None:
        """Look up all acts once; an error is kept for the receipts."""
        medium = self._medium
        self._problem = None
        try:
            cursors = medium.check_cursors()  # read first: a round writes its put-backs before it moves the cursor
            rows = {row.transaction_id: row for row in medium.look([d.order.transaction_id for d in self._acts])}
            for act in self._acts:
                row = rows.get(act.order.transaction_id)
                if row is None or act.named is None:
                    continue
                action = ActKind.RESUME if act.situation.is_sent_as_half else act.order.request.action
                act.proof = proof_of(
                    action, act.named.place(), act.situation.transaction, row,
                    cursors.get(act.named.store), is_in_rocksdb=is_in_rocksdb(act.named),
                    is_prepared=_is_without_op(act),
                )
                if act.proof.seen is Seen.WHOLE:
                    lacking = self._not_in_queue(act, action, row)
                    act.proof = act.proof if lacking is None else Proof(Seen.NOT_YET, lacking)
                receipt = act.begun()
                receipt.state_after, receipt.flags_after, act.next_event = row.state, list(row.flags), row.next_event
                receipt.witnesses_after = witnesses_of(row)
                for left in act.proof.open_queue_offsets:
                    if left not in act.closed:
                        now = replace(act.situation.transaction, half_copies=row.half_copies)
                        copies = replace(act.situation, transaction=now)
                        self._close(act, left, medium.record(copies, left))
                self._update_finality(act, cursors)
        except RemotingError as error:
            self._problem = error.message

    def _not_in_queue(self, act: CheckedAct, action: ActKind, after: Transaction) -> str | None:
        """Return why the readers of a queue do not reach what the act wrote; None where they do.

        A broker gives an op message no slot if its op queue ends with a filler (seen on 4.9.7 to 5.5.0).
        """
        before = act.situation.transaction
        if action == ActKind.REDELIVER:
            finals = set(after.final_records) - set(before.final_records)
            return next(filter(None, map(self._medium.not_in_queue, finals)), None)
        assert act.named is not None
        marks = {one for one in after.op_marks if one.half_queue_offset == act.named.queue_offset}
        words = [self._medium.not_in_queue(one) for one in marks - set(before.op_marks)]
        return words[0] if words and None not in words else None

    def _update_finality(self, act: CheckedAct, cursors: dict[str, int]) -> None:
        """Update `is_effect_final` of an act."""
        now = time.monotonic()
        assert act.proof is not None
        assert act.named is not None
        if act.proof.seen is not Seen.WHOLE:
            act.is_effect_final, act.whole_since = False, None
            return
        if act.whole_since is None:
            act.whole_since = now
        newest = max(
            (w.queue_offset for w in act.begun().witnesses_after if w.kind == "half_copy"),
            default=act.named.queue_offset,
        )
        is_past = cursors.get(act.named.store, -1) > newest
        is_quiet = now - max(act.whole_since, self._busy_until) >= _QUIET_SECONDS
        is_lasting = act.order.request.action == ActKind.RESUME or _is_without_op(act)  # no check puts these back
        act.is_effect_final = is_lasting or is_past or is_quiet or self._medium.is_exclusive

    def _watch_tail(self, seconds: float) -> None:
        """For some time, close at once every copy of a decided transaction that the check puts back."""
        by_id = {act.order.transaction_id: act for act in self._acts if _is_decided(act)}
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _TAIL_SECONDS))
            try:
                tail = self._medium.tail(by_id)
                if tail.put_backs_count:
                    self._busy_until = time.monotonic()
                for name, record in tail.copies:
                    act = by_id[name]
                    assert act.named is not None
                    if record.queue_offset > act.named.queue_offset and record.queue_offset not in act.closed:
                        act.is_effect_final, act.whole_since = False, None
                        self._close(act, record.queue_offset, record)
            except RemotingError:  # the next look-up reports it; a look-up costs a broker more than this
                time.sleep(max(0.0, end - time.monotonic()))
                return

    def _close(self, act: CheckedAct, queue_offset: int, record: NamedRecord | None) -> None:
        """Close a copy that the check will reach although the transaction is decided; nothing is delivered."""
        receipt = act.begun()
        assert act.named is not None
        act.closed.add(queue_offset)
        if record is None:
            receipt.notes.append(f"half copy {queue_offset}, which the check will reach, cannot be read: it stays open")
            return
        if queue_offset > max((one.queue_offset for one in act.situation.transaction.half_copies), default=-1):
            receipt.notes.append(f"the check put back half copy {queue_offset} meanwhile: it was closed too")
        else:
            receipt.notes.append(f"the check would have reached half copy {queue_offset} too: it was closed")
        self._journal.go_on(receipt)
        answer = self._medium.decide(record, act.situation, ROLLBACK, receipt)
        if not answer.is_success:
            receipt.notes.append(f"the broker refused to close it: code {answer.code}: {answer.remark or 'no remark'}")

    def _end(self, act: CheckedAct) -> None:
        receipt = act.begun()
        proof = act.proof or Proof(Seen.NOT_YET, "the transaction was not found")
        if proof.seen is Seen.CONTRADICTED:
            receipt.outcome = ActOutcome.CONTRADICTED
            receipt.notes.append(str(proof.contradiction))
        elif proof.seen is Seen.WHOLE:
            receipt.outcome = ActOutcome.ACCEPTED if act.order.request.action == ActKind.RESUME else ActOutcome.PROVED
            receipt.notes += _remarks(act)
        else:
            if receipt.outcome == ActOutcome.ACCEPTED:
                receipt.outcome = ActOutcome.UNKNOWN
                receipt.notes.append("the broker accepted the request, but its effect was not seen")
            receipt.notes.append(self._problem or str(proof.lacking))
            if proof.open_queue_offsets:
                receipt.notes.append(f"to stop the check: rmqtx close {act.order.transaction_id}")
        self._journal.end(receipt)


def _remarks(act: CheckedAct) -> list[str]:
    """Further notes on an effect that was seen."""
    if act.order.request.action == ActKind.RESUME:
        state = act.begun().state_after
        became = [f"during the watch its state became {state}"] if state != State.PENDING else []
        # The guard was overridden: the next round discards it, unless the reservation is raised before.
        is_too_old = resume_too_old(act.situation, act.order.request) is not None
        following = "the check discards it without asking, because of its age" if is_too_old else (
            "the check does not reach it, because it stops at another half message: see rmqtx diagnose"
            if act.next_event == NextEvent.STOPPED else "the broker will check it again"
        )
        return [f"a new half copy is in the half queue: {following}", *became]
    if not act.is_effect_final:
        return [
            "the check was still running at the end; to see whether it put the copy back again: "
            "rmqtx receipts --recheck"
        ]
    return []


def _is_without_op(act: CheckedAct) -> bool:
    """Whether no op message settles the record that the act named: a prepared record, or the source of a copy."""
    assert act.named is not None
    return act.named.is_prepared or act.situation.conditions.sent_to is not None


def _is_contradicted(act: CheckedAct) -> bool:
    return act.proof is not None and act.proof.seen is Seen.CONTRADICTED


def _is_decided(act: CheckedAct) -> bool:
    """Whether a rollback of a newer copy can only close it: for a commit, the broker must have accepted it."""
    action = act.order.request.action
    if action == ActKind.RESUME or act.named is None:
        return False
    return action not in DELIVERING or act.begun().outcome == ActOutcome.ACCEPTED

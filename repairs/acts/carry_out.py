"""The one path of every action: plan → guard → ask → act → prove.

The guards are applied twice: before the operator is asked to confirm, and again on a fresh look-up immediately before
each act, after a wait in which every decision that was under way has become visible. The second look-up and the proof
are made under one claim, so that a second operator cannot act in between. Each request is sent once; its effect is
looked up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest, RmqtxError
from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK
from rmqtx.remoting.protocol.errors import NoAnswer, RemotingError, Unreachable
from rmqtx.repairs.acts.guards import Refusal, refusals
from rmqtx.repairs.acts.medium import Medium
from rmqtx.repairs.acts.named_copies import record_to_name, with_named_copy
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct, Course
from rmqtx.repairs.acts.wait_for_effect import prove
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.receipts.saved_messages import save_message
from rmqtx.verdicts.model.transaction import Transaction

#: Guards that apply only after the wait, under the claim.
_LATE = ("decision-in-flight", "another-rmqtx")
#: Transactions that are looked up together before they are acted on one after the other.
_CHUNK = 50
_POLL_SECONDS = 0.2
#: Outcomes of an earlier act after which consumers may have the message.
_MAY_HAVE_SENT = (ActOutcome.PROVED, ActOutcome.ACCEPTED, ActOutcome.UNKNOWN, ActOutcome.CONTRADICTED)
_NEW_HALF_SECONDS = 5.0
#: How long a request without an answer may still reach the broker: a network that was interrupted delivers it late.
LATE_MS = 60_000


def checked_acts(orders: Sequence[ActOrder], medium: Medium, conduct: Conduct) -> list[CheckedAct]:
    """Look up the transactions of some orders and apply the guards.

    Order: that of the orders; an order whose transaction is not found is left out.
    """
    rows = _by_id(medium.look([order.transaction_id for order in orders]))
    known = [(order, rows[order.transaction_id]) for order in orders if order.transaction_id in rows]
    situations = medium.situations([row for _, row in known], settled_ms=0)
    acts = [CheckedAct(order, situation) for (order, _), situation in zip(known, situations, strict=True)]
    for act in acts:
        _guard(act, medium, conduct, _LATE)
    return acts


def _by_id(rows: Sequence[Transaction]) -> dict[str, Transaction]:
    """The rows by their id.

    Raises: BadRequest where several transactions have one id: an act must name one of them, and only ids name them.
    """
    found: dict[str, Transaction] = {}
    for row in rows:
        name = row.transaction_id
        if name in found:
            raise BadRequest(
                f"several transactions have the id {name}", advice="rmqtx cannot act on one of them alone"
            )
        found[name] = row
    return found


def refuse_redelivered_elsewhere(acts: Sequence[CheckedAct], receipts: Sequence[Receipt], conduct: Conduct) -> None:
    """Refuse redeliveries that the journal has for another broker, which is not searched for the message.

    `receipts`: all of the journal. One for the same broker does not count: there the message itself is found.
    """
    sent = {
        (one.transaction_id, one.store): one for one in receipts
        if one.action == ActKind.REDELIVER and one.outcome in _MAY_HAVE_SENT
    }
    for act in acts if "already-delivered" not in conduct.overrides else ():
        root = act.store_of(act.named)
        for (name, store), receipt in sent.items():
            if name == act.order.transaction_id and store != root:
                why = f"it was redelivered at {store} already: receipt {receipt.receipt_id} ({receipt.outcome})"
                act.refusals.append(Refusal("already-delivered", why, f"see rmqtx show {name}"))


def _guard(act: CheckedAct, medium: Medium, conduct: Conduct, without: Sequence[str] = ()) -> None:
    """Choose the copy that the act names, and apply the guards."""
    request = act.order.request
    act.situation = situation = with_named_copy(act.situation, request, conduct.overrides, medium)
    act.named = record_to_name(situation, request)
    act.refusals = list(refusals(situation, request, conduct.overrides, without))
    if act.named is None and not act.refusals:
        why = "the record that the action must name cannot be read"
        act.refusals = [Refusal("evidence-incomplete", why, f"see rmqtx show {act.order.transaction_id}")]


def carry_out(
    acts: Sequence[CheckedAct], medium: Medium, journal: Journal, conduct: Conduct, note: Callable[[str], None],
    course: Course | None = None,
) -> None:
    """Carry out acts that the operator confirmed; every act has its receipt afterwards.

    `note`: takes progress lines. `course`: counts the acts, and may stop them: acts that were not begun then have no
    receipt, and nothing is written into files.
    Raises: UnwritableFile before anything is done, if no receipt can be written.
    """
    course = course or Course()
    journal.prepare()
    for act in acts:
        if not act.is_allowed:
            _refuse(act, journal, conduct)
    allowed = [act for act in acts if act.is_allowed]
    if not allowed:
        return
    with medium.claimed([act.situation for act in allowed]) as rivals:
        allowed = [act for act in allowed if _is_ours(act, rivals, journal, conduct)]
        if not allowed:
            return
        settled_ms = _wait_for_decisions(allowed, medium, journal, conduct, note)
        acted = _act_on(allowed, medium, journal, conduct, settled_ms, course)
        if course.must_stop() and medium.is_untouched:
            for act in acted:
                _end(act, journal, ActOutcome.NOT_SENT, "nothing was written: interrupted")
            return
        _finish(acted, medium, journal)
        if conduct.prove:
            prove(acted, medium, journal, prove_ms=conduct.prove_ms, watch_ms=conduct.watch_ms, note=note)
        else:
            for act in acted:
                _end(act, journal, act.begun().outcome, "its effect was not verified")


def _act_on(
    allowed: Sequence[CheckedAct], medium: Medium, journal: Journal, conduct: Conduct, settled_ms: int, course: Course
) -> list[CheckedAct]:
    """Look up each transaction again, apply the guards, and act; return the acts that may have an effect.

    If the broker can no longer be read after some acts, or the course is stopped, the others are not done; nor are
    further redeliveries after one that the broker did not accept.
    """
    acted: list[CheckedAct] = []
    pace = _Pace(conduct.max_per_second, course)
    course.begin(len(allowed))
    for start in range(0, len(allowed), _CHUNK):
        if course.must_stop():
            break
        chunk = allowed[start : start + _CHUNK]
        try:
            _look_again(chunk, medium, conduct, settled_ms)
        except RemotingError as error:
            if not acted:
                raise
            # effects of requests that were sent are still proved
            _record_not_sent(allowed[start:], journal, conduct, error.message)
            break
        for act in chunk:
            if not act.is_allowed:
                _refuse(act, journal, conduct)
                course.add(is_done=False)
                continue
            pace.wait()
            if course.must_stop():
                break
            try:
                if is_acted := _act(act, medium, journal, conduct):
                    acted.append(act)
                course.add(is_done=is_acted)
            except RmqtxError:
                _record_not_written(acted, medium, journal)
                raise
            is_unexpected = act.begun().outcome != ActOutcome.ACCEPTED
            if is_unexpected and act.order.request.action == ActKind.REDELIVER:
                why = f"the redelivery of {act.order.transaction_id} was not accepted"
                _record_not_sent(allowed[allowed.index(act) + 1 :], journal, conduct, why)
                return acted
    return acted


def _is_ours(act: CheckedAct, rivals: Mapping[str, tuple[str, ...]], journal: Journal, conduct: Conduct) -> bool:
    """Whether no other rmqtx process holds the claim; if one does, the act is refused without a wait."""
    conditions = replace(act.situation.conditions, rivals=rivals.get(str(act.situation.group), ()))
    act.situation = replace(act.situation, conditions=conditions)
    found = refusals(act.situation, act.order.request, conduct.overrides)
    act.refusals = [refusal for refusal in found if refusal.guard == "another-rmqtx"]
    if act.refusals:
        _refuse(act, journal, conduct)
    return not act.refusals


def _wait_for_decisions(
    acts: Sequence[CheckedAct], medium: Medium, journal: Journal, conduct: Conduct, note: Callable[[str], None]
) -> int:
    """Wait until decisions that were under way are visible, and return the time waited. Units: milliseconds.

    A request of an earlier run that was not answered is one of them.
    """
    needed_ms = max(act.situation.conditions.settle_ms for act in acts)
    if all(act.order.request.action == ActKind.CLOSE for act in acts) or "decision-in-flight" in conduct.overrides:
        needed_ms = 0
    if conduct.settle_ms is not None:
        needed_ms = conduct.settle_ms
    if "decision-in-flight" not in conduct.overrides and not medium.is_exclusive:
        deciding = {one.order.transaction_id for one in acts if one.order.request.action != ActKind.CLOSE}
        late_ms = max(late_until_ms(journal, deciding).values(), default=0) - clock.now_ms()
        if late_ms > 0:
            note(f"an earlier request for one of them may still arrive without an answer: {late_ms / 1000:g} s more")
            needed_ms += late_ms
    if needed_ms:
        note(
            f"waiting {needed_ms / 1000:g} s for decisions that may still be in the broker's request queue or op batch"
        )
        medium.wait(needed_ms)
    return needed_ms


def late_until_ms(journal: Journal, transaction_ids: Collection[str] | None = None) -> dict[str, int]:
    """Return until when unanswered requests of earlier acts may reach a broker, by transaction; None: all.

    Units: epoch milliseconds. Raises: UnreadableFile.
    """
    found: dict[str, int] = {}
    for receipt in journal.read().receipts:
        sent_ms = receipt.unanswered_time_ms
        name = receipt.transaction_id
        if sent_ms is not None and name is not None and (transaction_ids is None or name in transaction_ids):
            found[name] = max(sent_ms + LATE_MS, found.get(name, 0))
    return found


def _look_again(acts: Sequence[CheckedAct], medium: Medium, conduct: Conduct, settled_ms: int) -> None:
    """Look up the situations as they are now, and apply all guards to them."""
    rows = _by_id(medium.look([act.order.transaction_id for act in acts]))
    found = [act for act in acts if act.order.transaction_id in rows]
    situations = medium.situations([rows[act.order.transaction_id] for act in found], settled_ms=settled_ms)
    for act, situation in zip(found, situations, strict=True):
        act.situation = situation
        _guard(act, medium, conduct)
    for act in acts:
        if act not in found:
            why = "its records no longer exist"
            act.refusals = [Refusal("evidence-incomplete", why, f"see rmqtx show {act.order.transaction_id}")]


def _refuse(act: CheckedAct, journal: Journal, conduct: Conduct) -> None:
    receipt = act.begin(conduct)
    receipt.outcome = ActOutcome.REFUSED_BY_GUARD
    receipt.state_after = receipt.state_before
    receipt.notes = [str(refusal) for refusal in act.refusals]
    journal.end(receipt)


def _record_not_sent(acts: Sequence[CheckedAct], journal: Journal, conduct: Conduct, why: str) -> None:
    """Record that the rest was not done."""
    for act in acts:
        act.begin(conduct)
        _end(act, journal, ActOutcome.NOT_SENT, f"nothing was sent: {why}")


# -- acting -----------------------------------------------------------------------------------------------------------


def _act(act: CheckedAct, medium: Medium, journal: Journal, conduct: Conduct) -> bool:
    """Send the request of the action, and return whether it may have an effect."""
    receipt = act.begin(conduct)
    action = act.order.request.action
    assert act.named is not None
    if action == ActKind.DISCARD:
        receipt.saved_message = str(save_message(act.named.raw, receipt.receipt_id, journal.directory))
    journal.begin(receipt)
    try:
        if action == ActKind.RESUME:
            answer = medium.resume(act.named, receipt)
        elif action == ActKind.REDELIVER:
            answer = medium.redeliver(act.named, act.situation, receipt)
        elif action == ActKind.DISCARD:
            answer = medium.discard(act.named, act.situation, receipt)
        elif action == ActKind.COMMIT and act.situation.named is None:
            answer = _commit_by_resume(act, medium, journal, receipt)
        else:
            decision = COMMIT if action == ActKind.COMMIT else ROLLBACK
            answer = medium.decide(act.named, act.situation, decision, receipt)
    except Unreachable as error:
        return _end(act, journal, ActOutcome.NOT_SENT, f"nothing was sent: {error}")
    except RemotingError as error:
        receipt.notes.append(f"{error.message}; the broker may have received the request")
        return True
    except RmqtxError as error:
        if medium.is_untouched:
            _end(act, journal, ActOutcome.NOT_SENT, f"nothing was written: {error}")
        raise
    if not answer.is_success:
        return _end(act, journal, ActOutcome.REFUSED_BY_BROKER, f"code {answer.code}: {answer.remark or 'no remark'}")
    receipt.outcome = ActOutcome.ACCEPTED
    return True


def _finish(acted: Sequence[CheckedAct], medium: Medium, journal: Journal) -> None:
    """Have the medium write what it has planned; if it fails, every receipt records whether anything was written.

    Raises: RmqtxError.
    """
    if not acted:
        return
    if medium.is_untouched:  # receipts list what will be written before it is written
        for act in acted:
            journal.go_on(act.begun())
    try:
        moved = medium.finish()
    except RmqtxError as error:
        outcome = ActOutcome.NOT_SENT if medium.is_untouched else ActOutcome.UNKNOWN
        for act in acted:
            _end(act, journal, outcome, f"{'nothing was written' if medium.is_untouched else 'interrupted'}: {error}")
        raise
    for act in acted:
        receipt = act.begun()
        receipt.store = moved.get(receipt.store, receipt.store)
        if act.named is not None:
            act.named = replace(act.named, store=moved.get(act.named.store, act.named.store))


def _record_not_written(acted: Sequence[CheckedAct], medium: Medium, journal: Journal) -> None:
    """Record that planned acts were not done, because another act of the same run failed."""
    for act in acted if medium.is_untouched else ():
        note = "nothing was written: the act on another transaction of this run failed"
        _end(act, journal, ActOutcome.NOT_SENT, note)


def _end(act: CheckedAct, journal: Journal, outcome: ActOutcome, note: str) -> bool:
    receipt = act.begun()
    receipt.outcome = outcome
    receipt.notes.append(note)
    journal.end(receipt)
    return False


def _commit_by_resume(act: CheckedAct, medium: Medium, journal: Journal, receipt: Receipt) -> Answer:
    """Commit a transaction that has only a discard copy: request a new half copy once, then commit that copy."""
    assert act.named is not None
    receipt.notes.append("no half copy is left: a new one is made from the discard copy first")
    answer = medium.resume(act.named, receipt)
    if not answer.is_success:
        return answer
    end = time.monotonic() + _NEW_HALF_SECONDS
    while time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        rows = medium.look([act.order.transaction_id])
        if rows and len(rows[0].half_copies) > len(act.situation.transaction.half_copies):
            situation = medium.situations(rows, settled_ms=0)[0]
            if situation.half_copy is not None:
                act.situation, act.named = situation, situation.half_copy
                receipt.named_copy = act.named.place()
                journal.go_on(receipt)
                return medium.decide(act.named, situation, COMMIT, receipt)
    raise NoAnswer(f"the new half copy did not appear within {_NEW_HALF_SECONDS:g} s, so it was not committed")


class _Pace:
    """Limits the number of acts per second."""

    def __init__(self, max_per_second: float | None, course: Course) -> None:
        self._course = course
        self._gap_seconds = 0.0 if not max_per_second else 1 / max_per_second
        self._next = 0.0

    def wait(self) -> None:
        """Wait until the next act may start, or the course is stopped."""
        while (now := time.monotonic()) < self._next and not self._course.must_stop():
            time.sleep(min(self._next - now, _POLL_SECONDS))
        self._next = max(now, self._next) + self._gap_seconds

"""The one path of every action: plan → guard → ask → act → prove.

The guards are asked twice: before anybody is asked to agree, and again on a fresh look immediately before each act,
after a wait in which every decision that was under way has become visible. Both looks and the proof stand under one
claim, so that a second operator never acts in between. What is sent is sent once; what became of it is looked up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from readers.model.errors import BadRequest, RmqtxError
from remoting.protocol.answers import Answer
from remoting.protocol.codes import COMMIT, ROLLBACK
from remoting.protocol.errors import NoAnswer, RemotingError, Unreachable
from repairs.acts.guards import Refusal, refusals
from repairs.acts.medium import Medium
from repairs.acts.orders import Conduct, Deed, Order
from repairs.acts.request import Wish
from repairs.acts.rocksdb_halves import is_in_rocksdb
from repairs.acts.situation import NamedRecord, Situation, copies_without_op
from repairs.acts.wait_for_effect import prove
from repairs.receipts.journal import Journal
from repairs.receipts.receipts import Receipt
from repairs.receipts.saved_messages import save_message

#: Guards that only say something after the wait, under the claim.
_LATE = ("decision-in-flight", "another-rmqtx")
#: How many are looked at together before they are acted on one after the other.
_CHUNK = 50
_POLL_SECONDS = 0.2
_NEW_HALF_SECONDS = 5.0


def prepared(orders: Sequence[Order], medium: Medium, conduct: Conduct) -> list[Deed]:
    """The orders with what is known of their transactions now, and what the guards say to it.

    Order: that of the orders; one whose transaction is not found is left out.
    """
    rows = _by_id(medium.look([order.transaction_id for order in orders]))
    known = [(order, rows[order.transaction_id]) for order in orders if order.transaction_id in rows]
    situations = medium.situations([row for _, row in known], settled_ms=0)
    deeds = [Deed(order, situation) for (order, _), situation in zip(known, situations, strict=True)]
    for deed in deeds:
        _guard(deed, medium, conduct, _LATE)
    return deeds


def _by_id(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows by their id.

    Raises: BadRequest where several transactions bear one id: who acts must say which, and ids are all there is.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row["transaction_id"]
        if name in found:
            raise BadRequest(f"several transactions bear the id {name}", advice="nothing can name one of them alone")
        found[name] = row
    return found


def _guard(deed: Deed, medium: Medium, conduct: Conduct, without: Sequence[str] = ()) -> None:
    """Ask the guards, and settle which copy is named."""
    wish, situation = deed.order.wish, deed.situation
    queue_offset = wish.queue_offset
    if queue_offset is None and wish.action == "close" and not is_in_rocksdb(situation.half_copy):
        # A copy that an op marks is closed already.
        queue_offset = max(copies_without_op(situation.row), default=None)
    if queue_offset is not None:
        situation = replace(situation, named=medium.record(situation, queue_offset))
    elif situation.half_copy is None and "not-a-half" in conduct.overrides:
        situation = replace(situation, named=situation.discard_copy)
    deed.situation = situation
    deed.named = _named(situation, wish)
    deed.refusals = list(refusals(situation, wish, conduct.overrides, without))
    if deed.named is None and not deed.refusals:
        why = "no record that the action could name can be read"
        deed.refusals = [Refusal("evidence-incomplete", why, "look at it with rmqtx show")]


def _named(situation: Situation, wish: Wish) -> NamedRecord | None:
    if wish.action == "resume":
        return situation.discard_copy or situation.half_copy
    if wish.action == "commit":
        return situation.named or situation.discard_copy
    return situation.named


def carry_out(
    deeds: Sequence[Deed], medium: Medium, journal: Journal, conduct: Conduct, tell: Callable[[str], None]
) -> None:
    """Carry out what was prepared and agreed to; every deed has its receipt afterwards.

    `tell`: takes lines on what is waited for.
    Raises: UnwritableFile before anything is done, if no receipt can be written.
    """
    journal.prepare()
    for deed in deeds:
        if not deed.is_allowed:
            _refuse(deed, journal, conduct)
    allowed = [deed for deed in deeds if deed.is_allowed]
    if not allowed:
        return
    with medium.claimed([deed.situation for deed in allowed]) as rivals:
        allowed = [deed for deed in allowed if _is_ours(deed, rivals, journal, conduct)]
        if not allowed:
            return
        settled_ms = _settle(allowed, medium, conduct, tell)
        acted: list[Deed] = []
        pace = _Pace(conduct.max_per_second)
        for start in range(0, len(allowed), _CHUNK):
            chunk = allowed[start : start + _CHUNK]
            try:
                _look_again(chunk, medium, conduct, settled_ms)
            except RemotingError as error:
                if not acted:
                    raise
                _leave(allowed[start:], journal, conduct, error)  # what was sent must still be looked up
                break
            for deed in chunk:
                if not deed.is_allowed:
                    _refuse(deed, journal, conduct)
                    continue
                pace.wait()
                try:
                    if _act(deed, medium, journal, conduct):
                        acted.append(deed)
                except RmqtxError:
                    _forget(acted, medium, journal)
                    raise
        _finish(acted, medium, journal)
        if conduct.prove:
            prove(acted, medium, journal, prove_ms=conduct.prove_ms, watch_ms=conduct.watch_ms, tell=tell)
        else:
            for deed in acted:
                _end(deed, journal, deed.begun().outcome, "its effect was not looked for")


def _is_ours(deed: Deed, rivals: Mapping[str, tuple[str, ...]], journal: Journal, conduct: Conduct) -> bool:
    """Whether nobody else of us was there first; nothing is waited for where somebody was."""
    around = replace(deed.situation.around, rivals=rivals.get(str(deed.situation.group), ()))
    deed.situation = replace(deed.situation, around=around)
    found = refusals(deed.situation, deed.order.wish, conduct.overrides)
    deed.refusals = [refusal for refusal in found if refusal.guard == "another-rmqtx"]
    if deed.refusals:
        _refuse(deed, journal, conduct)
    return not deed.refusals


def _settle(deeds: Sequence[Deed], medium: Medium, conduct: Conduct, tell: Callable[[str], None]) -> int:
    """Wait until decisions that were under way show. Units: milliseconds waited."""
    needed_ms = max(deed.situation.around.settle_ms for deed in deeds)
    if all(deed.order.wish.action == "close" for deed in deeds) or "decision-in-flight" in conduct.overrides:
        needed_ms = 0
    if conduct.settle_ms is not None:
        needed_ms = conduct.settle_ms
    if needed_ms:
        tell(f"waiting {needed_ms / 1000:g} s for decisions that may still be in the broker's queue or op batch")
        medium.wait(needed_ms)
    return needed_ms


def _look_again(deeds: Sequence[Deed], medium: Medium, conduct: Conduct, settled_ms: int) -> None:
    """The situations as they are now, and what the guards say to them."""
    rows = _by_id(medium.look([deed.order.transaction_id for deed in deeds]))
    found = [deed for deed in deeds if deed.order.transaction_id in rows]
    situations = medium.situations([rows[deed.order.transaction_id] for deed in found], settled_ms=settled_ms)
    for deed, situation in zip(found, situations, strict=True):
        deed.situation = situation
        _guard(deed, medium, conduct)
    for deed in deeds:
        if deed not in found:
            why = "its records are not there any more"
            deed.refusals = [Refusal("evidence-incomplete", why, "look at it with rmqtx show")]


def _refuse(deed: Deed, journal: Journal, conduct: Conduct) -> None:
    receipt = deed.begin(conduct)
    receipt.outcome = "refused_by_guard"
    receipt.state_after = receipt.state_before
    receipt.notes = [str(refusal) for refusal in deed.refusals]
    journal.end(receipt)


def _leave(deeds: Sequence[Deed], journal: Journal, conduct: Conduct, error: RemotingError) -> None:
    """Write down that the rest was not done, because the broker could not be looked at any more."""
    for deed in deeds:
        deed.begin(conduct)
        _end(deed, journal, "not_sent", f"nothing was sent: {error.message}")


# -- acting -----------------------------------------------------------------------------------------------------------


def _act(deed: Deed, medium: Medium, journal: Journal, conduct: Conduct) -> bool:
    """Send what the action needs; gives whether there may be an effect to look for."""
    receipt = deed.begin(conduct)
    action = deed.order.wish.action
    assert deed.named is not None
    if action == "discard":
        receipt.saved_message = str(save_message(deed.named.raw, receipt.receipt_id, journal.directory))
    journal.begin(receipt)
    try:
        if action == "resume":
            answer = medium.resume(deed.named, receipt)
        elif action == "discard":
            answer = medium.discard(deed.named, deed.situation, receipt)
        elif action == "commit" and deed.situation.named is None:
            answer = _commit_by_resume(deed, medium, journal, receipt)
        else:
            decision = COMMIT if action == "commit" else ROLLBACK
            answer = medium.decide(deed.named, deed.situation, decision, receipt)
    except Unreachable as error:
        return _end(deed, journal, "not_sent", f"nothing was sent: {error}")
    except RemotingError as error:
        receipt.notes.append(f"{error.message}: it may have been received")
        return True
    except RmqtxError as error:
        if medium.is_untouched:
            _end(deed, journal, "not_sent", f"nothing was written: {error}")
        raise
    if not answer.is_success:
        return _end(deed, journal, "refused_by_broker", f"code {answer.code}: {answer.remark or 'no remark'}")
    receipt.outcome = "accepted"
    return True


def _finish(acted: Sequence[Deed], medium: Medium, journal: Journal) -> None:
    """Have the medium do what it only planned so far; where it cannot, every receipt says what that means.

    Raises: RmqtxError.
    """
    if not acted:
        return
    if medium.is_untouched:  # what will be written is in the receipts before it is
        for deed in acted:
            journal.go_on(deed.begun())
    try:
        moved = medium.finish()
    except RmqtxError as error:
        outcome = "not_sent" if medium.is_untouched else "unknown"
        for deed in acted:
            _end(deed, journal, outcome, f"{'nothing was written' if medium.is_untouched else 'interrupted'}: {error}")
        raise
    for deed in acted:
        receipt = deed.begun()
        receipt.store = moved.get(receipt.store, receipt.store)
        if deed.named is not None:
            deed.named = replace(deed.named, store=moved.get(deed.named.store, deed.named.store))


def _forget(acted: Sequence[Deed], medium: Medium, journal: Journal) -> None:
    """What was only planned is not done, because something else of the same run cannot be."""
    for deed in acted if medium.is_untouched else ():
        _end(deed, journal, "not_sent", "nothing was written: another transaction of the run could not be acted on")


def _end(deed: Deed, journal: Journal, outcome: str, note: str) -> bool:
    receipt = deed.begun()
    receipt.outcome = outcome
    receipt.notes.append(note)
    journal.end(receipt)
    return False


def _commit_by_resume(deed: Deed, medium: Medium, journal: Journal, receipt: Receipt) -> Answer:
    """Commit what has a discard copy only: ask once for a new half copy, then commit that."""
    assert deed.named is not None
    receipt.notes.append("no half copy is left: a new one is made of the discard copy first")
    answer = medium.resume(deed.named, receipt)
    if not answer.is_success:
        return answer
    end = time.monotonic() + _NEW_HALF_SECONDS
    while time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
        rows = medium.look([deed.order.transaction_id])
        if rows and len(rows[0]["half_copies"]) > len(deed.situation.row["half_copies"]):
            situation = medium.situations(rows, settled_ms=0)[0]
            if situation.half_copy is not None:
                deed.situation, deed.named = situation, situation.half_copy
                receipt.named_copy = deed.named.place()
                journal.go_on(receipt)
                return medium.decide(deed.named, situation, COMMIT, receipt)
    raise NoAnswer(f"the new half copy did not appear within {_NEW_HALF_SECONDS:g} s, so it was not committed")


class _Pace:
    """Lets so many acts a second go."""

    def __init__(self, max_per_second: float | None) -> None:
        self._gap_seconds = 0.0 if not max_per_second else 1 / max_per_second
        self._next = 0.0

    def wait(self) -> None:
        """Wait until the next one may go."""
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._gap_seconds

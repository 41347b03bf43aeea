"""What must hold after each course, whatever happened in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from rmqtx.remoting.protocol.codes import RequestCode
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.receipts import Receipt
from tests.wire.broker import Decision
from tests.wire.course import Course, Send

_NOTHING_DONE = (ActOutcome.NOT_SENT, ActOutcome.REFUSED_BY_GUARD, ActOutcome.REFUSED_BY_BROKER)


def violations(course: Course) -> list[str]:
    """Return the invariants that a course violates, in words."""
    return [*_journalled(course), *_own_only(course), *_delivered(course), *_on_decided(course), *_closed(course),
            *_resumed(course), *_truthful(course), *_finished(course), *_released(course),
            *_drained(course)]


def _decisions(course: Course, name: str) -> list[Decision]:
    broker = course.halves.get(name)
    return [] if broker is None else [one for one in broker.decisions if one.transaction_id == name]


def _journalled(course: Course) -> Iterator[str]:
    """A receipt for each effect: the intent is in the journal before the request."""
    for send in course.sends:
        if send.lines_count <= send.sends_count:
            yield (
                f"no receipt: {send.process} sent {RequestCode(send.code).name} about {send.about} number "
                f"{send.sends_count + 1}, and the journal had {send.lines_count} intents"
            )


def _own_only(course: Course) -> Iterator[str]:
    """No other transaction is touched."""
    for send in course.sends:
        if send.code == RequestCode.UPDATE_BROKER_CONFIG:
            if course.order[send.process] not in ("hold", "drain", "release"):
                yield f"{send.process} changed settings"
        elif send.about not in course.targets[send.process]:
            yield f"{send.process} touched {send.about or 'a record that does not exist'}, which was not in its order"
        elif not send.is_of_its_place:
            yield f"{send.process} named another record's number for {send.about}"


def _executed(course: Course, send: Send) -> list[Decision]:
    """The decisions that a request made: none, one, or more where the network doubled it."""
    return [
        one for one in _decisions(course, send.about)
        if one.is_ours and one.request == (id(send.wire), send.opaque)
    ]


def _delivered(course: Course) -> Iterator[str]:
    """At most one delivery by us."""
    for name in course.halves:
        sends = [
            send for send in course.sends
            if send.about == name and send.is_commit and _executed(course, send)
        ]
        if len(sends) > 1 and not _was_under_way(course, sends):
            yield f"{name} was delivered by {' and '.join(send.process for send in sends)}"


def _was_under_way(course: Course, sends: list[Send]) -> bool:
    """Whether another user's request arrived when the last one had looked: no journal of another user is read, and the
    claim of a process ends with it.
    """
    last = sends[-1]
    return all(
        one.office is not last.office and all(done.time_ns > last.looked_ns for done in _executed(course, one))
        for one in sends[:-1]
    )


def _orders(course: Course, process: str) -> str:
    order = course.order[process]
    return course.order["plan"] if order in ("apply", "answer") else order


def _on_decided(course: Course) -> Iterator[str]:
    """No act on a decided transaction: on one that was decided when the last look-up before the request began, or
    longer ago than a look-up takes.
    """
    for send in course.sends:
        if send.code == RequestCode.UPDATE_BROKER_CONFIG or send.about not in course.halves:
            continue
        order = _orders(course, send.process)
        is_act = send.is_commit or order in ("rollback", "discard", "resume")
        if not is_act:
            continue
        broker = course.halves[send.about]
        seen_ns = max(send.looked_ns, send.time_ns - int(send.reading_seconds * 1e9))
        if order == "resume":  # has the producer asked, so connected ones may have decided what is in memory yet
            seen_ns -= (3_000 + 2 * broker.rules.op_interval_ms) * 1_000_000
        before = [
            one for one in _decisions(course, send.about)
            if one.sent_ns < seen_ns and one.time_ns < send.time_ns and one.by != send.process
            and not (one.named in broker.lost_ops and not one.is_commit)
        ]
        closes = order in ("rollback", "discard") and any(
            one.process == send.process and one.about == send.about and one.time_ns < send.time_ns
            for one in course.sends
        )
        if before and not closes:
            one = before[-1]
            word = "committed" if one.is_commit else "rolled back"
            yield f"{send.process} acted on {send.about}, which was {word} by {one.by} before it looked"


def _closed(course: Course) -> Iterator[str]:
    """A rollback that only closes is sent for decided transactions."""
    for send in course.sends:
        if send.code != RequestCode.END_TRANSACTION or send.is_commit or send.about not in course.halves:
            continue
        if _orders(course, send.process) in ("rollback", "discard"):
            continue
        if not [one for one in _decisions(course, send.about) if one.time_ns < send.time_ns]:
            yield f"{send.process} rolled back {send.about}, which had no decision"


def _resumed(course: Course) -> Iterator[str]:
    """A resume makes no second open copy."""
    for broker in course.brokers:
        for name, process in broker.reopened:
            yield f"{process} resumed {name}, which the check still reaches"


def _receipts(course: Course) -> Iterator[Receipt]:
    for office in course.offices:
        found = office.journal.read()
        assert all(one.code == "receipt-torn" for one in found.findings), found.findings
        yield from found.receipts


def _truthful(course: Course) -> Iterator[str]:
    """An outcome is not more, and not less, than what happened."""
    sends: dict[str, list[Send]] = defaultdict(list)
    for send in course.sends:
        sends[str(send.receipt_id)].append(send)
    for receipt in _receipts(course):
        course.counts[f"{receipt.action} {receipt.outcome}"] += 1
        if receipt.transaction_id is None or receipt.transaction_id not in course.halves:
            continue
        name, mine = receipt.transaction_id, sends[receipt.receipt_id]
        single = [send for send in mine if (id(send.wire), send.opaque) not in send.wire.network.doubled]
        if receipt.outcome in _NOTHING_DONE and any(_executed(course, send) for send in single):
            yield f"receipt of {receipt.action} of {name} is {receipt.outcome}, and it was carried out"
        if receipt.outcome != ActOutcome.PROVED:
            continue
        finals = course.halves[name].finals(name)
        ended_ms = receipt.ended_time_ms or 0
        if receipt.action == ActKind.COMMIT and sum(one.store_time_ms < ended_ms - 5_000 for one in finals) > 1:
            yield f"the commit of {name} is proved, and it had been delivered twice"
        if _is_asked_again(course, receipt, ended_ms):
            yield f"the {receipt.action} of {name} is proved, and the check put a copy back afterwards"
        if receipt.action == ActKind.COMMIT and not finals:
            yield f"the commit of {name} is proved, and nothing was delivered"
        if receipt.action != ActKind.RESUME and not _decisions(course, name):
            yield f"the {receipt.action} of {name} is proved, and no decision was carried out"


def _is_asked_again(course: Course, receipt: Receipt, ended_ms: int) -> bool:
    """Whether the check put back a transaction whose decision is proved; a killed broker does, and a resume asks."""
    name = str(receipt.transaction_id)
    broker = course.halves[name]
    is_open = receipt.action == ActKind.RESUME or any("still running" in note for note in receipt.notes)
    if is_open or broker.killed_count or any(send.code == RequestCode.RESUME_CHECK_HALF_MESSAGE and send.about == name
                                             for send in course.sends):
        return False
    return any(one == name and time_ns // 1_000_000 > ended_ms for time_ns, one in broker.put_backs)


def _finished(course: Course) -> Iterator[str]:
    """The same order again finishes, and repeats nothing."""
    if not course.last_run_name:
        return
    for send in course.sends:  # a last run follows one without faults
        if send.process == course.last_run_name and send.code != RequestCode.RESUME_CHECK_HALF_MESSAGE:
            yield f"{send.process} still sent {RequestCode(send.code).name} about {send.about}"
    order = _orders(course, course.last_run_name)
    for name in course.targets[course.last_run_name]:
        decisions = _decisions(course, name)
        if any(not one.is_ours for one in decisions) or _was_discarded(course, name):
            continue
        if any(order_of != order for order_of in {_orders(course, one) for one in course.targets if one != "planner"}):
            continue
        if order == "commit" and len(course.halves[name].finals(name)) == 0 and _may_act(course, name):
            yield f"{name} is not delivered after the order was given again"
        if order in ("rollback", "discard") and not decisions and _may_act(course, name):
            yield f"{name} is not rolled back after the order was given again"


def _was_discarded(course: Course, name: str) -> bool:
    return any(one == name for _, one in course.halves[name].discards)


def _may_act(course: Course, name: str) -> bool:
    """Whether no guard refused the last runs, and a plan named it."""
    if course.order[course.last_run_name] == "apply":
        office = course.offices[0]
        if name not in office.plan.read_text():
            return False
    last = [one for one in _receipts(course) if one.transaction_id == name]
    return not last or last[-1].outcome not in (ActOutcome.REFUSED_BY_GUARD, ActOutcome.UNKNOWN)


def _released(course: Course) -> Iterator[str]:
    """After the release the settings are those of before."""
    if course.act not in ("hold", "drain"):
        return
    for broker in course.brokers:
        before, after = course.settings_before[broker.root], broker.rules.conf(broker.name)
        changed = {name: (value, after.get(name)) for name, value in before.items() if after.get(name) != value}
        if changed:
            yield f"{broker.root}: released, and {changed}"


def _drained(course: Course) -> Iterator[str]:
    """What is reported to be safe to stop loses nothing by a stop: no open transaction, no op message in memory."""
    for _, root, left, marks_count in course.drained:
        if left:
            yield f"{root} was safe to stop, and {' and '.join(left)} was open"
        if marks_count:
            yield f"{root} was safe to stop, and {marks_count} op marks were in memory"
    course.counts["drain safe"] += len(course.drained)

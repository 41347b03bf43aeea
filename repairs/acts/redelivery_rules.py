"""The rules of the guards of redeliveries; see `guard_rules`."""

from __future__ import annotations

from rmqtx.repairs.acts.situation import ActRequest, Situation
from rmqtx.repairs.receipts.act_words import DELIVERING, ActKind
from rmqtx.repairs.records.record_writer import has_readable_body
from rmqtx.verdicts.model.verdict_words import OPEN_AGAIN_FLAG, State

#: Why a guard refuses, with the evidence, and what to do instead; None where it does not refuse.
Found = tuple[str, str] | None


def not_over(situation: Situation) -> Found:
    """Why a transaction may still be delivered without a redelivery."""
    identity = situation.transaction_id
    if situation.is_sent_as_half:
        return None if not situation.conditions.is_there else (
            "a broker that is asked has this transaction already: with a second half message, both may be committed",
            f"see rmqtx show {identity} -n HOST:PORT",
        )
    if OPEN_AGAIN_FLAG in situation.transaction.flags:
        return (
            f"the check will still reach half copy {situation.newest_queue_offset}: if its producer answers COMMIT, "
            "consumers get the message twice",
            f"let the producer answer, or end the checks first: rmqtx close {identity} of a decided transaction, "
            f"rmqtx commit {identity} of a discarded one",
        )
    if situation.state == State.PENDING or situation.is_open_or_dropped:
        return (
            "it is not decided: its producer may still decide, and consumers would get the message twice",
            f"wait for the check, or rmqtx commit {identity}" if situation.conditions.sent_to is None else
            "if its broker will not start again, send it as a half message, which is checked: --as-half",
        )
    return None


def traced_rollback(situation: Situation, request: ActRequest) -> Found:
    """Its producer's message trace has a rollback, or may have one where it could not be read."""
    word, unread = situation.conditions.traced_rollback, situation.conditions.traces_unread
    if request.action != ActKind.REDELIVER or situation.is_sent_as_half:
        return None
    if word is None and unread:
        return (
            f"its producer may have decided to roll it back: message traces could not be read: {'; '.join(unread)}",
            "make them readable; or look up its outcome in the application, and if it was done there, add --override "
            "traced-rollback --reason TEXT",
        )
    if word is None:
        return None
    return (
        f"its producer decided to roll it back: {word}",
        "look up its outcome in the application; if it was done there, add --override traced-rollback --reason TEXT",
    )


def delayed_half(situation: Situation, request: ActRequest) -> Found:
    """A delay or timer diverted the half itself: the broker answers a commit with success and delivers nothing."""
    if request.action not in DELIVERING or situation.conditions.is_stopped:
        return None
    if "delayed_half" not in situation.transaction.flags:
        return None
    return (
        "a delay or timer property diverted its half message, so the record names the half topic as its real topic: "
        "the broker answers a commit with success, and consumers get nothing",
        "send the message again from the application",
    )


def cannot_be_sent(situation: Situation, request: ActRequest) -> Found:
    """No copy has what consumers need, or the copy that a commit names has not."""
    why, conditions, named = situation.conditions.unsendable, situation.conditions, situation.named
    if why is not None:
        return f"it cannot be delivered: {why}", "send the message again from the application"
    if request.action not in DELIVERING or not conditions.is_by_request or named is None or not named.raw:
        return None
    return None if has_readable_body(named.raw) else (
        f"consumers cannot read the body of half copy {named.queue_offset}, which the broker would deliver (the "
        "check of a broker before 4.6.0 corrupts the copies of a compressed message)",
        f"have the newest copy delivered that they can read: rmqtx commit {situation.transaction_id}, without --copy",
    )


def decidable_there(situation: Situation, _: ActRequest) -> Found:
    """A copy would be sent to a broker that can deliver the half message itself."""
    if not situation.conditions.is_decidable_there or situation.is_sent_as_half:
        return None
    return (
        "a broker has its half message in its log and can deliver it, with its transaction id and without a copy",
        f"leave out --store: rmqtx redeliver {situation.transaction_id} -n HOST:PORT --reason TEXT",
    )

"""Acts that the operator confirms: options, preview, confirmation, receipts, exit status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.acts.carry_out import carry_out, checked_acts, refuse_redelivered_elsewhere
from rmqtx.repairs.acts.guards import overridden
from rmqtx.repairs.acts.orders import ActOrder, CheckedAct, Conduct, Course
from rmqtx.repairs.acts.situation import ActRequest
from rmqtx.repairs.receipts.act_words import DELIVERING, ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import RECEIPTS, STATUS_OF_OUTCOME, status_of, table
from rmqtx_cli.acting.acted_on import ActedOn
from rmqtx_cli.options.act_options import ActOptions
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.next_commands import with_places
from rmqtx_cli.options.options import ReceiptOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.views import acts_view
from rmqtx_cli.sources.interrupting import stopping
from rmqtx_cli.words import progress, say
from rmqtx_cli.words.near import did_you_mean
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, group_words, topic_words
from rmqtx_cli.words.times import age_text, parse_duration_ms

if TYPE_CHECKING:
    from rmqtx.repairs.acts.medium import Medium
    from rmqtx.repairs.acts.situation import SentTo
    from rmqtx_cli.words import log_json
    from rmqtx_cli.words.progress import CountBar

#: More transactions at once need a plan, which another operator can review.
AT_ONCE_MAX = 20


def conduct_of(act: ActOptions, override: Sequence[str] | None, reason: str | None) -> Conduct:
    """The rules for carrying out acts. Raises: BadRequest for an unknown guard, or an override without a reason."""
    overrides = overridden(override or (), reason, did_you_mean)
    if act.max_per_second is not None and act.max_per_second <= 0:
        raise BadRequest("--max-per-second must be more than 0")
    if act.wait_for is not None and not act.wait:
        raise BadRequest("--no-wait and --wait-for contradict each other")
    return Conduct(
        overrides=overrides, prove=act.wait,
        settle_ms=None if act.settle is None else parse_duration_ms(act.settle),
        watch_ms=0 if act.wait_for is None else parse_duration_ms(act.wait_for),
        max_per_second=act.max_per_second,
    )


def refuse_many(ids: Sequence[str], *, can_plan: bool = True) -> None:
    """Refuse more transactions than one command takes. `can_plan`: whether a plan can do the same.

    Raises: BadRequest.
    """
    if len(set(ids)) > AT_ONCE_MAX:
        plan = f"more than {AT_ONCE_MAX} need a plan: rmqtx plan, rmqtx apply"
        advice = plan if can_plan else f"give at most {AT_ONCE_MAX} in a command"
        raise BadRequest(f"{len(set(ids))} transactions at once", advice=advice)


def act_on(
    ids: Sequence[str], request: ActRequest, reason: str | None, found: ActedOn, conduct: Conduct, act: ActOptions,
    listing: Listing,
) -> int:
    """Look up some transactions, print what will be done, ask, act and prove; return the exit status."""
    orders = [ActOrder(name, request, reason) for name in found.resolved(ids)]
    journal = Journal()
    acts = checked_acts(orders, found.medium, conduct)
    if request.action == ActKind.REDELIVER:
        refuse_redelivered_elsewhere(acts, journal.read().receipts, conduct)
    for checked_act in acts:
        print_act(checked_act, listing.voice)
    return carry_out_confirmed(acts, found, journal, conduct, act, listing)


def receipts_listing(output: ReceiptOptions, voice: Voice) -> Listing:
    """The listing of receipts."""
    return Listing(RECEIPTS, acts_view(), output.rows, voice=voice)


def carry_out_confirmed(
    acts: Sequence[CheckedAct], found: ActedOn, journal: Journal, conduct: Conduct, act: ActOptions, listing: Listing,
    go_on: str = "run the same command again",
) -> int:
    """Ask for confirmation, carry out the acts, print the receipts and the changed store; returns the exit status.

    `go_on`: what to do after an interruption.
    Raises: BadRequest if there is no terminal to ask on; UnwritableFile if no receipt can be written.
    """
    voice = listing.voice
    allowed = [checked_act for checked_act in acts if checked_act.is_allowed]
    if act.dry_run:
        voice.note(f"nothing was done: --dry-run ({count(len(allowed), 'transaction')} would be acted on)")
        return exit_status.combined(
            exit_status.DONE if one.is_allowed else exit_status.REFUSED_BY_GUARD for one in acts
        )
    if allowed and not act.yes and not _agreed(allowed, found.warning):
        say.line("rmqtx: nothing was done")
        return exit_status.REFUSED_BY_GUARD
    try:
        course = _carry_out(acts, found.medium, journal, conduct, voice)
    except KeyboardInterrupt:
        say.line(f"rmqtx: interrupted: the last outcomes may be unknown - {go_on}")
        raise
    receipts = [checked_act.receipt for checked_act in acts if checked_act.receipt is not None]
    try:
        listing.write(iter(table(receipts).to_batches()))
    finally:  # also if the receipts cannot be printed: what was done is done
        for checked_act in allowed:
            if checked_act.receipt is not None:
                _say_outcome(checked_act.receipt)
        voice.note(f"receipts are in {journal.path}")
        found.say_result(voice)
    not_begun = len(allowed) if found.medium.is_untouched else sum(one.receipt is None for one in allowed)
    if course.is_stopped and not_begun:
        say.line(f"rmqtx: interrupted: {count(not_begun, 'transaction')} left, of {len(allowed)} - {go_on}")
        return exit_status.INTERRUPTED
    return status_of(receipts, is_proof_wanted=conduct.prove)


def _carry_out(
    acts: Sequence[CheckedAct], medium: Medium, journal: Journal, conduct: Conduct, voice: Voice
) -> Course:
    """Carry out the acts, with a bar on a terminal; Ctrl-C ends them after the current one. Return their course."""
    with progress.counted("acting", voice) as bar:
        course = Course() if bar is None else Course(lambda now: _show_course(bar, now))
        with stopping(course):
            carry_out(acts, medium, journal, conduct, voice.note, course)
    return course


def _show_course(bar: CountBar | log_json.Progress, course: Course) -> None:
    ended = course.done_count + course.refused_count
    is_over = course.is_stopped or ended == course.total_count
    doing = "proving" if is_over else "acting"
    bar.show(f"{doing}: {course.done_count} done, {course.refused_count} refused", ended, course.total_count)


def print_act(checked_act: CheckedAct, voice: Voice) -> None:
    """Print what will be done to a transaction, or the guards that refuse it, one line each."""
    row, named = checked_act.situation.transaction, checked_act.named
    conditions, sent_ms = checked_act.situation.conditions, row.half_store_time_ms
    age = age_text(sent_ms, conditions.now_ms, conditions.stopped_time_ms) if sent_ms else "?"
    checks = "checks not counted" if row.checks_count is None else count(row.checks_count, "check")
    facts = [
        str(row.state), f"age {age}", checks, topic_words(row.topic),
        group_words(row.producer_group), *([f"keys {row.keys}"] if row.keys else []),
    ]
    action = checked_act.order.request.action
    voice.note(f"{action} {row.transaction_id} ({', '.join(facts)})")
    for refusal in checked_act.refusals:
        why = f"refused by {with_places(str(refusal))}"
        say.error(f"  {why}" if not voice.quiet else f"{row.transaction_id}: {why}")
    if checked_act.is_allowed and named is not None:
        place = f"queue offset {named.queue_offset}, log offset {named.commit_log_offset}"
        is_rollback = action == ActKind.CLOSE and not row.is_decided
        does = "ROLLBACK (no decision was found: this rolls it back)" if is_rollback else _DOES[action]
        sent_to = conditions.sent_to
        if sent_to is not None:
            kind = "a new half message" if sent_to.as_half else "a copy"
            does = f"{kind} to {sent_to.topic} queue {sent_to.queue_id} of {sent_to.store}, from the record"
        voice.note(f"  {does} at {place} of {named.store}")
        for line in _differences(sent_to) if action == ActKind.REDELIVER else ():
            voice.note(f"  {line}")
        if action == ActKind.REDELIVER and "may_be_decided" in row.flags:
            voice.note("  its producer may have rolled it back just before the kill: look it up in the application")


def _differences(sent_to: SentTo | None) -> Iterator[str]:
    """What consumers see that differs from a delivery at the time."""
    if sent_to is not None and sent_to.as_half:
        yield "this broker checks it, and asks a producer of its group; the broker of the store must never start again"
        return
    yield (
        "consumers get the message with its id, body, keys, tags and properties, but after all messages that are in "
        "its queue now (also in a FIFO topic), with a new offset and store time"
    )
    if sent_to is None:
        return
    yield "and without a transaction id, from the address of this machine, and with the property RMQTX_ORIGIN"
    if sent_to.left_out:
        yield f"and at once: {', '.join(sent_to.left_out)} of the half message is left out"


_DOES = {
    ActKind.COMMIT: "COMMIT", ActKind.ROLLBACK: "ROLLBACK", ActKind.DISCARD: "a saved copy, then ROLLBACK",
    ActKind.CLOSE: "ROLLBACK (delivers nothing, the decision stays)", ActKind.REDELIVER: "COMMIT",
    ActKind.RESUME: "a new half copy of the record",
}


def _agreed(acts: Sequence[CheckedAct], warning: str) -> bool:
    actions = ", ".join(dict.fromkeys(one.order.request.action for one in acts))
    doubted = sum(
        one.order.request.action in DELIVERING and "may_be_decided" in one.situation.transaction.flags
        for one in acts
    )
    doubt = f" ({doubted} may have been rolled back just before a kill)" if doubted else ""
    return agreed(f"{warning}: {actions} {count(len(acts), 'transaction')}{doubt}")


def _say_outcome(receipt: Any) -> None:
    """Print one line on stderr for each outcome but `proved`."""
    if receipt.outcome != ActOutcome.PROVED:
        notes = "; ".join(receipt.notes)
        say.error(f"{receipt.transaction_id}: {receipt.outcome}" + (f": {notes}" if notes else ""))


def status_of_answers(outcomes: Iterable[ActOutcome], *, is_late: bool) -> int:
    """The exit status for the outcomes of answers to checks. `is_late`: some were not checked in time.

    A refused answer makes it SOME_REFUSED, also if it is the only one: the broker checks the others later.
    """
    found = {STATUS_OF_OUTCOME[outcome] for outcome in outcomes}
    return exit_status.combined({*found, exit_status.SOME_REFUSED} if is_late or found - {exit_status.DONE} else found)

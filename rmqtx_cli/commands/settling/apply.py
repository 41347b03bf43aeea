"""`rmqtx apply`: carry out a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx.repairs.acts.orders import Conduct
from rmqtx.repairs.plans.apply_plan import Application, application, missing_stores
from rmqtx.repairs.plans.approval import approval
from rmqtx.repairs.plans.draft_plan import KnownPlan
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_file import Plan
from rmqtx.repairs.receipts.recheck import record_recheck
from rmqtx_cli.acting.acted_on import ActedOn, ActedOnFiles, acted_on
from rmqtx_cli.acting.confirmed_acts import carry_out_confirmed, conduct_of, print_act, receipts_listing
from rmqtx_cli.commands.declared.plans import ApplyCommand
from rmqtx_cli.options.act_options import ActOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.pages.plan_page import apply_command
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

#: Steps printed one by one without --verbose; refused and stale steps are counted separately.
_SHOWN_MAX = 20


def run(options: ApplyCommand) -> int:
    """Run the command; return its exit status."""
    conduct = conduct_of(options.act, options.override, options.reason)
    listing = receipts_listing(options.output, options.voice)
    known = KnownPlan.read(options.plan)
    wanted = known.plan
    approved_by = None if options.require_approval is None else approval(
        wanted, known.text, options.plan, options.require_approval
    )
    journal = Journal()
    with acted_on(options.live, options.offline, options.act.live_only, options.voice) as place:
        if missing := missing_stores(wanted, place.roots):
            _say_other_stores(missing, place.roots)
            return exit_status.STALE_PLAN
        earlier = place.earlier(journal.read().receipts)
        if options.is_continued and not any(map(known.is_of, earlier)):
            _refuse_to_continue(options.plan, journal)
        found = application(
            wanted, known.known_as(approved_by), earlier, place.medium, conduct, reason=options.reason,
            is_exact=options.exact,
        )
        _show(wanted, found, options.voice)
        if found.stale and not options.skip_stale:
            _say_stale(wanted, found)
            return exit_status.STALE_PLAN
        keys = options.require_approval
        approvers = "" if keys is None else f" --require-approval {quoted(str(keys))}"
        go_on = f"next: {apply_command(wanted, options.plan)}{approvers} --continue"
        status = _carried_out(found, place, journal, conduct, options.act, listing, go_on)
    return found.status_after(status)


def _refuse_to_continue(plan: Path, journal: Journal) -> NoReturn:
    raise BadRequest(
        f"nothing to continue: {journal.path} has no act of this plan here, as the file is now",
        advice=f"rmqtx receipts --plan {quoted(str(plan))}; to begin the plan, leave out --continue",
    )


def _say_other_stores(missing: Sequence[str], roots: Sequence[str]) -> None:
    say.error(f"the plan is stale: it is for {', '.join(missing)}, and the command is for {', '.join(roots)}")


def _say_stale(plan: Plan, found: Application) -> None:
    say.error(
        f"the plan is stale: {len(found.stale)} of {count(len(plan.steps), 'step')}; nothing was done - write the plan "
        "again, or skip these steps: --skip-stale"
    )


def _carried_out(
    found: Application, place: ActedOn, journal: Journal, conduct: Conduct, act: ActOptions, listing: Listing,
    go_on: str,
) -> int:
    """Carry out the remaining steps, record outcomes of earlier runs in the journal; return the exit status."""
    if not act.dry_run:
        for receipt, standing in (*found.settled, *found.disputed):
            record_recheck(journal, receipt, standing)
    if not found.acts:
        listing.write(iter(()))
        to = place.offline.to if isinstance(place, ActedOnFiles) else None
        listing.voice.note("nothing left to do" if to is None else f"nothing left to do; {to} was not written")
        return exit_status.DONE
    return carry_out_confirmed(found.acts, place, journal, conduct, act, listing, go_on)


def _show(plan: Plan, found: Application, voice: Voice) -> None:
    """Print what will be done and what will not; a long list as a count."""
    voice.note(f"{count(len(plan.steps), 'step')}, planned by {plan.made_by}")
    for note in found.notes if voice.verbose else found.notes[:_SHOWN_MAX]:
        voice.note(note)
    if len(found.notes) > _SHOWN_MAX and not voice.verbose:
        voice.note(f"{len(found.notes) - _SHOWN_MAX} more notes (--verbose)")
    if found.done:
        latest = max(receipt.receipt_id for receipt in found.done)
        voice.note(f"{count(len(found.done), 'step')} done by an earlier run, skipped (latest receipt {latest})")
    if found.settled:
        voice.note(f"{len(found.settled)} of them had an unknown outcome: the effect is in the store")
    for receipt, standing in found.settled:
        voice.detail(f"{receipt.transaction_id}: {standing.reason} (receipt {receipt.receipt_id})")
    for receipt, standing in found.disputed:
        say.line(
            f"rmqtx: {receipt.transaction_id}: {standing.word}: {standing.reason} (receipt {receipt.receipt_id})"
        )
    for name, why in found.stale if voice.verbose else found.stale[:_SHOWN_MAX]:
        say.line(f"rmqtx: {name}: stale: {why}")
    refused = [one for one in found.acts if not one.is_allowed]
    allowed = [one for one in found.acts if one.is_allowed]
    for acts, word in ((allowed, "to be done"), (refused, "refused")):
        for one in acts if voice.verbose else acts[:_SHOWN_MAX]:
            print_act(one, voice)
        if len(acts) > _SHOWN_MAX and not voice.verbose:
            say.line(f"rmqtx: ... and {len(acts) - _SHOWN_MAX} more {word} (all with --verbose)")

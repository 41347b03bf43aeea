"""`rmqtx apply`: carry out a plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.readers.model.shell_words import quoted
from rmqtx_cli.acting.acted_on import ActedOn, ActedOnFiles, acted_on
from rmqtx_cli.acting.acting import (
    ActOptions,
    OverrideOption,
    ReasonOption,
    carry_out_confirmed,
    print_act,
    receipts_listing,
)
from rmqtx_cli.commands import Example
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import ReceiptOptions, VoiceOptions
from rmqtx_cli.sources.offline import OfflineOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from rmqtx.repairs.acts.orders import Conduct
    from rmqtx.repairs.plans.apply_plan import Application
    from rmqtx.repairs.receipts.journal import Journal
    from rmqtx.repairs.receipts.plan_file import Plan
    from rmqtx_cli.output.listing import Listing

NAME = "apply"
EXAMPLES = (
    Example(
        "rmqtx apply plan.json -n 10.0.0.1:9876 --dry-run",
        "show what would be done, and what is stale or refused",
    ),
    Example("rmqtx apply plan.json -n 10.0.0.1:9876", "verify, ask, act, prove; a script adds --yes"),
    Example("rmqtx apply plan.json -n 10.0.0.1:9876 --continue", "finish an interrupted run; nothing is repeated"),
    Example("rmqtx apply plan.json -n 10.0.0.1:9876 --require-approval signers", "only if another person signed it"),
    Example(
        "rmqtx apply plan.json --store /data/store --in-place --undo before.undo --broker-version 5.3.3",
        "in the files of a stopped broker",
    ),
)
#: Steps printed one by one without --verbose; refused and stale steps are counted separately.
_SHOWN_MAX = 20

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="Plan file, from rmqtx plan or rmqtx reconcile")]
ExactOption = Annotated[
    bool,
    typer.Option("--exact", help="Treat a step as stale even if the check has only put back a half copy since"),
]
SkipStaleOption = Annotated[
    bool,
    typer.Option(
        "--skip-stale",
        help="Skip stale steps and carry out the others; default: do nothing if a step is stale",
    ),
]
ContinueOption = Annotated[
    bool,
    typer.Option(
        "--continue",
        help="Finish an interrupted run of the same plan; refused if the journal has no act of this plan",
    ),
]
ApprovalOption = Annotated[
    Path | None,
    typer.Option(
        "--require-approval", metavar="KEYS",
        help="Require PLAN.sig: a signature by a second person, not by an author; KEYS is an allowed-signers file of "
        "ssh-keygen",
    ),
]


@with_option_groups
def command(
    plan: PlanArgument,
    reason: ReasonOption = None,
    override: OverrideOption = None,
    exact: ExactOption = False,
    skip_stale: SkipStaleOption = False,
    is_continued: ContinueOption = False,
    require_approval: ApprovalOption = None,
    *,
    act: ActOptions,
    output: ReceiptOptions,
    voice: VoiceOptions,
    offline: OfflineOptions,
    live: LiveOptions,
) -> int:
    """Carry out a plan: print it, ask, act on each transaction, prove each effect, write receipts.

    A step is stale if state, op marks, COMMIT or ROLLBACK records or discard copies of its transaction differ from
    those in the plan, or if a record that it names has changed. If a step is stale, nothing is done. The guards are
    evaluated again too. Ctrl-C ends the run after the current transaction, and what was sent is proved. --continue
    finishes a run that was interrupted or killed: completed steps are skipped, and steps with an unknown outcome are
    examined first. Without --continue a repeated run does the same, and also begins a plan that was never applied.
    rmqtx receipts --plan PLAN prints how far a plan is.

    An approval is a signature of the plan file: ssh-keygen -Y sign -f KEY -n rmqtx-plan PLAN writes PLAN.sig. The
    receipts have its authors, its approver and the user of the run.
    """
    from rmqtx.repairs.plans.apply_plan import application, missing_stores
    from rmqtx.repairs.plans.approval import approval
    from rmqtx.repairs.receipts.journal import Journal
    from rmqtx_cli.pages.plan_page import KnownPlan, apply_command

    conduct = act.conduct(override, reason)
    listing = receipts_listing(output, voice)
    known = KnownPlan.read(plan)
    wanted = known.plan
    approved_by = None if require_approval is None else approval(wanted, known.text, plan, require_approval)
    journal = Journal()
    with acted_on(live, offline, act.live_only, voice) as place:
        if missing := missing_stores(wanted, place.roots):
            _say_other_stores(missing, place.roots)
            return exit_status.STALE_PLAN
        earlier = place.earlier(journal.read().receipts)
        if is_continued and not any(map(known.is_of, earlier)):
            _refuse_to_continue(plan, journal)
        found = application(
            wanted, known.known_as(approved_by), earlier, place.medium, conduct, reason=reason, is_exact=exact
        )
        _show(wanted, found, voice)
        if found.stale and not skip_stale:
            _say_stale(wanted, found)
            return exit_status.STALE_PLAN
        approvers = "" if require_approval is None else f" --require-approval {quoted(str(require_approval))}"
        go_on = f"next: {apply_command(wanted, plan)}{approvers} --continue"
        status = _carried_out(found, place, journal, conduct, act, listing, go_on)
    return _status(status, found)


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
    from rmqtx.repairs.receipts.recheck import record_recheck

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


def _status(status: int, found: Application) -> int:
    """Exit status of what was carried out, and of what was not."""
    if status == exit_status.INTERRUPTED:
        return status
    statuses = [status] if found.acts or not found.stale else []
    statuses += [exit_status.STALE_PLAN] if found.stale else []
    statuses += [exit_status.DONE] if found.stale and found.done else []
    return exit_status.combined([*statuses, exit_status.UNKNOWN_OUTCOME] if found.disputed else statuses)

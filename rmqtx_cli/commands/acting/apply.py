"""`rmqtx apply`: carries out a plan that somebody has read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import UnreadableFile
from rmqtx_cli.acting.acting import (
    LIVE_WARNING,
    DryRunOption,
    OverrideOption,
    PerSecondOption,
    ReasonOption,
    SettleOption,
    WaitForOption,
    WaitOption,
    YesOption,
    carry_out_deeds,
    conduct_of,
    receipts_view,
    say_deed,
)
from rmqtx_cli.commands import Example
from rmqtx_cli.options.live import LiveOptions, open_live, with_live_options
from rmqtx_cli.options.options import FieldsOption, FormatOption, OutputOption, QuietOption, VerboseOption
from rmqtx_cli.sources.offline import OfflineOptions, with_offline_options
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    from repairs.acts.medium import Medium
    from repairs.plans.apply_plan import Application
    from repairs.receipts.plan_file import Plan

NAME = "apply"
SHORT = "carry out a plan: every step guarded, proved, with a receipt"
EXAMPLES = (
    Example("rmqtx apply plan.json -n 10.0.0.1:9876 --dry-run", "is it stale, and what would the guards say?"),
    Example("rmqtx apply plan.json -n 10.0.0.1:9876", "look, ask, act, prove; again after an interruption: goes on"),
    Example("rmqtx apply plan.json -n 10.0.0.1:9876 --yes --max-per-second 20", "for a script, gently"),
    Example(
        "rmqtx apply plan.json --store /data/store --in-place --undo before.undo --broker-version 5.3.3",
        "on the files of a stopped broker",
    ),
)
#: Steps that are shown one by one, unless --verbose; those that are refused or stale have their own bound.
_SHOWN_MAX = 20

PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan's file: rmqtx plan or reconcile wrote it.")]
ExactOption = Annotated[
    bool,
    typer.Option("--exact", help="Stale too where the check merely put a half copy back since, as it always does."),
]
SkipStaleOption = Annotated[
    bool, typer.Option("--skip-stale", help="Leave stale steps out and carry out the others; else nothing is done.")
]


@with_live_options
@with_offline_options
def command(
    plan: PlanArgument,
    live: LiveOptions,
    offline: OfflineOptions,
    reason: ReasonOption = None,
    override: OverrideOption = None,
    exact: ExactOption = False,
    skip_stale: SkipStaleOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    wait: WaitOption = True,
    wait_for: WaitForOption = None,
    settle: SettleOption = None,
    max_per_second: PerSecondOption = None,
    fields: FieldsOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> int:
    """Carry out a plan: show it, ask, act on each transaction, prove each effect, write the receipts.

    A plan is stale, and nothing is done, if state, op marks, final records or discard copies of any of its transactions
    differ from what it relied on, or a record that it names is not there unchanged. The guards are asked again too. Run
    it again after an interruption: what was done is left out, what is not known is looked at first.
    """
    from repairs.plans.apply_plan import application, missing_stores
    from repairs.plans.draft_plan import digest_of
    from repairs.receipts.journal import Journal
    from repairs.receipts.plan_file import parse_plan
    from repairs.receipts.receipts import RECEIPTS
    from repairs.receipts.recheck import write_down
    from rmqtx_cli.output.listing import Listing

    voice = Voice(verbose, quiet)
    conduct = conduct_of(
        override=override, reason=reason, wait=wait, wait_for=wait_for, settle=settle, max_per_second=max_per_second
    )
    listing = Listing(RECEIPTS, receipts_view(), output_format, output, fields, voice=voice)
    text = _text(plan)
    wanted = parse_plan(text, str(plan))
    journal = Journal()
    unfit = {"--settle": settle, "--wait-for": wait_for, "--max-per-second": max_per_second}
    with _medium(live, offline, unfit, voice) as (medium, roots):
        missing = missing_stores(wanted, roots)
        if missing:
            say.error(f"the plan is stale: {', '.join(missing)} is not among what is asked ({', '.join(roots)})")
            return exit_status.STALE_PLAN
        found = application(
            wanted, {"file": str(plan), "digest": digest_of(text)},
            offline.earlier(journal.read().receipts, roots), medium, conduct, reason=reason, is_exact=exact,
        )
        _show(wanted, found, voice)
        if found.stale and not skip_stale:
            say.error(
                f"the plan is stale: {count(len(found.stale), 'step')} of {len(wanted.steps)}; nothing was done - make "
                "it again, or say --skip-stale"
            )
            return exit_status.STALE_PLAN
        if not dry_run:
            for receipt, standing in (*found.settled, *found.disputed):
                write_down(journal, receipt, standing)
        status = exit_status.DONE
        if found.deeds:
            status = carry_out_deeds(
                found.deeds, medium, journal, conduct, voice, listing, dry_run=dry_run, yes=yes,
                warning=LIVE_WARNING if offline.store is None else offline.warning,
            )
            offline.say_result(medium, voice)
        else:
            listing.write(iter(()))
            voice.note("nothing is left to do")
    return _status(status, found)


@contextmanager
def _medium(
    live: LiveOptions, offline: OfflineOptions, unfit: dict[str, Any], voice: Voice
) -> Iterator[tuple[Medium, list[str]]]:
    """What is acted on, and the brokers or the store that it is.

    Raises: BadRequest, StoreInUse, UnsafeStore, SourceError, RemotingError.
    """
    from repairs.acts.live_medium import LiveMedium

    if offline.instead_of(live, unfit):
        medium, opened = offline.open(voice)
        yield medium, [store.root for store in opened.stores]
        return
    with open_live(live) as brokers:
        yield LiveMedium(brokers.brokers, brokers.members), [broker.root for broker in brokers.brokers]


def _text(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"cannot read {file}: {error.strerror}", file=file) from error


def _show(plan: Plan, found: Application, voice: Voice) -> None:
    """What will be done, and what not; many steps in one line."""
    voice.note(f"{count(len(plan.steps), 'step')}, planned by {plan.made_by}")
    for note in found.notes if voice.verbose else found.notes[:_SHOWN_MAX]:
        voice.note(note)
    if len(found.notes) > _SHOWN_MAX and not voice.verbose:
        voice.note(f"{len(found.notes) - _SHOWN_MAX} more such lines (--verbose)")
    if found.done:
        latest = max(receipt.receipt_id for receipt in found.done)
        voice.note(f"{count(len(found.done), 'step')} done by an earlier run, left out (latest receipt {latest})")
    if found.settled:
        voice.note(f"{len(found.settled)} of them had an outcome that was not known: their effect is there")
    for receipt, standing in found.settled:
        voice.detail(f"{receipt.transaction_id}: {standing.reason} (receipt {receipt.receipt_id})")
    for receipt, standing in found.disputed:
        say.line(
            f"rmqtx: {receipt.transaction_id}: {standing.word}: {standing.reason} (receipt {receipt.receipt_id})"
        )
    for name, why in found.stale if voice.verbose else found.stale[:_SHOWN_MAX]:
        say.line(f"rmqtx: {name}: stale: {why}")
    refused = [deed for deed in found.deeds if not deed.is_allowed]
    allowed = [deed for deed in found.deeds if deed.is_allowed]
    for deeds, word in ((allowed, "to be done"), (refused, "refused")):
        for deed in deeds if voice.verbose else deeds[:_SHOWN_MAX]:
            say_deed(deed, voice)
        if len(deeds) > _SHOWN_MAX and not voice.verbose:
            say.line(f"rmqtx: ... and {len(deeds) - _SHOWN_MAX} more {word} (--verbose shows all)")


def _status(status: int, found: Application) -> int:
    """The status of what was carried out, and of what was not."""
    if found.disputed or status == exit_status.UNKNOWN_OUTCOME:
        return exit_status.UNKNOWN_OUTCOME
    if not found.stale:
        return status
    has_others = bool(found.done) or (status in (exit_status.DONE, exit_status.SOME_REFUSED) and bool(found.deeds))
    return exit_status.SOME_REFUSED if has_others else exit_status.STALE_PLAN

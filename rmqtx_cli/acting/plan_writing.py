"""Opens what a plan is drafted from, and writes plans: the file, its steps as rows, and what the guards refuse.

Refusals are in the words of the guards. A plan has no `Source` (`rmqtx_cli/sources/source.py`): it prints no line about
each store, chooses no engine, and needs facts that no table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtx.readers.model import clock
from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.acts.guard_rules import are_proxies
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.plans.draft_plan import PlanDraft, plan_of
from rmqtx.repairs.plans.plan_sources import AskedAs, FilePlanSource, LivePlanSource, PlanSource
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.next_commands import carried, with_places
from rmqtx_cli.options.options import StoreOptions
from rmqtx_cli.output.streams import open_stream
from rmqtx_cli.pages.plan_page import apply_command
from rmqtx_cli.sources.live_brokers import open_live
from rmqtx_cli.sources.opening import open_stores
from rmqtx_cli.sources.provenance import asked_options
from rmqtx_cli.sources.source import refuse_file_options
from rmqtx_cli.words import say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count

if TYPE_CHECKING:
    import typer

    from rmqtx.repairs.acts.situation import Situation
    from rmqtx.repairs.receipts.plan_file import Plan
    from rmqtx_cli.output.listing import Listing

#: Most refused transactions that are printed one by one; more only with --verbose.
_REFUSED_SHOWN_MAX = 10


@contextmanager
def plan_inputs(
    stores: Sequence[str], files: StoreOptions, live: LiveOptions, advice: str
) -> Iterator[PlanSource]:
    """Open the brokers or the stores that the command line names, for the duration of the block.

    Raises: BadRequest for both or neither, with the advice, and for options of files with live brokers; NotAStore,
            SourceError, RemotingError.
    """
    if live.instead_of(stores, advice):
        refuse_file_options(files)
        with open_live(live) as opened:
            medium = LiveMedium(opened.brokers, opened.members)
            yield LivePlanSource(opened.brokers, opened.members, medium, carried)
    else:
        opened_stores = open_stores(stores, files)
        yield FilePlanSource(opened_stores.stores, opened_stores.settings_of)


def plan_from(context: typer.Context, draft: PlanDraft, source: PlanSource) -> Plan:
    """Return the plan of a draft, with the facts about its stores."""
    asked = AskedAs(str(context.info_name), asked_options(context))
    stores, made_from = source.facts(asked, {root for step in draft.steps for root in step.stores})
    return plan_of(draft, stores, made_from, clock.now_ms())


def refuse_file(output: Path, *, force: bool) -> None:
    """Refuse stdout, and a file that exists unless `force`. Raises: BadRequest."""
    if str(output) == "-":
        raise BadRequest("cannot write a plan to stdout, which lists its steps", advice="-o plan.json")
    if output.exists() and not force:
        raise BadRequest(f"{output} already exists", advice="give another file, or --force to overwrite it")


def write_plan(
    plan: Plan, output: Path, listing: Listing | None, situations: Sequence[Situation], voice: Voice
) -> None:
    """Write the plan file, list its steps, and name connected producers, which make `apply` refuse."""
    with open_stream(output) as stream:
        stream.write(plan.text().encode())
    if listing is not None:
        listing.write(iter(plan.table().to_batches()))
    say_producers(situations, voice)
    voice.note(f"{output}: plan of {count(len(plan.steps), 'step')}; next: {apply_command(plan, output)}")


def say_refused(draft: PlanDraft, voice: Voice) -> None:
    """Print what is not planned, and what `apply` refuses without an override; long lists as a count."""
    shown = draft.refused if voice.verbose else draft.refused[:_REFUSED_SHOWN_MAX]
    for transaction_id, refusal in shown:
        say.line(f"rmqtx: {transaction_id}: not planned, refused by {with_places(str(refusal))}")
    if draft.refused:
        by_guard = [refusal.guard for _, refusal in draft.refused]
        counted = ", ".join(f"{by_guard.count(name)} by {name}" for name in dict.fromkeys(by_guard))
        say.line(f"rmqtx: not planned: {count(len(draft.refused), 'transaction')} ({counted})")
    shown = draft.to_override if voice.verbose else draft.to_override[:_REFUSED_SHOWN_MAX]
    for transaction_id, refusal in shown:
        say.line(f"rmqtx: {transaction_id}: planned, but apply refuses it by {with_places(str(refusal))}")
    if draft.to_override:
        say.line(f"rmqtx: planned, but refused by apply without an override: {count(len(draft.to_override), 'step')}")


def say_producers(situations: Sequence[Situation], voice: Voice) -> None:
    """Print the groups with connected producers."""
    groups = {str(one.group): one.conditions.producers for one in situations if one.conditions.producers}
    for group, producers in groups.items():
        found = "only a proxy is registered for" if are_proxies(producers) else "a producer of"
        end = "" if are_proxies(producers) else " is connected"
        voice.note(f"{found} group {group}{end}: apply refuses (producer-connected) until it disconnects")

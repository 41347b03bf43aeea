"""What the commands that act share: their options, showing what will be done, asking, the receipts, the exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.options import completion
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.identities import identities
from rmqtx_cli.options.live import LiveOptions, open_live, with_live_options
from rmqtx_cli.options.options import FieldsOption, FormatOption, OutputOption, QuietOption, VerboseOption
from rmqtx_cli.sources.offline import OfflineOptions, resolved_in_files, with_offline_options
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.durations import age_text, parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, escaped, stored_text

if TYPE_CHECKING:
    from remoting.connections.broker import Broker
    from repairs.acts.medium import Medium
    from repairs.acts.orders import Conduct, Deed, Order
    from repairs.receipts.journal import Journal
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import View

#: More than this at once need a plan, which somebody can review.
AT_ONCE_MAX = 20
LIVE_WARNING = "a live act has no undo"
#: Statuses by outcome; what is worse wins over what is better.
_STATUS = {
    "proved": exit_status.DONE, "refused_by_guard": exit_status.REFUSED_BY_GUARD,
    "refused_by_broker": exit_status.REFUSED_BY_BROKER, "not_sent": exit_status.UNREACHABLE,
    "unknown": exit_status.UNKNOWN_OUTCOME, "contradicted": exit_status.UNKNOWN_OUTCOME,
}  # fmt: skip

IdArguments = Annotated[
    list[str],
    typer.Argument(
        parser=stored_text, metavar="ID", autocompletion=completion.transaction_ids,
        help="Transaction id, message id of any of its records, or a business key that only one has.",
    ),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Refuse what is not of this producer group.")
]
CopyOption = Annotated[
    int | None,
    typer.Option("--copy", metavar="QUEUE_OFFSET", help="Name this half copy; the newest is named by itself."),
]
ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; it goes into the receipt.")]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override", metavar="GUARD", autocompletion=completion.guards,
        help="Let this guard pass, by its name; needs --reason; repeatable.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; for scripts.")]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Look until the effect shows, 30s at most.")
]
WaitForOption = Annotated[
    str | None,
    typer.Option("--wait-for", metavar="DURATION", help="Watch it for so long, whatever shows before."),
]
SettleOption = Annotated[
    str | None,
    typer.Option(
        "--settle", metavar="DURATION",
        help="How long to wait beforehand for decisions under way; as the broker is configured.",
    ),
]
PerSecondOption = Annotated[
    float | None, typer.Option("--max-per-second", metavar="N", help="Act on at most so many a second.")
]


def conduct_of(
    *, override: Sequence[str] | None, reason: str | None, wait: bool, wait_for: str | None, settle: str | None,
    max_per_second: float | None,
) -> Conduct:
    """How orders are carried out, from what the command line says.

    Raises: BadRequest for a guard that there is not, or an override without a reason.
    """
    from repairs.acts.guards import ABSOLUTE_GUARDS, GUARD_NAMES
    from repairs.acts.orders import Conduct
    from rmqtx_cli.words.near import did_you_mean

    for name in override or ():
        if name not in GUARD_NAMES:
            raise BadRequest(f"no guard {name!r}", advice=did_you_mean(name, list(GUARD_NAMES)))
        if name in ABSOLUTE_GUARDS:
            raise BadRequest(f"guard {name} cannot be overridden", advice="leave that transaction out")
    if override and not (reason or "").strip():
        raise BadRequest("--override needs --reason TEXT: who lets a guard pass says why")
    if max_per_second is not None and max_per_second <= 0:
        raise BadRequest("--max-per-second must be more than 0")
    if wait_for is not None and not wait:
        raise BadRequest("--no-wait and --wait-for contradict each other")
    return Conduct(
        overrides=tuple(dict.fromkeys(override or ())), prove=wait,
        settle_ms=None if settle is None else parse_duration_ms(settle),
        watch_ms=0 if wait_for is None else parse_duration_ms(wait_for), max_per_second=max_per_second,
    )


def acting_command(action: str, text: str) -> Callable[..., Any]:
    """The command that does one action to one or several transactions; `text` is what its help says."""

    def command(
        ids: IdArguments,
        group: GroupOption = None,
        copy: CopyOption = None,
        reason: ReasonOption = None,
        override: OverrideOption = None,
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
        offline: OfflineOptions = OfflineOptions(),  # noqa: B008 -- frozen, and always given by the decorators
        live: LiveOptions = LiveOptions(),  # noqa: B008
    ) -> int:
        from repairs.acts.live_medium import LiveMedium
        from repairs.acts.orders import Order
        from repairs.acts.request import Wish
        from repairs.receipts.journal import Journal

        voice = Voice(verbose, quiet)
        conduct = conduct_of(
            override=override, reason=reason, wait=wait, wait_for=wait_for, settle=settle, max_per_second=max_per_second
        )
        if len(set(ids)) > AT_ONCE_MAX:
            advice = f"more than {AT_ONCE_MAX} need a plan: rmqtx plan, rmqtx apply"
            raise BadRequest(f"{len(set(ids))} transactions at once", advice=advice)
        if copy is not None and len(set(ids)) > 1:
            raise BadRequest("--copy names one half copy, and several transactions are given")
        unfit = {"--settle": settle, "--wait-for": wait_for, "--max-per-second": max_per_second}
        if offline.instead_of(live, unfit):
            medium, opened = offline.open(voice)
            wish = Wish(action, group, copy)
            orders = [Order(name, wish, reason) for name in resolved_in_files(opened, ids)]
            status = carry_out_orders(
                orders, medium, Journal(), conduct, voice, dry_run=dry_run, yes=yes, output=output,
                output_format=output_format, fields=fields, warning=offline.warning,
            )
            offline.say_result(medium, voice)
            return status
        with open_live(live) as brokers:
            names = resolved(brokers.brokers, ids)
            wish = Wish(action, None if group is None else live.full_name(group), copy)
            orders = [Order(name, wish, reason) for name in names]
            return carry_out_orders(
                orders, LiveMedium(brokers.brokers, brokers.members), Journal(), conduct, voice, dry_run=dry_run,
                yes=yes, output=output, output_format=output_format, fields=fields,
            )

    command.__doc__ = text
    return with_live_options(with_offline_options(command))


def resolved(brokers: Sequence[Broker], ids: Sequence[str]) -> list[str]:
    """The transaction ids that some ids, message ids or keys name at live brokers; see `identities`."""
    from remoting.live.lookups import show

    where = f"at {', '.join(broker.root for broker in brokers)}"
    return identities(ids, lambda name: show(brokers, name), where)


def carry_out_orders(
    orders: Sequence[Order], medium: Medium, journal: Journal, conduct: Conduct, voice: Voice, *, dry_run: bool,
    yes: bool, output: Path | None, output_format: Any, fields: str | None, warning: str = LIVE_WARNING,
) -> int:
    """Show what will be done, ask, do it, print the receipts; gives the exit status.

    `warning`: what somebody who is asked should know.
    Raises: BadRequest where nobody can be asked; UnwritableFile where no receipt can be written.
    """
    from repairs.acts.carry_out import prepared
    from repairs.receipts.receipts import RECEIPTS
    from rmqtx_cli.output.listing import Listing

    listing = Listing(RECEIPTS, receipts_view(), output_format, output, fields, voice=voice)
    deeds = prepared(orders, medium, conduct)
    for deed in deeds:
        say_deed(deed, voice)
    return carry_out_deeds(deeds, medium, journal, conduct, voice, listing, dry_run=dry_run, yes=yes, warning=warning)


def carry_out_deeds(
    deeds: Sequence[Deed], medium: Medium, journal: Journal, conduct: Conduct, voice: Voice, listing: Listing, *,
    dry_run: bool, yes: bool, warning: str = LIVE_WARNING,
) -> int:
    """Ask, do what was prepared and shown, print the receipts; gives the exit status.

    Raises: BadRequest where nobody can be asked; UnwritableFile where no receipt can be written.
    """
    from repairs.acts.carry_out import carry_out
    from repairs.receipts.receipts import table

    allowed = [deed for deed in deeds if deed.is_allowed]
    if dry_run:
        voice.note(f"nothing was done: --dry-run ({count(len(allowed), 'transaction')} would be acted on)")
        return _refused_status(len(deeds), len(allowed))
    if allowed and not yes and not _agreed(allowed, warning):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    carry_out(deeds, medium, journal, conduct, voice.note)
    receipts = [deed.receipt for deed in deeds if deed.receipt is not None]
    listing.write(iter(table(receipts).to_batches()))
    for deed in allowed:
        _say_outcome(deed.begun())
    voice.note(f"receipts are in {journal.path}")
    return status_of(receipts, is_proof_wanted=conduct.prove)


def say_deed(deed: Deed, voice: Voice) -> None:
    """What will be done to a transaction, in one line; and why not, in one more for each guard."""
    row, named = deed.situation.row, deed.named
    around, sent_ms = deed.situation.around, row["half_store_time_ms"]
    age = age_text(sent_ms, around.now_ms, around.stopped_time_ms) if sent_ms else "?"
    checks = "checks not counted" if row["checks_count"] is None else count(row["checks_count"], "check")
    facts = [
        str(row["state"]), f"age {age}", checks, f"topic {row['topic']}",
        f"group {row['producer_group']}", *([f"keys {row['keys']}"] if row["keys"] else []),
    ]  # fmt: skip
    action = deed.order.wish.action
    voice.note(f"{action} {row['transaction_id']} ({', '.join(facts)})")
    for refusal in deed.refusals:
        say.error(f"  refused by {refusal}" if not voice.quiet else f"{row['transaction_id']}: refused by {refusal}")
    if deed.is_allowed and named is not None:
        place = f"queue offset {named.queue_offset}, log offset {named.commit_log_offset}"
        voice.note(f"  {_DOES[action]} at {place} of {named.store}")


_DOES = {
    "commit": "COMMIT", "rollback": "ROLLBACK", "discard": "a saved copy, then ROLLBACK",
    "close": "ROLLBACK (it delivers nothing: the decision stands)", "resume": "a new half copy of the record",
}  # fmt: skip


def _agreed(deeds: Sequence[Deed], warning: str) -> bool:
    actions = ", ".join(dict.fromkeys(deed.order.wish.action for deed in deeds))
    doubted = sum(
        deed.order.wish.action == "commit" and "may_be_decided" in deed.situation.row["flags"] for deed in deeds
    )
    doubt = f" ({doubted} may have been rolled back: op-in-memory)" if doubted else ""
    return agreed(f"{warning}: {actions} {count(len(deeds), 'transaction')}{doubt}")


def _say_outcome(receipt: Any) -> None:
    """One line on stderr for whatever did not simply succeed."""
    if receipt.outcome != "proved":
        notes = "; ".join(receipt.notes)
        say.error(f"{receipt.transaction_id}: {receipt.outcome}" + (f": {notes}" if notes else ""))


def _refused_status(count_all: int, count_allowed: int) -> int:
    if count_allowed == count_all:
        return exit_status.DONE
    return exit_status.SOME_REFUSED if count_allowed else exit_status.REFUSED_BY_GUARD


def status_of(receipts: Sequence[Any], *, is_proof_wanted: bool) -> int:
    """The exit status that some receipts come to: what is unknown first, then what was refused."""
    found = set()
    for receipt in receipts:
        if receipt.outcome == "accepted":  # a resume is no more than that; anything else should have been seen
            is_seen = receipt.action == "resume" and receipt.witnesses_after
            found.add(exit_status.DONE if is_seen or not is_proof_wanted else exit_status.UNKNOWN_OUTCOME)
        else:
            found.add(_STATUS[receipt.outcome])
    if exit_status.UNKNOWN_OUTCOME in found:
        return exit_status.UNKNOWN_OUTCOME
    if len(found) > 1:
        return exit_status.SOME_REFUSED
    return found.pop() if found else exit_status.DONE


def receipts_view() -> View:
    """How receipts look in a table."""
    from rmqtx_cli.output.views import ALWAYS, Column, View, plain

    def response(row: dict[str, Any]) -> str:
        codes = [request["response_code"] for request in row["requests"]]
        return ",".join("none" if code is None else str(code) for code in codes)

    return View(
        (
            plain("transaction_id", ALWAYS), plain("action", ALWAYS), plain("outcome", ALWAYS),
            plain("state_before", 4, "before"), plain("state_after", 3, "after"),
            Column("response", ("requests",), response, 6), plain("producer_group", 7, "group"), plain("topic", 7),
            plain("keys", 2, may_be_cut=True, least_cells=18), plain("receipt_id", 1),
            Column("notes", ("notes",), lambda row: escaped("; ".join(row["notes"] or ())), 5, may_be_cut=True),
        ),
        "no receipts",
    )  # fmt: skip

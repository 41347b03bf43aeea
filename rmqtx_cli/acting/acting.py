"""What the commands that act share: their options, showing what will be done, asking, the receipts, the exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.acting.acted_on import ActedOn, acted_on
from rmqtx_cli.options import completion
from rmqtx_cli.options.asking import agreed
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import OutputOptions, VoiceOptions
from rmqtx_cli.sources.offline import OfflineOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.durations import age_text, parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, escaped, stored_text

if TYPE_CHECKING:
    from repairs.acts.orders import Conduct, PreparedAct
    from repairs.receipts.journal import Journal
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import View

#: More than this at once need a plan, which somebody can review.
AT_ONCE_MAX = 20
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


@dataclass(frozen=True, slots=True)
class ActOptions:
    """How it is acted."""

    dry_run: DryRunOption = False
    yes: YesOption = False
    wait: WaitOption = True
    wait_for: WaitForOption = None
    settle: SettleOption = None
    max_per_second: PerSecondOption = None

    @property
    def live_only(self) -> dict[str, Any]:
        """What only makes sense with a live broker, by what it is called."""
        return {"--settle": self.settle, "--wait-for": self.wait_for, "--max-per-second": self.max_per_second}

    def conduct(self, override: Sequence[str] | None, reason: str | None) -> Conduct:
        """How orders are carried out.

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
        if self.max_per_second is not None and self.max_per_second <= 0:
            raise BadRequest("--max-per-second must be more than 0")
        if self.wait_for is not None and not self.wait:
            raise BadRequest("--no-wait and --wait-for contradict each other")
        return Conduct(
            overrides=tuple(dict.fromkeys(override or ())), prove=self.wait,
            settle_ms=None if self.settle is None else parse_duration_ms(self.settle),
            watch_ms=0 if self.wait_for is None else parse_duration_ms(self.wait_for),
            max_per_second=self.max_per_second,
        )


def acting_command(action: str, text: str) -> Callable[..., Any]:
    """The command that does one action to one or several transactions; `text` is what its help says."""

    def command(
        ids: IdArguments,
        group: GroupOption = None,
        copy: CopyOption = None,
        reason: ReasonOption = None,
        override: OverrideOption = None,
        *,
        act: ActOptions,
        output: OutputOptions,
        voice: VoiceOptions,
        offline: OfflineOptions,
        live: LiveOptions,
    ) -> int:
        from repairs.acts.carry_out import prepared
        from repairs.acts.orders import ActOrder
        from repairs.acts.request import ActRequest
        from repairs.receipts.journal import Journal

        conduct = act.conduct(override, reason)
        if len(set(ids)) > AT_ONCE_MAX:
            advice = f"more than {AT_ONCE_MAX} need a plan: rmqtx plan, rmqtx apply"
            raise BadRequest(f"{len(set(ids))} transactions at once", advice=advice)
        if copy is not None and len(set(ids)) > 1:
            raise BadRequest("--copy names one half copy, and several transactions are given")
        with acted_on(live, offline, act.live_only, voice) as found:
            request = ActRequest(action, found.group_of(group), copy)
            orders = [ActOrder(name, request, reason) for name in found.resolved(ids)]
            journal = Journal()
            listing = receipts_listing(output, voice)
            deeds = prepared(orders, found.medium, conduct)
            for deed in deeds:
                say_deed(deed, voice)
            status = carry_out_deeds(deeds, found, journal, conduct, act, listing)
            found.say_result(voice)
            return status

    command.__doc__ = text
    return with_option_groups(command)


def receipts_listing(output: OutputOptions, voice: Voice) -> Listing:
    """How the receipts of what is done are listed."""
    from repairs.receipts.receipts import RECEIPTS
    from rmqtx_cli.output.listing import Listing

    return Listing(RECEIPTS, receipts_view(), output, voice=voice)


def carry_out_deeds(
    deeds: Sequence[PreparedAct], found: ActedOn, journal: Journal, conduct: Conduct, act: ActOptions, listing: Listing
) -> int:
    """Ask, do what was prepared and shown, print the receipts; gives the exit status.

    Raises: BadRequest where nobody can be asked; UnwritableFile where no receipt can be written.
    """
    from repairs.acts.carry_out import carry_out
    from repairs.receipts.receipts import table

    voice = listing.voice
    allowed = [deed for deed in deeds if deed.is_allowed]
    if act.dry_run:
        voice.note(f"nothing was done: --dry-run ({count(len(allowed), 'transaction')} would be acted on)")
        return _refused_status(len(deeds), len(allowed))
    if allowed and not act.yes and not _agreed(allowed, found.warning):
        say.line("rmqtx: nothing was done")
        return exit_status.INTERRUPTED
    carry_out(deeds, found.medium, journal, conduct, voice.note)
    receipts = [deed.receipt for deed in deeds if deed.receipt is not None]
    listing.write(iter(table(receipts).to_batches()))
    for deed in allowed:
        _say_outcome(deed.begun())
    voice.note(f"receipts are in {journal.path}")
    return status_of(receipts, is_proof_wanted=conduct.prove)


def say_deed(deed: PreparedAct, voice: Voice) -> None:
    """What will be done to a transaction, in one line; and why not, in one more for each guard."""
    row, named = deed.situation.row, deed.named
    around, sent_ms = deed.situation.around, row["half_store_time_ms"]
    age = age_text(sent_ms, around.now_ms, around.stopped_time_ms) if sent_ms else "?"
    checks = "checks not counted" if row["checks_count"] is None else count(row["checks_count"], "check")
    facts = [
        str(row["state"]), f"age {age}", checks, f"topic {row['topic']}",
        f"group {row['producer_group']}", *([f"keys {row['keys']}"] if row["keys"] else []),
    ]  # fmt: skip
    action = deed.order.request.action
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


def _agreed(deeds: Sequence[PreparedAct], warning: str) -> bool:
    actions = ", ".join(dict.fromkeys(deed.order.request.action for deed in deeds))
    doubted = sum(
        deed.order.request.action == "commit" and "may_be_decided" in deed.situation.row["flags"] for deed in deeds
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

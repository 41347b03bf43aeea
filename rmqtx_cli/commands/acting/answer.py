"""`rmqtx answer`: a stand-in for a producer group whose own processes are gone."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from readers.model.errors import BadRequest
from rmqtx_cli.commands import Example
from rmqtx_cli.options.asking import answered
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import OutputOptions, VoiceOptions
from rmqtx_cli.sources.answer_sources import AnswerOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.durations import duration_text, parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, stored_text

if TYPE_CHECKING:
    from repairs.acts.group_watch import GroupWatch, Others
    from repairs.acts.live_medium import LiveMedium
    from repairs.receipts.journal import Journal
    from repairs.stand_in.answer_source import AnswerSource
    from repairs.stand_in.answer_table import Task
    from repairs.stand_in.stand_in import StandIn, StandInConduct
    from rmqtx_cli.options.live import Live
    from rmqtx_cli.output.listing import Listing

NAME = "answer"
SHORT = "stand in for a producer group whose processes are gone"
_LEDGER = "--ledger orders.parquet --match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'"
EXAMPLES = (
    Example("rmqtx answer -n 10.0.0.1:9876 --group shop --plan plan.json --dry-run", "what would be answered"),
    Example(
        "rmqtx answer -n 10.0.0.1:9876 --group shop --plan plan.json --until-done --reason 'shop-3 is dead, INC-4711'",
        "answer what the plan names, prove it, and end",
    ),
    Example(
        f"rmqtx answer -n 10.0.0.1:9876 --group shop {_LEDGER} --for 2h --yes",
        "by the business ledger, for two hours, in a script",
    ),
)

GroupOption = Annotated[
    str, typer.Option("--group", parser=stored_text, metavar="GROUP", help="The producer group to stand in for.")
]
ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="End after this long; else with Ctrl-C.")
]
UntilDoneOption = Annotated[
    bool, typer.Option("--until-done", help="End when all that has an answer is settled.")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override", metavar="GUARD",
        help="Answer although this guard says no: producer-connected or another-rmqtx. Needs --reason.",
    ),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", parser=stored_text, metavar="TEXT", help="Why; the receipts keep it.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be answered, and end.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask; for scripts.")]
RateOption = Annotated[
    float | None, typer.Option("--max-per-second", min=0.01, metavar="N", help="At most so many answers a second.")
]


@with_option_groups
def command(
    group: GroupOption,
    *,
    source: AnswerOptions,
    duration: ForOption = None,
    until_done: UntilDoneOption = False,
    override: OverrideOption = None,
    reason: ReasonOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    max_per_second: RateOption = None,
    output: OutputOptions,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Stand in for a producer group whose processes are gone: hear the broker's checks, answer commit or rollback.

    The gentlest repair, by the broker's own protocol. What the plan or the ledger does not settle gets no answer: the
    broker asks again. Each answer is looked up before and after, and has a receipt. Refuses while members of the group
    are connected. Discarded transactions, and those that the check has passed, are not asked about: commit and rollback
    reach them.
    """
    from repairs.stand_in.stand_in import StandInConduct
    from rmqtx_cli.options.live import open_live

    group = live.full_name(group)
    for_ms = None if duration is None else parse_duration_ms(duration)
    overrides = _overrides(override, reason)
    listing = _listing(output, voice, with_outcome=not dry_run)
    words, reference = source.words(voice)
    conduct = StandInConduct(group, reason, overrides, reference, max_per_second=max_per_second)
    with open_live(live) as given:
        desk = _Desk.of(given, conduct, words, voice)
        tasks = desk.proposed()
        others = desk.watch.look()
        if dry_run:
            _write(listing, tasks)
            _say_proposal(tasks, group, words, voice)
        else:
            _show(tasks, group, words, voice)
        if (status := _refused(others, conduct)) != exit_status.DONE or dry_run:
            return status
        if not yes and not _agreed(group, given, tasks):
            voice.note("nothing was done")
            return exit_status.DONE
        desk.answer(for_ms, until_done=until_done)
        _write(listing, list(desk.stand_in.tasks.values()))
    return _conclude(desk.stand_in, voice, is_bounded=until_done)


@dataclass(frozen=True, slots=True)
class _Desk:
    """A stand-in at some brokers, and what it looks at and writes into."""

    live: Live
    stand_in: StandIn
    watch: GroupWatch
    medium: LiveMedium
    journal: Journal
    voice: Voice

    @classmethod
    def of(cls, live: Live, conduct: StandInConduct, words: AnswerSource, voice: Voice) -> _Desk:
        """One that has not begun."""
        from readers.store.store import CHECK_GROUP, HALF_TOPIC
        from repairs.acts.group_watch import GroupWatch
        from repairs.acts.live_medium import LiveMedium
        from repairs.receipts.journal import Journal
        from repairs.stand_in.answer_source import LedgerAnswers
        from repairs.stand_in.stand_in import StandIn

        if isinstance(words, LedgerAnswers):
            words.bearing = lambda key: _bearing(live, key)
        watch = GroupWatch(live.client, live.members, conduct.group)
        medium, journal = LiveMedium(live.brokers, live.members), Journal()
        roots = {broker.root: broker for broker in live.brokers}

        def check_cursor(root: str) -> int | None:
            return roots[root].consumer_offset(CHECK_GROUP, HALF_TOPIC)

        stand_in = StandIn(conduct, medium, check_cursor, words, journal, watch, voice.note)
        return cls(live, stand_in, watch, medium, journal, voice)

    @property
    def group(self) -> str:
        """The group that it stands in for."""
        return self.stand_in.conduct.group

    def proposed(self) -> list[Task]:
        """What would be answered about what is pending now."""
        from remoting.live.lookups import pending

        rows = [
            row for row in pending(self.live.brokers).table().to_pylist()
            if row["producer_group"] == self.group and row["state"] == "PENDING"
        ]  # fmt: skip
        return self.stand_in.propose(rows)

    def answer(self, for_ms: int | None, *, until_done: bool) -> None:
        """Answer until the time is over, all is settled where that is asked, or it is interrupted."""
        from rmqtx_cli.sources.interrupting import interruptible

        self.journal.prepare()
        with interruptible() as interrupted:
            is_over = _end(for_ms, self.stand_in if until_done else None, interrupted.is_set)
            # What the dead processes decided at last must be in queues and index by then.
            self.medium.remember_log_ends()
            _listen(self.stand_in, self.watch, self.live, self.group, is_over, self.voice)


# -- before it starts -------------------------------------------------------------------------------------------------


def _overrides(override: list[str] | None, reason: str | None) -> tuple[str, ...]:
    from repairs.stand_in.stand_in import OVERRIDABLE

    for name in override or ():
        if name not in OVERRIDABLE:
            advice = " or ".join(OVERRIDABLE)
            raise BadRequest(f"--override {name}: no guard that can be overridden here", advice=advice)
    if override and not reason:
        raise BadRequest("--override needs --reason", advice="say why the guard does not apply")
    return tuple(override or ())


def _bearing(live: Live, key: str) -> list[dict[str, Any]]:
    """Every transaction of the brokers that bears a business key, decided ones too."""
    from readers.model.errors import NoSuchTransaction
    from remoting.live.lookups import show

    try:
        rows: list[dict[str, Any]] = show(live.brokers, key).table().to_pylist()
    except NoSuchTransaction:
        return []
    return rows


def _refused(others: Others, conduct: StandInConduct) -> int:
    """Say that others are connected; gives the exit status."""
    if others.unknown is not None:
        whether = f"whether group {conduct.group} has members of its own is not known"
        say.error(f"evidence-incomplete: {whether}: {others.unknown}")
        return exit_status.UNREACHABLE
    refusal = conduct.refusal_of(others)
    if refusal is None:
        return exit_status.DONE
    say.error(str(refusal))
    return exit_status.REFUSED_BY_GUARD


def _show(tasks: list[Task], group: str, words: AnswerSource, voice: Voice) -> None:
    """The proposal, on stderr: stdout is for what came of it."""
    from repairs.stand_in.answer_table import ANSWERS, answers_table
    from rmqtx_cli.output.table import TablePort
    from rmqtx_cli.output.views import answers_view

    if tasks and not voice.quiet:
        port = TablePort(sys.stderr.buffer, ANSWERS, answers_view(with_outcome=False))
        for batch in answers_table(tasks).to_batches():
            port.write(batch)
        port.finish()
    _say_proposal(tasks, group, words, voice)


def _say_proposal(tasks: list[Task], group: str, words: AnswerSource, voice: Voice) -> None:
    numbers = Counter(task.given.action or "no answer" for task in tasks)
    told = ", ".join(f"{numbers[word]} {word}" for word in ("commit", "rollback", "no answer") if numbers[word])
    pending = f"{count(len(tasks), 'transaction')} pending{': ' + told if told else ''}"
    voice.note(f"group {group}: {pending} (by {words.name})")
    elsewhere = len(set(words.named) - {task.transaction_id for task in tasks})
    if elsewhere:
        voice.note(f"{elsewhere} of the plan's are not pending in this group: nobody asks about them here")


def _agreed(group: str, live: Live, tasks: list[Task]) -> bool:
    """Whether the person at the terminal agrees.

    Raises: BadRequest if there is none.
    """
    advice = "--dry-run shows what would be done, --yes does it"
    return answered(
        f"Join group {group} at {live.names} and answer {sum(task.given.action is not None for task in tasks)} of "
        f"{len(tasks)}, and what comes? There is no undo. [y/N] ",
        BadRequest("nobody is at the terminal to agree", advice=advice),
    )


# -- while it runs ----------------------------------------------------------------------------------------------------


def _end(for_ms: int | None, stand_in: StandIn | None, is_interrupted: Callable[[], bool]) -> Callable[[], bool]:
    """When it ends."""
    until = None if for_ms is None else time.monotonic() + for_ms / 1000

    def is_over() -> bool:
        is_late = until is not None and time.monotonic() >= until
        return is_interrupted() or is_late or (stand_in is not None and stand_in.is_done)

    return is_over


def _listen(
    stand_in: StandIn, watch: GroupWatch, live: Live, group: str, is_over: Callable[[], bool], voice: Voice
) -> None:
    from remoting.producer.membership import Membership
    from repairs.acts.group_watch import claim_on

    def changed(address: str, why: str | None) -> None:
        voice.note(f"{address} is there again" if why is None else f"{address} is away, and is tried again: {why}")

    addresses = [broker.address for broker in live.brokers]
    groups = (group, claim_on(group))
    with Membership(live.client.settings, addresses, groups, stand_in.hear, changed) as membership:
        watch.client_id = membership.client_id
        voice.note(f"joined group {group} at {live.names} as {membership.client_id}; Ctrl-C ends it")
        begun = time.monotonic()
        stand_in.run(is_over)
        voice.detail(f"listened for {duration_text(round((time.monotonic() - begun) * 1000))}")


# -- when it has ended ------------------------------------------------------------------------------------------------


def _listing(output: OutputOptions, voice: Voice, *, with_outcome: bool) -> Listing:
    from repairs.stand_in.answer_table import ANSWERS
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import answers_view

    return Listing(ANSWERS, answers_view(with_outcome=with_outcome), output, voice=voice)


def _write(listing: Listing, tasks: list[Task]) -> None:
    from repairs.stand_in.answer_table import answers_table

    listing.write(iter(answers_table(tasks).to_batches()))


def _conclude(stand_in: StandIn, voice: Voice, *, is_bounded: bool) -> int:
    """The summary, and the exit status."""
    tasks = list(stand_in.tasks.values())
    outcomes = Counter(task.outcome for task in tasks if task.outcome is not None)
    told = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in sorted(outcomes.items()))
    voice.note(f"answers: {told or 'none'}")
    unasked = [task for task in tasks if task.given.action is not None and task.outcome is None]
    if unasked:
        voice.note(f"{count(len(unasked), 'transaction')} with an answer still wait for the broker's check")
    if stand_in.strangers_count:
        voice.note(f"{count(stand_in.strangers_count, 'check')} of others got no answer: the broker goes on asking")
    if stand_in.stopped_by is not None:
        return _refused(stand_in.stopped_by, stand_in.conduct)
    if outcomes["unknown"]:
        return exit_status.UNKNOWN_OUTCOME
    bad = outcomes["refused_by_guard"] + outcomes["refused_by_broker"] + outcomes["not_sent"] + outcomes["contradicted"]
    return exit_status.SOME_REFUSED if bad or (is_bounded and unasked) else exit_status.DONE

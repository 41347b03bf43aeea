"""`rmqtx answer`: stand in for a producer group whose processes no longer run."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from rmqtx.readers.model.errors import BadRequest
from rmqtx.repairs.receipts.act_kind import ANSWERED
from rmqtx.verdicts.model.state import State
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx_cli.acting.acting import status_of_answers
from rmqtx_cli.commands import Example
from rmqtx_cli.options.asking import answered
from rmqtx_cli.options.grouped_options import with_option_groups
from rmqtx_cli.options.live import LiveOptions
from rmqtx_cli.options.options import ReceiptOptions, VoiceOptions
from rmqtx_cli.sources.answer_sources import AnswerOptions
from rmqtx_cli.words import exit_status, say
from rmqtx_cli.words.durations import duration_text, parse_duration_ms
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count, stored_text

if TYPE_CHECKING:
    from rmqtx.repairs.acts.group_watch import GroupWatch, Others
    from rmqtx.repairs.acts.live_medium import LiveMedium
    from rmqtx.repairs.receipts.journal import Journal
    from rmqtx.repairs.stand_in.answer_source import AnswerSource
    from rmqtx.repairs.stand_in.answer_table import Task
    from rmqtx.repairs.stand_in.stand_in import StandIn, StandInConduct
    from rmqtx_cli.options.live import Live
    from rmqtx_cli.output.listing import Listing

NAME = "answer"
_LEDGER = "--ledger orders.parquet --match 'keys = order_id' --done 'status = PAID' --not-done 'status = CANCELLED'"
EXAMPLES = (
    Example(
        "rmqtx answer -n 10.0.0.1:9876 --group shop --plan plan.json --dry-run",
        "list the answers without sending them",
    ),
    Example(
        "rmqtx answer -n 10.0.0.1:9876 --group shop --plan plan.json --until-done --reason 'shop-3 is dead, INC-4711'",
        "answer by the plan, prove it, and exit",
    ),
    Example(
        f"rmqtx answer -n 10.0.0.1:9876 --group shop {_LEDGER} --for 2h --yes",
        "answer by the business ledger, for 2 hours, in a script",
    ),
)

GroupOption = Annotated[
    str, typer.Option("--group", parser=stored_text, metavar="GROUP", help="The producer group to answer for")
]
ForOption = Annotated[
    str | None, typer.Option("--for", metavar="DURATION", help="Exit after this time; default: run until Ctrl-C")
]
UntilDoneOption = Annotated[
    bool, typer.Option("--until-done", help="Exit when all transactions that have an answer are settled")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "--override", metavar="GUARD",
        help="Answer although this guard refuses: producer-connected, another-rmqtx or group-shared. Needs "
        "--reason",
    ),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", parser=stored_text, metavar="TEXT", help="Reason, kept in the receipts")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="List the answers without sending them")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation; for scripts")]
RateOption = Annotated[
    float | None, typer.Option("--max-per-second", min=0.01, metavar="N", help="Send at most N answers per second")
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
    output: ReceiptOptions,
    voice: VoiceOptions,
    live: LiveOptions,
) -> int:
    """Join a producer group whose processes no longer run, and answer the broker's checks with commit or rollback.

    The answers come from a plan or a ledger; other transactions get no answer, and the broker asks again. This is the
    repair with the least risk: the broker's own protocol, for the transactions that it checks. Each transaction is read
    before and after its answer, and each answer has a receipt. Refused while members of the group are connected.
    Discarded transactions, and those that the check has passed, are not checked: use commit or rollback.
    """
    from rmqtx.repairs.stand_in.answer_source import LedgerAnswers
    from rmqtx.repairs.stand_in.stand_in import StandInConduct
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
        refusal = conduct.refusal_of_ledger(desk.applications) if isinstance(words, LedgerAnswers) else None
        if refusal is not None:
            say.error(str(refusal))
            return exit_status.REFUSED_BY_GUARD
        if (status := _refused(others, conduct)) != exit_status.DONE or dry_run:
            return status
        if not yes and not _agreed(group, given, tasks):
            voice.note("nothing was done")
            return exit_status.REFUSED_BY_GUARD
        desk.answer(for_ms, until_done=until_done)
        _write(listing, list(desk.stand_in.tasks.values()))
    return _conclude(desk.stand_in, voice, is_bounded=until_done)


@dataclass(frozen=True, slots=True)
class _Desk:
    """A stand-in at some brokers, with what it reads and its journal."""

    live: Live
    stand_in: StandIn
    watch: GroupWatch
    medium: LiveMedium
    journal: Journal
    voice: Voice
    applications: list[frozenset[str]] = field(default_factory=list)

    @classmethod
    def of(cls, live: Live, conduct: StandInConduct, words: AnswerSource, voice: Voice) -> _Desk:
        """Return a stand-in that has not started."""
        from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC
        from rmqtx.repairs.acts.group_watch import GroupWatch
        from rmqtx.repairs.acts.live_medium import LiveMedium
        from rmqtx.repairs.receipts.journal import Journal
        from rmqtx.repairs.stand_in.answer_source import LedgerAnswers
        from rmqtx.repairs.stand_in.stand_in import StandIn

        if isinstance(words, LedgerAnswers):
            words.with_key = lambda key: _with_key(live, key)
        watch = GroupWatch(live.client, live.members, conduct.group)
        medium, journal = LiveMedium(live.brokers, live.members), Journal()
        roots = {broker.root: broker for broker in live.brokers}

        def check_cursor(root: str) -> int | None:
            return roots[root].consumer_offset(CHECK_GROUP, HALF_TOPIC)

        stand_in = StandIn(conduct, medium, check_cursor, words, journal, watch, voice.note)
        return cls(live, stand_in, watch, medium, journal, voice)

    @property
    def group(self) -> str:
        """The producer group."""
        return self.stand_in.conduct.group

    def proposed(self) -> list[Task]:
        """Return the answers for the transactions that are pending now."""
        from rmqtx.remoting.live.lookups import pending

        reading = pending(self.live.brokers)
        found = [Transaction.of(row) for row in reading.table().to_pylist()]
        for (_, group), members in reading.habits.members.items():
            if group == self.group:
                self.applications.extend(members.applications())
        return self.stand_in.propose(
            [one for one in found if one.producer_group == self.group and one.state == State.PENDING]
        )

    def answer(self, for_ms: int | None, *, until_done: bool) -> None:
        """Answer until the time is over, all is settled (with --until-done), or the user interrupts."""
        from rmqtx_cli.sources.interrupting import interruptible

        self.journal.prepare()
        with interruptible() as interrupted:
            is_over = _end(for_ms, self.stand_in if until_done else None, interrupted.is_set)
            # The last decisions of the dead processes must be in queues and index before an answer.
            self.medium.remember_log_ends()
            _listen(self.stand_in, self.watch, self.live, self.group, is_over, self.voice)


# -- before it starts -------------------------------------------------------------------------------------------------


def _overrides(override: list[str] | None, reason: str | None) -> tuple[str, ...]:
    from rmqtx.repairs.stand_in.stand_in import OVERRIDABLE

    for name in override or ():
        if name not in OVERRIDABLE:
            advice = " or ".join(OVERRIDABLE)
            raise BadRequest(f"--override {name}: not a guard that can be overridden here", advice=advice)
    if override and not reason:
        raise BadRequest("--override needs --reason", advice="give the reason why the guard does not apply")
    return tuple(override or ())


def _with_key(live: Live, key: str) -> list[Transaction]:
    """Return all transactions of the brokers that have a business key, decided ones included."""
    from rmqtx.readers.model.errors import NoSuchTransaction
    from rmqtx.remoting.live.lookups import show

    try:
        rows = show(live.brokers, key).table().to_pylist()
    except NoSuchTransaction:
        return []
    return [Transaction.of(row) for row in rows]


def _refused(others: Others, conduct: StandInConduct) -> int:
    """Print that other members are connected; return the exit status."""
    if others.unknown is not None:
        what = f"cannot list the members of group {conduct.group}"
        say.error(f"evidence-incomplete: {what}: {others.unknown}")
        return exit_status.UNREACHABLE
    refusal = conduct.refusal_of(others)
    if refusal is None:
        return exit_status.DONE
    say.error(str(refusal))
    return exit_status.REFUSED_BY_GUARD


def _show(tasks: list[Task], group: str, words: AnswerSource, voice: Voice) -> None:
    """Print the proposal on stderr: stdout is for the outcome."""
    from rmqtx.repairs.stand_in.answer_table import ANSWERS, answers_table
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
    counts = ", ".join(f"{numbers[word]} {word}" for word in (*ANSWERED, "no answer") if numbers[word])
    pending = f"{count(len(tasks), 'pending transaction')}{': ' + counts if counts else ''}"
    voice.note(f"group {group}: {pending} (answers from {words.name})")
    elsewhere = len(set(words.named) - {task.transaction_id for task in tasks})
    if elsewhere:
        voice.note(f"{count(elsewhere, 'transaction')} of the plan not pending in this group: not checked here")


def _agreed(group: str, live: Live, tasks: list[Task]) -> bool:
    """Ask for confirmation on the terminal; return whether the answer is yes.

    Raises: BadRequest if there is no terminal.
    """
    advice = "--dry-run lists the answers, --yes sends them"
    return answered(
        f"Join group {group} at {live.names} and answer {sum(task.given.action is not None for task in tasks)} of "
        f"{len(tasks)} pending transactions, and later ones? There is no undo. [y/N] ",
        BadRequest("cannot ask for confirmation: standard input is not a terminal", advice=advice),
    )


# -- while it runs ----------------------------------------------------------------------------------------------------


def _end(for_ms: int | None, stand_in: StandIn | None, is_interrupted: Callable[[], bool]) -> Callable[[], bool]:
    """Return a function that returns whether to stop."""
    until = None if for_ms is None else time.monotonic() + for_ms / 1000

    def is_over() -> bool:
        is_late = until is not None and time.monotonic() >= until
        return is_interrupted() or is_late or (stand_in is not None and stand_in.is_done)

    return is_over


def _listen(
    stand_in: StandIn, watch: GroupWatch, live: Live, group: str, is_over: Callable[[], bool], voice: Voice
) -> None:
    from rmqtx.remoting.producer.membership import Membership
    from rmqtx.repairs.acts.group_watch import claim_on

    def changed(address: str, why: str | None) -> None:
        voice.note(f"{address}: connected again" if why is None else f"{address}: connection lost, retrying: {why}")

    addresses = [broker.address for broker in live.brokers]
    groups = (group, claim_on(group))
    with Membership(live.client.settings, addresses, groups, stand_in.receive, changed) as membership:
        watch.client_id = membership.client_id
        voice.note(f"joined group {group} at {live.names} as {membership.client_id}; stop with Ctrl-C")
        begun = time.monotonic()
        stand_in.run(is_over)
        voice.detail(f"listened for {duration_text(round((time.monotonic() - begun) * 1000))}")


# -- when it has ended ------------------------------------------------------------------------------------------------


def _listing(output: ReceiptOptions, voice: Voice, *, with_outcome: bool) -> Listing:
    from rmqtx.repairs.stand_in.answer_table import ANSWERS
    from rmqtx_cli.output.listing import Listing
    from rmqtx_cli.output.views import answers_view

    return Listing(ANSWERS, answers_view(with_outcome=with_outcome), output.rows, voice=voice)


def _write(listing: Listing, tasks: list[Task]) -> None:
    from rmqtx.repairs.stand_in.answer_table import answers_table

    listing.write(iter(answers_table(tasks).to_batches()))


def _conclude(stand_in: StandIn, voice: Voice, *, is_bounded: bool) -> int:
    """Print the summary; return the exit status."""
    tasks = list(stand_in.tasks.values())
    outcomes = Counter(task.outcome for task in tasks if task.outcome is not None)
    counts = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in sorted(outcomes.items()))
    voice.note(f"answers: {counts or 'none'}")
    unasked = [task for task in tasks if task.given.action is not None and task.outcome is None]
    if unasked:
        voice.note(f"not checked by the broker yet: {count(len(unasked), 'transaction')} with an answer")
    if stand_in.unmatched_count:
        voice.note(f"{count(stand_in.unmatched_count, 'check')} of others got no answer: the broker asks again")
    if stand_in.stopped_by is not None:
        return _refused(stand_in.stopped_by, stand_in.conduct)
    return status_of_answers(outcomes, is_late=is_bounded and bool(unasked))

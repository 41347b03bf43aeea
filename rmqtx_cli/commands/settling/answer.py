"""`rmqtx answer`: stand in for a producer group whose processes no longer run."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqtx.readers.model import exit_status
from rmqtx.readers.model.errors import BadRequest, NoSuchTransaction
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC
from rmqtx.remoting.live.lookups import pending, show
from rmqtx.remoting.producer.producer import Membership
from rmqtx.repairs.acts.claims import GroupWatch, Others, claim_on
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.receipts.act_words import ANSWERED
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.stand_in.answer_source import AnswerSource, LedgerAnswers
from rmqtx.repairs.stand_in.answer_table import ANSWERS, Task, answers_table
from rmqtx.repairs.stand_in.stand_in import OVERRIDABLE, StandIn, StandInConduct
from rmqtx.verdicts.model.transaction import Transaction
from rmqtx.verdicts.model.verdict_words import State
from rmqtx_cli.acting.confirmed_acts import status_of_answers
from rmqtx_cli.commands.declared.settle import AnswerCommand
from rmqtx_cli.options.asking import answered
from rmqtx_cli.options.options import ReceiptOptions
from rmqtx_cli.output.listing import Listing
from rmqtx_cli.output.table import print_table, write_table
from rmqtx_cli.output.views import answers_view
from rmqtx_cli.sources.answer_sources import answers_of
from rmqtx_cli.sources.interrupting import asked_to_end
from rmqtx_cli.sources.live_brokers import Live, full_name, open_live
from rmqtx_cli.words import log_json, say
from rmqtx_cli.words.say import Voice
from rmqtx_cli.words.text import count
from rmqtx_cli.words.times import duration_text, parse_duration_ms


def run(options: AnswerCommand) -> int:
    """Run the command; return its exit status."""
    group = options.group
    group = full_name(options.live, group)
    for_ms = None if options.duration is None else parse_duration_ms(options.duration)
    overrides = _overrides(options.override, options.reason)
    listing = _listing(options.output, options.voice, with_outcome=not options.dry_run)
    words, reference = answers_of(options.source, options.voice)
    conduct = StandInConduct(group, options.reason, overrides, reference, max_per_second=options.max_per_second)
    with open_live(options.live) as given:
        desk = _Desk.of(given, conduct, words, options.voice)
        tasks = desk.proposed()
        others = desk.watch.look()
        if options.dry_run:
            _write(listing, tasks)
            _say_proposal(tasks, group, words, options.voice)
        else:
            _show(tasks, group, words, options.voice)
        refusal = conduct.refusal_of_ledger(desk.applications) if isinstance(words, LedgerAnswers) else None
        if refusal is not None:
            say.error(str(refusal))
            return exit_status.REFUSED_BY_GUARD
        if (status := _refused(others, conduct)) != exit_status.DONE or options.dry_run:
            return status
        if not options.yes and not _agreed(group, given, tasks):
            options.voice.note("nothing was done")
            return exit_status.REFUSED_BY_GUARD
        desk.answer(for_ms, until_done=options.until_done)
        _write(listing, list(desk.stand_in.tasks.values()))
    return _conclude(desk.stand_in, options.voice, is_bounded=options.until_done)


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
        self.journal.prepare()
        with asked_to_end() as interrupted:
            is_over = _end(for_ms, self.stand_in if until_done else None, interrupted.is_set)
            # The last decisions of the dead processes must be in queues and index before an answer.
            self.medium.remember_log_ends()
            _listen(self.stand_in, self.watch, self.live, self.group, is_over, self.voice)


# -- before it starts -------------------------------------------------------------------------------------------------


def _overrides(override: list[str] | None, reason: str | None) -> tuple[str, ...]:
    for name in override or ():
        if name not in OVERRIDABLE:
            advice = " or ".join(OVERRIDABLE)
            raise BadRequest(f"--override {name}: not a guard that can be overridden here", advice=advice)
    if override and not reason:
        raise BadRequest("--override needs --reason", advice="give the reason why the guard does not apply")
    return tuple(override or ())


def _with_key(live: Live, key: str) -> list[Transaction]:
    """Return all transactions of the brokers that have a business key, decided ones included."""
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
    if tasks and not voice.quiet and log_json.current() is not None:
        print_table(answers_table(tasks), answers_view(with_outcome=False))
    elif tasks and not voice.quiet:
        write_table(sys.stderr.buffer, answers_table(tasks), answers_view(with_outcome=False))
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
    return Listing(ANSWERS, answers_view(with_outcome=with_outcome), output.rows, voice=voice)


def _write(listing: Listing, tasks: list[Task]) -> None:
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

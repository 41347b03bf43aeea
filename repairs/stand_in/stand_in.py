"""A stand-in for a producer group whose own processes no longer run: it receives the broker's checks and answers them.

It uses the broker's own protocol, but every answer is guarded like any other act: the transaction is looked up again
before the answer, because a broker delivers a message again for each commit. Each answer is sent once, its receipt is
on disk before, and its effect is looked up. Without a certain outcome there is no answer: a broker does not respond to
UNKNOWN, and checks the transaction again anyway.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rmqtx.readers.model import clock
from rmqtx.remoting.producer.producer import Check
from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK
from rmqtx.remoting.protocol.errors import RemotingError, Unreachable
from rmqtx.repairs.acts.carry_out import LATE_MS, late_until_ms
from rmqtx.repairs.acts.claims import GroupWatch, Others
from rmqtx.repairs.acts.guard_rules import members_that_answer, rivals_that_answer
from rmqtx.repairs.acts.guards import Refusal, refusals
from rmqtx.repairs.acts.situation import ActRequest, NamedRecord, Situation
from rmqtx.repairs.receipts.act_words import ActKind, ActOutcome
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.plan_rows import witnesses_of
from rmqtx.repairs.receipts.receipts import Receipt
from rmqtx.repairs.stand_in.answer_effects import CheckCursor, Effects
from rmqtx.repairs.stand_in.answer_source import AnswerSource, GivenAnswer
from rmqtx.repairs.stand_in.answer_table import Task
from rmqtx.verdicts.model.final_record import FinalRecord
from rmqtx.verdicts.model.transaction import Transaction

PRODUCER_CONNECTED, ANOTHER_RMQTX = "producer-connected", "another-rmqtx"
#: A guard of a stand-in alone: other acts name their transactions.
GROUP_SHARED = "group-shared"
#: Guards that can be overridden for a stand-in; overriding others makes no sense for an answer.
OVERRIDABLE = (PRODUCER_CONNECTED, ANOTHER_RMQTX, GROUP_SHARED)
#: Guards that are not applied: a broker sends a check only after the time in which the producer must not be asked.
_NOT_ASKED = ("immunity",)
#: Guards whose reason ends without an act: the check is held and looked up again, or the broker repeats it.
_PASSING = ("decision-in-flight", "evidence-incomplete")
#: Transactions that are looked up together, so that the last answer follows its look-up within about a second.
_BATCH = 32
_LISTEN_SECONDS = 0.2
_HELD_SECONDS_MAX = 120.0


class AnswerMedium(Protocol):
    """What a stand-in needs of live brokers; LiveMedium is one."""

    def look(self, transaction_ids: Sequence[str]) -> list[Transaction]:
        """Return some transactions as they are now, by their ids."""

    def situations(self, rows: Sequence[Transaction], *, settled_ms: int) -> list[Situation]:
        """Return the situations of some rows."""

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """Commit or roll back a half copy."""


@dataclass(frozen=True, slots=True)
class StandInConduct:
    """The settings of a stand-in. Units: milliseconds. `prove_ms`: how long to look for the effect of an answer."""

    group: str
    reason: str | None = None
    overrides: tuple[str, ...] = ()
    plan: Mapping[str, str | None] | None = None
    prove_ms: int = 30_000
    max_per_second: float | None = None

    def refusal_of(self, others: Others) -> Refusal | None:
        """Why nothing is answered while the group has other members; None if it has none, or on override."""
        if others.members and PRODUCER_CONNECTED not in self.overrides:
            return Refusal(PRODUCER_CONNECTED, *members_that_answer(self.group, others.members))
        if others.rivals and ANOTHER_RMQTX not in self.overrides:
            return Refusal(ANOTHER_RMQTX, *rivals_that_answer(self.group, others.rivals))
        return None


    def refusal_of_ledger(self, applications: Sequence[frozenset[str]]) -> Refusal | None:
        """Why a ledger does not answer for a group of several applications; None for one application, or on override.

        `applications`: the topics of each; see `Members.applications`.
        """
        if len(applications) < 2 or GROUP_SHARED in self.overrides:
            return None
        named = "; ".join(sorted(", ".join(sorted(topics)) for topics in applications))
        return Refusal(
            GROUP_SHARED,
            f"several applications send with group {self.group}, by their topics: {named}; the ledger of one may have "
            "a row with the key of another's transaction, or none",
            "answer by a plan: rmqtx plan commit --where 'topic = NAME', then rmqtx answer --plan PLAN",
        )


class StandIn:
    """Answers the checks that it receives, for as long as it runs.

    Shape: `tasks` by transaction id; `stopped_by`: the other members of the group that made it stop;
           `unmatched_count`: checks of transactions for which the source has no answer.
    """

    def __init__(
        self, conduct: StandInConduct, medium: AnswerMedium, check_cursor: CheckCursor, answers: AnswerSource,
        journal: Journal, watch: GroupWatch, note: Callable[[str], None],
    ) -> None:
        self.conduct = conduct
        self.tasks: dict[str, Task] = {}
        self.stopped_by: Others | None = None
        self.unmatched_count = 0
        self._medium = medium
        self._answers = answers
        self._journal = journal
        self._watch = watch
        self._note = note
        #: Until when a request of an earlier run may still reach the broker, by transaction. Units: epoch milliseconds.
        self._late: dict[str, int] = {}
        self._received: queue.SimpleQueue[Check] = queue.SimpleQueue()
        self._held: dict[str, Check] = {}
        self._next_answer = 0.0
        self._effects = Effects(medium, check_cursor, journal, conduct.prove_ms, note)
        self._last_trouble: str | None = None
        self._unknown: str | None = None
        self._is_ending = False

    # -- before it starts -----------------------------------------------------------------------------------------

    def propose(self, rows: Sequence[Transaction]) -> list[Task]:
        """Return the answers for some transactions; `is_done` waits for these transactions."""
        tasks = [Task(row, given) for row, given in zip(rows, self._answers.of(rows), strict=True)]
        self.tasks.update((task.transaction_id, task) for task in tasks)
        return tasks

    def receive(self, check: Check) -> None:
        """Queue a check from a broker; called from the connections' threads."""
        self._received.put(check)

    @property
    def is_done(self) -> bool:
        """Whether every transaction with an answer is answered, verified and passed by the check, or refused."""
        if self._effects.are_awaited(self.tasks.values()):
            return False
        return all(task.is_settled for task in self.tasks.values() if task.given.action is not None)

    # -- while it runs --------------------------------------------------------------------------------------------

    def run(self, is_over: Callable[[], bool]) -> None:
        """Answer checks until `is_over`, or until other members of the group appear.

        Afterwards the effects of the answers are still looked up, and copies that the check puts back are closed, but
        no further transaction is answered.
        """
        self._journal.prepare()
        self._late = late_until_ms(self._journal)
        while not is_over():
            self._listen()
            others = self._watch.look(if_due=True)
            if self._is_stopped(others):
                break
            self._note_unknown(others)
            self._guarded(self._answer_held)
            self._guarded(self._look_for_effects)
        end = time.monotonic() + self.conduct.prove_ms / 1000
        self._is_ending = True
        while self._effects.are_awaited(self.tasks.values()) and time.monotonic() < end:
            self._listen()
            self._guarded(self._answer_held)
            self._guarded(self._look_for_effects)
        self._effects.record_unseen(self.tasks.values())

    def _note_unknown(self, others: Others) -> None:
        """Report once that nothing is answered while the other members of the group are unknown."""
        if others.unknown is not None and others.unknown != self._unknown:
            self._note(f"not answering while the connected producers of the group are unknown: {others.unknown}")
        self._unknown = others.unknown

    def _look_for_effects(self) -> None:
        self._effects.look(self.tasks.values())

    def _guarded(self, part: Callable[[], None]) -> None:
        """Run a part that reads from brokers; a broker that cannot be reached for a while does not end the stand-in."""
        try:
            part()
        except RemotingError as error:
            if error.message != self._last_trouble:
                self._note(f"cannot answer at the moment, retrying: {error.message}")
            self._last_trouble = error.message
            time.sleep(1)
        else:
            self._last_trouble = None

    def _listen(self) -> None:
        """Sort the received checks; of several checks of one transaction the last one counts."""
        patience = _LISTEN_SECONDS
        while True:
            try:
                check = self._received.get(timeout=patience) if patience else self._received.get_nowait()
            except queue.Empty:
                return
            patience = 0.0
            if check.transaction_id is None or not self._answers.may_decide(check.transaction_id):
                self.unmatched_count += 1
                continue
            task = self.tasks.get(check.transaction_id)
            if task is not None:
                task.asked_count += 1
            if task is not None and task.decided is not None:
                self._close_again(task, check)  # before the next round puts back another copy
                continue
            before = self._held.get(check.transaction_id)
            if before is None or check.commit_log_offset > before.commit_log_offset:
                self._held[check.transaction_id] = check

    def _is_stopped(self, others: Others) -> bool:
        refused = self.conduct.refusal_of(others) is not None
        if refused:
            self.stopped_by = others
        return refused

    # -- answering ------------------------------------------------------------------------------------------------

    def _answer_held(self) -> None:
        old = (time.time() - _HELD_SECONDS_MAX) * 1000
        self._held = {name: check for name, check in self._held.items() if check.received_time_ms > old}
        names = list(self._held)[:_BATCH]
        if not names:
            return
        rows = {row.transaction_id: row for row in self._medium.look(names)}
        found = [rows[name] for name in names if name in rows]
        situations = self._medium.situations(found, settled_ms=self._watch.alone_ms) if found else []
        answers = self._answers.of(found)
        if not self._is_ending and self._is_stopped(self._watch.look()):
            return
        for situation, given in zip(situations, answers, strict=True):
            check = self._held.pop(situation.transaction_id)
            if not self._take(check, situation, given):
                self._held.setdefault(check.transaction_id or "", check)
        for name in set(names) - set(rows):  # what the broker has just written is not visible yet
            self._trouble(name, "its records cannot be found")
            self._held[name] = self._held.pop(name)  # after the others

    def _take(self, check: Check, situation: Situation, given: GivenAnswer) -> bool:
        """Answer one check or record why not; False: the transaction must be looked up again."""
        task = self.tasks.get(situation.transaction_id)
        if task is None and self._is_ending:
            return True
        if task is None:
            task = self.tasks[situation.transaction_id] = Task(situation.transaction, given, asked_count=1)
        task.transaction, task.check = situation.transaction, check
        if task.decided is not None:
            self._close_again(task, check)
            return True
        if self._is_ending:
            return True
        task.given = given
        if task.is_open or given.action is None:
            return True
        newest = situation.newest_queue_offset
        if newest is not None and newest > check.queue_offset:
            return True  # the broker checks that copy too
        named = situation.half_copy
        if named is None or named.queue_offset != check.queue_offset:
            self._trouble(situation.transaction_id, "the half copy that the broker checks is not visible yet")
            return False
        if self._late.get(situation.transaction_id, 0) > clock.now_ms():
            self._trouble(situation.transaction_id, "an earlier answer of rmqtx may still reach the broker")
            return False
        refusal = self._refusal(situation, ActRequest(given.action, self.conduct.group, check.queue_offset))
        if refusal is None:
            self._answer(task, given.action, named, situation, _NOTE.format(named.queue_offset))
            return True
        if refusal.guard in _PASSING:
            self._trouble(situation.transaction_id, f"{refusal.guard}: {refusal.why}")
            return False
        self._refuse(task, refusal)
        return True

    def _refusal(self, situation: Situation, request: ActRequest) -> Refusal | None:
        others = self._watch.seen  # the medium would list this stand-in itself as a member of the group
        around = replace(
            situation.conditions, producers=None if others.unknown else others.members,
            producers_unknown=others.unknown, rivals=others.rivals,
        )
        asked = replace(situation, named=situation.half_copy, conditions=around)
        return next(iter(refusals(asked, request, self.conduct.overrides, _NOT_ASKED)), None)

    def _close_again(self, task: Task, check: Check) -> None:
        """Close a copy that the broker put back before it read the decision, and checks now.

        A second COMMIT would deliver again; a rollback of the newest copy delivers nothing and ends the checks.
        """
        assert task.named is not None
        assert task.situation is not None
        newest = max(task.named.queue_offset, task.closed_queue_offset)
        if check.queue_offset <= newest or not task.named.store.endswith(f"@{check.address}"):
            return
        task.closed_queue_offset = check.queue_offset
        named = replace(
            task.named, queue_offset=check.queue_offset, commit_log_offset=check.commit_log_offset, raw=b""
        )
        situation = replace(task.situation, transaction=task.transaction)
        receipt = self._receipt(ActKind.CLOSE, named, situation)
        receipt.named_copy = replace(named.place(), length_bytes=None)  # it was not read
        receipt.notes.append(
            f"the answer {task.decided} was sent before; the check then put back half copy {check.queue_offset}"
        )
        self._journal.begin(receipt)
        try:
            answer = self._medium.decide(named, situation, ROLLBACK, receipt)
        except RemotingError as error:  # the broker checks it again
            receipt.notes.append(error.message)
            self._journal.end(receipt)
            return
        if not answer.is_success:
            receipt.outcome = ActOutcome.REFUSED_BY_BROKER
            self._journal.end(receipt)
            return
        receipt.outcome = ActOutcome.ACCEPTED
        finals = task.transaction.final_records
        if not finals and task.decided == ActKind.COMMIT:
            finals = (_NOT_VISIBLE_YET,)
        self._effects.await_closing(receipt, named, replace(task.transaction, final_records=finals))
        self._note(f"{task.transaction_id}: closed half copy {check.queue_offset}, which the check had put back")

    def _answer(self, task: Task, action: ActKind, named: NamedRecord, situation: Situation, note: str) -> None:
        self._wait_turn()
        receipt = self._receipt(action, named, situation)
        receipt.notes.append(note)
        task.named, task.before, task.receipt, task.situation = named, situation.transaction, receipt, situation
        self._journal.begin(receipt)
        try:
            answer = self._medium.decide(named, situation, COMMIT if action == ActKind.COMMIT else ROLLBACK, receipt)
        except Unreachable as error:
            self._effects.end(task, ActOutcome.NOT_SENT, f"nothing was sent: {error.message}")
            return
        except RemotingError as error:
            task.outcome = ActOutcome.UNKNOWN
            task.outcome_reason = f"{error.message}; the broker may have received the answer"
            self._late[task.transaction_id] = clock.now_ms() + LATE_MS
        else:
            if not answer.is_success:
                why = f"code {answer.code}: {answer.remark or 'no remark'}"
                self._effects.end(task, ActOutcome.REFUSED_BY_BROKER, why)
                return
            task.outcome, task.outcome_reason, task.decided = ActOutcome.ACCEPTED, None, action
        task.proof_until = time.monotonic() + self.conduct.prove_ms / 1000
        self._note(f"{task.transaction_id}: answered {action} for half copy {named.queue_offset}")

    def _receipt(self, action: ActKind, named: NamedRecord, situation: Situation) -> Receipt:
        row = situation.transaction
        return Receipt(
            action=action, transaction_id=situation.transaction_id, store=named.store,
            producer_group=row.producer_group, topic=row.topic, keys=row.keys, reason=self.conduct.reason,
            overrides=list(self.conduct.overrides), plan=None if self.conduct.plan is None else dict(self.conduct.plan),
            named_copy=named.place(), state_before=row.state, witnesses_before=witnesses_of(row),
        )

    def _refuse(self, task: Task, refusal: Refusal) -> None:
        """Report once, and record, that a check is not answered."""
        if task.outcome == ActOutcome.REFUSED_BY_GUARD and task.outcome_reason == str(refusal):
            return
        row = task.transaction
        task.receipt = Receipt(
            action=task.given.action or ActKind.ANSWER, transaction_id=task.transaction_id, store=str(row.store),
            producer_group=row.producer_group, topic=row.topic, keys=row.keys, reason=self.conduct.reason,
            overrides=list(self.conduct.overrides), state_before=row.state, witnesses_before=witnesses_of(row),
        )
        self._note(f"{task.transaction_id}: not answered: {refusal}")
        self._effects.end(task, ActOutcome.REFUSED_BY_GUARD, str(refusal))

    def _trouble(self, transaction_id: str, why: str) -> None:
        """Record why a check is not answered yet."""
        task = self.tasks.get(transaction_id)
        if task is not None and task.outcome is None:
            task.outcome_reason = why

    def _wait_turn(self) -> None:
        if self.conduct.max_per_second:
            time.sleep(max(0.0, self._next_answer - time.monotonic()))
            self._next_answer = time.monotonic() + 1 / self.conduct.max_per_second


#: In the place of a COMMIT record that the broker acknowledged, and that no look-up has shown.
_NOT_VISIBLE_YET = FinalRecord("", "", 0, 0, 0, 0)
_NOTE = "answered the broker's check of half copy {} in place of the producer group"

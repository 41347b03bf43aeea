"""A stand-in for a producer group whose own processes are gone: it hears the broker's checks and answers them.

It is the broker's own protocol, and yet every answer is guarded like any other act: the transaction is looked up afresh
before it is answered, for a broker delivers again whatever it is told to commit again. What is sent is sent once, its
receipt is on disk before, and its effect is looked for. Who is not sure gives no answer: a broker gives no response to
UNKNOWN, and asks again by itself.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from remoting.producer.producer import Check
from remoting.protocol.answers import Answer
from remoting.protocol.codes import COMMIT, ROLLBACK
from remoting.protocol.errors import RemotingError, Unreachable
from repairs.acts.group_watch import GroupWatch, Others
from repairs.acts.guard_rules import members_that_answer, rivals_that_answer
from repairs.acts.guards import Refusal, refusals
from repairs.acts.request import ActRequest
from repairs.acts.situation import NamedRecord, Situation
from repairs.receipts.journal import Journal
from repairs.receipts.planner import witnesses_of
from repairs.receipts.receipts import Receipt
from repairs.stand_in.answer_effects import CheckCursor, Effects
from repairs.stand_in.answer_source import AnswerSource, GivenAnswer
from repairs.stand_in.answer_table import Task

PRODUCER_CONNECTED, ANOTHER_RMQTX = "producer-connected", "another-rmqtx"
#: Guards that a stand-in can be told to let pass; no other one makes sense for an answer.
OVERRIDABLE = (PRODUCER_CONNECTED, ANOTHER_RMQTX)
#: A broker that asks has found by itself that the time for which nobody may be asked is over.
_NOT_ASKED = ("immunity",)
#: Reasons that pass by themselves: the broker asks again, or what was heard is looked at again.
_PASSING = ("decision-in-flight", "evidence-incomplete")
#: So many are looked up together; the time between the look and the last answer stays below a second or so.
_BATCH = 32
_LISTEN_SECONDS = 0.2
_HELD_SECONDS_MAX = 120.0


class AnswerMedium(Protocol):
    """What a stand-in needs of live brokers; LiveMedium is one."""

    def look(self, transaction_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Fresh rows of TRANSACTIONS for some ids."""

    def situations(self, rows: Sequence[dict[str, Any]], *, settled_ms: int) -> list[Situation]:
        """What is known of some rows and of what surrounds them."""

    def decide(self, named: NamedRecord, situation: Situation, decision: int, receipt: Receipt) -> Answer:
        """Commit or roll back a half copy."""


@dataclass(frozen=True, slots=True)
class StandInConduct:
    """How a stand-in behaves.

    Units: milliseconds. `prove_ms`: how long the effect of an answer is looked for.
    """

    group: str
    reason: str | None = None
    overrides: tuple[str, ...] = ()
    plan: Mapping[str, Any] | None = None
    prove_ms: int = 30_000
    max_per_second: float | None = None

    def refusal_of(self, others: Others) -> Refusal | None:
        """Why nothing is answered while others belong to the group; None where none does, or it was overridden."""
        if others.members and PRODUCER_CONNECTED not in self.overrides:
            return Refusal(PRODUCER_CONNECTED, *members_that_answer(self.group, others.members))
        if others.rivals and ANOTHER_RMQTX not in self.overrides:
            return Refusal(ANOTHER_RMQTX, *rivals_that_answer(self.group, others.rivals))
        return None


class StandIn:
    """Answers what it hears, for as long as it runs.

    Shape: `tasks` by transaction id; `stopped_by` the others whose appearance ended it.
    """

    def __init__(
        self, conduct: StandInConduct, medium: AnswerMedium, check_cursor: CheckCursor, answers: AnswerSource,
        journal: Journal,
        watch: GroupWatch, tell: Callable[[str], None],
    ) -> None:
        self.conduct = conduct
        self.tasks: dict[str, Task] = {}
        self.stopped_by: Others | None = None
        self.strangers_count = 0
        self._medium = medium
        self._answers = answers
        self._journal = journal
        self._watch = watch
        self._tell = tell
        self._heard: queue.SimpleQueue[Check] = queue.SimpleQueue()
        self._held: dict[str, Check] = {}
        self._next_answer = 0.0
        self._effects = Effects(medium, check_cursor, journal, conduct.prove_ms, tell)
        self._last_trouble: str | None = None
        self._unknown: str | None = None
        self._is_ending = False

    # -- before it starts -----------------------------------------------------------------------------------------

    def propose(self, rows: Sequence[Mapping[str, Any]]) -> list[Task]:
        """What would be answered about some transactions; they are what `is_done` waits for."""
        tasks = [Task(row, given) for row, given in zip(rows, self._answers.of(rows), strict=True)]
        self.tasks.update((task.transaction_id, task) for task in tasks)
        return tasks

    def hear(self, check: Check) -> None:
        """Take a broker's question; called from the connections' threads."""
        self._heard.put(check)

    @property
    def is_done(self) -> bool:
        """Whether all that has an answer is answered, looked up and passed by the check, or refused for good."""
        if self._effects.are_awaited(self.tasks.values()):
            return False
        return all(task.is_settled for task in self.tasks.values() if task.given.action is not None)

    # -- while it runs --------------------------------------------------------------------------------------------

    def run(self, is_over: Callable[[], bool]) -> None:
        """Hear and answer until it is over, or until others of the group appear.

        Then what was answered is still looked for, and what the check puts back of it is closed, but nothing else is
        answered.
        """
        self._journal.prepare()
        while not is_over():
            self._listen()
            others = self._watch.look(if_due=True)
            if self._is_stopped(others):
                break
            self._tell_of_unknown(others)
            self._guarded(self._answer_held)
            self._guarded(self._look_for_effects)
        end = time.monotonic() + self.conduct.prove_ms / 1000
        self._is_ending = True
        while self._effects.are_awaited(self.tasks.values()) and time.monotonic() < end:
            self._listen()
            self._guarded(self._answer_held)
            self._guarded(self._look_for_effects)
        self._effects.give_up(self.tasks.values())

    def _tell_of_unknown(self, others: Others) -> None:
        """Say once that nothing is answered while nobody can say who is connected."""
        if others.unknown is not None and others.unknown != self._unknown:
            self._tell(f"nothing is answered while it is not known who is connected: {others.unknown}")
        self._unknown = others.unknown

    def _look_for_effects(self) -> None:
        self._effects.look(self.tasks.values())

    def _guarded(self, part: Callable[[], None]) -> None:
        """Do a part that reads from brokers; one that is away for a while is no reason to stop."""
        try:
            part()
        except RemotingError as error:
            if error.message != self._last_trouble:
                self._tell(f"nothing can be answered at the moment: {error.message}")
            self._last_trouble = error.message
            time.sleep(1)
        else:
            self._last_trouble = None

    def _listen(self) -> None:
        """Take what was heard; of several questions about one transaction the last one counts."""
        patience = _LISTEN_SECONDS
        while True:
            try:
                check = self._heard.get(timeout=patience) if patience else self._heard.get_nowait()
            except queue.Empty:
                return
            patience = 0.0
            if check.transaction_id is None or not self._answers.may_know(check.transaction_id):
                self.strangers_count += 1
                continue
            task = self.tasks.get(check.transaction_id)
            if task is not None:
                task.asked_count += 1
            if task is not None and task.decided is not None:
                self._close_again(task, check)  # before the next pass puts back one more
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
        self._held = {name: check for name, check in self._held.items() if check.heard_time_ms > old}
        names = list(self._held)[:_BATCH]
        if not names:
            return
        rows = {row["transaction_id"]: row for row in self._medium.look(names)}
        found = [rows[name] for name in names if name in rows]
        situations = self._medium.situations(found, settled_ms=self._watch.alone_ms) if found else []
        answers = self._answers.of(found)
        if not self._is_ending and self._is_stopped(self._watch.look()):
            return
        for situation, given in zip(situations, answers, strict=True):
            check = self._held.pop(situation.transaction_id)
            if not self._take(check, situation, given):
                self._held.setdefault(check.transaction_id or "", check)
        for name in set(names) - set(rows):  # a look that does not show what the broker has just written
            self._trouble(name, "its records cannot be found")
            self._held[name] = self._held.pop(name)  # behind the others

    def _take(self, check: Check, situation: Situation, given: GivenAnswer) -> bool:
        """Answer one question or say why not; False: it has to be looked at again."""
        task = self.tasks.get(situation.transaction_id)
        if task is None and self._is_ending:
            return True
        if task is None:
            task = self.tasks[situation.transaction_id] = Task(situation.row, given, asked_count=1)
        task.row, task.check = situation.row, check
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
            return True  # the broker asks about that one too
        named = situation.half_copy
        if named is None or named.queue_offset != check.queue_offset:
            self._trouble(situation.transaction_id, "the half copy asked about does not show yet")
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
        others = self._watch.seen  # the medium does not know that this member of the group is ourselves
        around = replace(
            situation.around, producers=None if others.unknown else others.members, producers_unknown=others.unknown,
            rivals=others.rivals,
        )
        asked = replace(situation, named=situation.half_copy, around=around)
        return next(iter(refusals(asked, request, self.conduct.overrides, _NOT_ASKED)), None)

    def _close_again(self, task: Task, check: Check) -> None:
        """The broker asks about a copy that it put back before it saw our decision: that one is closed, at once.

        A second COMMIT would deliver again; a rollback of the newest copy delivers nothing and stops the asking.
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
        situation = replace(task.situation, row=task.row)
        receipt = self._receipt("close", named, situation)
        receipt.named_copy = {**named.place(), "length_bytes": None}  # it was not read
        receipt.notes.append(f"{task.decided} was answered before; the check put half copy {check.queue_offset} back")
        self._journal.begin(receipt)
        try:
            answer = self._medium.decide(named, situation, ROLLBACK, receipt)
        except RemotingError as error:  # the broker asks again
            receipt.notes.append(error.message)
            self._journal.end(receipt)
            return
        if not answer.is_success:
            receipt.outcome = "refused_by_broker"
            self._journal.end(receipt)
            return
        receipt.outcome = "accepted"
        finals = task.row["final_records"] or ([{}] if task.decided == "commit" else [])  # ours may not show yet
        self._effects.await_closing(receipt, named, {**task.row, "final_records": finals})
        self._tell(f"{task.transaction_id}: half copy {check.queue_offset}, put back meanwhile, is closed")

    def _answer(self, task: Task, action: str, named: NamedRecord, situation: Situation, note: str) -> None:
        self._wait_turn()
        receipt = self._receipt(action, named, situation)
        receipt.notes.append(note)
        task.named, task.before, task.receipt, task.situation = named, situation.row, receipt, situation
        self._journal.begin(receipt)
        try:
            answer = self._medium.decide(named, situation, COMMIT if action == "commit" else ROLLBACK, receipt)
        except Unreachable as error:
            self._effects.end(task, "not_sent", f"nothing was sent: {error.message}")
            return
        except RemotingError as error:
            task.outcome, task.outcome_reason = "unknown", f"{error.message}: it may have been received"
        else:
            if not answer.is_success:
                self._effects.end(task, "refused_by_broker", f"code {answer.code}: {answer.remark or 'no remark'}")
                return
            task.outcome, task.outcome_reason, task.decided = "accepted", None, action
        task.proof_until = time.monotonic() + self.conduct.prove_ms / 1000
        self._tell(f"{task.transaction_id}: answered {action} about half copy {named.queue_offset}")

    def _receipt(self, action: str, named: NamedRecord, situation: Situation) -> Receipt:
        row = situation.row
        return Receipt(
            action=action, transaction_id=situation.transaction_id, store=named.store,
            producer_group=row["producer_group"], topic=row["topic"], keys=row["keys"], reason=self.conduct.reason,
            overrides=list(self.conduct.overrides), plan=None if self.conduct.plan is None else dict(self.conduct.plan),
            named_copy=named.place(), state_before=row["state"], witnesses_before=witnesses_of(row),
        )  # fmt: skip

    def _refuse(self, task: Task, refusal: Refusal) -> None:
        """Say once, and write down, that a question is not answered."""
        if task.outcome == "refused_by_guard" and task.outcome_reason == str(refusal):
            return
        row = task.row
        task.receipt = Receipt(
            action=task.given.action or "answer", transaction_id=task.transaction_id, store=row["store"],
            producer_group=row["producer_group"], topic=row["topic"], keys=row["keys"], reason=self.conduct.reason,
            overrides=list(self.conduct.overrides), state_before=row["state"], witnesses_before=witnesses_of(row),
        )  # fmt: skip
        self._tell(f"{task.transaction_id}: not answered: {refusal}")
        self._effects.end(task, "refused_by_guard", str(refusal))

    def _trouble(self, transaction_id: str, why: str) -> None:
        """Note why a question waits."""
        task = self.tasks.get(transaction_id)
        if task is not None and task.outcome is None:
            task.outcome_reason = why

    def _wait_turn(self) -> None:
        if self.conduct.max_per_second:
            time.sleep(max(0.0, self._next_answer - time.monotonic()))
            self._next_answer = time.monotonic() + 1 / self.conduct.max_per_second


_NOTE = "answered the broker's check of half copy {}, standing in for the producer group"

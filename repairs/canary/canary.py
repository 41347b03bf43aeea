"""A canary: a real transactional producer that goes the whole way through a broker, with proof of each step.

Three transactions: one is committed at once, one rolled back, and one says nothing until the broker asks. Each step is
timed, and read back from the broker. Nothing stays behind: what was opened is ended, also after an interruption; a
copy that the check puts back meanwhile is closed; and what an earlier canary left open is rolled back when the broker
asks about it. Its messages say what they are, and belong to a topic and a group of their own.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from readers.store.store import CHECK_GROUP, HALF_TOPIC
from remoting.connections.broker import Broker
from remoting.producer.membership import Membership
from remoting.producer.producer import KEYS, Check, Message, Sent
from remoting.producer.unique_keys import UniqueKeys
from remoting.protocol.codes import COMMIT, ROLLBACK, ResponseCode
from remoting.protocol.errors import NoAnswer, Refused, RemotingError
from repairs.acts.proof import Seen, proof_of
from repairs.canary.probe_steps import SCENARIOS, Flight, ProbeStep, allowed_times_ms

#: Keys of its messages begin so: a later run knows by it what an earlier one left.
KEY_PREFIX = "rmqtx-probe-"
_KEY_MARK = f"{KEYS}\x01{KEY_PREFIX}".encode()
_POLL_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2)

@dataclass(frozen=True, slots=True)
class FlightPlan:
    """What a canary does.

    Units: milliseconds. `patience_ms`: how long a step may take beyond what the broker's settings let it.
    """

    topic: str
    group: str
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    patience_ms: int = 10_000


class _Missing(Exception):
    """A step was not seen to happen."""


class _Interrupted(Exception):
    pass


Look = Callable[[Sequence[str]], list[dict[str, Any]]]


@dataclass(slots=True)
class _Transaction:
    """One of its transactions: `newest` is the queue offset and commit-log offset of the copy that a decision names."""

    scenario: str
    key: str
    newest: tuple[int, int] | None = None
    before: dict[str, Any] | None = None
    decided: str | None = None
    decided_at: tuple[int, int] | None = None
    is_over: bool = False


class Canary:
    """Flies once, at one broker.

    `look`: fresh rows of TRANSACTIONS for some ids. `interrupted`: set by who wants it to come down. `tell`: takes
    lines on what is waited for.
    """

    def __init__(
        self, broker: Broker, plan: FlightPlan, look: Look, interrupted: threading.Event, tell: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._look = look
        self._interrupted = interrupted
        self._tell = tell
        self._checks: queue.SimpleQueue[Check] = queue.SimpleQueue()
        self._asked: dict[str, Check] = {}
        self._keys = UniqueKeys()
        self._transactions: dict[str, _Transaction] = {}
        self._allowed: dict[str, int] = {}
        self.flight = Flight(broker.root)

    def fly(self) -> Flight:
        """Go through every scenario; gives what was seen, also of what went wrong."""
        try:
            self._allowed = allowed_times_ms(self._broker.config())
            with Membership(
                self._broker.client.settings, [self._broker.address], (self._plan.group,), self._checks.put
            ) as membership:
                try:
                    self._go(membership)
                finally:
                    self._come_down()
        except _Missing as missing:
            self.flight.failure = str(missing)
        except _Interrupted:
            self.flight.is_interrupted = True
        except RemotingError as error:
            self.flight.failure = error.message
        return self.flight

    def _go(self, membership: Membership) -> None:
        """The silent one first: the others fly while the broker waits before it asks."""
        plan = self._plan.scenarios
        begun = {}
        if "check" in plan:
            begun["check"] = self._store(membership, "check")
        for scenario in ("commit", "rollback"):
            if scenario in plan:
                transaction = begun[scenario] = self._store(membership, scenario)
                self._decide(transaction, scenario)
                self._prove(transaction)
        if "check" in plan:
            self._await_check(begun["check"])
            self._decide(begun["check"], "commit")
            self._prove(begun["check"])
        for transaction in begun.values():
            self._prove_end(transaction)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _store(self, membership: Membership, scenario: str) -> _Transaction:
        transaction = _Transaction(scenario, self._keys.new())
        self._transactions[transaction.key] = transaction
        begun = _Clock()
        message = Message(
            self._plan.topic, _body(scenario).encode(), transaction.key,
            properties={KEYS: f"{KEY_PREFIX}{scenario}-{transaction.key[-8:]}"},
        )
        sent: Sent = membership.member(self._broker.address).send_half(message)
        transaction.newest = sent.queue_offset, sent.commit_log_offset

        def stored(row: Mapping[str, Any]) -> str | None:
            places = {(copy["queue_offset"], copy["commit_log_offset"]) for copy in row["half_copies"]}
            return _place(transaction.newest) if transaction.newest in places else None

        transaction.before = self._until(transaction, "store", begun, stored, "the half cannot be read back")
        return transaction

    def _await_check(self, transaction: _Transaction) -> None:
        begun = _Clock(transaction.before["half_store_time_ms"] if transaction.before else None)
        end = time.monotonic() + (self._allowed["ask"] + self._plan.patience_ms - begun.elapsed_ms) / 1000
        self._tell(f"{self._broker.root}: waiting for its check; its settings let it take {self._allowed['ask']} ms")
        while transaction.key not in self._asked:
            self._hear()
            if time.monotonic() > end:
                why = f"no CHECK_TRANSACTION_STATE came within {round(begun.elapsed_ms / 1000)} s"
                self._step(transaction, "ask", begun, None, why)
            time.sleep(0.02)
        check = self._asked[transaction.key]
        transaction.newest = check.queue_offset, check.commit_log_offset
        begun.end_ms = check.heard_time_ms
        self._step(transaction, "ask", begun, f"asked about {_place(transaction.newest)}")

    def _decide(self, transaction: _Transaction, what: str) -> None:
        begun = _Clock()
        answer = self._end(transaction, what)
        why = f"code {answer.code}: {answer.remark or 'no remark'}"
        proof = f"{what} of {_place(transaction.newest)} accepted" if answer.is_success else None
        self._step(transaction, "decide", begun, proof, why)

    def _prove(self, transaction: _Transaction) -> None:
        if transaction.decided == "commit":

            def delivered(row: Mapping[str, Any]) -> str | None:
                finals = row["final_records"]
                if len(finals) > 1:
                    raise _Missing(f"{transaction.scenario}: {len(finals)} COMMIT records of {transaction.key}")
                if not finals:
                    return None
                return f"{finals[0]['topic']} queue {finals[0]['queue_id']} at {_place(_at(finals[0]))}"

            self._until(transaction, "deliver", _Clock(), delivered, "no COMMIT record")

        def marked(row: Mapping[str, Any]) -> str | None:
            assert transaction.decided_at is not None
            named = transaction.decided_at[0]
            found = [mark for mark in row["op_marks"] if mark["half_queue_offset"] in (named, None)]
            return f"op {found[0]['queue_offset']} names half {named}" if found else None

        self._until(transaction, "mark", _Clock(), marked, "no op message names it")

    def _prove_end(self, transaction: _Transaction) -> None:
        """Until nothing of it is open any more: a copy that was put back meanwhile is closed when the broker asks."""
        wanted = 1 if transaction.decided == "commit" else 0

        def ended(row: Mapping[str, Any]) -> str | None:
            finals = len(row["final_records"])
            if finals != wanted:
                raise _Missing(f"{transaction.scenario}: {finals} COMMIT records of {transaction.key}, not {wanted}")
            assert transaction.before is not None
            assert transaction.decided_at is not None
            named = {"store": self._broker.root, "queue_offset": transaction.decided_at[0]}
            proof = proof_of(str(transaction.decided), named, transaction.before, row)
            if proof.seen is Seen.WHOLE and not self._is_passed(transaction, row):
                return None
            counted = "one COMMIT record" if finals else "no COMMIT record"
            return f"{counted}, state {row['state']}" if proof.seen is Seen.WHOLE else None

        self._until(transaction, "end", _Clock(), ended, "a copy that the check put back is still open")
        transaction.is_over = True

    def _is_passed(self, transaction: _Transaction, row: Mapping[str, Any]) -> bool:
        """Whether no pass of the check can put a copy back any more: one that began before the op message still may.

        Only what was older than transactionTimeOut when it was decided can be under way so.
        """
        if transaction.scenario != "check":
            return True
        cursor = self._broker.consumer_offset(CHECK_GROUP, HALF_TOPIC)
        return cursor is not None and cursor > max(copy["queue_offset"] for copy in row["half_copies"])

    def _until(
        self, transaction: _Transaction, step: str, begun: _Clock, seen: Callable[[Mapping[str, Any]], str | None],
        missing: str,
    ) -> dict[str, Any]:
        """Look until something is seen, and note the step; gives the row that shows it."""
        allowed = self._allowed.get(step, 0)
        end = time.monotonic() + (allowed + self._plan.patience_ms) / 1000
        for pause in _pauses():
            self._hear()
            rows = self._look([transaction.key])
            proof = seen(rows[0]) if rows else None
            if proof is not None:
                self._step(transaction, step, begun, proof)
                return rows[0]
            if time.monotonic() > end:
                self._step(transaction, step, begun, None, missing)
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def _step(
        self, transaction: _Transaction, step: str, begun: _Clock, proof: str | None, missing: str = ""
    ) -> None:
        """Note a step.

        Raises: _Missing if it was not seen to happen.
        """
        self.flight.steps.append(
            ProbeStep(
                self._broker.root, transaction.scenario, step, proof is not None, begun.elapsed_ms,
                self._allowed.get(step, 0), transaction.key, missing if proof is None else proof, begun.time_ms,
            )
        )
        if proof is None:
            raise _Missing(f"{transaction.scenario}: {missing}")

    # -- what the broker asks, and what is left -------------------------------------------------------------------

    def _hear(self) -> None:
        """Take the broker's questions: the awaited one, copies put back after a decision, and what others left."""
        if self._interrupted.is_set():
            raise _Interrupted
        while True:
            try:
                check = self._checks.get_nowait()
            except queue.Empty:
                return
            key = check.transaction_id or ""
            transaction = self._transactions.get(key)
            if transaction is None:
                self._sweep(check)
            elif transaction.decided is None:
                self._asked[key] = check
                transaction.newest = check.queue_offset, check.commit_log_offset
            elif transaction.decided_at is not None and check.queue_offset > transaction.decided_at[0]:
                self._close(key, check)

    def _sweep(self, check: Check) -> None:
        """End what an earlier canary left: a rollback of it delivers nothing, whatever was decided before."""
        if _KEY_MARK in check.record and check.transaction_id is not None:
            self._close(check.transaction_id, check)
            self.flight.swept.append(check.transaction_id)

    def _close(self, key: str, check: Check) -> None:
        with contextlib.suppress(NoAnswer):  # the broker asks again
            self._broker.end_transaction(
                producer_group=self._plan.group, queue_offset=check.queue_offset,
                commit_log_offset=check.commit_log_offset, decision=ROLLBACK, transaction_id=key,
            )

    def _end(self, transaction: _Transaction, what: str) -> Any:
        """Send the decision, once."""
        assert transaction.newest is not None
        transaction.decided, transaction.decided_at = what, transaction.newest
        return self._broker.end_transaction(
            producer_group=self._plan.group, queue_offset=transaction.newest[0],
            commit_log_offset=transaction.newest[1], decision=COMMIT if what == "commit" else ROLLBACK,
            transaction_id=transaction.key,
        )

    def _come_down(self) -> None:
        """End what is still open: roll it back, naming its newest copy; what was committed before stays so."""
        for transaction in self._transactions.values():
            if transaction.is_over:
                continue
            try:
                self._roll_back(transaction)
            except RemotingError as error:
                self.flight.left_open.append(f"{transaction.key} ({error.message})")

    def _roll_back(self, transaction: _Transaction) -> None:
        rows = self._look([transaction.key])
        copies = rows[0]["half_copies"] if rows else []
        newest = _at(copies[-1]) if copies else transaction.newest
        if newest is None:
            return  # it was never stored
        marked = {mark["half_queue_offset"] for mark in rows[0]["op_marks"]} if rows else set()
        if marked & {newest[0], None} or (transaction.decided is not None and newest == transaction.decided_at):
            return
        answer = self._broker.end_transaction(
            producer_group=self._plan.group, queue_offset=newest[0], commit_log_offset=newest[1], decision=ROLLBACK,
            transaction_id=transaction.key,
        )
        if not answer.is_success:
            self.flight.left_open.append(f"{transaction.key} (code {answer.code}: {answer.remark})")


class _Clock:
    """When something began, and how long it takes."""

    def __init__(self, time_ms: int | None = None) -> None:
        self.time_ms = time.time_ns() // 1_000_000 if time_ms is None else time_ms
        self.end_ms: int | None = None

    @property
    def elapsed_ms(self) -> int:
        """Until now, or until `end_ms`."""
        end = time.time_ns() // 1_000_000 if self.end_ms is None else self.end_ms
        return max(0, end - self.time_ms)


def has_topic(broker: Broker, topic: str) -> bool:
    """Whether a broker has a topic; asking does not make one.

    Raises: Refused for any other reason, Unreachable, NoAnswer.
    """
    try:
        broker.pull(topic, 0, 0, 1)
    except Refused as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return False
        raise
    return True


def _body(scenario: str) -> str:
    return f"rmqtx probe: this message proves that transactions work ({SCENARIOS[scenario]}); it means nothing else"


def _at(copy: Mapping[str, Any]) -> tuple[int, int]:
    return int(copy["queue_offset"]), int(copy["commit_log_offset"])


def _place(place: tuple[int, int] | None) -> str:
    return "?" if place is None else f"queue offset {place[0]}, log offset {place[1]}"


def _pauses() -> Iterator[float]:
    yield from _POLL_SECONDS
    while True:
        yield _POLL_SECONDS[-1]

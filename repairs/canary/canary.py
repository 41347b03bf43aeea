"""A canary: a transactional producer that sends test transactions through a broker and proves each step.

Three transactions: one is committed at once, one is rolled back at once, and one is decided only when the broker checks
it. Each step is timed, and read back from the broker. Nothing stays open: every transaction is decided, also after an
interruption; a copy that the check puts back meanwhile is closed; and a transaction that an earlier canary left open is
rolled back when the broker checks it. The messages describe themselves, and have their own topic and group.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtx.readers.model import clock
from rmqtx.readers.model.releases import dotted
from rmqtx.readers.store.broker_settings import settings_of_broker
from rmqtx.readers.store.store import CHECK_GROUP, HALF_TOPIC
from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.producer.producer import KEYS, Check, Membership, Message, Sent
from rmqtx.remoting.producer.unique_keys import UniqueKeys
from rmqtx.remoting.protocol.codes import COMMIT, ROLLBACK
from rmqtx.remoting.protocol.errors import NoAnswer, RemotingError
from rmqtx.repairs.acts.proof import Seen, proof_of
from rmqtx.repairs.canary.probe_steps import SCENARIOS, ProbeRun, ProbeStep, allowed_times_ms
from rmqtx.repairs.receipts.act_words import ActKind
from rmqtx.repairs.receipts.plan_file import RecordPlace
from rmqtx.verdicts.model.transaction import Transaction, Witness

#: Prefix of the keys of its messages, by which a later run finds what an earlier run left.
KEY_PREFIX = "rmqtx-probe-"
_KEY_MARK = f"{KEYS}\x01{KEY_PREFIX}".encode()
_POLL_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2)

@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """The settings of a canary.

    Units: milliseconds. `patience_ms`: how long a step may take beyond the time that the broker's settings allow.
    """

    topic: str
    group: str
    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    patience_ms: int = 10_000


class _Missing(Exception):
    """A step was not seen to happen."""


class _Interrupted(Exception):
    pass


Look = Callable[[Sequence[str]], list[Transaction]]


@dataclass(slots=True)
class _Transaction:
    """One test transaction; `newest`: queue offset and commit-log offset of the copy that a decision names."""

    scenario: str
    key: str
    newest: tuple[int, int] | None = None
    before: Transaction | None = None
    decided: ActKind | None = None
    decided_at: tuple[int, int] | None = None
    is_over: bool = False


class Canary:
    """One run at one broker.

    `look`: returns some transactions as they are now, by their ids. `interrupted`: set to end the run early.
    `note`: takes progress lines.
    """

    def __init__(
        self, broker: Broker, plan: ProbeSettings, look: Look, interrupted: threading.Event, note: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._look = look
        self._interrupted = interrupted
        self._note = note
        self._checks: queue.SimpleQueue[Check] = queue.SimpleQueue()
        self._asked: dict[str, Check] = {}
        self._keys = UniqueKeys()
        self._transactions: dict[str, _Transaction] = {}
        self._allowed: dict[str, int] = {}
        self.result = ProbeRun(broker.root)

    def run(self) -> ProbeRun:
        """Run every scenario, and return the steps, also of a failed run."""
        try:
            self._allowed = allowed_times_ms(settings_of_broker(self._broker.config(), dotted(self._broker.version())))
            with Membership(
                self._broker.client.settings, [self._broker.address], (self._plan.group,), self._checks.put
            ) as membership:
                try:
                    self._go(membership)
                finally:
                    self._roll_back_open()
        except _Missing as missing:
            self.result.failure = str(missing)
        except _Interrupted:
            self.result.is_interrupted = True
        except RemotingError as error:
            self.result.failure = error.message
        return self.result

    def _go(self, membership: Membership) -> None:
        """Send the undecided transaction first: the others run while the broker waits before its check."""
        plan = self._plan.scenarios
        begun = {}
        if "check" in plan:
            begun["check"] = self._store(membership, "check")
        for scenario in ActKind.COMMIT, ActKind.ROLLBACK:
            if scenario in plan:
                transaction = begun[scenario] = self._store(membership, scenario)
                self._decide(transaction, scenario)
                self._prove(transaction)
        if "check" in plan:
            self._await_check(begun["check"])
            self._decide(begun["check"], ActKind.COMMIT)
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

        def stored(row: Transaction) -> str | None:
            places = {(copy.queue_offset, copy.commit_log_offset) for copy in row.half_copies}
            return _place(transaction.newest) if transaction.newest in places else None

        transaction.before = self._until(transaction, "store", begun, stored, "the half cannot be read back")
        return transaction

    def _await_check(self, transaction: _Transaction) -> None:
        begun = _Clock(transaction.before.half_store_time_ms if transaction.before else None)
        end = time.monotonic() + (self._allowed["ask"] + self._plan.patience_ms - begun.elapsed_ms) / 1000
        self._note(f"{self._broker.root}: waiting for its check, at most {self._allowed['ask']} ms by its settings")
        while transaction.key not in self._asked:
            self._take_checks()
            if time.monotonic() > end:
                why = f"the broker sent no CHECK_TRANSACTION_STATE within {round(begun.elapsed_ms / 1000)} s"
                self._step(transaction, "ask", begun, None, why)
            time.sleep(0.02)
        check = self._asked[transaction.key]
        transaction.newest = check.queue_offset, check.commit_log_offset
        begun.end_ms = check.received_time_ms
        self._step(transaction, "ask", begun, f"check of {_place(transaction.newest)}")

    def _decide(self, transaction: _Transaction, what: ActKind) -> None:
        begun = _Clock()
        answer = self._end(transaction, what)
        why = f"code {answer.code}: {answer.remark or 'no remark'}"
        proof = f"{what} of {_place(transaction.newest)} accepted" if answer.is_success else None
        self._step(transaction, "decide", begun, proof, why)

    def _prove(self, transaction: _Transaction) -> None:
        if transaction.decided == ActKind.COMMIT:

            def delivered(row: Transaction) -> str | None:
                finals = row.final_records
                if len(finals) > 1:
                    raise _Missing(f"{transaction.scenario}: {len(finals)} COMMIT records of {transaction.key}")
                if not finals:
                    return None
                return f"{finals[0].topic} queue {finals[0].queue_id} at {_place(_at(finals[0]))}"

            self._until(transaction, "deliver", _Clock(), delivered, "no COMMIT record")

        def marked(row: Transaction) -> str | None:
            assert transaction.decided_at is not None
            named = transaction.decided_at[0]
            found = [mark for mark in row.op_marks if mark.half_queue_offset in (named, None)]
            return f"op {found[0].queue_offset} names half {named}" if found else None

        self._until(transaction, "mark", _Clock(), marked, "no op message names it")

    def _prove_end(self, transaction: _Transaction) -> None:
        """Wait until no copy of it is open; a copy that was put back meanwhile is closed when the broker checks it."""
        wanted = 1 if transaction.decided == ActKind.COMMIT else 0

        def ended(row: Transaction) -> str | None:
            finals = len(row.final_records)
            if finals != wanted:
                raise _Missing(f"{transaction.scenario}: {finals} COMMIT records of {transaction.key}, not {wanted}")
            assert transaction.before is not None
            assert transaction.decided is not None
            assert transaction.decided_at is not None
            named = RecordPlace(self._broker.root, 0, *transaction.decided_at, None, None)
            proof = proof_of(transaction.decided, named, transaction.before, row)
            if proof.seen is Seen.WHOLE and not self._is_passed(transaction, row):
                return None
            counted = "one COMMIT record" if finals else "no COMMIT record"
            return f"{counted}, state {row.state}" if proof.seen is Seen.WHOLE else None

        self._until(transaction, "end", _Clock(), ended, "a copy that the check put back is still open")
        transaction.is_over = True

    def _is_passed(self, transaction: _Transaction, row: Transaction) -> bool:
        """Whether the check can no longer put back a copy; a round that began before the op message still may.

        This is possible only for a transaction that was older than transactionTimeOut when it was decided.
        """
        if transaction.scenario != "check":
            return True
        cursor = self._broker.consumer_offset(CHECK_GROUP, HALF_TOPIC)
        return cursor is not None and cursor > max(copy.queue_offset for copy in row.half_copies)

    def _until(
        self, transaction: _Transaction, step: str, begun: _Clock, seen: Callable[[Transaction], str | None],
        missing: str,
    ) -> Transaction:
        """Look up the transaction until `seen` is true, note the step, and return the row."""
        allowed = self._allowed.get(step, 0)
        end = time.monotonic() + (allowed + self._plan.patience_ms) / 1000
        for pause in _pauses():
            self._take_checks()
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
        """Note a step. Raises: _Missing if it was not seen to happen."""
        self.result.steps.append(
            ProbeStep(
                self._broker.root, transaction.scenario, step, proof is not None, begun.elapsed_ms,
                self._allowed.get(step, 0), transaction.key, missing if proof is None else proof, begun.time_ms,
            )
        )
        if proof is None:
            raise _Missing(f"{transaction.scenario}: {missing}")

    # -- checks from the broker, and what is left -----------------------------------------------------------------

    def _take_checks(self) -> None:
        """Handle received checks: the awaited one, copies put back after a decision, transactions of earlier runs."""
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
        """Roll back a transaction that an earlier canary left: this delivers nothing, whatever was decided before."""
        if _KEY_MARK in check.record and check.transaction_id is not None:
            self._close(check.transaction_id, check)
            self.result.swept.append(check.transaction_id)

    def _close(self, key: str, check: Check) -> None:
        with contextlib.suppress(NoAnswer):  # the broker checks it again
            self._broker.end_transaction(
                producer_group=self._plan.group, queue_offset=check.queue_offset,
                commit_log_offset=check.commit_log_offset, decision=ROLLBACK, transaction_id=key,
            )

    def _end(self, transaction: _Transaction, what: ActKind) -> Any:
        """Send the decision, once."""
        assert transaction.newest is not None
        transaction.decided, transaction.decided_at = what, transaction.newest
        return self._broker.end_transaction(
            producer_group=self._plan.group, queue_offset=transaction.newest[0],
            commit_log_offset=transaction.newest[1], decision=COMMIT if what == ActKind.COMMIT else ROLLBACK,
            transaction_id=transaction.key,
        )

    def _roll_back_open(self) -> None:
        """Roll back what is still open, naming its newest copy; a commit before it stays in effect."""
        for transaction in self._transactions.values():
            if transaction.is_over:
                continue
            try:
                self._roll_back(transaction)
            except RemotingError as error:
                self.result.left_open.append(f"{transaction.key} ({error.message})")

    def _roll_back(self, transaction: _Transaction) -> None:
        rows = self._look([transaction.key])
        last = rows[0].newest_half if rows else None
        newest = transaction.newest if last is None else _at(last)
        if newest is None:
            return  # it was never stored
        is_ended = last is not None and (
            newest[0] not in rows[0].copies_without_op() or bool(rows[0].offset_marks)
        )
        if is_ended or (transaction.decided is not None and newest == transaction.decided_at):
            return
        answer = self._broker.end_transaction(
            producer_group=self._plan.group, queue_offset=newest[0], commit_log_offset=newest[1], decision=ROLLBACK,
            transaction_id=transaction.key,
        )
        if not answer.is_success:
            self.result.left_open.append(f"{transaction.key} (code {answer.code}: {answer.remark})")


class _Clock:
    """A start time, and the time since then."""

    def __init__(self, time_ms: int | None = None) -> None:
        self.time_ms = clock.now_ms() if time_ms is None else time_ms
        self.end_ms: int | None = None

    @property
    def elapsed_ms(self) -> int:
        """Until now, or until `end_ms`."""
        end = clock.now_ms() if self.end_ms is None else self.end_ms
        return max(0, end - self.time_ms)


def _body(scenario: str) -> str:
    return f"rmqtx probe: test message that proves that transactions work ({SCENARIOS[scenario]}); ignore it"


def _at(record: Witness) -> tuple[int, int]:
    return record.queue_offset, record.commit_log_offset


def _place(place: tuple[int, int] | None) -> str:
    return "?" if place is None else f"queue offset {place[0]}, log offset {place[1]}"


def _pauses() -> Iterator[float]:
    yield from _POLL_SECONDS
    while True:
        yield _POLL_SECONDS[-1]

"""Faults to plant into the product: a run with one of them must fail, else the simulation proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from rmqtx.remoting.connections.broker import Broker
from rmqtx.remoting.protocol.answers import Answer
from rmqtx.remoting.protocol.errors import NoAnswer
from rmqtx.repairs.acts import carry_out
from rmqtx.repairs.acts.live_medium import LiveMedium
from rmqtx.repairs.acts.orders import CheckedAct
from rmqtx.repairs.holds.draining import Drain, DrainEnd
from rmqtx.repairs.receipts.journal import Journal
from rmqtx.repairs.receipts.receipts import Receipt


@contextmanager
def _journal_after_the_request() -> Iterator[None]:
    """The receipt begins when the request was answered."""
    begin, decide, late = Journal.begin, LiveMedium.decide, dict[str, Journal]()

    def begin_later(journal: Journal, receipt: Receipt) -> None:
        late[receipt.receipt_id] = journal

    def decide_first(medium: LiveMedium, named: Any, situation: Any, decision: int, receipt: Receipt) -> Answer:
        answer = decide(medium, named, situation, decision, receipt)
        if receipt.receipt_id in late:
            begin(late.pop(receipt.receipt_id), receipt)
        return answer

    with mock.patch.object(Journal, "begin", begin_later), mock.patch.object(LiveMedium, "decide", decide_first):
        yield


@contextmanager
def _no_second_look() -> Iterator[None]:
    """What was read before the wait is what is acted on."""

    def look_not(acts: Sequence[CheckedAct], _medium: Any, _conduct: Any, settled_ms: int) -> None:
        for act in acts:
            act.situation = replace(act.situation, conditions=replace(act.situation.conditions, settled_ms=settled_ms))

    with mock.patch.object(carry_out, "_look_again", look_not):
        yield


@contextmanager
def _retry_of_a_decision() -> Iterator[None]:
    """A decision without an answer is sent again."""
    end_transaction = Broker.end_transaction

    def twice(broker: Broker, **values: Any) -> Answer:
        try:
            return end_transaction(broker, **values)
        except NoAnswer:
            return end_transaction(broker, **values)

    with mock.patch.object(Broker, "end_transaction", twice):
        yield


@contextmanager
def _no_claim() -> Iterator[None]:
    """Another rmqtx is not looked for."""
    with mock.patch("rmqtx.repairs.acts.claims._rivals", return_value={}):
        yield


@contextmanager
def _no_wait_for_op_messages() -> Iterator[None]:
    """A broker that refuses half messages is safe to stop after one reading, whatever that reading found."""
    look = Drain._look

    def once(drain: Drain, *, is_settled: bool) -> None:
        look(drain, is_settled=is_settled)
        drain.end = drain.end or DrainEnd.SAFE

    with mock.patch.object(Drain, "_look", once):
        yield


PLANTED: dict[str, Callable[[], Any]] = {
    "journal-after-request": _journal_after_the_request,
    "no-second-look": _no_second_look,
    "retry-of-decision": _retry_of_a_decision,
    "no-claim": _no_claim,
    "no-wait-in-drain": _no_wait_for_op_messages,
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Play with a fault; None: without one."""
    with ExitStack() as stack:
        if name is not None:
            stack.enter_context(PLANTED[name]())
        yield

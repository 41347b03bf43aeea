"""Forcing without guards: END_TRANSACTION for the newest half copy, after no lookup or after one simple lookup.

The lookups are the usual ones by hand: the op queue, and the COMMIT record by its unique key; without waiting.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqtx.remoting.connections.batched_reads import Pace, queries
from rmqtx.remoting.connections.broker import Broker
from tests.brokers.forcing.stage import TOPIC, Stage
from tests.brokers.rig import HALF_TOPIC, OP_TOPIC
from tests.brokers.transaction import Transaction

LOOKS = ("none", "op", "final", "both")
_SLOTS_AT_ONCE = 1000
_BODY_LENGTH_AT = 84
"""Position of the body length in a record with IPv4 hosts; the body follows."""


def op_numbers(broker: Broker) -> set[int]:
    """The half queue offsets that op messages name, read as 4.x allows: by consume queue, record by record."""
    found: set[int] = set()
    place = max(0, broker.min_offset(OP_TOPIC))
    log_begin_offset = int(broker.runtime()["commitLogMinOffset"])
    while True:
        part = broker.slots(OP_TOPIC, 0, place, _SLOTS_AT_ONCE)
        for slot in part.slots:
            if slot.commit_log_offset < log_begin_offset:
                continue  # its file of the log was deleted, but the queue still has its slot
            record = broker.view(slot.commit_log_offset)
            assert record is not None
            length = int.from_bytes(record[_BODY_LENGTH_AT : _BODY_LENGTH_AT + 4], "big")
            body = record[_BODY_LENGTH_AT + 4 : _BODY_LENGTH_AT + 4 + length]
            found |= {int(number) for number in body.decode().split(",") if number}
        if not part.slots:
            return found
        place = part.slots[-1].queue_offset + 1


def is_delivered(broker: Broker, transaction: Transaction) -> bool:
    """Whether the index has a record of the real topic under the transaction's id."""
    return any(queries(broker, [(TOPIC, transaction.id)], Pace()))


def newest_copies(stage: Stage, transactions: Iterable[Transaction]) -> dict[str, tuple[int, int]]:
    """Queue offset and commit-log offset of the current newest half copy of each transaction, by case."""
    found: dict[str, tuple[int, int]] = {}
    cases = {one.id: one.case for one in transactions}
    for record in stage.rig.pull(stage.agent, HALF_TOPIC):
        if record["transaction_id"] in cases:
            found[cases[record["transaction_id"]]] = record["queue_offset"], record["commit_log_offset"]
    return found


def force(stage: Stage, transactions: Iterable[Transaction], decision: int, look: str) -> set[str]:
    """Decide the newest copy of each transaction for which `look` finds nothing; return the cases that were decided."""
    broker = stage.broker
    sent: set[str] = set()
    wanted = list(transactions)
    newest = newest_copies(stage, wanted)
    ended = op_numbers(broker) if look in ("op", "both") else set()
    for one in wanted:
        if newest[one.case][0] in ended:
            continue
        if look in ("final", "both") and is_delivered(broker, one):
            continue
        queue_offset, commit_log_offset = newest[one.case]
        answer = broker.end_transaction(
            producer_group=one.known["producer_group"], queue_offset=queue_offset,
            commit_log_offset=commit_log_offset, decision=decision, transaction_id=one.id,
        )
        assert answer.is_success, answer
        sent.add(one.case)
    return sent

"""Looking up single records of a broker: for decisions on other records, whose op messages may hide a half.

The rule is in `rmqtx.verdicts.ends.misdirected_decisions`; docs/formats/end_transaction.md#repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from rmqtx.remoting.connections.batched_reads import Pace, queries, topics
from rmqtx.remoting.live.queues import records_of_system_topic
from rmqtx.remoting.live.store_facts import LiveStore
from rmqtx.remoting.protocol.codes import ResponseCode
from rmqtx.remoting.protocol.errors import Refused
from rmqtx.remoting.protocol.record_bytes import blocks_of
from rmqtx.verdicts.ends.misdirected_decisions import names_of

#: Most topics in whose queue 0 a wrongly named record is looked for.
_TOPICS_MAX = 256
#: Queue offsets closer than this are read together.
_APART_MAX = 32


class LiveRecords:
    """The records of a broker, looked up singly for `misdirected_decisions`.

    Damage: foreign-unsearched where the broker does not list its topics or return their records.
    """

    def __init__(self, facts: LiveStore, pace: Pace) -> None:
        self._facts = facts
        self._pace = pace

    def namesakes(self, named: Sequence[Block]) -> Iterator[Block]:
        """Yield the records that the broker has under the ids of other records."""
        keys = dict.fromkeys(key for block in named for key in names_of(block))
        for block in blocks_of(queries(self._facts.broker, keys, self._pace), self._facts.root, []):
            yield from (block.take(np.array([row])) for row in range(len(block)))

    def numbered(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Yield the records with some queue offsets in queue 0 of any topic except those of halves and ops."""
        broker = self._facts.broker
        try:
            names = [name for name in topics(broker) if name not in (HALF_TOPIC, OP_TOPIC) and not name.startswith("%")]
        except Refused:  # access control: this requires an administrator's account
            names = []
        if not names or len(names) > _TOPICS_MAX:
            self._facts.findings.append(Finding(self._facts.root, "foreign-unsearched"))
            return
        refused: list[str] = []
        for topic in sorted({*names, DISCARD_TOPIC, TIMER_TOPIC}):  # unlisted without a wheel: the timer topic
            try:
                yield from self._in_topic(topic, numbers)
            except Refused as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:  # deleted meanwhile
                    refused.append(topic)
        if refused:  # access control: an operator's account may lack rights on topics without transactions
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            self._facts.findings.append(Finding(self._facts.root, "foreign-unsearched", actual=refused[0] + more))

    def _in_topic(self, topic: str, numbers: Sequence[int]) -> Iterator[Block]:
        broker = self._facts.broker
        low, high = max(0, broker.min_offset(topic)), broker.max_offset(topic)
        places = [number for number in numbers if low <= number < high]
        for begin, end in _runs(places):
            bodies = records_of_system_topic(broker, topic, begin, end, self._pace, [])
            for block in blocks_of(bodies, self._facts.root, []):
                for row in np.flatnonzero(np.isin(block.header("queue_offset"), places)).tolist():
                    yield block.take(np.array([row]))


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and place - runs[-1][1] < _APART_MAX:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs

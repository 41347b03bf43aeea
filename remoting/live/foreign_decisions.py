"""Op numbers of other records: decisions that named a discard copy or a final, whose number then hides a half.

`verdicts.evidence.indexed_lookup` looks for the same in files; docs/formats/end_transaction.md#repeats.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from readers.log.named_offsets import named_offsets
from readers.log.properties import PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from readers.log.record_block import Block
from readers.model.columns import int64s
from readers.model.findings import Finding
from readers.store.store import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from remoting.connections.batched_reads import Pace, queries, topics
from remoting.live.queues import records_of_system_topic
from remoting.live.store_facts import LiveStore
from remoting.protocol.codes import ResponseCode
from remoting.protocol.errors import Refused
from remoting.protocol.record_bytes import blocks_of
from verdicts.ends.foreign_decisions import foreign_decision
from verdicts.model.verdict_inputs import ForeignDecision
from verdicts.model.witnesses import Witnesses

#: Topics in whose queue 0 a wrongly named record is looked for.
_TOPICS_MAX = 256
#: Queue offsets closer than this are read together.
_APART_MAX = 32


def find_foreign(facts: LiveStore, kept: Witnesses, pace: Pace) -> None:
    """Add to the facts the decisions on other records that may explain an op mark which no final of its own does."""
    own = int64s(kept.finals["prepared_transaction_offset"])
    explained = kept.halves.filter(pc.is_in(kept.halves["commit_log_offset"], value_set=pa.array(own)))
    marks = Counter(kept.marks["half_queue_offset"].to_pylist())
    numbers = marks.keys() - {number for number in explained["queue_offset"].to_pylist() if marks[number] == 1}
    if not numbers:
        return
    named = list(_records_numbered(facts, sorted(numbers), pace))
    keys: list[tuple[str, str]] = []
    for block in named:
        name = block.properties.text(UNIQ_KEY).to_pylist()[0]
        texts = {block.properties.text(REAL_TOPIC).to_pylist()[0], block.topic_texts().to_pylist()[0]} - {None}
        keys.extend((topic, name) for topic in sorted(texts) if name is not None)
    finals: dict[int, list[Block]] = defaultdict(list)
    for block in blocks_of(queries(facts.broker, dict.fromkeys(keys), pace), facts.root, []):
        for row in range(len(block)):
            one = block.take(np.array([row]))
            finals[int(named_offsets(one)[0])].append(one)
    found: list[ForeignDecision] = []
    for block in named:
        offset = int(block.commit_log_offsets[0])
        found.extend(foreign_decision(facts.root, block, final) for final in finals.get(offset, ()))
    facts.foreign_decisions.extend(sorted(set(found), key=lambda decision: decision.final_offset))


def _records_numbered(facts: LiveStore, numbers: list[int], pace: Pace) -> Iterator[Block]:
    """Records of queue 0 of any topic with some queue offsets that END_TRANSACTION could have named, one by one."""
    broker = facts.broker
    try:
        names = [name for name in topics(broker) if name not in (HALF_TOPIC, OP_TOPIC) and not name.startswith("%")]
    except Refused:  # access control: it takes an administrator's account
        names = []
    if not names or len(names) > _TOPICS_MAX:
        facts.findings.append(Finding(facts.root, "foreign-unsearched"))
        return
    refused: list[str] = []
    for topic in sorted({*names, DISCARD_TOPIC, TIMER_TOPIC}):  # without its wheel a broker does not list the last
        try:
            low, high = max(0, broker.min_offset(topic)), broker.max_offset(topic)
            places = [number for number in numbers if low <= number < high]
            for begin, end in _runs(places):
                bodies = records_of_system_topic(broker, topic, begin, end, pace, [])
                for block in blocks_of(bodies, facts.root, []):
                    has_group = block.properties.locate(PRODUCER_GROUP)[2]
                    chosen = has_group & np.isin(block.header("queue_offset"), places)
                    for row in np.flatnonzero(chosen).tolist():
                        yield block.take(np.array([row]))
        except Refused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:  # deleted meanwhile
                refused.append(topic)
    if refused:  # access control: an operator's account need not read what has nothing to do with transactions
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        facts.findings.append(Finding(facts.root, "foreign-unsearched", actual=refused[0] + more))


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and place - runs[-1][1] < _APART_MAX:
            runs[-1] = (runs[-1][0], place + 1)
        else:
            runs.append((place, place + 1))
    return runs

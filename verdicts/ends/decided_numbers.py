"""Queue offsets of records outside the half topic that a decision names, compared with their queues.

The op of a decision on another record has the queue offset of that record (docs/formats/end_transaction.md#repeats),
and no checksum covers a queue offset. If record and queue differ, an op with either number may belong to the decision.
If the reference in the decision is damaged, its op may have the number of any final or discard copy of the transaction.
"""

from __future__ import annotations

import numpy as np

from rmqtx.readers.index.index_search import Index, open_index
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import block_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_words import words_of
from rmqtx.readers.log.transaction_records import are_halves
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import DISCARD_TOPIC, Store
from rmqtx.verdicts.model.verdict_inputs import MissingRange


def doubtful_number(
    store: Store, log: SegmentedLog, named: Block, end_offset: int
) -> tuple[MissingRange, Finding] | None:
    """Return the doubt if a queue slot contradicts the queue offset of a record that a decision names; else None.

    `named`: one record; `end_offset`: the place of the decision on it.
    Units: commit-log offsets in bytes.
    Damage: slot-mismatch. A queue that cannot be read, or has neither slot, contradicts nothing.
    """
    place, number = int(named.commit_log_offsets[0]), int(named.header("queue_offset")[0])
    topic, own_id = str(named.topic_texts()[0]), int(named.header("queue_id")[0])
    is_contradicted = False
    for queue_id in store.queue_numbers(topic):
        try:
            with open_queue(store, topic, queue_id) as queue:
                found = queue.offset_of(place)
                is_there = queue.read(found, found + 1)[1].tolist() == [place]
                others = queue.read(number, number + 1)[1].tolist() if 0 <= number < queue.max_offset else []
        except SourceError:
            continue
        if is_there and (found, queue_id) == (number, own_id):
            return None
        if is_there:
            held = f"slot {found} of {topic}, queue {queue_id}"
            return _doubt(store, log, named, end_offset, (number, found), held)
        is_contradicted |= queue_id == own_id and bool(others)
    held = f"another record in slot {number} of {topic}, queue {own_id}"
    return _doubt(store, log, named, end_offset, (number,), held) if is_contradicted else None


def _doubt(
    store: Store, log: SegmentedLog, named: Block, end_offset: int, numbers: tuple[int, ...], held: str
) -> tuple[MissingRange, Finding]:
    place, length = int(named.commit_log_offsets[0]), int(named.lengths[0])
    segment = log.segment_at(place)
    own = f"{int(named.header('queue_offset')[0])} of queue {int(named.header('queue_id')[0])}"
    what = (
        f"the decision at commit-log offset {end_offset} names the record at {place} with number {own}, but its "
        f"queue has {held}: an op with either number may belong to this decision"
    )
    missing = MissingRange(
        store.root, place, place + length, what, is_identified=True, half_queue_offsets=tuple(sorted(set(numbers)))
    )
    return missing, Finding(
        store.root, "slot-mismatch", None if segment is None else segment.file,
        None if segment is None else place - segment.base_offset, length, commit_log_offset=place, expected=held,
        actual=f"number {own} in the record that the decision at commit-log offset {end_offset} names",
    )


class PossibleNumbers:
    """Possible op numbers of COMMIT records with a damaged reference, if they named another record than their half.

    The other records of the transaction are found by the index, which is opened once, when it is first needed.
    """

    def __init__(self, store: Store, log: SegmentedLog) -> None:
        self._store, self._log = store, log
        self._index: Index | None = None

    def of(self, end: Block, what: str) -> list[MissingRange]:
        """Return the doubt about one COMMIT record; none if it could only name its half.

        `what`: the fault of the record. If the index does not cover all records before it, any later op may be its own.
        """
        place, topic = int(end.commit_log_offsets[0]), str(end.topic_texts()[0])
        identity, words = end.properties.text(UNIQ_KEY)[0].as_py(), words_of(end)
        numbers: set[int] = set()
        is_whole = False
        if identity is not None and self._store.index_files and not self._store.is_remote:
            self._index = self._index or open_index(self._store)
            keys = [f"{name}#{identity}".encode() for name in (topic, DISCARD_TOPIC)]
            for offset in np.unique(self._index.find(keys)[1]).tolist():
                named = block_at(self._log, offset) if offset < place else None
                if named is not None and not are_halves(named)[0] and words.is_of_same(words_of(named)):
                    numbers.add(int(named.header("queue_offset")[0]))
            is_whole = not self._index.uncovered(self._log.begin_offset, place)
        if is_whole and not numbers:
            return []
        return [MissingRange(
            self._store.root, place, place + int(end.lengths[0]),
            f"{what}; an op mark may belong to this decision and not to the half",
            is_identified=True, half_queue_offsets=tuple(sorted(numbers)),
            named_from_offset=None if is_whole else place,
        )]  # fmt: skip

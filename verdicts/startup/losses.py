"""The effect on transactions of the records that a start would lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from rmqtx.readers.cursors import check_cursors
from rmqtx.readers.log.designs import has_only_prepared
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.properties import UNIQ_KEY
from rmqtx.readers.log.record_at import blocks_at
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT, TRANSACTION_MASK
from rmqtx.readers.log.splits import plan_splits
from rmqtx.readers.log.transaction_records import are_halves, are_ops
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.errors import SourceError
from rmqtx.readers.queues.slot_files import QueueName, topic_text
from rmqtx.readers.storage.segments import SegmentedLog
from rmqtx.readers.store.store import DISCARD_TOPIC, HALF_TOPIC, TABLE_TOPICS, Store

_NAMED_MAX = 3
_NOUNS = {
    "half": "half message", "op": "op message", "final": "COMMIT record", "prepared": "prepared record",
    "rollback": "ROLLBACK record",
}
_EXAMINED_MAX = 10_000
#: Kind of record → the effect of its loss.
_MEANINGS = {
    "half": "their transactions are never checked again, unless another copy is left",
    "prepared": "their broker can no longer commit them",
    "op": "what they ended is checked again, and may be delivered again, unless the check has passed it",
    "final": "consumers that have not read them yet never receive them; their transactions are checked again if no "
    "op is left",
    "rollback": "the log no longer shows what they rolled back",
    "discard copy": "the copies of discarded messages are lost",
    "other message": "consumers that have not read them yet never receive them",
}
#: What the loss of COMMIT records of the designs before 4.3 does, which have no ops.
_CUT_OF_PREPARED = {
    "final": "consumers that have not read them yet never receive them; the log no longer shows what they committed"
}
#: The check of transactions in RocksDB reads its table.
_SKIPPED_OF_TABLE = dict.fromkeys(("half", "op"), "the check does not read this queue, but its table in RocksDB")
_SKIPPED_OF_PREPARED = {"final": _MEANINGS["other message"]}


def cut_meaning(store: Store, from_offset: int) -> str:
    """Return what is lost with all records from a place of the log on."""
    counts: Counter[str] = Counter()
    ids: list[str] = []
    for split in plan_splits([store], from_offset=from_offset):
        for block in split.scan():
            _count(block, counts, ids)
    return _sentence("lost", counts, ids, _CUT_OF_PREPARED if has_only_prepared(store) else {})


def skipped_meaning(store: Store, name: QueueName, rows: Int64s) -> str:
    """Return the effect of records that are missing in their queue."""
    counts: Counter[str] = Counter()
    ids: list[str] = []
    with store.log() as log:
        for block in _blocks(log, rows[:_EXAMINED_MAX, 0].tolist()):
            _count(block, counts, ids)
    if topic_text(name[1]) == HALF_TOPIC and counts["half"]:
        return f"{_amount('half', len(rows))} never checked{_open(store, rows)}: {_MEANINGS['half']}{_named(ids)}"
    more = f"; of {len(rows)} records, the first {_EXAMINED_MAX} were counted" if len(rows) > _EXAMINED_MAX else ""
    others = _SKIPPED_OF_PREPARED if has_only_prepared(store) else {}
    if topic_text(name[1]) in TABLE_TOPICS:
        others = _SKIPPED_OF_TABLE
    return _sentence("never read", counts, ids, others) + more


def _open(store: Store, rows: Int64s) -> str:
    """Return how many half copies the check has not reached yet; empty if its cursor is unknown."""
    cursor = (check_cursors(store).half or {}).get(0)
    if cursor is None:
        return ""
    return f", {int((rows[:, 2] >= cursor).sum())} of which the check has not reached yet"


def _blocks(log: SegmentedLog, offsets: list[int]) -> Iterator[Block]:
    try:
        yield from blocks_at(log, offsets)
    except SourceError:
        return


def _count(block: Block, counts: Counter[str], ids: list[str]) -> None:
    is_final = (block.sys_flag & TRANSACTION_MASK) == COMMIT
    left = np.ones(len(block), np.bool_)
    kinds = {"discard copy": block.topic_is(DISCARD_TOPIC), "rollback": is_rollback(block)}
    kinds["prepared"] = is_prepared(block)
    kinds["half"], kinds["op"] = are_halves(block) & ~kinds["prepared"], are_ops(block)
    for kind, rows in kinds.items():
        counts[kind] += int(rows.sum())
        left &= ~rows
        if kind == "half" and rows.any() and len(ids) <= _NAMED_MAX:
            ids.extend(value for value in block.take(rows).properties.text(UNIQ_KEY).to_pylist() if value)
    counts["final"] += int((left & is_final).sum())
    counts["other message"] += int((left & ~is_final).sum())


def _sentence(what: str, counts: Counter[str], ids: list[str], others: Mapping[str, str]) -> str:
    meanings = {**_MEANINGS, **others}
    parts = [f"{_amount(kind, counts[kind])} {what}: {meaning}" for kind, meaning in meanings.items() if counts[kind]]
    return "; ".join(parts) + _named(ids) if parts else "no record is lost"


def amount(kind: str, number: int) -> str:
    """Return a number of records with the noun of their kind."""
    noun = _NOUNS.get(kind, kind)
    plural = "discard copies" if kind == "discard copy" else f"{noun}s"
    return f"1 {noun}" if number == 1 else f"{number} {plural}"


def _amount(kind: str, number: int) -> str:
    return f"{amount(kind, number)} {'is' if number == 1 else 'are'}"


def _named(ids: list[str]) -> str:
    if not ids:
        return ""
    unique = list(dict.fromkeys(ids))
    return f" (half messages of {', '.join(unique[:_NAMED_MAX])}{' and others' if len(unique) > _NAMED_MAX else ''})"

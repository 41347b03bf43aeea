"""Half and op messages of some slots, by column: what the check takes from their records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log import compression
from rmqtx.readers.log.header_rules import TIME_RULES, broken_rules, word_crc_findings
from rmqtx.readers.log.op_messages import parse_op_bodies
from rmqtx.readers.log.properties import (
    CHECK_TIMES,
    IMMUNITY,
    PREPARED_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.torn_properties import unreadable_copies
from rmqtx.readers.model.columns import Bools, Int64s, integers
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.releases import DELAYED_HALVES_DROPPED, TIMERS
from rmqtx.readers.store.store import HALF_TOPIC
from rmqtx.verdicts.check.check_rules import CheckRules
from rmqtx.verdicts.check.state import HalfCopy, Op

#: What 5.2.0 and later append to a record's properties where enabledAppendPropCRC=true, and its length in bytes.
_PROPERTY_CRC, _PROPERTY_CRC_BYTES = "__CRC32#", 20
#: renewImmunityHalfMessageInner writes the properties after setWaitStoreMsgOK(false), other put-backs before it.
_WAIT, _WAIT_VALUE = "WAIT", "false"
_DELAY_LEVEL = "DELAY"
_TIMERS = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_OP_TAG = "d"
#: The value of an absent property in a column.
ABSENT = np.iinfo(np.int64).min


def impossible_values(block: Block, store: str) -> Iterator[Finding]:
    """Return a finding for each impossible value in half or op messages on which what a check does may depend."""
    yield from broken_rules(block, store, TIME_RULES)
    yield from word_crc_findings(block, store)
    yield from unreadable_copies(block, store)


@dataclass(slots=True)
class StoredHalves:
    """The half copies of a range of slots, by column.

    Shape: `rows`: for each slot from `begin` on, the row in the other columns, -1 if it cannot be read.
           An absent property is ABSENT. `are_diverted`: their copies go to a delay or timer topic first.
    """

    begin: int
    rows: Int64s
    numbers: dict[str, Int64s]
    words: pa.Table
    diverted_count: int
    are_diverted: Bools

    def copy_at(self, queue_offset: int) -> HalfCopy | None:
        """Return the copy in a slot; None if it cannot be read."""
        row = int(self.rows[queue_offset - self.begin])
        if row < 0:
            return None
        return HalfCopy(row, *(self._number(name, row) for name in HalfCopy._fields[1:]))  # type: ignore[arg-type]

    def _number(self, name: str, row: int) -> int | None:
        value = int(self.numbers[name][row])
        return None if value == ABSENT else value


@dataclass(slots=True)
class StoredOps:
    """The op messages of a range of slots from `begin` on; None if one cannot be read."""

    begin: int
    ops: list[Op | None]

    def op_at(self, queue_offset: int) -> Op | None:
        """Return the op in a slot; None if it cannot be read."""
        return self.ops[queue_offset - self.begin]


def are_askable(copies: pa.Table) -> Bools:
    """Whether each half copy of a table names a producer group, a topic and a queue; `CheckWindow.are_askable`.

    Source: broker/transaction/AbstractTransactionalMessageCheckListener.java sendCheckMessage.
    """
    known = pc.and_(pc.is_valid(copies["producer_group"]), pc.is_valid(copies["real_topic"]))
    known = pc.and_(known, pc.is_valid(copies["real_queue_id"]))
    return np.asarray(known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known).astype(np.bool_)


# --- halves ----------------------------------------------------------------------------------------------------------

_WORDS = pa.schema(
    [
        ("transaction_id", pa.string()),
        ("producer_group", pa.string()),
        ("real_topic", pa.string()),
        ("real_queue_id", pa.int32()),
        ("commit_log_offset", pa.int64()),
    ]
)


def halves_of_records(
    records: Iterable[tuple[Block, Int64s]], rules: CheckRules, begin: int, end: int
) -> StoredHalves:
    """Return the half copies of the slots from `begin` to before `end`. `records`: with their slot numbers."""
    rows = np.full(max(0, end - begin), -1, np.int64)
    columns: list[dict[str, Int64s]] = []
    words: list[pa.RecordBatch] = []
    diverted: list[Bools] = [np.zeros(0, np.bool_)]
    count = diverted_count = 0
    for block, numbers in records:
        are_diverted = _are_diverted(block, rules)
        diverted_count += int(are_diverted.sum())
        inflated = _inflated_lengths(block) if rules.inflates else block.body_lengths
        good = inflated >= 0
        block, numbers, inflated = block.take(good), numbers[good], inflated[good]
        diverted.append(are_diverted[good])
        rows[numbers - begin] = np.arange(count, count + len(block))
        count += len(block)
        columns.append(_numbers(block, rules, inflated))
        words.append(
            pa.record_batch(
                [
                    pc.coalesce(block.properties.text(UNIQ_KEY), block.message_ids()),
                    block.properties.text(PRODUCER_GROUP),
                    block.properties.text(REAL_TOPIC),
                    integers(block.properties.text(REAL_QUEUE_ID), pa.int32()), pa.array(block.commit_log_offsets),
                ],
                schema=_WORDS,
            )
        )
    names = HalfCopy._fields[1:]
    empty = np.zeros(0, np.int64)
    values = {name: np.concatenate([empty, *(part[name] for part in columns)]) for name in names}
    table = pa.Table.from_batches(words, _WORDS)
    return StoredHalves(begin, rows, values, table, diverted_count, np.concatenate(diverted))


def _are_diverted(block: Block, rules: CheckRules) -> Bools:
    """Halves that a put-back does not write to the half queue at once (docs/formats/half_and_op.md#delayed-half).

    From 4.6.1 on a delay level is removed from the property before; timers exist from 5.0.0 on.
    """
    delays = not DELAYED_HALVES_DROPPED.holds(rules.version)
    names = (_DELAY_LEVEL,) if delays else _TIMERS if TIMERS.holds(rules.version) else ()
    found = np.zeros(len(block), np.bool_)
    for name in names:
        found |= block.properties.locate(name)[2]
    return found


def _numbers(block: Block, rules: CheckRules, body_lengths: Int64s) -> dict[str, Int64s]:
    properties = properties_bytes(block, rules)
    return {
        "queue_offset": block.header("queue_offset"),
        "born_time_ms": block.header("born_time_ms"),
        "store_time_ms": block.header("store_time_ms"),
        "checks_count": _property_number(block, CHECK_TIMES),
        "immunity_seconds": _property_number(block, IMMUNITY),
        "prepared_queue_offset": _property_number(block, PREPARED_QUEUE_OFFSET),
        "fixed_bytes": block.lengths - block.properties_lengths + properties + body_lengths - block.body_lengths,
        "fixed_properties_bytes": properties,
        "immune_growth_bytes": _immune_growth_bytes(block),
        "spoils": ((block.sys_flag & compression.COMPRESSED) != 0).astype(np.int64) * rules.inflates,
        "is_spoiled": np.zeros(len(block), np.int64),
        "is_elsewhere": (~block.topic_is(HALF_TOPIC)).astype(np.int64),
    }


def _immune_growth_bytes(block: Block) -> Int64s:
    _, lengths, is_there = block.properties.locate(_WAIT)
    whole = len(_WAIT) + len(_WAIT_VALUE) + 2
    return np.where(is_there, len(_WAIT_VALUE) - lengths, whole).astype(np.int64)


def _property_number(block: Block, name: str) -> Int64s:
    """Return a property as the broker reads it: -1 if it is not a number."""
    is_there = block.properties.locate(name)[2]
    values = np.asarray(pc.fill_null(integers(block.properties.text(name), pa.int64()), -1))
    return np.where(is_there, values, ABSENT)


def properties_bytes(block: Block, rules: CheckRules) -> Int64s:
    """Return the length of each record's properties in a copy, without the two that the check changes.

    Units:  bytes.
    Source: MessageDecoder.string2messageProperties and messageProperties2String; docs/formats/record.md#properties.
    """
    maps = block.properties.maps()
    names, values = maps.keys, maps.items
    counts = np.diff(np.asarray(maps.offsets))
    owners = np.repeat(np.arange(len(block)), counts)
    codes = np.asarray(names.dictionary_encode().indices).astype(np.int64)
    pairs = owners * (int(codes.max(initial=0)) + 1) + codes
    last = len(pairs) - 1 - np.unique(pairs[::-1], return_index=True)[1]  # a name that occurs twice has its last value
    is_kept = np.zeros(len(pairs), np.bool_)
    is_kept[last] = True
    is_kept &= ~np.asarray(pc.is_in(names, pa.array([CHECK_TIMES, PREPARED_QUEUE_OFFSET, _PROPERTY_CRC])))
    sizes = np.asarray(pc.binary_length(names)).astype(np.int64) + np.asarray(pc.binary_length(values)) + 2
    total = np.bincount(owners, np.where(is_kept, sizes, 0), len(block)).astype(np.int64)
    total += np.where(block.properties.locate(_PROPERTY_CRC)[2], _PROPERTY_CRC_BYTES, 0)
    return total if rules.ends_properties else total - 1


def _inflated_lengths(block: Block) -> Int64s:
    """Return the lengths of the bodies as a consumer receives them; -1 for an incomplete stream."""
    lengths = block.body_lengths.copy()
    for row in np.flatnonzero(block.sys_flag & compression.COMPRESSED).tolist():
        start, length = int(block.body_starts[row]), int(block.body_lengths[row])
        body = compression.inflate(block.data[start : start + length].tobytes(), int(block.sys_flag[row]))
        lengths[row] = -1 if body is None else len(body)
    return lengths


# --- ops -------------------------------------------------------------------------------------------------------------


def ops_of_records(
    records: Iterable[tuple[Block, Int64s]], rules: CheckRules, begin: int, end: int, least: int
) -> StoredOps:
    """Return the op messages of the slots from `begin` to before `end`. `least`: the lowest half offset that counts."""
    ops: list[Op | None] = [None] * max(0, end - begin)
    for block, numbers in records:
        intact: Bools = np.ones(len(block), np.bool_)
        bodies = block.bodies().cast(pa.binary())
        lists, forms = parse_op_bodies(bodies, intact)
        tagged = np.asarray(pc.fill_null(pc.equal(block.properties.text(TAGS), _OP_TAG), False)).tolist()
        rows = zip(
            numbers.tolist(), block.header("queue_offset").tolist(), lists.to_pylist(), forms.to_pylist(), tagged,
            block.body_lengths.tolist(), block.header("born_time_ms").tolist(), block.lengths.tolist(),
            range(len(block)), strict=True,
        )
        for slot, queue_offset, listed, form, is_tagged, body_length, born_time_ms, length, row in rows:
            if listed is None:
                listed = _java_numbers(bodies[row].as_py() or b"", rules)
            elif form == "list" and not rules.reads_lists:
                listed = (-1,)  # this broker reads one number, and a comma is not part of one
            ops[slot - begin] = Op(
                queue_offset, tuple(number for number in listed if number >= least), is_tagged, body_length > 0,
                born_time_ms, length,
            )
    return StoredOps(begin, ops)


def _java_numbers(body: bytes, rules: CheckRules) -> tuple[int, ...]:
    """Return the numbers that the broker reads from a body: -1 for each part that is not a number."""
    text = body.decode("utf-8", "replace")
    parts = text.split(",") if rules.reads_lists else [text]
    return tuple(int(part) if re.fullmatch(r"[+-]?[0-9]{1,18}", part) else -1 for part in parts)

"""Op messages: the half queue offsets that they list, and those that settle nothing.

Source: TransactionalMessageServiceImpl.fillOpRemoveMap; docs/formats/half_and_op.md#op.

The bodies of op messages have half queue offsets as decimal text, parsed for many bodies at once. ROLLBACK records
(before 4.3) and op messages for RocksDB settle a half message by its commit-log offset. They contain the transaction's
identity, so they can be assigned even if the half message has expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.commit_log import record_columns
from rmqtx.readers.log.prepared_records import prepared_names
from rmqtx.readers.log.properties import OP_TAG, REAL_TOPIC, TAGS, TRANSACTION_ID
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.model.columns import Bools, Bytes, Int64s, IntegerSet, int64s, integers
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.tables import FINALS, MARKS, OPS
from rmqtx.readers.store.store import ROCKSDB_OP_TOPIC

#: Property of an op message of a transaction in RocksDB: the commit-log offset of the half message. Source:
#: docs/formats/rocksdb_transactions.md#records.
TRANS_OFFSET = "TRANS_OFFSET"

_HEADER = ("store", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms")
_WORDS = ("born_time_ms", "transaction_id", "producer_group", "keys")
#: Marks with the identity of their transaction. `topic` is the record's topic; without UNIQ_KEY, `lone_prepared_id` and
#: `fingerprint` are the message id of the prepared record.
OFFSET_MARKS = pa.schema(
    [
        *(FINALS.field(name) for name in _HEADER),
        MARKS.field("half_commit_log_offset"),
        *(FINALS.field(name) for name in _WORDS),
        pa.field("real_topic", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("lone_prepared_id", pa.string()),
    ]
)
_DIGITS_MAX = 18
#: A number of up to eight digits is one word.
_WORD_DIGITS_MAX = 8
#: Text that is parsed at once: what is made of it stays in the processor's caches.
_EVEN_TEXT_BYTES = 64 << 10
_COMMA, _ZERO = ord(","), ord("0")
_PLACE = ["file", "position_bytes", "length_bytes", "commit_log_offset"]
_NUMBERS_SHOWN = 10


def rollback_marks(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are ROLLBACK records, as rows of OFFSET_MARKS."""
    columns = _columns(block, store)
    names = pa.nulls(len(block), pa.string())
    alone = np.flatnonzero(np.asarray(columns["transaction_id"].is_null()))
    if len(alone):
        places = np.full(len(block), -1, np.int64)
        places[alone] = np.arange(len(alone))
        names = prepared_names(block.take(alone)).take(pa.array(places, mask=places < 0))
    columns |= {
        "half_commit_log_offset": pa.array(block.header("prepared_transaction_offset")),
        "real_topic": columns["topic"], "fingerprint": names, "lone_prepared_id": names,
    }
    return _batch(columns)


def rocksdb_marks(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are op messages of transactions in RocksDB, as rows of OFFSET_MARKS.

    Damage: an op message without a readable TRANS_OFFSET has null.
    """
    columns = _columns(block, store)
    none = pa.nulls(len(block), pa.string())
    columns |= {
        "half_commit_log_offset": integers(block.properties.text(TRANS_OFFSET), pa.int64()),
        "born_time_ms": pa.nulls(len(block), pa.int64()),  # the record has the op message's time, not the transaction's
        "transaction_id": block.properties.text(TRANSACTION_ID),
        "real_topic": block.properties.text(REAL_TOPIC), "fingerprint": none, "lone_prepared_id": none,
    }
    return _batch(columns)


def _columns(block: Block, store: str) -> dict[str, pa.Array]:
    names = [*_HEADER, *_WORDS]
    return dict(zip(names, record_columns(block, store, names), strict=True))


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name] for name in OFFSET_MARKS.names], schema=OFFSET_MARKS)


def is_rocksdb_mark(marks: pa.Table) -> pa.ChunkedArray:
    """Return which rows of OFFSET_MARKS are op messages; the others are ROLLBACK records."""
    return pc.equal(marks["topic"], ROCKSDB_OP_TOPIC)


def as_marks(marks: pa.Table) -> pa.Table:
    """Return rows of OFFSET_MARKS as rows of MARKS: no half queue offset, no repetition."""
    count = marks.num_rows
    more = {
        "half_queue_offset": pa.nulls(count, pa.int64()), "repetition": pa.array(np.zeros(count, np.int32)),
    }
    return pa.Table.from_arrays(
        [more[name] if name in more else marks[name] for name in MARKS.names], schema=MARKS
    )


class _Numbers(NamedTuple):
    """Numbers of some bodies: how many each has, which are readable, and which have a comma."""

    values: Int64s
    counts: Int64s
    are_good: Bools
    have_comma: Bools


def parse_op_bodies(bodies: pa.Array, intact: Bools) -> tuple[pa.Array, pa.Array]:
    """Return numbers and form of op bodies: `123` (to 5.0.0) or `123,124,` (from 5.1.0).

    Shape:  (list<int64>, string); null list and form `unreadable` if a body is neither, or is not intact.
    Source: TransactionalMessageServiceImpl.fillOpRemoveMap; docs/formats/half_and_op.md#op.
    """
    count = len(bodies)
    if not count:
        return pa.array([], pa.list_(pa.int64())), pa.array([], pa.string())
    offsets = np.frombuffer(bodies.buffers()[1], np.int32, count + 1 + bodies.offset)[bodies.offset :].astype(np.int64)
    text = np.frombuffer(bodies.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    parts: list[_Numbers] = []
    for low, high, width in _runs(text, offsets):
        part, places = text[offsets[low] : offsets[high]], offsets[low : high + 1] - offsets[low]
        known = intact[low:high]
        even = _even_numbers(part, width) if width and known.all() else None
        if even is None:
            parts.append(_any_numbers(part, places, known))
        else:
            yes = np.ones(high - low, np.bool_)
            parts.append(_Numbers(even, np.diff(places) // (width + 1), yes, yes))
    found = _Numbers(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    list_offsets = np.append(0, np.cumsum(found.counts)).astype(np.int32)
    mask = None if found.are_good.all() else np.append(~found.are_good, False)
    numbers = pa.ListArray.from_arrays(pa.array(list_offsets, mask=mask), pa.array(found.values))
    forms = np.where(found.are_good, np.where(found.have_comma, "list", "single"), "unreadable")
    return numbers, pa.array(forms, pa.string())


def _runs(text: Bytes, offsets: Int64s) -> Iterator[tuple[int, int, int]]:
    """Divide bodies into runs whose numbers seem to have the same width, each with a comma after it.

    Shape: first body, the one after the last, and the number of digits; 0 if it varies.
    """
    count, lengths = len(offsets) - 1, np.diff(offsets)
    heads = np.zeros((count, _WORD_DIGITS_MAX + 1), np.uint8)
    for place in range(_WORD_DIGITS_MAX + 1):
        rows = np.flatnonzero(lengths > place)
        heads[rows, place] = text[offsets[rows] + place]
    widths = (heads == _COMMA).argmax(axis=1)  # 0 also without a comma
    widths[lengths % (widths + 1) != 0] = 0
    is_begin = np.append(True, (np.diff(widths) != 0) | (np.diff(offsets[:-1] // _EVEN_TEXT_BYTES) != 0))
    begins = np.flatnonzero(is_begin)
    if 2 * len(begins) > count:  # short runs cost more than they save
        yield 0, count, 0
        return
    yield from zip(begins.tolist(), [*begins[1:].tolist(), count], widths[begins].tolist(), strict=True)


def _even_numbers(text: Bytes, width: int) -> Int64s | None:
    """Return numbers that all have `width` digits and a comma; None if the text is anything else."""
    step = width + 1
    count = len(text) // step
    if (text[width::step] != _COMMA).any() or np.count_nonzero((text - np.uint8(_ZERO)) > 9) != count:
        return None
    padded = np.concatenate([text, np.zeros(8, np.uint8)])
    words = np.ndarray((count,), "<u8", padded, 0, (step,)).astype(np.uint64)
    words <<= np.uint64(8 * (_WORD_DIGITS_MAX - width))  # zeros before the digits, nothing after them
    return _eight_digits(words)


def _eight_digits(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Int64s:
    """Return the numbers of eight digits, or zero bytes, in each word; changes the words."""
    words &= np.uint64(0x0F0F0F0F0F0F0F0F)
    for factor, bits, mask in (
        (10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0x00000000FFFFFFFF),
    ):
        upper = words >> np.uint64(bits)
        words *= np.uint64(factor)
        words += upper
        words &= np.uint64(mask)
    return words.view(np.int64)


def _any_numbers(text: Bytes, offsets: Int64s, intact: Bools) -> _Numbers:
    """Return the numbers of bodies of any form."""
    count = len(offsets) - 1
    breaks = np.flatnonzero((text - np.uint8(_ZERO)) > 9)  # bytes other than digits
    first_breaks = np.searchsorted(breaks, offsets)
    are_commas = text[breaks] == _COMMA
    strange = np.zeros(count, np.int64)
    if not are_commas.all():
        np.add.at(strange, np.searchsorted(offsets, breaks[~are_commas], side="right") - 1, 1)
    commas = np.append(0, np.cumsum(are_commas))[first_breaks]
    # A number ends at a break, or at the end of its body.
    ends = np.insert(breaks, first_breaks[1:], offsets[1:])
    is_break = np.insert(np.ones(len(breaks), np.int64), first_breaks[1:], 0)
    widths = np.diff(ends, prepend=0)
    widths[1:] -= is_break[:-1]
    ends, widths = ends[widths > 0], widths[widths > 0]
    counts = np.diff(np.searchsorted(ends, offsets, side="right"))
    if widths.max(initial=0) > _DIGITS_MAX:
        np.add.at(strange, np.repeat(np.arange(count), counts)[widths > _DIGITS_MAX], 1)
    good = (strange == 0) & (np.diff(offsets) > 0) & intact
    if not good.all():
        kept = np.repeat(good, counts)
        ends, widths, counts = ends[kept], widths[kept], np.where(good, counts, 0)
    return _Numbers(_decimal_numbers(text, ends, widths), counts, good, np.diff(commas) > 0)


def _decimal_numbers(text: Bytes, ends: Int64s, widths: Int64s) -> Int64s:
    """Return the numbers whose digits end before positions; eight digits at once, in one word."""
    padded = np.concatenate([np.zeros(3 * 8, np.uint8), text])
    words = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
    values, unit = np.zeros(len(ends), np.int64), 1
    for back in range(0, _DIGITS_MAX, 8):
        rows = slice(None) if back == 0 else np.flatnonzero(widths > back)
        word = words[ends[rows] + (2 * 8 - back)]
        others = ((8 - np.minimum(widths[rows] - back, 8)) * 8).astype(np.uint64)  # bits before the number's digits
        values[rows] += _eight_digits(word >> others << others) * unit
        unit *= 10**8
        if widths.max(initial=0) <= back + 8:
            break
    return values


def ops_of(block: Block, store: str) -> pa.RecordBatch:
    """Return the records of a block, which are op messages, as rows of OPS.

    Damage: a body that is not a list of numbers, or with a wrong CRC, has form `unreadable` and no numbers; so has an
            op message of a transaction in RocksDB without a readable TRANS_OFFSET, its only reference.
    """
    columns = ["store", "file", "position_bytes", "length_bytes", "queue_id", "queue_offset", "commit_log_offset",
               "store_time_ms"]
    arrays = dict(zip(columns, record_columns(block, store, columns), strict=True))
    numbers, forms = parse_op_bodies(block.bodies().cast(pa.binary()), block.body_crc_matches())
    places = pa.nulls(len(block), pa.int64())
    by_offset = block.topic_is(ROCKSDB_OP_TOPIC)
    if by_offset.any():
        named = integers(block.properties.text(TRANS_OFFSET), pa.int64())
        chosen = pa.array(by_offset)
        places = pc.if_else(chosen, named, places)
        forms = pc.if_else(chosen, pc.if_else(pc.is_valid(named), "offset", "unreadable"), forms)
        numbers = pc.if_else(chosen, pa.nulls(len(block), numbers.type), numbers)
    arrays |= {
        "tags": block.properties.text(TAGS), "body_form": forms, "half_queue_offsets": numbers,
        "half_commit_log_offset": places,
    }
    return pa.RecordBatch.from_arrays([arrays[name] for name in OPS.names], schema=OPS)


def marks_of(ops: pa.RecordBatch, wanted: IntegerSet | None = None) -> pa.RecordBatch:
    """Return one row of MARKS for each time that an op message lists a half queue offset.

    A half message that was decided twice within a batch interval is listed twice (5.1.0 and later).

    Order: of the op messages, then half queue offset (a batch need not be in order).
    `wanted`: only these half queue offsets.
    """
    lists = ops["half_queue_offsets"]
    numbers = np.asarray(lists.flatten())
    rows = np.arange(len(numbers)) if wanted is None else np.flatnonzero(wanted.has(numbers))
    numbers = numbers[rows]
    ends = np.cumsum(int64s(pc.list_value_length(lists), 0))
    owners = np.searchsorted(ends, rows, side="right")
    order = np.lexsort((numbers, owners))
    owners, numbers = owners[order], numbers[order]
    rows = np.arange(len(numbers))
    is_first = np.append(True, (np.diff(owners) != 0) | (np.diff(numbers) != 0))[: len(rows)]
    repetition = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    columns = [ops[name].take(pa.array(owners)) for name in MARKS.names[:-3]]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.array(numbers), pa.array(repetition.astype(np.int32)), pa.nulls(len(numbers), pa.int64())],
        schema=MARKS,
    )


def _have_op_tag(ops: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return which op messages have the tag without which the check passes over them."""
    return pc.fill_null(pc.equal(ops["tags"], OP_TAG), False)


def op_findings(ops: pa.RecordBatch | pa.Table, store: str) -> list[Finding]:
    """Return one finding for each op message whose numbers cannot be read, or that settles nothing."""
    bad = ops.filter(pc.equal(ops["body_form"], "unreadable"))
    found = [
        _finding(row, store, "op-unreadable", "half queue offsets, or TRANS_OFFSET", "other bytes, or a wrong CRC")
        for row in bad.select(_PLACE).to_pylist()
    ]
    has_no_number = pc.equal(pc.list_value_length(ops["half_queue_offsets"]), 0)
    idle = ops.filter(pc.or_(pc.invert(_have_op_tag(ops)), pc.fill_null(has_no_number, False)))
    for row in idle.select([*_PLACE, "tags", "half_queue_offsets"]).to_pylist():
        numbers = row["half_queue_offsets"]
        if row["tags"] == OP_TAG:
            actual = "no number"
        else:
            listed = "" if not numbers else f", half queue offsets {', '.join(map(str, numbers[:_NUMBERS_SHOWN]))}"
            actual = "no tag" if row["tags"] is None else f"tag {row['tags']}"
            actual += f"{listed}{', ...' if numbers and len(numbers) > _NUMBERS_SHOWN else ''}"
        found.append(_finding(row, store, "op-without-effect", f"tag {OP_TAG}, half queue offsets", actual))
    return found


def _finding(row: Mapping[str, Any], store: str, code: str, expected: str, actual: str) -> Finding:
    return Finding(
        store, code, row["file"], row["position_bytes"], row["length_bytes"],
        commit_log_offset=row["commit_log_offset"], expected=expected, actual=actual,
    )

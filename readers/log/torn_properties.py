"""Find records whose properties were not completely written, and copies of which id or group cannot be read.

A crash, or a lost page, left zeros in place of the properties.

A broker's recovery does not read what properties contain, so it keeps the record: the check, the dispatch and a
COMMIT record use its header, topic and body (docs/formats/record.md#torn-properties).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtx.readers.log.prepared_records import is_rollback
from rmqtx.readers.log.properties import PRODUCER_GROUP, REAL_TOPIC, UNIQ_KEY
from rmqtx.readers.log.record_block import Block, end_in_zeros
from rmqtx.readers.log.transaction_records import are_halves, are_ops, is_final, real_topics
from rmqtx.readers.model.columns import Bools
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import DISCARD_TOPIC

#: How bytes that are not UTF-8 are shown in a text.
_NO_TEXT = "\\x"
#: The end of a property's name: if a value contains one, the end mark of a value is damaged. And zeros in place of
#: what a crash or a lost page has left out.
_NO_VALUE = ("\x01", "\x00")


def have_torn_properties(block: Block) -> Bools:
    """Return which records have torn properties: zeros at their end, or none in a record that always has some.

    Every half copy, op message, COMMIT record and discard copy has properties.
    """
    torn = end_in_zeros(block)
    empty = (block.properties_lengths == 0).nonzero()[0]
    if len(empty):
        alone = block.take(empty)
        torn[empty] = are_halves(alone) | are_ops(alone) | alone.topic_is(DISCARD_TOPIC) | is_final(alone)
    return torn


def torn_witnesses(block: Block) -> Block:
    """Return the half copies, op messages, COMMIT and ROLLBACK records and discard copies with torn properties."""
    torn = block.take(have_torn_properties(block))
    if not len(torn):
        return torn
    return torn.take(
        are_halves(torn) | are_ops(torn) | torn.topic_is(DISCARD_TOPIC) | is_final(torn) | is_rollback(torn)
    )


def torn_findings(torn: Block, store: str) -> Iterator[Finding]:
    """Return a finding for each of the given records with torn properties.

    Order: of the block.
    """
    for row in range(len(torn)):
        length = int(torn.properties_lengths[row])
        end = int(torn.starts[row] + torn.lengths[row])
        zeros = length - len(torn.data[end - length : end].tobytes().rstrip(b"\0"))
        yield Finding(
            store, "record-properties", torn.file, int(torn.positions[row]), int(torn.lengths[row]),
            commit_log_offset=int(torn.commit_log_offsets[row]), expected="names and values",
            actual=f"the last {zeros} of {length} bytes are zeros" if length else "no properties",
        )


def may_be_unreadable(copies: pa.RecordBatch) -> bool:
    """Return whether a copy lacks an id, group or real topic, or has one that cannot be read; rows of JUDGED_HALVES."""
    names, *others = (copies[name] for name in ("transaction_id", "producer_group", "real_topic"))
    if names.null_count or any(one.null_count for one in others):
        return True
    if not (_occurs(_NO_TEXT, names) or any(_occurs(sign, one) for sign in _NO_VALUE for one in (names, *others))):
        return False
    damaged = [are_damaged_ids(names), *map(_run_on, others)]
    return any(pc.any(one).as_py() for one in damaged)


def _occurs(text: str, values: pa.Array) -> bool:
    """Whether a text is in the values, or across two of them, with one search; usually it is not."""
    first, last = (int(np.frombuffer(values.buffers()[1], np.int32, 1, 4 * place)[0])
                   for place in (values.offset, values.offset + len(values)))
    data = values.buffers()[2]
    return data is not None and text.encode() in data.slice(first, last - first).to_pybytes()


def are_incomplete(copies: Block) -> Bools:
    """Return which of some copies of half messages have no group or no real topic."""
    groups = copies.properties.text(PRODUCER_GROUP)
    incomplete: Bools = np.asarray(pc.or_(pc.is_null(groups), pc.is_null(real_topics(copies))))
    return incomplete


def _have_hidden_values(copies: Block) -> Bools:
    """Return which copies are incomplete, and have properties that are not text: damaged bytes run over a name.

    A broker writes properties as UTF-8.
    """
    hidden = np.zeros(len(copies), np.bool_)
    for row in np.flatnonzero(are_incomplete(copies)).tolist():
        end = int(copies.starts[row] + copies.lengths[row])
        data = copies.data[end - int(copies.properties_lengths[row]) : end].tobytes()
        hidden[row] = data.decode("utf-8", "replace").encode() != data
    return hidden


def has_readable_id(copy: Block) -> bool:
    """Whether the record of a block of one has an id that can be read."""
    names = copy.properties.text(UNIQ_KEY)
    return not names.null_count and not pc.any(are_damaged_ids(names)).as_py()


def are_damaged_ids(names: pa.Array) -> pa.Array:
    """Return which ids are not text, or run on; false without an id."""
    return pc.or_(pc.fill_null(pc.match_substring(names, _NO_TEXT), False), _run_on(names))


def _run_on(values: pa.Array) -> pa.Array:
    """Return which values continue into the next property, or into zeros; false without a value.

    For ids, groups and topics, which a broker restricts. Other values may have been written this way.
    """
    another, zeros = (pc.fill_null(pc.match_substring(values, sign), False) for sign in _NO_VALUE)
    return pc.or_(another, zeros)


def unreadable_copies(block: Block, store: str) -> Iterator[Finding]:
    """Return a finding for each half copy with an unreadable id, group or real topic.

    A discard copy is reported for its group or real topic only.

    Unreadable: no group or no real topic, and properties that are not text; no id, and properties that are not names
    and values or were not completely written; an id that is not text; either with another property or zeros in it. A
    discard copy with a damaged id is not reported: it may belong to any transaction, and then all transactions would be
    in doubt.
    """
    copies = block.take(are_halves(block) | block.topic_is(DISCARD_TOPIC))
    names, groups = copies.properties.text(UNIQ_KEY), copies.properties.text(PRODUCER_GROUP)
    nameless: Bools = np.asarray(pc.is_null(names)) & (copies.properties.malformed() | have_torn_properties(copies))
    unreadable: Bools = nameless | np.asarray(are_damaged_ids(names))
    topics = copies.properties.text(REAL_TOPIC)
    runs_on: Bools = np.asarray(pc.or_(_run_on(groups), _run_on(topics))) | _have_hidden_values(copies)
    is_discard = copies.topic_is(DISCARD_TOPIC)
    for row in np.flatnonzero(np.where(is_discard, runs_on & ~unreadable, runs_on | unreadable)).tolist():
        yield Finding(
            store, "half-unreadable", copies.file, int(copies.positions[row]), int(copies.lengths[row]),
            commit_log_offset=int(copies.commit_log_offsets[row]), expected="properties as names and values",
            actual="other bytes",
        )

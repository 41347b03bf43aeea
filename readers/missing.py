"""What damage means for transactions: which bytes of a log are missing as evidence, and whom they can concern.

A transaction whose verdict rests on the absence of a record is UNDECIDABLE if that record may have stood in missing
bytes. Damaged bytes mostly still say whose they were: then only those transactions are concerned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from readers.columns import Int64s
from readers.consume_queue import open_queue
from readers.errors import SourceError
from readers.findings import Finding
from readers.properties import TRANSACTION_ID, UNIQ_KEY
from readers.record_at import block_at, mended_blocks, mended_op_numbers
from readers.record_block import Block
from readers.record_layout import COMMIT, TRANSACTION_MASK
from readers.sources import Segment
from readers.store import HALF_TOPIC, OP_TOPIC, Store
from readers.transactions import MissingRange

_IDENTIFIED_BYTES_MAX = 8 << 20
_SLOTS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class UnfoundSlot:
    """A slot of the half or op queue whose record is not there. Units: bytes of the commit log."""

    topic: str
    queue_offset: int
    commit_log_offset: int
    record_length_bytes: int


@dataclass(slots=True)
class MissingBytes:
    """Missing ranges of one store, and half records that are damaged but can still be read in part."""

    ranges: list[MissingRange] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    damaged_halves: list[Block] = field(default_factory=list)


def missing_bytes(
    store: Store,
    spans: Iterable[tuple[Segment, int, int]],
    findings: Iterable[Finding],
    unfound: Iterable[UnfoundSlot],
) -> MissingBytes:
    """What is missing in a log that was scanned.

    `spans`: damaged (segment, position, length); `findings`: those of the scan; `unfound`: see `unfound_slots`.
    Units: bytes.
    """
    result = MissingBytes()
    for segment, position, length in spans:
        _add_damage(result, store, segment, position, length)
    for finding in findings:
        _add_finding(result, store, finding)
    known = [(missing.begin_offset, missing.end_offset) for missing in result.ranges]
    for slot in unfound:
        if not any(begin <= slot.commit_log_offset < end for begin, end in known):
            _add_unfound(result, store, slot)
    return result


def _add_damage(result: MissingBytes, store: Store, segment: Segment, position: int, length: int) -> None:
    offset = segment.base_offset + position
    what = f"{length} damaged bytes at commit-log offset {offset}"
    missing = MissingRange(store.root, offset, offset + length, what)
    blocks = None
    if length <= _IDENTIFIED_BYTES_MAX:
        with segment.open() as file:
            blocks = mended_blocks(file.read(position, length), offset, segment.file, position)
    if blocks is None:
        result.ranges.append(missing)
        return
    for block in blocks:
        result.ranges.append(_identified(missing, block))
        if block.topic_is(HALF_TOPIC)[0]:
            result.damaged_halves.append(block)


def _identified(missing: MissingRange, block: Block) -> MissingRange:
    """A missing range narrowed to what its record says it was."""
    if block.topic_is(OP_TOPIC)[0]:
        numbers = _op_numbers(block)
        return missing if numbers is None else replace(missing, is_identified=True, half_queue_offsets=tuple(numbers))
    ids = {
        value for name in (UNIQ_KEY, TRANSACTION_ID) for value in block.properties.text(name).to_pylist() if value
    }
    is_commit = int(block.sys_flag[0]) & TRANSACTION_MASK == COMMIT
    prepared = (int(block.header("prepared_transaction_offset")[0]),) if is_commit else ()
    return replace(missing, is_identified=True, transaction_ids=tuple(sorted(ids)), prepared_offsets=prepared)


def _op_numbers(block: Block) -> list[int] | None:
    body = block.bodies().to_pylist()[0]
    return mended_op_numbers(body, int(block.header("body_crc")[0]))


def _add_finding(result: MissingBytes, store: Store, finding: Finding) -> None:
    offset = finding.commit_log_offset
    if finding.code == "segment-gap" and offset is not None and finding.length_bytes is not None:
        end = offset + finding.length_bytes
        result.ranges.append(
            MissingRange(store.root, offset, end, f"no file holds commit-log offsets {offset} to {end}")
        )
    elif finding.code == "unreadable-file":
        for segment in store.commit_log:
            if segment.file == finding.file:
                what = f"{segment.file} cannot be read"
                result.ranges.append(MissingRange(store.root, segment.base_offset, segment.end_offset, what))
    elif finding.code == "op-unreadable" and offset is not None:
        what = f"the op message at commit-log offset {offset} cannot be read"
        missing = MissingRange(store.root, offset, offset + (finding.length_bytes or 0), what)
        log = store.log()
        block = block_at(log, offset)
        log.close()
        result.ranges.append(missing if block is None else _identified(missing, block))


def unfound_slots(store: Store, topic: str, found: Int64s, begin_offset: int, end_offset: int) -> list[UnfoundSlot]:
    """Queue slots that point into a range of the log where no record of their topic was found.

    `found`: commit-log offsets of the topic's records in the range, ascending.
    Units: bytes of the commit log.
    """
    unfound: list[UnfoundSlot] = []
    try:
        with open_queue(store, topic, 0) as queue:
            first, last = queue.offset_of(begin_offset), queue.offset_of(end_offset)
            while first < last:
                numbers, offsets, lengths, _ = queue.read(first, min(first + _SLOTS_AT_ONCE, last))
                place = np.searchsorted(found, offsets)
                absent = (offsets >= begin_offset) & (offsets < end_offset)
                if len(found):
                    absent &= found[np.minimum(place, len(found) - 1)] != offsets
                for row in np.flatnonzero(absent).tolist():
                    unfound.append(UnfoundSlot(topic, int(numbers[row]), int(offsets[row]), int(lengths[row])))
                first += _SLOTS_AT_ONCE
    except SourceError:
        pass  # a queue that cannot be read proves nothing against the log
    return unfound


def _add_unfound(result: MissingBytes, store: Store, slot: UnfoundSlot) -> None:
    """A queue slot whose record the scan did not find as one of the topic: its topic or place must be damaged."""
    topic, number, offset, length = slot.topic, slot.queue_offset, slot.commit_log_offset, slot.record_length_bytes
    what = f"the record of slot {number} of {topic} at commit-log offset {offset} is not one"
    missing = MissingRange(store.root, offset, offset + length, what)
    log = store.log()
    block, segment = block_at(log, offset), log.segment_at(offset)
    log.close()
    if topic == HALF_TOPIC:
        missing = replace(missing, is_identified=True, half_queue_offsets=(number,))
    if block is not None and topic == HALF_TOPIC:
        ids = tuple(value for value in block.properties.text(UNIQ_KEY).to_pylist() if value)
        missing = replace(missing, transaction_ids=ids)
    elif block is not None:
        numbers = _op_numbers(block)
        if numbers is not None:
            missing = replace(missing, is_identified=True, half_queue_offsets=tuple(numbers))
    result.ranges.append(missing)
    result.findings.append(
        Finding(
            store.root, "slot-mismatch", None if segment is None else segment.file,
            None if segment is None else offset - segment.base_offset, length, commit_log_offset=offset,
            expected=f"slot {number} of {topic}",
            actual="a record of something else" if block is not None else "no record",
        )
    )

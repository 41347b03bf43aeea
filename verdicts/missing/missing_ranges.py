"""The effect of damage on transactions: which bytes of a log are missing as evidence, and for which transactions.

If a verdict depends on the absence of a record, and missing bytes may have contained that record, the transaction is
UNDECIDABLE. Damaged bytes often still show their transactions: then only these are concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rmqtx.readers.log.corrected_records import corrected_blocks, corrected_op_numbers, with_topic
from rmqtx.readers.log.header_doubts import contradict_prepared_flag
from rmqtx.readers.log.header_rules import is_of_a_state
from rmqtx.readers.log.prepared_records import is_prepared, is_rollback
from rmqtx.readers.log.properties import TRANSACTION_ID, UNIQ_KEY
from rmqtx.readers.log.record_at import block_at, stored_block
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import COMMIT
from rmqtx.readers.log.topic_doubts import internal_topic_of
from rmqtx.readers.log.torn_properties import has_readable_id, have_torn_properties
from rmqtx.readers.log.transaction_records import are_damaged_finals, are_halves
from rmqtx.readers.model.findings import Finding, as_text
from rmqtx.readers.queues.consume_queue import open_queue
from rmqtx.readers.storage.segments import Segment, SegmentedLog
from rmqtx.readers.store.store import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANSACTION_TOPICS,
    WAITING_TOPICS,
    Store,
)
from rmqtx.verdicts.missing.foreign_files import files_of_another_log
from rmqtx.verdicts.missing.nameless_copies import with_other_copies
from rmqtx.verdicts.missing.unfound_slots import (
    STALE_RUN_MIN,
    UnfoundSlot,
    record_around,
    stands_between_its_neighbours,
)
from rmqtx.verdicts.model.verdict_inputs import MissingRange

_IDENTIFIED_BYTES_MAX = 8 << 20
#: A queue with more contradictions belongs to another log.
_UNFOUND_SLOTS_MAX = 1000
#: Below this number, all may be damaged records.
UNFOUND_SLOTS_FEW = 16
_BRING_FILE_BACK = "put the file of this broker back, from a backup or a slave; compare copies: rmqtx diff"
_TORN_DISCARD_COPY = "the properties of the discard copy at commit-log offset {} are torn"
_UNREADABLE_HALF = "the properties of the half copy at commit-log offset {} cannot be read"


@dataclass(slots=True)
class MissingBytes:
    """Missing ranges of one store, and half records that are damaged but can still be read in part."""

    ranges: list[MissingRange] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    damaged_halves: list[Block] = field(default_factory=list)


def missing_bytes(
    store: Store, spans: Iterable[tuple[Segment, int, int]], findings: Iterable[Finding],
    unfound: Iterable[UnfoundSlot], lost: MissingRange | None = None,
) -> MissingBytes:
    """Return what is missing in a scanned log.

    `spans`: damaged (segment, position, length); `findings`: those of the scan; `unfound`: see `unfound_slots`; `lost`:
    the missing end of the log, after the last record that was found.
    Units: bytes.
    """
    result = MissingBytes()
    for segment, position, length in spans:
        _add_damage(result, store, segment, position, length)
    if lost is not None:
        _add_lost(result, store, lost)
    findings = list(findings)
    unknown = [one for finding in findings for one in _left_unknown(store, finding)]
    result.ranges.extend(with_other_copies(store, unknown))
    _add_unfound_slots(result, store, list(unfound))
    for finding in findings:
        _add_doubtful_topic(result, store, finding)
    return result


def _add_damage(result: MissingBytes, store: Store, segment: Segment, position: int, length: int) -> None:
    offset = segment.base_offset + position
    what = f"{length} damaged bytes at commit-log offset {offset}"
    _add_range(result, store, segment, MissingRange(store.root, offset, offset + length, what))


def _add_lost(result: MissingBytes, store: Store, lost: MissingRange) -> None:
    segment = store.log().segment_at(lost.begin_offset)
    if segment is None or lost.end_offset > segment.end_offset:
        result.ranges.append(lost)
    else:
        _add_range(result, store, segment, lost)


def _add_range(result: MissingBytes, store: Store, segment: Segment, missing: MissingRange) -> None:
    """Add bytes of one file that are no records; their readable parts may still show their transaction."""
    offset, length = missing.begin_offset, missing.end_offset - missing.begin_offset
    position = offset - segment.base_offset
    blocks = None
    if length <= _IDENTIFIED_BYTES_MAX:
        with segment.open() as file:
            blocks = corrected_blocks(file.read(position, length), offset, segment.file, position)
    if blocks is None:
        result.ranges.append(missing)
        return
    for block in blocks:
        result.ranges.append(_with_what_it_decided(store, _identified(missing, block), block))
        if are_halves(block)[0]:
            result.damaged_halves.append(block)


def _identified(missing: MissingRange, block: Block) -> MissingRange:
    """Narrow a missing range to the transaction that its record names."""
    if block.topic_is(OP_TOPIC)[0]:
        numbers = _op_numbers(block)
        return missing if numbers is None else replace(missing, is_identified=True, half_queue_offsets=tuple(numbers))
    ids = {
        value for name in (UNIQ_KEY, TRANSACTION_ID) for value in block.properties.text(name).to_pylist() if value
    }
    names_first = bool(int(block.sys_flag[0]) & COMMIT)  # a half may be the first record of the log
    prepared = tuple(
        value for value in block.header("prepared_transaction_offset").tolist() if value or names_first
    )
    if are_halves(block)[0]:
        prepared += (int(block.commit_log_offsets[0]),)
    if not ids and not prepared and (block.topic_is(DISCARD_TOPIC)[0] or int(block.sys_flag[0]) & COMMIT):
        return missing
    return replace(missing, is_identified=True, transaction_ids=tuple(sorted(ids)), prepared_offsets=prepared)


def _with_what_it_decided(store: Store, missing: MissingRange, block: Block) -> MissingRange:
    """Narrow a range for a COMMIT record on a record outside the half topic: its op has the number of another half."""
    place = int(block.header("prepared_transaction_offset")[0])
    if not place or not int(block.sys_flag[0]) & COMMIT or is_rollback(block)[0]:
        return missing
    named = stored_block(store, place)
    if named is None:
        return replace(missing, named_from_offset=missing.begin_offset)
    if are_halves(named)[0]:
        return missing
    return replace(missing, half_queue_offsets=(*missing.half_queue_offsets, int(named.header("queue_offset")[0])))


def _op_numbers(block: Block) -> list[int] | None:
    body = block.bodies().to_pylist()[0]
    return corrected_op_numbers(body, int(block.header("body_crc")[0]))


def _in_no_file(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of the log that a finding names, which is in no file, or in a file under another name."""
    if (offset := finding.commit_log_offset) is None or finding.length_bytes is None:
        return
    end = offset + finding.length_bytes
    what = f"no file contains commit-log offsets {offset} to {end}"
    if finding.code == "segment-misnamed":
        what = f"commit-log offsets {offset} to {end} are in {finding.file}, under another name"
    yield MissingRange(store.root, offset, end, what)


def _in_unreadable_file(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of a file that cannot be read."""
    for segment in store.commit_log:
        if segment.file == finding.file:
            what = f"{segment.file} cannot be read"
            yield MissingRange(store.root, segment.base_offset, segment.end_offset, what)


def _in_unreadable_half(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of a half copy whose properties cannot be read, narrowed by what can be read."""
    missing, block = _range_of(finding, store, _UNREADABLE_HALF)
    yield missing if block is None else _of_unreadable_half(missing, block)


def range_of_unreadable_half(root: str, block: Block) -> MissingRange:
    """Return the range of a half or discard copy whose id, group or real topic cannot be read. `block`: of one record.

    Units: commit-log offsets in bytes.
    """
    offset = int(block.commit_log_offsets[0])
    missing = MissingRange(root, offset, offset + int(block.lengths[0]), _UNREADABLE_HALF.format(offset))
    return _of_unreadable_half(missing, block)


def _of_unreadable_half(missing: MissingRange, block: Block) -> MissingRange:
    # A prepared record has no copies: its place identifies the transaction.
    if bool(is_prepared(block)[0]) or has_readable_id(block):
        return _identified(missing, block)
    if have_torn_properties(block)[0] and block.topic_is(HALF_TOPIC)[0]:
        return _of_nameless_copy(missing, block)
    return missing


def _in_torn_discard_copy(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of a discard copy whose id cannot be read."""
    missing, block = _range_of(finding, store, _TORN_DISCARD_COPY)
    if block is not None and _is_nameless_discard_copy(block):
        yield _of_nameless_copy(missing, block)


def range_of_torn_discard_copy(root: str, block: Block) -> MissingRange | None:
    """Return the range of a record with torn properties if it is a discard copy whose id cannot be read, else None.

    Units: commit-log offsets in bytes.
    """
    if not _is_nameless_discard_copy(block):
        return None
    offset = int(block.commit_log_offsets[0])
    missing = MissingRange(root, offset, offset + int(block.lengths[0]), _TORN_DISCARD_COPY.format(offset))
    return _of_nameless_copy(missing, block)


def _is_nameless_discard_copy(block: Block) -> bool:
    return bool(block.topic_is(DISCARD_TOPIC)[0]) and not has_readable_id(block)


def _in_damaged_header(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of a record whose header is damaged in a field that decides."""
    if finding.code == "record-header" and not is_of_a_state(finding):
        return
    missing, block = _range_of(finding, store, "the header of the record at commit-log offset {} is damaged")
    if block is not None and (finding.code == "record-header" or _may_be_an_end(store, block)):
        yield _identified(missing, block)


def _in_changed_properties(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of a record that contradicts the CRC of its properties."""
    offset = finding.commit_log_offset or 0
    what = f"the record at commit-log offset {offset} contradicts its property CRC"
    yield MissingRange(store.root, offset, offset + (finding.length_bytes or 0), what)


def _in_unreadable_op(store: Store, finding: Finding) -> Iterator[MissingRange]:
    """The range of an op message that cannot be read."""
    missing, block = _range_of(finding, store, "the op message at commit-log offset {} cannot be read")
    yield missing if block is None else _identified(missing, block)


#: The findings that leave bytes of a log unknown, each with the function that returns these bytes.
_UNKNOWN_BYTES: Mapping[str, Callable[[Store, Finding], Iterable[MissingRange]]] = {
    "segment-gap": _in_no_file, "segment-misnamed": _in_no_file, "unreadable-file": _in_unreadable_file,
    "half-unreadable": _in_unreadable_half, "record-properties": _in_torn_discard_copy,
    "record-header": _in_damaged_header, "words-contradict": _in_damaged_header,
    "record-property-crc": _in_changed_properties, "op-unreadable": _in_unreadable_op,
}


def _left_unknown(store: Store, finding: Finding) -> Iterable[MissingRange]:
    """Return the bytes that a finding leaves unknown."""
    unknown = _UNKNOWN_BYTES.get(finding.code)
    if unknown is None or (finding.commit_log_offset is None and unknown is not _in_unreadable_file):
        return ()
    return unknown(store, finding)


def _of_nameless_copy(missing: MissingRange, block: Block) -> MissingRange:
    return replace(missing, is_identified=True, copy_born_ms=int(block.header("born_time_ms")[0]))


def _may_be_an_end(store: Store, block: Block) -> bool:
    """Whether a record may be an end: a COMMIT record with a damaged header, or a prepared record that names a half.

    Otherwise it is a prepared record with a damaged reference.
    """
    if are_damaged_finals(block)[0]:
        return True
    if not contradict_prepared_flag(block)[0]:
        return False
    named = stored_block(store, int(block.header("prepared_transaction_offset")[0]))
    return named is not None and bool(are_halves(named)[0])


def _range_of(finding: Finding, store: Store, what: str) -> tuple[MissingRange, Block | None]:
    """Return the range of the record of a finding, and the record. `what` has a place for its offset."""
    offset = finding.commit_log_offset or 0
    missing = MissingRange(store.root, offset, offset + (finding.length_bytes or 0), what.format(offset))
    return missing, stored_block(store, offset)


def _add_unfound_slots(result: MissingBytes, store: Store, slots: list[UnfoundSlot]) -> None:
    """Add queue slots whose record the scan did not find: either the record or the slot is damaged."""
    slots = _outside(slots, result.ranges)
    foreign = [_of_another_log(result, store, *found) for found in files_of_another_log(store, slots)]
    slots = _outside(slots, foreign)
    result.ranges.extend(foreign)
    for topic in TRANSACTION_TOPICS:
        mine = [slot for slot in slots if slot.topic == topic]
        if len(mine) > _UNFOUND_SLOTS_MAX or _is_most_of_its_queue(store, topic, len(mine)):
            result.findings.append(_foreign_queue(store, topic, mine))
            continue
        run_count, number = 0, -1
        for slot in sorted(mine, key=lambda slot: slot.queue_offset):
            is_next = slot.queue_offset == number + 1 and run_count >= STALE_RUN_MIN
            is_refuted = _add_unfound(result, store, slot, is_stale=is_next)
            run_count = (run_count if slot.queue_offset == number + 1 else 0) + 1 if is_refuted else 0
            number = slot.queue_offset


def _outside(slots: list[UnfoundSlot], ranges: list[MissingRange]) -> list[UnfoundSlot]:
    """Return the slots that lead into none of some ranges."""
    known = [(missing.begin_offset, missing.end_offset) for missing in ranges]
    return [slot for slot in slots if not any(begin <= slot.commit_log_offset < end for begin, end in known)]


def _of_another_log(result: MissingBytes, store: Store, segment: Segment, topic: str, count: int) -> MissingRange:
    """Return the range of a file of another log; adds the finding about it."""
    result.findings.append(Finding(
        store.root, "slot-mismatch", segment.file, 0, segment.size_bytes, commit_log_offset=segment.base_offset,
        expected=f"the records of {count} slots of {topic}",
        actual="other records in each place, but not in those of later slots: the file belongs to another log",
        meaning="the file of this log is lost as evidence, and transactions with a record in this file are UNDECIDABLE",
        advice=_BRING_FILE_BACK,
    ))
    what = f"{segment.file} has records of another log: {count} slots of {topic} lead to other places of it"
    return MissingRange(store.root, segment.base_offset, segment.end_offset, what, is_of_another_log=True)


def _is_most_of_its_queue(store: Store, topic: str, count: int) -> bool:
    if count < UNFOUND_SLOTS_FEW:
        return False
    with open_queue(store, topic, 0) as queue:
        return 2 * count > queue.max_offset - queue.min_offset


def _foreign_queue(store: Store, topic: str, slots: list[UnfoundSlot]) -> Finding:
    return Finding(
        store.root, "slot-mismatch", as_text(store.queue_directory(topic, 0)),
        expected=f"slots of {topic}",
        actual=f"{len(slots)} slots that point to other records: the queue belongs to another log",
    )


def _add_unfound(result: MissingBytes, store: Store, slot: UnfoundSlot, *, is_stale: bool) -> bool:
    """Add what a slot shows of a missing record; return whether the log shows that no record is missing there.

    `is_stale`: the slots before it are of an older log.
    """
    topic, number, offset = slot.topic, slot.queue_offset, slot.commit_log_offset
    end = offset + slot.record_length_bytes
    with store.log() as log:
        sound, segment = block_at(log, offset), log.segment_at(offset)
        block = sound or _corrected_at(log, slot)
        is_elsewhere = stands_between_its_neighbours(store, slot)
    around = None if block is not None or segment is None else record_around(segment, offset - segment.base_offset)
    actual = "no record" if sound is None else "another record"
    if around is not None and segment is not None:
        actual = f"a place inside the record at commit-log offset {segment.base_offset + around}"
    result.findings.append(
        Finding(
            store.root, "slot-mismatch", *log.place_of(offset), slot.record_length_bytes,
            commit_log_offset=offset, expected=f"slot {number} of {topic}", actual=actual,
        )
    )
    is_refuted = around is not None or (is_stale and sound is None)
    if is_elsewhere or is_refuted:  # then the slot is damaged, or of an older log: no byte is missing
        return is_refuted
    has_another_number = sound is not None and bool(sound.topic_is(topic)[0])
    there = "the record has another queue offset" if has_another_number else "no record of this topic begins"
    what = f"slot {number} of {topic} points to commit-log offset {offset}, where {there}"
    missing = MissingRange(store.root, offset, end, what)
    if block is None:
        result.ranges.append(missing)
    else:
        is_damaged = sound is None or not block.topic_is(topic)[0]
        _add_record_of(result, missing, topic, number, block, is_damaged=is_damaged)
    return False


def _add_doubtful_topic(result: MissingBytes, store: Store, finding: Finding) -> None:
    """Add a record whose topic is damaged, if no slot of a queue points to it."""
    offset = finding.commit_log_offset
    if finding.code != "words-contradict" or offset is None:
        return
    if any(known.begin_offset <= offset < known.end_offset for known in result.ranges):
        return
    missing, block = _range_of(finding, store, "the topic of the record at commit-log offset {} is damaged")
    topic = None if block is None else internal_topic_of(store, block)
    if block is not None and topic is not None:
        _add_record_of(result, missing, topic, int(block.header("queue_offset")[0]), block, is_damaged=True)


def _add_record_of(
    result: MissingBytes, missing: MissingRange, topic: str, queue_offset: int, block: Block, *, is_damaged: bool
) -> None:
    """Add what a record still shows of its transaction. `is_damaged`: the record itself has another topic."""
    is_half = topic in (*HALF_TOPICS, *WAITING_TOPICS)
    if is_half:
        numbers = (queue_offset,) if topic == HALF_TOPIC else ()
        places = (missing.begin_offset,)
        missing = replace(missing, is_identified=True, half_queue_offsets=numbers, prepared_offsets=places)
    result.ranges.append(_with_readable_ids(missing, topic, block))
    if is_half and is_damaged:
        corrected = with_topic(block, topic)
        result.damaged_halves.extend([] if corrected is None else [corrected])


def _corrected_at(log: SegmentedLog, slot: UnfoundSlot) -> Block | None:
    """Return the original record of a slot, if only one of its fields is damaged; the slot has its length."""
    offset, length = slot.commit_log_offset, slot.record_length_bytes
    segment = log.segment_at(offset)
    if segment is None or length > _IDENTIFIED_BYTES_MAX:
        return None
    blocks = corrected_blocks(log.read(offset, length), offset, segment.file, offset - segment.base_offset)
    return blocks[0] if blocks is not None and len(blocks) == 1 else None


def _with_readable_ids(missing: MissingRange, topic: str, block: Block) -> MissingRange:
    """Narrow a missing range by what can still be read at the place of a slot."""
    if topic == OP_TOPIC:
        numbers = _op_numbers(block)
        if numbers is None:
            return missing
        return replace(missing, is_identified=True, half_queue_offsets=tuple(numbers))
    name = TRANSACTION_ID if topic == ROCKSDB_OP_TOPIC else UNIQ_KEY  # these ops have their own UNIQ_KEY
    ids = tuple(value for value in block.properties.text(name).to_pylist() if value)
    return replace(missing, is_identified=True, transaction_ids=ids) if ids else missing

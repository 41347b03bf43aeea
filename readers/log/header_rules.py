"""Rules for the header fields of a record, and the CRC of the whole record that some brokers write.

A record is sound if the lengths of its parts add up, whatever its values are: usually no checksum covers a header, and
each rule is about one field. The CRC is the last property of a record (enabledAppendPropCRC, 5.2.0+).

Source: docs/formats/record.md#property-crc.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.record_layout import CRC_MASK, TRANSACTION_MASK
from rmqtx.readers.model.columns import Bools, Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.model.moments import BROKER_TIME_MAX_MS

PORT_MAX = 65_535
_SYS_FLAG_KNOWN = 0x7FF
_COMPRESSION_MASK = 0x700
_COMPRESSION_MAX = 0x300


@dataclass(frozen=True)
class HeaderRule:
    """A rule for a field: its name in `RECORD`, what its value must be, and which values of a block break the rule."""

    field: str
    expected: str
    breaks: Callable[[Int64s, Block], Bools]


def _at_least_0(field: str) -> HeaderRule:
    return HeaderRule(field, f"{field} of at least 0", lambda values, _: values < 0)


def _from_0(field: str, last: int, what: str) -> HeaderRule:
    return HeaderRule(field, f"{field} {what}", lambda values, _: (values < 0) | (values > last))


def _time(field: str) -> HeaderRule:
    return _from_0(field, BROKER_TIME_MAX_MS, "before the year 2200")


def _port(field: str) -> HeaderRule:
    return _from_0(field, PORT_MAX, f"of at most {PORT_MAX}")


def _unknown_bits(values: Int64s, _: Block) -> Bools:
    broken: Bools = ((values & ~_SYS_FLAG_KNOWN) != 0) | ((values & _COMPRESSION_MASK) > _COMPRESSION_MAX)
    return broken


def _crc_without_body(values: Int64s, block: Block) -> Bools:
    broken: Bools = (block.body_lengths == 0) & (values != 0)
    return broken


def _name_without_final(values: Int64s, block: Block) -> Bools:
    broken: Bools = ((block.sys_flag & TRANSACTION_MASK) == 0) & (values != 0)
    return broken


def _name_of_no_earlier_record(values: Int64s, block: Block) -> Bools:
    broken: Bools = (values < 0) | (values >= np.maximum(block.commit_log_offsets, 1))
    return broken


def _other_place(values: Int64s, block: Block) -> Bools:
    broken: Bools = values != block.commit_log_offsets
    return broken


#: The place of a record in its consume queue. A record that is compared with its slot needs no rule.
PLACE_RULES = (_at_least_0("queue_id"), _at_least_0("queue_offset"))
#: Times that would make a check find a half message immune or too old.
TIME_RULES = (_time("born_time_ms"), _time("store_time_ms"))
#: Fields from which a state follows and that no other record repeats: every scan tests them.
STATE_RULES = (_at_least_0("queue_id"), _at_least_0("reconsume_times"))
#: Brokers compare it with nothing.
OWN_PLACE = HeaderRule("commit_log_offset", "the place of the record", _other_place)
RECORD_RULES = (
    OWN_PLACE,
    HeaderRule("sys_flag", "known bits only", _unknown_bits),
    _at_least_0("body_crc"),
    _at_least_0("reconsume_times"),
    *TIME_RULES,
    _port("born_port"),
    _port("store_port"),
    # An empty body has a CRC of 0 (common/UtilAll.java crc32), and only finals name another record.
    HeaderRule("body_crc", "0, because the body is empty", _crc_without_body),
    HeaderRule("prepared_transaction_offset", "0, because the record is not a final", _name_without_final),
    HeaderRule("prepared_transaction_offset", "the offset of an earlier record", _name_of_no_earlier_record),
)

#: What a broken rule expects from a field on which no state depends.
_OF_NO_STATE = frozenset(rule.expected for rule in RECORD_RULES) - {rule.expected for rule in STATE_RULES}


def is_of_a_state(finding: Finding) -> bool:
    """Whether a state may depend on the field of a finding `record-header`."""
    return finding.expected not in _OF_NO_STATE


def plausible_times(block: Block) -> Int64s:
    """Return the store time of each record; in place of one whose header breaks a rule, that of a record beside it.

    A damaged own offset does not count: the record is proved by those around it.
    Order: of the block. Units: ms; 0 if no header is plausible.
    """
    times: Int64s = block.header("store_time_ms").astype(np.int64)
    good = ~break_any_rule(block, (one for one in RECORD_RULES if one is not OWN_PLACE))
    if good.all():
        return times
    known = np.flatnonzero(good)
    if not len(known):
        return np.zeros(len(block), np.int64)
    before = np.searchsorted(known, np.arange(len(block)), side="right") - 1
    return times[known[np.maximum(before, 0)]]


def has_port(host_numbers: Int64s) -> Bools:
    """Return which host numbers of `Block.store_host_numbers` end in a possible port."""
    ports: Bools = (host_numbers & 0xFFFFFFFF) <= PORT_MAX
    return ports


def break_any_rule(block: Block, rules: Iterable[HeaderRule]) -> Bools:
    """Return which records break one of the rules."""
    found = np.zeros(len(block), np.bool_)
    for rule in rules:
        found |= rule.breaks(block.header(rule.field), block)
    return found


def broken_rules(block: Block, store: str, rules: Iterable[HeaderRule]) -> Iterator[Finding]:
    """Yield a finding for each record that breaks a rule, about the first rule that it breaks.

    Order:  of the rules, then of the block.
    Damage: record-header.
    """
    seen = np.zeros(len(block), np.bool_)
    for rule in rules:
        values = block.header(rule.field)
        broken = rule.breaks(values, block)
        for row in np.flatnonzero(broken & ~seen).tolist():
            yield Finding(
                store, "record-header", block.file, int(block.positions[row]), int(block.lengths[row]),
                commit_log_offset=int(block.commit_log_offsets[row]), expected=rule.expected,
                actual=f"{rule.field} {values[row]}",
            )
        seen |= broken


PROPERTY_CRC = "__CRC32#"
#: `__CRC32#` 0x01, ten digits, 0x02: the last bytes of the record, which the CRC does not cover.
PROPERTY_CRC_BYTES = 20


def property_crc_findings(block: Block, store: str) -> Iterator[Finding]:
    """Return findings for records whose property `__CRC32#` is not the CRC of the bytes before it.

    Order:  of the block.
    Damage: record-property-crc.
    """
    memory = memoryview(block.data)  # type: ignore[arg-type]
    for row in np.flatnonzero(have_property_crc(block)).tolist():
        end = int(block.starts[row] + block.lengths[row]) - PROPERTY_CRC_BYTES
        computed = zlib.crc32(memory[int(block.starts[row]) : end]) & CRC_MASK
        digits = bytes(memory[end + 9 : end + 19])
        stored = int(digits[::-1]) if digits.isdigit() else None
        if stored != computed:
            yield Finding(
                store, "record-property-crc", block.file, int(block.positions[row]), int(block.lengths[row]),
                commit_log_offset=int(block.commit_log_offsets[row]), expected=f"CRC {computed}",
                actual=digits.decode("ascii", "replace"),
            )


def word_crc_findings(block: Block, store: str) -> Iterator[Finding]:
    """Return the findings for records with an intact body: the damage is in header, topic or properties."""
    for finding in property_crc_findings(block, store):
        row = np.flatnonzero(block.commit_log_offsets == finding.commit_log_offset)
        if block.take(row).body_crc_matches().all():
            yield finding


def have_property_crc(block: Block) -> Bools:
    """Return which records end in a property CRC."""
    name = PROPERTY_CRC.encode() + b"\x01"
    places = block.starts + block.lengths - PROPERTY_CRC_BYTES
    found: Bools = places > block.topic_starts
    for number, value in enumerate(name):
        found[found] = block.data[places[found] + number] == value
        if not found.any():
            break
    return found

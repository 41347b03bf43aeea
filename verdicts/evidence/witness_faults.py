"""Faults of witnesses that leave their state readable, and bodies at which the next start ends the log.

A verification reports the same faults of every record.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rmqtx.readers.log.commit_log import crc_findings
from rmqtx.readers.log.header_rules import RECORD_RULES, STATE_RULES, broken_rules
from rmqtx.readers.log.record_block import Block
from rmqtx.readers.log.splits import Split
from rmqtx.readers.log.torn_properties import have_torn_properties
from rmqtx.readers.model.columns import Int64s
from rmqtx.readers.model.findings import Finding
from rmqtx.readers.store.store import OP_TOPIC
from rmqtx.verdicts.startup.log_cut import earliest_read, unaccepted_bodies


def witness_findings(block: Block, found: dict[str, pa.RecordBatch], store: str) -> Iterator[Finding]:
    """Return impossible header values, and properties that are not names and values, of the witnesses of a block.

    `found`: the witnesses by kind. What is wrong with the fields and properties that decide is reported elsewhere.
    Order: kind of finding, then of the block.
    Damage: record-header, record-properties.
    """
    places = [np.asarray(rows["commit_log_offset"]) for rows in found.values()]
    if not places:
        return
    mine = block
    if sum(map(len, places)) < len(block):
        mine = block.take(np.isin(block.commit_log_offsets, np.concatenate(places)))
    yield from broken_rules(mine, store, (rule for rule in RECORD_RULES if rule.field not in _STATE_FIELDS))
    for row in np.flatnonzero(mine.properties.malformed() & ~have_torn_properties(mine)).tolist():
        yield Finding(
            store, "record-properties", mine.file, int(mine.positions[row]), int(mine.lengths[row]),
            commit_log_offset=int(mine.commit_log_offsets[row]), expected="names and values",
        )


_STATE_FIELDS = frozenset(rule.field for rule in STATE_RULES)


class StartedBodies:
    """The bodies of one split that the next start of a stopped broker compares with their CRCs."""

    def __init__(self, split: Split) -> None:
        begin = earliest_read(split.store)
        self._split = split
        self._is_read = begin is not None and split.segment.base_offset >= begin
        self._breaks: list[Int64s] = [np.empty((0, 2), np.int64)]

    def findings(self, block: Block) -> Iterator[Finding]:
        """Return the records of a block whose body does not match its CRC.

        Damage: record-body-crc; op messages are reported where their numbers are read.
        """
        if not self._is_read:
            return
        wrong = unaccepted_bodies(block)
        self._breaks.append(wrong)
        if len(wrong):
            is_reported = block.topic_is(OP_TOPIC)
            yield from crc_findings(self._split.store, block, pa.array(block.body_crc_matches() | is_reported))

    def breaks(self) -> Int64s:
        """Return rows [from, to) of the file: the records with such bodies."""
        return np.concatenate(self._breaks)

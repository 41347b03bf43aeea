"""Records of a store's log, and drafts of them written where the broker put its own."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtx.readers.log.commit_log import scan_segments
from rmqtx.readers.log.record_layout import AT
from rmqtx.readers.store.broker_settings import broker_settings
from rmqtx.readers.store.store import Store
from rmqtx.repairs.records.record_writer import PROPERTY_CRC, RecordDraft, WritingRules, writing_rules


def records(store: Store) -> Iterator[bytes]:
    """Every record of a store's log, as it is there."""
    for block in scan_segments(store, [], []):
        for start, length in zip(block.starts.tolist(), block.lengths.tolist(), strict=True):
            yield block.raw[start : start + length]


def number(record: bytes, name: str, size: int) -> int:
    """A number of a record's head by the name of its field."""
    return int.from_bytes(record[AT[name] : AT[name] + size], "big", signed=True)


def at_its_place(draft: RecordDraft, rules: WritingRules, record: bytes) -> bytes:
    """The draft's record where the broker put its own: place, queue offset and time are given."""
    shift = 12 if number(record, "sys_flag", 4) & 0x10 else 0
    at = AT["store_time_ms"] + shift
    return draft.record(
        rules, queue_offset=number(record, "queue_offset", 8),
        commit_log_offset=number(record, "commit_log_offset", 8),
        store_time_ms=int.from_bytes(record[at : at + 8], "big"),
    )


def rules_of(store: Store, version: str, seen: list[bytes]) -> WritingRules:
    """How a broker of a version writes records into a store."""
    settings = broker_settings(store, version=version)
    return writing_rules(settings, has_property_crc=PROPERTY_CRC in seen[-1])

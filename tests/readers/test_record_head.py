"""One record in bytes is decoded as `Block` decodes many, whatever the lengths of its hosts."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtx.readers.log.dledger import ENTRY_HEADER
from rmqtx.readers.log.header_rules import _unknown_bits
from rmqtx.readers.log.record_at import block_of_one
from rmqtx.readers.log.record_layout import (
    BORN_V6,
    MAGIC_V1,
    MAGIC_V2,
    RECORD,
    RECORD_BYTES_MIN,
    STORE_V6,
    head_of,
    number_at,
    parts_of,
    signed,
)
from rmqtx.readers.log.record_values import block_of
from rmqtx.readers.model.errors import FormatError
from rmqtx.readers.storage import segments
from rmqtx.repairs.records.record_writer import RecordDraft, WritingRules, draft_of
from tests.forge.records import Message

RULES = WritingRules(True, True, True, False, True)
V4, V6 = b"\x0a\0\0\1\0\0\x2a\x9f", bytes(range(16)) + b"\0\0\x2a\x9f"


@pytest.mark.parametrize("topic", ["T", "T" * 200])
@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("born_host", [V4, V6])
def test_fields_and_parts_are_those_of_a_block(born_host: bytes, store_host: bytes, topic: str) -> None:
    draft = RecordDraft(
        topic=topic, queue_id=3, body=b"body", properties=b"A\x01B\x02", born_time_ms=5, born_host=born_host,
        store_host=store_host, flag=7, sys_flag=4, reconsume_times=-2, prepared_transaction_offset=9,
    )
    record = draft.record(RULES, queue_offset=11, commit_log_offset=1 << 40, store_time_ms=-13)
    block = block_of_one(record, 1 << 40, "", 0)
    assert block is not None
    assert block.sound().all()
    for field in RECORD.fields:
        if not field.code.endswith("s"):
            assert number_at(b"!" + record, field.name, 1) == int(block.header(field.name)[0]), field.name
    parts = parts_of(record)
    assert (record[parts.born_host], record[parts.store_host]) == (born_host, store_host)
    assert (record[parts.body], record[parts.topic]) == (b"body", topic.encode())
    assert record[parts.properties] == b"A\x01B\x02"
    again = draft_of(record)
    assert again.sys_flag & (BORN_V6 | STORE_V6) == number_at(record, "sys_flag") - 4
    assert (again.reconsume_times, again.prepared_transaction_offset) == (-2, 9)
    assert head_of(record) == (len(record), MAGIC_V1 if len(topic) == 1 else MAGIC_V2, 1 << 40)


def test_what_storage_reads_of_records_and_entries_is_as_declared() -> None:
    """The package below cannot import the declarations."""
    head = RECORD.pack(length_bytes=91, magic=signed(MAGIC_V2), commit_log_offset=7, queue_offset=5)
    size = segments._RECORD_HEAD.size
    assert segments._RECORD_HEAD.unpack(head[:size]) == head_of(head) == (91, MAGIC_V2, 7)
    assert (segments._RECORD_MAGICS, segments._RECORD_BYTES_MIN) == ((MAGIC_V1, MAGIC_V2), RECORD_BYTES_MIN)
    entry = ENTRY_HEADER.pack(magic=1, length_bytes=2, entry_index=3, term=4, entry_offset=5, body_length_bytes=6)
    assert segments._ENTRY_HEAD.unpack_from(entry) == (1, 2, 5, 6)


def test_a_record_from_a_bundle_or_an_answer_is_one_record() -> None:
    """Else a redelivery would find the copy that it looks for twice."""
    record = Message().record(700)
    assert len(block_of(record)) == 1
    for wrong in (record[:-1], record + b"\0", b""):
        with pytest.raises(FormatError):
            block_of(wrong)


def test_hosts_of_both_kinds_are_read_each_by_its_own_flag() -> None:
    """The address of the broker is half of a message id: where it is wrong, it finds no transaction."""
    for born, store in (("10.0.0.7", "10.0.0.1"), ("::7", "10.0.0.1"), ("10.0.0.7", "::1"), ("::7", "::1")):
        block = block_of(Message(born_host=(born, 40_000), store_host=(store, 10_911)).record(700))
        assert [one.to_pylist() for one in (block.born_hosts(), block.store_hosts())] == [
            [f"[{born}]:40000" if ":" in born else f"{born}:40000"],
            [f"[{store}]:10911" if ":" in store else f"{store}:10911"],
        ]


def test_a_flag_is_damaged_if_no_broker_sets_it_or_no_compression_has_its_number() -> None:
    """LZ4, ZSTD and ZLIB are 1 to 3; else `verify` would name sound compressed records as damaged."""
    flags = np.array([0, 0x7F, 0x100, 0x200, 0x300, 0x400, 0x700, 0x800])
    found = _unknown_bits(flags, block_of(Message().record(0)))
    assert found.tolist() == [False, False, False, False, False, True, True, True]

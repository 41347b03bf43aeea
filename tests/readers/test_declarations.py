"""What is declared: layouts pack what they unpack, schemas explain themselves, errors travel between processes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtx.readers.cursors import CURSOR_KEY
from rmqtx.readers.index.index import ENTRY, HEADER, INDEX_SLOT
from rmqtx.readers.log.record_layout import BLANK, RECORD
from rmqtx.readers.model import errors
from rmqtx.readers.model.findings import KINDS, Finding
from rmqtx.readers.model.layout import Field, Layout
from rmqtx.readers.model.tables import ALL_TABLES, FINALS, FINDINGS, MARKS, TRANSACTIONS, findings_table
from rmqtx.readers.old_tables.redo_log import REDO_ENTRY
from rmqtx.readers.old_tables.state_table import STATE_SLOT
from rmqtx.readers.queues.consume_queue import BATCH_SLOT, SLOT
from rmqtx.readers.queues.consume_queue_extension import EXTENSION_UNIT
from rmqtx.readers.rocksdb.rocksdb_queues import END_VALUE, SLOT_KEY, SLOT_VALUE
from rmqtx.readers.rocksdb.rocksdb_transactions import LAST_OFFSET_VALUE, TRANSACTION_KEY, TRANSACTION_VALUE
from rmqtx.readers.store.checkpoint import CHECKPOINT_FIELDS
from tests.forge.records import Message, blank

LAYOUTS = [
    RECORD, BLANK, SLOT, BATCH_SLOT, EXTENSION_UNIT, CHECKPOINT_FIELDS, HEADER, INDEX_SLOT, ENTRY, STATE_SLOT,
    REDO_ENTRY, TRANSACTION_KEY, TRANSACTION_VALUE, LAST_OFFSET_VALUE, SLOT_KEY, SLOT_VALUE, END_VALUE, CURSOR_KEY,
]
BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


def values_of(layout: Layout) -> st.SearchStrategy[dict[str, Any]]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in layout.fields:
        if field.code.endswith("s"):
            fields[field.name] = st.binary(min_size=field.size_bytes, max_size=field.size_bytes)
        elif field.code == "H":
            fields[field.name] = st.integers(0, 65_535)
        else:
            limit = 1 << (BITS[field.code] - 1)
            fields[field.name] = st.integers(-limit, limit - 1)
    return st.fixed_dictionaries(fields)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_what_is_packed_is_unpacked(layout: Layout) -> None:
    @given(values_of(layout), st.binary(max_size=5))
    def check(values: dict[str, Any], before: bytes) -> None:
        data = layout.pack(**values)
        assert len(data) == layout.size_bytes
        assert layout.unpack(before + data, len(before)) == values
        row = np.frombuffer(data, layout.dtype)[0]
        for field in layout.fields:
            if not field.code.endswith("s"):
                assert int(row[field.name]) == values[field.name]
                begin = layout.offsets[field.name]
                is_signed = field.code != "H"
                piece = data[begin : begin + field.size_bytes]
                assert int.from_bytes(piece, "big", signed=is_signed) == values[field.name]

    check()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_layout_explains_itself(layout: Layout) -> None:
    assert layout.title
    assert "docs/formats/" in layout.source
    assert layout.dtype.itemsize == layout.size_bytes
    names = [field.name for field in layout.fields]
    assert len(set(names)) == len(names)
    assert all(field.meaning and field.type_name for field in layout.fields)
    for name in names:
        assert not name.endswith("_ms") or next(f for f in layout.fields if f.name == name).unit == "ms"
    assert layout.pack() == bytes(layout.size_bytes)


def test_a_size_that_is_not_the_fields_is_refused() -> None:
    with pytest.raises(AssertionError, match="fields make 4 bytes, declared 5"):
        Layout("x", "x", (Field("a", "i", "x"),), 5, "x")


def test_forged_records_have_the_size_of_their_parts() -> None:
    message = Message(topic="orders", body=b"12345", properties=(("A", "b"),))
    assert len(message.record(0)) == 88 + 5 + 1 + 6 + 2 + 4
    wide = Message(topic="orders", body=b"12345", properties=(("A", "b"),), version=2, born_host=("::1", 1))
    assert len(wide.record(0)) == 88 + 5 + 1 + 6 + 2 + 4 + 1 + 12
    assert BLANK.unpack(blank(100)) == {"length_bytes": 100, "magic": BLANK.unpack(blank(8))["magic"]}


@pytest.mark.parametrize("name", sorted(ALL_TABLES))
def test_every_column_says_what_it_is(name: str) -> None:
    schema = ALL_TABLES[name]
    assert len(set(schema.names)) == len(schema.names)
    assert schema.names[0] == "store"
    for field in schema:
        assert field.metadata
        assert field.metadata[b"meaning"]
        assert not field.name.endswith(("_ms", "_bytes", "_offset")) or pa.types.is_integer(field.type)


def test_the_contract_of_transactions_stays() -> None:
    """Scripts rely on these names and on this order."""
    assert TRANSACTIONS.names == [
        "store", "transaction_id", "state", "flags", "reason", "advice", "producer_group", "topic", "queue_id", "keys",
        "born_time_ms", "half_store_time_ms", "decided_time_ms", "checks_count", "half_copies", "op_marks",
        "final_records", "discard_copies", "state_entries", "discard_at_ms", "deliveries_count",
        "reason_code", "causes", "next_event", "next_event_at_ms", "answer_effect",
    ]
    evidence = {
        name: [field.name for field in TRANSACTIONS.field(name).type.value_type]
        for name in ("half_copies", "op_marks", "final_records", "discard_copies", "state_entries")
    }
    place = ["store", "queue_id", "queue_offset", "commit_log_offset"]
    assert evidence == {
        "half_copies": [*place, "store_time_ms", "checks_count"],
        "op_marks": [*place, "half_queue_offset", "store_time_ms"],
        "final_records": [
            "store", "topic", "queue_id", "queue_offset", "commit_log_offset", "store_time_ms",
            "prepared_transaction_offset",
        ],
        "discard_copies": [*place, "store_time_ms"],
        "state_entries": ["store", "kind", "key", "value", "position_bytes"],
    }
    assert "commit_log_offset" in FINALS.names
    assert "half_queue_offset" in MARKS.names


ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RmqtxError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_survives_its_journey(kind: type[errors.RmqtxError]) -> None:
    error = kind(
        "it broke", file="/a/b", position_bytes=7, field="magic", expected=1, actual=2, advice="mend it"
    )
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is kind
    assert vars(arrived) == vars(error)
    assert str(arrived) == str(error) == "it broke (/a/b at byte 7) [magic: expected 1, found 2] - mend it"


def test_an_error_says_its_file_once() -> None:
    assert str(errors.UnreadableFile("cannot open /a/b: no", file="/a/b")) == "cannot open /a/b: no"
    assert str(errors.NotAStore("no store")) == "no store"


@pytest.mark.parametrize("code", sorted(KINDS))
def test_every_kind_of_finding_speaks(code: str) -> None:
    kind = KINDS[code]
    assert kind.severity in ("error", "warning", "note")
    finding = Finding("/s", code, "/s/f", 10, 5, expected="a", actual="b")
    assert finding.line().startswith(f"{kind.severity}: {code}: /s/f at byte 10, 5 bytes: {kind.title}")
    assert "(expected a, found b)" in finding.line()
    table = findings_table([finding, Finding("/s", code, meaning="otherwise")])
    assert table.schema == FINDINGS
    assert table["meaning"].to_pylist() == [kind.meaning, "otherwise"]


def test_no_findings_are_an_empty_table() -> None:
    assert findings_table([]).schema == FINDINGS
